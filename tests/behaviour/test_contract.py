"""The contract of the calls: each public call in every form of a store, a quarter of them in a run.

What a call does in all its variants is the business of the other tests of this folder, of which a
run has each in two forms. Here each call is made once in each form, with its usual arguments.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from typing import Any

import pytest

import quire
from quire.errors import QueueInUse, QueueNotFound, TransactionNotFound
from quire.interface.integration import TransactionIntegration
from quire.remote.wire.named_calls import NAMESPACES
from quire.reports.info import ShippingReport
from quire.rows.open_block import check_block
from tests.behaviour.forms import WITH_CALLBACKS, AnyStore
from tests.behaviour.test_fragments import block, file
from tests.kit.waiting import SECONDS

pytestmark = pytest.mark.every_form

INTERFACES: list[type] = [
    quire.Store, quire.Transaction, quire.Consumer, quire.Listener, quire.Session,
    *NAMESPACES.values(), TransactionIntegration,
]  # fmt: skip
COVERED: dict[str, Callable[..., None]] = {}
"""The function below that makes a call, by `Interface.call`."""


def covers(interface: type, names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Note that a function makes these calls of an interface."""

    def note(function: Callable[..., None]) -> Callable[..., None]:
        COVERED.update({f"{interface.__name__}.{name}": function for name in names.split()})
        return function

    return note


def payloads(messages: Any) -> list[bytes]:
    """Return those of the messages."""
    return [bytes(message.payload) for message in messages]


# Stores -------------------------------------------------------------------------------------------


@covers(quire.Store, "create_queue alter_queue queue queues drop_queue")
def queues_of_a_store(store: AnyStore) -> None:
    """Made, altered, listed, dropped."""
    assert store.create_queue("q", kind="work", max_messages=5).max_messages == 5
    assert store.create_queue("q", kind="work", exist_ok=True).max_messages == 5
    assert store.alter_queue("q", max_messages=7).max_messages == 7
    assert (store.queue("q").name, [q.name for q in store.queues()]) == ("q", ["q"])
    store.drop_queue("q")
    assert store.queues() == []
    with pytest.raises(QueueNotFound):
        store.queue("q")


@covers(quire.Store, "put put_many put_stream get get_many browse")
def messages_of_a_store(store: AnyStore) -> None:
    """Put, looked at, and got, in their order."""
    store.create_queue("q", kind="work")
    ids = [store.put("q", b"1", sender="s", correlation_id="c"), *store.put_many("q", [b"2", b"3"])]
    ids.append(store.put_stream("q", iter([b"4", b"4"])))
    seen = store.browse("q", max_messages=10)
    assert [message.id for message in seen] == ids
    first = store.get("q")
    assert first is not None
    assert (first.payload, first.sender, first.correlation_id) == (b"1", "s", "c")
    assert payloads(store.get_many("q")) == [b"2", b"3", b"44"]
    assert store.get("q") is None


@covers(quire.Store, "subscribe subscriptions unsubscribe")
def subscriptions_of_a_store(store: AnyStore) -> None:
    """Each subscription has all messages of its topic."""
    store.create_queue("t", kind="topic")
    for name in "ab":
        store.subscribe("t", name)
    store.put("t", b"1")
    assert [payloads(store.get_many(f"t/{name}")) for name in "ab"] == [[b"1"], [b"1"]]
    store.unsubscribe("t", "a")
    assert [each.name for each in store.subscriptions("t")] == ["b"]


@covers(quire.Store, "path role failed status sync close")
@covers(quire.Store, "admin cron delayed integration listeners prepared states")
def what_a_store_is(store: AnyStore) -> None:
    """Where, how it is had, and in what state; after `close` it does nothing more."""
    assert store.path
    assert store.role in ("owner", "joined")
    assert not store.failed
    assert store.status() is not None
    store.create_queue("q", kind="work")
    with store.transaction(durable=False) as txn:
        txn.put("q", b"1")
    store.sync()
    assert store.queue("q").messages == 1
    assert (store.admin.queue_names(), store.cron.list(), store.prepared.list()) == (["q"], [], [])
    assert (store.states.names(), store.listeners.list()) == ([], [])
    assert payloads(store.delayed.list("q")) == []
    assert store.integration.store_id
    store.close()
    with pytest.raises(quire.QuireError):
        store.put("q", b"2")


@covers(quire.Store, "consume")
@covers(quire.Consumer, "acknowledge transaction close")
def consumers(store: AnyStore) -> None:
    """What is acknowledged is gone; what is not comes again."""
    store.create_queue("q", kind="work")
    store.create_queue("out", kind="work")
    store.put_many("q", [b"1", b"2", b"3"])
    messages = store.consume("q", timeout=0, ack="block")
    for message in messages:
        messages.transaction.put("out", message.payload)
        if message.payload == b"2":
            messages.acknowledge()
            break
    messages.close()
    assert [payloads(store.browse(name)) for name in ("q", "out")] == [[b"3"], [b"1", b"2"]]
    assert payloads(store.consume("q", timeout=0)) == [b"3"]
    assert store.queue("q").messages == 0


@covers(quire.Consumer, "stop")
def stopped_consumers(store: AnyStore) -> None:
    """The loop ends, though it would wait for ever."""
    store.create_queue("q", kind="work")
    store.put("q", b"1")
    messages = store.consume("q")
    for message in messages:
        assert message.payload == b"1"
        messages.stop()
    assert store.queue("q").messages == 0


# Transactions -------------------------------------------------------------------------------------


@covers(quire.Store, "transaction")
@covers(quire.Transaction, "put put_many put_stream put_writer id state commit rollback")
def puts_of_a_transaction(store: AnyStore) -> None:
    """All of them or none, and their ids after the commit."""
    store.create_queue("q", kind="work")
    txn = store.transaction(timeout=SECONDS)
    assert txn.id
    made = [txn.put("q", b"1"), *txn.put_many("q", [b"2"]), txn.put_stream("q", iter([b"3"]))]
    with txn.put_writer("q") as writer:
        writer.write(b"4")
    assert (txn.state, store.queue("q").messages) == ("open", 0)
    txn.commit()
    assert txn.state == "committed"
    found = store.browse("q")
    assert [int(each) for each in made] == [message.id for message in found[:3]]
    assert payloads(store.get_many("q")) == [b"1", b"2", b"3", b"4"]
    other = store.transaction()
    other.put("q", b"5")
    other.rollback()
    assert (other.state, store.queue("q").messages) == ("rolled back", 0)


@covers(quire.Transaction, "get get_many get_arrow read read_many unget browse extend")
def gets_of_a_transaction(store: AnyStore) -> None:
    """Taken with the commit, given back without it; what is only read stays."""
    store.create_queue("q", kind="work")
    store.put_many("q", [b"1", b"2", b"3", b"4"])
    txn = store.transaction(timeout=SECONDS)
    txn.extend(SECONDS)
    assert payloads(txn.browse("q", max_messages=2)) == [b"1", b"2"]
    read = txn.read("q")
    assert read is not None
    assert (read.payload, payloads(txn.read_many("q", 2))) == (b"1", [b"1", b"2"])
    first = txn.get("q")
    assert first is not None
    assert first.payload == b"1"
    txn.unget()
    assert payloads(txn.get_many("q", 2)) == [b"1", b"2"]
    assert txn.get_arrow("q").column("payload").to_pylist() == [b"3", b"4"]
    txn.rollback()
    with store.transaction() as txn:
        assert payloads(txn.get_many("q")) == [b"1", b"2", b"3", b"4"]
    assert store.get("q") is None


@covers(quire.Transaction, "attributes count describe exists remove")
def messages_that_are_found(store: AnyStore) -> None:
    """By their ids and attributes."""
    store.create_queue("q", kind="work")
    ids = [store.put("q", b"%d" % n, attributes={"n": str(n)}) for n in range(3)]
    with store.transaction() as txn:
        found = txn.attributes("q", ids[1])
        assert found is not None
        assert found.id == ids[1]
        assert (txn.count("q"), txn.exists("q", where="n = '2'")) == (3, True)
        assert [each.id for each in txn.describe("q")] == ids
        assert txn.remove("q", ids[0])
    assert payloads(store.browse("q")) == [b"1", b"2"]


@covers(quire.Transaction, "move reject read_to seek")
def messages_that_go_elsewhere(store: AnyStore) -> None:
    """To another queue, back, and past what a subscription has read."""
    store.create_queue("q", kind="work")
    store.create_queue("other", kind="work")
    store.create_queue("t", kind="topic")
    store.subscribe("t", "a")
    store.subscribe("t", "b")  # keeps what the first one has read
    store.put_many("q", [b"1", b"2"])
    store.put_many("t", [b"1", b"2", b"3"])
    with store.transaction() as txn:
        assert txn.move("q", "other", 1) == 1
    assert payloads(store.browse("other")) == [b"1"]
    with store.transaction() as txn:
        message = txn.get("q")
        assert message is not None
        txn.reject(message, "not now")
    again = store.get("q")
    assert again is not None
    assert again.delivery_count == 2
    start, end = store.integration.positions("t")
    with store.transaction() as txn:
        txn.read_to("t/a", end - 1)
    assert payloads(store.browse("t/a")) == [b"3"]
    with store.transaction() as txn:
        txn.seek("t/a", start)
    assert payloads(store.get_many("t/a")) == [b"1", b"2", b"3"]


@covers(quire.Transaction, "enter prepare set_value get_value integration")
@covers(quire.Transaction, "get_delayed")
def records_of_a_transaction(store: AnyStore) -> None:
    """Entries of the ledger, values, messages that are not due, and prepared transactions."""
    store.create_queue("q", kind="work")
    late = store.put("q", b"late", delay=3600)
    with store.transaction() as txn:
        txn.enter("key", 3)
        txn.set_value("state", "a", b"1")
        assert txn.get_value("state", "a") == b"1"
        delayed = txn.get_delayed("q", late)
        assert delayed is not None
        assert delayed.payload == b"late"
        txn.integration.put_block("q", block(b"1"))
    assert store.integration.ledger("key") == 3
    txn = store.transaction()
    txn.put("q", b"2")
    txn.prepare("x")
    assert [each.xid for each in store.prepared.list()] == ["x"]
    txn.rollback()
    assert payloads(store.get_many("q")) == [b"1"]


@covers(TransactionIntegration, "adopt put_block put_blocks read_to_many")
def fragments_of_a_transaction(store: AnyStore) -> None:
    """Blocks, files, and what is read of several sources."""
    for name in "ab":
        store.create_queue(name, kind="work")
    with store.transaction() as txn:
        txn.integration.put_block("a", block(b"1"))
        txn.integration.put_blocks([("a", block(b"2")), ("b", block(b"3"))])
        txn.integration.adopt("b", file(store, b"4"))
    assert [payloads(store.browse(name)) for name in "ab"] == [[b"1", b"2"], [b"3", b"4"]]
    ends = {name: end for name, (_, end) in store.integration.positions_many(["a", "b"]).items()}
    with store.transaction() as txn:
        txn.integration.read_to_many(ends)
    assert [info.messages for info in store.queues()] == [0, 0]


# Sessions and requests ----------------------------------------------------------------------------


@covers(quire.Store, "request")
def requests(store: AnyStore) -> None:
    """Answered by whoever gets them; without an answer the time is up."""
    store.create_queue("q", kind="work")
    with pytest.raises(quire.RequestTimeout):
        store.request("q", b"ping", timeout=0.01)


@covers(quire.Store, "session")
@covers(quire.Session, "name epoch replies begin submit put transaction unfinished info lookup")
@covers(quire.Session, "resolve result take withdraw forget remove")
def sessions(store: AnyStore) -> None:
    """A request is begun, put, answered and taken; another one is withdrawn."""
    store.create_queue("q", kind="work")
    session = store.session("client")
    assert (session.name, session.epoch >= 0, bool(session.replies)) == ("client", True, True)
    first = session.begin("q", b"1")
    assert session.submit(first)
    second = session.put("q", b"2")
    assert session.unfinished() == [first, second] == session.info().unfinished
    assert (session.resolve(first), session.lookup(first).number) == ("pending", first)
    assert session.withdraw(second)
    with store.transaction() as txn:
        request = txn.get("q")
        assert request is not None
        assert request.reply_to is not None
        txn.put(request.reply_to, b"done", correlation_id=request.correlation_id)
    with session.transaction() as txn:
        txn.put("q", b"of its own")
    seen = session.result(first, timeout=SECONDS)
    taken = session.take(first, timeout=SECONDS)
    assert seen is not None
    assert taken is not None
    assert (seen.payload, taken.payload) == (b"done", b"done")
    assert session.forget(second) == 2
    session.remove()
    assert "client" not in store.states.names()


# Namespaces ---------------------------------------------------------------------------------------

ADMIN, CRON, DELAYED, STATES, PREPARED, LISTENERS, INTEGRATION = (
    NAMESPACES[name]
    for name in ("admin", "cron", "delayed", "states", "prepared", "listeners", "integration")
)


@covers(ADMIN, "create_queues queue_names catalog rename_queue create_alias aliases drop_alias")
def names_of_queues(store: AnyStore) -> None:
    """Several at a time, other names, and what else there is."""
    store.admin.create_queues(["a", {"name": "b", "kind": "topic"}])
    assert store.admin.queue_names() == ["a", "b"]
    assert [item.body["name"] for item in store.admin.catalog("queue")] == ["a", "b"]
    store.admin.rename_queue("a", "c")
    store.admin.create_alias("d", "c")
    assert store.admin.aliases() == {"d": "c"}
    store.put("d", b"1")
    store.admin.drop_alias("d")
    assert payloads(store.browse("c")) == [b"1"]


@covers(ADMIN, "move purge redrive position_at queue_records explain switch")
def messages_of_an_administrator(store: AnyStore) -> None:
    """Moved, thrown away, put back from the dead letters; and told of."""
    store.create_queue("dead", kind="work")
    store.create_queue("q", kind="work", max_deliveries=1, dead_letter="dead")
    store.create_queue("other", kind="work")
    store.put_many("q", [b"1", b"2"])
    assert store.admin.position_at("q", 0) == store.integration.positions("q")[0]
    assert len(store.admin.queue_records("q")) >= 1
    assert store.admin.explain("q").reason == "ready"
    assert store.admin.move("q", "other", max_messages=1) == 1
    assert store.admin.purge("other") == 1
    with store.transaction() as txn:
        message = txn.get("q")
        assert message is not None
        txn.reject(message, "bad")
    assert store.admin.redrive("dead") == 1
    assert payloads(store.browse("q")) == [b"2"]
    store.admin.switch(puts=False)
    with pytest.raises(quire.QueueDisabled):
        store.put("q", b"3")
    assert store.admin.switch(puts=True)["puts"]


@covers(ADMIN, "transactions transaction abort shutdown checkpoint compact verify")
def care_of_a_store(store: AnyStore) -> None:
    """Its open transactions, its checkpoint, and what the checker finds."""
    store.create_queue("q", kind="work")
    store.put("q", b"1")
    txn = store.transaction(owner="somebody")
    assert txn.get("q") is not None  # answered: so the store has the transaction
    [found] = store.admin.transactions()
    assert store.admin.transaction(found.id).owner == "somebody"
    store.admin.abort(found.id)
    with pytest.raises(quire.QuireError):
        txn.commit()
    with pytest.raises(TransactionNotFound):
        store.admin.transaction(found.id)
    with pytest.raises(quire.NotAllowed):  # its owner is no `quire serve`
        store.admin.shutdown()
    store.admin.checkpoint()
    report = store.admin.compact()
    assert report.freed_bytes == sum(report.before.values()) - sum(report.after.values())
    assert store.admin.verify().ok


@covers(CRON, "create alter list drop")
def schedules(store: AnyStore) -> None:
    """Made, altered, dropped."""
    store.create_queue("q", kind="work")
    store.cron.create("s", "q", "0 0 1 1 *", b"tick")
    assert store.cron.alter("s", paused=True).paused
    assert [each.name for each in store.cron.list()] == ["s"]
    store.cron.drop("s")
    assert store.cron.list() == []


@covers(DELAYED, "list reschedule cancel")
def delayed_messages(store: AnyStore) -> None:
    """Seen before they are due, given another time, cancelled."""
    store.create_queue("q", kind="work")
    late, never = (store.put("q", payload, delay=3600) for payload in (b"late", b"never"))
    assert payloads(store.delayed.list("q")) == [b"late", b"never"]
    store.delayed.reschedule("q", late, delay=0)
    assert store.delayed.cancel("q", never)
    message = store.get("q", timeout=SECONDS)
    assert message is not None
    assert message.payload == b"late"
    assert store.delayed.list("q").payloads() == []


@covers(STATES, "get items names drop")
def states(store: AnyStore) -> None:
    """Values that transactions have set."""
    with store.transaction() as txn:
        txn.set_value("s", "a", b"1")
        txn.set_value("s", "b", b"2")
    assert (store.states.names(), store.states.get("s", "a")) == (["s"], b"1")
    assert store.states.items("s") == {"a": b"1", "b": b"2"}
    assert store.states.drop("s") == 2
    assert store.states.names() == []


@covers(PREPARED, "list commit rollback")
def prepared_transactions(store: AnyStore) -> None:
    """Decided by anybody."""
    store.create_queue("q", kind="work")
    for xid in ("x", "y"):
        txn = store.transaction()
        txn.put("q", xid.encode())
        txn.prepare(xid)
    assert sorted(each.xid for each in store.prepared.list()) == ["x", "y"]
    store.prepared.commit("x")
    store.prepared.rollback("y")
    assert store.prepared.list() == []
    assert payloads(store.browse("q")) == [b"x"]


@covers(LISTENERS, "add poll_notices list remove")
@covers(quire.Listener, "name source get error closed close")
def listeners(store: AnyStore) -> None:
    """Told of each message, and of what is there when it is asked; a name is kept until removed."""
    store.create_queue("q", kind="work")
    listener = store.listeners.add("q", name="ear")
    assert (listener.name, listener.source, listener.error, listener.closed) == (
        "ear", "q", None, False
    )  # fmt: skip
    message_id = store.put("q", b"1")
    notice = listener.get(timeout=SECONDS)
    assert notice is not None
    assert message_id in notice.ids
    assert message_id in store.listeners.poll_notices("q", 0).ids
    assert [each.name for each in store.listeners.list()] == ["ear"]
    listener.close()
    assert listener.closed
    assert store.listeners.remove("ear")
    assert store.listeners.list() == []


@covers(INTEGRATION, "store_id positions positions_many ledger ledger_many put_priorities")
@covers(INTEGRATION, "subscribe_many lease lease_many lease_state renew_lease end_lease")
@covers(
    INTEGRATION, "lease_names read_places file_size write_fragment read_fragment remove_fragments"
)
def integration(store: AnyStore) -> None:
    """Positions, entries, subscriptions, and leases of ranges."""
    store.create_queue("t", kind="topic")
    assert [each.name for each in store.integration.subscribe_many("a", {"t": "earliest"})] == ["a"]
    store.put_many("t", [b"1", b"2"])
    start, end = store.integration.positions("t")
    assert store.integration.positions_many(["t"]) == {"t": (start, end)}
    assert end - start == 2
    with store.transaction() as txn:
        txn.enter("k", 1)
    assert (store.integration.ledger("k"), store.integration.ledger_many(["k", "no"])) == (
        1, {"k": 1}
    )  # fmt: skip
    assert store.integration.store_id
    assert isinstance(store.integration.put_priorities(), dict)
    lease = store.integration.lease("t", start, end)
    store.integration.renew_lease(lease.lease_id, 60.0)
    store.integration.end_lease(lease.lease_id)
    [lease] = store.integration.lease_many([("t", start, end)])
    store.integration.end_lease(lease.lease_id)
    [lease] = store.integration.lease_many([("t", start, end)])
    for piece in lease.pieces:
        place = (piece.kind, piece.address, 0, piece.length)
        [data] = store.integration.read_places("t", [place])
        assert check_block(data).checksum == piece.checksum
    store.integration.end_lease(lease.lease_id)
    with store.transaction(large=True) as txn:
        txn.put_many("t", [bytes(1 << 20)] * 6)
    pieces = store.integration.lease("t", end, end + 6).pieces
    assert store.integration.file_size("t", pieces[-1].address) > 1 << 20
    store.integration.write_fragment("t", 1 << 62 | 7, 0, b"part")
    assert store.integration.read_fragment(1 << 62 | 7, 1, 2) == (4, b"ar")
    store.integration.remove_fragments([1 << 62 | 7])
    names = store.integration.lease_names(["t/a", "t/b"])
    with pytest.raises(QueueInUse, match="t/b"):
        store.integration.lease_names(["t/c", "t/b"])
    store.integration.end_lease(names)
    store.integration.end_lease(store.integration.lease_names(["t/c", "t/b"]))
    state = store.integration.lease_state(60.0)
    checked = store.admin.verify().checked
    assert (state.number, state.state_hash) == (checked["number"], checked["state_hash"])
    store.integration.end_lease(state.lease_id)


@covers(ADMIN, "set_archive archive stop_archive")
@covers(INTEGRATION, "ship archive_boundary")
def archive(store: AnyStore) -> None:
    """Set, followed by a shipper, and stopped."""
    store.create_queue("q", kind="work")
    made = store.admin.set_archive("/proc/none/archive", limit="1g", full="wait", keep=3600)
    assert store.admin.archive() == made
    assert (made.limit, made.full, made.keep_seconds) == (1 << 30, "wait", 3600.0)
    begun = store.integration.ship()
    assert (begun.url, begun.history, begun.gap) == ("/proc/none/archive", made.history, True)
    assert (begun.lsn, begun.number) == (begun.end_lsn, begun.end_number)
    store.put("q", b"1")
    ends = store.integration.ship()
    assert (ends.lsn, ends.end_number) == (begun.lsn, begun.number + 1)
    report = ShippingReport(ends.end_lsn, ends.end_number, 1, base_number=ends.end_number)
    known = store.integration.ship(report)
    assert (known.lsn, known.number, known.place) == (ends.end_lsn, ends.end_number, 1)
    assert not known.gap
    store.integration.archive_boundary(1)
    found = store.admin.archive()
    assert found is not None
    assert found.boundary_place == 1
    store.admin.stop_archive()
    assert store.admin.archive() is None
    assert store.integration.ship().url == ""
    assert store.admin.set_archive("/proc/none/archive").history == made.history
    store.admin.stop_archive(forget=True)
    assert store.admin.set_archive("/proc/none/archive").history != made.history
    store.admin.stop_archive()


@covers(INTEGRATION, "when_ready")
def readiness(store: AnyStore) -> None:
    """A callback is called when there is something to get."""
    store.create_queue("q", kind="work")
    called = threading.Event()
    store.integration.when_ready("q", called.set)
    store.put("q", b"1")
    assert called.wait(SECONDS)


OF_THREADS = (stopped_consumers, readiness)
"""What a store of an event loop has not: there a task is cancelled, and a get awaited."""
IN_ALL = [function for function in dict.fromkeys(COVERED.values()) if function not in OF_THREADS]


@pytest.mark.cases(4)
@pytest.mark.parametrize("function", IN_ALL, ids=lambda function: function.__name__)
def test_a_call_does_what_it_says(store: AnyStore, function: Callable[[AnyStore], None]) -> None:
    """Each public call, in every form."""
    function(store)


@pytest.mark.parametrize("store", WITH_CALLBACKS, indirect=True)
@pytest.mark.parametrize("function", OF_THREADS, ids=lambda function: function.__name__)
def test_a_call_of_threads_does_what_it_says(
    store: AnyStore, function: Callable[[AnyStore], None]
) -> None:
    """Each that only the API for threads has, in every form of it."""
    function(store)


def test_no_call_is_left_out() -> None:
    """Each public name of each interface is in a function that makes that call."""
    names = {
        f"{interface.__name__}.{name}"
        for interface in INTERFACES
        for name in dir(interface)
        if not name.startswith("_")
    }
    assert names - COVERED.keys() == set()
    assert COVERED.keys() - names == set()
    for name, function in COVERED.items():
        assert f".{name.partition('.')[2]}" in inspect.getsource(function), name
