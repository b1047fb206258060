"""Dumps beside an owner: what is in no file yet, in queue order with what the files hold."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from quire import dump
from quire.engine import EmbeddedStore as Store
from quire.engine import EmbeddedTransaction as Transaction
from quire.file_dump.items import Finding, Item, as_json
from quire.file_dump.listing import Choices, dump_files
from quire.file_dump.owner import Owner
from quire.file_dump.words import in_words
from quire.testing import SimEnv
from tests.engine.workload import PATH, new_machine, open_store
from tests.kit.children import child

# The messages of two transactions interleave, as the write buffer holds two.
SPILLING = """
import sys
from quire.opening import open
store = open(sys.argv[1], segment_bytes=4 << 20, write_buffer_messages=2)
store.share(store._env).wait_started()
store.create_queue("q", kind="work")
store.create_queue("other", kind="work")
store.put("q", b"sealed")
store.admin.checkpoint()
store.put("q", b"single")
stays, ends, goes = (store.transaction() for _ in range(3))
for number in range(3):
    for txn in (stays, ends, goes):
        txn.put("q", b"%d" % number)
goes.rollback()
ends.commit()
stays.put("other", b"x")
print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""

QueueRecords = list[dict[str, Any]]


def queue_records(items: Iterator[Item]) -> QueueRecords:
    """The records that are listed; there is no finding."""
    listed = list(items)
    assert not [item for item in listed if isinstance(item, Finding)]
    for item in listed:
        assert all(line.isprintable() for line in in_words(item))
    return [row for row in map(as_json, listed) if row["item"] == "queue_record"]


@pytest.fixture
def told(store_path: str) -> Iterator[list[tuple[Any, ...]]]:
    """What the owner at `store_path`, another process, tells of its queue."""
    with child(SPILLING, store_path) as owner:
        assert owner.line() == "ready"
        owner.say(
            "[(r.kind, r.transaction_id, r.messages) for r in store.admin.queue_records('q')]"
        )
        yield eval(owner.line())


def test_open_transactions_in_queue_order(told: list[tuple[Any, ...]], store_path: str) -> None:
    """OPEN, spilled messages, COMMIT and ROLLBACK, after what the checkpoint has sealed."""
    sealed, *rest = queue_records(dump(store_path, queue="q"))
    assert (sealed["name"], sealed["position"]) == ("MESSAGES", 0)
    assert sealed["record_page"] is not None
    single, rest = rest[:3], rest[3:]
    assert [row["name"] for row in single] == ["OPEN", "MESSAGES", "COMMIT"]
    assert [(r["name"], r["transaction"], r["messages"]) for r in rest] == told[1:]
    assert {"OPEN", "MESSAGES", "COMMIT", "ROLLBACK"} == {row["name"] for row in rest}
    stays, ends, goes = (row["transaction"] for row in rest if row["name"] == "OPEN")
    by_transaction = {
        number: [r for r in rest if r["transaction"] == number] for number in (stays, ends, goes)
    }
    assert all(r["open"] and r["position"] is None for r in by_transaction[stays])
    committed = [r["position"] for r in by_transaction[ends] if r["messages"]]
    assert committed == sorted(committed)
    assert committed[0] == 2
    assert [r["name"] for r in by_transaction[goes]][-1] == "ROLLBACK"
    assert all(r["place"] is None for r in by_transaction[goes])
    assert queue_records(dump(store_path, queue="#1")) == [sealed, *single, *rest]


def test_the_words(told: list[tuple[Any, ...]], store_path: str) -> None:
    """What each line says; and with the messages of what is committed."""
    lines = [line for item in dump(store_path, queue="q") for line in in_words(item)]
    assert "data file 0" in lines[0]
    opened = next(line for line in lines if line.startswith("OPEN, ") and line.endswith(", open"))
    number = opened.split()[2].rstrip(",")
    spilled = next(line for line in lines if line.endswith(", open") and "no position" in line)
    assert f"MESSAGES, no position, transaction {number}, " in spilled
    assert ", data/0.dat, offset " in spilled
    assert [line for line in lines if line.startswith("ROLLBACK, transaction ")]
    gone = [line for line in lines if line.startswith("MESSAGES, no position, ")]
    assert [line for line in gone if not line.endswith(", open")]
    shown = list(dump(store_path, queue="q", messages=True))
    messages = [row for row in map(as_json, shown) if row["item"] == "message"]
    assert [m["payload_start"] for m in sorted(messages, key=lambda m: m["position"])] == [
        "sealed", "single", "0", "1", "2",
    ]  # fmt: skip


def test_from_a_position_and_offline(told: list[tuple[Any, ...]], store_path: str) -> None:
    """What is open is listed wherever the list begins; without the owner, the files alone."""
    late = queue_records(dump(store_path, queue="q", start=4))
    assert [row["position"] for row in late if row["position"] is not None] == [4]
    assert [row for row in late if row["open"]]
    alone = queue_records(dump(store_path, queue="q", offline=True))
    assert not [row for row in alone if row["open"] or row["name"] == "ROLLBACK"]
    assert sum(row["messages"] for row in alone) == 5


def test_pages_of_open_transactions(told: list[tuple[Any, ...]], store_path: str) -> None:
    """They are named; every page has one use, and the list has no gap."""
    shown = [as_json(item) for item in dump(store_path, pages=True)]
    pages = [item for item in shown if item["item"] == "pages"]
    assert [p["first"] for p in pages[1:]] == [p["first"] + p["pages"] for p in pages[:-1]]
    held = [p for p in pages if p["use"] == "open"]
    rows = [r for r in queue_records(dump(store_path, queue="q")) if r["open"] and r["place"]]
    assert {p["first"] for p in held if p["queue"] == "q"} == {r["place"]["page"] for r in rows}
    assert {p["transaction"] for p in held} == {r["transaction"] for r in rows}
    lines = [line for item in dump(store_path, pages=True) for line in in_words(item)]
    assert [line for line in lines if "use open, " in line and "transaction " in line]


# At any moment ------------------------------------------------------------------------------------


def answers(store: Store) -> Owner:
    """What the owner would tell over the socket."""
    records = {name: store.admin.queue_records(name, limit=100_000) for name in ("a", "b")}
    status = store.status()
    return Owner(status["journal"]["end_lsn"], tuple(status["transactions"]), records)


class Busy:
    """Transactions that spill, end, and wait for a decision, at random."""

    def __init__(self, store: Store, rng: random.Random) -> None:
        self._store = store
        self._rng = rng
        self._open: list[Transaction] = []
        self._prepared: list[Transaction] = []

    def step(self) -> None:
        rng = self._rng
        draw = rng.random()
        if draw < 0.15 or not self._open:
            self._open.append(self._store.transaction(large=rng.random() < 0.1))
        elif draw < 0.7:
            queue = rng.choice("ab")
            rng.choice(self._open).put_many(
                queue, [b"m" * rng.choice([5, 600])] * rng.randint(1, 3)
            )
        elif draw < 0.8:
            self._store.put(rng.choice("ab"), b"single")
        elif draw < 0.95:
            self._end(self._open.pop(rng.randrange(len(self._open))))
        elif draw < 0.97 and self._prepared:
            rng.choice([Transaction.commit, Transaction.rollback])(self._prepared.pop())
        else:
            self._store.admin.checkpoint()

    def _end(self, transaction: Transaction) -> None:
        draw = self._rng.random()
        if draw < 0.3:
            transaction.rollback()
        elif draw < 0.4:
            transaction.prepare(f"x{transaction.id}")
            self._prepared.append(transaction)
        else:
            transaction.commit()


def busy_store(seed: int) -> tuple[SimEnv, Store]:
    """With a write buffer for three messages, and the queues "a" and "b"."""
    env = new_machine(seed)
    store = open_store(env, write_buffer_messages=3, inline_limit_bytes=300)
    for name in "ab":
        store.create_queue(name, kind="work")
    return env, store


@pytest.mark.fuzz
def test_the_owners_order_is_kept(seed: int, rounds: int) -> None:
    """As `records` has it, each record with what the files say of it."""
    for number in range(max(3, rounds // 5)):
        rng = random.Random(seed * 1000 + number)
        env, store = busy_store(number)
        busy = Busy(store, rng)
        for _ in range(rng.randint(1, 60)):
            busy.step()
        owner = answers(store)
        is_open = {info["id"] for info in owner.transactions}
        for name in "ab":
            listed = queue_records(dump_files(env, PATH, Choices(queue=name, owner=owner)))
            unsealed = [r for r in listed if r["record_page"] is None and r["xid"] is None]
            ended = {
                t.transaction_id for t in owner.records[name] if t.kind in ("COMMIT", "ROLLBACK")
            }
            assert [
                (r["name"], r["transaction"], r["position"], r["messages"])
                for r in unsealed
                if r["transaction"] in ended | is_open
            ] == [
                (t.kind, t.transaction_id, t.position, t.messages)
                for t in owner.records[name]
                if t.transaction_id in ended | is_open
            ]
            check_positions(listed, store.queue(name).end_position)
        pages = list(dump_files(env, PATH, Choices(pages=True, owner=owner)))
        assert not [item for item in pages if isinstance(item, Finding)]
        store.close()


@pytest.mark.fuzz
def test_an_owner_that_goes_on(seed: int, rounds: int) -> None:
    """Between its answers and the reading: no damage, and every message once."""
    for number in range(max(3, rounds // 5)):
        rng = random.Random(seed * 1000 + number)
        env, store = busy_store(number)
        busy = Busy(store, rng)
        for _ in range(rng.randint(1, 40)):
            busy.step()
        owner = answers(store)
        for _ in range(rng.randint(1, 20)):
            busy.step()
        for name in "ab":
            items = list(dump_files(env, PATH, Choices(queue=name, owner=owner)))
            assert not [item for item in items if isinstance(item, Finding) and item.damage]
            listed = [as_json(item) for item in items if item.item == "queue_record"]
            check_positions(listed, None)
        pages = list(dump_files(env, PATH, Choices(pages=True, owner=owner)))
        assert not [item for item in pages if isinstance(item, Finding) and item.damage]
        store.close()


def check_positions(listed: QueueRecords, end: int | None) -> None:
    """Each position once, up to the end."""
    spans = sorted(
        (r["position"], r["position"] + r["messages"]) for r in listed if r["position"] is not None
    )
    position = 0
    for start, stop in spans:
        assert start == position
        position = stop
    assert end is None or position == end
