"""The puts of a remote transaction, numbered in the order in which its owner takes them.

Messages wait as builders of blocks, blocks as they were given, files that are to be adopted as
their ids. The owner alone knows how many messages such a file holds; it tells with the commit.

PB1. What was sent is kept until the owner has taken it, for the owner may refuse it (PR4).
- Within a queue, puts are numbered in put order.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from quire.arguments import Bytes
from quire.block import BlockBuilder
from quire.definitions.properties import Granted
from quire.errors import RemoteError, TransactionError
from quire.libraries import is_arrow
from quire.limits import EARLIEST_INT_US, MAX_LTDS_BLOCK_BYTES, MAX_PAYLOAD_BYTES
from quire.ltds import check_foreign
from quire.messages.message_fields import Fields, check_payload, with_moments
from quire.messages.message_id import MessageId, MessageIds, id_of
from quire.remote.limits import SEND_AHEAD_BYTES
from quire.remote.wire.protocol import (
    ADD,
    ADD_HEAD,
    BLOCK,
    ENTRY,
    FIELDS,
    FILE,
    FILE_ID,
    HEAD,
    MESSAGE_ID,
    MOVED_BLOCK,
    MOVED_FIELDS,
    PLAIN,
    check_size,
)
from quire.remote.wire.values import encode_map, read
from quire.rows.open_block import check_block
from quire.rows.row_builder import RowBuilder
from quire.rows.row_input import Rows

ADOPTED_BYTES: Final = 64  # what the id of a file takes in a request, about


def _now_us() -> int:
    return time.time_ns() // 1000


def _for_owner(fields: Mapping[str, object]) -> Mapping[str, object]:
    """Return the fields with moments near 1970 in seconds, as the owner takes them from callers."""
    early = {
        name: value / 1e6
        for name in ("expires_at", "deliver_at")
        if isinstance(value := fields.get(name), int) and value < EARLIEST_INT_US
    }
    return {**fields, **early} if early else fields


class PutRun:
    """Messages put one after another into one queue, and their first id once there is one."""

    __slots__ = ("count", "expires_by", "first_id")

    def __init__(self, count: int | None = 0) -> None:
        self.count = count  # None: a file's, before the commit
        self.first_id = 0
        self.expires_by: int | None = None


class AdoptedIds(MessageIds):
    """The ids of a file's messages; how many they are is known after the commit."""

    __slots__ = ("_run",)

    def __init__(self, run: PutRun) -> None:
        super().__init__(run, 0, 0)
        self._run = run

    def __len__(self) -> int:
        if self._run.count is None:
            raise TransactionError(
                "how many messages the file holds is known once its transaction has committed"
            )
        return self._run.count

    def __repr__(self) -> str:
        return f"AdoptedIds({'not committed' if self._run.count is None else self._run.count})"


class BufferedPut:
    """One put as it is sent: its parts, the head first."""

    __slots__ = ("parts", "size")

    def __init__(self, queue: str, form: int, *data: Bytes) -> None:
        name = queue.encode()
        length = sum(map(len, data))
        check_size(length)
        self.parts: tuple[Bytes, ...] = (ENTRY.pack(len(name), form, length) + name, *data)
        self.size = ENTRY.size + len(name) + length


Waiting = BlockBuilder | RowBuilder | BufferedPut  # messages that come one by one, or a put


class PutBuffer:
    """Bounded by its user, who sends what waits when `is_full`."""

    __slots__ = ("_order", "_runs", "_sent", "_sent_bytes", "_taken", "_waiting", "_waiting_bytes")

    def __init__(self) -> None:
        self._waiting: dict[str, list[Waiting]] = {}
        self._runs: dict[str, list[PutRun]] = {}
        self._order: dict[str, None] = {}  # the queues, by their first put
        self._waiting_bytes = 0
        self._sent: list[BufferedPut] = []  # and not taken yet, as far as is known
        self._sent_bytes = 0
        self._taken = 0  # puts that the owner has for certain

    @property
    def count(self) -> int:
        """How many puts were sent, or taken."""
        return self._taken + len(self._sent)

    @property
    def waits(self) -> bool:
        """Return True if something is not sent yet."""
        return bool(self._waiting)

    @property
    def is_empty(self) -> bool:
        """Return True if nothing was put."""
        return not (self._waiting or self._sent or self._taken)

    @property
    def is_full(self) -> bool:
        """Return True if it is time to send the waiting puts, and have them taken."""
        return self._waiting_bytes + self._sent_bytes >= SEND_AHEAD_BYTES

    def put(
        self, queue: str, payload: Any, fields: Mapping[str, object], priorities: Mapping[str, int]
    ) -> MessageId:
        """Keep one message. `priorities`: by queue, what those get in a block that say none."""
        if fields:
            fields = with_moments(fields, _now_us)
        if queue not in self._order:
            return self._keep_message(queue, payload, fields, FIELDS)
        own = Fields.of(**fields) if fields else None
        default = priorities.get(queue, 0) if priorities else 0
        builder = self._builder(queue, default)
        if builder.granted is not None:
            own = Fields.with_granted(own, builder.granted)
        before = builder.charge_bytes
        builder.add(payload, own)
        return id_of(*self._keep(queue, builder, builder.charge_bytes - before, 1))

    def put_moved(self, queue: str, payload: Any, fields: Mapping[str, object]) -> MessageId:
        """Keep one message that is moved."""
        fields = with_moments(fields, _now_us, is_moved=True)
        return self._keep_message(queue, payload, fields, MOVED_FIELDS)

    def _keep_message(
        self, queue: str, payload: Bytes, fields: Mapping[str, object], form: int
    ) -> MessageId:
        """A message that goes by itself: the first of a queue, or one that is moved."""
        if type(payload) is not bytes or len(payload) > MAX_PAYLOAD_BYTES:
            payload = check_payload(payload)
        if fields and Fields.of(**fields) is not None:
            text = encode_map(fields if form == MOVED_FIELDS else _for_owner(fields))
            entry = BufferedPut(queue, form, len(text).to_bytes(4, "little") + text, payload)
        else:
            entry = BufferedPut(queue, PLAIN, payload)
        return id_of(*self._keep(queue, entry, entry.size, 1))

    @staticmethod
    def checked(fields: Mapping[str, object], *, is_moved: bool = False) -> Mapping[str, object]:
        """Those of a put at the owner. Raises InvalidArgument."""
        fields = with_moments(fields, _now_us, is_moved=is_moved)
        Fields.of(**fields)
        return fields if is_moved else _for_owner(fields)

    @staticmethod
    def fields_of(fields: Mapping[str, object]) -> Fields | None:
        """Those of a row that is put here. Raises InvalidArgument."""
        return Fields.of(**with_moments(fields, _now_us)) if fields else None

    def put_at_owner(self, queue: str) -> MessageId:
        """The owner has put one message, after all that it was told of before."""
        self._order[queue] = None
        run = self._runs.setdefault(queue, [PutRun()])[-1]
        start = run.count or 0
        run.count = start + 1
        return id_of(run, start)

    @staticmethod
    def encoded(payloads: Any, default_priority: int) -> list[Bytes]:
        """Blocks of the messages. Raises InvalidArgument."""
        builder = _builder_of(default_priority)
        if is_arrow(payloads):
            builder.add_arrow(payloads)
        else:
            builder.add_many(payloads)
        return [block.data for block in builder.blocks(MAX_LTDS_BLOCK_BYTES)]

    def put_many(self, queue: str, payloads: Any, default_priority: int) -> MessageIds:
        """Keep the messages of a list, an array or a batch. `default_priority`: of
        those that say none.
        """
        builder = self._builder(queue, default_priority)
        before = builder.charge_bytes
        if is_arrow(payloads):
            count = builder.add_arrow(payloads)
        else:
            count = builder.add_many(payloads)
        return MessageIds(*self._keep(queue, builder, builder.charge_bytes - before, count), count)

    def put_rows(self, queue: str, found: list[Rows]) -> MessageIds:
        """Keep rows that fit the queue's schema."""
        waiting = self._waiting.get(queue)
        last = waiting[-1] if waiting else None
        builder = last if isinstance(last, RowBuilder) else RowBuilder()
        before, count = builder.charge_bytes, builder.count
        for rows in found:
            builder.add(rows)
        count = builder.count - count
        return MessageIds(*self._keep(queue, builder, builder.charge_bytes - before, count), count)

    def put_moved_many(self, queue: str, builder: BlockBuilder | RowBuilder) -> MessageIds:
        """Keep messages that are moved; their blocks say so."""
        place: tuple[PutRun, int] | None = None
        for block in builder.blocks(MAX_LTDS_BLOCK_BYTES):
            entry = BufferedPut(queue, MOVED_BLOCK, block.data)
            kept = self._keep(queue, entry, len(block.data), block.count)
            place = place or kept
        assert place is not None  # there was a message
        return MessageIds(*place, builder.count)

    def put_block(self, queue: str, data: Bytes) -> MessageIds:
        """Keep the messages of a block. Raises InvalidArgument for what is none."""
        count = check_block(data).count
        data = bytes(data)
        entry = BufferedPut(queue, BLOCK, data)
        return MessageIds(*self._keep(queue, entry, len(data), count), count)

    def adopt(self, queue: str, ltds_id: int) -> MessageIds:
        """Note a file's messages. Raises InvalidArgument for what is no file's id."""
        run = PutRun(None)
        entry = BufferedPut(queue, FILE, FILE_ID.pack(check_foreign(ltds_id)))
        self._keep(queue, entry, ADOPTED_BYTES, 0)
        self._runs[queue] += (run, PutRun())
        return AdoptedIds(run)

    def knows(self, queue: str) -> bool:
        """Return True if a put to the queue was sent."""
        return queue in self._order

    def frames(self, transaction: int, queue: str | None = None) -> list[Bytes]:
        """Return a queue's waiting puts, or all, as frames of about `SEND_AHEAD_BYTES`.

        They count as sent then, and are kept (PB1).
        """
        first = self._number(queue)
        return _cut(transaction, self._sent[first:], self._taken + first)

    def again(self, transaction: int) -> list[Bytes]:
        """Frames for all queues, with what was sent before and is not taken."""
        self._number(None)
        return _cut(transaction, self._sent, self._taken)

    def _number(self, queue: str | None) -> int:
        """Give what waits its numbers; the place of the first of them."""
        first = len(self._sent)
        if queue is None:
            leaving, self._waiting = self._waiting, {}
        else:
            leaving = {queue: self._waiting.pop(queue, [])}
        for name, items in leaving.items():
            if items:
                self._order[name] = None
            for item in items:
                if isinstance(item, BufferedPut):
                    self._sent.append(item)
                    self._sent_bytes += item.size
                    continue
                for block in item.blocks(MAX_LTDS_BLOCK_BYTES):
                    entry = BufferedPut(name, BLOCK, block.data)
                    self._sent.append(entry)
                    self._sent_bytes += entry.size
        if not self._waiting:
            self._waiting_bytes = 0
        return first

    def taken(self, count: int) -> None:
        """The owner has the first so many puts."""
        del self._sent[: max(0, count - self._taken)]
        self._sent_bytes = sum(entry.size for entry in self._sent)
        self._taken = max(self._taken, count)

    def withdraw(self, put: MessageId) -> bool:
        """Forget the message of this put, if it alone is what was sent and not taken."""
        queue, run = next((each for each in self._runs.items() if each[1][-1] is put.run), ("", []))
        if self._waiting or len(self._sent) != 1 or not run or run[-1].count != put.index + 1:
            return False
        head, *data = self._sent[0].parts
        if ENTRY.unpack_from(head)[1] == BLOCK and check_block(data[0]).count != 1:
            return False
        run[-1].count = put.index
        if not put.index and len(run) == 1:
            del self._runs[queue], self._order[queue]
        self.clear()
        return True

    def clear(self) -> None:
        """Forget what waits."""
        self._waiting.clear()
        self._sent.clear()
        self._waiting_bytes = self._sent_bytes = 0

    def settle_short(self, answer: Bytes) -> None:
        """The transaction committed: the first ids of the queues, in their order."""
        if len(answer) != HEAD.size + MESSAGE_ID.size * len(self._order):
            raise RemoteError("the owner's answer tells other puts than there were")
        at = HEAD.size
        for queue in self._order:
            (self._runs[queue][0].first_id,) = MESSAGE_ID.unpack_from(answer, at)
            at += MESSAGE_ID.size

    def settle(self, placed: Mapping[str, object]) -> None:
        """The transaction committed: numbers by queue, in which messages have ids in one run."""
        for queue, numbers in placed.items():
            next_id, *counts = read(list[int], numbers) or [0]
            runs = self._runs.get(queue, [])
            if len(counts) != sum(run.count is None for run in runs):
                raise RemoteError(f"the owner's answer tells other puts into {queue!r:.100}")
            for run in runs:
                if run.count is None:
                    run.count = counts.pop(0)
                run.first_id = next_id
                next_id += run.count

    def limit(self, limits: Mapping[str, object]) -> None:
        """By when the messages of these queues expire."""
        for queue, expires_by in limits.items():
            if type(expires_by) is not int:
                raise RemoteError(f"the owner's answer tells no time for queue {queue!r:.100}")
            for run in self._runs.get(queue, []):
                run.expires_by = expires_by

    def _builder(self, queue: str, default_priority: int) -> BlockBuilder:
        """The one to go on with."""
        waiting = self._waiting.get(queue)
        last = waiting[-1] if waiting else None
        return last if isinstance(last, BlockBuilder) else _builder_of(default_priority)

    def _keep(self, queue: str, item: Waiting, charge: int, count: int) -> tuple[PutRun, int]:
        """Let it wait, if it does not yet and is not empty; the place of its new messages."""
        if count or isinstance(item, BufferedPut):
            waiting = self._waiting.get(queue)
            if waiting is None:
                self._waiting[queue] = [item]
            elif waiting[-1] is not item:
                waiting.append(item)
        self._waiting_bytes += charge
        runs = self._runs.get(queue)
        if runs is None:
            self._runs[queue] = runs = [PutRun()]
        run = runs[-1]
        start = run.count or 0
        run.count = start + count
        return run, start


def _builder_of(default_priority: int) -> BlockBuilder:
    """One for messages of which some may say no priority."""
    builder = BlockBuilder()
    if default_priority:
        builder.granted = Granted(default_priority, None, None)
    return builder


def _cut(transaction: int, entries: list[BufferedPut], first: int) -> list[Bytes]:
    """Frames of the puts, the first of which has this number."""
    parts: list[Bytes] = []
    at = 0
    while at < len(entries):
        place, begin, size = len(parts), at, 0
        while at < len(entries) and not (size and size + entries[at].size > SEND_AHEAD_BYTES):
            parts += entries[at].parts
            size += entries[at].size
            at += 1
        length = ADD_HEAD.size - HEAD.size + size
        parts.insert(place, ADD_HEAD.pack(length, ADD, transaction, first + begin))
    return parts
