"""The journal as a dump reads and tells it: every record decoded, every fault a finding.

- DL1: what is damaged is told with what is lost by it, and reading goes on behind it.
- DL2: a segment that was given back since the dump began is no damage: what is read from there is
  gone for good reasons.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

from quire.dump_items import Described, Finding, told
from quire.engine.records import format
from quire.engine.records.catalog import QUEUE, SUBSCRIPTION, CatalogChange
from quire.engine.records.commit_record import CommitRecord, Part
from quire.engine.records.fold import Said, decode_record
from quire.errors import PositionLost, QuireError, StoreCorrupt
from quire.journal import (
    GENERATION_BODY,
    GROUP_HEADER_BYTES,
    KIND_GENERATION,
    RECORD_HEADER_BYTES,
    Chain,
    Group,
    Record,
    read_at,
    scan,
)  # fmt: skip
from quire.journal import Finding as JournalFinding

from .saved import Saved, newest_saved
from .source import Source


class Decoded(NamedTuple):
    """A record of the journal, and what its body says."""

    group: Group
    record: Record
    said: Said

    @property
    def name(self) -> str:
        kind = self.record.kind
        for section in self.said.sections if isinstance(self.said, CommitRecord) else ():
            if kind == format.COMMIT_MORE and section.record_name:
                return str(section.record_name)
        return format.KIND_NAMES.get(kind, f"UNKNOWN KIND {kind}")


class Log:
    """Reads the journal of a store, from the oldest segment on, or from an LSN."""

    def __init__(self, source: Source, saved: Saved | None, until_lsn: int | None) -> None:
        self.source = source
        self._saved = saved
        if until_lsn is not None and saved is not None and until_lsn < saved.lsn:
            until_lsn = None  # the owner has gone on since it was asked
        self._until_lsn = until_lsn
        self.segments = source.segments()
        self._last_lsn = 0  # of the last group read
        self.end_lsn = 0  # behind the last group read
        self._went_on = False  # what was to be read was given back meanwhile

    def read(self, start_lsn: int = 0) -> Iterator[Decoded | Finding]:
        """All records at or behind the LSN, in order, and what is wrong between them."""
        page_size = self.source.geometry.page_size
        for found in self._groups():
            if isinstance(found, JournalFinding):
                yield self._finding(found)
                continue
            header = found.header
            pages = -(-(GROUP_HEADER_BYTES + len(found.body)) // page_size)
            self._last_lsn = header.lsn
            self.end_lsn = header.lsn + pages * page_size
            if self.end_lsn >= start_lsn:
                yield from (
                    item
                    for item in self._records(found)
                    if isinstance(item, Finding) or item.record.address >= start_lsn
                )

    def goes_on(self) -> bool:
        """Whether the owner has, since: the journal has a group now behind the last one read."""
        if self._went_on:
            return True
        source = self.source
        segments = set(source.segments())
        chain = Chain(source.env, source.layout.journal, source.geometry, self._last_lsn, segments)
        with closing(chain), suppress(QuireError, OSError):
            return self._last_lsn > 0 and len(list(islice(chain, 2))) == 2
        return False

    def _groups(self) -> Iterator[Group | JournalFinding]:
        source, saved = self.source, self._saved
        oldest = self.segments[0] * source.geometry.segment_bytes if self.segments else 0
        return scan(
            source.env,
            source.layout.journal,
            source.geometry,
            restart_lsn=oldest if saved is None else saved.restart_lsn,
            durable_lsn=0 if saved is None else saved.lsn,
            until_lsn=self._until_lsn,
        )

    def _records(self, group: Group) -> Iterator[Decoded | Finding]:
        with suppress(StoreCorrupt):  # the scan tells it itself
            for record in group.records():
                try:
                    said = decode_record(record, f"record at LSN {record.address:#x}")
                    yield Decoded(group, record, said)
                except QuireError as error:
                    file, offset = self.source.journal_place(record.address)
                    lost = "what this record changed"
                    yield Finding(file, offset, True, str(error), lost, record.address)

    def _finding(self, found: JournalFinding) -> Finding:
        file = self.source.relative(found.file)
        finding = Finding(file, found.offset, found.damage, found.message, lsn=found.lsn)
        if not found.damage:
            return finding
        if self._was_released(found.lsn):
            self._went_on = True
            return replace(finding, damage=False, message="released while it was read")
        return replace(finding, lost="the records from here to the next one listed")

    def _was_released(self, lsn: int) -> bool:
        """Whether the owner has given the segment back since it was listed (DL2).

        It does so after a checkpoint: perhaps the one that this dump stands on.
        """
        source, saved = self.source, self._saved
        size = source.geometry.segment_bytes
        now, _ = newest_saved(source.env, source.layout)
        if now is None or lsn // size >= now.restart_lsn // size:
            return False
        if saved is None or now.restart_lsn > saved.restart_lsn:
            return True
        first_page = lsn - lsn % size + source.geometry.page_size
        try:
            read_at(source.env, source.layout.journal, size, first_page, 0)
        except (QuireError, OSError) as error:
            return isinstance(error, PositionLost)
        return False


class Names:
    """What queues and subscriptions are called, as far as it was read."""

    def __init__(self, source: Source, saved: Saved | None) -> None:
        self._source = source
        self._known: dict[str, dict[int, str | None]] = {QUEUE: {}, SUBSCRIPTION: {}}  # by id
        for queue in () if saved is None else saved.beside.queues.values():
            self._known[QUEUE][queue.queue_id] = queue.name
            of_it = queue.durable.subscriptions.values()
            self._known[SUBSCRIPTION] |= {s.subscription_id: s.name for s in of_it}

    def record(self, decoded: Decoded) -> Described:
        """The next record of the journal, as a dump lists it."""
        header, record = decoded.group.header, decoded.record
        file, offset = self._source.journal_place(record.address)
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
        return Described("record", own | self._said(decoded))

    def _said(self, decoded: Decoded) -> dict[str, Any]:
        said, body = decoded.said, decoded.record.body
        if decoded.record.kind == KIND_GENERATION and len(body) == GENERATION_BODY.size:
            generation, opened_us = GENERATION_BODY.unpack(body)
            return {"opened_us": opened_us, "opened_as": f"{generation:016x}"}
        if isinstance(said, list):
            self._learn(said)
            return {"changes": told(said)}
        sums: dict[str, Any] = {}
        if isinstance(said, CommitRecord):
            sums["messages"] = sum(part.count for part in said.parts)
        if said is None:
            return sums
        found: dict[str, Any] = sums | self._named(said, decoded.record.address)
        for section in found.pop("sections", ()):  # their fields are the record's
            found |= section
        return found

    def _learn(self, changes: list[CatalogChange]) -> None:
        for change in changes:
            name = (change.body or {}).get("name")
            if isinstance(name, str) and change.type in self._known:
                self._known[change.type][change.key] = name

    def _named(self, value: Any, lsn: int) -> Any:
        """A record's values by field; those of the COMMIT record at the LSN have places."""
        if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
            return [self._named(each, lsn) for each in value]
        if not hasattr(value, "_fields"):
            return value
        fields: dict[str, Any] = {}
        for name, each in value._asdict().items():
            fields[name] = self._named(each, lsn)
            noun = name.removesuffix("_id")
            if noun in self._known and each:
                fields[noun] = self._known[noun].get(each)
        if isinstance(value, Part):
            place = self._source.place(value, lsn if value.kind == format.INLINE else 0)
            kept = ("queue_id", "queue", "count", "charge", "checksum")
            fields = {name: fields[name] for name in kept} | {"place": told(place)}
        return fields
