"""The page on options lists all of them, with their defaults."""

from __future__ import annotations

import re
from typing import Any

from msgspec.structs import fields

from quire.engine.options import FIXED, Options
from tests.source_tree import ROOT

UNITS = {"KiB": 1 << 10, "MiB": 1 << 20}


def rows() -> dict[str, tuple[str, str]]:
    """The table: name -> default and text."""
    text = (ROOT / "docs" / "options.md").read_text()
    found = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \|$", text, re.MULTILINE)
    return {name: (default, what) for name, default, what in found}


def value(shown: str) -> Any:
    """What the page shows, as the option has it."""
    if shown.startswith("`"):
        return shown.strip('`"')
    number, _, unit = shown.replace(",", "").partition(" ")
    if number in ("None", "False"):
        return {"None": None, "False": False}[number]
    return float(number) * UNITS.get(unit, 1)


def test_all_options_are_listed_with_their_defaults() -> None:
    """No more and no fewer; those that are fixed are marked."""
    shown = rows()
    assert shown.keys() == {field.name for field in fields(Options)}
    for field in fields(Options):
        default, what = shown[field.name]
        assert value(default) == field.default, field.name
        assert what.startswith("*fixed*") == (field.name in FIXED), field.name
