"""Two-phase commit, in all forms of a store; and what each side sees when the other dies."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.errors import (
    AlreadyCommitted,
    ConnectionLost,
    InvalidArgument,
    KeyHeld,
    OutcomeUnknown,
    QueueFull,
    QuireError,
    StoreClosed,
    TransactionClosed,
    TransactionError,
    TransactionNotFound,
    XidExists,
)
from quire.opening import open as open_store
from quire.remote import JoinedStore
from tests.behaviour.forms import AnyStore, own
from tests.kit.children import child, join
from tests.kit.limits import Limits
from tests.kit.messages import take
from tests.kit.programs import OWNER
from tests.kit.raw_stream import RawStream
from tests.kit.waiting import SECONDS

# Hangs when the call in question has come: before it does anything, or when it is durable.
HANGING_OWNER = (
    """
import sys, time
from quire.engine.commits.committer import Committer
from quire.engine.transactions.transaction import EmbeddedTransaction
owner = Committer if sys.argv[2] == "decide" else EmbeddedTransaction
real = getattr(owner, sys.argv[2])
def hanging(self, *arguments, **named):
    if sys.argv[3] == "after":
        real(self, *arguments, **named)
    print("hanging", flush=True)
    time.sleep(1000)
setattr(owner, sys.argv[2], hanging)
"""
    + OWNER
)

PREPARER = """
import sys, time
from quire.errors import TransactionTimeout
from quire.opening import open
store = open(sys.argv[1])
assert store.role == "joined"
for seconds in (0.3, 3.0, 30.0, 300.0):  # more where the machine is slow
    try:
        txn = store.transaction(timeout=seconds)
        assert txn.get("work").payload == b"got"
        txn.put("work", b"put")
        txn.prepare("x1")
        break
    except TransactionTimeout:
        pass
time.sleep(seconds)
print("prepared", flush=True)
sys.stdin.readline()
"""


def test_prepared_and_committed(store: AnyStore, work: str) -> None:
    """With messages in and out, and a ledger entry; the ids are known after the decision."""
    store.put(work, b"got")
    with store.transaction() as txn:
        assert txn.get(work).payload == b"got"  # type: ignore[union-attr]
        ids = txn.put_many(work, [b"a", b"b"])
        txn.enter("key", 4)
        txn.prepare("x1")
        assert txn.state == "prepared"
        with pytest.raises(TransactionError):
            int(ids[0])
    [info] = store.prepared.list()
    assert (info.xid, info.queues, info.messages) == ("x1", ("work",), 2)
    assert (store.queue(work).prepared, store.integration.ledger("key")) == (1, None)
    assert take(store, work) == []
    txn.commit()
    assert txn.state == "committed"
    assert [int(i) for i in ids] == store.browse(work).ids
    assert (store.prepared.list(), store.integration.ledger("key")) == ([], 4)
    assert take(store, work) == [b"a", b"b"]
    with pytest.raises(TransactionClosed):
        txn.commit()
    txn.rollback()


def test_prepared_and_rolled_back(store: AnyStore, work: str) -> None:
    """What it got comes again, counted; what it put never was."""
    store.put(work, b"got")
    txn = store.transaction()
    txn.get(work)
    txn.put(work, b"never")
    txn.prepare("x1")
    txn.rollback()
    assert txn.state == "rolled back"
    with store.transaction() as other:
        messages = list(other.get_many(work))
    assert [(m.payload, m.delivery_count) for m in messages] == [(b"got", 2)]
    assert store.queue(work).used_bytes == 0


@pytest.mark.parametrize("commit", [True, False])
def test_the_store_decides_by_xid(store: AnyStore, work: str, commit: bool) -> None:
    """The object gets its state and the ids of its messages by that."""
    txn = store.transaction()
    message_id = txn.put(work, b"x")
    txn.prepare("x1")
    (store.prepared.commit if commit else store.prepared.rollback)("x1")
    assert txn.state == ("committed" if commit else "rolled back")
    if commit:
        assert [int(message_id)] == store.browse(work).ids
    with pytest.raises(TransactionClosed):
        txn.commit()
    with pytest.raises(TransactionNotFound, match=r"prepared\.list\(\)"):
        store.prepared.commit("x1")


@pytest.mark.promise(7)
@pytest.mark.parametrize("error", [None, ValueError])
def test_promise_7_the_with_block_decides_nothing(
    store: AnyStore, work: str, error: type[Exception] | None
) -> None:
    """Neither its end nor an exception in it."""

    def run() -> None:
        with store.transaction() as txn:
            txn.put(work, b"x")
            txn.prepare("x1")
            if error is not None:
                raise error

    if error is None:
        run()
    else:
        with pytest.raises(error):
            run()
    store.prepared.commit("x1")
    assert take(store, work) == [b"x"]


def test_what_is_refused_leaves_it_open(store: AnyStore, work: str) -> None:
    """XidExists, KeyHeld: the same transaction is prepared later, whole."""
    first = store.transaction()
    first.put(work, b"first")
    first.enter("key", 1)
    first.prepare("x1")
    txn = store.transaction()
    txn.put(work, b"second")
    with pytest.raises(XidExists, match="'x1'"):
        txn.prepare("x1")
    txn.enter("key", 2)
    with pytest.raises(KeyHeld, match="'key'"):
        txn.prepare("x2")
    with pytest.raises(KeyHeld):
        txn.commit()
    assert txn.state == "open"
    first.commit()
    txn.prepare("x2")
    store.prepared.commit("x2")
    assert take(store, work) == [b"first", b"second"]
    late = store.transaction()
    late.enter("key", 2)
    with pytest.raises(AlreadyCommitted):
        late.prepare("x3")
    assert late.state == "rolled back"


def test_an_empty_transaction(store: AnyStore) -> None:
    """It is prepared like any other."""
    txn = store.transaction()
    txn.prepare("x1")
    assert [info.xid for info in store.prepared.list()] == ["x1"]
    txn.rollback()
    assert store.prepared.list() == []


@pytest.mark.promise(5)
def test_promise_5_a_full_queue_refuses_the_prepare(store: AnyStore) -> None:
    """QueueFull at the prepare at the latest; what is prepared commits."""
    store.create_queue("small", kind="work", capacity=4096)
    first = store.transaction()
    first.put("small", b"x" * 2000)
    first.prepare("x1")

    def second() -> None:
        with store.transaction() as txn:
            txn.put("small", b"x" * 2000)
            txn.prepare("x2")

    with pytest.raises(QueueFull):
        second()
    first.commit()
    assert take(store, "small") == [b"x" * 2000]


@pytest.mark.parametrize("xid", ["", "\n", None, 5])
def test_what_is_no_xid(store: AnyStore, work: str, xid: str) -> None:
    """Refused before anything is done."""
    txn = store.transaction()
    txn.put(work, b"x")
    for call in (txn.prepare, store.prepared.commit, store.prepared.rollback):
        with pytest.raises(InvalidArgument):
            call(xid)
    txn.commit()


def test_it_takes_nothing_any_more(store: AnyStore, work: str) -> None:
    """The error names the xid."""
    txn = store.transaction()
    txn.put(work, b"x")
    txn.prepare("x1")
    with pytest.raises(TransactionClosed, match="'x1'"):
        txn.put(work, b"y")
    with pytest.raises(TransactionClosed, match="'x1'"):
        txn.get(work)
    txn.commit()


# Joined -------------------------------------------------------------------------------------------


def test_a_stream_is_free_after_the_prepare(joined: JoinedStore) -> None:
    """Prepared transactions take no stream of the owner: more of them than there are streams."""
    joined.create_queue("work", kind="work")
    transactions = []
    for number in range(300):
        txn = joined.transaction()
        txn.put("work", b"%d" % number)
        txn.prepare(f"x{number}")
        transactions.append(txn)
    assert joined.status()["sharing"]["connections"] < 10
    for number, txn in enumerate(transactions):
        (txn.commit if number % 2 else txn.rollback)()
    assert take(joined, "work") == [b"%d" % number for number in range(300) if number % 2]


def test_another_client_decides(owner: Store, store: AnyStore) -> None:
    """The object learns it when it is asked to decide, and hits no later one of the same xid."""
    store.create_queue("work", kind="work")
    with open_store(owner.path) as other:
        for decide, committed in (
            (owner.prepared.commit, True),
            (other.prepared.commit, True),
            (other.prepared.rollback, False),
        ):
            txn = store.transaction()
            message_id = txn.put("work", b"x")
            txn.prepare("same")
            decide("same")
            later = other.transaction()
            later.put("work", b"later")
            later.prepare("same")
            with pytest.raises(
                TransactionClosed, match="committed" if committed else "rolled back"
            ):
                txn.commit()
            if committed:
                assert int(message_id) == owner.browse("work").ids[-1]
            assert txn.state == ("committed" if committed else "rolled back")
            txn.rollback()
            assert [info.xid for info in owner.prepared.list()] == ["same"]
            later.rollback()


def test_what_was_decided_is_remembered_for_a_while(
    owner: Store, joined: JoinedStore, limits: Limits
) -> None:
    """Memory at the owner is bounded; who comes later is told that it is not known any more."""
    limits(REMEMBERED_DECISIONS=2)
    transactions = []
    for number in range(5):
        txn = joined.transaction()
        txn.prepare(f"x{number}")
        owner.prepared.rollback(f"x{number}")
        transactions.append(txn)
    with pytest.raises(TransactionNotFound, match="not known any more"):
        transactions[0].commit()
    with pytest.raises(TransactionClosed, match="rolled back"):
        transactions[4].commit()


@pytest.mark.promise(7)
def test_promise_7_the_connection_decides_nothing(owner: Store) -> None:
    """The client closes its store: the transaction stays; its object says so."""
    with open_store(owner.path) as client:
        client.create_queue("work", kind="work")
        txn = client.transaction()
        txn.put("work", b"x")
        txn.prepare("x1")
    with pytest.raises(StoreClosed):
        txn.commit()
    assert [info.xid for info in owner.prepared.list()] == ["x1"]
    owner.prepared.commit("x1")
    assert take(owner, "work") == [b"x"]


@pytest.mark.promise(7)
def test_promise_7_a_clients_death_decides_nothing(store_path: str) -> None:
    """Killed, and past its time-out: found by another, with what it got in flight."""
    with child(OWNER, store_path) as owner:
        assert owner.line() == "ready"
        with join(store_path) as store:
            store.create_queue("work", kind="work")
            store.put("work", b"got")
            store.put("work", b"next")
            with child(PREPARER, store_path) as client:
                assert client.line() == "prepared"
                client.kill()
            assert [info.xid for info in store.prepared.list()] == ["x1"]
            assert take(store, "work") == [b"next"]
            assert store.subscriptions("work")[0].delivered == 1
            store.prepared.rollback("x1")
            assert take(store, "work") == [b"got"]


@pytest.mark.promise(1, 7)
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("call", ["prepare", "commit", "commit_prepared"])
def test_the_owner_dies_during_it(store_path: str, call: str, moment: str) -> None:
    """OutcomeUnknown, which says to look at `prepared.list`; there it is as it was, or done."""
    method = "prepare" if call == "prepare" else "decide"
    with child(HANGING_OWNER, store_path, method, moment) as owner:
        assert owner.line() == "ready"
        store = join(store_path)
        store.create_queue("work", kind="work")
        txn = store.transaction()
        txn.put("work", b"x")
        if call != "prepare":
            txn.prepare("x1")
        raised: list[BaseException] = []

        def end() -> None:
            try:
                if call == "prepare":
                    txn.prepare("x1")
                elif call == "commit":
                    txn.commit()
                else:
                    store.prepared.commit("x1")
            except OutcomeUnknown as error:
                raised.append(error)

        ending = threading.Thread(target=end)
        ending.start()
        assert owner.line() == "hanging"
        owner.kill()
        ending.join(SECONDS)
    assert len(raised) == 1
    assert "prepared.list()" in str(raised[0])
    assert "'x1'" in str(raised[0])
    assert txn.state == ("in doubt" if call == "prepare" else "prepared")
    if call != "prepare":
        with pytest.raises(ConnectionLost, match=r"stays so.*prepared\.list\(\)"):
            txn.commit()
    store.close()
    with own(store_path) as again:
        done = moment == "after"
        waits = done if call == "prepare" else not done
        assert [info.xid for info in again.prepared.list()] == ["x1"] * waits
        assert again.queue("work").messages == (1 if done and call != "prepare" else 0)
        assert again.admin.verify().ok


def test_bad_requests_harm_nothing(owner: Store, joined: JoinedStore) -> None:
    """Arguments that are none: an error, and the transaction waits as before."""
    joined.create_queue("work", kind="work")
    txn = joined.transaction()
    txn.put("work", b"x")
    txn.prepare("x1")
    bad: list[Any] = [
        None, [], {}, {"xid": 5}, {"xid": "x1", "number": "1"}, {"xid": "x1", "number": True},
        {"xid": "x1", "number": 99}, {"xid": "x1", "more": 1},
    ]  # fmt: skip
    with contextlib.closing(RawStream(joined.url)) as stream:
        for arguments in bad:
            with pytest.raises(QuireError):
                stream.request("commit_prepared", arguments=arguments)
    assert [info.xid for info in owner.prepared.list()] == ["x1"]
    txn.commit()
