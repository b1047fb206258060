"""Opening a store, and what ends that: its close, its loss, a fork.

`checkpoints.store_files` recovers the files, `composition` makes the parts that stand on them.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
import weakref
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, Protocol, Self, TypeVar

from quire.calls.documented import documented_by
from quire.calls.signal_safety import allow_reentry, call, look_around, made, waiting
from quire.engine.queues.queue import Queue
from quire.env import Env, OsEnv, after_fork, check_file_system
from quire.env.interpreter import check_unpatched, warn_without_gil
from quire.env.memory_env import IN_MEMORY, MemoryEnv
from quire.errors import QuireError, ResourceExhausted, StoreClosed, StoreFailed
from quire.interface.store import Store
from quire.limits import IDLE_JOURNAL_BYTES
from quire.reports.info import QueueInfo

from .checkpoints.store_files import (
    Opened,
    OpenRequest,
    errors_of_path,
    not_opened,
    open_files,
    prepare_directory,
)
from .composition import Parts, compose
from .layout import Layout
from .live_state.engine_state import EngineState
from .options import FIXED, Options
from .upkeep.fragment_files import discard_unfinished
from .upkeep.overflow_handler import dropped
from .upkeep.started_types import look_for_orders

Opening = TypeVar("Opening", bound="HasState")
P = ParamSpec("P")
R = TypeVar("R")


def open_parts(env: Env, layout: Layout, request: OpenRequest) -> Parts:
    """Own the store: recover it, or make it. Raises what `Store.open` raises.

    What an interrupt leaves is let go of; it ends the recovery at once.
    """
    check_unpatched()
    look_around()
    warn_without_gil()
    check_file_system(env, layout.path, network=request.options.network_file_system)
    with errors_of_path(layout):
        prepare_directory(env, layout, request.create)
        lock = env.lock(layout.lock, request.owner or "quire.open")
    opened: Opened | None = None
    try:
        opened = waiting(open_files, env, layout, lock, request)
        parts = compose(opened)
        _begin(parts, background=request.background)
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
    if parts.maintenance.disk is not None:
        parts.maintenance.disk.look()  # before anybody puts
    if background:
        parts.maintenance.start()
    else:
        opened.places.discarded.remove_all()
    if not journal.keep_back():  # a full disk: an opening takes some of it
        with contextlib.suppress(ResourceExhausted):
            parts.checkpointer.relieve()
    with contextlib.suppress(ResourceExhausted):  # nothing is admitted then before there is room
        journal.admit()


@documented_by(Store)
class StoreLife:
    """A store object, from its opening to its end; what users call meanwhile is its subclass's."""

    role = "owner"
    _closed: str | None = "the store was not opened"
    _refused_by: type[StoreClosed | StoreFailed] = StoreClosed

    def __init__(self, parts: Parts) -> None:
        self._opened = opened = parts.opened
        self._context = context = parts.context
        self._checkpointer, self._maintenance = parts.checkpointer, parts.maintenance
        self._definitions, self._leases = parts.definitions, parts.leases
        self._temporary, self._schedules = parts.temporary, parts.schedules
        self._types = parts.types
        self.path = opened.layout.path
        self.store_id = opened.store_id
        self.recovered = opened.recovered
        self.commit_timeout = opened.options.commit_timeout  # seconds
        self.fixed_options = {name: getattr(opened.options, name) for name in FIXED}
        self._env = opened.ownership.env.machine
        self._lock = opened.ownership
        self._committer = context.committer
        self._by_name = opened.state.names
        self._light_put_bytes = context.committer.inline_limit - 1024
        _open_stores.add(self)
        self._closed = None

    def __enter__(self) -> Self:
        self._state()
        return self

    def __del__(self) -> None:
        if sys is None or sys.is_finalizing():  # the interpreter may have cleared this module
            return
        if self._closed is None and self._lock.held:
            self._maintenance.end_by(self._give_up)  # not here: this thread may hold any lock
            warnings.warn(
                f"the store at {self.path} was dropped while it was open: it is let go of; use it "
                "in a with block, or close it",
                ResourceWarning,
                source=self,
                stacklevel=2,
            )

    @classmethod
    def open(
        cls,
        path: str | None,
        *,
        env: Env | None = None,
        create: bool = True,
        background: bool = True,
        owner: str = "",
        **options: Any,
    ) -> Self:
        """Own the store at the path: recover it, or make a new one with `create`.

        No path (None): a store in memory. `background=False` starts no thread: checkpoints and
        time-outs happen within commits.
        `owner` describes this process to others that find the store taken. Raises StoreLocked,
        StoreNotFound, StoreCorrupt, StoreFailed, StoreVersion, DiskFull, InvalidArgument.
        """
        if path is None:
            env, path = MemoryEnv(), IN_MEMORY
        machine = env if env is not None else OsEnv()
        layout = Layout(path)
        request = OpenRequest(Options.of(options), set(options), create, background, owner)
        return made(lambda: cls(open_parts(machine, layout, request)), cls.close)

    @call
    def close(self) -> None:
        if self._closed is None:
            self._closed = "the store was closed: open it again"
            self._close_parts()

    def let_go_failed(self) -> None:
        """Let go of the store, which has failed, for another process to recover it.

        As by `close`, but from now on this process owns the store no longer, and changes nothing
        there (OW3). This object stays failed: whatever it is asked raises StoreFailed, reads too,
        as what they would read is the other's.
        """
        if self._closed is not None or not self.failed:
            return
        self._refused_by = StoreFailed
        self._closed = (
            "the store has failed, and was let go of for another process to recover it: close it "
            "and open it again"
        )
        self._opened.ownership.env.lose(self._closed)
        with contextlib.suppress(QuireError, OSError):  # it has failed, and says so
            self._close_parts()

    def _close_parts(self) -> None:
        with contextlib.ExitStack() as steps:  # from the last to the first, whatever one raises
            for step in (
                self._lock.release,
                self._close_files,
                self._save,
                self._tell_last_start,
                lambda: allow_reentry(self._types.stop_all),  # the program's code
                self._end_temporary,
                self._end_transactions,
                self._look_at_place,
                self._maintenance.stop,
            ):
                steps.callback(self._close_by, step)

    def _close_by(self, step: Callable[[], None]) -> None:
        """Take a step of closing; without room it can be left out, as the journal holds all."""
        with (
            contextlib.suppress(ResourceExhausted),
            self._context.sequencer.fail_stop("closing the store"),
        ):
            step()

    def _look_at_place(self) -> None:
        """Look if the store is still owned: without ownership it is closed unchanged (OD4)."""
        if not self.failed:
            self._opened.check_place()

    def _end_transactions(self) -> None:
        context = self._context
        context.registry.reap()
        for transaction in context.registry:
            transaction.end_by(self._refused_by, str(self._closed), wait=True)
        context.state.prepared.abandon(str(self._closed))
        for queue in list(context.state.queues.values()):
            with queue.lock:
                queue.wake_all()

    def _end_temporary(self) -> None:
        """Those of clients that live on wait for the next owner (TS2)."""
        if not self.failed:
            self._temporary.let_go(self._temporary)
            self._temporary.end()

    def _tell_last_start(self) -> None:
        last_start_us = self._context.state.last_start_us()
        if last_start_us is not None and not self.failed:
            opening = self._opened.journal.generation >> 32
            self._definitions.tell_last_start(opening, last_start_us)

    def _save(self) -> None:
        opened = self._opened
        if self.failed:
            return
        self._context.sequencer.sync()
        if opened.journal.bytes_since(self._checkpointer.last_lsn) > IDLE_JOURNAL_BYTES:
            with contextlib.suppress(ResourceExhausted):
                self._checkpointer.run()
        opened.places.sweep()

    def _close_files(self) -> None:
        # A checkpoint, or a put's write, that is under way ends while the store is ours.
        with self._checkpointer.paused():
            self._context.sequencer.exclusive(self._opened.close)

    def _give_up(self) -> bool:
        """Let go of the store as if the process had ended, once nobody holds a transaction.

        Nothing is written: the next opening recovers the store. Whether it was done.
        """
        if self._context.registry.held:
            return False
        self.abandon("the store object was dropped while it was open: open the store again")
        self._opened.places.stop()
        self._opened.journal.close()
        if self._lock.held:
            self._lock.release()
        return True

    def abandon(self, reason: str) -> None:
        """This object must not be used any more, as in the child of a fork; no file is touched."""
        self._closed = reason
        for transaction in self._context.registry:
            transaction.abandon(reason)
        self._context.state.prepared.abandon(reason)

    @property
    def failed(self) -> bool:
        """Return True if a write or sync has failed: reads go on, no commits (promise 11)."""
        if self._refused_by is StoreFailed:  # it was let go of
            return True
        return self._checkpointer.store_failed

    @property
    def unready(self) -> str:
        """The reason why others cannot work with the store as ever, in words; "": they can."""
        if self._closed is not None:
            return self._closed
        return self._context.state.switches.no_room

    def _state(self) -> EngineState:
        if self._closed is not None:
            raise self._refusal()
        return self._context.state

    def _info(self, queue: Queue) -> QueueInfo:
        return queue.info(dropped(self._context, queue))

    def _refusal(self) -> StoreClosed | StoreFailed:
        return self._refused_by(str(self._closed))


class HasState(Protocol):
    """An open store, or a part of one."""

    def _state(self) -> EngineState:
        """The state of the store. Raises StoreClosed once it is not open."""


def open_call(
    method: Callable[Concatenate[Opening, P], R],
) -> Callable[Concatenate[Opening, P], R]:
    """A method that is a whole call of a store, as long as that is open."""

    @call
    @wraps(method)
    def whole(store: Opening, /, *args: P.args, **kwargs: P.kwargs) -> R:
        store._state()
        return method(store, *args, **kwargs)

    return whole


_open_stores: Final[weakref.WeakSet[StoreLife]] = weakref.WeakSet()


def _abandon_in_child(parent: int) -> None:
    """A fork: the parent goes on with the store; its lock and files are not the child's."""
    for store in list(_open_stores):
        store.abandon(
            f"this store object belongs to process {parent}, from which this one was forked: "
            "use it there, or open the store here, too"
        )


after_fork(_abandon_in_child)
