"""Owners end, by closing or by SIGKILL: the store objects of the other processes live on."""

from __future__ import annotations

import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from quire.errors import (
    AlreadyCommitted,
    ConnectionLost,
    InvalidArgument,
    OutcomeUnknown,
    PositionLost,
    QueueNotFound,
    QuireError,
    StoreClosed,
    StoreCorrupt,
    TransactionClosed,
    TransactionNotFound,
    TransactionTimeout,
)
from quire.interface.store import Store
from quire.opening import open as open_store
from quire.remote import JoinedStore
from quire.remote.client.joined_store import OWNED_METHODS
from quire.remote.client.owner_session import OwnerSession
from quire.remote.ownership.shared_store import SharedStore
from tests.kit.actors import OPTIONS, Actor, actor, owner_with_work, succession_of
from tests.kit.children import child, is_stopped
from tests.kit.waiting import SECONDS, eventually

ENDS: dict[str, Callable[[Actor], None]] = {"closes": Actor.end, "is killed": Actor.kill}
ends = pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)


owner = pytest.fixture(owner_with_work)


@pytest.fixture
def store(owner: Actor, store_path: str) -> Iterator[JoinedStore]:
    """The store, joined by this process."""
    with open_store(store_path, **OPTIONS) as joined:
        assert isinstance(joined, JoinedStore)
        assert (joined.role, joined.owner_process_id) == ("joined", owner.process.pid)
        yield joined


def beside(call: Callable[[], object]) -> tuple[threading.Thread, list[BaseException]]:
    """A call in a thread of its own, and what it raises."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except QuireError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, errors


def break_connection(store: JoinedStore) -> None:
    """What a network might do, though its owner lives."""
    inner = store.owner
    assert isinstance(inner, OwnerSession)
    for connection in list(inner.connection._open):
        connection.cut()
    inner.connection.lose("a test")


# Calls outside of transactions --------------------------------------------------------------------


@pytest.mark.promise(12)
@ends
def test_the_store_object_lives_on(
    owner: Actor, store: JoinedStore, end: Callable[[Actor], None]
) -> None:
    """This process owns the store then; what was acknowledged is there, and all calls go on."""
    assert store.put("work", b"1") == 1
    end(owner)
    assert store.put("work", b"2") == 2
    assert store.role == "owner"
    assert store.browse("work").payloads() == [b"1", b"2"]
    with store.transaction() as txn:
        assert txn.get_many("work").payloads() == [b"1", b"2"]
    assert store.admin.verify().ok


@pytest.mark.promise(12)
@ends
def test_nobody_has_to_call(owner: Actor, store: JoinedStore, end: Callable[[Actor], None]) -> None:
    """The store has an owner again by itself, so that its time-outs and the like go on."""
    end(owner)
    eventually(lambda: store.role == "owner")


@pytest.mark.promise(12)
@ends
def test_one_of_several_takes_over(
    owner: Actor, store: JoinedStore, store_path: str, end: Callable[[Actor], None]
) -> None:
    """The others join it, through three generations of owners."""
    with actor(store_path) as second, actor(store_path) as third:
        actors = [second, third]
        end(owner)
        for number in range(2):
            for each in actors:
                assert each.ask(f'store.put("work", b"{number}") > 0') == "True"
            store.put("work", b"x")
            roles = [store.role, *(each.ask("store.role").strip("'") for each in actors)]
            assert roles.count("owner") == 1
            if store.role == "owner":
                break
            actor_that_owns = actors.pop(roles.index("owner") - 1)
            end(actor_that_owns)
        eventually(lambda: store.queue("work").messages >= 2)


@ends
def test_every_kind_of_call_goes_on(
    owner: Actor, store: JoinedStore, end: Callable[[Actor], None]
) -> None:
    """Each as the first after the owner has ended, by a store object of its own."""
    store.put("work", b"x")
    calls: list[Callable[[Any], object]] = [
        lambda s: s.failed,
        lambda s: s.create_queue("q1", kind="topic"),
        lambda s: s.admin.create_queues(name for name in ("q2", "q3")),
        lambda s: s.admin.catalog(),
        lambda s: s.queues(name for name in ("work",)),
        lambda s: s.queue("work"),
        lambda s: s.integration.positions("work"),
        lambda s: s.integration.positions_many(name for name in ("work",)),
        lambda s: s.admin.queue_records("work"),
        lambda s: s.subscriptions("work"),
        lambda s: s.transaction().rollback(),
        lambda s: s.admin.transactions(),
        lambda s: s.prepared.list(),
        lambda s: s.put("work", b"y"),
        lambda s: s.browse("work"),
        lambda s: s.integration.ledger("k"),
        lambda s: s.integration.ledger_many(key for key in ("k",)),
        lambda s: s.integration.lease("work", 0, 1),
        lambda s: s.integration.lease_many(part for part in [("work", 0, 1)]),
        lambda s: s.integration.end_lease(1),
        lambda s: s.states.get("s", "k"),
        lambda s: s.states.items("s"),
        lambda s: s.states.names(),
        lambda s: s.states.drop("s"),
        lambda s: s.admin.checkpoint(),
        lambda s: s.status(),
        lambda s: s.admin.verify(),
    ]
    stores = [open_store(store.path) for _ in calls]
    end(owner)
    for call, each in zip(calls, stores, strict=True):
        call(each)
    assert {queue.name for queue in store.queues()} == {"work", "q1", "q2", "q3"}
    for each in stores:
        each.close()


WORKER = """
import sys, threading, time
from quire.opening import open
told = threading.Event()
def wait():
    sys.stdin.readline()
    told.set()
threading.Thread(target=wait, daemon=True).start()
with open(sys.argv[1], segment_bytes=4 << 20) as store:
    print(store.role, flush=True)
    put = []
    while not told.is_set():
        payload = f"{sys.argv[2]} {len(put)}".encode()
        put.append(payload)
        store.put("work", payload)
        time.sleep(0.005)
print(len(put), flush=True)
"""


@pytest.mark.promise(12)
def test_three_web_workers(store_path: str) -> None:
    """Each puts in a loop; when the first, which owns the store, has ended the others go on."""
    with open_store(store_path, **OPTIONS) as store:
        store.create_queue("work", kind="work")
    with child(WORKER, store_path, "a") as first:
        assert first.line() == "owner"
        with child(WORKER, store_path, "b") as b, child(WORKER, store_path, "c") as c:
            assert (b.line(), c.line()) == ("joined", "joined")
            counts = {}
            for name, process in (("a", first), ("b", b), ("c", c)):
                time.sleep(0.7)  # for some puts, with this owner
                process.say("enough")
                counts[name] = int(process.line())
            assert [process.wait() for process in (first, b, c)] == [0, 0, 0]
    with open_store(store_path) as store:
        found = store.browse("work", max_messages=100_000).payloads()
    assert sorted(found) == sorted(
        f"{name} {number}".encode() for name, count in counts.items() for number in range(count)
    )


@pytest.mark.promise(12)
def test_promise_12_an_orderly_end_leaves_nothing_in_doubt(store_path: str) -> None:
    """Whoever puts just then, alone or in a transaction, has it done, or is told it was not."""
    count, ended = 4, threading.Event()
    there = [0] * count  # by what each thread has done
    owner = open_store(store_path, **OPTIONS)
    owner.create_queue("work", kind="work")

    def work(index: int, store: Store) -> None:
        while not ended.is_set():
            try:
                if index % 2:
                    store.put("work", b"x")
                    more = 1
                else:
                    with store.transaction() as txn:
                        txn.put("work", b"x")
                        more = 2 - (txn.get("work") is not None)
                        txn.put("work", b"x")
            except ConnectionLost:
                continue
            there[index] += more

    def is_taken_over(stores: list[Store]) -> bool:
        return "owner" in [store.role for store in stores]

    for _ in range(12):
        ended.clear()
        joined = [open_store(store_path, **OPTIONS) for _ in range(2)]
        threads = [beside(partial(work, index, joined[index // 2])) for index in range(count)]
        enough = sum(there) + 20
        eventually(lambda enough=enough: sum(there) > enough)  # type: ignore[misc]
        owner.close()
        eventually(partial(is_taken_over, joined))
        ended.set()
        for thread, _ in threads:
            thread.join(SECONDS)
        assert [errors for _, errors in threads] == [[]] * count
        joined.sort(key=lambda store: store.role)
        other, owner = joined
        other.close()
    assert owner.queue("work").messages == sum(there)
    owner.close()


def test_a_change_in_doubt(owner: Actor, store: JoinedStore) -> None:
    """OutcomeUnknown for a put, which may have been done; the next call goes on."""
    owner.ask('hang(EmbeddedStore, "put_now", "after")')
    owner.ask('hang(EmbeddedTransaction, "commit", "after")')
    thread, errors = beside(lambda: store.put("work", b"x"))
    assert owner.line() == "hanging"
    owner.kill()
    thread.join(SECONDS)
    assert [type(error) for error in errors] == [OutcomeUnknown]
    assert store.browse("work").payloads() == [b"x"]


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(
    "call", ["subscribe", "checkpoint", "lease_many", "create_queue", "alter_queue"]
)
def test_what_may_be_done_twice(owner: Actor, store: JoinedStore, call: str, moment: str) -> None:
    """It is tried again though nobody knows whether it was done."""
    store.create_queue("topic", kind="topic")
    kind, method = {
        "subscribe": ("EmbeddedStore", "subscribe_for"),
        "create_queue": ("AdminHandlers", "create_queues"),
        "checkpoint": ("AdminHandlers", "checkpoint"),
        "lease_many": ("IntegrationHandlers", "lease_many"),
        "alter_queue": ("EmbeddedStore", "alter_queue"),
    }[call]
    owner.ask(f'hang({kind}, "{method}", "{moment}")')
    calls: dict[str, Callable[[], object]] = {
        "subscribe": lambda: store.subscribe("topic", "s", "latest"),
        "checkpoint": store.admin.checkpoint,
        "lease_many": lambda: store.integration.lease("work", 0, 0),
        "create_queue": lambda: store.create_queue("new", kind="topic", exist_ok=True),
        "alter_queue": lambda: store.alter_queue("topic", text="altered"),
    }
    thread, errors = beside(calls[call])
    assert owner.line() == "hanging"
    owner.kill()
    thread.join(SECONDS)
    assert not errors
    assert [s.name for s in store.subscriptions("topic")] == ["s"] * (call == "subscribe")
    assert [queue.name for queue in store.queues()].count("new") == (call == "create_queue")
    assert store.queue("topic").text == "altered" * (call == "alter_queue")


@pytest.mark.parametrize("call", ["abort", "transaction"])
def test_numbers_of_transactions_are_one_owners(
    owner: Actor, store: JoinedStore, call: str
) -> None:
    """After it has ended they are not found, rather than another transaction be aborted."""
    owner.ask("begin()")
    owner.ask(f'hang(AdminHandlers, "{call}", "before")')
    [info] = store.admin.transactions()
    thread, errors = beside(lambda: getattr(store.admin, call)(info.id))
    assert owner.line() == "hanging"
    owner.kill()
    thread.join(SECONDS)
    assert [type(error) for error in errors] == [TransactionNotFound]
    assert "the owner of the store has ended" in str(errors[0])


@ends
def test_leases_end_with_their_owner(
    owner: Actor, store: JoinedStore, end: Callable[[Actor], None]
) -> None:
    """Its reader is told when it renews, and takes a new one."""
    store.put("work", b"x")
    lease = store.integration.lease("work", 0, 1)
    end(owner)
    with pytest.raises(PositionLost, match="take a new one"):
        store.integration.renew_lease(lease.lease_id)
    store.integration.end_lease(lease.lease_id)
    assert store.integration.lease("work", 0, 1).pieces


# Transactions -------------------------------------------------------------------------------------


@pytest.mark.promise(2)
@ends
def test_open_transactions_end(
    owner: Actor, store: JoinedStore, end: Callable[[Actor], None]
) -> None:
    """ConnectionLost, at every call, and nothing of it took effect; what it had got comes back."""
    calls: list[Callable[[Any], object]] = [
        lambda txn: txn.get("work"),
        lambda txn: txn.get_many("work"),
        lambda txn: txn.read_to("work", 1),
        lambda txn: txn.commit(),
        lambda txn: txn.prepare("x"),
        lambda txn: txn.__exit__(None, None, None),
    ]
    open_ones = []
    for _ in calls:
        store.put("work", b"got")
        txn = store.transaction()
        assert txn.get("work") is not None
        txn.put("work", b"put")
        open_ones.append(txn)
    end(owner)
    eventually(lambda: store.role == "owner")
    for txn, call in zip(open_ones, calls, strict=True):
        for _ in range(2):
            with pytest.raises(ConnectionLost, match=r"begin it again with store\.transaction"):
                call(txn)
        assert txn.state == "rolled back"
        txn.rollback()
    with store.transaction() as again:
        assert again.get_many("work").payloads() == [b"got"] * len(calls)
    assert store.prepared.list() == []


def test_one_that_only_rolls_back(owner: Actor, store: JoinedStore) -> None:
    """That is done already; whether by the end of a block that failed, or by a call."""
    store.put("work", b"got")
    txn = store.transaction()
    assert txn.get("work") is not None
    owner.kill()
    txn.rollback()
    assert txn.state == "rolled back"
    with pytest.raises(TransactionClosed):
        txn.get("work")
    assert store.browse("work").payloads() == [b"got"]


def test_a_block_that_goes_on_does_not_commit(owner: Actor, store: JoinedStore) -> None:
    """Who has caught the error inside of the block gets it again at its end."""

    def block() -> None:
        with store.transaction() as txn:
            txn.get("work")
            owner.kill()
            with pytest.raises(ConnectionLost):
                txn.get("work", timeout=SECONDS)

    with pytest.raises(ConnectionLost, match="begin it again"):
        block()


@ends
def test_a_get_that_waits_ends(
    owner: Actor, store: JoinedStore, store_path: str, end: Callable[[Actor], None]
) -> None:
    """At once; a get of the next transaction waits on with the next owner."""
    with actor(store_path) as other:
        thread, errors = beside(lambda: store.transaction().get("work", timeout=1000))
        eventually(store.admin.transactions)
        end(owner)
        thread.join(SECONDS)
        assert [type(error) for error in errors] == [ConnectionLost]
        waiting = store.transaction()
        thread, errors = beside(lambda: waiting.get("work", timeout=SECONDS))
        eventually(store.admin.transactions)
        other.ask('store.put("work", b"x")')
        thread.join(SECONDS)
        assert not errors
        waiting.commit()
        assert store.queue("work").messages == 0


@pytest.mark.promise(1, 2)
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("known", [None, 6])
def test_the_ledger_resolves_a_commit(
    owner: Actor, store: JoinedStore, moment: str, known: int | None
) -> None:
    """One in doubt is done if the ledger has its entry, and else it is not."""
    if known:
        with store.transaction() as first:
            first.enter("key", known)
    owner.ask(f'hang(EmbeddedTransaction, "commit", "{moment}")')
    txn = store.transaction()
    txn.put("work", b"x")
    txn.enter("key", 7)
    thread, errors = beside(txn.commit)
    assert owner.line() == "hanging"
    owner.kill()
    thread.join(SECONDS)
    if moment == "after":
        assert not errors
        assert txn.state == "committed"
        assert store.browse("work").payloads() == [b"x"]
        with pytest.raises(TransactionClosed):
            txn.commit()
    else:
        assert [type(error) for error in errors] == [ConnectionLost]
        assert txn.state == "rolled back"
        assert store.browse("work").payloads() == []
    assert store.integration.ledger("key") == (7 if moment == "after" else known)


def test_an_entry_that_was_there_before(owner: Actor, store: JoinedStore) -> None:
    """It proves nothing: the commit is refused by the ledger, whenever it came."""
    with store.transaction() as first:
        first.enter("key", 7)
    owner.ask('hang(EmbeddedTransaction, "commit", "before")')
    txn = store.transaction()
    txn.put("work", b"x")
    txn.enter("key", 7)
    thread, errors = beside(txn.commit)
    assert owner.line() == "hanging"
    owner.kill()
    thread.join(SECONDS)
    assert [type(error) for error in errors] == [AlreadyCommitted]
    assert txn.state == "rolled back"
    assert store.browse("work").payloads() == []


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_commit_without_entries_is_in_doubt(
    owner: Actor, store: JoinedStore, moment: str
) -> None:
    """Nobody can tell; it is not tried again."""
    owner.ask(f'hang(EmbeddedTransaction, "commit", "{moment}")')
    txn = store.transaction()
    txn.put("work", b"x")
    thread, errors = beside(txn.commit)
    assert owner.line() == "hanging"
    owner.kill()
    thread.join(SECONDS)
    assert [type(error) for error in errors] == [OutcomeUnknown]
    assert txn.state == "in doubt"
    assert store.queue("work").messages == (1 if moment == "after" else 0)


def test_a_connection_that_is_lost_tells_nothing_while_its_owner_lives(
    owner: Actor, store: JoinedStore
) -> None:
    """The commit may still be under way there: nothing follows from what the ledger lacks."""
    owner.ask('hang(EmbeddedTransaction, "commit", "before")')
    txn = store.transaction()
    txn.put("work", b"x")
    txn.enter("key", 7)
    thread, errors = beside(txn.commit)
    assert owner.line() == "hanging"
    break_connection(store)
    thread.join(SECONDS)
    assert [type(error) for error in errors] == [OutcomeUnknown]
    assert txn.state == "in doubt"
    assert (store.role, store.owner_process_id) == ("joined", owner.process.pid)
    assert store.queue("work").messages == 0


# Deliveries that failed, and sequences ------------------------------------------------------------

RETRIES = {"retried": 30.0, "soon": 0.5}


def fail_all(store: Store, how: str) -> None:
    """One of each queue has failed, and of the sequence the first is read; durable then."""
    for name, seconds in RETRIES.items():
        with store.transaction() as txn:
            message = txn.get(name)
            assert message is not None
            if how == "rejected":
                txn.reject(message, delay=seconds)
            elif how == "rolled back":
                txn.rollback()
            else:
                txn.prepare(name)
                store.prepared.rollback(name)
    with store.transaction() as txn:
        assert txn.get("numbered") is not None
    store.put("work", b"durable, and all before it")


@pytest.mark.promise(12)
@ends
@pytest.mark.parametrize("how", ["rejected", "rolled back", "prepared"])
def test_waits_counts_and_sequences_go_on_at_the_next_owner(
    owner: Actor, store: JoinedStore, end: Callable[[Actor], None], how: str
) -> None:
    """What is to come later does, with its count; and a sequence waits for its next number."""
    for name, seconds in RETRIES.items():
        retry: Any = {"delay": seconds, "growth": "constant"}
        store.create_queue(name, kind="work", retry=retry, max_deliveries=9, dead_letter="work")
        store.put(name, b"m")
    store.create_queue("numbered", kind="work", order={"sequence": "n", "wait": 60.0})
    store.put("numbered", b"1", sender="s", attributes={"n": "1"})
    fail_all(store, how)
    end(owner)
    assert [each.delayed for each in store.subscriptions("retried")] == [1]
    assert store.role == "owner"
    assert store.get("retried") is None
    with store.transaction() as txn:
        message = txn.get("soon", timeout=SECONDS)
        assert message is not None
        assert (message.payload, message.failed_count, message.delivery_count) == (b"m", 1, 2)
    for number in (3, 2):
        told = store.get_many("numbered").payloads()
        assert told == []
        store.put("numbered", b"%d" % number, sender="s", attributes={"n": str(number)})
    assert store.get_many("numbered").payloads() == [b"2", b"3"]


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("call", ["rollback", "reject"])
def test_an_owner_is_killed_while_a_message_fails(
    owner: Actor, store: JoinedStore, call: str, moment: str
) -> None:
    """The message is there at the next owner, later or at once, and counts as that is noted."""
    retry: Any = {"delay": 30.0, "growth": "constant"}
    store.create_queue("retried", kind="work", retry=retry, max_deliveries=9, dead_letter="work")
    store.put("retried", b"m")
    owner.ask(f'hang(EmbeddedTransaction, "{call}", "{moment}")')
    txn = store.transaction()
    message = txn.get("retried")
    assert message is not None
    fails = txn.rollback if call == "rollback" else partial(txn.reject, message)
    thread, _ = beside(fails)
    assert owner.line() == "hanging"
    owner.kill()
    thread.join(SECONDS)
    eventually(lambda: store.role == "owner")
    [later] = [each.delayed for each in store.subscriptions("retried")]
    with store.transaction() as again:
        message = again.get("retried")
        assert (message is None) == (later == 1)
        if message is not None:
            assert (message.failed_count, message.delivery_count) == (0, 2)
    assert moment == "after" or not later
    assert store.admin.verify().ok


# Two-phase commit ---------------------------------------------------------------------------------


@pytest.mark.promise(7)
@ends
@pytest.mark.parametrize("by", ["object", "xid"])
def test_a_prepared_transaction_is_decided_at_the_next_owner(
    owner: Actor, store: JoinedStore, end: Callable[[Actor], None], by: str
) -> None:
    """By the object that prepared it, or by its xid; once."""
    commit = end is Actor.end
    txn = store.transaction()
    txn.put("work", b"x")
    txn.prepare("x1")
    end(owner)
    if by == "object":
        (txn.commit if commit else txn.rollback)()
        assert txn.state == ("committed" if commit else "rolled back")
    else:
        (store.prepared.commit if commit else store.prepared.rollback)("x1")
        with pytest.raises(TransactionClosed, match="decided already"):
            txn.commit()
    assert store.prepared.list() == []
    assert store.queue("work").messages == int(commit)
    with pytest.raises(TransactionNotFound):
        store.prepared.commit("x1")


@pytest.mark.promise(7)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_prepare_in_doubt(owner: Actor, store: JoinedStore, moment: str) -> None:
    """The next owner lists it, or it was rolled back."""
    owner.ask(f'hang(EmbeddedTransaction, "prepare", "{moment}")')
    txn = store.transaction()
    txn.put("work", b"x")
    thread, errors = beside(lambda: txn.prepare("x1"))
    assert owner.line() == "hanging"
    owner.kill()
    thread.join(SECONDS)
    if moment == "after":
        assert not errors
        assert txn.state == "prepared"
        with txn:
            pass
        txn.commit()
        assert txn.state == "committed"
        assert store.browse("work").payloads() == [b"x"]
    else:
        assert [type(error) for error in errors] == [ConnectionLost]
        assert txn.state == "rolled back"
    assert store.prepared.list() == []


@pytest.mark.promise(7)
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("by", ["object", "xid"])
def test_a_decision_in_doubt(owner: Actor, store: JoinedStore, moment: str, by: str) -> None:
    """It is tried again if the next owner still lists the xid."""
    txn = store.transaction()
    txn.put("work", b"x")
    txn.prepare("x1")
    method = 'EmbeddedTransaction, "commit"' if by == "object" else 'EmbeddedStore, "decide"'
    owner.ask(f'hang({method}, "{moment}")')
    thread, errors = beside(txn.commit if by == "object" else lambda: store.prepared.commit("x1"))
    assert owner.line() == "hanging"
    owner.kill()
    thread.join(SECONDS)
    assert not errors
    assert store.prepared.list() == []
    assert store.browse("work").payloads() == [b"x"]


# Owning, closing, forking -------------------------------------------------------------------------


@ends
def test_options_hold_for_the_one_who_owns(store_path: str, end: Callable[[Actor], None]) -> None:
    """A successor's own."""
    with actor(store_path, data_files=2) as owner:
        owner.ask('store.create_queue("work", kind="work")')
        with open_store(store_path, transaction_timeout=0.3, data_files=2) as store:
            end(owner)
            eventually(lambda: store.role == "owner")
            assert len(store.status()["data"]["files"]) == 2
            txn = store.transaction()
            with pytest.raises(TransactionTimeout):  # noqa: PT012 - the put may come too late
                txn.put("work", b"x")
                eventually(lambda: txn.state == "rolled back")
                txn.commit()


def test_options_are_checked_by_one_who_joins(owner: Actor, store_path: str) -> None:
    """Not only when it has to own the store."""
    with pytest.raises(InvalidArgument, match="speed"):
        open_store(store_path, speed=9)
    with pytest.raises(InvalidArgument, match="this one has 1, leave"):
        open_store(store_path, data_files=7)  # as where nobody owns it
    with open_store(store_path, data_files=1) as store:
        assert store.role == "joined"


@ends
def test_a_store_that_was_closed_is_not_taken_over(
    owner: Actor, store: JoinedStore, end: Callable[[Actor], None]
) -> None:
    """Nor does a transaction of it say anything else."""
    txn = store.transaction()
    txn.put("work", b"x")
    store.close()
    store.close()
    end(owner)
    for call in (store.queues, txn.commit, lambda: store.put("work", b"x"), store.transaction):
        with pytest.raises(StoreClosed, match="was closed"):
            call()
    assert store.role == "joined"


def test_closing_a_store_while_it_is_handed_over(owner: Actor, store: JoinedStore) -> None:
    """It ends a call that waits, and the lock is free afterwards."""
    store.queues()
    owner.process.send_signal(signal.SIGSTOP)  # it has the store, and answers nobody
    eventually(lambda: is_stopped(owner.process.pid))
    thread, errors = beside(store.queues)
    break_connection(store)
    time.sleep(0.1)
    assert thread.is_alive()
    store.close()
    thread.join(SECONDS)
    assert [type(error) for error in errors] == [StoreClosed]
    owner.kill()
    with open_store(store.path, share=False) as again:
        assert again.role == "owner"


def test_a_store_that_cannot_be_opened(owner: Actor, store: JoinedStore) -> None:
    """Calls say why, until it can be; then they go on."""
    store.put("work", b"x")
    files = list(Path(store.path, "checkpoint").glob("*.qck"))
    contents = [file.read_bytes() for file in files]
    owner.kill()
    for file in files:
        file.write_bytes(b"damaged" * 1000)
    eventually(lambda: store.role == "owner" or succession_of(store)._trouble is not None)
    if store.role == "joined":
        with pytest.raises(StoreCorrupt):
            store.queues()
    for file, content in zip(files, contents, strict=True):
        file.write_bytes(content)
    eventually(lambda: store.role == "owner")
    assert store.browse("work").payloads() == [b"x"]


FORKING = """
import os, signal, sys
from quire.errors import StoreClosed
from quire.opening import open
store = open(sys.argv[1])
assert store.role == "joined"
txn = store.transaction()
child = os.fork()
if child == 0:
    signal.alarm(100)
    for call in (store.queues, lambda: store.put("work", b"x"), txn.commit, store.transaction):
        try:
            call()
            os._exit(1)
        except StoreClosed as error:
            assert "forked" in str(error), error
    store.close()
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
sys.stdin.readline()
store.put("work", b"y")
print(store.role, flush=True)
store.close()
"""


def test_a_fork_elects_nobody(owner: Actor, store_path: str) -> None:
    """The child is told to start anew; its parent takes over when the owner ends."""
    with child(FORKING, store_path) as process:
        assert process.line() == "7"
        owner.kill()
        process.say("go")
        assert process.line() == "owner"
        assert process.wait() == 0


def test_who_took_over_calls_the_owned_store(owner: Actor, store: JoinedStore) -> None:
    """Its methods are the owned store's own, so a call costs what it costs there."""
    assert {"put", "put_many", "get", "get_many", "transaction"} <= set(OWNED_METHODS)
    owner.kill()
    eventually(lambda: set(OWNED_METHODS) <= vars(store).keys())
    for name in OWNED_METHODS:
        assert getattr(store, name).__self__ is store.owner, name
    assert isinstance(store.owner, SharedStore)


def test_dropped_while_it_owns(owner: Actor, store_path: str) -> None:
    """The store is let go of, as any other that is dropped."""
    held = [open_store(store_path, **OPTIONS)]
    owner.kill()
    eventually(lambda: held[0].role == "owner")
    assert isinstance(held[0], JoinedStore)
    succession_of(held[0])._watch.join(SECONDS)  # it held the store, too
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        held.clear()
        eventually(lambda: told)  # once no other thread that ends has it any more
    assert told[0].category is ResourceWarning
    assert "was dropped while it was open" in str(told[0].message)
    with open_store(store_path) as again:
        assert again.queue("work").messages == 0


# Loops and calls that take messages in transactions of their own ----------------------------------


@ends
def test_a_loop_that_waits_goes_on_with_the_next_owner(
    owner: Actor, store: JoinedStore, end: Callable[[Actor], None]
) -> None:
    """Nothing was taken when the owner ended: the loop sees no error, nor does a call."""
    found: list[bytes] = []

    def handle() -> None:
        with store.consume("work") as messages:
            for message in messages:
                found.append(message.payload)
                if message.payload == b"3":
                    messages.stop()

    def call() -> None:
        message = store.get("other", timeout=SECONDS)
        assert message is not None
        found.append(message.payload)

    store.create_queue("other", kind="work")
    threads = [beside(handle), beside(call)]
    store.put("work", b"1")
    eventually(lambda: store.queue("work").messages == 0)  # it has committed, and waits
    end(owner)
    assert len(store.put_many("other", [b"2"])) == 1
    store.put("work", b"3")
    for thread, errors in threads:
        thread.join()
        assert errors == []
    assert sorted(found) == [b"1", b"2", b"3"]


@ends
def test_a_loop_whose_message_is_in_work_is_told(
    owner: Actor, store: JoinedStore, end: Callable[[Actor], None]
) -> None:
    """Its transaction is lost with the owner, and the message is there again."""
    store.put("work", b"1")
    with store.consume("work") as messages:
        next(messages)
        end(owner)
        with pytest.raises(ConnectionLost):
            next(messages)
    assert store.get_many("work").payloads() == [b"1"]


# Volatile queues ----------------------------------------------------------------------------------


@ends
def test_volatile_queues_come_back_empty(
    owner: Actor, store: JoinedStore, end: Callable[[Actor], None]
) -> None:
    """With the next owner; who waits for a message waits on, and nothing persistent is missing."""
    store.create_queue("v", kind="work", type="volatile")
    store.create_queue("gone", kind="work", type="volatile", persistent=False)
    store.put_many("v", [b"lost"] * 3)
    with store.transaction() as txn:
        assert txn.get("v") is not None
        txn.put("work", b"kept")
    store.get_many("v")
    open_one = store.transaction()
    open_one.put("v", b"never")
    open_one.put("work", b"never")
    found: list[bytes] = []

    def consume() -> None:
        message = store.get("v", timeout=SECONDS)
        assert message is not None
        found.append(message.payload)

    waiting, errors = beside(consume)
    other, missing = beside(lambda: store.get("gone", timeout=SECONDS))
    time.sleep(0.1)
    end(owner)
    other.join(SECONDS)
    assert [type(error) for error in missing] == [QueueNotFound]
    info = store.queue("v")
    assert (info.messages, info.type) == (0, "volatile")
    assert info.first_position >= 3
    with pytest.raises(ConnectionLost):
        open_one.commit()
    store.put("v", b"new")
    waiting.join(SECONDS)
    assert (found, errors) == ([b"new"], [])
    assert store.browse("work").payloads() == [b"kept"]
    assert store.admin.verify().ok
