"""The maintenance thread: time-outs, leases, checkpoints, space in advance and back.

What was committed without a sync is synced when it is `UNSYNCED_SECONDS` old; a checkpoint that is
under way then ends first.

Free space at the data files' ends is given back now and then, and where something is in the way
that could move, a checkpoint is made for it, the next one soon after (see `reorganising`).

With `background` a thread does it; without (simulation, tests) `step` runs after commits, in the
committing thread.
"""

from __future__ import annotations

import _thread
import math
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from quire.calls.signal_safety import allow_reentry, as_call, look_around
from quire.calls.wake_up import Thread
from quire.engine.checkpoints.checkpoint import Checkpointer
from quire.engine.reading.lease import Leases
from quire.engine.transactions.context import Context
from quire.errors import QuireError, ResourceExhausted, StoreFailed
from quire.limits import (
    INTERVAL_SECONDS,
    REMOVAL_PAUSE_SECONDS,
    REORGANISE_SECONDS,
    TRIM_SECONDS,
    UNSYNCED_SECONDS,
)

from .dead_letters import DeadLetters
from .fragment_files import sweep_fragments
from .retention import Retention
from .schedules import Schedules
from .temporary import Temporary

if TYPE_CHECKING:
    from .disk_watch import DiskWatch


class Maintenance:
    """The maintenance of one open store."""

    def __init__(
        self,
        context: Context,
        checkpointer: Checkpointer,
        leases: Leases,
        temporary: Temporary,
        schedules: Schedules,
        dead_letters: DeadLetters,
        retention: Retention,
        disk: DiskWatch | None,
        check_place: Callable[[], None],
    ) -> None:
        self._context = context
        self.checkpointer = checkpointer
        self.leases = leases
        self._temporary = temporary
        self.schedules = schedules
        self._dead_letters = dead_letters
        self._retention = retention
        self.disk = disk
        self._check_place = check_place
        self._env, self._journal = context.env, context.journal
        self._wake: SimpleQueue[None] = SimpleQueue()  # unlike an event, for finalisers too
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._last: Callable[[], bool] | None = None
        self._set_due(0)
        self._swept = 0.0
        self._trim_at = context.env.monotonic() + TRIM_SECONDS
        self.last_error: str | None = None
        # Called now and then, as it finds the store.
        self.when_failed: Callable[[], None] = lambda: None
        self.when_in_place: Callable[[], None] = lambda: None

    @property
    def has_thread(self) -> bool:
        """Return True if a thread does it, False if it is done within commits."""
        return self._thread is not None

    def start(self) -> None:
        """Run in a thread of its own until `stop`."""
        self._thread = Thread(target=self._run, name="quire-maintenance")
        self._thread.start()

    def stop(self) -> None:
        self._stopping = True
        if self._thread is not None:
            self._wake.put(None)
            self._thread.join()
            self._thread = None

    def end_by(self, last: Callable[[], bool]) -> None:
        """Nobody holds the store any more; may be called from a finaliser.

        What is given is done by the thread, now and then, until it says that it is done. Without a
        thread it is done at once, and only if that is not enough by one.
        """
        self._last = last
        if self._thread is not None:
            self._wake.put(None)
        elif last():
            self._last = None
        else:
            _thread.start_new_thread(self._do_last, ())  # unlike a `Thread`, it needs no lock

    def _do_last(self) -> None:
        while self._last is not None and not self._last():
            self._wait(INTERVAL_SECONDS)
        self._last = None

    def after_commit(self) -> None:
        """Called by commits: by those that make the journal `_due` bytes long, or by all.

        Does not raise, as the commit stands: what goes wrong is shown by `status`, and where it is
        an I/O error the next commit is refused.
        """
        if self._journal.end_lsn < self._due:
            if self._thread is None:
                with suppress(StoreFailed):
                    self._bring_back()
                    if self.disk is not None:
                        self.disk.look_now_and_then()
                    self._move()
            return
        if self._thread is not None:
            self._set_due(self._journal.end_lsn + self._pace_bytes)
            self._wake.put(None)
        else:
            allow_reentry(self._try_step)

    def _set_due(self, lsn: int) -> None:
        """There is something to do when the journal is that long."""
        self._due = lsn
        self._context.committer.due_lsn = lsn if self._thread is not None else 0

    def soon(self) -> None:
        """There is something to do; where no thread does it, it is done after the next commit."""
        if self._thread is not None:
            self._wake.put(None)

    def after_discard(self) -> None:
        """Called by a rollback that leaves files behind: does not raise, as that is done."""
        if self._thread is not None:
            self._wake.put(None)
            return
        with (
            suppress(StoreFailed, ResourceExhausted),
            self._context.sequencer.fail_stop("removing a file"),
        ):
            self._context.places.discarded.remove_all()

    def step(self) -> None:
        """Do what is due."""
        look_around()
        as_call(self._look_after)
        self._move()
        as_call(self._make_room)

    def _look_after(self) -> None:
        """Do as one call what makes no calls itself: what runs in its midst waits for nothing."""
        with self._context.sequencer.fail_stop("maintenance"):
            self._check_place()
        self.when_in_place()
        self._bring_back()
        if self.disk is not None:
            self.disk.look()

    def _make_room(self) -> None:
        """Make room: end leases, remove files, make a checkpoint if it is due, cut data files."""
        context, checkpointer = self._context, self.checkpointer
        options, fail_stop = context.options, context.sequencer.fail_stop
        self.leases.expire()
        with fail_stop("removing a file"):
            context.places.sweep(sliced=self._thread is not None)
        self._limit_unshipped()
        full = self._prepare_journal()
        since = self._journal.bytes_since(checkpointer.last_lsn)
        # On a full disk a checkpoint gives back what was read, as far as that is.
        if since >= (self._journal.segment_space >> 1 if full else options.checkpoint_bytes):
            checkpointer.run(waits=False)
        if self._env.monotonic() >= self._trim_at:
            self._give_space_back()
        if full is not None:
            raise full
        # Takes space, which may fail: after all that gives it back.
        if options.write_buffer_seconds < math.inf:
            context.registry.leave_buffer(self._env.monotonic() - options.write_buffer_seconds)
        left = options.checkpoint_bytes - self._journal.bytes_since(checkpointer.last_lsn)
        unshipped = context.places.unshipped
        if unshipped.is_on:
            excess = unshipped.excess(self._unshipped_bytes, context.places.page_size)
            left = max(min(left, -excess), self._pace_bytes >> 4)
        self._set_due(self._journal.end_lsn + min(left, self._pace_bytes))

    def _limit_unshipped(self) -> None:
        """Let go of what waits to be shipped, or let puts wait, where it is too much (US4)."""
        if self._context.state.limit_unshipped(self._unshipped_bytes):
            self.checkpointer.run(waits=False, lets_go=True)

    @property
    def _unshipped_bytes(self) -> int:
        position = self._context.places.unshipped.position
        return 0 if position is None else self._journal.bytes_since(position.lsn)

    def _prepare_journal(self) -> ResourceExhausted | None:
        """Have the next segment before it is needed; what there is no room for."""
        try:
            if self._journal.nearly_full and not self._journal.next_is_ready:
                self._journal.prepare_next()
        except ResourceExhausted as error:
            return error
        return None

    def _bring_back(self) -> None:
        """Do what is due at any time, also where no thread does it."""
        context = self._context
        self._sync()
        if context.registry.open:
            context.registry.expire(self._env.monotonic())
        context.delivery.bring_back()
        context.listening.advance()
        context.listening.end_unused()

    def _move(self) -> None:
        """Commit what is due: dead letters, schedules, ended subscriptions, kept messages."""
        self._dead_letters.move_all()
        self.schedules.put_due()
        self._temporary.end()
        self._retention.let_go()

    def _sync(self) -> None:
        """Make durable what was committed without a sync, if that is due."""
        journal = self._journal
        if journal.unsynced_bytes:
            age = self._env.monotonic() - journal.unsynced_since
            if age + INTERVAL_SECONDS > UNSYNCED_SECONDS:  # the next look would be too late
                self._context.sequencer.sync()

    def _give_space_back(self) -> None:
        self._trim_at = self._env.monotonic() + TRIM_SECONDS
        with self._context.sequencer.fail_stop("giving space back"):
            self._context.places.trim()
        checkpointer = self.checkpointer
        if checkpointer.is_worthwhile:
            before = checkpointer.reorganised_bytes
            checkpointer.run(waits=False)
            if checkpointer.reorganised_bytes > before:  # there may be more
                self._trim_at = self._env.monotonic() + min(REORGANISE_SECONDS, TRIM_SECONDS)

    def _try_step(self) -> bool:
        """A step; what goes wrong is noted. Without room commits go on while the journal can."""
        try:
            self.step()
        except (QuireError, OSError) as error:
            self.last_error = str(error)
            self._set_due(self._journal.end_lsn + self._pace_bytes)
            return False
        doing = self._dead_letters, self._retention, self.schedules
        self.last_error = next((part.last_error for part in doing if part.last_error), None)
        return True

    @property
    def _pace_bytes(self) -> int:
        """The journal bytes that may pass between two steps: a quarter of a segment."""
        return self._journal.segment_space >> 2

    def _run(self) -> None:
        while not self._stopping:
            failed = self._journal.failed or self._context.sequencer.failure is not None
            done = False
            if failed:
                self.when_failed()
            try:
                done = not failed and self._try_step()
                if done and self._env.monotonic() - self._swept > INTERVAL_SECONDS * 60:
                    sweep_fragments(self._context)
                    self._swept = self._env.monotonic()
            except Exception as error:  # noqa: BLE001 - shown by `status`; the rest must go on
                self.last_error = f"{type(error).__name__}: {error}"
            if self._last is not None and self._last():
                self._last = None
                return
            more = len(self._context.places.discarded)
            self._wait(REMOVAL_PAUSE_SECONDS if more and not failed else self._pause(done))

    def _pause(self, done: bool) -> float:
        """Seconds until the next step, if nobody wakes the thread; `done`: nothing went wrong."""
        left = (self.schedules.next_us - self._env.now_us()) / 1e6 if done else INTERVAL_SECONDS
        left = min(left, self._context.delivery.next_due, self._context.listening.next_due)
        return max(REMOVAL_PAUSE_SECONDS, min(left, INTERVAL_SECONDS))

    def _wait(self, seconds: float) -> None:
        """Until somebody wakes the thread, or for so long."""
        with suppress(Empty):
            self._wake.get(timeout=seconds)
            while True:
                self._wake.get_nowait()
