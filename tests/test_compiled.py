"""The compiled form is whole or not there, and says which it is (see `setup.py`)."""

from __future__ import annotations

import importlib
import tomllib
from pathlib import Path

import pytest

import quire
from tests.source_tree import ROOT

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
MODULES: list[str] = SETTINGS["tool"]["quire"]["compiled"]


@pytest.mark.parametrize("name", MODULES)
def test_a_listed_module_has_the_form_that_quire_says(name: str) -> None:
    """It is of the tree, and compiled if, and only if, `quire.compiled` says so."""
    assert (ROOT / f"{name.replace('.', '/')}.py").is_file()
    file = importlib.import_module(name).__file__
    assert file is not None
    assert (not file.endswith(".py")) == quire.compiled


def test_status_tells_the_form(tmp_path: Path) -> None:
    """So does the store's status, which joined processes see too."""
    with quire.open(str(tmp_path / "store")) as store:
        assert store.status()["compiled"] is quire.compiled
