"""docs/locks.md lists every lock of the package, and threads take them in its order."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import quire
from quire.engine import EmbeddedStore as Store
from tests.lock_watch import LockWatch, locks_in_the_source
from tests.source_tree import ROOT

TEXT = (ROOT / "docs" / "locks.md").read_text()
LISTED, HAND_OVERS = (
    re.findall(r"^\| `([\w.]+)` \|", part, re.MULTILINE) for part in TEXT.split("## Hand-overs")
)
# A commit under lock-all holds several of the first, in the order of ids. Of the second the thread
# of a server does, while commits share a write; nobody else waits for one with another in hand.
# The last two are one lock each, which its holder may take again.
SEVERAL = (
    "Queue.writers", "TransactionLife._lock", "Volatile.applying", "Temporary._changing",
)  # fmt: skip
# Of a transaction that was begun for it, which nobody else commits.
OWN = [
    (holder, "TransactionLife._lock") for holder in ("Room._one_at_a_time", "DeadLetters._passing")
]
ROUNDS = 40


def against_the_order(watch: LockWatch) -> list[str]:
    """The pairs in which the lock that was held stands below the one that was taken."""
    order = {name: place for place, name in enumerate(LISTED)}
    order |= dict.fromkeys(HAND_OVERS, len(order))
    unknown = len(order)  # the first test names it
    return [
        f"{where}: {taken} was taken while {held} was held"
        for (held, taken), where in watch.pairs.items()
        if order.get(held, 0) >= order.get(taken, unknown)
        and not (held == taken and taken in SEVERAL)
        and (held, taken) not in OWN
    ]


def test_every_lock_is_listed_once() -> None:
    """No lock is missing on the page, and none of the page is missing in the package."""
    names = LISTED + HAND_OVERS
    assert len(names) == len(set(names))
    assert set(names) == locks_in_the_source().keys()


def test_the_watch_notices_a_wrong_order(tmp_path: Path) -> None:
    """The canary: a queue's lock inside that of a data file's free space."""
    watch = LockWatch(frozenset(HAND_OVERS))
    with watch.watching(), quire.open(str(tmp_path / "store")) as store:
        assert isinstance(store, Store)
        store.create_queue("a", kind="work")
        store.put("a", b"1")
        assert against_the_order(watch) == []
        (queue,) = store._context.state.queues.values()
        (manager,) = store._context.places.managers
        with manager.space._lock, queue.lock:
            pass
    (wrong,) = against_the_order(watch)
    assert wrong.endswith("Queue.lock was taken while FreeSpace._lock was held")


@pytest.mark.parametrize("strategy", ["reserve-mode", "lock-all"])
def test_no_thread_goes_up_the_order(tmp_path: Path, strategy: str) -> None:
    """Writers, readers, definitions, two phases, leases, a joined client and the maintenance."""
    options: dict[str, Any] = {
        "strategy": strategy, "data_files": 2, "segment_bytes": 1 << 20,
        "checkpoint_bytes": 1 << 20, "write_buffer_messages": 50,
    }  # fmt: skip
    watch = LockWatch(frozenset(HAND_OVERS))
    path = str(tmp_path / "store")
    with watch.watching(), quire.open(path, **options) as store, quire.open(path) as joined:
        for name in ("v", "w"):
            store.create_queue(name, kind="topic", type="volatile" if name == "v" else "persistent")
            store.subscribe(name, "s")
        for name in ("a", "b", "full"):
            store.create_queue(name, kind="work", capacity=20_000 if name == "full" else 1 << 28)
        store.create_queue("drops", kind="work", capacity=20_000, overflow="drop_oldest")
        store.create_queue("grows", kind="work", capacity=20_000, grow_to=1 << 28)
        parts: list[Callable[[], None]] = [
            *(lambda store=each: write(store) for each in (store, store, joined)),
            *(lambda store=each: read(store) for each in (store, joined)),
            lambda: define(store),
            lambda: decide(store),
            *(lambda store=each: pass_on(store) for each in (store, joined)),
            lambda: look(store),
        ]
        all_at_once(parts)
        assert store.admin.verify().ok
    assert against_the_order(watch) == []
    seen = {"Queue.lock", "Sequencer._guard", "TransactionLife._lock", "Checkpointer._lock",
            "RemoteLife._lock", "Volatile.applying", "IoManager._freeing",
            "SegmentSet._making", "Room._one_at_a_time"}  # fmt: skip
    assert seen <= watch.taken
    assert len(watch.pairs) > 20


def all_at_once(parts: list[Callable[[], None]]) -> None:
    """Each in a thread of its own; what one of them raises is raised."""
    with ThreadPoolExecutor(len(parts)) as pool:
        for running in [pool.submit(part) for part in parts]:
            running.result()


def write(store: Any) -> None:
    """Small, middle-sized, spilled and large transactions, rollbacks, and a full queue."""
    for n in range(ROUNDS):
        store.put("a", b"alone")
        with suppress(quire.QueueFull), store.transaction(large=n % 9 == 0) as txn:
            txn.put_many("a", [b"x" * 9000] * (1 + n % 40))
            txn.put("b", b"y")
            if n % 5 == 0:
                txn.put("full", b"z" * 5000)
            if n % 5 == 1:
                txn.put("drops", b"z" * 5000)
                txn.put("grows", b"z" * 5000)
            if n % 7 == 0:
                txn.rollback()


def read(store: Any) -> None:
    """One message, many, and a wait for those that are not there yet."""
    for n in range(ROUNDS):
        with store.transaction() as txn:
            txn.get("a", timeout=0.01)
            txn.get_many("b", 10)
            txn.get_arrow("a", max_messages=50)
            if n % 3 == 0:
                txn.get("full")
            if n % 4 == 0:
                txn.rollback()


def define(store: Any) -> None:
    """Queues and subscriptions come and go."""
    for n in range(ROUNDS // 4):
        store.create_queue(f"t{n}", kind="topic")
        store.subscribe(f"t{n}", "s")
        store.put(f"t{n}", b"1")
        store.unsubscribe(f"t{n}", "s")
        store.drop_queue(f"t{n}")


def decide(store: Any) -> None:
    """Prepared transactions, and one that is aborted by another thread's call."""
    for n in range(ROUNDS // 2):
        txn = store.transaction()
        txn.put_many("b", [b"prepared"] * 60)
        txn.prepare(f"x{n}")
        (store.prepared.commit if n % 2 else store.prepared.rollback)(f"x{n}")
        txn = store.transaction()
        txn.put("b", b"aborted")
        store.admin.abort(txn.id)


def pass_on(store: Any) -> None:
    """Volatile queues by themselves and with others; subscriptions of both are moved."""
    for n in range(ROUNDS):
        store.put("v", b"alone")
        with suppress(quire.QueueInUse), store.transaction() as txn:
            for name in ("v", "w"):
                txn.put(name, b"x")
                txn.get_many(f"{name}/s", 3)
                if n % 3 == 0:
                    txn.seek(f"{name}/s", "latest")


def look(store: Any) -> None:
    """Checkpoints, leases, and what only reads."""
    store.create_queue("kept", kind="topic")
    store.subscribe("kept", "s")
    for n in range(ROUNDS // 2):
        store.put("kept", b"1")
        store.admin.checkpoint()
        lease = store.integration.lease("kept", *store.integration.positions("kept"))
        store.integration.renew_lease(lease.lease_id)
        store.integration.end_lease(lease.lease_id)
        store.browse("b", max_messages=10)
        store.status()
        store.admin.transactions()
        if n % 10 == 0:
            assert store.admin.verify().ok
