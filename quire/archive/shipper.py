"""The shipper: it copies a store's records into the archive, as they become durable.

- SH1: what an entry names is in the archive before the entry is, and an entry is durable there
  before its records are reported as shipped: only then does the owner use again what they name.
- SH2: only groups that the owner has said to be durable are shipped, all of them, in their order;
  over what the owner let go of there is a gap in the numbers.
- SH3: an entry that is there already is taken for the own only if it has the records of this
  journal, byte for byte, and follows the same entry: an older shipper of the same store has made
  it. Anything else in the way is refused: another history, an older copy of the store.
- SH4: an error of the archive or of the store's files is reported to the owner, and after a pause
  it is tried again; one of the owner itself is raised. No lock is held meanwhile.
- SH5: an entry counts once the owner has taken the report of it: beside a faster shipper, whose
  entries were merged and removed, a place may be free that is taken. Then it begins anew.
- Memory holds an entry and a block, and another entry where one is in the way.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial

from quire.archive.objects import ObjectBytes, Objects, check_outside
from quire.engine.layout import Layout
from quire.env import Env
from quire.errors import (
    ArchiveError,
    ArchiveRefused,
    ObjectNotFound,
    PositionLost,
    ResourceExhausted,
    StoreCorrupt,
    StoreVersion,
)
from quire.interface.store import Store
from quire.journal import Geometry
from quire.reports.info import ShippingReport, ShippingState

from . import format
from .entry_packing import EntryChain, EntryPacker, shared_records
from .entry_reading import EntryHead, OpenedEntry, records_of
from .journal_following import FollowedGroup, JournalFollowing
from .limits import ENTRY_SECONDS, MAX_SHIP_PAUSE_SECONDS, SHIP_PAUSE_SECONDS
from .log import EntryLog
from .manifest import check_store, has_store
from .merging import EntryMerging
from .object_reading import ObjectReading, damaged
from .store_files import StoreFileReader

_FAILURES = (ArchiveError, OSError, PositionLost, ResourceExhausted, StoreCorrupt, StoreVersion)
"""Errors that are reported, after which it is tried again (SH4)."""
_FAST_FAILURES = (PositionLost, StoreCorrupt)
"""Errors of those which another shipper causes that is faster: it is tried again at once."""


class Shipper:
    """Ships one store's records into one archive, step by step. For one thread."""

    def __init__(
        self, store: Store, objects: Objects, env: Env, read: ObjectReading | None = None
    ) -> None:
        """`read`: of the same objects, if several reads are to be under way at a time."""
        self.base_number = 0  # of the newest base, for the owner; its maker sets it
        self.boundary_place = 0  # of the newest boundary; the clean-up sets it
        self.error = ""  # why nothing can be shipped now
        self.state: ShippingState | None = None  # the owner's latest answer
        self.is_over = False  # the store has no archive now, or another one
        self._store = store
        self._objects = objects
        self._env = env
        self._layout = Layout(store.path)
        self._read = read or ObjectReading(objects, None)
        self._log = EntryLog(objects, self._read)
        self._merging = EntryMerging(objects, self._read, self._log, env)
        self._shipping: _ShipperPosition | None = None  # None: it has not begun
        self._has_more = False
        self._pause = SHIP_PAUSE_SECONDS

    @property
    def shipped_bytes(self) -> int:
        """The bytes of all objects that it has made."""
        return 0 if self._shipping is None else self._shipping.sent_bytes

    def close(self) -> None:
        """Close the store's files that are open."""
        if self._shipping is not None:
            self._shipping.close()

    def step(self) -> float:
        """Make one entry, if there is something to ship; the seconds until the next step is due.

        Raises what a call of the store raises (SH4).
        """
        state = self._exchange() if self.state is None or not self._has_more else self.state
        self._has_more = False
        if self.is_over:
            return ENTRY_SECONDS
        try:
            try:
                has_moved = self._advance(state)
            except _FAST_FAILURES:
                newer = self._exchange()  # another shipper of this owner may have been faster
                if (newer.lsn, newer.end_number) == (state.lsn, state.end_number):
                    raise
                has_moved = self._advance(newer)
        except _FAILURES as error:
            self.error = str(error)
            pause, self._pause = self._pause, min(2 * self._pause, MAX_SHIP_PAUSE_SECONDS)
            self._exchange()
            return pause
        self.error, self._pause = "", SHIP_PAUSE_SECONDS
        if has_moved:
            self._exchange()
        if not self._has_more and self._shipping is not None:
            self._merging.step(self._shipping.chain.place)
        return 0.0 if self._has_more else ENTRY_SECONDS

    def _advance(self, state: ShippingState) -> bool:
        """Make or adopt the next entry; True if the position has moved."""
        if self._shipping is None or self._shipping.chain.history != state.history:
            self.close()
            self._shipping = None
            self._shipping, state = self._begin(state)
        shipping, place = self._shipping, self._shipping.chain.place
        before = shipping.number, shipping.lsn
        self._has_more = shipping.advance(state)
        if shipping.chain.place > place:
            self._merging.add(shipping.chain.place, shipping.entry_bytes)
        return before != (shipping.number, shipping.lsn)

    def _exchange(self) -> ShippingState:
        """Report to the owner, and return its answer."""
        before = self.state
        report: ShippingReport | None = None
        if before is not None:
            lsn, number, place = before.lsn, before.number, before.place
            if self._shipping is not None:
                lsn, number = self._shipping.lsn, self._shipping.number
                place = self._shipping.chain.place
            report = ShippingReport(
                lsn, number, place, self.base_number, self.error or self._merging.error,
                self.boundary_place, before.url,
            )  # fmt: skip
        self.state = state = self._store.integration.ship(report)
        if self._shipping is not None and self._shipping.is_void(state):
            self._shipping.close()
            self._shipping, self._has_more = None, False
        self.is_over = not state.url or (before is not None and state.url != before.url)
        return state

    def _begin(self, state: ShippingState) -> tuple[_ShipperPosition, ShippingState]:
        """Find the end of the log; return the owner's state, too, if need be one of now.

        Raises ArchiveError.
        """
        check_outside(self._objects, self._env, self._layout.path)
        check_store(self._objects, self._env, state.store_id)
        tail = self._log.tail()
        newest = self._existing(tail) if tail else None
        if newest is not None and newest.head.last_number > state.end_number:
            state = self._exchange()  # another shipper knew a later end
        chain = _after(state, None) if newest is None else self._chain_from(state, newest)
        files = StoreFileReader(self._env, self._layout, state.store_id, state.segment_bytes)
        position = _ShipperPosition(
            self._env, self._layout, self._objects, self._read, self._log, files, state, chain,
            tail, self._exchange,
        )  # fmt: skip
        return position, state

    def _chain_from(self, state: ShippingState, newest: OpenedEntry) -> EntryChain:
        """Return the entry behind which the first one stands that has records after the state's."""
        found, tail = _after(state, None), newest.head.place
        check_own(newest, state, self._objects.url)
        if newest.head.last_number <= state.number:
            return _after(state, newest.head)
        hinted = self._log.entry(state.place) if 0 < state.place < tail else None
        if hinted is not None and hinted.head.last_number == state.number:
            return _after(state, hinted.head)
        for place in range(tail, 0, -1):
            entry = self._log.entry(place)
            if entry is None:  # those before were removed, as no base needs them
                break
            head = entry.head
            if head.last_number <= state.number:
                return _after(state, head)
            found = EntryChain(
                state.store_id, head.history, place - 1, head.previous, 0, head.first_us
            )
        return found

    def _existing(self, place: int) -> OpenedEntry:
        entry = self._log.entry(place)
        if entry is None:
            raise damaged(format.entry_name(place), "it is missing")
        return entry


class _ShipperPosition:
    """A shipper's place in the store's journal and in the log."""

    def __init__(
        self,
        env: Env,
        layout: Layout,
        objects: Objects,
        read: ObjectReading,
        log: EntryLog,
        files: StoreFileReader,
        state: ShippingState,
        chain: EntryChain,
        tail: int,
        ask: Callable[[], ShippingState],
    ) -> None:
        """`tail`: the entries up to there are made; `ask` gives the owner's state of now."""
        self.lsn = state.lsn  # all before is shipped
        self.number = state.number  # of the latest record there
        self.chain = chain
        self.entry_bytes = 0  # of the newest entry
        self._env = env
        self._layout = layout
        self._objects = objects
        self._read = read
        self._log = log
        self._files = files
        self._tail = tail
        self._ask = ask
        self._sent: set[str] = set()  # objects of the entry that is not made yet
        self.sent_bytes = 0  # of all objects

    def close(self) -> None:
        """Close the files that are open."""
        self._files.close()

    def is_void(self, state: ShippingState) -> bool:
        """Return True if the owner knows of other entries with these records (SH5)."""
        if self.number != state.number:
            return self.number > state.number  # the report was not taken
        return self.chain.place < state.place

    def advance(self, state: ShippingState) -> bool:
        """Make or adopt the next entry; True if more is to be shipped."""
        if state.lsn > self.lsn:  # a gap (SH2), or another shipper was faster
            self.lsn, self.number = state.lsn, state.number
        assert self.chain.number <= self.number
        place = self.chain.place + 1
        found = self._log.entry(place) if place <= self._tail else None
        if found is None and place < self._tail:
            found = self._behind_hole(place)
        if found is None:
            packer = self._pack(state)
            if packer.is_empty:  # nothing but groups without numbers
                self.lsn = packer.end_lsn or self.lsn
                return False
            self._send(packer)
            data, digest = self._entry(packer)
            found = self._log.append(place, data)
            if found is None:
                self._go_on(packer.end_lsn, packer.number)
                self.entry_bytes = len(data)
                self.sent_bytes += len(data)
                self.chain = self.chain._replace(
                    place=place, checksum=digest, number=packer.number, last_us=packer.last_us
                )
                return packer.is_full
        self._adopt(found, state)
        return True

    def _behind_hole(self, place: int) -> OpenedEntry | None:
        """Go on behind an entry that somebody has removed: one made anew has other records (SH3).

        None: there is none up to the tail.
        """
        for later in range(place + 1, self._tail + 1):
            found = self._log.entry(later)
            if found is not None:
                head = found.head
                self.chain = self.chain._replace(
                    place=later - 1, checksum=head.previous, last_us=head.first_us
                )
                return found
        return None

    def _go_on(self, lsn: int, number: int) -> None:
        self.lsn, self.number = lsn, number
        self._sent.clear()

    def _groups(self, state: ShippingState) -> Generator[FollowedGroup]:
        geometry = Geometry(state.store_id, state.segment_bytes, state.page_size)
        following = JournalFollowing(self._env, self._layout, geometry, self.lsn, self.number)
        return following.groups(state.end_lsn, state.end_number)

    def _pack(self, state: ShippingState) -> EntryPacker:
        packer = EntryPacker(self._files, self.number, self.chain.last_us)
        with closing(self._groups(state)) as groups:
            for followed in groups:
                packer.add(followed)
                if packer.is_full:
                    break
        return packer

    def _send(self, packer: EntryPacker) -> None:
        """Make the objects that the entry names (SH1)."""
        for blob in packer.blobs:
            name = format.blob_name(blob.blob_id)
            if name not in self._sent:
                self._upload(name, partial(packer.blob, blob))
                self._sent.add(name)
        for file in packer.files:
            name = format.file_name(file.ltds_id)
            if name not in self._sent and not self._has(name, self._files.file_bytes(file.ltds_id)):
                self._upload(name, partial(self._files.file, file.ltds_id, file.checksum))
            self._sent.add(name)

    def _upload(self, name: str, read: Callable[[], Iterator[ObjectBytes]]) -> None:
        pieces = _RereadPieces(read)
        self._objects.upload(name, pieces)
        self.sent_bytes += pieces.size

    def _has(self, name: str, size: int) -> bool:
        """Return True if a file is in the archive: a base may have it."""
        try:
            return self._objects.size(name) == size
        except ObjectNotFound:
            return False

    def _entry(self, packer: EntryPacker) -> tuple[bytes, int]:
        if not packer.is_large:
            return packer.entry(self.chain)
        blob_id = self._env.random_u64()
        self._objects.upload(format.blob_name(blob_id), [packer.records])
        return packer.entry_of_blob(self.chain, blob_id)

    def _adopt(self, found: OpenedEntry, state: ShippingState) -> None:
        """Take an entry that is there for the own, if it is (SH3). Raises ArchiveRefused."""
        head, url = found.head, self._objects.url
        if head.last_number > state.end_number:  # another shipper knew a later end
            state = self._ask()
        check_own(found, state, url)
        if head.previous != self.chain.checksum:
            raise _refused(url, head, "follows another entry than the one that this store has made")
        if head.last_number > self.number:
            end = self._end_of_same(found, state)
            if end is None:
                raise _refused(url, head, "has other records than this store's journal")
            self._go_on(end.group.end_lsn, end.number)
        self.chain, self.entry_bytes = _after(state, head), head.length

    def _end_of_same(self, found: OpenedEntry, state: ShippingState) -> FollowedGroup | None:
        """Return the group with which an entry ends, if it has the records of the journal (EP1).

        Blocks are not read, as their places may be in use again: the records have their checksums.
        """
        head, number = found.head, self.number
        theirs = records_of(found, self._read, attachments=False)
        with closing(self._groups(state)) as groups:
            for followed in groups:
                if followed.number >= head.first_number:
                    for own in shared_records(followed.group):
                        number += 1
                        other = next((each for each in theirs if each.number >= number), None)
                        if other is None or (other.number, other.record) != (number, own):
                            return None
                if followed.number >= head.last_number:
                    return followed if followed.number == head.last_number else None
                number = followed.number
        return None


def newest_entry(store: Store, objects: Objects, read: ObjectReading) -> OpenedEntry | None:
    """Return the newest entry of a store's archive; None: it has none, or is nobody's yet.

    Raises ArchiveRefused for an archive in which the store cannot go on, ArchiveCorrupt.
    """
    if not has_store(objects, store.integration.store_id):
        return None
    log = EntryLog(objects, read)
    tail = log.tail()
    newest = log.entry(tail) if tail else None
    if newest is not None:
        check_own(newest, store.integration.ship(None), objects.url)  # which is the later state
    return newest


class _RereadPieces:
    """The pieces of an object, which are read anew each time that it is sent."""

    def __init__(self, read: Callable[[], Iterator[ObjectBytes]]) -> None:
        self._read = read
        self.size = 0

    def __iter__(self) -> Iterator[ObjectBytes]:
        self.size = 0
        for piece in self._read():
            self.size += len(piece)
            yield piece


def check_own(entry: OpenedEntry, state: ShippingState, url: str) -> None:
    """Raise ArchiveRefused for an entry that this store cannot have made."""
    if (entry.store_id, entry.head.history) != (state.store_id, state.history):
        raise _refused(url, entry.head, "is of another history: the store was restored since, say")
    if entry.head.last_number > state.end_number:
        raise _refused(
            url, entry.head,
            f"has record {entry.head.last_number}, and this store only {state.end_number}: it is an"
            " older copy",
        )  # fmt: skip


def _refused(url: str, head: EntryHead, reason: str) -> ArchiveRefused:
    return ArchiveRefused(
        f"{url}: entry {head.place} {reason}; give this store another place by `quire archive set"
        " PATH URL`"
    )


def _after(state: ShippingState, head: EntryHead | None) -> EntryChain:
    """Return the end of a log whose newest entry has the head."""
    if head is None:
        return EntryChain(state.store_id, state.history, 0, 0, 0, 0)
    return EntryChain(
        state.store_id, head.history, head.place, head.checksum, head.last_number, head.last_us
    )
