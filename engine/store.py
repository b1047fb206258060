"""The store of the process that owns it. Its methods are those of the interface `quire.store`."""

from __future__ import annotations

import contextlib
import sys
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from quire.arguments import (
    Bytes,
    check_changes,
    check_durable,
    check_exist_ok,
    check_first,
    check_flag,
    check_gaps,
    check_keys,
    check_large,
    check_lease_id,
    check_lifetime,
    check_limit,
    check_max_messages,
    check_name,
    check_names,
    check_owner,
    check_passed,
    check_queues,
    check_ranges,
    check_replace,
    check_seconds,
    check_state_key,
    check_state_name,
    check_switch,
    check_transaction_id,
    check_type,
    check_xid,
    split_source,
)
from quire.callbacks import check_callback
from quire.engine.checkpoints.checkpoint import Checkpointer
from quire.engine.checkpoints.kept_back import KeptBack
from quire.engine.checkpoints.opened import (
    Opened,
    errors_of_path,
    not_opened,
    open_files,
    prepare_directory,
)
from quire.engine.commits.adoptions import Adoptions
from quire.engine.commits.committer import Committer
from quire.engine.commits.definitions import Definitions
from quire.engine.commits.handouts import Handouts
from quire.engine.commits.names import Names
from quire.engine.commits.overflow import Overflow
from quire.engine.commits.sequencer import Sequencer
from quire.engine.commits.state_drop import drop_state
from quire.engine.commits.two_phase import TwoPhase
from quire.engine.commits.volatile import Volatile
from quire.engine.pages.data_files import file_for
from quire.engine.queues.queue import Queue
from quire.engine.queues.state import State
from quire.engine.reading.delivery import Delivery
from quire.engine.reading.finding import place_of, position_at
from quire.engine.reading.lease import Leases
from quire.engine.records.catalog import STATE, TYPES
from quire.engine.records.durable_state import SubscriptionForm
from quire.engine.transactions.context import Context
from quire.engine.transactions.registry import Registry
from quire.engine.transactions.transaction import EmbeddedTransaction
from quire.engine.upkeep.fragments import discard_unfinished
from quire.engine.upkeep.maintenance import Maintenance
from quire.engine.upkeep.purging import purge
from quire.engine.upkeep.redriving import put_back
from quire.engine.upkeep.room import Room, dropped
from quire.engine.upkeep.schedules import Schedules
from quire.engine.upkeep.started import StartedTypes, look_for_orders
from quire.engine.upkeep.status import status
from quire.engine.upkeep.temporary import Temporary
from quire.engine.upkeep.verify import verify
from quire.env import Env, FileLock, OsEnv, after_fork
from quire.errors import (
    AlreadyCommitted,
    DiskFull,
    InvalidArgument,
    QueueFull,
    QuireError,
    StoreClosed,
    StoreFailed,
    TransactionNotFound,
)
from quire.info import (
    CatalogItem,
    Lease,
    PreparedInfo,
    QueueInfo,
    QueueRecord,
    Report,
    ScheduleInfo,
    SubscriptionInfo,
    TransactionInfo,
)
from quire.limits import DEFAULT_LEASE_SECONDS, IDLE_JOURNAL_BYTES
from quire.memory_env import MemoryEnv
from quire.message import Messages
from quire.message_id import PutId
from quire.payload_reader import Stream
from quire.properties import QueueChanges
from quire.redriving import Chosen, Redriven
from quire.schedules import ScheduleChanges, ScheduleOptions, check_schedule
from quire.single_calls import SingleCalls
from quire.starts import Start, Time, check_starts, check_time
from quire.store import Store
from quire.transaction import Payload
from quire.uninterrupted import (
    begin_short,
    call,
    end,
    inside,
    look,
    look_around,
    made,
    nested,
    waiting,
)
from quire.writebuffer import WriteBuffers

from .layout import IN_MEMORY, Layout
from .options import Options


class EmbeddedStore(SingleCalls):
    """An open store, owned by this process. Made by `quire.open`; thread-safe."""

    role = "owner"
    _closed: str | None = "the store was not opened"
    _refused_by: type[StoreClosed | StoreFailed] = StoreClosed

    def __init__(self, opened: Opened, *, background: bool) -> None:
        self.path = opened.layout.path
        self.store_id = opened.store_id
        self.recovered = opened.recovered
        self.commit_timeout = opened.options.commit_timeout  # seconds
        self._env = opened.ownership.env.machine
        self._lock = opened.ownership
        self._opened = opened
        self._context = context = _context(opened)
        self._kept_back = KeptBack(opened)
        self._checkpointer = Checkpointer(opened, context.sequencer, self._kept_back)
        opened.journal.admit = _admission(opened, context.sequencer, self._kept_back)
        opened.journal.before_unsynced = opened.places.hold
        opened.journal.after_sync = opened.places.settle
        context.sequencer.relieve = self._checkpointer.run
        self._leases = Leases(opened.env, opened.places, opened.journal)
        self._definitions = Definitions(
            opened.env, opened.state, context.committer, opened.journal.max_group_bytes
        )
        self._definitions.in_memory = isinstance(self._env, MemoryEnv)
        self._temporary = Temporary(opened.env, opened.state, self._definitions)
        self._schedules = Schedules(context, self._definitions)
        self._maintenance = Maintenance(
            context,
            self._checkpointer,
            self._leases,
            self._temporary,
            self._schedules,
            opened.check_place,
        )
        context.committer.after_commit = self._maintenance.after_commit
        context.overflow.after_discard = self._maintenance.after_discard
        context.delivery.after_reject = self._maintenance.after_reject
        self._committer = context.committer
        self._by_name = opened.state.names
        self._light_put_bytes = context.committer.inline_limit - 1024
        self._names = Names(opened.state, self._definitions.submit)
        context.room = Room(context, self._definitions, self._maintenance.retention)
        self._types = StartedTypes()
        self._types.start(opened.state.queues.values())
        look_for_orders(opened.state.queues.values())
        _open_stores.add(self)
        discard_unfinished(context)
        if background:
            opened.places.parallel = True
            self._maintenance.start()
        else:
            opened.places.discarded.remove_all()
        if not opened.journal.keep_back():  # a full disk: an opening takes some of it
            with contextlib.suppress(DiskFull):
                self._checkpointer.run()
        with contextlib.suppress(DiskFull):  # nothing is admitted then before there is room
            opened.journal.admit()
        self._closed = None

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

        No path (None): a store in memory, of volatile queues only. `background=False` starts no
        thread: checkpoints and time-outs happen within commits.
        `owner` describes this process to others that find the store taken. Raises StoreLocked,
        StoreNotFound, StoreCorrupt, StoreFailed, StoreVersion, DiskFull, InvalidArgument.
        """
        if path is None:
            env, path = MemoryEnv(), IN_MEMORY
        env = env if env is not None else OsEnv()
        layout = Layout(path)
        checked = Options.of(options)
        given = set(options)
        return made(
            lambda: cls._open(env, layout, checked, given, create, background, owner), cls.close
        )

    @classmethod
    def _open(
        cls,
        env: Env,
        layout: Layout,
        checked: Options,
        given: set[str],
        create: bool,
        background: bool,
        owner: str,
    ) -> Self:
        """What an interrupt leaves is let go of; it ends the recovery at once."""
        look_around()
        lock = layout_lock(env, layout, create, owner)
        opened: Opened | None = None
        try:
            opened = waiting(open_files, env, layout, lock, checked, given, create)
            return cls(opened, background=background)
        except BaseException as error:
            if opened is not None:
                opened.close()
                opened.ownership.let_go()
            lock.release()
            if isinstance(error, OSError) and not isinstance(error, QuireError):
                raise not_opened(layout, error) from error
            raise

    @call
    def close(self) -> None:
        """Roll back what is open, make a checkpoint, let go of the store; twice is once.

        What is prepared stays so. Raises StoreFailed if the disk does not do its part, or
        StoreCorrupt: the store is let go of all the same, and the next opening recovers it.
        """
        if self._closed is not None:
            return
        self._closed = "the store was closed: open it again"
        self._let_go()

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
            self._let_go()

    def _let_go(self) -> None:
        with contextlib.ExitStack() as steps:  # from the last to the first, whatever one raises
            for step in (
                self._lock.release,
                self._let_go_of_files,
                self._save,
                self._stop_types,
                self._end_temporary,
                self._end_transactions,
                self._look_at_place,
                self._maintenance.stop,
            ):
                steps.callback(self._close_by, step)

    def _close_by(self, step: Callable[[], None]) -> None:
        """Take a step of closing; without room it can be left out, as the journal holds all."""
        with contextlib.suppress(DiskFull), self._context.sequencer.fail_stop("closing the store"):
            step()

    def _look_at_place(self) -> None:
        """Who does not own the store any more closes it without a change (OD4)."""
        if not self.failed:
            self._opened.check_place()

    def _stop_types(self) -> None:
        nested(self._types.stop_all)  # it is the program's code

    def _end_transactions(self) -> None:
        context = self._context
        context.registry.reap()
        for transaction in context.registry:
            transaction.close(str(self._closed), self._refused_by)
        context.state.prepared.abandon(str(self._closed))
        for queue in list(context.state.queues.values()):
            with queue.lock:
                queue.wake_all()

    def _end_temporary(self) -> None:
        """Those of clients that live on wait for the next owner (TS2)."""
        if not self.failed:
            self._temporary.let_go(self._temporary)
            self._temporary.end()

    def _save(self) -> None:
        opened = self._opened
        if self.failed:
            return
        self._context.sequencer.sync()
        if opened.journal.bytes_since(self._checkpointer.last_lsn) > IDLE_JOURNAL_BYTES:
            with contextlib.suppress(DiskFull):
                self._checkpointer.run()
        opened.places.sweep()

    def _let_go_of_files(self) -> None:
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
        """Whether a write or sync has failed: reads go on, commits are refused (promise 11)."""
        if self._refused_by is StoreFailed:  # it was let go of
            return True
        opened = self._opened
        failure = self._context.sequencer.failure
        return opened.journal.failed or opened.places.data.failed or failure is not None

    # Queues

    @call
    def create_queues(self, queues: Iterable[str | Mapping[str, Any]]) -> list[QueueInfo]:
        """Make many queues with one commit: all of them, or none.

        Each is a name, or a mapping of what `create_queue` takes: `{"name": "orders", "kind":
        "work"}`. Raises QueueExists, InvalidArgument, also where they do not fit one journal
        record (some 200 bytes each).
        """
        state = self._state()
        files = len(self._opened.places.managers)
        given = check_queues(queues, files)
        for index, queue in enumerate(given):
            if queue.data_file is None:
                given[index] = queue._replace(data_file=file_for(queue.name, files))
        if given:
            self._definitions.create(given)
            nested(self._types.start, [state.queue(queue.name) for queue in given])
        return [self._info(state.queue(queue.name)) for queue in given]

    @call
    def alter_queue(self, name: str, **changes: Unpack[QueueChanges]) -> QueueInfo:
        """Change limits and properties of a queue, online and durably."""
        self._state().queue(name)
        queue = self._definitions.alter(name, check_changes(changes))
        if "order" in changes or "priority" in changes:
            look_for_orders([queue])
        return self._info(queue)

    @call
    def rename_queue(self, old: str, new: str) -> QueueInfo:
        """Give a queue another name, online and durably. Raises QueueNotFound, QueueExists."""
        self._state()
        check_name(new, "queue")
        return self._info(self._names.rename(check_name(old, "queue"), new))

    @call
    def purge(self, queue: str, subscription: str | None = None) -> int:
        """Remove all that waits and that nobody holds; how many messages."""
        found = self._state().queue(queue)
        if subscription is None:
            return nested(purge, self._context, self._definitions, found, None)
        reader = found.subscription(check_name(subscription, "subscription"))
        return nested(purge, self._context, self._definitions, found, reader)

    @call
    def put_back(
        self,
        source: str,
        start: int,
        end: int,
        most: int,
        chosen: Chosen | None,
        to: str | None,
    ) -> Redriven:
        """A step of a redrive, in one commit (see `quire.redriving`)."""
        self._state()
        return nested(put_back, self._context, source, start, end, most, chosen, to)

    @call
    def create_alias(self, name: str, queue: str, replace: bool = False) -> None:
        """Give a queue one more name, durably. Raises QueueNotFound, QueueExists."""
        self._state()
        check_name(name, "alias")
        self._names.create_alias(name, check_name(queue, "queue"), check_replace(replace))

    @call
    def drop_alias(self, name: str) -> None:
        """Take an alias away, durably. Raises QueueNotFound, QueueInUse."""
        self._state()
        self._names.drop_alias(check_name(name, "alias"))

    @call
    def aliases(self) -> dict[str, str]:
        """All aliases, by name, each with the name of its queue."""
        self._state()
        return self._names.aliases()

    @call
    def switch(self, puts: bool | None = None, gets: bool | None = None) -> dict[str, bool]:
        """Stop or let in puts and gets of the store as a whole; how it is then."""
        self._state()
        given = {"puts": check_switch("puts", puts), "gets": check_switch("gets", gets)}
        changes = {name: value for name, value in given.items() if value is not None}
        if not changes:
            return dict(self._context.state.switches._asdict())
        return dict(self._definitions.switch(changes))

    @call
    def create_schedule(
        self,
        name: str,
        queue: str,
        cron: str,
        payload: Bytes = b"",
        exist_ok: bool = False,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleInfo:
        """Put a message whenever a cron text says."""
        self._state()
        check_name(name, "schedule")
        given = check_schedule({"queue": queue, "cron": cron, "payload": payload, **options})
        info = self._schedules.create(name, given, check_exist_ok(exist_ok))
        self._maintenance.soon()
        return info

    @call
    def alter_schedule(self, name: str, **changes: Unpack[ScheduleChanges]) -> ScheduleInfo:
        """Change what a schedule does, or pause it."""
        self._state()
        given = check_schedule(changes)
        info = self._schedules.alter(check_name(name, "schedule"), given)
        self._maintenance.soon()
        return info

    @call
    def drop_schedule(self, name: str) -> None:
        """Remove a schedule. Raises ScheduleNotFound."""
        self._state()
        self._schedules.drop(check_name(name, "schedule"))

    @call
    def schedules(self) -> list[ScheduleInfo]:
        """All schedules, by name."""
        self._state()
        return self._schedules.infos()

    @call
    def drop_queue(self, name: str) -> None:
        """Remove a queue with all its messages and subscriptions.

        Raises QueueNotFound, QueueInUse while transactions are open or prepared in it, StoreCorrupt
        if it cannot be told what it holds.
        """
        self._state()
        queue_id = self._definitions.drop(name)
        self._context.write_buffers.forget(queue_id)
        nested(self._types.stop, queue_id)

    @call
    def catalog(self, type: str | None = None) -> list[CatalogItem]:
        """What is defined in the store, by type and number: queues, subscriptions, aliases.

        `type`: these only; "state", the values that transactions set, is told only where it is
        asked for. Raises InvalidArgument.
        """
        state = self._state()
        if check_type(type) is not None and type not in TYPES:
            raise InvalidArgument(f"type {type!r}: give one of {', '.join(TYPES)}, or None")
        return [
            CatalogItem(name, key, entry.version, dict(entry.body))
            for name in (_LISTED if type is None else [type])
            for described in (state.durable, state.temporary)
            for key, entry in sorted(described.catalog[name].items())
        ]

    @call
    def queues(self, names: Iterable[str] | None = None) -> list[QueueInfo]:
        """All queues, by name; or those of the names, in their order. Raises QueueNotFound."""
        state = self._state()
        if names is None:
            return [self._info(queue) for queue in state.by_name()]
        return [self._info(queue) for queue in [state.queue(n) for n in check_names(names)]]

    @call
    def positions(self, name: str) -> tuple[int, int]:
        """(the first position that is kept, the position the next message gets)."""
        queue = self._state().queue(name)
        with queue.lock:
            return queue.released.first_gap(0), queue.end_position

    @call
    def positions_many(self, names: Iterable[str]) -> dict[str, tuple[int, int]]:
        """The same of many queues, as they are between two groups: at one point of the order."""
        state = self._state()
        given = check_names(names)
        found: dict[str, tuple[int, int]] = {}

        def look() -> None:
            for name in given:
                queue = state.queue(name)
                with queue.lock:
                    found[name] = queue.released.first_gap(0), queue.end_position

        self._context.sequencer.exclusive(look)
        return found

    @call
    def records(self, name: str, start: int = 0, limit: int = 10_000) -> list[QueueRecord]:
        """The queue's records since the last checkpoint, in queue order (paragraphs 0047-0053).

        OPEN, MESSAGES, INDIRECT, COMMIT and ROLLBACK, with those of open transactions. What a
        checkpoint has sealed is committed and in order; `quire dump` lists it too. `limit` of them,
        after the first `start`; a checkpoint in between takes the oldest away.
        """
        return self._state().queue(name).listing(check_passed(start), check_limit(limit))

    @call
    def position_at(self, name: str, time: Time) -> int:
        """The first position that is kept whose message was committed then or later."""
        queue, time_us = self._state().queue(name), check_time(time)
        return position_at(self._context.delivery, queue, time_us)

    # Subscriptions

    def subscribe_many(
        self,
        subscription: str | None,
        starts: Mapping[str, Start],
        exclusive: bool = False,
        durable: bool = True,
    ) -> list[SubscriptionInfo]:
        """Make subscriptions of one name, or of several, with one commit: all, or none.

        Where one is there already it stays as it is.
        """
        return self.subscribe_for(self._temporary, subscription, starts, exclusive, durable)

    @call
    def subscribe_for(
        self,
        holder: object,
        subscription: str | None,
        starts: Mapping[str, Start],
        exclusive: bool,
        durable: bool,
    ) -> list[SubscriptionInfo]:
        """The same for a client: those that are not durable end no sooner than it (`let_go_of`)."""
        form = SubscriptionForm(check_flag("exclusive", exclusive), check_flag("durable", durable))
        if form.durable:
            return self._subscribe(subscription, starts, form)
        with self._temporary.changing:
            found = self._subscribe(subscription, starts, form)
            self._temporary.hold(holder, [(info.queue, info.name) for info in found])
        return found

    @call
    def claim_for(self, holder: object, names: Iterable[tuple[str, str]]) -> None:
        """A client has such subscriptions, queue and name, from the owner before (TS2)."""
        self._state()
        with self._temporary.changing:
            self._temporary.hold(holder, names)

    def claim(self, names: Iterable[tuple[str, str]]) -> None:
        """The same for the process that owns the store now."""
        self.claim_for(self._temporary, names)

    @call
    def let_go_of(self, holder: object) -> None:
        """A client is gone. It takes no time."""
        self._temporary.let_go(holder)
        self._maintenance.soon()

    def _subscribe(
        self, subscription: str | None, starts: Mapping[str, Start], form: SubscriptionForm
    ) -> list[SubscriptionInfo]:
        checked = check_starts(subscription, starts)
        state = self._state()
        for (name, own), start in checked.items():
            queue = state.queue(name)
            if start not in ("earliest", "latest") and own not in queue.named:
                checked[name, own] = place_of(self._context.delivery, queue, start)
        self._definitions.subscribe(checked, form)
        targets = [(state.queue(name), own) for name, own in checked]
        return [target.subscription_info(target.subscription(own)) for target, own in targets]

    @call
    def unsubscribe(self, queue: str, subscription: str) -> None:
        """Remove a subscription; what only it had not read goes.

        Raises SubscriptionNotFound, QueueInUse while a prepared transaction has got messages of it.
        """
        self._state()
        check_name(subscription, "subscription")
        self._definitions.unsubscribe(queue, subscription)

    @call
    def subscriptions(self, queue: str) -> list[SubscriptionInfo]:
        """The subscriptions of a topic, by name; of a work queue the built-in one, named ""."""
        found = self._state().queue(queue)
        return [found.subscription_info(s) for s in sorted(found.readers(), key=lambda s: s.name)]

    # Transactions and messages

    def transaction(
        self,
        timeout: float | None = None,
        large: bool = False,
        owner: str | None = None,
        durable: bool = True,
    ) -> EmbeddedTransaction:
        """A new transaction, for use in a with block.

        `timeout`: seconds after which it is rolled back if it is still open. `large`: its messages
        go to files as they arrive, `large_flush_bytes` at a time; less than that goes where that of
        other transactions goes. `owner`: who it is for, as `transactions` shows it; by default the
        calling thread. `durable`: whether its commit returns when it is, or before.
        """
        if self._closed is not None:
            raise self._refusal()
        if timeout is not None or large is not False or owner is not None or durable is not True:
            check_lifetime(timeout)
            check_large(large)
            check_owner(owner)
            check_durable(durable)
        return EmbeddedTransaction(self._context, timeout, large, owner, durable)

    @call
    def sync(self) -> None:
        """Wait until all that was committed before is durable. Raises StoreFailed."""
        self._state()
        self._context.sequencer.sync()

    @call
    def transactions(self) -> list[TransactionInfo]:
        """All open transactions, the oldest first."""
        self._state()
        return self._context.registry.infos()

    @call
    def transaction_info(self, transaction_id: int) -> TransactionInfo:
        """One open transaction. Raises TransactionNotFound if it is not open (any more)."""
        self._state()
        info = self._context.registry.info(check_transaction_id(transaction_id))
        if info is None:
            raise _not_open(transaction_id)
        return info

    @call
    def abort(self, transaction_id: int) -> None:
        """Roll back an open transaction, whosever it is; its owner gets TransactionAborted.

        Waits for a call that is using it right now. Raises TransactionNotFound if it is not open.
        """
        self._state()
        if not self._context.registry.abort(check_transaction_id(transaction_id)):
            raise _not_open(transaction_id)

    @call
    def recover(self) -> list[PreparedInfo]:
        """The prepared transactions that wait for a decision, the oldest first."""
        return self._state().prepared.info(self._env.now_us())

    @call
    def commit_prepared(self, xid: str) -> None:
        """Commit a prepared transaction (see `Transaction.prepare`), by whomever it was prepared.

        Raises TransactionNotFound: it was decided already, or there was none. A queue that is full
        does not matter; DiskFull and StoreFailed leave it prepared, or decided (see `recover`), and
        StoreCorrupt, where what it has got cannot be released for damage, leaves it prepared.
        """
        self._state()
        self._context.two_phase.decide(check_xid(xid), commit=True)

    @call
    def rollback_prepared(self, xid: str) -> None:
        """Roll a prepared transaction back. Raises as `commit_prepared`."""
        self._state()
        self._context.two_phase.decide(check_xid(xid), commit=False)

    def put(
        self,
        queue: str,
        payload: Payload,
        *,
        durable: bool = True,
        **fields: Any,
    ) -> int:
        """Put one message in a transaction of its own; its id. Durable on return."""
        if self._closed is not None:
            raise self._refusal()
        if durable is not True:
            check_durable(durable)
        if not fields and type(payload) is bytes and len(payload) <= self._light_put_bytes:
            target = self._by_name.get(queue) if type(queue) is str else None
            thread = begin_short()
            try:
                if target is None:
                    target = self._context.state.queue(queue)
                if not target.limits_expiry:
                    return self._committer.put(target, payload, durable)
            except QueueFull as full:
                if not full.has_remedy:
                    raise
            finally:
                del inside[thread]
                end(thread)
        while True:
            try:
                with self.transaction(durable=durable) as transaction:
                    message_id = transaction.put(queue, payload, **fields)
                return PutId.of(int(message_id), message_id.expires_by)
            except AlreadyCommitted:  # another one was put with the request id, and is known now
                continue

    def put_now(self, queue: str, payload: bytes) -> int:
        """The same of a message alone, by a thread that must not wait for room."""
        target = self._state().queue(queue)
        if len(payload) <= self._light_put_bytes and not target.limits_expiry:
            thread = begin_short()
            try:
                return self._committer.put(target, payload)
            finally:
                del inside[thread]
                end(thread)
        with self.transaction() as transaction:
            message_id = transaction.put(queue, payload, timeout=0.0)
            transaction.commit(0.0)
        return PutId.of(int(message_id), message_id.expires_by)

    def together(self, actions: Iterable[Callable[[], None]]) -> None:
        """Do the actions, each with a commit of its own, so that these share writes and syncs.

        An action is begun while those before it are not done; none may raise, or wait for another.
        """
        if self._context.state.strategy.locks_queues:
            for action in actions:
                action()
        else:
            self._context.sequencer.together(actions)

    @look
    def browse(self, source: str, start: int | None = None, max_messages: int = 1000) -> Messages:
        """Look at committed messages without taking them.

        `source`: a queue (all its messages that are kept), or "queue/subscription" (those it has
        not read). `start`: the position to begin at; by default the first.
        """
        state = self._state()
        check_max_messages(max_messages)
        name, subscription = split_source(source)
        first = check_first(start) or 0
        queue = state.queue(name)
        hidden = None if subscription is None else queue.subscription(subscription)
        found = self._context.delivery.browse(queue, hidden, first, max_messages)
        return Messages(name, found, queue.schema)

    @call
    def chunk(self, stream: Stream, number: int) -> Bytes:
        """Part of a streamed message's payload, for a client. Raises PositionLost, StoreCorrupt."""
        self._state()
        return self._context.reader.chunk(stream, number)

    @call
    def scheduled(self, source: str, max_messages: int = 1000) -> Messages:
        """Look at messages that are not due yet, in the order in which they will be."""
        check_max_messages(max_messages)
        queue, subscription = self._state().source(source)
        found = self._context.delivery.scheduled(queue, subscription, max_messages)
        return Messages(queue.name, found, queue.schema)

    @call
    def when_ready(self, source: str, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` once something can be got from the source; what withdraws it."""
        callback = check_callback(callback)
        state = self._state()
        self._context.registry.reap()  # what it gives back may be next
        queue, subscription = state.source(source)
        withdraw = queue.when_ready(subscription, callback)
        if withdraw is not None and self._closed is None:
            return withdraw
        if withdraw is not None:  # the close may have missed it
            withdraw()
        callback()
        return _nothing

    @call
    def ledger_many(self, keys: Iterable[str]) -> dict[str, int]:
        """The same of many keys, in one call; without those for which there is none."""
        ledger = self._state().ledger
        return {key: ledger[key] for key in check_keys(keys) if key in ledger}

    @call
    def get_state(self, name: str, key: str) -> bytes | None:
        """A value of a state, as it is committed; None: there is none."""
        return self._state().values.value(check_state_name(name), check_state_key(key))

    @call
    def state_items(self, name: str) -> dict[str, bytes]:
        """All values of a state, by key in their order, as they are between two commits."""
        return self._state().values.items(check_state_name(name))

    @call
    def state_names(self) -> list[str]:
        """The names of all states that have a value, in their order."""
        return self._state().values.names()

    @call
    def drop_state(self, name: str) -> int:
        """Delete all values of a state; how many they were."""
        state, context = self._state(), self._context
        most_bytes = context.journal.max_group_bytes // 2
        dropped = drop_state(state, context.sequencer, check_state_name(name), most_bytes)
        context.committer.after_commit()
        return dropped

    # Leases

    @call
    def lease_many(
        self,
        ranges: Iterable[tuple[str, int, int]],
        seconds: float = DEFAULT_LEASE_SECONDS,
        gaps: bool = False,
    ) -> list[Lease]:
        """Pin many ranges as one lease, each (queue, start, end): all of them, or none."""
        state = self._state()
        self._context.sequencer.sync()  # who reads the files may note durably what was there
        found = [(state.queue(queue), start, end) for queue, start, end in check_ranges(ranges)]
        return self._leases.take(found, check_seconds(seconds), check_gaps(gaps))

    @call
    def renew(self, lease_id: int, seconds: float = DEFAULT_LEASE_SECONDS) -> None:
        """Let a lease last so many seconds from now. Raises PositionLost if it has ended."""
        self._state()
        self._leases.renew(check_lease_id(lease_id), check_seconds(seconds))

    @call
    def release(self, lease_id: int) -> None:
        """End a lease."""
        self._state()
        self._leases.release(check_lease_id(lease_id))

    # Care

    @call
    def checkpoint(self) -> None:
        """Make a checkpoint now: recovery will begin here, the journal's space is given back."""
        self._state()
        if self.failed:
            raise StoreFailed("the store has failed: close it and open it again to recover")
        self._checkpointer.run()

    @call
    def status(self) -> dict[str, Any]:
        """Numbers on everything, as plain values."""
        self._state()
        return status(
            self._context,
            self._checkpointer,
            self._maintenance,
            self._leases,
            self._kept_back,
            self._schedules,
            self.recovered.cut,
        )

    @look
    def verify(self, *, contents: bool = False) -> Report:
        """Read and check all that the store holds; commits go on meanwhile."""
        check_flag("contents", contents)
        self._state()
        return verify(self._opened, self._context, self._checkpointer, contents=contents)

    # Inside

    def _state(self) -> State:
        if self._closed is not None:
            raise self._refusal()
        return self._context.state

    def _info(self, queue: Queue) -> QueueInfo:
        return queue.info(dropped(self._context, queue))

    def _refusal(self) -> StoreClosed | StoreFailed:
        return self._refused_by(str(self._closed))


def _nothing() -> None:
    """To withdraw."""


def _context(opened: Opened) -> Context:
    """What the transactions of the store use."""
    env, options, state, places = opened.env, opened.options, opened.state, opened.places
    directory = opened.layout.ltds
    sequencer = Sequencer(opened.journal, opened.recovered.number)
    adoptions = Adoptions(env, directory, opened.store_id, places)
    committer = Committer(
        state,
        opened.reader,
        places,
        opened.journal,
        sequencer,
        adoptions,
        Volatile(env, state, places.memory),
        options.inline_limit(opened.journal.max_group_bytes),
    )
    buffers = WriteBuffers(
        options.write_buffer_bytes,
        options.write_buffer_messages,
        per_queue=options.write_buffer == "per-queue",
    )
    return Context(
        env=env,
        options=options,
        store_id=opened.store_id,
        ltds_directory=directory,
        journal=opened.journal,
        state=state,
        places=places,
        reader=opened.reader,
        sequencer=sequencer,
        overflow=Overflow(places, sequencer),
        write_buffers=buffers,
        adoptions=adoptions,
        committer=committer,
        delivery=Delivery(env, opened.reader, Handouts(state, committer).note),
        two_phase=TwoPhase(state, committer),
        registry=Registry(),
        transaction_timeout=options.transaction_timeout,
        light_bytes=min(
            buffers.light_bytes, options.large_limit_bytes, committer.inline_limit // 2
        ),
        light_messages=min(buffers.light_messages, options.large_limit_messages),
    )


def _admission(opened: Opened, sequencer: Sequencer, kept_back: KeptBack) -> Callable[[], int]:
    """What the journal asks before it grows (J9); it does not hold on to the store."""

    def admit() -> int:
        with sequencer.fail_stop("keeping space back"):
            opened.check_place()
            try:
                return kept_back.admit()
            except DiskFull:
                if not opened.journal.drop_spares():
                    raise
            return kept_back.admit()

    return admit


_LISTED: Final = [name for name in TYPES if name != STATE]

_open_stores: Final[weakref.WeakSet[EmbeddedStore]] = weakref.WeakSet()


def _abandon_in_child(parent: int) -> None:
    """A fork: the parent goes on with the store; its lock and files are not the child's."""
    for store in list(_open_stores):
        store.abandon(
            f"this store object belongs to process {parent}, from which this one was forked: "
            "use it there, or open the store here, too"
        )


after_fork(_abandon_in_child)


def _not_open(transaction_id: int) -> TransactionNotFound:
    return TransactionNotFound(
        f"there is no open transaction {transaction_id}: transactions() lists them, recover() "
        "those that are prepared"
    )


def layout_lock(env: Env, layout: Layout, create: bool, owner: str) -> FileLock:
    """Lock the store for this process. Raises what `Store.open` raises."""
    with errors_of_path(layout):
        prepare_directory(env, layout, create)
        return env.lock(layout.lock, owner or "a process using quire.open")


if TYPE_CHECKING:
    _embedded: type[Store] = EmbeddedStore
