"""A store that another process owns: the interface `quire.store`, over a connection.

Thread-safe. Each open transaction that has reached the owner has a stream of its own, so that one
which waits for a message holds up no other.
"""

from __future__ import annotations

import itertools
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sized
from typing import TYPE_CHECKING, Final, TypeVar, Unpack

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
    check_source,
    check_state_key,
    check_state_name,
    check_switch,
    check_timeout,
    check_transaction,
    check_transaction_id,
    check_type,
    check_xid,
)
from quire.callbacks import check_callback
from quire.documented import documented_by
from quire.errors import AlreadyCommitted, QueueNotFound, RemoteError
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
from quire.limits import DEFAULT_CALL_TIMEOUT, DEFAULT_LEASE_SECONDS, MAX_PAYLOAD_BYTES
from quire.message import Messages
from quire.message_id import PutId
from quire.payload_reader import Stream
from quire.properties import QueueChanges
from quire.put_options import PutOptions
from quire.redriving import Chosen, Redriven
from quire.schedules import ScheduleChanges, ScheduleOptions, check_schedule
from quire.single_calls import SingleCalls
from quire.starts import Start, Time, check_time, starts_given
from quire.store import Status, Store
from quire.transaction import Payload
from quire.uninterrupted import OwnLock, begin_short, call, end, inside

from .awaiting import Awaiting
from .calls import (
    BROWSE,
    CLAIM,
    GET_STATE,
    PUT_BACK,
    SCHEDULED,
    STATE_ITEMS,
    SUBSCRIBE,
    changes,
)
from .channel import Channel, StreamEnded
from .connection import Connection
from .deciding import decide
from .delivery import read_messages, read_value
from .protocol import Decision, Frame, Header, field
from .remote_transaction import RemoteTransaction
from .results import read, read_list
from .streams import READ_CHUNK, chunk_of

T = TypeVar("T")


@documented_by(Store)
class RemoteStore(SingleCalls):
    """A joined store. `close` rolls back what this object has open, and leaves the owner alone."""

    role: Final = "joined"

    def __init__(
        self,
        url: str,
        *,
        epoch: str | None = None,
        call_timeout: float = DEFAULT_CALL_TIMEOUT,
    ) -> None:
        """Connect to the owner that listens at `url`. Raises ConnectionLost if nobody does.

        `call_timeout`: seconds that an owner which does not answer is waited for.
        """
        self.connection: Final = Connection(url, epoch=epoch, call_timeout=call_timeout)
        self.url: Final = url
        self.path: Final = self.connection.path
        self.store_id: Final = self.connection.store_id
        self.owner_process_id: Final = self.connection.owner_process_id
        self._awaiting = Awaiting(self.connection)
        self._numbers = itertools.count(1)
        self._encoded: dict[str, bytes] = {}  # names that were used, aliases too
        self._own_names: set[str] = set()  # of queues, as far as they were asked for
        self._schemas: dict[str, str | None] = {}  # of these
        # Subscriptions that end with this object, queue and name, and the channel they hang on.
        self._held: set[tuple[str, str]] = set()
        self._holder: Channel | None = None
        self._holding = OwnLock(threading.Lock())
        # Those of this object that are prepared, by the number that the owner gave them.
        self.prepared: Final[weakref.WeakValueDictionary[int, RemoteTransaction]] = (
            weakref.WeakValueDictionary()
        )

    def __del__(self) -> None:
        if sys is None or sys.is_finalizing():  # the interpreter may have cleared this module
            return
        connection = getattr(self, "connection", None)
        if connection is None or not connection.usable:
            return
        connection.close()
        warnings.warn(
            f"the store {self.url} was dropped while it was joined: the connection is ended; use "
            "it in a with block, or close it",
            ResourceWarning,
            source=self,
            stacklevel=2,
        )

    def __repr__(self) -> str:
        return f"<RemoteStore {self.path}, owned by process {self.owner_process_id}>"

    @property
    def failed(self) -> bool:
        """Asks the owner."""
        return read(bool, self._call("failed"))

    # Queues and subscriptions

    def create_queues(self, queues: Iterable[str | Mapping[str, object]]) -> list[QueueInfo]:
        given = [queue.to_dict() for queue in check_queues(queues)]
        return read_list(QueueInfo, self._call("create_queues", queues=given))

    def alter_queue(self, name: str, **changes: Unpack[QueueChanges]) -> QueueInfo:
        given = check_changes(changes)
        answer = self._call("alter_queue", name=check_name(name, "queue"), changes=given)
        info = read(QueueInfo, answer)
        self._schemas[info.name] = info.schema
        return info

    def catalog(self, type: str | None = None) -> list[CatalogItem]:
        return read_list(CatalogItem, self._call("catalog", type=check_type(type)))

    def queues(self, names: Iterable[str] | None = None) -> list[QueueInfo]:
        asked = None if names is None else check_names(names)
        found = read_list(QueueInfo, self._call("queues", names=asked))
        if asked is None:
            return found
        infos = _one_for_each(asked, found)
        self._own_names.update(n for n, info in zip(asked, infos, strict=True) if info.name == n)
        self._schemas.update((info.name, info.schema) for info in infos)
        return infos

    def create_schedule(
        self,
        name: str,
        queue: str,
        cron: str,
        payload: Bytes = b"",
        exist_ok: bool = False,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleInfo:
        given = check_schedule({"queue": queue, "cron": cron, "payload": payload, **options})
        answer = self._call(
            "create_schedule",
            name=check_name(name, "schedule"),
            schedule=given,
            exist_ok=check_flag("exist_ok", exist_ok),
        )
        return read(ScheduleInfo, answer)

    def alter_schedule(self, name: str, **changes: Unpack[ScheduleChanges]) -> ScheduleInfo:
        given = check_schedule(changes)
        answer = self._call("alter_schedule", name=check_name(name, "schedule"), schedule=given)
        return read(ScheduleInfo, answer)

    def drop_schedule(self, name: str) -> None:
        self._call("drop_schedule", name=check_name(name, "schedule"))

    def schedules(self) -> list[ScheduleInfo]:
        return read_list(ScheduleInfo, self._call("schedules"))

    def drop_queue(self, name: str) -> None:
        self._forget(check_name(name, "queue"))
        self._call("drop_queue", name=name)

    def rename_queue(self, old: str, new: str) -> QueueInfo:
        self._forget(check_name(old, "queue"))
        return read(QueueInfo, self._call("rename_queue", old=old, new=check_name(new, "queue")))

    def purge(self, queue: str, subscription: str | None = None) -> int:
        reader = None if subscription is None else check_name(subscription, "subscription")
        return read(int, self._call("purge", queue=check_name(queue, "queue"), subscription=reader))

    def put_back(
        self,
        source: str,
        start: int,
        end: int,
        most: int,
        chosen: Chosen | None,
        to: str | None,
    ) -> Redriven:
        """A step of a redrive, by the owner (see `quire.redriving`)."""
        answer = self._call(
            PUT_BACK, source=source, start=start, end=end, most=most, chosen=chosen, to=to
        )
        found = read_list(int, answer)
        if len(found) != 2:
            raise RemoteError(f"the owner's answer {answer!r:.100} is no pair of numbers")
        return Redriven(*found)

    def create_alias(self, name: str, queue: str, replace: bool = False) -> None:
        self._call(
            "create_alias",
            name=check_name(name, "alias"),
            queue=check_name(queue, "queue"),
            replace=check_flag("replace", replace),
        )

    def drop_alias(self, name: str) -> None:
        self._call("drop_alias", name=check_name(name, "alias"))

    def aliases(self) -> dict[str, str]:
        found = read(dict, self._call("aliases"))
        return {read(str, name): read(str, queue) for name, queue in found.items()}

    def switch(self, puts: bool | None = None, gets: bool | None = None) -> dict[str, bool]:
        answer = self._call(
            "switch", puts=check_switch("puts", puts), gets=check_switch("gets", gets)
        )
        return {name: read(bool, value) for name, value in read(dict, answer).items()}

    def positions(self, name: str) -> tuple[int, int]:
        answer = read_list(int, self._call("positions", name=check_name(name, "queue")))
        if len(answer) != 2:
            raise RemoteError(f"the owner's answer {answer!r:.100} is no pair of positions")
        return answer[0], answer[1]

    def positions_many(self, names: Iterable[str]) -> dict[str, tuple[int, int]]:
        answer = read(dict, self._call("positions_many", names=check_names(names)))
        found = {name: read_list(int, pair) for name, pair in answer.items()}
        if any(len(pair) != 2 for pair in found.values()):
            raise RemoteError(f"the owner's answer {answer!r:.100} is no pairs of positions")
        return {name: (first, end) for name, (first, end) in found.items()}

    def position_at(self, name: str, time: Time) -> int:
        seconds = check_time(time) / 1e6
        answer = self._call("position_at", name=check_name(name, "queue"), time=seconds)
        return read(int, answer)

    def records(self, name: str, start: int = 0, limit: int = 10_000) -> list[QueueRecord]:
        answer = self._call(
            "records",
            name=check_name(name, "queue"),
            start=check_passed(start),
            limit=check_limit(limit),
        )
        return read_list(QueueRecord, answer)

    def subscribe_many(
        self,
        subscription: str | None,
        starts: Mapping[str, Start],
        exclusive: bool = False,
        durable: bool = True,
    ) -> list[SubscriptionInfo]:
        given = starts_given(subscription, starts)
        arguments: Header = {
            "subscription": subscription,
            "starts": given,
            "exclusive": check_flag("exclusive", exclusive),
            "durable": check_flag("durable", durable),
        }
        ask = self._call if durable else self._hold
        infos = read_list(SubscriptionInfo, ask(SUBSCRIBE, **arguments))
        self._held |= {(info.queue, info.name) for info in infos if not (durable or info.durable)}
        return _one_for_each(given, infos)

    def claim(self, names: Iterable[tuple[str, str]]) -> None:
        """Subscriptions, queue and name, that end with this store object, of another owner's."""
        self._held |= set(names)
        self._hold(CLAIM, names=sorted(self._held))

    def unsubscribe(self, queue: str, subscription: str) -> None:
        self._call(
            "unsubscribe",
            queue=check_name(queue, "queue"),
            subscription=check_name(subscription, "subscription"),
        )
        self._held.discard((queue, subscription))

    def subscriptions(self, queue: str) -> list[SubscriptionInfo]:
        answer = self._call("subscriptions", queue=check_name(queue, "queue"))
        return read_list(SubscriptionInfo, answer)

    # Transactions and messages

    def transaction(
        self,
        timeout: float | None = None,
        large: bool = False,
        owner: str | None = None,
        durable: bool = True,
    ) -> RemoteTransaction:
        self.connection.check()
        if timeout is not None or large is not False or owner is not None or durable is not True:
            timeout = check_transaction(timeout, large, owner, durable)
        return RemoteTransaction(
            self, next(self._numbers), timeout=timeout, large=large, owner=owner, durable=durable
        )

    def sync(self) -> None:
        self._call("sync")

    def transactions(self) -> list[TransactionInfo]:
        return read_list(TransactionInfo, self._call("transactions"))

    def transaction_info(self, transaction_id: int) -> TransactionInfo:
        number = check_transaction_id(transaction_id)
        return read(TransactionInfo, self._call("transaction_info", transaction_id=number))

    def abort(self, transaction_id: int) -> None:
        self._call("abort", transaction_id=check_transaction_id(transaction_id))

    def recover(self) -> list[PreparedInfo]:
        return read_list(PreparedInfo, self._call("recover"))

    def commit_prepared(self, xid: str) -> None:
        self._decide(Decision.COMMIT, xid)

    def rollback_prepared(self, xid: str) -> None:
        self._decide(Decision.ROLLBACK, xid)

    @call
    def _decide(self, decision: Decision, xid: str) -> None:
        decided = decide(self.connection, decision, check_xid(xid))
        transaction = self.prepared.get(decided.number or 0)
        if transaction is not None:
            transaction.decided(decided)

    def put(
        self,
        queue: str,
        payload: Payload,
        *,
        durable: bool = True,
        **options: Unpack[PutOptions],
    ) -> int:
        name = self._encoded.get(queue) if type(queue) is str else None
        if name is None:
            name = check_name(queue, "queue").encode()
        if (
            options
            or durable is not True
            or type(payload) is not bytes
            or len(payload) > MAX_PAYLOAD_BYTES
        ):
            return self._put_with_options(queue, payload, options, durable)
        thread = begin_short()  # a call, without the wrapper's steps
        try:
            channel = self.connection.borrow()
            try:
                message_id = channel.put(name, payload)
                self._encoded[queue] = name
                return message_id
            except StreamEnded as error:
                raise self.connection.lose_request(
                    error, "a commit", "whether it took effect"
                ) from None
            except QueueNotFound:
                self.forget_queues()
                raise
            finally:
                self.connection.give_back(channel)
        finally:
            del inside[thread]
            end(thread)

    def _put_with_options(
        self, queue: str, payload: Payload, options: PutOptions, durable: bool
    ) -> int:
        timeout, request_id = options.get("timeout"), options.get("request_id")
        fields: dict[str, object] = dict(options)
        wait = None if timeout is None else check_timeout(timeout)
        fields.pop("timeout", None)
        fields.pop("request_id", None)
        while True:
            try:
                with self.transaction(durable=durable) as txn:
                    if request_id is not None:
                        message_id = txn.put(queue, payload, **options)
                    else:
                        message_id = txn.put_alone(queue, payload, fields)
                    txn.commit(wait)
                return PutId.of(int(message_id), message_id.expires_by)
            except AlreadyCommitted:  # another one was put with the request id, and is known now
                continue
            except QueueNotFound:
                self.forget_queues()
                raise

    def browse(self, source: str, start: int | None = None, max_messages: int = 1000) -> Messages:
        frames = self._frames(
            BROWSE,
            source=check_source(source),
            start=check_first(start),
            max_messages=check_max_messages(max_messages),
        )
        return read_messages(frames, self.read_chunk)

    def read_chunk(self, stream: Stream, number: int) -> Bytes:
        """Part of a streamed message's payload. Raises PositionLost once the message is gone."""
        return chunk_of(self._frames(READ_CHUNK, stream=stream, number=number), stream, number)

    def scheduled(self, source: str, max_messages: int = 1000) -> Messages:
        frames = self._frames(
            SCHEDULED,
            source=check_source(source),
            max_messages=check_max_messages(max_messages),
        )
        return read_messages(frames, self.read_chunk)

    @call
    def when_ready(self, source: str, callback: Callable[[], None]) -> Callable[[], None]:
        return self._awaiting.add(check_source(source), check_callback(callback))

    def own_name(self, name: str) -> str:
        """Of a queue, by its name or an alias. Raises QueueNotFound.

        It was so when it was asked for last; an alias is asked for each time.
        """
        if isinstance(name, str) and name in self._own_names:
            return name
        return self.queue(name).name  # which is known then

    def own_names(self, names: Iterable[str]) -> dict[str, str]:
        """The same for many, of which one request asks: by the names given."""
        given = check_names(names)
        known = self._own_names
        unknown = [name for name in dict.fromkeys(given) if name not in known]
        found = {name: name for name in given}
        if unknown:
            found |= {n: i.name for n, i in zip(unknown, self.queues(unknown), strict=True)}
        return found

    def schema_of(self, name: str) -> str | None:
        """Of the queue of this name, no alias, as it was when it was asked for last."""
        if name not in self._schemas:
            self.queue(name)
        return self._schemas[name]

    def forget_queues(self) -> None:
        """A commit met a queue that is gone, or another than it was."""
        self._encoded.clear()
        self._own_names.clear()
        self._schemas.clear()

    def _forget(self, name: str) -> None:
        self._encoded.pop(name, None)
        self._own_names.discard(name)
        self._schemas.pop(name, None)

    # Leases, the ledger

    def ledger_many(self, keys: Iterable[str]) -> dict[str, int]:
        found = read(dict, self._call("ledger_many", keys=check_keys(keys)))
        return {key: read(int, version) for key, version in found.items()}

    def get_state(self, name: str, key: str) -> bytes | None:
        return read_value(
            self._frames(GET_STATE, name=check_state_name(name), key=check_state_key(key))[-1]
        )

    def state_items(self, name: str) -> dict[str, bytes]:
        frame = self._frames(STATE_ITEMS, name=check_state_name(name))[-1]
        lengths = field(frame.header, "keys", list)
        data = memoryview(b"".join(frame.bodies))
        if sum(length for _, length in lengths) != len(data):
            raise RemoteError("the owner's answer has other values than keys")
        found, at = {}, 0
        for key, length in lengths:
            found[read(str, key)] = bytes(data[at : at + length])
            at += length
        return found

    def state_names(self) -> list[str]:
        return read_list(str, self._call("state_names"))

    def drop_state(self, name: str) -> int:
        return read(int, self._call("drop_state", name=check_state_name(name)))

    def lease_many(
        self,
        ranges: Iterable[tuple[str, int, int]],
        seconds: float = DEFAULT_LEASE_SECONDS,
        gaps: bool = False,
    ) -> list[Lease]:
        given = check_ranges(ranges)
        answer = self._call(
            "lease_many",
            ranges=given,
            seconds=check_seconds(seconds),
            gaps=check_flag("gaps", gaps),
        )
        return _one_for_each(given, read_list(Lease, answer))

    def release(self, lease_id: int) -> None:
        self._call("release", lease_id=check_lease_id(lease_id))

    def renew(self, lease_id: int, seconds: float = DEFAULT_LEASE_SECONDS) -> None:
        self._call("renew", lease_id=check_lease_id(lease_id), seconds=check_seconds(seconds))

    # The store as a whole

    def status(self) -> Status:
        return read(dict, self._call("status"))

    def checkpoint(self) -> None:
        self._call("checkpoint")

    def verify(self, *, contents: bool = False) -> Report:
        return read(Report, self._call("verify", contents=contents))

    @call
    def close(self) -> None:
        self.connection.close()

    def _call(self, op: str, **arguments: object) -> object:
        return self._frames(op, **arguments)[-1].header.get("result")

    @call
    def _hold(self, op: str, **arguments: object) -> object:
        """The same over a channel of its own, whose end is that of what it asks for."""
        with self._holding:
            if self._holder is None or self._holder.broken:
                before, self._holder = self._holder, self.connection.borrow()
                if self._held and op != CLAIM:
                    self._ask(self._holder, CLAIM, {"names": sorted(self._held)})
                if before is not None:
                    self.connection.give_back(before)
            return self._ask(self._holder, op, arguments)[-1].header.get("result")

    @call
    def _frames(self, op: str, **arguments: object) -> list[Frame]:
        channel = self.connection.borrow()
        try:
            return self._ask(channel, op, arguments)
        finally:
            self.connection.give_back(channel)

    def _ask(self, channel: Channel, op: str, arguments: Header) -> list[Frame]:
        try:
            return channel.request({"op": op, "arguments": arguments})
        except StreamEnded as error:
            if changes(op):
                raise self.connection.lose_request(error, op, "whether it took effect") from None
            raise self.connection.lose(error) from None
        except QueueNotFound:
            self.forget_queues()
            raise


def _one_for_each(asked: Sized, found: list[T]) -> list[T]:
    if len(found) != len(asked):
        raise RemoteError(f"the owner's answer tells {len(found)} of the {len(asked)} asked for")
    return found


if TYPE_CHECKING:
    _joined: type[Store] = RemoteStore
