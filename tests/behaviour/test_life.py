"""The life of a transaction, in all forms of a store: who is open, aborting, waiting for space."""

from __future__ import annotations

import copy
import math
import os
import pickle
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from quire.aio import AsyncTransaction
from quire.block import encode_one
from quire.engine import EmbeddedStore as Store
from quire.engine import EmbeddedTransaction as Transaction
from quire.errors import (
    ConnectionLost,
    InvalidArgument,
    QueueFull,
    QueueNotFound,
    StoreClosed,
    TransactionAborted,
    TransactionClosed,
    TransactionNotFound,
    TransactionTimeout,
)
from quire.limits import COMMIT_BYTES, INTERVAL_SECONDS, MESSAGE_OVERHEAD_BYTES
from quire.opening import open as open_store
from quire.remote import JoinedStore, JoinedTransaction
from quire.remote.wire.failures import raise_error
from quire.reports.info import QueueRecord
from tests.behaviour.forms import TOLD_AT_ONCE, AnyStore, Clock
from tests.kit.behind_loop import BehindLoop
from tests.kit.children import child, join
from tests.kit.messages import take
from tests.kit.programs import CLIENT, OWNER
from tests.kit.raw_stream import RawStream, add, commit, get
from tests.kit.waiting import SECONDS, eventually

CAPACITY = 10_000


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_store_and_a_transaction_are_not_copied(
    store: AnyStore, copied: Callable[[object], object]
) -> None:
    """A copy that ended would close the store under the first one, or use it in another process."""
    store.create_queue("work")
    with store.transaction() as txn:
        txn.put("work", b"1")
        for one in (store, txn):
            one = one._inner if isinstance(one, BehindLoop) else one
            with pytest.raises(InvalidArgument, match="open the store in each process"):
                copied(one)
    assert take(store, "work") == [b"1"]


# Its commit has to wait: see `fill`.
WAITER = """
import sys
from quire.block import encode_one
from quire.opening import open
store = open(sys.argv[1])
txn = store.transaction()
txn.integration.put_block("small", encode_one(b"1"))
txn._send_ahead()
print("opened", flush=True)
sys.stdin.readline()
txn.commit(timeout=1000)
"""


def beside(action: Callable[[], object]) -> tuple[threading.Thread, list[BaseException]]:
    """Run it in a thread; what it raises is kept."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            action()
        except BaseException as error:  # noqa: BLE001 - shown by the main thread
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, errors


def fill(store: AnyStore) -> Any:
    """A transaction that leaves no room in the queue "small" for a commit record of another."""
    txn = store.transaction()
    put_at_owner(txn, "small", b"2")
    free = CAPACITY - store.queue("small").used_bytes
    put_at_owner(txn, "small", b"x" * (free - MESSAGE_OVERHEAD_BYTES))
    store.alter_queue("small", capacity=CAPACITY)  # what is put leaves room for commit records
    return txn


def put_at_owner(txn: Any, queue: str, payload: bytes) -> None:
    """Put a message that the owner knows of at once, also where it would wait at the client."""
    txn.put(queue, payload)
    inner = txn
    while isinstance(inner, BehindLoop | AsyncTransaction):
        inner = inner._inner
    if isinstance(inner, JoinedTransaction):
        inner._send_ahead()  # and has taken it


def nearly_full(store: AnyStore) -> tuple[Any, Any]:
    """Two transactions in a queue without room for their commit records, and a message in it."""
    store.create_queue("small", kind="work", capacity=CAPACITY + 2 * COMMIT_BYTES)
    store.put("small", b"old" * 1000)
    first = store.transaction()
    put_at_owner(first, "small", b"1")
    return first, fill(store)


def waits(owner: Store) -> None:
    """Until a commit at the owner waits for space."""
    open_ones = owner._context.registry
    eventually(
        lambda: any(isinstance(t, Transaction) and t._waits_for is not None for t in open_ones)
    )


# Who is open --------------------------------------------------------------------------------------


def test_open_transactions_are_listed(store: AnyStore, work: str) -> None:
    """Whose they are, what they hold, and how long they may stay open."""
    store.put(work, b"got")
    named = store.transaction(owner="the importer", timeout=60)
    named.get(work)
    put_at_owner(named, work, b"12345")
    plain = store.transaction(large=True)
    assert plain.get(work) is None
    first, second = store.admin.transactions()
    assert (first.owner, first.queues, first.messages, first.in_flight) == (
        "the importer", ("work",), 1, 1,
    )  # fmt: skip
    assert (first.bytes, first.buffered_bytes, first.state) == (21, 21, "open")
    assert first.seconds_left is not None
    assert 0 < first.seconds_left <= 60
    thread = store.loop_thread if isinstance(store, BehindLoop) else "MainThread"
    assert second.owner == (
        f"process {os.getpid()} over the socket"
        if store.role == "joined"
        else f"thread {thread} of the store's process"
    )
    assert second.large
    one = store.admin.transaction(first.id)
    assert (one.owner, one.queues, one.bytes, one.in_flight, one.sources) == (
        "the importer", ("work",), 21, 1, ("work",),
    )  # fmt: skip
    assert 0 <= first.age_seconds <= one.age_seconds
    assert one.seconds_left is not None
    assert one.seconds_left <= first.seconds_left
    assert store.admin.transaction(second.id).large
    named.commit()
    plain.rollback()
    assert store.admin.transactions() == []


def test_a_time_without_end(owner: Store, store: AnyStore) -> None:
    """It can be told to others too, as JSON has no infinity."""
    owner.create_queue("work", kind="work")
    txn = owner.transaction(timeout=math.inf)
    [info] = store.admin.transactions()
    assert (info.id, info.seconds_left) == (txn.id, None)
    if store.role == "joined":
        assert store.status()["transactions"][0]["seconds_left"] is None
    txn.rollback()


def test_a_client_of_an_earlier_release(owner: Store, joined: JoinedStore) -> None:
    """Its hello does not tell its process; it is served all the same."""
    owner.create_queue("work", kind="work")
    stream = RawStream(joined.url)
    stream.ask(get(1, "work"))
    assert [info.owner for info in joined.admin.transactions()] == ["a process over the socket"]
    stream.close()


def test_the_process_of_a_client_is_told(store_path: str) -> None:
    """So that it can be found, and ended."""
    with child(OWNER, store_path) as owner:
        assert owner.line() == "ready"
        with join(store_path) as store:
            store.create_queue("work", kind="work")
            with child(CLIENT, store_path, "1000") as client:
                assert client.line() == ""
                names = {info.owner for info in store.admin.transactions()}
                assert names == {f"process {client.process.pid} over the socket"}


# Aborting -----------------------------------------------------------------------------------------


@pytest.mark.cases(3)
@pytest.mark.parametrize("call", ["commit", "get", "get_many", "read_to", "prepare", "with"])
def test_an_aborted_transaction(store: AnyStore, work: str, call: str) -> None:
    """Its puts go, its gets come back, its owner is told at its next call and at every later."""
    store.put(work, b"got")
    txn = store.transaction()
    calls: dict[str, Callable[[], object]] = {
        "commit": txn.commit,
        "get": lambda: txn.get(work),
        "get_many": lambda: txn.get_many(work),
        "read_to": lambda: txn.read_to(work, 1),
        "prepare": lambda: txn.prepare("x1"),
        "with": lambda: txn.__exit__(None, None, None),
    }
    assert txn.get(work) is not None
    txn.put(work, b"put")
    store.admin.abort(store.admin.transactions()[0].id)
    with pytest.raises(TransactionAborted, match="on demand"):
        calls[call]()
    assert txn.state == "rolled back"
    for later in (txn.commit, lambda: txn.put(work, b"more"), lambda: txn.get(work)):
        with pytest.raises(TransactionAborted, match="on demand"):
            later()
    txn.rollback()
    assert store.prepared.list() == []
    assert take(store, work) == [b"got"]
    assert store.queue(work).used_bytes == 0


def test_only_what_is_open_can_be_shown_and_aborted(store: AnyStore, work: str) -> None:
    """Only what is open can be shown and aborted, and an id is an int."""
    txn = store.transaction()
    txn.get(work)
    number = store.admin.transactions()[0].id
    txn.commit()
    for call in (store.admin.abort, store.admin.transaction):
        with pytest.raises(TransactionNotFound, match=r"transactions\(\) lists them"):
            call(number)
        with pytest.raises(InvalidArgument):
            call("1")  # type: ignore[arg-type]


@pytest.mark.parametrize("store", TOLD_AT_ONCE, indirect=True)
def test_a_get_that_waits_can_be_aborted(store: AnyStore, work: str) -> None:
    """It returns at once."""
    txn = store.transaction()
    thread, errors = beside(lambda: txn.get(work, timeout=1000))
    eventually(store.admin.transactions)
    store.admin.abort(store.admin.transactions()[0].id)
    thread.join(SECONDS)
    assert [type(error) for error in errors] == [TransactionAborted]


# Waiting for space --------------------------------------------------------------------------------


@pytest.mark.promise(5)
def test_promise_5_a_commit_waits_for_space(owner: Store, store: AnyStore) -> None:
    """[0062] It goes on as soon as there is room, whatever the default is."""
    first, second = nearly_full(store)
    thread, errors = beside(lambda: first.commit(timeout=1000))
    waits(owner)
    assert take(store, "small") == [b"old" * 1000]
    thread.join(SECONDS)
    assert not errors
    assert first.state == "committed"
    second.commit()
    assert len(take(store, "small")) == 3


@pytest.mark.promise(5)
@pytest.mark.parametrize("timeout", [0, 0.05, 0.6])
def test_promise_5_a_commit_gives_up_waiting(store: AnyStore, timeout: float) -> None:
    """After its time the transaction is open: it can be tried again."""
    first, second = nearly_full(store)
    first.enter("key", 1)
    start = time.monotonic()
    with pytest.raises(QueueFull, match="commit records"):
        first.commit(timeout=timeout)
    assert time.monotonic() - start >= timeout
    assert first.state == "open"
    second.rollback()
    first.commit()
    assert store.integration.ledger("key") == 1
    assert take(store, "small") == [b"old" * 1000, b"1"]


def test_a_prepare_waits_for_space(owner: Store, store: AnyStore) -> None:
    """As a commit does; what is prepared then is the store's."""
    first, second = nearly_full(store)
    with pytest.raises(QueueFull):
        first.prepare("x1", timeout=0)
    thread, errors = beside(lambda: first.prepare("x1", timeout=1000))
    waits(owner)
    second.rollback()
    thread.join(SECONDS)
    assert not errors
    assert (first.state, [info.xid for info in store.prepared.list()]) == ("prepared", ["x1"])
    first.commit()
    assert take(store, "small") == [b"old" * 1000, b"1"]


def test_the_owners_default_holds_for_its_clients(store_path: str) -> None:
    """Its option commit_timeout."""
    with open_store(store_path, commit_timeout=0.05) as owner, join(store_path) as store:
        assert isinstance(owner, Store)
        first, second = nearly_full(store)
        with pytest.raises(QueueFull):
            first.commit()
        second.rollback()
        first.commit()
        assert owner.admin.verify().ok


@pytest.mark.parametrize("timeout", [-1, math.nan, "1", True])
def test_a_commit_refuses_bad_timeouts(store: AnyStore, work: str, timeout: Any) -> None:
    """A commit refuses bad timeouts and stays open."""
    txn = store.transaction()
    txn.put(work, b"x")
    with pytest.raises(InvalidArgument):
        txn.commit(timeout=timeout)
    assert txn.state == "open"
    txn.commit()


def test_a_bad_timeout_on_the_wire(owner: Store, joined: JoinedStore) -> None:
    """Nothing of the request is done."""
    owner.create_queue("work", kind="work")
    stream = RawStream(joined.url)
    block = bytes(encode_one(b"x"))
    answer = stream.ask(add(1, ("work", block)) + commit(1, 1, wait=-1.0))
    with pytest.raises(InvalidArgument):
        raise_error(answer.header)
    assert owner.queue("work").messages == 0
    assert owner.admin.transactions()[0].state == "open"
    stream.close()


def test_a_commit_that_waits_can_be_aborted(owner: Store, store: AnyStore) -> None:
    """It raises TransactionAborted, and nothing of it is there."""
    first, second = nearly_full(store)
    thread, errors = beside(lambda: first.commit(timeout=1000))
    waits(owner)
    store.admin.abort(store.admin.transactions()[0].id)
    thread.join(SECONDS)
    assert [type(error) for error in errors] == [TransactionAborted]
    assert first.state == "rolled back"
    second.commit()
    assert len(take(store, "small")) == 3


def test_the_store_is_closed_while_a_commit_waits(owner: Store, store: AnyStore) -> None:
    """The closing does not wait for it; nothing of it is there."""
    first, _ = nearly_full(store)
    thread, errors = beside(lambda: first.commit(timeout=1000))
    waits(owner)
    closing, failures = beside(owner.close)
    closing.join(SECONDS)
    assert not closing.is_alive()
    assert not failures
    thread.join(SECONDS)
    assert len(errors) == 1
    assert isinstance(errors[0], (StoreClosed, ConnectionLost))
    with open_store(owner.path) as again:
        assert take(again, "small") == [b"old" * 1000]
        assert again.admin.verify().ok


def test_a_client_closes_its_store_while_a_commit_waits(owner: Store, joined: JoinedStore) -> None:
    """The commit is in doubt for the client, and over for the owner soon."""
    joined.create_queue("small", kind="work", capacity=CAPACITY + 2 * COMMIT_BYTES)
    joined.put("small", b"old" * 1000)
    first = joined.transaction()
    put_at_owner(first, "small", b"1")
    filler = fill(owner)
    thread, errors = beside(lambda: first.commit(timeout=1000))
    waits(owner)
    joined.close()
    thread.join(SECONDS)
    assert errors
    assert first.state == "in doubt"
    eventually(lambda: [info.id for info in owner.admin.transactions()] == [filler.id])
    filler.rollback()
    assert take(owner, "small") == [b"old" * 1000]


def test_a_client_dies_while_its_commit_waits(owner: Store) -> None:
    """Nobody waits for it any longer: it is rolled back soon, and commits nothing later."""
    owner.create_queue("small", kind="work", capacity=CAPACITY + 2 * COMMIT_BYTES)
    owner.put("small", b"old" * 1000)
    with child(WAITER, owner.path) as client:
        assert client.line() == "opened"
        filler = fill(owner)
        client.say("commit")
        waits(owner)
        client.kill()
        eventually(lambda: [info.id for info in owner.admin.transactions()] == [filler.id])
    filler.rollback()
    assert take(owner, "small") == [b"old" * 1000]


# Records of a queue -------------------------------------------------------------------------------


def test_records_of_a_queue(store: AnyStore, work: str) -> None:
    """In queue order, those of open transactions too; a part of them, if that is asked for."""
    txn = store.transaction()
    put_at_owner(txn, work, b"first")
    [info] = store.admin.transactions()
    with store.transaction() as other:
        other.put(work, b"second")
    opened = store.admin.queue_records(work)
    assert [(r.kind, r.position) for r in opened] == [
        ("OPEN", None), ("OPEN", None), ("MESSAGES", 0), ("COMMIT", None),
    ]  # fmt: skip
    assert opened[0] == QueueRecord("OPEN", info.id)
    txn.commit()
    records = store.admin.queue_records(work)
    assert [(r.kind, r.messages) for r in records[-2:]] == [("MESSAGES", 1), ("COMMIT", 0)]
    assert records[-1].transaction_id == info.id
    assert store.admin.queue_records(work, 1, 2) == records[1:3]
    assert store.admin.queue_records(work, start=1 << 70) == []
    store.admin.checkpoint()
    assert store.admin.queue_records(work) == []
    for arguments in ({"start": -1}, {"limit": 0}, {"limit": True}, {"start": "1"}):
        with pytest.raises(InvalidArgument):
            store.admin.queue_records(work, **arguments)
    with pytest.raises(QueueNotFound):
        store.admin.queue_records("nowhere")


def test_a_transaction_is_extended(store: AnyStore, clock: Clock) -> None:
    """It stays open for so long from then on, and what it has got stays its own; never shorter."""
    store.create_queue("q")
    store.put("q", b"long work")
    with store.transaction(timeout=10.0) as txn:
        assert txn.get("q") is not None
        for _ in range(3):
            txn.extend(timedelta(seconds=60.0))
            clock.forward(50.0)
            time.sleep(INTERVAL_SECONDS * 1.5)  # so that the owner looks
            assert store.get("q") is None
        txn.extend(600.0)
        txn.extend(1.0)
        [info] = [each for each in store.admin.transactions() if each.in_flight]
        assert info.seconds_left is not None
        assert info.seconds_left > 500
    assert store.get("q") is None


def test_a_transaction_whose_time_is_over_is_not_extended(store: AnyStore, clock: Clock) -> None:
    """It was rolled back, and says so."""
    store.create_queue("q")
    store.put("q", b"long work")
    txn = store.transaction(timeout=10.0)
    assert txn.get("q") is not None
    clock.forward(11.0)
    assert store.get("q", timeout=60.0) is not None
    with pytest.raises(TransactionTimeout, match="begin anew"):
        txn.extend(60.0)
    with store.transaction() as other:
        other.commit()
        with pytest.raises(TransactionClosed):
            other.extend(60.0)
