"""Opening a store, and what ends that: its close, its loss, a fork.

`checkpoints.opened` recovers the files, `composition` makes the parts that stand on them.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from typing import Final, Protocol

from quire.engine.checkpoints.opened import (
    Asked,
    Opened,
    errors_of_path,
    not_opened,
    open_files,
    prepare_directory,
)
from quire.engine.upkeep.fragments import discard_unfinished
from quire.engine.upkeep.started import look_for_orders
from quire.env import Env, FileLock, after_fork
from quire.errors import DiskFull, QuireError, StoreClosed, StoreFailed
from quire.limits import IDLE_JOURNAL_BYTES
from quire.uninterrupted import look_around, nested, waiting

from .composition import Parts, compose
from .layout import Layout


def layout_lock(env: Env, layout: Layout, create: bool, owner: str) -> FileLock:
    """Lock the store for this process. Raises what `Store.open` raises."""
    with errors_of_path(layout):
        prepare_directory(env, layout, create)
        return env.lock(layout.lock, owner or "a process using quire.open")


def open_parts(env: Env, layout: Layout, asked: Asked) -> Parts:
    """Own the store: recover it, or make it. Raises what `Store.open` raises.

    What an interrupt leaves is let go of; it ends the recovery at once.
    """
    look_around()
    lock = layout_lock(env, layout, asked.create, asked.owner)
    opened: Opened | None = None
    try:
        opened = waiting(open_files, env, layout, lock, asked)
        parts = compose(opened)
        _begin(parts, background=asked.background)
    except BaseException as error:
        if opened is not None:
            opened.close()
            opened.ownership.let_go()
        lock.release()
        if isinstance(error, OSError) and not isinstance(error, QuireError):
            raise not_opened(layout, error) from error
        raise
    return parts


def _begin(parts: Parts, *, background: bool) -> None:
    opened = parts.opened
    journal, queues = opened.journal, opened.state.queues
    parts.types.start(queues.values())
    look_for_orders(queues.values())
    discard_unfinished(parts.context)
    if background:
        parts.maintenance.start()
    else:
        opened.places.discarded.remove_all()
    if not journal.keep_back():  # a full disk: an opening takes some of it
        with contextlib.suppress(DiskFull):
            parts.checkpointer.run()
    with contextlib.suppress(DiskFull):  # nothing is admitted then before there is room
        journal.admit()


class Closing:
    """The steps by which an open store is let go of; `reason` is told to whoever uses it then."""

    def __init__(self, parts: Parts, reason: str, kind: type[StoreClosed | StoreFailed]) -> None:
        self._parts = parts
        self._reason, self._kind = reason, kind

    def run(self) -> None:
        """All of them, from the last to the first, whatever one raises."""
        with contextlib.ExitStack() as steps:
            for step in (
                self._parts.opened.ownership.release,
                self._let_go_of_files,
                self._save,
                self._stop_types,
                self._end_temporary,
                self._end_transactions,
                self._look_at_place,
                self._parts.maintenance.stop,
            ):
                steps.callback(self._close_by, step)

    def _close_by(self, step: Callable[[], None]) -> None:
        """Take a step; without room it can be left out, as the journal holds all."""
        sequencer = self._parts.context.sequencer
        with contextlib.suppress(DiskFull), sequencer.fail_stop("closing the store"):
            step()

    @property
    def _failed(self) -> bool:
        return self._kind is StoreFailed or self._parts.failed

    def _look_at_place(self) -> None:
        """Who does not own the store any more closes it without a change (OD4)."""
        if not self._failed:
            self._parts.opened.check_place()

    def _end_transactions(self) -> None:
        context = self._parts.context
        context.registry.reap()
        for transaction in context.registry:
            transaction.end_by(self._kind, self._reason, wait=True)
        context.state.prepared.abandon(self._reason)
        for queue in list(context.state.queues.values()):
            with queue.lock:
                queue.wake_all()

    def _end_temporary(self) -> None:
        """Those of clients that live on wait for the next owner (TS2)."""
        if not self._failed:
            temporary = self._parts.temporary
            temporary.let_go(temporary)
            temporary.end()

    def _stop_types(self) -> None:
        nested(self._parts.types.stop_all)  # it is the program's code

    def _save(self) -> None:
        opened, checkpointer = self._parts.opened, self._parts.checkpointer
        if self._failed:
            return
        self._parts.context.sequencer.sync()
        if opened.journal.bytes_since(checkpointer.last_lsn) > IDLE_JOURNAL_BYTES:
            with contextlib.suppress(DiskFull):
                checkpointer.run()
        opened.places.sweep()

    def _let_go_of_files(self) -> None:
        # A checkpoint, or a put's write, that is under way ends while the store is ours.
        with self._parts.checkpointer.paused():
            self._parts.context.sequencer.exclusive(self._parts.opened.close)


def abandon(parts: Parts, reason: str) -> None:
    """They must not be used any more, as in the child of a fork; no file is touched."""
    for transaction in parts.context.registry:
        transaction.abandon(reason)
    parts.context.state.prepared.abandon(reason)


def drop(opened: Opened) -> None:
    """Let go of the files as if the process had ended: the next opening recovers the store."""
    opened.places.stop()
    opened.journal.close()
    if opened.ownership.held:
        opened.ownership.release()


class Open(Protocol):
    """A store object."""

    def abandon(self, reason: str) -> None:
        """It must not be used any more."""


open_stores: Final[weakref.WeakSet[Open]] = weakref.WeakSet()


def _abandon_in_child(parent: int) -> None:
    """A fork: the parent goes on with the store; its lock and files are not the child's."""
    for store in list(open_stores):
        store.abandon(
            f"this store object belongs to process {parent}, from which this one was forked: "
            "use it there, or open the store here, too"
        )


after_fork(_abandon_in_child)
