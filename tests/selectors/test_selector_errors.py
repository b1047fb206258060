"""Selectors that are wrong: each is refused with its place, and with what may stand there."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.errors import InvalidArgument, InvalidSelector
from quire.limits import MAX_FILTER_BYTES
from quire.selectors.condition import condition

from .asked import block_of, chosen

SCHEMA = "id bigint not null, name string, at timestamp, day date, tags array<string>, ok boolean"

WRONG: list[tuple[str, str]] = [
    ("a = ", "line 1, column 5: it ends where a value may stand"),
    ("a = 'x", "line 1, column 5: \"'x\" cannot be read: a value may stand"),
    ("a == 1", "line 1, column 4: '=' stands where a value may stand"),
    ("a = 1\n  AND b ? 2", "line 2, column 9: '? 2' cannot be read"),
    ("a =\n\n", "line 3, column 1: it ends where a value may stand"),
    ("(a = 1", "line 1, column 7: it ends where ) may stand"),
    ("a = 1)", "line 1, column 6: ')' stands where the end may stand"),
    ("a = 1 b = 2", "line 1, column 7: 'b' stands where"),
    ("a BETWEEN 1 OR 2", "line 1, column 13: 'OR' stands where + - or AND may stand"),
    ("a IN (b)", "line 1, column 7: 'b' stands where 'text', a number, TRUE or FALSE may"),
    ("a IN ()", "line 1, column 7: ')' stands where"),
    ("a LIKE 5", "line 1, column 8: '5' stands where 'text' may stand"),
    ("a IS 5", "line 1, column 6: '5' stands where NOT or NULL may stand"),
    ("in = 1", "line 1, column 1: 'in' stands where a value or NOT may stand"),
    ("NOT", "line 1, column 4: it ends where a value or NOT may stand"),
    ("a = 1 = 2", "line 1, column 7: '=' stands where"),
    ("1a = 2", "line 1, column 1: '1a' is no number"),
    ("a = 08", "line 1, column 5: '08' is no number"),
    ("a = 0x", "line 1, column 5: '0x' is no number"),
    ("a = 0x1.8", "line 1, column 5: '0x1.8' is no number"),
    ("a = 0x1p99999", "line 1, column 5: '0x1p99999' is greater than any double"),
    ("weight>41AND weight<43", "line 1, column 8: '41AND' is no number"),
    ("a = 'x' AND b between -4AND 5", "line 1, column 24: '4AND' is no number"),
    ("a = 9223372036854775808", "line 1, column 5: an exact number has 64 bits: write .0"),
    ("a = 1e999", "line 1, column 5: '1e999' is greater than any double"),
    ("5", "line 1, column 1: a value stands where a condition may stand: compare it"),
    ("a = 1 AND b + 1", "line 1, column 11: a value stands where a condition may stand"),
    ("JMSPriority", "line 1, column 1: a number stands where a condition may stand: compare it"),
    ("a = (b = 1)", "line 1, column 6: a condition stands where a value may stand"),
    ("'x' + 1 = 1", "line 1, column 1: a text stands where a number may stand"),
    ("-TRUE = 1", "line 1, column 2: a boolean stands where a number may stand"),
    ("a > 'b'", "line 1, column 1: a text can be compared by = and <>, not by >"),
    ("a < TRUE", "line 1, column 1: a boolean can be compared by = and <>, not by <"),
    ("JMSPriority = 'x'", "line 1, column 1: a number is compared with a text"),
    ("JMSType = 1", "line 1, column 1: a text is compared with a number"),
    ("'1' = 1", "line 1, column 1: a text is compared with a number"),
    ("a BETWEEN 'a' AND 'b'", "line 1, column 1: a text can be compared by = and <>"),
    ("JMSPriority LIKE '1%'", "line 1, column 1: LIKE is for texts, and this is a number"),
    ("5 IS NULL", "line 1, column 1: IS NULL is for a name alone"),
    ("a + 1 IN (1)", "line 1, column 1: IN is for a name alone"),
    ("'a' LIKE 'a'", "line 1, column 1: LIKE is for a name alone"),
    ("a LIKE 'x' ESCAPE 'ab'", "line 1, column 19: ESCAPE needs one character"),
    ("a LIKE 'x!y' ESCAPE '!'", "line 1, column 8: in the pattern '!' stands before 'y'"),
    ("a LIKE 'x!' ESCAPE '!'", "line 1, column 8: in the pattern '!' stands last"),
    ("JMSRedelivered = TRUE", "line 1, column 1: there is no JMSRedelivered: there are JMSP"),
    ("a = TIMESTAMP 'x'", "line 1, column 5: where: timestamp 'x' is none"),
    ("a = DATE '2024-01-01'", "line 1, column 1: a text is compared with a date"),
    ("a = 1 \ud800", "lone surrogates"),
    ("(" * 70 + "a" + ")" * 70 + " = ", "it ends"),
    ("NOT " * 70 + "a", "nested more than 64 deep"),
    ("a = 'b'" + " " * MAX_FILTER_BYTES, "at most 16384 are possible"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), WRONG)
def test_a_wrong_selector_is_refused_with_its_place(text: str, expected: str) -> None:
    """Line and column count from 1."""
    with pytest.raises(InvalidSelector) as raised:
        condition(text)
    assert expected in str(raised.value)
    assert f"selector {text[:20]!r:.15}" in str(raised.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name > 'x'", "column 1: a text can be compared by = and <>"),
        ("name = 1", "column 1: a text is compared with a number"),
        ("at = '2024-01-01'", "column 1: a time is compared with a text"),
        ("at > DATE '2024-01-01'", "column 1: a time is compared with a date"),
        ("at = at", "column 1: a time can be compared with what is written only"),
        ("at BETWEEN 1 AND 2", "column 1: a time is compared with a number"),
        ("tags = 'x'", "column 1: a list, map or struct is compared with a text"),
        ("ok > TRUE", "column 1: a boolean can be compared by = and <>"),
        ("id", "column 1: a number stands where a condition may stand"),
        ("id IN ('1')", "column 1: a number is compared with a text"),
        ("name + 1 = 2", "column 1: a text stands where a number may stand"),
    ],
)
def test_columns_have_the_types_of_their_queue(text: str, expected: str) -> None:
    """What can never be true is refused at once."""
    with pytest.raises(InvalidSelector, match="line 1") as raised:
        condition(text, SCHEMA)
    assert expected in str(raised.value)


@pytest.mark.parametrize("where", [None, 5, b"a = 1", ["a = 1"]])
def test_what_is_neither_selector_nor_template(where: object) -> None:
    """Only texts and templates say what is asked."""
    with pytest.raises(InvalidArgument, match="give a selector as text"):
        condition(where)  # type: ignore[arg-type]


PIECES = """a =
1 'x' ( ) , AND OR NOT BETWEEN IN LIKE ESCAPE IS NULL TRUE FALSE < <= <> > >= + - * /
JMSPriority JMSTimestamp payload 2.5 0x1F 1e3 '%' '_' ! ? " ' id name at day ok tags
DATE'2024-01-01' TIMESTAMP'2024-01-01'"""
pieces = st.sampled_from(PIECES.split())
garbage = st.one_of(st.text(max_size=20), st.lists(pieces, max_size=9).map(" ".join))
BLOCK = block_of([(b"payload", {"attributes": {"a": "1", "id": "x"}, "priority": 3})] * 10)


@given(garbage)
def test_anything_else_is_a_condition_or_refused(text: str) -> None:
    """Whatever the text is; and a condition that was read can be asked."""
    with suppress(InvalidSelector):
        chosen(BLOCK, text)
    with suppress(InvalidSelector):
        condition(text, SCHEMA)
