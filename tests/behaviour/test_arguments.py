"""Bad arguments: all forms of a store refuse them alike, and nothing changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, tzinfo
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import quire
from quire.block import encode_one
from quire.engine import EmbeddedStore as Store
from quire.errors import InvalidArgument
from quire.limits import MAX_LEDGER_KEY_BYTES, MAX_XID_BYTES, PLACES_BYTES
from quire.reports.info import ShippingReport
from tests.behaviour.forms import FORMS, AnyStore


class Nowhere(tzinfo):
    """A time zone that does not know how far it is from UTC, so that a datetime has none."""

    def utcoffset(self, when: datetime | None) -> timedelta | None:
        return None

    def dst(self, when: datetime | None) -> timedelta | None:
        return None

    def tzname(self, when: datetime | None) -> str | None:
        return "nowhere"


NAN = math.nan
BLOCK = bytes(encode_one(b"x"))
FOREIGN = 1 << 62  # the bit of files that others than the owner wrote

NAMES: list[Any] = [
    "",
    ".",
    "a b",
    "a/b/c",
    "é",
    "\ud800",
    "x" * 201,
    "a\0",
    None,
    5,
    b"q",
    [],
    True,
]
SOURCES: list[Any] = ["", "/a", "work/", "a/b/c", "topic/\ud800", None, 5, b"work", [], True]
COUNTS: list[Any] = [0, -1, 1.5, "1", True, [], np.int64(5), NAN]
FROM_ZERO: list[Any] = [-1, 1.0, "0", True, [], np.int64(5)]
TIMEOUTS: list[Any] = [-1, -0.5, NAN, "1", True, [], np.float64(1)]
LIFETIMES: list[Any] = [0, -1, NAN, "1", True, []]
FLAGS: list[Any] = [None, 0, 1, "yes"]
SECONDS: list[Any] = [0, -1, NAN, math.inf, "1", True, None, []]
NUMBERS: list[Any] = ["1", 1.0, None, True, [], np.int64(5)]
KEYS: list[Any] = ["", 5, None, b"k", [], "\ud800", "x" * (MAX_LEDGER_KEY_BYTES + 1)]
VERSIONS: list[Any] = [-1, 1 << 63, 1.0, "1", None, True, np.int64(5)]
XIDS: list[Any] = ["", "\n", "\ud800", None, 5, b"x", "x" * (MAX_XID_BYTES + 1)]
BLOCKS: list[Any] = [b"", b"garbage", BLOCK[:-1], BLOCK + BLOCK, BLOCK[:-1] + b"?", "text", None]
FILES: list[Any] = [0, 1, -1, FOREIGN << 1, FOREIGN << 8, float(FOREIGN), str(FOREIGN), None, True]
PAYLOADS: list[Any] = [None, "text", 5, ["x"]]

CALLS: dict[str, tuple[list[Any], Callable[[Any, Any], object]]] = {
    "create_queue name": (NAMES, lambda store, bad: store.create_queue(bad)),
    "create_queue kind": (
        ["heap", "", None, 5, True, ["work"]],
        lambda store, bad: store.create_queue("new", kind=bad),
    ),
    "create_queue capacity": (
        [0, -1, 4095, 1 << 61, 1e6, "a million", True],
        lambda store, bad: store.create_queue("new", capacity=bad),
    ),
    "create_queue max_messages": (
        [*COUNTS, 1 << 61, 10**30],
        lambda store, bad: store.create_queue("new", max_messages=bad),
    ),
    "alter_queue max_messages": (
        [*COUNTS, 1 << 61, 10**30],
        lambda store, bad: store.alter_queue("work", max_messages=bad),
    ),
    "reschedule delay": (
        [-1, NAN, math.inf, "1", True, []],
        lambda store, bad: store.delayed.reschedule("work", 99, delay=bad),
    ),
    "reschedule deliver_at": (
        [-1, 5, NAN, "1", True, [], datetime(2030, 1, 1, tzinfo=Nowhere())],
        lambda store, bad: store.delayed.reschedule("work", 99, deliver_at=bad),
    ),
    "reschedule both": (
        [1.0], lambda store, bad: store.delayed.reschedule("work", 99, delay=bad, deliver_at=2e9)
    ),
    "create_queue data_file": (
        [*FROM_ZERO, 2], lambda store, bad: store.create_queue("new", data_file=bad)
    ),
    "create_queues": (
        ["ab", b"ab", 5, None, {"name": "a"}, [5], [None], [{"size": 1}], [{"kind": "work"}]],
        lambda store, bad: store.admin.create_queues(bad),
    ),
    "create_queues name": (NAMES, lambda store, bad: store.admin.create_queues(["new", bad])),
    "create_queues data_file": (
        [*FROM_ZERO, 2],
        lambda store, bad: store.admin.create_queues(["new", {"name": "b", "data_file": bad}]),
    ),
    "catalog": (
        ["link", 5, b"queue", True, ["queue"]], lambda store, bad: store.admin.catalog(bad)
    ),
    "queue_names": ([5, None, b"q"], lambda store, bad: store.admin.queue_names(bad)),
    "queues": (["ab", b"ab", 5, [5]], lambda store, bad: store.queues(bad)),
    "queues name": (NAMES, lambda store, bad: store.queues(["work", bad])),
    "queue": (NAMES, lambda store, bad: store.queue(bad)),
    "drop_queue": (NAMES, lambda store, bad: store.drop_queue(bad)),
    "positions": (NAMES, lambda store, bad: store.integration.positions(bad)),
    "positions_many": (NAMES, lambda store, bad: store.integration.positions_many([bad])),
    "records name": (NAMES, lambda store, bad: store.admin.queue_records(bad)),
    "records start": (FROM_ZERO, lambda store, bad: store.admin.queue_records("work", start=bad)),
    "records limit": (COUNTS, lambda store, bad: store.admin.queue_records("work", limit=bad)),
    "subscribe queue": (NAMES, lambda store, bad: store.subscribe(bad, "b")),
    "subscribe name": (NAMES, lambda store, bad: store.subscribe("topic", bad)),
    "subscribe start": (
        ["", "middle", -1, -1.0, "id:x", True, None, [], 99],
        lambda store, bad: store.subscribe("topic", "b", start=bad),
    ),
    "subscribe_many": (
        ["topic", [("topic", 0)], None, {"topic": -1}, {5: 0}],
        lambda store, bad: store.integration.subscribe_many("b", bad),
    ),
    "subscribe_many start": (
        ["", "middle", -1, -1.0, "id:x", True, None, [], 99],
        lambda store, bad: store.integration.subscribe_many("b", {"topic": bad}),
    ),
    "subscribe_many name": (
        NAMES, lambda store, bad: store.integration.subscribe_many(bad, {"topic": "earliest"})
    ),
    "subscribe exclusive": (
        FLAGS[1:], lambda store, bad: store.subscribe("topic", "b", exclusive=bad)
    ),
    "subscribe durable": (FLAGS[1:], lambda store, bad: store.subscribe("topic", "b", durable=bad)),
    "position_at name": (NAMES, lambda store, bad: store.admin.position_at(bad, 0.0)),
    "position_at time": (
        ["", -1, NAN, math.inf, True, None, []],
        lambda store, bad: store.admin.position_at("topic", bad),
    ),
    "unsubscribe queue": (NAMES, lambda store, bad: store.unsubscribe(bad, "a")),
    "unsubscribe name": (NAMES, lambda store, bad: store.unsubscribe("topic", bad)),
    "subscriptions": (NAMES, lambda store, bad: store.subscriptions(bad)),
    "transaction timeout": (LIFETIMES, lambda store, bad: store.transaction(timeout=bad)),
    "transaction large": (FLAGS, lambda store, bad: store.transaction(large=bad)),
    "transaction owner": ([5, b"", [], "\ud800"], lambda store, bad: store.transaction(owner=bad)),
    "transaction_info": (NUMBERS, lambda store, bad: store.admin.transaction(bad)),
    "abort": (NUMBERS, lambda store, bad: store.admin.abort(bad)),
    "commit_prepared": (XIDS, lambda store, bad: store.prepared.commit(bad)),
    "rollback_prepared": (XIDS, lambda store, bad: store.prepared.rollback(bad)),
    "store.put queue": (NAMES, lambda store, bad: store.put(bad, b"x")),
    "store.put payload": (PAYLOADS, lambda store, bad: store.put("work", bad)),
    "store.put field": ([-1, "1", True], lambda store, bad: store.put("work", b"", group=bad)),
    "browse source": (SOURCES, lambda store, bad: store.browse(bad)),
    "browse start": (FROM_ZERO, lambda store, bad: store.browse("work", start=bad)),
    "browse max_messages": (COUNTS, lambda store, bad: store.browse("work", max_messages=bad)),
    "ledger": (KEYS, lambda store, bad: store.integration.ledger(bad)),
    "ledger_many": (KEYS, lambda store, bad: store.integration.ledger_many([bad])),
    "lease queue": (NAMES, lambda store, bad: store.integration.lease(bad, 0, 0)),
    "lease start": ([-1, *NUMBERS], lambda store, bad: store.integration.lease("work", bad, 0)),
    "lease end": ([-1, *NUMBERS], lambda store, bad: store.integration.lease("work", 0, bad)),
    "lease seconds": (SECONDS, lambda store, bad: store.integration.lease("work", 0, 0, bad)),
    "lease gaps": (FLAGS, lambda store, bad: store.integration.lease("work", 0, 0, gaps=bad)),
    "lease_many": (
        ["work", {"work": (0, 0)}, 5, None, [5], ["work"], [("work", 0)], [("work", 0, 0, 0)]],
        lambda store, bad: store.integration.lease_many(bad),
    ),
    "lease_many end": (
        [-1, *NUMBERS],
        lambda store, bad: store.integration.lease_many([("work", 0, 0), ("work", 0, bad)]),
    ),
    "lease_many seconds": (
        SECONDS, lambda store, bad: store.integration.lease_many([("work", 0, 0)], bad)
    ),
    "lease_many gaps": (
        FLAGS, lambda store, bad: store.integration.lease_many([("work", 0, 0)], gaps=bad)
    ),
    "lease_names": (
        [None, "name", 5, [None], [5], [""]],
        lambda store, bad: store.integration.lease_names(bad),
    ),
    "lease_names seconds": (
        SECONDS, lambda store, bad: store.integration.lease_names(["name"], bad)
    ),
    "lease_state": (SECONDS, lambda store, bad: store.integration.lease_state(bad)),
    "ship": (
        [5, "report", {"lsn": 1}, ShippingReport(-1, 0, 0), ShippingReport(1 << 60, 0, 0)],
        lambda store, bad: store.integration.ship(bad),
    ),
    "read_places": (
        [None, "places", [5], [()], [("data", 1, 2)], [("none", 0, 0, 1)], [("data", -1, 0, 1)],
         [("ltds", True, 0, 1)], [("ltds", 1, 0, PLACES_BYTES), ("ltds", 1, 0, 1)]],
        lambda store, bad: store.integration.read_places("work", bad),
    ),
    "read_places queue": (NAMES, lambda store, bad: store.integration.read_places(bad, [])),
    "file_size": (
        [None, "1", -1, True, 1.5, 1 << 63],
        lambda store, bad: store.integration.file_size("work", bad),
    ),
    "file_size queue": (NAMES, lambda store, bad: store.integration.file_size(bad, 1)),
    "read_fragment": (
        [None, "1", -1, True, 5, 1 << 63],
        lambda store, bad: store.integration.read_fragment(bad, 0, 1),
    ),
    "read_fragment offset": (
        [None, "1", -1, True, 1.5],
        lambda store, bad: store.integration.read_fragment(1 << 62, bad, 1),
    ),
    "read_fragment length": (
        [None, "1", -1, True, 1.5, PLACES_BYTES + 1],
        lambda store, bad: store.integration.read_fragment(1 << 62, 0, bad),
    ),
    "write_fragment": (
        [None, "1", -1, True, 5, 1 << 63],
        lambda store, bad: store.integration.write_fragment("work", bad, 0, b"1"),
    ),
    "write_fragment queue": (
        NAMES, lambda store, bad: store.integration.write_fragment(bad, 1 << 62, 0, b"1")
    ),
    "write_fragment offset": (
        [None, "1", -1, True, 1.5],
        lambda store, bad: store.integration.write_fragment("work", 1 << 62, bad, b"1"),
    ),
    "write_fragment data": (
        [None, "1", 5, b"", bytes(PLACES_BYTES + 1)],
        lambda store, bad: store.integration.write_fragment("work", 1 << 62, 0, bad),
    ),
    "remove_fragments": (
        [None, 5, [None], ["1"], [5]], lambda store, bad: store.integration.remove_fragments(bad)
    ),
    "archive_boundary": (
        [None, "1", -1, True, 1.5], lambda store, bad: store.integration.archive_boundary(bad)
    ),
    "set_archive": (
        [None, 5, "", "a\nb", "s3://key:secret@bucket", "s3://" + "b" * 1000],
        lambda store, bad: store.admin.set_archive(bad),
    ),
    "set_archive limit": (
        [None, 0, "much", 1.5], lambda store, bad: store.admin.set_archive("s3://b", limit=bad)
    ),
    "set_archive full": (
        [None, 0, "stop"], lambda store, bad: store.admin.set_archive("s3://b", full=bad)
    ),
    "set_archive keep": (
        [0, "7d", -1.0], lambda store, bad: store.admin.set_archive("s3://b", keep=bad)
    ),
    "stop_archive": (FLAGS, lambda store, bad: store.admin.stop_archive(forget=bad)),
    "renew": (NUMBERS, lambda store, bad: store.integration.renew_lease(bad)),
    "renew seconds": (SECONDS, lambda store, bad: store.integration.renew_lease(1, bad)),
    "release": (NUMBERS, lambda store, bad: store.integration.end_lease(bad)),
}  # fmt: skip

IN_TRANSACTIONS: dict[str, tuple[list[Any], Callable[[Any, Any], object]]] = {
    "put queue": (NAMES, lambda txn, bad: txn.put(bad, b"x")),
    "put payload": (PAYLOADS, lambda txn, bad: txn.put("work", bad)),
    "put field": (["\ud800", 5, b"x"], lambda txn, bad: txn.put("work", b"", sender=bad)),
    "put_many queue": (NAMES, lambda txn, bad: txn.put_many(bad, [b"x"])),
    "put_many payload": (PAYLOADS, lambda txn, bad: txn.put_many("work", [b"good", bad])),
    "put_block queue": (NAMES, lambda txn, bad: txn.integration.put_block(bad, BLOCK)),
    "put_block": (BLOCKS, lambda txn, bad: txn.integration.put_block("work", bad)),
    "put_blocks queue": (NAMES, lambda txn, bad: txn.integration.put_blocks([(bad, BLOCK)])),
    "put_blocks pairs": (
        [5, None, [5], [None], ["work"], [("work",)], [("work", BLOCK, 5)], {"work": BLOCK}],
        lambda txn, bad: txn.integration.put_blocks(bad),
    ),
    "put_blocks": (BLOCKS, lambda txn, bad: txn.integration.put_blocks([("work", bad)])),
    "put_stream queue": (NAMES, lambda txn, bad: txn.put_stream(bad, b"x")),
    "put_stream source": (PAYLOADS, lambda txn, bad: txn.put_stream("work", bad)),
    "put_stream field": (["\ud800", 5], lambda txn, bad: txn.put_stream("work", b"", sender=bad)),
    "put_stream request": (["x", 5], lambda txn, bad: txn.put_stream("work", b"", request_id=bad)),
    "put_writer queue": (NAMES, lambda txn, bad: txn.put_writer(bad)),
    "put_writer size": ([*FROM_ZERO, 1 << 60], lambda txn, bad: txn.put_writer("work", size=bad)),
    "put_writer timeout": (TIMEOUTS, lambda txn, bad: txn.put_writer("work", timeout=bad)),
    "write": (PAYLOADS, lambda txn, bad: txn.put_writer("work").write(bad)),
    "adopt queue": (NAMES, lambda txn, bad: txn.integration.adopt(bad, FOREIGN)),
    "adopt": (FILES, lambda txn, bad: txn.integration.adopt("work", bad)),
    "get source": (SOURCES, lambda txn, bad: txn.get(bad)),
    "get timeout": (TIMEOUTS, lambda txn, bad: txn.get("work", timeout=bad)),
    "get_many source": (SOURCES, lambda txn, bad: txn.get_many(bad)),
    "get_many max_messages": (COUNTS, lambda txn, bad: txn.get_many("work", bad)),
    "get_many timeout": (TIMEOUTS, lambda txn, bad: txn.get_many("work", timeout=bad)),
    "get_arrow max_messages": (COUNTS, lambda txn, bad: txn.get_arrow("work", bad)),
    "read_to source": (SOURCES, lambda txn, bad: txn.read_to(bad, 0)),
    "read_to position": ([*FROM_ZERO, None, 99], lambda txn, bad: txn.read_to("work", bad)),
    "read_to_many": (
        ["work", 5, None, [["work", 0]], {"work": 99}, {5: 0}],
        lambda txn, bad: txn.integration.read_to_many(bad),
    ),
    "read_to_many position": (
        [*FROM_ZERO, None, 99],
        lambda txn, bad: txn.integration.read_to_many({"work": bad}),
    ),
    "seek source": (SOURCES, lambda txn, bad: txn.seek(bad, 0)),
    "seek to": (
        ["", "middle", -1, -1.0, True, None, [], 99],
        lambda txn, bad: txn.seek("work", bad),
    ),
    "seek timeout": ([None, *TIMEOUTS], lambda txn, bad: txn.seek("topic/a", 0, bad)),
    "record key": (KEYS, lambda txn, bad: txn.enter(bad, 1)),
    "record version": (VERSIONS, lambda txn, bad: txn.enter("key", bad)),
    "commit timeout": (TIMEOUTS, lambda txn, bad: txn.commit(timeout=bad)),
    "prepare xid": (XIDS, lambda txn, bad: txn.prepare(bad)),
    "prepare timeout": (TIMEOUTS, lambda txn, bad: txn.prepare("x1", timeout=bad)),
}


@pytest.fixture(scope="module", params=list(FORMS)[1:])
def pair(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[tuple[Store, AnyStore]]:
    """A store with two queues, embedded and in another form: one for all, as nothing changes it."""
    with quire.open(str(tmp_path_factory.mktemp("pair") / "store")) as owner:
        assert isinstance(owner, Store)
        owner.create_queue("work", kind="work")
        owner.create_queue("topic", kind="topic")
        owner.subscribe("topic", "a")
        owner.put("work", b"kept")
        with FORMS[request.param](owner) as store:
            yield owner, store
            assert owner.admin.verify().ok


@pytest.fixture
def both(pair: tuple[Store, AnyStore]) -> Iterator[tuple[Store, AnyStore]]:
    """The pair; it is as before at the end."""
    owner, _ = pair
    before = owner.queues(), owner.subscriptions("topic")
    yield pair
    assert (owner.queues(), owner.subscriptions("topic")) == before
    assert owner.browse("work").payloads() == [b"kept"]
    assert owner.prepared.list() == []
    assert owner.integration.ledger("key") is None


def refusal(call: Callable[[Any, Any], object], of: Any, bad: Any) -> str:
    """What the error says is wrong, without what it advises."""
    with pytest.raises(InvalidArgument) as caught:
        call(of, bad)
    said = str(caught.value)
    assert len(said) < 500, "a long argument is not repeated"
    return said.partition(":")[0]


def is_checked_before(name: str, request: pytest.FixtureRequest) -> bool:
    """Return True if a user's names are looked at before the store sees them, in other words."""
    several = ("create_queues", "ledger_many", "read_to_many")
    return name in several and request.node.callspec.params["pair"].endswith("network")


@pytest.mark.cases(3)
@pytest.mark.promise(13)
@pytest.mark.parametrize("name", CALLS)
def test_a_bad_argument_of_the_store(
    both: tuple[Store, AnyStore], name: str, request: pytest.FixtureRequest
) -> None:
    """InvalidArgument that says the same as embedded."""
    values, call = CALLS[name]
    for bad in values:
        said = [refusal(call, store, bad) for store in both]
        assert said[0] == said[1] or is_checked_before(name, request)


@pytest.mark.cases(3)
@pytest.mark.promise(13)
@pytest.mark.parametrize("name", IN_TRANSACTIONS)
def test_a_bad_argument_of_a_transaction(
    both: tuple[Store, AnyStore], name: str, request: pytest.FixtureRequest
) -> None:
    """Likewise; and the transaction stays open."""
    values, call = IN_TRANSACTIONS[name]
    transactions = [store.transaction() for store in both]
    for bad in values:
        said = [refusal(call, txn, bad) for txn in transactions]
        assert said[0] == said[1] or is_checked_before(name, request)
    for txn in transactions:
        assert txn.state == "open"
        txn.rollback()


@pytest.mark.promise(13)
def test_what_is_odd_but_right(both: tuple[Store, AnyStore]) -> None:
    """Endless times, and the longest keys; for both."""
    owner, other = both
    for store in both:
        txn = store.transaction(timeout=math.inf)
        assert txn.get("work", timeout=math.inf) is not None
        [info] = owner.admin.transactions()
        assert info.seconds_left is None
        txn.rollback()
        store.transaction(timeout=10**400).rollback()
        with store.transaction(timeout=1e9) as txn:
            txn.enter("k" * MAX_LEDGER_KEY_BYTES, int(store is other))
            txn.commit(timeout=math.inf)


@pytest.mark.parametrize("is_typed", [False, True], ids=["bytes", "rows"])
def test_attributes_are_a_mapping(store: AnyStore, is_typed: bool) -> None:
    """Two of one name are refused, in the columns of a batch too, and nothing of it is put."""
    kind = pa.map_(pa.string(), pa.string())
    rows: list[list[tuple[str, str]]] = [
        [("a", "1"), ("b", "1")], [], [("a", "1"), ("b", "2"), ("a", "2")], [("a", "1")],
    ]  # fmt: skip

    def batch(rows: list[list[tuple[str, str]]]) -> pa.RecordBatch:
        attributes, numbers = pa.array(rows, kind), pa.array(range(len(rows)), pa.int64())
        if not is_typed:
            payloads = pa.array([b"x"] * len(rows))
            return pa.record_batch([payloads, attributes], ["payload", "attributes"])
        meta = pa.StructArray.from_arrays([attributes], ["attributes"])
        return pa.record_batch([numbers, meta], ["n", "_meta"])

    store.create_queue("q", schema="n bigint" if is_typed else None)
    with pytest.raises(InvalidArgument, match="row 2: 'a' is there twice"):
        store.put_many("q", batch(rows))
    assert store.queue("q").messages == 0
    rows[2].pop()
    store.put_many("q", batch(rows))
    assert [dict(each.attributes) for each in store.get_many("q")] == [*map(dict, rows)]
