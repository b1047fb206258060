"""Templates: what is set is equal, what is None is not asked, and ANY asks that it is there."""

from __future__ import annotations

import datetime as dt
import pickle
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import quire
from quire.block.block import StreamedBlock
from quire.errors import InvalidArgument, InvalidSelector
from quire.messages.payload_reader import Stream
from quire.selectors.condition import condition

from .asked import block_of, chosen, row_block_of

FULL: dict[str, Any] = {
    "priority": 5, "group": 2, "sender": "bob", "correlation_id": "c", "reply_to": "r",
    "content_type": "text/plain", "expires_at": 1_800_000_000_000_001,
    "deliver_at": 1_700_000_000_000_001, "attributes": {"region": "north", "size": "5"},
}  # fmt: skip
BLOCK = block_of([(b"hello", FULL), (b"bye", {}), *[(b"other", {"group_key": "k"})] * 10])
NOBODY = [False] * 12


@pytest.mark.parametrize("name", [*FULL, "payload"])
def test_a_field_that_is_set_is_equal(name: str) -> None:
    """Of a message that has it; another value, and what is not there, is not chosen."""
    value = {**FULL, "payload": b"hello"}[name]
    assert chosen(BLOCK, quire.Template(**{name: value})) == [True, *NOBODY[1:]]
    longer = {str: "x", bytes: b"x", int: 1}
    other: Any = {**value, "size": "6"} if name == "attributes" else value + longer[type(value)]
    assert chosen(BLOCK, quire.Template(**{name: other})) == NOBODY


def test_any_asks_that_it_is_there() -> None:
    """Numbers without a default, and payloads, always are."""
    first, everybody = [True, *NOBODY[1:]], [True] * 12
    for name in FULL:
        asked: dict[str, Any] = {name: quire.ANY}
        if name != "attributes":
            always = name in ("priority", "group")
            assert chosen(BLOCK, quire.Template(**asked)) == (everybody if always else first)
    assert chosen(BLOCK, quire.Template(payload=quire.ANY)) == everybody
    assert chosen(BLOCK, quire.Template(attributes={"region": quire.ANY})) == first
    assert chosen(BLOCK, quire.Template(group_key=quire.ANY)) == [False, False, *[True] * 10]
    assert chosen(BLOCK, quire.Template(group_key="k")) == [False, False, *[True] * 10]


def test_what_is_not_set_is_not_asked() -> None:
    """Nothing at all asks for every message; 0 is asked."""
    assert chosen(BLOCK, quire.Template()) == [True] * 12
    assert chosen(BLOCK, quire.Template(priority=None, attributes={}, columns={})) == [True] * 12
    assert chosen(BLOCK, quire.Template(priority=0)) == [False, *[True] * 11]
    assert chosen(BLOCK, quire.Template(priority=5, sender="eve")) == NOBODY


def test_a_moment_may_have_any_of_its_forms() -> None:
    """A moment may have any of its forms as a put takes it."""
    moment = dt.datetime(2027, 1, 15, 8, tzinfo=dt.UTC) + dt.timedelta(microseconds=1)
    assert quire.Template(expires_at=moment) == quire.Template(expires_at=1_800_000_000_000_001)
    assert chosen(BLOCK, quire.Template(expires_at=moment))[0]


def test_a_stream_has_no_payload_to_compare() -> None:
    """A template that asks for a payload does not read a stream; its header is asked as others'."""
    header = block_of([(b"", FULL)])
    block = StreamedBlock.of(header, Stream(1, 1 << 21, 1 << 20), lambda *_: pytest.fail("read"))
    for where in (quire.Template(payload=b""), quire.Template(payload=quire.ANY), "payload = ''"):
        assert chosen(block, where) == [False]
    assert chosen(block, quire.Template(sender="bob")) == [True]


def test_a_template_is_a_value() -> None:
    """Equal by what is set, pickled, and made again of its plain form; it cannot be changed."""
    template = quire.Template(priority=5, attributes={"a": quire.ANY}, columns={"n": 1})
    assert pickle.loads(pickle.dumps(template)) == template
    assert template.plain() == {"priority": 5, "attributes": {"a": quire.ANY}, "columns": {"n": 1}}
    assert quire.Template(**template.plain()) == template
    assert hash(quire.Template(**template.plain())) == hash(template)
    assert pickle.loads(pickle.dumps(quire.ANY)) is quire.ANY
    assert repr(quire.ANY) == "quire.ANY"
    with pytest.raises(AttributeError):
        template.priority = 6  # type: ignore[misc]
    with pytest.raises(TypeError):
        template.attributes["b"] = "c"  # type: ignore[index]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"priority": -1}, "priority must be from 0"),
        ({"priority": "5"}, "priority must be an int"),
        ({"sender": 5}, "sender must be a str"),
        ({"payload": "text"}, "a payload must be bytes"),
        ({"expires_at": 5}, "seconds where microseconds are meant"),
        ({"attributes": {"a": 5}}, "attribute 'a' must be a str"),
        ({"attributes": ["a"]}, "give a mapping"),
        ({"columns": {5: 5}}, "give a mapping"),
        ({"group_key": ""}, "give a str of 1 character or more"),
        ({"group_key": "k", "attributes": {"quire.group_key": "k"}}, "say the same"),
    ],
)
def test_what_no_message_can_have_is_refused(given: dict[str, Any], expected: str) -> None:
    """What no message can have is refused when the template is made."""
    with pytest.raises(InvalidArgument, match=expected):
        quire.Template(**given)


WORDS = (
    "id bigint not null, amount double, name string, price decimal(9, 2), raw binary, day date, "
    "at timestamp, tags array<string>, ok boolean, small tinyint, local timestamp_ntz"
)
ROW: dict[str, Any] = {
    "id": 1 << 60, "amount": 2.5, "name": "Grüße", "price": Decimal("12.50"), "raw": b"\0\xff",
    "day": dt.date(2024, 2, 29), "at": dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC), "tags": ["a"],
    "ok": True, "small": 3, "local": dt.datetime(2024, 2, 29, 12),  # noqa: DTZ001
}  # fmt: skip
ROWS = row_block_of(WORDS, [ROW, *[{"id": 8, "ok": False, "small": -4}] * 11])
FIRST = [True, *NOBODY[1:]]


@pytest.mark.parametrize("name", [name for name in ROW if name != "tags"])
def test_a_column_is_equal(name: str) -> None:
    """Of every type but nested ones; `may` never leaves out the block that has it."""
    where = quire.Template(columns={name: ROW[name]})
    assert chosen(ROWS, where, WORDS) == FIRST
    assert condition(where, WORDS).may({}, 12)


def test_columns_that_are_there() -> None:
    """Nested ones, too; None is not asked."""
    for name in ("tags", "name", "price"):
        assert chosen(ROWS, quire.Template(columns={name: quire.ANY}), WORDS) == FIRST
    assert chosen(ROWS, quire.Template(columns={"name": None}), WORDS) == [True] * 12
    assert chosen(ROWS, quire.Template(columns={"id": 8, "small": -4}), WORDS) == [
        False,
        *[True] * 11,
    ]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"nothing": 1}, "asks for column 'nothing'; there are id, amount"),
        ({"id": "1"}, "asks for column 'id': column 'id' does not take it as bigint"),
        ({"id": 1.5}, "asks for column 'id': column 'id' does not take 1.5"),
        ({"id": True}, "asks for column 'id': of nested types, and of truth values"),
        ({"small": 300}, "column 'small' does not take it as tinyint"),
        ({"tags": ["a"]}, "ask for quire.ANY"),
        ({"name": 5}, "column 'name' does not take it as string"),
    ],
)
def test_columns_that_cannot_be_asked(columns: dict[str, Any], expected: str) -> None:
    """The error names the column."""
    with pytest.raises(InvalidSelector, match=expected):
        condition(quire.Template(columns=columns), WORDS)


def test_rows_and_bytes_are_asked_in_their_own_ways() -> None:
    """A payload of bytes, columns of rows."""
    with pytest.raises(InvalidSelector, match="holds rows: give columns"):
        condition(quire.Template(payload=b"x"), WORDS)
    with pytest.raises(InvalidSelector, match="holds bytes: give attributes"):
        condition(quire.Template(columns={"a": 1}))
    # What is not asked is not refused.
    condition(quire.Template(columns={"a": None}))


small = st.sampled_from(["", "a", "b"])
fields = st.fixed_dictionaries(
    {},
    optional={
        "priority": st.integers(0, 2),
        "sender": small,
        "deliver_at": st.sampled_from([0, 1_700_000_000_000_000]),
        "attributes": st.dictionaries(small, small, max_size=2),
    },
)
messages = st.tuples(st.sampled_from([b"", b"x"]), fields)


@given(messages, st.lists(messages, min_size=1, max_size=12))
def test_a_message_shaped_value(asked: Any, given: Any) -> None:
    """Against the definition: what the template's put says is part of what the message's says."""
    payload, wanted = asked
    template = quire.Template(payload=payload, **wanted)

    def is_asked(message: bytes, fields: dict[str, Any]) -> bool:
        pairs = wanted.get("attributes", {}).items() <= fields.get("attributes", {}).items()
        told = {"priority": 0, **fields}
        others = all(told.get(name) == wanted[name] for name in wanted if name != "attributes")
        return message == payload and pairs and others

    assert chosen(block_of(given), template) == [is_asked(*each) for each in given]
