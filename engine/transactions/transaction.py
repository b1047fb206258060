"""What the user of a transaction puts and gets; `life` tells how it begins and ends."""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar, Unpack

from quire.arguments import (
    Bytes,
    check_delay,
    check_flag,
    check_key,
    check_max_messages,
    check_message_id,
    check_reason,
    check_request_id,
    check_request_ids,
    check_seconds,
    check_state_key,
    check_state_name,
    check_state_value,
    check_timeout,
    check_version,
    check_wait,
    count_of,
)
from quire.batches import delivered_messages
from quire.batches.delivered_slice import Delivered
from quire.calls.documented import documented_by
from quire.calls.uninterrupted import PUT_ROOM, call, giving, held, inside, look, probe, reentrant
from quire.definitions.retry import Retry
from quire.definitions.source_pattern import is_pattern
from quire.engine.finding import choice as choices
from quire.engine.finding.candidates import Candidate
from quire.engine.finding.chooser import Asking, Purpose
from quire.engine.finding.described import described
from quire.engine.queues.queue import Queue
from quire.engine.reading import position_search
from quire.engine.reading.block_messages import message_of
from quire.engine.reading.delivery import DeliveryRequest, DeliveryRuns
from quire.errors import Deadlock, InvalidArgument, QueueFull
from quire.interface import finding
from quire.interface import starts as start_places
from quire.interface.store_objects import TransactionCalls
from quire.interface.transaction import Payload, Transaction
from quire.libraries import pa
from quire.limits import MAX_PAYLOAD_BYTES, MESSAGE_OVERHEAD_BYTES
from quire.messages.encoded_values import encoded_value
from quire.messages.message import Message, check_message, check_messages
from quire.messages.message_fields import Fields, check_payload, with_moments
from quire.messages.message_id import MessageId, MessageIds
from quire.moments import Duration
from quire.reports.info import Description, TransactionState
from quire.rows import row_input

from . import streaming
from .gets import IN_WHOLE, Gets
from .integration import EmbeddedTransactionIntegration
from .life import TransactionLife
from .own_values import OwnValues
from .puts import Puts
from .waiting_for_room import put_patience

if TYPE_CHECKING:
    from quire.batches.delivered_messages import Messages
    from quire.engine.finding.choice import Choice
    from quire.interface.finding import MessageKey, Seen, Where
    from quire.interface.starts import Start
    from quire.messages.put_options import MessageOptions

    from .streaming import StreamPut

_MOST_CHARGE: Final = MAX_PAYLOAD_BYTES + MESSAGE_OVERHEAD_BYTES
_OPEN: Final = TransactionState.OPEN
P = ParamSpec("P")
R = TypeVar("R")


@documented_by(Transaction)
class EmbeddedTransaction(TransactionLife, TransactionCalls):
    """A transaction. Made by `store.transaction()`; may be used by one thread at a time."""

    __slots__ = ()
    _integration = EmbeddedTransactionIntegration

    # Writing

    def put(
        self,
        queue: str,
        payload: Payload,
        *,
        timeout: Duration | None = None,
        request_id: str | None = None,
        **options: Unpack[MessageOptions],
    ) -> MessageId:
        if type(payload) is not bytes:
            return self._put_other(queue, payload, timeout, request_id, options)
        charge = len(payload) + MESSAGE_OVERHEAD_BYTES
        if charge > _MOST_CHARGE:
            check_payload(payload)
        checked = None
        if timeout is not None:
            timeout = put_patience(self._context, queue, timeout)
        if options:
            checked = self._checked(options)
            if checked is not None:
                charge += checked.extra_bytes
        thread = get_ident()
        if thread in inside:
            raise reentrant()
        probe(None, PUT_ROOM)
        inside[thread] = None
        try:
            with self._lock:
                if self._state is not _OPEN:
                    self._check_open()
                puts = self._puts or self._begin_puts()
                try:
                    try:
                        if request_id is None:
                            return puts.one(queue, payload, checked, charge)
                        check_request_id(request_id)
                        put = partial(puts.one, queue, payload, checked, charge)
                        return puts.once(request_id, queue, put)
                    except QueueFull as full:
                        put = partial(puts.one, queue, payload, checked, charge)
                        again = partial(puts.once, request_id, queue, put)
                        return self._put_with_room(full, again, timeout)
                except BaseException:
                    if puts.lost:
                        self._lose()
                    raise
        finally:
            del inside[thread]

    def _put_other(
        self,
        queue: str,
        row: object,
        timeout: Duration | None,
        request_id: str | None,
        options: MessageOptions,
    ) -> MessageId:
        """A row of a typed queue, a value of one with a codec, or what is to be made bytes."""
        row, options = encoded_value(queue, self._context.state.codec_of(queue), row, options)
        if not row_input.is_row(row):
            payload = check_payload(row)
            return self.put(queue, payload, timeout=timeout, request_id=request_id, **options)
        seconds = None if timeout is None else put_patience(self._context, queue, timeout)
        known, checked = check_request_id(request_id), self._checked(options)
        return self.putting(
            lambda puts: puts.once(known, queue, partial(puts.row, queue, row, checked)), seconds
        )

    def put_moved(self, queue: str, content: object, fields: Mapping[str, Any]) -> MessageId:
        """Put a message that is there already once more: its header is taken as it is (OB1)."""
        checked = self._checked(fields, is_moved=True)
        if row_input.is_row(content):
            return self.putting(lambda puts: puts.row(queue, content, checked, is_moved=True))
        payload = check_payload(content)
        charge = len(payload) + MESSAGE_OVERHEAD_BYTES + (checked.extra_bytes if checked else 0)
        return self.putting(lambda puts: puts.one(queue, payload, checked, charge, is_moved=True))

    def put_moved_many(self, queue: str, payloads: pa.RecordBatch) -> MessageIds:
        """Put many messages that are there already once more, with the headers that they have."""
        return self.putting(lambda puts: puts.many(queue, payloads, is_moved=True))

    def _checked(self, fields: Mapping[str, Any], *, is_moved: bool = False) -> Fields | None:
        now_us = self._context.env.now_us
        return Fields.of(**with_moments(fields, now_us, is_moved=is_moved)) if fields else None

    def put_many(
        self,
        queue: str,
        payloads: Any,
        *,
        timeout: Duration | None = None,
        request_ids: Sequence[str] | None = None,
    ) -> MessageIds:
        seconds = None if timeout is None else put_patience(self._context, queue, timeout)
        if isinstance(payloads, Iterable) and not isinstance(payloads, Sized):
            payloads = list(payloads)  # the program's code; and it may have to be done again
        if request_ids is not None:
            known = check_request_ids(request_ids, count_of(payloads))
            return self.putting(
                lambda puts: puts.known().many_once(queue, payloads, known, puts.many), seconds
            )
        return self.putting(lambda puts: puts.many(queue, payloads), seconds)

    def put_moved_block(self, queue: str, data: Bytes) -> MessageIds:
        """Put the messages of an encoded block once more: their headers are taken as they are."""
        return self.putting(lambda puts: puts.block(queue, data, is_moved=True))

    def begin_stream(
        self,
        queue: str,
        fields: Mapping[str, Any],
        size: int | None,
        timeout: float | None,
        *,
        is_moved: bool = False,
    ) -> StreamPut:
        """Begin to put one message chunk by chunk (see `TransactionCalls.put_writer`)."""
        checked = self._checked(fields, is_moved=is_moved)
        self._check_open()
        seconds = None if timeout is None else put_patience(self._context, queue, timeout)
        return streaming.StreamPut(self._context, self, queue, checked, is_moved, size, seconds)

    @call
    def if_open(self, action: Callable[[Puts], None]) -> None:
        """Do something with what it has put, if it is open."""
        with self._lock:
            puts = self._puts
            if self._state is not _OPEN or puts is None:
                return
            try:
                action(puts)
            except BaseException:  # an interrupt
                self._lose()
                raise

    @call
    def putting(self, action: Callable[[Puts], R], timeout: float | None = None) -> R:
        """Put something. Raises what a put raises, with the transaction as it was."""
        with self._lock:
            self._check_open()
            puts = self._puts or self._begin_puts()
            try:
                try:
                    return action(puts)
                except QueueFull as full:
                    return self._put_with_room(full, partial(action, puts), timeout)
            except BaseException:
                if puts.lost:
                    self._lose()
                raise

    # Reading

    def get(
        self,
        source: str,
        timeout: Duration | None = 0.0,
        *,
        id: MessageKey | None = None,
        where: Where | None = None,
    ) -> Message | None:
        try:
            chooses = id is not None or where is not None or not timeout == 0.0  # noqa: SIM201
        except ValueError:  # of an array, which has no truth: "not" asks for it here
            chooses = True
        if chooses:
            return self._take_one(source, timeout, finding.where_of(id, where))
        message = None
        thread = get_ident()
        if thread in inside:
            raise reentrant()
        probe(None, PUT_ROOM)
        inside[thread] = None
        try:
            with self._lock:
                if self._state is not _OPEN:
                    self._check_open()
                gets = self._gets
                if gets is None:
                    gets = self._gets = Gets(self._context)
                message = gets.one(source)
            if message is None and self._context.registry.reap():  # what it gives back may be next
                with self._lock:
                    self._check_open()
                    message = self._reading().one(source)
        except InvalidArgument:
            if not is_pattern(source):
                raise
            message = IN_WHOLE
        except BaseException:  # an interrupt, perhaps of what has got it
            if message is not None and message is not IN_WHOLE:
                held(self._give_back_latest)
            raise
        finally:
            del inside[thread]
        return self._get_whole(source) if message is IN_WHOLE else message

    @giving("_give_back_latest")
    def _get_whole(self, source: str) -> Message | None:
        if is_pattern(source):
            return message_of(*(self._take(source, 1, 0.0) or ("", [])))
        with self._lock:
            self._check_open()
            return self._reading().one_by_rule(source)

    @giving("_give_back_latest")
    def get_many(
        self,
        source: str,
        max_messages: int = 1000,
        timeout: Duration | None = 0.0,
        *,
        where: Where | None = None,
    ) -> Messages:
        taken = self._take(source, max_messages, timeout, where)
        if taken:
            return delivered_messages.Messages(*taken)
        words = None if is_pattern(source) else self._context.state.source(source)[0].schema
        return delivered_messages.Messages(source.partition("/")[0], (), words)

    @giving("_give_back_latest")
    def _take_one(self, source: str, timeout: Duration | None, where: object) -> Message | None:
        return message_of(*(self._take(source, 1, timeout, where) or ("", [])))

    def _take(
        self, source: str, limit: int, timeout: Duration | None, where: object = None
    ) -> tuple[str, list[Delivered]] | None:
        """Messages, for which it may wait without holding the lock."""
        check_max_messages(limit)
        seconds = check_wait(timeout)
        with self._lock:
            self._check_open()
            gets = self._reading()
        try:
            queue, subscription = self._context.state.source(source)
            if seconds:
                self._waits_for = queue
            asking = DeliveryRequest(queue, subscription, gets, self._is_open)
            if where is None:
                runs = self._context.delivery.take(asking, limit, seconds)
            else:
                runs = self._choose(asking, choices.choice_of(queue, where), limit, seconds)
        except InvalidArgument:
            if where is not None or not is_pattern(source):
                raise
            asking, runs = self._context.turns.take(source, gets, self._is_open, limit, seconds)
        finally:
            self._waits_for = None
        if not runs:
            self._check_open()
            return None
        queue, subscription, _, _ = asking
        is_here = False
        try:
            with self._lock as is_here:
                try:
                    self._check_open()
                    parts = gets.deliver(queue, subscription, runs)
                except BaseException:
                    gets.take_back(queue, subscription, [run[:2] for run in runs])
                    raise
        except BaseException:
            if not is_here:  # an interrupt came before the lock was taken (GI3)
                gets.take_back(queue, subscription, [run[:2] for run in runs])
            raise
        return (queue.name, parts) if parts else None

    def _choose(
        self, request: DeliveryRequest, choice: Choice, limit: int, seconds: float,
        *, purpose: Purpose = Purpose.DELIVER,
    ) -> DeliveryRuns:  # fmt: skip
        """Take messages by what they are. A circle of those who wait ends this one."""
        asking = Asking(request, choice, self.id, self._reading().keeping(), limit, purpose)
        try:
            return self._context.chooser.take(asking, seconds)
        except Deadlock as error:
            self.end_by(Deadlock, str(error), wait=True)
            raise

    @giving("_give_back_latest")
    def remove(self, source: str, id: MessageKey, timeout: Duration | None = 0.0) -> bool:
        asking, choice = self._looking(source, finding.check_key_of(id))
        remove = partial(self._choose, asking, choice, 1, purpose=Purpose.REMOVE)
        runs = self._waiting(asking.queue, timeout, remove)
        with self._lock:
            gets = self._reading()
            try:
                self._check_open()
                gets.note(asking.queue, asking.subscription, runs)
            except BaseException:
                gets.take_back(asking.queue, asking.subscription, [run[:2] for run in runs], False)
                raise
        return bool(runs)

    def read_many(
        self,
        source: str,
        max_messages: int = 1000,
        timeout: Duration | None = 0.0,
        *,
        where: Where | None = None,
        hold: bool = False,
    ) -> Messages:
        if check_flag("hold", hold):
            return self._hold(source, max_messages, timeout, where)
        return self._read(source, max_messages, timeout, where)

    @look
    def _read(self, source: str, limit: int, timeout: Duration | None, where: object) -> Messages:
        queue, found = self._find(source, limit, timeout, where)
        return delivered_messages.Messages(queue.name, [each.part for each in found], queue.schema)

    @call
    def _hold(self, source: str, limit: int, timeout: Duration | None, where: object) -> Messages:
        """Take them, to give them back at the end."""
        check_max_messages(limit)
        asking, choice = self._looking(source, where)
        queue, subscription, _, _ = asking
        hold = partial(self._choose, asking, choice, limit, purpose=Purpose.KEEP)
        runs = self._waiting(queue, timeout, hold)
        with self._lock:
            try:
                self._check_open()
                parts = self._context.delivery.deliver(queue, subscription, runs)
                self._reading().keep(queue, subscription, runs)
            except BaseException:
                self._reading().take_back(queue, subscription, [run[:2] for run in runs], False)
                raise
        return delivered_messages.Messages(queue.name, parts, queue.schema)

    @look
    def describe(
        self,
        source: str,
        max_messages: int = 1000,
        timeout: Duration | None = 0.0,
        *,
        where: Where | None = None,
    ) -> list[Description]:
        queue, found = self._find(source, max_messages, timeout, where)
        return [described(queue.name, each) for each in found]

    def browse(
        self,
        source: str,
        max_messages: int = 1000,
        *,
        after: Seen | None = None,
        where: Where | None = None,
    ) -> Messages:
        most, last_seen = check_max_messages(max_messages), finding.check_seen(after)
        browsed = self._context.state.browsed(source)
        choice = choices.choice_of(browsed[0], where)
        return self.getting(Gets.browse, browsed, choice, most, last_seen)

    @look
    def count(
        self, source: str, timeout: Duration | None = 0.0, *, where: Where | None = None
    ) -> int:
        asking, choice = self._looking(source, where)
        look = partial(self._context.chooser.count, asking, choice)
        return self._waiting(asking.queue, timeout, look)

    def _find(
        self, source: str, limit: int, timeout: Duration | None, where: object
    ) -> tuple[Queue, list[Candidate]]:
        """Committed messages, for which it may wait; nothing is taken."""
        check_max_messages(limit)
        asking, choice = self._looking(source, where)
        look = partial(self._context.chooser.find, asking, choice, limit)
        return asking.queue, self._waiting(asking.queue, timeout, look)

    def _looking(self, source: str, where: object) -> tuple[DeliveryRequest, Choice]:
        with self._lock:
            self._check_open()
            gets = self._reading()
        queue, subscription = self._context.state.source(source)
        asking = DeliveryRequest(queue, subscription, gets, self._is_open)
        return asking, choices.choice_of(queue, where)

    def _waiting(self, queue: Queue, timeout: Duration | None, action: Callable[[float], R]) -> R:
        """Do what may wait for others, without the lock; raises why this was ended meanwhile."""
        seconds = check_wait(timeout)
        if seconds:
            self._waits_for = queue
        try:
            found = action(seconds)
        finally:
            self._waits_for = None
        if not found:
            self._check_open()
        return found

    def _begin_puts(self) -> Puts:
        self._puts = puts = Puts(self._context, self.id, self._large)
        return puts

    def _reading(self) -> Gets:
        if self._gets is None:
            self._gets = Gets(self._context)
        return self._gets

    def _give_back_latest(self) -> None:
        with self._lock:
            if self._state is _OPEN and self._gets is not None:
                self._gets.unget()

    @giving("_give_back_latest")
    def get_delayed(
        self, source: str, message_id: int, *, to_change: bool = False
    ) -> Message | None:
        check_message_id(message_id)
        check_flag("to_change", to_change)
        with self._lock:
            self._check_open()
            return self._reading().scheduled(source, message_id, to_change=to_change)

    def unget(self) -> None:
        self.getting(Gets.unget)

    def reject(
        self, message: Message, reason: str = "", delay: Duration | Retry | None = None
    ) -> None:
        check_message(message)
        check_reason(reason)
        delay = check_delay(delay)
        queue, subscription = self.getting(lambda gets: gets.reject(message, reason, delay))
        if subscription.spent:
            self._context.after_reject(queue, subscription)

    def mark_moved(self, messages: Iterable[Message]) -> None:
        self.getting(Gets.mark_moved, check_messages(messages))

    def unmark_moved(self) -> None:
        self.getting(lambda gets: None if gets.moved is None else gets.moved.unmark())

    @call
    def getting(
        self, action: Callable[Concatenate[Gets, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Do something with what it has got."""
        with self._lock:
            self._check_open()
            return action(self._reading(), *args, **kwargs)

    @call
    def seek(self, source: str, to: Start, timeout: Duration = 0.0) -> None:
        start, seconds = start_places.check_start(to), check_timeout(timeout)
        with self._lock:
            self._check_open()
            gets = self._reading()
        context = self._context
        queue, subscription = context.state.source(source)
        position, is_strict = position_search.kept_place(context.delivery, queue, start)
        own = gets.held_of(subscription)
        self._waits_for = queue if seconds else None
        try:
            context.delivery.hold(
                DeliveryRequest(queue, subscription, gets, self._is_open), own, seconds
            )
        finally:
            self._waits_for = None
        with self._lock:
            try:
                self._check_open()
            except BaseException:
                context.delivery.let_go(queue, subscription, gets)
                raise
            gets.has_more = True
            gets.seeks[subscription] = queue, position, is_strict
            gets.keeping().let_go(subscription)  # nobody else gets any of it until the end

    @call
    def extend(self, seconds: Duration) -> None:
        more = check_seconds(seconds)
        with self._lock:
            self._check_open()
            self.deadline = max(self.deadline, self._context.env.monotonic() + more)

    # Ledger and states

    @call
    def enter(self, key: str, version: int) -> None:
        check_key(key)
        check_version(version)
        with self._lock:
            self._check_open()
            if self._entries is None:
                self._entries = {}
            self._entries[key] = version

    @call
    def get_value(self, name: str, key: str) -> bytes | None:
        check_state_name(name)
        check_state_key(key)
        with self._lock:
            self._check_open()
            return self._own_values().get(name, key)

    @call
    def set_value(self, name: str, key: str, value: Bytes | None) -> None:
        check_state_name(name)
        check_state_key(key)
        checked = check_state_value(value)
        with self._lock:
            self._check_open()
            self._own_values().set(name, key, checked)

    def _own_values(self) -> OwnValues:
        self._values = self._values or OwnValues.of(self._context.state, self._context.journal)
        return self._values


if TYPE_CHECKING:
    _embedded: type[Transaction] = EmbeddedTransaction
