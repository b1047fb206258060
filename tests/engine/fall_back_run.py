"""Who carries a script out on a store of a simulated machine, and notes what each step gave.

`contents` tells what the store holds. Neither may depend on limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any
from zlib import crc32

import pyarrow as pa

from quire.block import BlockBuilder
from quire.engine import EmbeddedStore as Store
from quire.engine import EmbeddedTransaction as Transaction
from quire.errors import QuireError
from quire.messages.message_id import MessageId, MessageIds
from quire.testing import SimEnv
from tests.engine.fall_back_script import ALL, QUEUES, SUBSCRIPTIONS, TAILS, Step

PATH = "/s"
# Of both runs. The files are smaller than by default, as the simulated disk fills what they take.
COMMON: dict[str, Any] = {
    "transaction_timeout": 1e9, "commit_timeout": 0.001, "segment_bytes": 4 << 20,
    "grow_bytes": 1 << 19,
}  # fmt: skip


class Run:
    """A store on which a script is carried out. `outcomes`: what each step gave."""

    def __init__(self, seed: int, options: dict[str, Any]) -> None:
        self.env = SimEnv(seed)
        self.options = {**COMMON, **options}
        self.store = self._open()
        self.outcomes: list[object] = []
        self.errors: list[QuireError] = []
        self._open_ones: dict[int, Transaction] = {}
        self._ids: dict[int, list[tuple[str, MessageId | MessageIds]]] = {}
        self._got: dict[int, list[Any]] = {}
        self._late: list[str] = []
        for name, wanted in QUEUES.items():
            self.store.create_queue(name, **wanted)
        for queue, names in SUBSCRIPTIONS.items():
            for name in names:
                self.store.subscribe(queue, name)

    def _open(self) -> Store:
        return Store.open(PATH, env=self.env, background=False, **self.options)

    def run(self, steps: Sequence[Step]) -> None:
        """All of them."""
        for step in steps:
            action = getattr(self, "_" + step[0].replace(" ", "_"))
            try:
                outcome = action(*step[1:])
            except QuireError as error:
                outcome = type(error).__name__
                self.errors.append(error)
            self.outcomes.append(outcome)

    def reopen(self) -> None:
        """What is open is rolled back."""
        self.store.close()
        self._open_ones.clear()
        self.store = self._open()

    def contents(self) -> dict[str, object]:
        """What the store holds, as far as its user is told."""
        store = self.store
        found: dict[str, object] = {
            "prepared": [info.xid for info in store.prepared.list()],
            "ledger": store.integration.ledger_many(
                [f"k{n}{x}" for n in range(401) for x in TAILS]
            ),
            "states": {name: store.states.items(name) for name in store.states.names()},
        }
        for name in QUEUES:
            found[name] = told(store.browse(name, max_messages=ALL))
            for place in store.subscriptions(name):
                if place.name:
                    source = f"{name}/{place.name}"
                    found[source] = told(store.browse(source, max_messages=ALL))
            info = store.queue(name)
            found[f"{name}: numbers"] = (info.messages, info.end_position, info.open_transactions)
        return found

    # Steps

    def _begin(self, slot: int, large: bool, durable: bool) -> None:
        self._open_ones[slot] = self.store.transaction(large=large, durable=durable)
        self._ids[slot] = []
        self._got[slot] = []

    def _txn(self, slot: int) -> Transaction:
        """A reopening may have ended it."""
        if slot not in self._open_ones:
            self._begin(slot, large=False, durable=True)
        return self._open_ones[slot]

    def _put(self, slot: int, queue: str, payload: bytes, fields: dict[str, Any]) -> None:
        txn = self._txn(slot)
        self._ids[slot].append((queue, txn.put(queue, payload, **fields)))

    def _put_many(
        self, slot: int, queue: str, form: str, payloads: list[bytes], priority: int
    ) -> None:
        given: Any = payloads
        if form == "array":
            given = pa.array(payloads, pa.binary())
        elif form == "batch":
            columns: dict[str, Any] = {"payload": pa.array(payloads, pa.binary())}
            columns["priority"] = pa.array([priority] * len(payloads), pa.uint16())
            given = pa.record_batch(columns)
        txn = self._txn(slot)
        self._ids[slot].append((queue, txn.put_many(queue, given)))

    def _put_row(self, slot: int, form: str, rows: list[dict[str, Any]]) -> None:
        txn = self._txn(slot)
        if form == "one":
            self._ids[slot].append(("typed", txn.put("typed", rows[0])))
            return
        given: Any = rows
        if form == "batch":
            kinds = [("id", pa.int64()), ("name", pa.string()), ("amount", pa.float64())]
            given = pa.RecordBatch.from_pylist(rows, pa.schema(kinds))
        self._ids[slot].append(("typed", txn.put_many("typed", given)))

    def _put_once(self, slot: int, ids: list[str], payloads: list[bytes]) -> None:
        txn = self._txn(slot)
        if len(ids) == 1:
            made: Any = txn.put("once", payloads[0], request_id=ids[0])
        else:
            made = txn.put_many("once", payloads, request_ids=ids)
        self._ids[slot].append(("once", made))

    def _put_block(self, slot: int, queue: str, payloads: list[bytes]) -> None:
        builder = BlockBuilder()
        builder.add_many(payloads)
        (block,) = builder.build(ALL)
        txn = self._txn(slot)
        self._ids[slot].append((queue, txn.integration.put_block(queue, bytes(block.data))))

    def _stream(self, slot: int, queue: str, chunks: list[bytes], whole: bool) -> None:
        txn = self._txn(slot)
        with suppress(_Broken), txn.put_writer(queue) as writer:
            for chunk in chunks:
                writer.write(chunk)
            if not whole:
                raise _Broken
        if whole:
            self._ids[slot].append((queue, writer.message_id))

    def _get(self, slot: int, source: str, times: int) -> object:
        txn = self._txn(slot)
        found = [txn.get(source) for _ in range(times)]
        self._got[slot] += [message for message in found if message is not None]
        return told(message for message in found if message is not None)

    def _get_many(self, slot: int, source: str, most: int) -> object:
        found = self._txn(slot).get_many(source, most)
        self._got[slot] += list(found)
        return told(found)

    def _unget(self, slot: int) -> None:
        self._txn(slot).unget()

    def _reject(self, slot: int) -> None:
        txn = self._txn(slot)
        if self._got[slot]:
            txn.reject(self._got[slot].pop(), "bad")

    def _record(self, slot: int, keys: list[str], version: int) -> None:
        txn = self._txn(slot)
        for key in keys:
            txn.enter(key, max(version, 0))

    def _get_value(self, slot: int, name: str, key: str) -> object:
        return self._txn(slot).get_value(name, key)

    def _set_value(self, slot: int, name: str, key: str, value: bytes | None) -> None:
        self._txn(slot).set_value(name, key, value)

    def _seek(self, slot: int, source: str, to: Any) -> None:
        self._txn(slot).seek(source, to)

    def _read_to(self, slot: int, source: str, further: int) -> None:
        queue = source.partition("/")[0]
        first, end = self.store.integration.positions(queue)
        self._txn(slot).read_to(source, min(first + further, end))

    def _commit(self, slot: int) -> object:
        return self._ended(slot, lambda txn: txn.commit())

    def _rollback(self, slot: int) -> object:
        return self._ended(slot, lambda txn: txn.rollback())

    def _ended(self, slot: int, end: Callable[[Transaction], None]) -> object:
        txn = self._txn(slot)
        raised = self._try(partial(end, txn))
        state = txn.state
        ids = []
        if state == "committed":
            ids = [number(queue, each) for queue, made in self._ids[slot] for each in each_of(made)]
        txn.rollback()  # what was refused
        del self._open_ones[slot]
        return raised, state, txn.state, ids

    def _together(self, slots: tuple[int, ...]) -> object:
        outcomes: dict[int, object] = {}

        def commit(slot: int) -> None:
            outcomes[slot] = self._commit(slot)

        with self._dead_letters_wait():
            self.store.together([partial(commit, slot) for slot in slots])
        return sorted(outcomes.items())

    @contextmanager
    def _dead_letters_wait(self) -> Iterator[None]:
        """They take ids, after whatever commit is next: here, after all that go together.

        How many of these share a group is a limit, and they would go after the first group.
        """
        letters = self.store._maintenance._dead_letters
        letters._moving.is_here = True  # as if this thread did already
        try:
            yield
        finally:
            letters._moving.is_here = False
        letters.move_all()

    def _prepare(self, slot: int, xid: str) -> object:
        txn = self._txn(slot)
        raised = self._try(partial(txn.prepare, xid))
        return raised, txn.state

    def _decide(self, slot: int, xid: str, decision: str) -> object:
        if decision == "late":
            self._late.append(xid)
            if self._txn(slot).state != "prepared":
                self._txn(slot).rollback()
            return self._open_ones.pop(slot).state
        if decision == "commit by xid":
            self._try(lambda: self.store.prepared.commit(xid))
        elif decision == "rollback by xid":
            self._try(lambda: self.store.prepared.rollback(xid))
        elif decision == "commit" and self._txn(slot).state == "prepared":
            return self._commit(slot)
        return self._rollback(slot)

    def _decide_all(self) -> object:
        late, self._late = self._late, []
        return [self._try(partial(self.store.prepared.commit, xid)) for xid in late]

    def _alone(self, queue: str, payload: bytes, fields: dict[str, Any], durable: bool) -> object:
        made = self.store.put(queue, payload, durable=durable, **fields)
        return number(queue, made)

    def _alone_got(self, source: str) -> object:
        message = self.store.get(source)
        return None if message is None else told([message])

    def _look(self, source: str) -> object:
        return told(self.store.browse(source, max_messages=ALL))

    def _drain(self, source: str) -> object:
        """All that is there, in its order."""
        with self.store.transaction() as txn:
            return told(txn.get_many(source, ALL))

    def _checkpoint(self) -> None:
        self.store.admin.checkpoint()

    def _step(self) -> None:
        self.store._maintenance.step()

    def _advance(self) -> None:
        self.env.advance(7200)

    def _reopen(self) -> None:
        self.reopen()

    def _try(self, action: Callable[[], object]) -> str:
        try:
            action()
        except QuireError as error:
            return type(error).__name__
        return ""


class _Broken(Exception):
    """What ends a stream before its end."""


def each_of(made: Any) -> list[Any]:
    """Ids, of one message or of several."""
    return [made] if isinstance(made, (int, MessageId)) else list(made)


def number(queue: str, message_id: Any) -> int:
    """An id; those of volatile queues are no others' and not the same twice."""
    return -1 if QUEUES[queue].get("type") else int(message_id)


def told(messages: Iterable[Any]) -> list[Any]:
    """What is to be the same of messages: all but times, and ids in memory.

    How often one was delivered is noted durably where it is counted; else by a checkpoint.
    """
    return [
        (
            number(message.queue, message.id), message.queue, content(message), message.priority,
            message.group_key, message.sender,
            {k: v for k, v in (message.attributes or {}).items() if k != "quire.time"},
            message.delivery_count if message.queue == "counted" else None,
        )
        for message in messages
    ]  # fmt: skip


def content(message: Any) -> object:
    """A payload, read as a whole: its length, beginning and checksum."""
    data = repr(message.row).encode() if message.queue == "typed" else message.open().read()
    return len(data), bytes(data[:6]), crc32(data)
