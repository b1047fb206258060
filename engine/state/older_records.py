"""Records that earlier releases wrote for what is a section today: read as what is written now.

Layout: `format`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from quire.engine.records import format
from quire.engine.records.commit_record import CommitRecord, ReadMore, unpack
from quire.engine.records.key_values import ValueSet, to_value
from quire.engine.records.prepared_record import PrepareRecord

from .sections.decides import Decides
from .sections.deliveries import Deliveries
from .sections.held import Held, xid_in
from .sections.kinds import read_sections
from .sections.moves import Moves
from .sections.section import RowsSection

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


def _prepare(
    body: memoryview, where: str, read_more: ReadMore = lambda data, where: ()
) -> CommitRecord:
    """The PREPARE records, and what checkpoints up to version 5 hold of them."""
    held = Held.unpack(body)  # which began as the section does
    start = format.PREPARE_HEADER.size + (len(held.xid.encode()) + 7 & -8)
    record = unpack(body[start:], where, read_more)
    return held.checked(record._replace(sections=(held, *record.sections)))


def _decision(body: memoryview, where: str, *, commit: bool) -> CommitRecord:
    first_id, time_us, messages, length, _ = format.DECISION_HEADER.unpack_from(body)
    said = Decides(xid_in(body, format.DECISION_HEADER.size, length), commit, messages)
    return CommitRecord(first_id, time_us, (), (), (), (said,))


def _counted(body: memoryview, where: str, section: type[RowsSection]) -> CommitRecord:
    """Rows behind a header that counts them: the section has them alone."""
    count, _ = format.SECTIONS_HEADER.unpack_from(body)
    size = count * section.layout.size
    rows = body[format.SECTIONS_HEADER.size :][:size]
    if len(rows) != size:
        raise ValueError(f"not {count} rows")
    return CommitRecord(0, 0, (), (), (), (section.unpack(rows),))


OLDER: Final[dict[int, Callable[[memoryview, str], CommitRecord]]] = {
    format.PREPARE: _prepare,
    format.PREPARE_ONCE: _prepare,
    format.PREPARE_MORE: partial(_prepare, read_more=read_sections),
    format.COMMIT_PREPARED: partial(_decision, commit=True),
    format.ROLLBACK_PREPARED: partial(_decision, commit=False),
    format.HANDED_OUT: partial(_counted, section=Deliveries),
    format.SOUGHT: partial(_counted, section=Moves),
}
"""By kind; they raise ValueError, struct.error."""
