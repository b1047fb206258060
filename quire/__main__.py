"""`python -m quire` is the command line (`quire.cli`)."""

import sys

from quire.cli import main

sys.exit(main())
