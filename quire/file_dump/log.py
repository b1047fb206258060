"""The journal as a dump reads and tells it: every record decoded, every fault a finding.

- What is damaged is told with what is lost by it, and reading goes on behind it.
- DL2: a segment that was given back since the dump began is no damage: what is read from there is
  gone for good reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from itertools import islice
from typing import Any, NamedTuple

from msgspec.structs import replace

from quire.engine.records import format
from quire.engine.records.checkpoint_file import read_checkpoint
from quire.engine.records.commit_record import CommitRecord, Part
from quire.engine.state.catalog import QUEUE, SUBSCRIPTION
from quire.engine.state.fold import RecordBody, decode_record
from quire.errors import PositionLost, QuireError, StoreCorrupt
from quire.journal import (
    GENERATION_BODY,
    KIND_GENERATION,
    RECORD_HEADER_BYTES,
    Chain,
    Group,
    JournalFinding,
    Record,
    read_at,
    scan,
)  # fmt: skip

from .items import Described, Finding, plain_value
from .source import UNREADABLE, DumpSource


class Decoded(NamedTuple):
    """A record of the journal, and what its body says."""

    group: Group
    record: Record
    body: RecordBody

    @property
    def name(self) -> str:
        kind = self.record.kind
        for section in self.body.sections if isinstance(self.body, CommitRecord) else ():
            if kind == format.COMMIT and section.record_name:
                return str(section.record_name)
        return format.KIND_NAMES.get(kind, f"UNKNOWN KIND {kind}")


class Log:
    """Reads the journal of a store, from the oldest segment on."""

    def __init__(
        self, source: DumpSource, restart_lsn: int | None, durable_lsn: int, until_lsn: int | None
    ) -> None:
        """The LSNs are as for `scan`; `restart_lsn`: None without a checkpoint."""
        self.segments = source.segments()
        self.restart_lsn = restart_lsn
        self.end_lsn = 0  # behind the last group read
        self._source = source
        self._durable_lsn = durable_lsn
        self._until_lsn = until_lsn
        self._last_lsn = 0  # of the last group read
        self._went_on = False  # what was to be read was given back meanwhile

    def read(self) -> Iterator[Decoded | Finding]:
        """Yield all records, in order, and what is wrong between them."""
        env, directory, geometry, *_ = self._source.journal
        oldest = self.segments[0] * geometry.segment_bytes if self.segments else 0
        for found in scan(
            env,
            directory,
            geometry,
            restart_lsn=oldest if self.restart_lsn is None else self.restart_lsn,
            durable_lsn=self._durable_lsn,
            until_lsn=self._until_lsn,
            is_lenient=self._source.is_lenient,
        ):
            if isinstance(found, JournalFinding):
                yield self._finding(found)
                continue
            self._last_lsn, self.end_lsn = found.header.lsn, found.end_lsn
            with suppress(StoreCorrupt):  # the scan tells it itself
                for record in found.records():
                    yield self._decoded(found, record)

    def goes_on(self) -> bool:
        """Return True if the journal now has a group behind the last one read."""
        if self._went_on:
            return True
        chain = Chain(self._source.journal, self._last_lsn, self._source.segments())
        with closing(chain), suppress(QuireError, OSError):
            return self._last_lsn > 0 and len(list(islice(chain, 2))) == 2
        return False

    def _decoded(self, group: Group, record: Record) -> Decoded | Finding:
        try:
            body = decode_record(record, f"record at LSN {record.address:#x}")
            return Decoded(group, record, body)
        except QuireError as error:
            file, offset = self._source.journal_place(record.address)
            lost = "what this record changed"
            return Finding(file, offset, True, str(error), lost, record.address)

    def _finding(self, found: JournalFinding) -> Finding:
        file = self._source.relative(found.file)
        finding = Finding(file, found.offset, found.damage, found.message, lsn=found.lsn)
        if not found.damage:
            return finding
        if found.is_passed:  # if any groups are missing there, another finding says so
            return replace(finding, lsn=None)
        if self._was_released(found.lsn):
            self._went_on = True
            return replace(finding, damage=False, message="released while it was read")
        return replace(finding, lost="the records from here to the next one listed")

    def _was_released(self, lsn: int) -> bool:
        """Return True if the owner has given the segment back since it was listed (DL2).

        It does so after a checkpoint: perhaps the one that this dump stands on. What is still there
        below that is pinned: its messages are needed.
        """
        env, directory, geometry, *_ = self._source.journal
        size, checkpoints = geometry.segment_bytes, self._source.layout.checkpoints
        try:
            newest = read_checkpoint(env, checkpoints, self._source.checkpoints()[-1])
            if lsn // size < int(newest.document["restart_lsn"]) // size:
                read_at(env, directory, size, lsn - lsn % size + geometry.page_size, 0)
        except PositionLost:
            return True
        except (*UNREADABLE, LookupError, TypeError):
            return False
        return False


def record_item(
    source: DumpSource, decoded: Decoded, name_of: Callable[[str, Mapping[str, Any]], str | None]
) -> Described:
    """A record of the journal. `name_of`: what the queue or the subscription of a row is called."""
    header, record, body = decoded.group.header, decoded.record, decoded.body

    def row(value: object, fields: dict[str, Any]) -> dict[str, Any]:
        of_it = [noun for noun in (QUEUE, SUBSCRIPTION) if fields.get(f"{noun}_id")]
        named = fields | {noun: name_of(noun, fields) for noun in of_it}
        if isinstance(value, Part):
            lsn = record.address if value.kind == format.INLINE else 0  # the COMMIT record's
            kept = ("queue_id", "queue", "count", "charge", "checksum")
            named = {name: named[name] for name in kept}
            named["place"] = plain_value(source.place(value, lsn))
        return named

    file, offset = source.journal_place(record.address)
    own = {
        "lsn": record.address,
        "name": decoded.name,
        "transaction": record.sequence,  # 0: none
        "bytes": RECORD_HEADER_BYTES + len(record.body),
        "group_lsn": header.lsn,
        "generation": f"{header.generation:016x}",
        "kind": record.kind,
        "file": file,
        "offset": offset,
    }
    if record.kind == KIND_GENERATION and len(record.body) == GENERATION_BODY.size:
        generation, own["opened_us"] = GENERATION_BODY.unpack(record.body)
        return Described("record", own | {"opened_as": f"{generation:016x}"})
    if isinstance(body, list):
        return Described("record", own | {"changes": plain_value(body)})
    found: dict[str, Any] = plain_value(body, row) or {}
    if "parts" in found:
        own["messages"] = sum(part["count"] for part in found["parts"])
    for section in found.pop("sections", ()):  # their fields are the record's
        found |= section
    return Described("record", own | found)
