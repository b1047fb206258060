"""Identifiers: three parts in one string, as PostgreSQL's drivers write them."""

from __future__ import annotations

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.coordination import Xid
from quire.errors import InvalidArgument

PARTS = st.text(max_size=64).filter(lambda part: len(part.encode()) <= 64)


@given(st.integers(0, 2**31 - 1), PARTS, PARTS)
def test_the_parts_come_back_from_the_string(format_id: int, gtrid: str, bqual: str) -> None:
    """XI1, and the string is one that the store takes: printable, of at most 200 bytes."""
    xid = Xid.from_parts(format_id, gtrid, bqual)
    text = str(xid)
    assert Xid.from_string(text) == xid
    assert tuple(xid) == (format_id, gtrid, bqual)
    assert text.isprintable()
    assert len(text.encode()) <= 200


@given(st.integers(0, 2**31 - 1), PARTS, PARTS)
def test_psycopg_writes_and_reads_the_same(format_id: int, gtrid: str, bqual: str) -> None:
    """One identifier is one string on both sides of a transaction."""
    theirs = psycopg.Xid.from_parts(format_id, gtrid, bqual)
    assert str(theirs) == str(Xid.from_parts(format_id, gtrid, bqual))
    assert Xid.of(theirs) == Xid.from_string(str(theirs))


@given(st.text() | st.from_regex(r"[0-9]{1,11}_[A-Za-z0-9+/=]{0,9}_[A-Za-z0-9+/=]{0,9}"))
def test_every_string_is_an_identifier(text: str) -> None:
    """XI1, XI2: whatever is in doubt can be named, also what was prepared under a plain string."""
    assert str(Xid.from_string(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "order-17",
        "",
        "1_YQ",
        "1_YQ==_YQ==_",
        "01_YQ==_YQ==",  # not as it would be written
        "1_YR==_YQ==",  # spare bits
        "1_YQ=_YQ==",
        "1_Y Q==_YQ==",
        "1_/w==_YQ==",  # not UTF-8
        "2147483648_YQ==_YQ==",
        "\u0661_YQ==_YQ==",  # a digit, but not of ASCII
        f"1_{'YWFh' * 22}_YQ==",  # 66 bytes
    ],
)
def test_what_is_not_exactly_of_the_form_is_kept_whole(text: str) -> None:
    """XI2: then the string is the global id, and the other parts are None."""
    assert tuple(Xid.from_string(text)) == (None, text, None)


@pytest.mark.parametrize(
    ("format_id", "gtrid", "bqual"),
    [
        (-1, "a", "b"),
        (2**31, "a", "b"),
        (True, "a", "b"),
        ("1", "a", "b"),
        (None, "a", "b"),
        (1, "a" * 65, "b"),
        (1, "a", "\u00e4" * 33),
        (1, b"a", "b"),
        (1, "a", None),
        (1, "\ud800", "b"),
    ],
)
def test_parts_that_cannot_be_written_are_refused(format_id: int, gtrid: str, bqual: str) -> None:
    """XA's limits: 31 bits, and 64 bytes for each string."""
    with pytest.raises(InvalidArgument):
        Xid.from_parts(format_id, gtrid, bqual)


@pytest.mark.parametrize("value", [None, 7, (1, "a"), ("a", "b", "c"), b"abc", object()])
def test_what_is_no_identifier_is_refused(value: object) -> None:
    """A string, an Xid, or a sequence of three; nothing else."""
    with pytest.raises(InvalidArgument):
        Xid.of(value)
