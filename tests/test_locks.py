"""docs/locks.md lists every lock of the package, and threads take them in its order."""

from __future__ import annotations

import ast
import re
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import quire
from quire.engine import EmbeddedStore as Store
from quire.env import OsEnv
from quire.remote import read_address
from quire.remote.wire.protocol import COMMITTED, ID, PLAIN, PUT, PUT_HEAD
from tests.kit.raw_stream import RawStream, add, commit
from tests.lock_watch import LockWatch, locks_in_the_source
from tests.source_tree import ROOT, all_sources, nodes, parsed
from tests.test_seam import CallFinder
from tests.write_watch import WriteWatch

TEXT = (ROOT / "docs" / "locks.md").read_text()
LISTED, HAND_OVERS = (
    re.findall(r"^\| `([\w.]+)` \|", part, re.MULTILINE) for part in TEXT.split("## Hand-overs")
)
UNLOCKED = re.findall(r"`(\w+\.\w+)`", TEXT.split("### Set without a lock")[1].split("\n## ")[0])
# A commit under lock-all holds several of the first, in the order of ids. Of the second the thread
# of a server does, while commits share a write; nobody else waits for one with another in hand.
# The last two are one lock each, which its holder may take again.
SEVERAL = (
    "Queue.writers", "EmbeddedTransaction._lock", "Volatile.applying", "Temporary._changing",
)  # fmt: skip
# Of a transaction that was begun for it, which nobody else commits.
OWN = [
    (holder, "EmbeddedTransaction._lock")
    for holder in ("OverflowHandler._make_lock", "DeadLetters._passing", "Retention._superseding")
]
# Of what a store is made of; a server hands its connections from thread to thread.
PACKAGES = ("quire.engine.", "quire.journal.", "quire.ltds.", "quire.writebuffer.")
# What waits, or is waited for; and the modules that make it for all others.
WAITED_BY = frozenset(
    f"threading.{name}"
    for name in (
        "Barrier", "BoundedSemaphore", "Condition", "Event", "Lock", "RLock", "Semaphore", "Thread",
        "Timer",
    )
) | frozenset(
    (
        "_thread.RLock", "_thread.allocate_lock", "queue.LifoQueue", "queue.PriorityQueue",
        "queue.Queue",
    )
)  # fmt: skip
# The last holds back forks while it loads the others.
MAKERS = ("quire/calls/wake_up.py", "quire/env/interpreter.py", "quire/__init__.py")
ROUNDS = 40
UNLOCKED_ROUNDS = 10  # of a watch that takes more for each step


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


def made_elsewhere(source: str) -> list[str]:
    """The lines that make something to wait by, or a thread, other than by the modules for that."""
    tree = parsed(source)
    names = CallFinder(tree)
    handed = {name.rpartition(".")[2] for name in HAND_OVERS}
    meant = {  # hand-overs, and locks of which an `OwnLock` takes care
        node.value
        for node in nodes(tree, ast.Assign)
        if isinstance(node.targets[0], ast.Attribute) and node.targets[0].attr in handed
    } | {
        argument
        for node in nodes(tree, ast.Call)
        if ast.unparse(node.func) == "OwnLock"
        for argument in node.args
    }
    used = [node.func for node in nodes(tree, ast.Call) if node not in meant]
    used += [base for node in nodes(tree, ast.ClassDef) for base in node.bases]
    return [
        f"{node.lineno}: {ast.unparse(node)}" for node in used if names.dotted(node) in WAITED_BY
    ]


def test_few_modules_make_what_a_signal_may_leave_locked() -> None:
    """All else waits by a `WakeUp` or a `Condition`, and locks by a `Lock` that keeps GI3."""
    found = [
        f"{path}:{line}"
        for path in all_sources()
        if path.as_posix() not in MAKERS
        for line in made_elsewhere((ROOT / path).read_text())
    ]
    assert not found, "make it by quire.calls.wake_up or quire.env.interpreter: " + ", ".join(found)


@pytest.mark.parametrize(
    "source",
    [
        "import threading\nready = threading.Event()\n",
        "import threading as t\nclass A:\n    def __init__(self): self.changed = t.Condition()\n",
        "from threading import Lock as L\nlock = L()\n",
        "import threading\nthreading.Thread(target=print).start()\n",
        "import threading\nclass A(threading.Thread): pass\n",
        "from threading import Barrier, BoundedSemaphore\nBarrier(2), BoundedSemaphore(2)\n",
        "import queue\njobs = queue.Queue()\n",
        "from _thread import allocate_lock\nlock = allocate_lock()\n",
    ],
)
def test_the_look_for_waits_finds_each_kind(source: str) -> None:
    """The canary: the check above would notice."""
    assert made_elsewhere(source)


@pytest.mark.parametrize(
    "source",
    [
        "import threading\ndef take(lock: threading.Lock) -> None: lock.acquire()\n",
        "import threading\nclass A:\n    def __init__(self): self.gate = threading.Lock()\n",
        "import threading\nlock = OwnLock(threading.Lock())\n",
        "import asyncio\nlock, event = asyncio.Lock(), asyncio.Event()\n",
        "from queue import SimpleQueue\njobs = SimpleQueue()\n",  # one step of the interpreter
    ],
)
def test_the_look_for_waits_lets_others_pass(source: str) -> None:
    """Hand-overs of the page, locks that an `OwnLock` has, and what other libraries call so."""
    assert not made_elsewhere(source)


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


@pytest.mark.cases(2)
@pytest.mark.parametrize("strategy", ["reserve-mode", "lock-all"])
def test_no_thread_goes_up_the_order(tmp_path: Path, strategy: str) -> None:
    """Writers, readers, definitions, two phases, leases, a joined client and the maintenance."""
    watch = LockWatch(frozenset(HAND_OVERS))
    with watch.watching(), shared_store(tmp_path, strategy) as (store, joined):
        work_at_once(store, joined, ROUNDS)
        assert store.admin.verify().ok
    assert against_the_order(watch) == []
    seen = {"Queue.lock", "Sequencer._guard", "EmbeddedTransaction._lock", "Checkpointer._lock",
            "TransactionLife._lock", "Volatile.applying", "IoManager._freeing",
            "SegmentSet._making", "OverflowHandler._make_lock"}  # fmt: skip
    assert seen <= watch.taken
    assert len(watch.pairs) > 20


def test_a_request_is_handed_over_while_a_commit_is_shared(tmp_path: Path) -> None:
    """A put that has to make room goes to another thread; the commit before it awaits its write."""
    watch = LockWatch(frozenset(HAND_OVERS))
    with watch.watching(), shared_store(tmp_path, "reserve-mode") as (store, _):
        for _ in range(3):
            store.put("drops", b"z" * 5000)
        address = read_address(OsEnv(), store.path)
        assert address is not None
        with closing(RawStream(address.url)) as stream:
            stream.send(
                add(1, ("a", b"x"), form=PLAIN)
                + commit(1, 1)
                + PUT_HEAD.pack(2 + 5 + 5000, PUT, 2, 5)
                + b"drops".ljust(5005, b"z")
            )
            assert {stream.frame()[4] for _ in range(2)} == {COMMITTED, ID}
    assert ("EmbeddedTransaction._lock", "StoreServer._changed") in watch.pairs
    assert against_the_order(watch) == []


@pytest.mark.filterwarnings("ignore:this interpreter runs without the GIL:RuntimeWarning")
@pytest.mark.parametrize("has_gil", [False, True], ids=["without the GIL", "with it"])
def test_what_several_threads_set_has_a_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_gil: bool
) -> None:
    """Without the GIL all but what the page lists. The canary: with it there is more, as R (S4)."""
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: has_gil, raising=False)
    watch = LockWatch(frozenset(HAND_OVERS))
    with watch.watching(), shared_store(tmp_path, "reserve-mode") as (store, joined):
        sequencer = store._context.sequencer

        def held() -> list[str]:
            """The locks of a thread; the lead of the group commit is like one."""
            leads = getattr(sequencer._leader, "thread", None) == threading.get_ident()
            return [*watch.held(), *["the lead"] * leads]

        writes = WriteWatch(held)
        with writes.watching(PACKAGES):
            work_at_once(store, joined, UNLOCKED_ROUNDS)
    assert {"Space.used", "Subscription.delivered", "Journal.end_lsn"} <= writes.shared
    unlisted = {name: where for name, where in writes.unlocked.items() if name not in UNLOCKED}
    if has_gil:
        assert {"Space.reserving", "Sequencer._leader"} <= unlisted.keys()
    else:
        assert not unlisted, "\n".join(f"{k} {v}" for k, v in sorted(unlisted.items()))


@contextmanager
def shared_store(tmp_path: Path, strategy: str) -> Iterator[tuple[Store, Any]]:
    """A store that moves its blocks and fills its journal often; and one who has joined."""
    options: dict[str, Any] = {
        "strategy": strategy, "data_files": 2, "segment_bytes": 1 << 20,
        "checkpoint_bytes": 1 << 20, "write_buffer_messages": 50,
    }  # fmt: skip
    path = str(tmp_path / "store")
    with quire.open(path, **options) as store, quire.open(path) as joined:
        assert isinstance(store, Store)
        for name in ("v", "w"):
            store.create_queue(name, kind="topic", type="volatile" if name == "v" else "persistent")
            store.subscribe(name, "s")
        for name in ("a", "b", "full"):
            store.create_queue(name, kind="work", capacity=20_000 if name == "full" else 1 << 28)
        store.create_queue("drops", kind="work", capacity=20_000, overflow="drop_oldest")
        store.create_queue("grows", kind="work", capacity=20_000, grow_to=1 << 28)
        yield store, joined


def work_at_once(store: Store, joined: Any, rounds: int) -> None:
    """Whatever threads do, so often."""
    for_each: list[tuple[Callable[[Any, int], None], Any]] = [
        *((write, each) for each in (store, store, joined)),
        *((part, each) for part in (read, pass_on) for each in (store, joined)),
        *((part, store) for part in (define, decide, look)),
    ]
    all_at_once([partial(part, each, rounds) for part, each in for_each])


def all_at_once(parts: list[Callable[[], None]]) -> None:
    """Each in a thread of its own; what one of them raises is raised."""
    with ThreadPoolExecutor(len(parts)) as pool:
        for running in [pool.submit(part) for part in parts]:
            running.result()


def write(store: Any, rounds: int) -> None:
    """Small, middle-sized, spilled and large transactions, rollbacks, and a full queue."""
    for n in range(rounds):
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


def read(store: Any, rounds: int) -> None:
    """One message, many, and a wait for those that are not there yet."""
    for n in range(rounds):
        with store.transaction() as txn:
            txn.get("a", timeout=0.01)
            txn.get_many("b", 10)
            txn.get_arrow("a", max_messages=50)
            if n % 3 == 0:
                txn.get("full")
            if n % 4 == 0:
                txn.rollback()


def define(store: Any, rounds: int) -> None:
    """Queues and subscriptions come and go."""
    for n in range(rounds // 4):
        store.create_queue(f"t{n}", kind="topic")
        store.subscribe(f"t{n}", "s")
        store.put(f"t{n}", b"1")
        store.unsubscribe(f"t{n}", "s")
        store.drop_queue(f"t{n}")


def decide(store: Any, rounds: int) -> None:
    """Prepared transactions, and one that is aborted by another thread's call."""
    for n in range(rounds // 2):
        txn = store.transaction()
        txn.put_many("b", [b"prepared"] * 60)
        txn.prepare(f"x{n}")
        (store.prepared.commit if n % 2 else store.prepared.rollback)(f"x{n}")
        txn = store.transaction()
        txn.put("b", b"aborted")
        store.admin.abort(txn.id)


def pass_on(store: Any, rounds: int) -> None:
    """Volatile queues by themselves and with others; subscriptions of both are moved."""
    for n in range(rounds):
        store.put("v", b"alone")
        with suppress(quire.QueueInUse), store.transaction() as txn:
            for name in ("v", "w"):
                txn.put(name, b"x")
                txn.get_many(f"{name}/s", 3)
                if n % 3 == 0:
                    txn.seek(f"{name}/s", "latest")


def look(store: Any, rounds: int) -> None:
    """Checkpoints, leases, and what only reads."""
    store.create_queue("kept", kind="topic")
    store.subscribe("kept", "s")
    for n in range(rounds // 2):
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
