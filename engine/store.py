"""The store of the process that owns it. Its methods are those of the interface `quire.store`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Unpack

from quire.arguments import (
    Bytes,
    check_changes,
    check_first,
    check_flag,
    check_keys,
    check_lease_id,
    check_limit,
    check_max_messages,
    check_name,
    check_names,
    check_passed,
    check_queues,
    check_ranges,
    check_seconds,
    check_state_key,
    check_state_name,
    check_switch,
    check_transaction,
    check_transaction_id,
    check_type,
    check_xid,
    split_source,
)
from quire.callbacks import check_callback
from quire.documented import documented_by
from quire.engine.pages.data_files import file_for
from quire.engine.queues.queue import Queue
from quire.engine.reading.finding import position_at
from quire.engine.records.catalog import STATE, TYPES
from quire.engine.records.durable_state import SubscriptionForm
from quire.engine.transactions.transaction import EmbeddedTransaction
from quire.engine.upkeep.purging import purge
from quire.engine.upkeep.redriving import put_back
from quire.engine.upkeep.room import dropped
from quire.engine.upkeep.started import look_for_orders
from quire.engine.upkeep.status import status
from quire.engine.upkeep.verify import verify
from quire.errors import (
    AlreadyCommitted,
    InvalidArgument,
    QueueFull,
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
from quire.limits import DEFAULT_LEASE_SECONDS
from quire.message import Messages
from quire.message_id import PutId
from quire.payload_reader import Stream
from quire.properties import QueueChanges
from quire.put_options import PutOptions
from quire.redriving import Chosen, Redriven
from quire.schedules import ScheduleChanges, ScheduleOptions, check_schedule
from quire.single_calls import SingleCalls
from quire.starts import Start, Time, check_time
from quire.store import Store
from quire.transaction import Payload
from quire.uninterrupted import as_call, begin_short, call, end, inside, look, nested

from .opening import StoreLife, open_call


@documented_by(Store)
class EmbeddedStore(StoreLife, SingleCalls):
    """An open store, owned by this process. Made by `quire.open`; thread-safe."""

    # Queues

    @open_call
    def create_queues(self, queues: Iterable[str | Mapping[str, Any]]) -> list[QueueInfo]:
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

    @open_call
    def alter_queue(self, name: str, **changes: Unpack[QueueChanges]) -> QueueInfo:
        self._state().queue(name)
        queue = self._definitions.alter(name, check_changes(changes))
        if "order" in changes or "priority" in changes:
            look_for_orders([queue])
        return self._info(queue)

    @open_call
    def rename_queue(self, old: str, new: str) -> QueueInfo:
        check_name(new, "queue")
        return self._info(self._definitions.rename(check_name(old, "queue"), new))

    @open_call
    def purge(self, queue: str, subscription: str | None = None) -> int:
        found = self._state().queue(queue)
        if subscription is None:
            return nested(purge, self._context, self._definitions, found, None)
        reader = found.subscription(check_name(subscription, "subscription"))
        return nested(purge, self._context, self._definitions, found, reader)

    @open_call
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
        return nested(put_back, self._context, source, start, end, most, chosen, to)

    @open_call
    def create_alias(self, name: str, queue: str, replace: bool = False) -> None:
        check_name(name, "alias")
        self._definitions.create_alias(
            name, check_name(queue, "queue"), check_flag("replace", replace)
        )

    @open_call
    def drop_alias(self, name: str) -> None:
        self._definitions.drop_alias(check_name(name, "alias"))

    @open_call
    def aliases(self) -> dict[str, str]:
        return self._definitions.aliases()

    @open_call
    def switch(self, puts: bool | None = None, gets: bool | None = None) -> dict[str, bool]:
        given = {"puts": check_switch("puts", puts), "gets": check_switch("gets", gets)}
        changes = {name: value for name, value in given.items() if value is not None}
        if not changes:
            return dict(self._context.state.switches._asdict())
        return dict(self._definitions.switch(changes))

    @open_call
    def create_schedule(
        self,
        name: str,
        queue: str,
        cron: str,
        payload: Bytes = b"",
        exist_ok: bool = False,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleInfo:
        check_name(name, "schedule")
        given = check_schedule({"queue": queue, "cron": cron, "payload": payload, **options})
        info = self._schedules.create(name, given, check_flag("exist_ok", exist_ok))
        self._maintenance.soon()
        return info

    @open_call
    def alter_schedule(self, name: str, **changes: Unpack[ScheduleChanges]) -> ScheduleInfo:
        given = check_schedule(changes)
        info = self._schedules.alter(check_name(name, "schedule"), given)
        self._maintenance.soon()
        return info

    @open_call
    def drop_schedule(self, name: str) -> None:
        self._schedules.drop(check_name(name, "schedule"))

    @open_call
    def schedules(self) -> list[ScheduleInfo]:
        return self._schedules.infos()

    @open_call
    def drop_queue(self, name: str) -> None:
        queue_id = self._definitions.drop(name)
        self._context.write_buffers.forget(queue_id)
        nested(self._types.stop, queue_id)

    @open_call
    def catalog(self, type: str | None = None) -> list[CatalogItem]:
        state = self._state()
        if check_type(type) is not None and type not in TYPES:
            raise InvalidArgument(f"type {type!r}: give one of {', '.join(TYPES)}, or None")
        return [
            CatalogItem(name, key, entry.version, dict(entry.body))
            for name in (_LISTED if type is None else [type])
            for described in (state.durable, state.temporary)
            for key, entry in sorted(described.catalog[name].items())
        ]

    @open_call
    def queues(self, names: Iterable[str] | None = None) -> list[QueueInfo]:
        state = self._state()
        if names is None:
            return [self._info(queue) for queue in state.by_name()]
        return [self._info(queue) for queue in [state.queue(n) for n in check_names(names)]]

    @open_call
    def positions(self, name: str) -> tuple[int, int]:
        queue = self._state().queue(name)
        with queue.lock:
            return queue.released.first_gap(0), queue.end_position

    @open_call
    def positions_many(self, names: Iterable[str]) -> dict[str, tuple[int, int]]:
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

    @open_call
    def records(self, name: str, start: int = 0, limit: int = 10_000) -> list[QueueRecord]:
        return self._state().queue(name).listing(check_passed(start), check_limit(limit))

    @open_call
    def position_at(self, name: str, time: Time) -> int:
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
        return self.subscribe_for(self._temporary, subscription, starts, exclusive, durable)

    @open_call
    def subscribe_for(
        self,
        holder: object,
        subscription: str | None,
        starts: Mapping[str, Start],
        exclusive: bool,
        durable: bool,
    ) -> list[SubscriptionInfo]:
        """Make some for a client: what is not durable ends no sooner than it (`let_go_of`)."""
        form = SubscriptionForm(check_flag("exclusive", exclusive), check_flag("durable", durable))
        return self._temporary.subscribe(holder, subscription, starts, form)

    @open_call
    def claim_for(self, holder: object, names: Iterable[tuple[str, str]]) -> None:
        """A client has such subscriptions, queue and name, from the owner before (TS2)."""
        self._temporary.claim(holder, names)

    def claim(self, names: Iterable[tuple[str, str]]) -> None:
        """The same for the process that owns the store now."""
        self.claim_for(self._temporary, names)

    @call
    def let_go_of(self, holder: object) -> None:
        """A client is gone. It takes no time."""
        self._temporary.let_go(holder)
        self._maintenance.soon()

    @open_call
    def unsubscribe(self, queue: str, subscription: str) -> None:
        check_name(subscription, "subscription")
        self._definitions.unsubscribe(queue, subscription)

    @open_call
    def subscriptions(self, queue: str) -> list[SubscriptionInfo]:
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
        if self._closed is not None:
            raise self._refusal()
        if timeout is not None or large is not False or owner is not None or durable is not True:
            timeout = check_transaction(timeout, large, owner, durable)
        return EmbeddedTransaction(self._context, timeout, large, owner, durable)

    @open_call
    def sync(self) -> None:
        self._context.sequencer.sync()

    @open_call
    def transactions(self) -> list[TransactionInfo]:
        return self._context.registry.infos()

    @open_call
    def transaction_info(self, transaction_id: int) -> TransactionInfo:
        info = self._context.registry.info(check_transaction_id(transaction_id))
        if info is None:
            raise _not_open(transaction_id)
        return info

    @open_call
    def abort(self, transaction_id: int) -> None:
        if not self._context.registry.abort(check_transaction_id(transaction_id)):
            raise _not_open(transaction_id)

    @open_call
    def recover(self) -> list[PreparedInfo]:
        return self._state().prepared.info(self._env.now_us())

    @open_call
    def commit_prepared(self, xid: str) -> None:
        self._committer.decide(check_xid(xid), commit=True)

    @open_call
    def rollback_prepared(self, xid: str) -> None:
        self._committer.decide(check_xid(xid), commit=False)

    def put(
        self,
        queue: str,
        payload: Payload,
        *,
        durable: bool = True,
        **options: Unpack[PutOptions],
    ) -> int:
        if self._closed is not None:
            raise self._refusal()
        if durable is not True:
            check_flag("durable", durable)
        if not options and type(payload) is bytes and len(payload) <= self._light_put_bytes:
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
                    message_id = transaction.put(queue, payload, **options)
                return PutId.of(int(message_id), message_id.expires_by)
            except AlreadyCommitted:  # another one was put with the request id, and is known now
                continue

    def put_now(self, queue: str, payload: bytes) -> int:
        """The same of a message alone, by a thread that must not wait for room."""
        target = self._state().queue(queue)
        if len(payload) <= self._light_put_bytes and not target.limits_expiry:
            return as_call(lambda: self._committer.put(target, payload))
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
        state = self._state()
        check_max_messages(max_messages)
        name, subscription = split_source(source)
        first = check_first(start) or 0
        queue = state.queue(name)
        hidden = None if subscription is None else queue.subscription(subscription)
        found = self._context.delivery.browse(queue, hidden, first, max_messages)
        return Messages(name, found, queue.schema)

    @open_call
    def chunk(self, stream: Stream, number: int) -> Bytes:
        """Part of a streamed message's payload, for a client. Raises PositionLost, StoreCorrupt."""
        return self._context.reader.chunk(stream, number)

    @open_call
    def scheduled(self, source: str, max_messages: int = 1000) -> Messages:
        check_max_messages(max_messages)
        queue, subscription = self._state().source(source)
        found = self._context.delivery.scheduled(queue, subscription, max_messages)
        return Messages(queue.name, found, queue.schema)

    @open_call
    def when_ready(self, source: str, callback: Callable[[], None]) -> Callable[[], None]:
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
        return lambda: None

    @open_call
    def ledger_many(self, keys: Iterable[str]) -> dict[str, int]:
        ledger = self._state().ledger
        return {key: ledger[key] for key in check_keys(keys) if key in ledger}

    @open_call
    def get_state(self, name: str, key: str) -> bytes | None:
        return self._state().values.value(check_state_name(name), check_state_key(key))

    @open_call
    def state_items(self, name: str) -> dict[str, bytes]:
        return self._state().values.items(check_state_name(name))

    @open_call
    def state_names(self) -> list[str]:
        return self._state().values.names()

    @open_call
    def drop_state(self, name: str) -> int:
        return self._definitions.drop_state(check_state_name(name))

    # Leases

    @open_call
    def lease_many(
        self,
        ranges: Iterable[tuple[str, int, int]],
        seconds: float = DEFAULT_LEASE_SECONDS,
        gaps: bool = False,
    ) -> list[Lease]:
        state = self._state()
        self._context.sequencer.sync()  # who reads the files may note durably what was there
        found = [(state.queue(queue), start, end) for queue, start, end in check_ranges(ranges)]
        return self._leases.take(found, check_seconds(seconds), check_flag("gaps", gaps))

    @open_call
    def renew(self, lease_id: int, seconds: float = DEFAULT_LEASE_SECONDS) -> None:
        self._leases.renew(check_lease_id(lease_id), check_seconds(seconds))

    @open_call
    def release(self, lease_id: int) -> None:
        self._leases.release(check_lease_id(lease_id))

    # Care

    @open_call
    def checkpoint(self) -> None:
        if self.failed:
            raise StoreFailed("the store has failed: close it and open it again to recover")
        self._checkpointer.run()

    @open_call
    def status(self) -> dict[str, Any]:
        return status(
            self._opened,
            self._context,
            self._checkpointer,
            self._maintenance,
            self._leases,
            self._schedules,
        )

    @look
    def verify(self, *, contents: bool = False) -> Report:
        check_flag("contents", contents)
        self._state()
        return verify(self._opened, self._context, self._checkpointer, contents=contents)

    def _info(self, queue: Queue) -> QueueInfo:
        return queue.info(dropped(self._context, queue))


_LISTED: Final = [name for name in TYPES if name != STATE]


def _not_open(transaction_id: int) -> TransactionNotFound:
    return TransactionNotFound(
        f"there is no open transaction {transaction_id}: transactions() lists them, recover() "
        "those that are prepared"
    )


if TYPE_CHECKING:
    _embedded: type[Store] = EmbeddedStore
