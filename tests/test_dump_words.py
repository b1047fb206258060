"""A dump's words and JSON, made of the names of fields: also of what no table knows."""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest
from msgspec import Struct

from quire.file_dump.items import (
    Described,
    DumpedQueueRecord,
    Finding,
    Item,
    PagesItem,
    Place,
    as_json,
    plain_value,
)
from quire.file_dump.words import in_words
from quire.limits import FIELD_START_CHARACTERS


class NewRecord(NamedTuple):
    """Something that no release has had so far."""

    queue_id: int
    queue: str | None
    session: str
    renewed_us: int
    sent_bytes: int
    replies: int
    last_lsn: int | None = None
    closed: bool = False


class NewItem(Struct, frozen=True):
    """Another one, with lists of such."""

    holder: str
    sessions: tuple[NewRecord, ...]
    places: tuple[str, ...] = ()


def test_what_no_table_knows() -> None:
    """Units by the ends of names, numbers with names, what it has several of below it."""
    sessions = (
        NewRecord(7, "orders", "s1", 1, 12_000, 1, 0x1000, closed=True),
        NewRecord(8, None, "s2", 0, 0, 3),
    )
    item = Described("lease", plain_value(NewItem("me", sessions, ("a", "b"))))
    first, second, third = in_words(item)
    assert first == "lease: holder 'me', places 'a', 'b'"
    began = "renewed 1970-01-01 00:00:00.00000"
    assert second == (
        f"    session: queue #7 'orders', session 's1', {began}1 UTC, sent 12 000 bytes, 1 reply, "
        "last LSN 0x1000, closed"
    )
    assert third == (
        f"    session: queue #8, session 's2', {began}0 UTC, sent 0 bytes, 3 replies, not closed"
    )
    shown = as_json(item)
    assert shown["item"] == "lease"
    assert shown["sessions"][1] == {**sessions[1]._asdict()}
    assert json.loads(json.dumps(shown)) == shown


@pytest.mark.parametrize(
    ("item", "line"),
    [
        (
            DumpedQueueRecord(
                1, "q", "MESSAGES", messages=2, place=Place("data", "d", None, 8, 2, 9)
            ),
            "MESSAGES, no position, 2 messages, d, offset 8, page 2, 9 bytes",
        ),
        (DumpedQueueRecord(1, "q", "OPEN", transaction=4, open=True), "OPEN, transaction 4, open"),
        (
            DumpedQueueRecord(1, "q", "INDIRECT", 5, messages=1, first_id=3, certain=False),
            "INDIRECT, position 5, 1 message, first id 3, not certain",
        ),
        (
            PagesItem("data/1.dat", 4, 2, "block", 3, None, 0, 10),
            "data/1.dat, page 4, 2 pages, use block, queue #3, position 0, 10 messages",
        ),
        (
            Described("file", {"file": "a.ltds", "bytes": 1, "messages": None, "queue": None}),
            "a.ltds, 1 byte, not finished, or damaged, of no committed or prepared transaction",
        ),
        (
            Described("queue", {"queue_id": 3, "name": None, "kind": None, "certain": False}),
            "queue #3, its definition is lost, not certain",
        ),
        (Finding("", None, False, "there is more"), "note: there is more"),
        (
            Finding("journal/a.log", 64, True, "no group", "all", 0x40),
            "DAMAGE: journal/a.log, offset 64, LSN 0x40: no group; lost: all",
        ),
    ],
)  # fmt: skip
def test_lines(item: Item, line: str) -> None:
    """What is absent or as usual is left out; what is missing is said."""
    assert in_words(item) == [line]


def test_a_deleted_entry_and_a_long_value() -> None:
    """Nothing is a body that was there; what is long is cut off."""
    changes = [
        {"type": "state", "key": 4, "body": {"name": "s", "key": "k", "value": "x" * 5000}},
        {"type": "queue", "key": 5, "body": None},
    ]
    _, state, queue = in_words(
        Described("record", {"lsn": 1, "name": "CATALOG", "changes": changes})
    )
    assert state.startswith("    change: type state, key 4, name 's', key 'k', value 'xxx")
    assert state.endswith("... (5 002 characters)")
    assert len(state) < FIELD_START_CHARACTERS + 100
    assert queue == "    change: type queue, key 5, deleted"


def test_only_printable_characters() -> None:
    """Whatever names and payloads hold (DW1); bytes that are no text have another name in JSON."""
    item = Described("message", {"queue_id": 1, "queue": "\x1b", "fields": {"sender": "a\nb"},
                                 "payload_start": b"\xff\x1b"})  # fmt: skip
    (line,) = in_words(item)
    assert line.isprintable()
    assert "sender 'a\\nb'" in line
    assert as_json(item)["payload_start_base64"] == "/xs="
    (line,) = in_words(Finding("a\x07", None, True, "b\x07"))
    assert line == "DAMAGE: a\\x07: b\\x07"
