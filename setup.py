"""The compiled form of Quire, with QUIRE_COMPILE=1. All else of the build is in pyproject.toml.

mypyc makes C of the modules that pyproject.toml lists under [tool.quire]. They stand beside their
sources and are imported in their stead; without them Quire is whole, in pure Python.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

from setuptools import Extension, setup

# Types of other packages are left out: whether they are installed must not decide what is built.
MYPY_OPTIONS = ("--config-file=", "--follow-imports=silent", "--ignore-missing-imports")


def extensions() -> list[Extension]:
    """Of the modules that are compiled, and the library that holds them all."""
    if os.environ.get("QUIRE_COMPILE") != "1":
        return []
    try:
        from mypyc.build import mypycify
    except ImportError:
        raise SystemExit(
            "QUIRE_COMPILE=1 needs mypy, setuptools and wheel where it builds: install them "
            "(pip install -c constraints.txt mypy setuptools wheel), and build with "
            "--no-build-isolation"
        ) from None
    settings = tomllib.loads(Path("pyproject.toml").read_text())
    modules = settings["tool"]["quire"]["compiled"]
    paths = [f"{module.replace('.', '/')}.py" for module in modules]
    return mypycify([*MYPY_OPTIONS, *paths], opt_level="2", debug_level="0", group_name="quire")


setup(ext_modules=extensions())
