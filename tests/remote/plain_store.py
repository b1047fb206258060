"""A store in memory, just enough of one to try the transport without an engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, cast

from quire.batches.delivered_messages import Messages
from quire.batches.delivered_slice import Delivered
from quire.block import Block, encode_one
from quire.errors import QueueNotFound, QuireError, StoreClosed, TransactionClosed
from quire.messages.message import Message
from quire.messages.message_id import KnownId, MessageIds
from quire.remote.server.stream_context import ServedStore
from quire.reports.info import QueueInfo
from quire.rows.open_block import verified_block


class PlainTransaction:
    """Puts wait until the commit; gets take from the front and go back there at a rollback."""

    def __init__(self, store: PlainStore) -> None:
        self.state = "open"
        self.reason = ""
        self._store = store
        self._puts: list[tuple[str, Block]] = []
        self._ids: list[KnownId] = []
        self._got: list[tuple[str, list[Delivered]]] = []
        self._ended: Callable[[], None] = lambda: None
        self.integration = self  # which puts blocks

    def put(self, queue: str, payload: bytes, **fields: Any) -> MessageIds:
        """A block of one."""
        return self.put_block(queue, bytes(encode_one(payload)))

    def put_block(self, queue: str, data: bytes) -> MessageIds:
        """The ids are filled in at the commit."""
        self._store.check(queue)
        block = verified_block(bytes(data), "a test")
        self._puts.append((queue, block))
        self._ids.append(KnownId(0))
        return MessageIds(self._ids[-1], 0, block.count)

    def get_many(self, source: str, max_messages: int = 1000, timeout: float = 0.0) -> Messages:
        """Whole blocks only."""
        self._store.check(source)
        with self._store.changed:
            content = self._store.content
            self._store.changed.wait_for(lambda: content[source] or self.state != "open", timeout)
            if self.state != "open":
                raise StoreClosed(self.reason)
            parts, content[source] = content[source][:max_messages], content[source][max_messages:]
        self._got.append((source, parts))
        return Messages(source, parts)

    def get(self, source: str, timeout: float = 0.0) -> Message | None:
        """The first message of the next block."""
        messages = self.get_many(source, 1, timeout)
        return messages[0] if messages else None

    def commit(self, timeout: float | None = None) -> None:
        """Make the puts visible."""
        if self.state != "open":
            raise TransactionClosed(self.state)
        with self._store.changed:
            for (queue, block), run in zip(self._puts, self._ids, strict=True):
                first_id = self._store.next_id
                self._store.next_id += block.count
                run.first_id = first_id
                self._store.content[queue].append(Delivered(block, 0, block.count, first_id, 1, 1))
            self._store.notify()
        self.state = "committed"

    def rollback(self) -> None:
        """Give back what was got."""
        with self._store.changed:
            for queue, parts in self._got:
                self._store.content[queue][:0] = parts
            self._got = []
            self.state = "rolled back"
            self._store.notify()

    def when_ended(self, callback: Callable[[], None]) -> bool:
        """Call it when another thread ends this."""
        self._ended = callback
        return self.state == "open"

    def forget_end(self) -> None:
        """Do not call it."""
        self._ended = lambda: None

    def own_taker(self, source: str) -> None:
        """It gets nothing that others may not."""

    def end_by(self, kind: type[QuireError], text: str, *, wait: bool) -> bool:
        """Another thread rolls it back, and says why."""
        self.reason = text
        self.rollback()
        self._ended()
        return True


class PlainIntegration:
    """Of a plain store."""

    store_id = 7


class PlainStore:
    """Queues as lists."""

    commit_timeout = 0.0
    failed = False
    fixed_options: ClassVar[dict[str, int]] = {}

    def __init__(self, *queues: str) -> None:
        self.content: dict[str, list[Delivered]] = {name: [] for name in queues}
        self.changed = threading.Condition()
        self.next_id = 1
        self.transactions: list[PlainTransaction] = []
        self.owners: list[str] = []
        self.callbacks: list[Callable[[], None]] = []

    def notify(self) -> None:
        """Something has changed. Under the lock."""
        self.changed.notify_all()
        while self.callbacks:
            self.callbacks.pop()()

    def await_get(
        self, source: str, callback: Callable[[], None], taker: object
    ) -> Callable[[], None] | None:
        """Call back at the next change, unless there is something."""
        self.check(source)
        with self.changed:
            if self.content[source]:
                return None
            self.callbacks.append(callback)
            return lambda: self.callbacks.remove(callback) if callback in self.callbacks else None

    def follow(self, source: str) -> str:
        """Return the source: queues keep their names here."""
        return source

    @property
    def integration(self) -> PlainIntegration:
        """For the hello."""
        return PlainIntegration()

    def check(self, name: str) -> None:
        """Whether there is such a queue."""
        if name not in self.content:
            raise QueueNotFound(f"there is no queue {name!r}")

    def queues(self, names: list[str]) -> list[QueueInfo]:
        """Whether there are such queues, as a client asks before it puts there."""
        for name in names:
            self.check(name)
        return [QueueInfo(name, "work", 4096, None, 0, 0, 0, 0, (), 0, 0, 0, 0) for name in names]

    def together(self, actions: Iterable[Callable[[], None]]) -> None:
        """One after another."""
        for action in actions:
            action()

    def transaction(
        self, timeout: float | None, large: bool, owner: str, durable: bool = True
    ) -> PlainTransaction:
        """Begin one."""
        self.owners.append(owner)
        self.transactions.append(PlainTransaction(self))
        return self.transactions[-1]

    def status(self) -> dict[str, Any]:
        """How much there is."""
        return {name: len(parts) for name, parts in self.content.items()}


def served(store: PlainStore) -> ServedStore:
    """As the server takes it. What it lacks of a store is missed only when it is called."""
    return cast(ServedStore, store)
