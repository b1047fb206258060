"""Refuses to build from a checkout that has lost its links; all else is in pyproject.toml.

The components are folders at the top, and links in the package lead to them. Where a zip or a file
system keeps no links there are small texts in their place, and a wheel would be without an engine.
A source distribution has the folders themselves.
"""

import sys
from pathlib import Path

from setuptools import setup

COMPONENTS = (
    "engine",
    "journal",
    "writebuffer",
    "ltds",
    "remote",
    "spark_graphs",
    "coordination",
)
ROOT = Path(__file__).resolve().parent

lost = [name for name in COMPONENTS if not (ROOT / "quire" / name / "__init__.py").is_file()]
if lost:
    sys.exit(
        f"quire cannot be built: {', '.join(lost)} in the folder quire should be links "
        "to the folders of these names, and are not. Links get lost in some zip files and on file "
        "systems that have none. Take a source distribution, or clone with git where links can be "
        "made (on Windows: git config core.symlinks true); or make each: "
        f"cd quire; ln -sfn ../{lost[0]} {lost[0]}"
    )
setup()
