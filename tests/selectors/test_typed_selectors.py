"""Selectors over typed queues, and what is known of conditions before anything is read."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import quire
from quire.selectors.condition import condition

from .asked import chosen, row_block_of

WORDS = (
    "id bigint not null, amount double, name string, price decimal(9, 2), day date, "
    "at timestamp, ok boolean, tags array<string>, part float"
)
ROWS: list[dict[str, Any]] = [
    {
        "id": 1, "amount": 2.5, "name": "north", "price": Decimal("12.50"), "ok": True, "tags": [],
        "day": dt.date(2024, 2, 29), "at": dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC), "part": 0.5,
    },
    {"id": 2, "amount": float("nan"), "name": "", "ok": False},
    *[{"id": 3}] * 10,
]  # fmt: skip
BLOCK = row_block_of(WORDS, ROWS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id = 1", {1}), ("1 = id", {1}), ("id >= 2", {2, 3}), ("2 > id", {1}), ("id <> 1", {2, 3}),
        ("id * 2 = amount - 0.5", {1}), ("id + amount > 3", {1}), ("id / 2 = 1", {2, 3}),
        ("id BETWEEN 1 AND 2", {1, 2}), ("id NOT BETWEEN 1 AND 2", {3}), ("id IN (1, 3)", {1, 3}),
        ("amount = 2.5", {1}), ("amount <> 2.5", {2}), ("NOT amount = 2.5", {2}),
        ("amount < 5", {1}), ("NOT amount < 5", {2}), ("part = 0.5", {1}),
        ("price = 12.5", {1}), ("price > 12.49 AND price < 12.51", {1}), ("price * 2 = 25", {1}),
        ("name = 'north'", {1}), ("name IN ('north', 'x')", {1}), ("name LIKE '_o%'", {1}),
        ("name NOT LIKE 'n%'", {2}), ("name IS NULL", {3}), ("name = name", {1, 2}),
        ("ok", {1}), ("NOT ok", {2}), ("ok = FALSE", {2}), ("ok <> TRUE", {2}), ("ok = ok", {1, 2}),
        ("day = DATE '2024-02-29'", {1}), ("day < DATE '2024-03-01'", {1}),
        ("at = TIMESTAMP '2024-02-29 12:00:00'", {1}),
        ("at > timestamp'2024-02-29 12:00:00'", set()),
        ("at BETWEEN TIMESTAMP '2024-01-01' AND TIMESTAMP '2025-01-01'", {1}),
        ("at NOT IN (TIMESTAMP '2024-01-01')", {1}), ("tags IS NOT NULL", {1}),
        ("JMSPriority = 0 AND id = 2", {2}),
        ("other IS NULL", {1, 2, 3}), ("payload IS NULL", {1, 2, 3}),
        ("ID = 1", set()), ('"id" = 1', {1}), ("name = 'north' OR amount = 1", {1}),
    ],
)  # fmt: skip
def test_columns_are_asked_by_name(text: str, expected: set[int]) -> None:
    """What is not a column is an attribute, which rows may have too."""
    found = chosen(BLOCK, text, WORDS)
    assert {row["id"] for row, is_one in zip(ROWS, found, strict=True) if is_one} == expected


@pytest.mark.parametrize("number", [2**53 + 1, -(2**63), 2**63 - 1])
def test_whole_numbers_of_64_bits_are_compared_with_doubles(number: int) -> None:
    """As the nearest double: none is too large."""
    block = row_block_of(WORDS, [{"id": number}] * 12)
    reaches = {"id": _reach([number])}
    nearest = repr(float(number))
    for text in (f"id = {nearest}", f"id BETWEEN {nearest} AND {nearest}", f"{nearest} >= id"):
        assert chosen(block, text, WORDS) == [True] * 12
        assert condition(text, WORDS).may(reaches, 12)
    assert chosen(block, "id > 0.5", WORDS) == [number > 0] * 12


def test_a_block_that_is_older_than_a_column() -> None:
    """It has nulls there."""
    later = f"{WORDS}, n int, s string, b boolean, t timestamp"
    moment = "t > TIMESTAMP '2024-01-01'"
    for text in ("n = 1", "n + 1 = 2", "NOT n = 1", "s = 'x'", "s LIKE '%'", "b", moment):
        assert chosen(BLOCK, text, later) == [False] * 12
    assert chosen(BLOCK, "n IS NULL AND s IS NULL AND b IS NULL", later) == [True] * 12


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("JMSPriority = 5", {("header", "priority"): 5}),
        (
            "5 = JMSPriority AND JMSXUserID = 'bob'",
            {("header", "priority"): 5, ("header", "sender"): "bob"},
        ),
        ("a = 'x' AND (b = 'y' AND c > 1)", {("attribute", "a"): "x", ("attribute", "b"): "y"}),
        ("a IN ('x')", {("attribute", "a"): "x"}),
        ("JMSXGroupID = 'k'", {("attribute", "quire.group_key"): "k"}),
        ("a = 'x' OR b = 'y'", {}), ("NOT a = 'x'", {}), ("a <> 'x'", {}), ("a = b", {}),
        ("a = 1", {}),  # the text may be '1.0'
        ("a = TRUE", {}), ("JMSTimestamp = 1", {}), ("JMSPriority = 5.0", {}),
        ("payload = 'x'", {}),
    ],
)  # fmt: skip
def test_what_every_chosen_message_has(text: str, expected: dict[Any, Any]) -> None:
    """Equalities of which all have to be true."""
    assert condition(text).equalities == expected


def test_what_a_template_asks_is_an_equality() -> None:
    """The same as a selector's."""
    template = quire.Template(
        priority=5, sender=quire.ANY, group_key="k", attributes={"a": "x"}, columns={"id": 1}
    )
    assert condition(template, WORDS).equalities == {
        ("header", "priority"): 5,
        ("attribute", "quire.group_key"): "k",
        ("attribute", "a"): "x",
        ("column", "id"): 1,
    }
    assert condition("id = 1 AND name = 'n'", WORDS).equalities == {
        ("column", "id"): 1,
        ("column", "name"): "n",
    }


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("a = 1 AND JMSPriority > 5", False),
        ("", False),
        ("a = 1 OR NOT (b = 2 AND payload LIKE '%x')", True),
        ("payload + 1 > -payload", True),
        ("payload", True),
        (quire.Template(payload=quire.ANY), True),
        (quire.Template(sender="x"), False),
    ],
)
def test_whether_payloads_are_looked_at(where: Any, expected: bool) -> None:
    """Wherever in the condition."""
    assert condition(where).needs_payload is expected


ids = st.lists(st.integers(-3, 3), min_size=256, max_size=256)
ends = st.integers(-5, 5)


@given(ids, ends, ends)
def test_a_block_is_left_out_only_if_nothing_in_it_is_chosen(
    given: list[int], one: int, other: int
) -> None:
    """A block is left out only if nothing in it is chosen by its statistics (TV3)."""
    block = row_block_of("id bigint, n int", [{"id": each, "n": one} for each in given])
    reaches = {"id": _reach(given), "n": _reach([one])}
    for text in (
        f"id = {one}", f"id > {one} AND id < {other}", f"id < {one} OR n = {other}",
        f"NOT id > {one}", f"id IN ({one}, {other})", "FALSE", f"id + n = {other}",
    ):  # fmt: skip
        asked = condition(text, "id bigint, n int")
        if asked.rows(block, first_id=1, time_us=1).any():
            assert asked.may(reaches, len(given)), text


def test_a_block_is_left_out_by_its_statistics() -> None:
    """What its head says is enough."""
    reaches = {"id": _reach([3, 5])}
    for text, expected in (
        ("id = 4", True), ("id > 5", False), ("id > 5 OR name = 'x'", True), ("FALSE", False),
        ("id > 5 AND name = 'x'", False), ("id IN (1, 2)", False), ("id IN (1, 3)", True),
    ):  # fmt: skip
        assert condition(text, WORDS).may(reaches, 2) is expected


class _Reach:
    """How far a column reaches."""

    nulls = 0

    def __init__(self, least: int, greatest: int) -> None:
        self.least, self.greatest = least, greatest


def _reach(values: list[int]) -> _Reach:
    return _Reach(min(values), max(values))


def test_the_parser_is_imported_when_a_selector_is_read() -> None:
    """A program that has none pays nothing for it; templates need none."""
    program = (
        "import sys, quire; from quire.selectors.condition import condition\n"
        "condition(quire.Template(priority=5, attributes={'a': 'x'}))\n"
        "assert 'lark' not in sys.modules and 'pandas' not in sys.modules\n"
        "condition('a = 1')\n"
        "assert 'lark' in sys.modules and 'pandas' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
