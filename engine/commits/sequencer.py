"""Group commit: puts changes into the one order of the journal, many with one write and one sync.

- Changes are placed (ids, time, ledger check), written and applied in one order, the journal's.
- C2: a change is applied after the group that holds it is durable, and before its caller goes on.
  Where no change of the group has to be `durable`, it is applied after the group was written: a
  later sync, that of the next durable group at the latest, makes it durable too, in its order.
- A lone change is written at once by its own thread: no timer, no hand-over. While a group is being
  written, arriving changes wait and form the next one, written by the first of them.
- A refused change (an error in `place`) leaves no trace; the others of its group go on.
- After a failed write nobody is applied: every change of the group gets `StoreFailed`, or
  `DiskFull` if nothing was written, and is withdrawn: it may be submitted again.
- C6: should placing or applying ever be interrupted (a signal's exception, memory), what is in
  memory may differ from the journal: every later change is refused until the store is opened again.
- C7: the same after a failed write or sync of any other file of the store (promise 11).
- C8: an interrupt (a signal's exception) while a change waits for its group is raised only when the
  outcome is known. `applied` says whether the change stands, for who catches it.
- C9: whatever interrupts one thread, the others go on: every change gets an outcome, and the lead
  is handed over. So nothing here relies on code after a wait or a call being reached.
- C10: the threads of a group wake one another, each the next one as soon as it runs. Woken all at
  once they would only queue for the interpreter's lock, each put to sleep a second time (measured
  with 32 threads on two processors: 29 us of processor time a commit, not 22). The main thread is
  the last one: it may have a signal's handler to run first, which may take its time.
- C11: on a full disk what makes room (`relieving`) goes on without the others of its group. What it
  is written to is set free by a checkpoint, `relieve`: its thread makes one if need be.
- C12: one thread may have several changes written together (`together`): each waits, within its own
  call, for those that follow it. What one submits as it goes on comes after its group, so before
  those of the next.
- C13: who leads is decided without a lock. CPython switches threads, and runs signal handlers, only
  within calls and at the ends of loops: so a statement without either is one step. A lone change
  takes the lead if nobody has it, and lets go of it if nobody is in line. Who has got in line then
  looks whether anybody leads. Without the GIL every change gets in line, under the lock.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import pairwise
from typing import Final, Protocol, TypeVar, cast

from quire.calls.signal_safety import allow_reentry
from quire.env.interpreter import Lock
from quire.errors import (
    AlreadyCommitted,
    ResourceExhausted,
    StoreFailed,
    TransactionNotFound,
    XidExists,
)
from quire.journal import Journal, WholeRecord, padded_bytes
from quire.limits import GATHERED_CHANGES, GROUP_BYTES, SIZE_COUNTS

R = TypeVar("R")


Submit = Callable[["Change"], None]


class Change(Protocol):
    """Something that becomes durable as one journal record."""

    applied: bool  # the change stands, whatever is raised afterwards (C8)

    @property
    def durable(self) -> bool:
        """Return True if the change is to be durable before it is applied (C2)."""

    @property
    def relieves(self) -> bool:
        """Return True if it makes room on disk and takes none (C11); called in its place."""

    @property
    def comes_first(self) -> bool:
        """Return True if it begins a group: it checks what the changes before it are to change."""

    @property
    def record(self) -> WholeRecord:
        """The whole record; its length does not grow in `place`, nor change after it."""

    def place(self) -> None:
        """Take the place in the order: fill ids and time into `record`. May raise to refuse."""

    def withdraw(self) -> None:
        """The record was not written: undo what `place` did. Must not raise."""

    def apply(self, address: int) -> None:
        """The record is durable at the address: change the state in memory. Must not raise."""


# What refuses a change because another one has done it.
_THERE_ALREADY: Final = (AlreadyCommitted, TransactionNotFound, XidExists)


class _Exclusive:
    """An action that is a group of its own and writes nothing."""

    def __init__(self, action: Callable[[], None]) -> None:
        self.action = action


class _Turn:
    """A place in line."""

    __slots__ = ("change", "done", "error", "follower", "gate", "taken", "thread")

    def __init__(self, change: Change | _Exclusive) -> None:
        self.change = change
        self.gate = threading.Lock()  # open: it leads, or the outcome is known
        self.gate.acquire()
        self.taken = False  # it is in a group, not in line any more
        self.done = False  # the outcome is known
        self.error: BaseException | None = None
        self.follower: _Turn | None = None  # whom its thread wakes when the outcome is known
        self.thread = threading.get_ident()


class _Gathering:
    """The actions that a thread does together, and the changes that they have come to."""

    __slots__ = ("actions", "depth", "turns")

    def __init__(self, actions: Iterator[Callable[[], None]]) -> None:
        self.actions = actions
        self.turns: list[_Turn] = []
        self.depth = 0


class Sequencer:
    """Puts changes into the one order of the journal, in groups. Thread-safe."""

    def __init__(
        self,
        journal: Journal,
        number: int = 0,
        relieve: Callable[[], None] = lambda: None,
        has_gil: bool = True,
        timed: Callable[[Submit], Submit] | None = None,
    ) -> None:
        """`number`: how many records the store had before (see `number`); `relieve`: see C11;
        `has_gil`: see C13; `timed`: what to make of `submit`."""
        self._journal = journal
        self._number = number
        self._write = journal.write_group
        self._group_bytes = min(GROUP_BYTES, journal.max_group_bytes)
        self._guard = Lock()
        self._leader: object = None  # the change or the turn that leads
        self._queue: deque[_Turn] = deque()
        self._failure = ""  # in words: the error itself would hold all that it has passed
        self._gathering: dict[int, _Gathering] = {}  # by thread
        if not has_gil:  # as if somebody always gathered: so no change goes alone
            self._gathering[0] = _Gathering(iter(()))  # which is no thread's number
        self._alone = 0  # changes that were their group
        self._groups = self._grouped = 0  # the others
        self._sizes = [0] * SIZE_COUNTS  # of those, by powers of two
        self._relieve = relieve
        if timed is not None:
            vars(self)["submit"] = timed(self.submit)

    @property
    def number(self) -> int:
        """The number of the latest record since the store was made, without the journal's own.

        Each change is one record.
        """
        return self._number + self.changes

    @property
    def groups(self) -> int:
        """How many were written."""
        return self._alone + self._groups

    @property
    def changes(self) -> int:
        """How many were written."""
        return self._alone + self._grouped

    @property
    def groups_by_size(self) -> list[int]:
        """How many were written, number n of up to 2**n changes; the last: of more."""
        alone, *others = self._sizes
        return [alone + self._alone, *others]

    def submit(self, change: Change) -> None:
        """Return when the change is durable and applied; raise what refused it."""
        try:
            if self._gathering:
                self._gather(change)
                return
            self._leader = self._leader or change  # one step (C13)
            if self._leader is change:
                try:
                    self._commit_alone(change)
                    return
                finally:
                    self._leader = change if self._queue else None  # one step (C13)
                    if self._leader is not None:
                        try:
                            self._hand_over(change)
                        except BaseException:
                            self._hand_over(change)
                            raise
            self._wait_in_line(change)
            return
        except ResourceExhausted:
            if change.applied or not change.relieves:
                raise
        self._relieve()  # (C11)
        self._gather(change)

    def together(self, actions: Iterable[Callable[[], None]]) -> None:
        """Do the actions in this thread, so that the changes which they submit share groups (C12).

        Where one submits, the next is begun, inside it; all go on when their changes are durable.
        So none may hold anything then that another one waits for, and none may raise.
        """
        thread = threading.get_ident()
        gathering = self._gathering[thread] = _Gathering(iter(actions))
        try:
            for action in gathering.actions:
                action()
        finally:
            del self._gathering[thread]

    def _gather(self, change: Change) -> None:
        gathering = self._gathering.get(threading.get_ident())
        if gathering is None:  # it is another thread that does
            self._wait_in_line(change)
            return
        turn = _Turn(change)
        turns = gathering.turns
        turns.append(turn)
        gathering.depth += 1
        try:
            while gathering.turns is turns and gathering.depth < GATHERED_CHANGES:
                action = next(gathering.actions, None)
                if action is None:
                    break
                allow_reentry(action)
        finally:
            gathering.depth -= 1
            if gathering.turns is turns:  # nobody has written them meanwhile
                gathering.turns = []
                self._write_together(turns)
        if turn.error is not None:
            raise turn.error

    def _write_together(self, turns: list[_Turn]) -> None:
        self._go_through(turns[0], turns)
        for turn in turns[1:]:
            self._go_through(turn)

    def exclusive(self, action: Callable[[], R]) -> R:
        """Run the action between two groups: nothing is committed meanwhile. Keep it short."""
        found: list[R] = []
        self._wait_in_line(_Exclusive(lambda: found.append(action())))
        return found[0]

    def sync(self) -> None:
        """Return when all that was applied before is durable (C2). Raises StoreFailed."""
        if self._journal.unsynced_bytes or self._journal.failed:
            self.exclusive(self._journal.sync)

    def _wait_in_line(self, change: Change | _Exclusive) -> None:
        """Return when it was done, by this thread or another; raise what refused it."""
        turn = _Turn(change)
        self._go_through(turn, (turn,))
        if turn.error is not None:
            raise turn.error

    def _go_through(self, turn: _Turn, coming: Sequence[_Turn] = ()) -> None:
        """Wait for a turn's outcome, or bring it about. Those that come get in line before that."""
        try:
            if coming:
                with self._guard:
                    self._queue.extend(coming)
                    self._lead_if_nobody_does(coming[0])
            turn.gate.acquire()
            if self._leader is turn:
                self._lead()
        except BaseException as error:
            self._see_through(turn)
            if not isinstance(error, Exception):
                raise
            turn.error = turn.error or error
        finally:
            try:
                self._hand_over(turn)
                _wake_follower(turn)
            except BaseException:
                self._hand_over(turn)
                _wake_follower(turn)
                raise

    def _lead_if_nobody_does(self, turn: _Turn) -> None:
        """It is in line. Who led may have gone before that, without a look at the line again."""
        self._leader = self._leader or turn  # one step (C13)
        if self._leader is turn:
            turn.gate.release()

    def _hand_over(self, leader: object) -> None:
        """The first in line leads now, unless another leads already."""
        if self._leader is leader:
            waiting = self._queue
            with self._guard:
                while waiting and waiting[0].done:
                    waiting.popleft()
                if waiting:
                    self._leader = waiting[0]
                    waiting[0].gate.release()
                else:
                    self._leader = None

    def _see_through(self, turn: _Turn) -> None:
        """The turn's thread was interrupted: wait for the outcome nevertheless (C8)."""
        with self._guard:
            waits = turn in self._queue
            if waits and isinstance(turn.change, _Exclusive):
                self._queue.remove(turn)
                waits = False
        while (waits or turn.taken) and not turn.done:
            with suppress(BaseException):
                if self._leader is turn:
                    self._lead()
                else:
                    turn.gate.acquire()

    def _lead(self) -> None:
        """Write the next group, which begins with the caller's own change, and settle it."""
        group: list[_Turn] = []
        try:
            self._collect(group)
            change = group[0].change
            if isinstance(change, _Exclusive):
                change.action()
            else:
                self._commit(group)
        except BaseException as error:
            interrupted = not isinstance(error, Exception)
            for turn in group:
                # Who was refused because of a change of this group must not think that it stands.
                if turn.error is None or isinstance(turn.error, _THERE_ALREADY):
                    turn.error = self._failed() if interrupted else error
            if interrupted or not group:
                raise
        finally:
            try:
                _settle(group)
            except BaseException:
                _settle(group)
                raise

    def _collect(self, group: list[_Turn]) -> None:
        """The next group: those that wait, up to a size, or an exclusive action."""
        size = 0
        with self._guard:
            while self._queue:
                turn = self._queue[0]
                change = turn.change
                if isinstance(change, _Exclusive):
                    if not group:
                        group.append(turn)
                        self._queue.popleft()
                    return
                size += padded_bytes(change.record)
                if group and (size > self._group_bytes or change.comes_first):
                    return
                group.append(turn)
                turn.taken = True
                self._queue.popleft()

    def _commit_alone(self, change: Change) -> None:
        if self._failure:
            raise self._failed()
        write = self._write
        try:
            change.place()
            try:
                address = write((change.record,), change.durable)
            except ResourceExhausted:
                if not change.relieves:
                    change.withdraw()
                    raise
                try:
                    address = self._journal.write_group((change.record,), relieving=True)
                except BaseException:
                    change.withdraw()
                    raise
            except BaseException:
                change.withdraw()
                raise
            self._alone += 1
            change.applied = True
            change.apply(address)
        except BaseException as error:
            if change.applied or not isinstance(error, Exception):
                self._failure = self._failure or repr(error)
            raise

    def _commit(self, group: list[_Turn]) -> None:
        placed: list[Change] = []
        written = False
        try:
            for turn in group:
                change = cast("Change", turn.change)
                try:
                    if self._failure:
                        raise self._failed()
                    change.place()
                    placed.append(change)
                except Exception as error:  # noqa: BLE001 - raised in the thread that submitted it
                    turn.error = error
            if not placed:
                return
            try:
                address = self._journal.write_group(
                    [change.record for change in placed],
                    durable=any(change.durable for change in placed),
                )
            except ResourceExhausted as full:
                self._refuse_others(group, placed, full)
                if not placed:
                    return
                records = [change.record for change in placed]
                address = self._journal.write_group(records, relieving=True)
            self._groups += 1
            self._grouped += len(placed)
            self._sizes[min((len(placed) - 1).bit_length(), SIZE_COUNTS - 1)] += 1
            written = True
            for change in placed:
                change.applied = True
                change.apply(address)
                address += padded_bytes(change.record)
        except BaseException as error:
            if not written:
                for change in reversed(placed):
                    change.withdraw()
            if written or not isinstance(error, Exception):
                self._failure = self._failure or repr(error)
            raise

    def _refuse_others(
        self, group: list[_Turn], placed: list[Change], full: ResourceExhausted
    ) -> None:
        """Withdraw what does not relieve from a group that has no room (C11)."""
        for turn in reversed(group):
            change = cast("Change", turn.change)
            if change in placed and not change.relieves:
                placed.remove(change)
                change.withdraw()
                turn.error = full
            elif isinstance(turn.error, _THERE_ALREADY):
                turn.error = full  # perhaps because of one of these

    @property
    def is_together(self) -> bool:
        """Return True if this thread has several changes written together (C12)."""
        return bool(self._gathering) and threading.get_ident() in self._gathering

    @property
    def busy(self) -> bool:
        """Return True if a change or an exclusive action is under way."""
        return self._leader is not None

    @property
    def failure(self) -> str | None:
        """The failure of a change that was being applied (C6), or beside the journal (C7)."""
        return self._failure or None

    def check(self) -> None:
        """Raise StoreFailed if commits are refused."""
        if self._failure or self._journal.failed:
            raise self._failed()

    def fail(self, error: BaseException) -> None:
        """It came while something was applied that no record tells of (C6), or beside (C7)."""
        self._failure = self._failure or repr(error)

    @contextmanager
    def fail_stop(self, doing: str) -> Iterator[None]:
        """I/O that is not the journal's (C7). Raises StoreFailed for an OSError but DiskFull."""
        try:
            yield
        except ResourceExhausted:
            raise
        except (StoreFailed, OSError) as error:
            self.fail(error)
            if isinstance(error, StoreFailed):
                raise
            raise StoreFailed(
                f"{doing} failed ({error!r}); the store refuses commits: close it and open it "
                "again to recover"
            ) from error

    def writing_file(self) -> AbstractContextManager[None]:
        """Work on a large transaction's file: a failed write or sync fails the store (C7)."""
        return self.fail_stop("writing a large transaction's file")

    def _failed(self) -> StoreFailed:
        return StoreFailed(
            f"the store has failed ({self._failure or 'a write failed'}) and refuses commits: "
            "close it and open it again to recover"
        )


def _settle(group: list[_Turn]) -> None:
    """The outcomes are known; may be called again. The leader wakes the first of them (C10)."""
    main = threading.main_thread().ident
    followers = sorted(group[1:], key=lambda turn: turn.thread == main)
    for turn, follower in pairwise((*group[:1], *followers)):
        turn.follower = follower
    for turn in group:
        turn.done = True


def _wake_follower(turn: _Turn) -> None:
    """The next one of its group goes on; may be called again."""
    if turn.follower is not None and turn.follower.gate.locked():
        with suppress(RuntimeError):  # it was opened in between
            turn.follower.gate.release()
