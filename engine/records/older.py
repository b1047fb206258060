"""Records that earlier releases wrote for what is a section today: read as what is written now.

Layout: `format`.
"""

from __future__ import annotations

import struct
from binascii import a2b_base64
from collections.abc import Callable, Mapping
from typing import Any, Final

from quire.errors import StoreCorrupt

from . import format
from .commit_record import CommitRecord, ReadMore, unpack
from .key_values import ValueSet, to_value
from .prepared_record import PrepareRecord
from .sections import Decides, Held, read_sections, unpack_deliveries, unpack_moves, xid_in

PREPARED_STATE: Final = "prepared_state"
"""The type of the catalog's entries that earlier releases had for what a prepared transaction sets
of states."""


def with_values(prepared: Mapping[str, PrepareRecord], body: Mapping[str, Any]) -> PrepareRecord:
    """The prepared transaction that such an entry belongs to, with its values.

    Raises KeyError, TypeError, ValueError.
    """
    sets = [
        ValueSet(int(number), str(name), str(key), None if text is None else to_value(text))
        for number, name, key, text in body["sets"]
    ]
    return prepared[body["xid"]]._replace(sets=sets)


def prepared_before(document: Mapping[str, Any], where: str) -> list[PrepareRecord]:
    """What is prepared, in a checkpoint up to version 5.

    Raises KeyError, TypeError, ValueError, StoreCorrupt.
    """
    found: dict[str, PrepareRecord] = {}
    for text in document["prepared"]:
        record = unpack_prepare(memoryview(a2b_base64(text)), where)
        held: Held = record.section(format.HELD)
        found[held.xid] = held.record(record)
    for name, _, _, body in document.get("catalog", ()):
        if name == PREPARED_STATE:
            found[body["xid"]] = with_values(found, body)
    return list(found.values())


def unpack_prepare(
    body: memoryview, where: str, read_more: ReadMore = lambda data, where: ()
) -> CommitRecord:
    """The PREPARE records, and what checkpoints up to version 5 hold of them."""
    try:
        length, _, taken = format.PREPARE_HEADER.unpack_from(body)
    except struct.error as error:
        raise StoreCorrupt(f"{where}: unreadable prepare record ({error})") from error
    start = format.PREPARE_HEADER.size
    held = Held(xid_in(body, start, length, where), taken)
    record = unpack(body[start + (length + 7 & -8) :], where, read_more)
    return held.checked(record._replace(sections=(held, *record.sections)), where)


def _unpack_prepare_more(body: memoryview, where: str) -> CommitRecord:
    return unpack_prepare(body, where, read_sections)


def _unpack_decision(body: memoryview, where: str, *, commit: bool) -> CommitRecord:
    try:
        first_id, time_us, messages, length, _ = format.DECISION_HEADER.unpack_from(body)
    except struct.error as error:
        raise StoreCorrupt(f"{where}: unreadable decision ({error})") from error
    xid = xid_in(body, format.DECISION_HEADER.size, length, where)
    return CommitRecord(first_id, time_us, (), (), (), (Decides(xid, commit, messages),))


def _unpack_commit_prepared(body: memoryview, where: str) -> CommitRecord:
    return _unpack_decision(body, where, commit=True)


def _unpack_rollback_prepared(body: memoryview, where: str) -> CommitRecord:
    return _unpack_decision(body, where, commit=False)


def _unpack_handed_out(body: memoryview, where: str) -> CommitRecord:
    rows = _counted(body, where, format.HANDOUT_HEADER, format.READ)
    return CommitRecord(0, 0, (), (), (), (unpack_deliveries(rows, where),))


def _unpack_sought(body: memoryview, where: str) -> CommitRecord:
    rows = _counted(body, where, format.SOUGHT_HEADER, format.SEEK)
    return CommitRecord(0, 0, (), (), (), (unpack_moves(rows, where),))


def _counted(body: memoryview, where: str, header: struct.Struct, row: struct.Struct) -> memoryview:
    """The rows behind a header that counts them."""
    try:
        count, _ = header.unpack_from(body)
    except struct.error as error:
        raise StoreCorrupt(f"{where}: unreadable record ({error})") from error
    rows = body[header.size : header.size + count * row.size]
    if len(rows) != count * row.size:
        raise StoreCorrupt(f"{where}: contradictory record of {count} rows")
    return rows


OLDER: Final[dict[int, Callable[[memoryview, str], CommitRecord]]] = {
    format.PREPARE: unpack_prepare,
    format.PREPARE_ONCE: unpack_prepare,
    format.PREPARE_MORE: _unpack_prepare_more,
    format.COMMIT_PREPARED: _unpack_commit_prepared,
    format.ROLLBACK_PREPARED: _unpack_rollback_prepared,
    format.HANDED_OUT: _unpack_handed_out,
    format.SOUGHT: _unpack_sought,
}
