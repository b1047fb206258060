"""The journal's writer: one group, one write, one sync.

Invariants:

J1  When `write_group` returns, its records are durable: recovery hands over every one of them, in
    order, as often as it runs. Without `durable` they are written, so that the process may end, and
    durable after the next sync (J10).
J2  A group is all or nothing: recovery hands over all of its records or none. What was never
    acknowledged as durable can come back only as the last groups, in their order, and only whole.
J3  A group is put down by exactly one write and one sync, or one write without `durable`; it never
    straddles segments.
J4  A page that was synced is not written again before its segment was released; but recovery may
    write the last group again, byte for byte (JV2).
J5  Generations never decrease along the chain. Every open begins a new one, durable before any
    other record of it, so that what an earlier open left beyond the end never comes back.
J6  After a failed write or sync nothing more is written and nothing is tried again: every later
    call raises StoreFailed until the journal is closed and recovered. J11 is for refused writes.
J7  Damage of what was durable raises StoreCorrupt with file, page and offset; nothing of it is cut.
    A torn tail is cut and reported.
J8  A crash at any point, those of creation, rotation and release included, leaves a directory that
    `recover` (or `create`, if creation was not finished) takes.
J9  A relieving group, one that makes room (see `write_group`), is written on a full disk as well,
    into segments that are kept back for them. Others get DiskFull before these are touched, and
    before what `admit` keeps back is.
J10  One sync covers all groups that were written without, and is made: by the next durable group,
    by `sync`, before the next segment is begun, and once they are `UNSYNCED_BYTES`. Each group says
    how far back groups were not synced when it was written: after a power failure those may be
    missing though it is there. So that is no damage (JS2), and what comes after a missing one is
    cut. If the sync fails, J6 holds: those groups may be lost with the next power failure.
J11  Before a refusal of a write (E9) is raised, the first page of its group is zeros, durably.
    Where that is refused, too, and the group's header is there, J6 holds.

Recovery reads from `restart_lsn` to the end, and for J7 looks through what is left of the last
segment and through the ready one: its time depends on the journal since the checkpoint and on the
size of a segment.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple, NoReturn, Self

from quire.checksum import checksum
from quire.env import Env, File
from quire.errors import (
    InvalidArgument,
    QuireError,
    ResourceExhausted,
    StoreClosed,
    StoreFailed,
)
from quire.limits import (
    COUNTED_TIMES,
    FIRST_BUFFER_BYTES,
    GROWTH_TIMES,
    KEPT_BUFFER_BYTES,
    MAX_SPARES,
    UNSYNCED_BYTES,
)

from .format import (
    CHECKSUM,
    GENERATION_BODY,
    GROUP_ENDS,
    GROUP_HEADER_BYTES,
    GROUP_MAGIC,
    GROUP_START,
    KIND_GENERATION,
    RECORD_HEADER_BYTES,
    RECORD_LENGTH,
    VERSION,
    VERSION_OF_UNSYNCED,
    WholeRecord,
    checked_geometry,
    next_generation,
    pack_record,
    pack_records,
    padded_bytes,
    round_up,
)
from .reader import ReadHandles, check_range, lost, whole
from .recovery import Apply, RecoveredJournal, ReportDropped, create_segments, recover_segments
from .segment import Directory, take_back
from .segments import JournalStatus, SegmentSet

_record_length = RECORD_LENGTH.unpack_from
_put_fields = GROUP_ENDS.pack_into
_put_checksum = CHECKSUM.pack_into


def _nothing(*_: str) -> None:
    """Do nothing: nobody listens."""


class Hooks(NamedTuple):
    """The calls that a journal makes to its owner."""

    # How many bytes may be added before it is asked again; raises DiskFull. A group counts
    # `GROWTH_TIMES` its size; one of one page at most some times what is in it, as nothing is to be
    # kept for the rest of a page.
    admit: Callable[[], int] = lambda: sys.maxsize
    # Called before a group is not synced, and once all are (J10); must not raise.
    before_unsynced: Callable[[], None] = _nothing
    after_sync: Callable[[], None] = _nothing
    # Called with the path of each next segment, before anything is written there.
    before_segment: Callable[[str], None] = _nothing
    # Given each call that makes a group durable; returns the one to be made in its place.
    timed: Callable[[Callable[..., None]], Callable[..., None]] = lambda call: call


NO_HOOKS: Final = Hooks()


class Journal:
    """A journal that is open for writing. `write_group` calls are serialised by the caller.

    `read`, `pin`, `unpin`, `prepare_next`, `release` and the properties may be used by any thread.
    """

    def __init__(
        self,
        directory: Directory,
        found: RecoveredJournal,
        hooks: Hooks,
        max_spares: int,
        kept_back: int,
    ) -> None:
        """Begin a generation behind what was `found`."""
        self._env = directory.env
        self._directory = directory
        self._segments = segments = SegmentSet(directory, found.segments, max_spares, kept_back)
        self._handles = ReadHandles(directory)
        store_id, self._segment_bytes, self._page_size = directory.geometry
        self._take_buffer(max(FIRST_BUFFER_BYTES, self._page_size))
        self.generation = generation = next_generation(found.generation, self._env.random_u64())
        start, ids = GROUP_START.pack, (0, generation, store_id)
        # How the headers of groups begin: of others, and of one behind some that are not synced.
        self._start = start(GROUP_MAGIC, VERSION, *ids)
        self._start_behind = start(GROUP_MAGIC, VERSION_OF_UNSYNCED, *ids)
        self._last_lsn = found.last_lsn
        self._hooks = hooks
        self.unsynced_bytes = 0  # right before the end, in the current segment
        self.unsynced_since = 0.0  # of the monotonic clock
        self._durable_end = 0  # behind the last group before those
        self._segment_from = found.end_lsn  # where the journal ended when the segment was begun
        self._base = found.segments[-1] * self._segment_bytes
        # The first byte after the last group; one that does not fit here goes beyond.
        self.end_lsn = found.end_lsn
        self._capacity = segments.capacity
        self._limit_lsn = 0  # no group goes further in the segment
        self._left = -1  # bytes that are admitted, as `write_group` counts; below 0: to be asked
        self._most_counted = GROWTH_TIMES * self._page_size  # of a group of one page
        self._use(segments.open_current())
        self._refusal: QuireError | None = None
        try:
            self.write_group([self._generation_record()], relieving=True)
            with suppress(ResourceExhausted):  # then it comes before the next group that needs it
                segments.keep_back()
        except BaseException:
            self.close()
            raise

    @classmethod
    def create(
        cls,
        env: Env,
        directory: str,
        *,
        store_id: int,
        segment_bytes: int,
        page_size: int = 4096,
        max_spares: int = MAX_SPARES,
        kept_back: int = 0,
        direct: bool = False,
        generation: int = 0,
    ) -> Self:
        """Make an empty journal. What a crashed creation left there is replaced (J8).

        `kept_back`: how many small files are kept for relieving groups (J9). `generation`: the
        journal's generations come after this one.

        Raises InvalidArgument if there is a journal with records.
        """
        geometry = checked_geometry(store_id, segment_bytes, page_size)
        own = Directory(env, directory, geometry, direct)
        create_segments(own)
        empty = RecoveredJournal([0], page_size, generation=generation)
        return cls(own, empty, NO_HOOKS, max_spares, kept_back)

    @classmethod
    def recover(
        cls,
        env: Env,
        directory: str,
        *,
        store_id: int,
        segment_bytes: int,
        page_size: int = 4096,
        restart_lsn: int = 0,
        durable_lsn: int = 0,
        apply: Apply,
        report: ReportDropped,
        hooks: Hooks = NO_HOOKS,
        max_spares: int = MAX_SPARES,
        kept_back: int = 0,
        direct: bool = False,
    ) -> Self:
        """Hand over the records from the group at `restart_lsn` on, then open for writing.

        `restart_lsn` is the LSN of a group (a `last_lsn`), 0 for the journal's very first;
        `durable_lsn` an `end_lsn` that is known to have been durable. `report` is called once,
        before anything is written. Raises StoreCorrupt (J7) or StoreVersion; then the records
        handed over so far mean nothing.
        """
        geometry = checked_geometry(store_id, segment_bytes, page_size)
        own = Directory(env, directory, geometry, direct)
        found = recover_segments(
            own, restart_lsn=restart_lsn, durable_lsn=durable_lsn, apply=apply, report=report
        )
        return cls(own, found, hooks, max_spares, kept_back)

    # Writing

    def write_group(
        self, records: Sequence[WholeRecord], durable: bool = True, relieving: bool = False
    ) -> int:
        """Make the records durable, all or none (J1, J2); the address of the first one.

        `relieving`: they make room, and may use what is kept back for such (J9). Without `durable`
        they are written only (J10).

        Each record is a header (`RECORD_HEADER`, with its own length) and its bytes, in one piece
        or as a tuple of pieces, the first of which begins with the header; the next record begins
        at the next multiple of 8. Raises InvalidArgument for records that can never be
        written, DiskFull if there is no room for them and what they may entail (nothing has changed
        then), StoreFailed after a failed write or sync (J6).
        """
        if self._refusal is not None:
            self._refuse()
        group_bytes = self._page_size
        if (
            len(records) == 1
            and type(first := records[0]) is bytearray
            and RECORD_HEADER_BYTES <= (length := len(first)) <= group_bytes - GROUP_HEADER_BYTES
            and not length & 7
            and _record_length(first)[0] == length
        ):  # as most groups are
            buffer, end, count = self._buffer, GROUP_HEADER_BYTES + length, 1
            if end != self._filled:
                self._fill_up(end)
            buffer[GROUP_HEADER_BYTES:end] = first
        else:
            buffer, end, count = self._collect(records)
        if end <= group_bytes:
            group = self._first_page
            counted = COUNTED_TIMES * end
            if counted > self._most_counted:
                counted = self._most_counted
        else:
            group_bytes = round_up(end, group_bytes)
            counted = GROWTH_TIMES * group_bytes
            group = buffer[:group_bytes]
        self._left = left = self._left - counted
        lsn = self.end_lsn
        if left < 0 or lsn + group_bytes > self._limit_lsn:
            self._find_room(group_bytes, relieving)
            lsn = self.end_lsn
        unsynced = lsn - self._durable_end if self.unsynced_bytes else 0
        _put_fields(
            buffer, 8, self._start_behind if unsynced else self._start,
            lsn, self._last_lsn, end - GROUP_HEADER_BYTES, count, unsynced,
        )  # fmt: skip
        _put_checksum(buffer, 0, checksum(buffer[8:end]))
        if unsynced or not durable:
            self._write_cached(lsn, group, durable)
        else:
            write = self._write
            try:
                write(lsn - self._base, group)
                if not self._file.direct:
                    self._sync()
            except BaseException as error:
                self._group_failed(error, lsn, group)
                raise
        self.end_lsn = lsn + group_bytes
        self._last_lsn = lsn
        return lsn + GROUP_HEADER_BYTES

    def _write_cached(self, lsn: int, group: memoryview, durable: bool) -> None:
        """Write a group behind or as one that is not synced (J10)."""
        if not self.unsynced_bytes:
            is_first = lsn == self._base + self._page_size
            self._durable_end = self._segment_from if is_first else lsn
            self.unsynced_since = self._env.monotonic()
            self._hooks.before_unsynced()
        try:
            self._file.write_cached(lsn - self._base, group)
            self.unsynced_bytes += len(group)
            if durable or self.unsynced_bytes >= UNSYNCED_BYTES:
                self._sync_unsynced()
        except BaseException as error:  # whatever it is: the group may be there
            if self._refusal is None:
                self._group_failed(error, lsn, group, cached=True)
            raise

    def _group_failed(
        self, error: BaseException, lsn: int, group: memoryview, *, cached: bool = False
    ) -> None:
        """Poison the journal (J6), or take the group back where its write was refused (J11)."""
        doing = f"write or sync of the group at LSN {lsn:#x}"
        if not isinstance(error, ResourceExhausted):
            self._fail(error, doing)
            return
        try:
            take_back(self._file, lsn - self._base, group, self._page_size, cached=cached)
            if cached:
                self._sync_unsynced()
        except BaseException as later:
            if self._refusal is None:
                self._fail(later, doing)
            raise

    def sync(self) -> None:
        """Make durable what was written without (J10). Serialised with `write_group`.

        Raises StoreFailed.
        """
        if self._refusal is not None:
            self._refuse()
        if self.unsynced_bytes:
            self._sync_unsynced()

    def _sync_unsynced(self) -> None:
        try:
            self._sync()
            self.unsynced_bytes = 0
            self._hooks.after_sync()
        except BaseException as error:
            self._fail(error, "sync of groups that were written before")
            raise

    def _collect(self, records: Sequence[WholeRecord]) -> tuple[memoryview, int, int]:
        """A buffer with the records behind the place of the group's header.

        Also where they end, and how many they are.
        """
        end = GROUP_HEADER_BYTES
        for record in records:
            end += padded_bytes(record)
        if end > self._room or end == GROUP_HEADER_BYTES:
            buffer = self._make_room(end)
        else:
            buffer = self._buffer
        if buffer is self._buffer:
            self._fill_up(end)
        pack_records(buffer, records)
        return buffer, end, len(records)

    def _use(self, file: File) -> None:
        """Write to the current segment's file."""
        timed = self._hooks.timed
        self._file: File = file
        self._write = timed(file.write) if file.direct else file.write
        self._sync = timed(file.sync)

    def _take_buffer(self, room: int) -> None:
        """Use a new buffer, which is all zeros."""
        self._buffer = self._env.aligned_buffer(room)
        self._first_page = self._buffer[: self._page_size]
        self._filled = 0  # behind that it is zeros still
        self._room = min(room, self._segment_bytes - self._page_size)

    def _fill_up(self, end: int) -> None:
        """The next group ends there: behind it are zeros, whatever an earlier one has left."""
        filled = self._filled
        if end < filled:
            self._buffer[end:filled] = bytes(filled - end)
        self._filled = end

    def prepare_next(self) -> bool:
        """Make the next segment ready ahead (in the background); whether one was made.

        Raises DiskFull if there is no room for it: nothing has changed then.
        """
        with self._failing("making the next segment", may_refuse=True):
            return self._segments.prepare_next()

    def keep_back(self) -> bool:
        """Have what is kept back for relieving groups, if there is room; whether it is whole."""
        with suppress(OSError), self._failing("making a spare segment", may_refuse=True):
            self._segments.keep_back()
        return not self._segments.missing

    def admit(self) -> int:
        """Return how many bytes of groups may come now (J9); keep back first what is missing for
        that.

        On a full disk spare files that are not kept back go. Raises DiskFull, StoreFailed.
        """
        try:
            try:
                return self._hooks.admit()
            except ResourceExhausted:
                if not self.drop_spares():
                    raise
            return self._hooks.admit()
        except ResourceExhausted:
            raise
        except StoreFailed as refusal:
            self.give_up(refusal)
            raise
        except OSError as error:
            self._fail(error, "keeping space back")
            raise

    def ask_anew(self) -> None:
        """Have `admit` asked before the next group, but for one that relieves.

        Serialised with `write_group`.
        """
        self._left = -1

    def drop_spares(self) -> bool:
        """Remove spare files that are not kept back: the disk is full. Whether there were any."""
        with self._failing("removing spare segments"):
            return self._segments.drop_spares()

    def begin_segment(self) -> None:
        """Go on in a new segment that has the least space, so that the current one can go.

        Nothing is done where that has no more. Serialised with `write_group`. Raises DiskFull with
        nothing changed but what was ready, StoreFailed.
        """
        least = self._segments.least_space
        if self._segments.ready_space > least or self._capacity > least:
            with self._failing("making the next segment", may_refuse=True):
                self._segments.renew_next()
        if self._capacity > least:
            self._advance(self._page_size, relieving=False)
            self.write_group([self._generation_record()], relieving=True)

    def shrink_spares(self) -> None:
        """Keep no spare file but those that are kept back, and these small. Raises DiskFull."""
        with self._failing("removing spare segments", may_refuse=True):
            self._segments.shrink_spares()

    def _generation_record(self) -> bytes:
        """The journal's own record, which says that a generation goes on."""
        body = GENERATION_BODY.pack(self.generation, self._env.now_us())
        return pack_record(KIND_GENERATION, 0, body)

    def release(self, before_lsn: int, keep: Collection[int] = ()) -> list[int]:
        """Recycle or remove segments wholly below an LSN, but for pinned ones and some to `keep`.

        Returns the numbers gone.
        """
        with self._failing("releasing segments"):
            if before_lsn > self.end_lsn:
                raise InvalidArgument(
                    f"release before LSN {before_lsn:#x}: the journal ends at {self.end_lsn:#x}"
                )
            gone = self._segments.release(before_lsn // self._segment_bytes, keep)
        for number in gone:
            self._handles.drop(number)
        return gone

    def pin(self, segment_number: int) -> None:
        """Keep a segment readable until as many `unpin` calls. PositionLost if it is gone."""
        self._segments.pin(segment_number)

    def unpin(self, segment_number: int) -> None:
        """Undo one `pin`; the segment goes with the next `release` call that covers it."""
        self._segments.unpin(segment_number)

    def close(self) -> None:
        """Give up the files; twice is once. What was acknowledged is durable already."""
        if not isinstance(self._refusal, StoreClosed):
            self._refusal = StoreClosed("the journal was closed; open the store again")
            self._file.close()
            self._handles.close()

    # Reading

    def read(self, address: int, length: int) -> bytes:
        """Bytes that were written, from within one segment. The caller checks their checksum."""
        number, offset = check_range(self._segment_bytes, address, length)
        if address + length > self.end_lsn:
            raise InvalidArgument(
                f"journal range at {address:#x}, {length} bytes ends beyond the journal's end,"
                f" {self.end_lsn:#x}"
            )
        if isinstance(self._refusal, StoreClosed):
            self._refuse()
        path = self._directory.path_of(number)
        with suppress(FileNotFoundError):  # released between the look and the opening
            if self._segments.holds(number):
                data = self._handles.read(number, offset, length)
                if self._segments.holds(number):  # JR1: after the read
                    return whole(path, offset, length, data)
                self._handles.drop(number)
        raise lost(path, address)

    @property
    def _offset(self) -> int:
        """The offset in the segment where the next group goes if it fits."""
        return self.end_lsn - self._base

    @property
    def last_lsn(self) -> int:
        """The LSN of the last group; as `restart_lsn` it makes recovery read that group again."""
        return self._last_lsn

    @property
    def durable_end(self) -> int:
        """The end of the groups that are synced (J10).

        Those behind it may be lost with a power failure.
        """
        end = self.end_lsn  # before the look: what is written in between does not count
        return self._durable_end if self.unsynced_bytes else end

    @property
    def max_group_bytes(self) -> int:
        """The most bytes of records that one group takes, each rounded up to a multiple of 8."""
        return self._segment_bytes - self._page_size - GROUP_HEADER_BYTES

    @property
    def failed(self) -> bool:
        """True if a write or sync failed (J6)."""
        return isinstance(self._refusal, StoreFailed)

    @property
    def lacks_room(self) -> bool:
        """True if less is kept back for relieving groups than should be."""
        return self._segments.missing > 0

    @property
    def has_spares(self) -> bool:
        """True if a relieving group that needs the next segment finds one on a full disk."""
        return self._segments.has_spares

    @property
    def segment_path(self) -> str:
        """The path of the current segment's file."""
        return self._directory.path_of(self._base // self._segment_bytes)

    @property
    def segment_space(self) -> int:
        """The bytes of space that the current segment has."""
        return self._capacity

    @property
    def nearly_full(self) -> bool:
        """True if more than half of the current segment's space is used."""
        return self._offset > self._capacity // 2

    def bytes_since(self, lsn: int) -> int:
        """Return the bytes written since then; skipped space of segments does not count."""
        number, offset = divmod(lsn, self._segment_bytes)
        current = self._base // self._segment_bytes
        if number >= current:
            return self.end_lsn - lsn
        return max(self._segments.space_between(number, current) - offset, 0) + self._offset

    @property
    def next_is_ready(self) -> bool:
        """True if the next segment is there, so that no write has to wait for its making."""
        return bool(self._segments.ready)

    def segment_of(self, address: int) -> int:
        return address // self._segment_bytes

    def path_of(self, address: int) -> str:
        """Return the path of the segment that holds an address."""
        return self._directory.path_of(address // self._segment_bytes)

    def status(self) -> JournalStatus:
        return self._segments.status()

    # Inside

    def give_up(self, refusal: StoreFailed) -> None:
        """Write nothing any more, for another reason than J6; reads go on."""
        self._refusal = self._refusal or refusal

    def _make_room(self, end: int) -> memoryview:
        """A buffer for a group of `end` bytes: the kept one, made larger, or one for this group."""
        if end == GROUP_HEADER_BYTES:
            raise InvalidArgument("a group needs at least one record")
        if end - GROUP_HEADER_BYTES > self.max_group_bytes:
            raise InvalidArgument(
                f"a group of {end - GROUP_HEADER_BYTES} bytes of records: the journal's segments"
                f" take {self.max_group_bytes}; write less at once, or larger segments"
            )
        if end > KEPT_BUFFER_BYTES:
            return self._env.aligned_buffer(round_up(end, self._page_size))
        room = self._room
        while room < end:
            room *= 2
        self._take_buffer(room)
        return self._buffer

    def _find_room(self, group_bytes: int, relieving: bool) -> None:
        """Let the group fit where it goes. Raises DiskFull."""
        if relieving:
            if self._offset + group_bytes > self._capacity:
                self._advance(group_bytes, relieving=True)
            return
        with self._failing("making a spare segment", may_refuse=True):
            self._segments.keep_back()
        allowed = self.admit()
        if self._offset + group_bytes > self._capacity:
            self._advance(group_bytes, relieving=False)
        self._left = max(allowed - GROWTH_TIMES * group_bytes, 0)
        self._limit_lsn = self._base + self._capacity

    def _advance(self, group_bytes: int, *, relieving: bool) -> None:
        """Go on in the next segment, on page 1."""
        if self.unsynced_bytes:
            self._sync_unsynced()
        is_begun = False
        try:
            hook = self._hooks.before_segment
            file = self._segments.open_next(self._page_size + group_bytes, hook, relieving)
            is_begun = True
            self._segments.advance()
            self._limit_lsn = 0
            self._segment_from = self.end_lsn
            self._capacity = self._segments.capacity
            self._file.close()
            self._use(file)
            # Read by other threads: in between, what is in the segment is too low, not too high.
            self._base += self._segment_bytes
            self.end_lsn = self._base + self._page_size
        except BaseException as error:
            if is_begun or not isinstance(error, ResourceExhausted):
                self._fail(error, "making the next segment")  # it must not be done twice
            raise

    @contextmanager
    def _failing(self, doing: str, *, may_refuse: bool = False) -> Iterator[None]:
        """An OSError inside poisons the journal (J6); not, if it `may_refuse`, by E9."""
        if self._refusal is not None:
            self._refuse()
        try:
            yield
        except OSError as error:
            if may_refuse and isinstance(error, ResourceExhausted):
                raise
            self._fail(error, doing)
            raise

    def _fail(self, error: BaseException, doing: str) -> None:
        """Poison the journal (J6), whatever went wrong: what is on disk is unknown.

        Raises StoreFailed for an OSError; anything else is for the caller to raise again.
        """
        text = (
            f"journal {self._directory.path}: {doing} failed ({error!r}); the store refuses"
            " commits: close it and open it again to recover"
        )
        self._refusal = StoreFailed(text)
        if isinstance(error, OSError):
            self._refusal.__cause__ = copy.copy(error)  # which holds nothing that it has passed
            raise StoreFailed(text) from error

    def _refuse(self) -> NoReturn:
        refusal = self._refusal
        assert refusal is not None
        raise type(refusal)(*refusal.args) from refusal.__cause__
