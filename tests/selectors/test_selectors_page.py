"""The page on selectors says what is."""

from __future__ import annotations

import re

import pytest

from quire.errors import InvalidSelector
from quire.selectors.condition import condition
from quire.selectors.names import HEADER_NAMES
from quire.selectors.template import Template
from tests.source_tree import ROOT

from .asked import truth

PAGE = (ROOT / "docs" / "selectors.md").read_text()
ROWS = re.findall(r"^\| `(.+)` \| (true|false|unknown) \|$", PAGE, re.MULTILINE)
ATTRIBUTES = {"region": "north", "weight": "42", "ratio": "2.5", "urgent": "true"}


def test_the_table_is_there() -> None:
    """With a row for each of the three."""
    assert {word for _, word in ROWS} == {"true", "false", "unknown"}


@pytest.mark.parametrize(("text", "expected"), ROWS)
def test_a_row_of_the_table(text: str, expected: str) -> None:
    """Of the message that the page describes."""
    values = {"true": True, "false": False, "unknown": None}
    assert truth(text, priority=7, attributes=ATTRIBUTES) is values[expected]


def test_every_name_is_told() -> None:
    """Of the header, and of a template's fields."""
    for name in (*HEADER_NAMES, *Template.__struct_fields__):
        assert f"`{name}`" in PAGE, name


def test_the_error_is_the_page_s() -> None:
    """Word for word."""
    [told] = re.findall(r"^    (selector '(.*)': line .*)$", PAGE, re.MULTILINE)
    with pytest.raises(InvalidSelector) as raised:
        condition(told[1])
    assert str(raised.value) == told[0]
