"""Group commit: puts changes into the one order of the journal, many with one write and one sync.

- C1: changes are placed (ids, time, ledger check), written and applied in one order, the journal's.
- C2: a change is applied after the group that holds it is durable, and before its caller goes on.
- C3: a lone change is written at once by its own thread: no timer, no hand-over. While a group is
  being written, arriving changes wait and form the next one, written by the first of them.
- C4: a refused change (an error in `place`) leaves no trace; the others of its group go on.
- C5: after a failed write nobody is applied: every change of the group gets `StoreFailed`, or
  `DiskFull` if nothing was written, and is withdrawn: it may be submitted again.
- C6: should applying ever be interrupted (a signal's exception, memory), what is in memory may
  differ from the journal: every later change is refused until the store is opened again.
- C7: the same after a failed write or sync of any other file of the store (promise 11).
- C8: an interrupt (a signal's exception) while a change waits for its group is raised only when the
  outcome is known. `applied` says whether the change stands, for who catches it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from quire.errors import AlreadyCommitted, DiskFull, StoreFailed
from quire.journal import Journal, WholeRecord, padded_bytes
from quire.limits import GROUP_BYTES


class Change(Protocol):
    """Something that becomes durable as one journal record."""

    applied: bool  # the change stands, whatever is raised afterwards (C8)

    @property
    def record(self) -> WholeRecord:
        """The whole record; its length does not change after `place`."""

    def place(self) -> None:
        """Take the place in the order: fill ids and time into `record`. May raise to refuse."""

    def withdraw(self) -> None:
        """The record was not written: undo what `place` did. Must not raise."""

    def apply(self, address: int) -> None:
        """The record is durable at the address: change the state in memory. Must not raise."""


# A definition's record is made in `place`: what it takes is not known before. Names have limits.
_DEFINITION_BYTES: Final = 2048


class _Waiting:
    __slots__ = ("change", "done", "error", "gate")

    def __init__(self, change: Change) -> None:
        self.change = change
        self.gate = threading.Lock()
        self.gate.acquire()
        self.done = False
        self.error: BaseException | None = None


class Sequencer:
    """See the module. Thread-safe."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._group_bytes = min(GROUP_BYTES, journal.max_group_bytes - _DEFINITION_BYTES)
        self._guard = threading.Lock()
        self._leading = False
        self._queue: deque[_Waiting] = deque()
        self._failure: BaseException | None = None
        self.groups = 0
        self.changes = 0

    def submit(self, change: Change) -> None:
        """Return when the change is durable and applied; raise what refused it."""
        with self._guard:
            if self._leading:
                waiting = _Waiting(change)
                self._queue.append(waiting)
            else:
                self._leading = True
                waiting = None
        if waiting is None:
            try:
                self._lead_alone(change)
            finally:
                self._hand_over()
            return
        interrupt = _wait(waiting.gate)
        if not waiting.done:
            try:
                self._lead(self._collect())
            finally:
                self._hand_over()
        if waiting.error is not None:
            raise waiting.error
        if interrupt is not None:
            raise interrupt

    def exclusive(self, action: Callable[[], None]) -> None:
        """Run the action between two groups: nothing is committed meanwhile. Keep it short."""
        with self._guard:
            waiting = _Waiting(_NoChange()) if self._leading else None
            interrupt: BaseException | None = None
            if waiting is not None:
                self._queue.append(waiting)
            self._leading = True
        if waiting is not None:
            interrupt = _wait(waiting.gate)
            with self._guard:
                self._queue.popleft()
        try:
            if interrupt is not None:
                raise interrupt
            action()
        finally:
            self._hand_over()

    def _lead_alone(self, change: Change) -> None:
        if self._failure is not None:
            raise self._failed()
        change.place()
        try:
            address = self._journal.write_group((change.record,))
        except BaseException:
            change.withdraw()
            raise
        self.groups += 1
        self.changes += 1
        try:
            change.applied = True
            change.apply(address)
        except BaseException as error:
            self._failure = error
            raise

    def _collect(self) -> list[_Waiting]:
        """The next group: those that wait, up to a size; a stop for exclusive actions."""
        group: list[_Waiting] = []
        size = 0
        with self._guard:
            while self._queue:
                change = self._queue[0].change
                if isinstance(change, _NoChange):
                    break
                size += padded_bytes(change.record)
                if group and size > self._group_bytes:
                    break
                group.append(self._queue.popleft())
        return group

    def _lead(self, group: list[_Waiting]) -> None:
        placed: list[_Waiting] = []
        for waiting in group:
            try:
                if self._failure is not None:
                    raise self._failed()
                waiting.change.place()
                placed.append(waiting)
            except Exception as error:  # noqa: BLE001 - raised in the thread that submitted it
                waiting.error = error
        try:
            if placed:
                address = self._write(placed)
                self.groups += 1
                self.changes += len(placed)
                try:
                    for waiting in placed:
                        waiting.change.applied = True
                        waiting.change.apply(address)
                        address += padded_bytes(waiting.change.record)
                except BaseException as error:
                    self._failure = error
                    raise
        except BaseException as error:  # noqa: BLE001 - raised in every thread that waits
            self._tell(group, error)
        finally:
            for waiting in group:
                waiting.done = True
                waiting.gate.release()

    def _tell(self, group: list[_Waiting], error: BaseException) -> None:
        """The group was not written, or not applied as a whole."""
        shared = error
        if not isinstance(error, Exception):  # an interrupt is the leader's own, the first's
            self._failure = self._failure or error
            shared = self._failed()
        for index, waiting in enumerate(group):
            # Who was refused because of an entry of this group must not think it is committed.
            if waiting.error is None or isinstance(waiting.error, AlreadyCommitted):
                waiting.error = shared if index else error

    def _write(self, placed: list[_Waiting]) -> int:
        try:
            return self._journal.write_group([waiting.change.record for waiting in placed])
        except BaseException:
            for waiting in reversed(placed):
                waiting.change.withdraw()
            raise

    @property
    def failure(self) -> BaseException | None:
        """What interrupted the applying of a change (C6), or failed beside the journal (C7)."""
        return self._failure

    @contextmanager
    def fail_stop(self, doing: str) -> Iterator[None]:
        """I/O that is not the journal's (C7). Raises StoreFailed for an OSError but DiskFull."""
        try:
            yield
        except DiskFull:
            raise
        except StoreFailed as error:
            self._failure = self._failure or error
            raise
        except OSError as error:
            self._failure = self._failure or error
            raise StoreFailed(
                f"{doing} failed ({error!r}); the store refuses commits: close it and open it "
                "again to recover"
            ) from error

    def _failed(self) -> StoreFailed:
        return StoreFailed(
            f"the store has failed ({self._failure!r}) and refuses commits: close it and open it "
            "again to recover"
        )

    def _hand_over(self) -> None:
        with self._guard:
            if self._queue:
                self._queue[0].gate.release()
            else:
                self._leading = False


def _wait(gate: threading.Lock) -> BaseException | None:
    """Wait for the gate, through interrupts (C8); the first of them is returned."""
    interrupt: BaseException | None = None
    while True:
        try:
            gate.acquire()
        except BaseException as error:  # noqa: BLE001 - a signal's exception; raised later
            interrupt = interrupt or error
        else:
            return interrupt


class _NoChange:
    """What an exclusive action waits in line with."""

    applied = False
    record: WholeRecord = b""

    def place(self) -> None:
        raise AssertionError("an exclusive action is not written")

    def withdraw(self) -> None:
        raise AssertionError("an exclusive action is not written")

    def apply(self, address: int) -> None:
        raise AssertionError("an exclusive action is not written")
