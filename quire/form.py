"""Which form of Quire this is: pure Python, or compiled (see `setup.py`).

This module is one of those that are compiled, all of which are or none.
"""

from __future__ import annotations

from typing import Final

compiled: Final = not __file__.endswith(".py")
