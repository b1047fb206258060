"""The store of the process that owns it. Its methods are those of the interface `Store`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from quire.arguments import (
    Bytes,
    check_changes,
    check_first,
    check_flag,
    check_held,
    check_max_messages,
    check_name,
    check_names,
    check_passed,
    check_source,
    check_transaction,
    check_xid,
)
from quire.batches import delivered_messages
from quire.callbacks import check_callback
from quire.calls.call_table import CallRow
from quire.calls.documented import documented_by
from quire.calls.signal_safety import allow_reentry, as_call, begin_short, call, end, inside, look
from quire.definitions.properties import QueueChanges
from quire.definitions.source_pattern import is_pattern
from quire.engine.inspection import status as status_numbers
from quire.engine.live_state import followed_source
from quire.engine.lookup import choice as choices
from quire.engine.reading import position_search
from quire.engine.transactions.transaction import EmbeddedTransaction
from quire.engine.upkeep import redriving as letters
from quire.errors import AlreadyCommitted, QueueFull
from quire.interface import lookup, redriving
from quire.interface.store import Store
from quire.interface.store_objects import StoreObject
from quire.interface.transaction import Payload
from quire.messages.message_id import PutId
from quire.messages.payload_reader import Stream
from quire.moments import Duration
from quire.reports.info import QueueInfo, SubscriptionInfo

from .composition import Parts
from .namespaces.handlers import CallHandlers
from .opening import StoreLife, open_call
from .upkeep.started_types import look_for_orders
from .upkeep.temporary import requested_form

if TYPE_CHECKING:
    from quire.batches.delivered_messages import Messages
    from quire.interface.integration import CallTarget
    from quire.interface.lookup import Seen, Where
    from quire.interface.redriving import Chosen, Redriven
    from quire.interface.starts import Start
    from quire.messages.put_options import PutOptions


@documented_by(Store)
class EmbeddedStore(StoreLife, StoreObject):
    """An open store, owned by this process. Made by `quire.open`; thread-safe."""

    def __init__(self, parts: Parts) -> None:
        self._handlers = CallHandlers(parts)
        super().__init__(parts)

    def check_usable(self) -> None:
        """Raises StoreClosed once it was closed."""
        if self._closed is not None and not self.failed:
            raise self._refusal()

    # What the subjects need

    def make(self, row: CallRow, arguments: Mapping[str, Any]) -> Any:
        """Carry out a subject's call, by its row."""
        self._state()
        handle = partial(self._handlers.handle, row, arguments)
        return look(handle)() if row.facts.long else as_call(handle)

    @open_call
    def decide(self, xid: str, *, commit: bool) -> None:
        """Commit a prepared transaction, or roll it back."""
        self._committer.decide(check_xid(xid), commit=commit)

    def make_subscriptions(
        self,
        subscription: str | None,
        starts: Mapping[str, Start],
        exclusive: bool | None,
        durable: bool | None,
        where: str | None,
    ) -> list[SubscriptionInfo]:
        """Make some for this process: what is not durable ends no sooner than the store object."""
        holder = self._temporary
        return self.subscribe_for(holder, subscription, starts, exclusive, durable, where)

    @open_call
    def await_source(self, source: str, callback: Callable[[], None]) -> Callable[[], None]:
        """See `Integration.when_ready`."""
        callback = check_callback(callback)
        withdraw: Callable[[], None] | None
        withdraw = self._handlers.of("integration").when_ready(source, callback)
        if withdraw is not None and self._closed is None:
            return withdraw
        if withdraw is not None:  # the close may have missed it
            withdraw()
        callback()
        return lambda: None

    @open_call
    def await_get(
        self, source: str, callback: Callable[[], None], taker: object
    ) -> Callable[[], None] | None:
        """Have it called once a get finds something, as `await_source` does; None: it may now.

        `taker`: `EmbeddedTransaction.own_taker`. Raises what a get from the source raises.
        """
        withdraw: Callable[[], None] | None
        withdraw = self._handlers.of("integration").when_ready(source, callback, taker)
        return withdraw

    @open_call
    def follow(self, source: str) -> object:
        """Return what a get that waits for the source goes on with when its queue is renamed.

        Raises what a get from the source raises.
        """
        if is_pattern(source):
            return source
        return followed_source.FollowedSource(*self._state().source(source))

    # Queues

    def own_name(self, name: str) -> str | None:
        """Return the name of the queue that is called so, by an alias too; None: there is none."""
        found = self._by_name.get(name)
        return None if found is None else found.name

    def has_verified_sender(self, name: str | None) -> bool:
        """Return True if the senders of the queue, or with None of any queue, are verified."""
        if name is None:
            return any(q.config.properties.verified_sender for q in list(self._by_name.values()))
        found = self._by_name.get(name)
        return found is not None and found.config.properties.verified_sender

    @open_call
    def alter_queue(self, name: str, **changes: Unpack[QueueChanges]) -> QueueInfo:
        self._state().queue(name)
        queue = self._definitions.alter(name, check_changes(changes))
        if "order" in changes:
            look_for_orders([queue])
        return self._info(queue)

    @open_call
    def put_back(
        self,
        source: str,
        start: int,
        end: int,
        most: int,
        chosen: Chosen | None,
        to: str | None,
        where: Where | None = None,
        is_moved: bool = False,
    ) -> Redriven:
        """A step of a redrive, in one commit (see `quire.interface.redriving`)."""
        check_source(source)
        check_passed(start)
        check_passed(end)
        check_max_messages(most)
        choice = redriving.check_chosen(chosen)
        if to is not None:
            check_name(to, "queue")
        check_flag("is_moved", is_moved)
        step = letters.LetterStep(source, start, end, most, choice, to, where, is_moved)
        return allow_reentry(letters.put_back, self._context, step)

    @open_call
    def drop_queue(self, name: str) -> None:
        queue_id = self._definitions.drop(name)
        self._context.write_buffers.forget(queue_id)
        allow_reentry(self._types.stop, queue_id)

    @open_call
    def queues(self, names: Iterable[str] | None = None) -> list[QueueInfo]:
        state = self._state()
        if names is None:
            return [self._info(queue) for queue in state.by_name()]
        return [self._info(queue) for queue in [state.queue(n) for n in check_names(names)]]

    # Subscriptions

    @open_call
    def subscribe_for(
        self,
        holder: object,
        subscription: str | None,
        starts: Mapping[str, Start],
        exclusive: bool | None,
        durable: bool | None,
        where: str | None = None,
    ) -> list[SubscriptionInfo]:
        """Make some for a client: what is not durable ends no sooner than it (`let_go_of`)."""
        form = requested_form(exclusive, durable, where)
        return self._temporary.subscribe(holder, subscription, starts, form)

    @open_call
    def claim_for(self, holder: object, names: Iterable[tuple[str, str]]) -> None:
        """A client has such subscriptions, queue and name, from the owner before (TS2)."""
        self._temporary.claim(holder, check_held(names))

    def claim(self, names: Iterable[tuple[str, str]]) -> None:
        """The process that owns the store has such subscriptions from the owner before."""
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
        timeout: Duration | None = None,
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
                if not target.asks_more:
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
        """Put a message alone, by a thread that must not wait for room."""
        target = self._state().queue(queue)
        if len(payload) <= self._light_put_bytes and not target.grants:
            return as_call(lambda: self._committer.put(target, payload))
        with self.transaction() as transaction:
            transaction.put_timeout = 0.0
            message_id = transaction.put(queue, payload)
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
    def browse(
        self,
        source: str,
        max_messages: int = 1000,
        *,
        start: int | None = None,
        after: Seen | None = None,
        where: Where | None = None,
    ) -> Messages:
        state = self._state()
        check_max_messages(max_messages)
        first, last_seen = check_first(start) or 0, lookup.check_seen(after)
        queue, hidden = state.browsed(source)
        if last_seen is not None:
            [(position, is_there)] = position_search.places_of(
                self._context.delivery, queue, [last_seen]
            )
            first = max(first, position + is_there)
        choice = choices.choice_of(queue, where)
        found = self._context.chooser.finder.browse(queue, hidden, choice, first, max_messages)
        looked_at = [part.looked_at() for part in found]
        return delivered_messages.Messages(queue.name, looked_at, queue.schema)

    @open_call
    def chunk(self, stream: Stream, number: int) -> Bytes:
        """Part of a streamed message's payload, for a client. Raises PositionLost, StoreCorrupt."""
        return self._context.reader.chunk(stream, number)

    # Care

    @open_call
    def status(self) -> dict[str, Any]:
        return status_numbers.status(self._opened, self._context, self._maintenance)


if TYPE_CHECKING:
    _target: type[CallTarget] = EmbeddedStore
