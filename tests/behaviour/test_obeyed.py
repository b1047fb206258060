"""What a queue does not obey is refused, never accepted and ignored: in every form of a store."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from quire.block import encode_one
from quire.errors import InvalidArgument
from quire.limits import CHUNK_BYTES
from quire.messages.message_fields import Fields
from tests.behaviour.forms import AnyStore, Clock

FAR_US = 4_000_000_000_000_000
FAR = datetime(2096, 10, 2, 7, 6, 40, tzinfo=UTC)

# What a put may ask, the name by which it is refused, and the option that has it obeyed.
TIMES: list[tuple[dict[str, Any], str, dict[str, Any]]] = [
    ({"delay": 60}, "deliver_at (or delay)", {"timed": True}),
    ({"deliver_at": FAR}, "deliver_at (or delay)", {"timed": True}),
    ({"ttl": timedelta(minutes=1)}, "expires_at (or ttl)", {"timed": True}),
    ({"expires_at": FAR_US}, "expires_at (or ttl)", {"timed": True}),
]
OTHERS: list[tuple[dict[str, Any], str, dict[str, Any]]] = [
    ({"priority": 1}, "priority", {"order": "priority"}),
    ({"group_key": "g"}, "group_key", {"grouped": True}),
    ({"attributes": {"quire.group_key": "g", "a": "b"}}, "group_key", {"grouped": True}),
]
STREAM = b"x" * (CHUNK_BYTES + 1)


def columns(options: dict[str, Any]) -> pa.RecordBatch:
    """Two messages, of which the second has the options."""
    given = {**options}
    seconds = {"delay": "deliver_at", "ttl": "expires_at"}
    named = {seconds.get(name, name): value for name, value in given.items()}
    made: dict[str, Any] = {"payload": pa.array([b"plain", b"m"])}
    for name, value in named.items():
        if name in ("deliver_at", "expires_at"):
            made[name] = pa.array([None, FAR_US], pa.timestamp("us", "UTC"))
        elif name == "priority":
            made[name] = pa.array([0, value])
        else:
            pairs = value if name == "attributes" else {"quire.group_key": value}
            type_ = pa.map_(pa.string(), pa.string())
            made["attributes"] = pa.array([None, list(pairs.items())], type_)
    return pa.RecordBatch.from_pydict(made)


def in_transaction(store: AnyStore, put: Callable[[Any], object]) -> None:
    """In one of its own."""
    with store.transaction() as txn:
        put(txn)


def block_of(options: dict[str, Any]) -> bytes:
    """One message as a block."""
    [(_, batch)] = [(0, columns(options))]
    row = {name: batch.column(name)[1].as_py() for name in batch.schema.names if name != "payload"}
    for name in ("deliver_at", "expires_at"):
        if name in row:
            row[name] = FAR_US
    if "attributes" in row:
        row["attributes"] = dict(row["attributes"])
    return bytes(encode_one(b"m", Fields(**row)))


WAYS: dict[str, Callable[[AnyStore, str, dict[str, Any]], object]] = {
    "put": lambda store, queue, options: store.put(queue, b"m", **options),
    "put in a transaction": lambda store, queue, options: in_transaction(
        store, lambda txn: txn.put(queue, b"m", **options)
    ),
    "put after others": lambda store, queue, options: in_transaction(
        store, lambda txn: (txn.put_many(queue, [b"1", b"2"]), txn.put(queue, b"m", **options))
    ),
    "put_many": lambda store, queue, options: store.put_many(queue, columns(options)),
    "put_stream": lambda store, queue, options: store.put_stream(queue, STREAM, **options),
    "a short put_stream": lambda store, queue, options: store.put_stream(queue, b"m", **options),
    "put_block": lambda store, queue, options: in_transaction(
        store, lambda txn: txn.integration.put_block(queue, block_of(options))
    ),
}
way = pytest.mark.parametrize("way", WAYS)


@pytest.mark.cases(3)
@way
def test_what_is_not_obeyed_is_refused(store: AnyStore, way: str) -> None:
    """With the option to set; then nothing is put. Once it is set, the same put is taken."""
    put = WAYS[way]
    for number, (options, named, remedy) in enumerate([*TIMES, *OTHERS]):
        topic, work = f"topic-{number}", f"work-{number}"
        store.create_queue(topic, kind="topic")
        store.subscribe(topic, "s")
        store.create_queue(work, kind="work", timed=False)
        for queue in (topic, work):
            with pytest.raises(InvalidArgument, match=re.escape(named)) as told:
                put(store, queue, options)
            [(option, value)] = remedy.items()
            assert f"alter_queue({queue!r}, {option}={value!r})" in str(told.value)
            found = store.queue(queue)
            assert (found.messages, found.used_bytes, found.open_transactions) == (0, 0, 0)
            store.alter_queue(queue, **remedy)
            put(store, queue, options)
            assert store.queue(queue).messages > 0


@pytest.mark.cases(3)
@way
def test_a_work_queue_obeys_times_from_the_first_on(store: AnyStore, way: str) -> None:
    """It is made timed by that put, durably, also if its transaction is rolled back."""
    for number, (options, _, _) in enumerate(TIMES):
        queue = f"q-{number}"
        store.create_queue(queue, kind="work")
        store.put(queue, b"before")
        assert store.queue(queue).timed is None
        WAYS[way](store, queue, options)
        assert store.queue(queue).timed is True
        later = "delay" in options or "deliver_at" in options
        with store.transaction() as txn:
            payloads = txn.get_many(queue).payloads()
            assert (payloads[-1] in (b"m", STREAM)) is not later
            assert payloads[0] == b"before"
        assert len(store.delayed.list(queue)) == int(later)


def test_a_rolled_back_put_leaves_its_queue_timed(store: AnyStore, clock: Clock) -> None:
    """What it says of itself is so; what it had before stays, and is obeyed as others."""
    store.create_queue("q", kind="work")
    txn = store.transaction()
    txn.put("q", b"first", delay=60)
    txn.put("q", b"second")
    txn.rollback()
    with store.transaction() as txn:
        txn.put("q", b"first", delay=60)
        txn.put("q", b"second")
    assert store.queue("q").timed is True
    assert [m.payload for m in store.delayed.list("q")] == [b"first"]
    with store.transaction() as txn:
        assert txn.get_many("q").payloads() == [b"second"]
    clock.forward(60.0)
    with store.transaction() as txn:
        assert txn.get_many("q").payloads() == [b"first"]


def test_rows_are_obeyed_or_refused(store: AnyStore) -> None:
    """Of a typed queue: by name, and by the columns of `_meta`."""
    store.create_queue("topic", kind="topic", schema="id bigint")
    store.subscribe("topic", "s")
    store.create_queue("work", "work", schema="id bigint")
    table = pa.table({"id": [1, 2], "_meta": [{"priority": 0}, {"priority": 5}]})
    for queue in ("topic", "work"):
        with pytest.raises(InvalidArgument, match=f"'{queue}' does not obey priority"):
            store.put_many(queue, table)
        with pytest.raises(InvalidArgument, match=f"'{queue}' does not obey group_key"):
            store.put(queue, {"id": 1}, group_key="g")
    with pytest.raises(InvalidArgument, match="does not obey deliver_at"):
        store.put("topic", {"id": 1}, delay=60)
    assert store.queue("topic").messages == store.queue("work").messages == 0
    store.put("work", {"id": 1}, delay=60)
    store.put_many("work", pa.table({"id": [2], "_meta": [{"priority": 0}]}))
    assert [m.value for m in store.delayed.list("work")] == [{"id": 1}]
    with store.transaction() as txn:
        assert [m.value for m in txn.get_many("work")] == [{"id": 2}]


def test_columns_without_values_are_fine(store: AnyStore) -> None:
    """Null, or the zero that a priority is by default: as `get_arrow` gives them."""
    times = pa.array([None], pa.timestamp("us", "UTC"))
    batch = pa.RecordBatch.from_pydict(
        {
            "payload": [b"m"], "priority": [0], "deliver_at": times, "expires_at": times,
            "attributes": pa.array([[("a", "b")]], pa.map_(pa.string(), pa.string())),
        }
    )  # fmt: skip
    store.create_queue("q")
    store.put_many("q", batch)
    store.put("q", b"m", priority=0, deliver_at=None, ttl=None, group_key=None)
    store.put("q", b"m", priority=None)
    assert store.queue("q").messages == 3
    assert store.queue("q").timed is None


def test_large_columns_are_refused_as_a_whole(store: AnyStore) -> None:
    """Also where the value is in a later slice of them: nothing of them is put."""
    rows = 40_000
    priorities = [0] * (rows - 1) + [1]
    table = pa.table({"payload": [b"m" * 10] * rows, "priority": priorities})
    store.create_queue("q", kind="work")
    with store.transaction() as txn:
        txn.put("q", b"before")
    with pytest.raises(InvalidArgument, match="'q' does not obey priority"):
        store.put_many("q", table)
    assert store.queue("q").messages == 1


def test_an_expiry_makes_a_work_queue_timed(store: AnyStore, clock: Clock) -> None:
    """At its making, and when it is altered; a topic, and what is not timed, refuse it."""
    store.create_queue("made", kind="work", ttl=5)
    store.create_queue("altered", kind="work")
    store.alter_queue("altered", max_ttl=timedelta(seconds=5))
    for queue in ("made", "altered"):
        assert store.queue(queue).timed is True
        store.put(queue, b"m")
    clock.forward(5)
    for queue in ("made", "altered"):
        assert store.get(queue) is None
    store.create_queue("made", kind="work", ttl=5, exist_ok=True)
    store.create_queue("made", kind="work", timed=None, exist_ok=True)  # None asks for nothing
    with pytest.raises(InvalidArgument, match="give timed=True too"):
        store.create_queue("topic", kind="topic", ttl=5)
    with pytest.raises(InvalidArgument, match="max_ttl counts where times do"):
        store.create_queue("never", kind="work", timed=False, max_ttl=5)
    store.create_queue("topic", kind="topic")
    with pytest.raises(InvalidArgument, match="give timed=True too, or ttl=None"):
        store.alter_queue("topic", ttl=5)
    with pytest.raises(InvalidArgument, match="ttl=None"):
        store.alter_queue("made", timed=False)
    assert store.queue("made").timed is True
    store.alter_queue("made", timed=False, ttl=None)
    with pytest.raises(InvalidArgument, match="does not obey deliver_at"):
        store.put("made", b"m", delay=1)


def test_what_is_moved_keeps_its_header(store: AnyStore, clock: Clock) -> None:
    """By `move`, `redrive`, `reschedule`, a schedule, as a dead letter: the queue takes it."""
    options: Any = {"order": "priority", "grouped": True, "timed": True}
    header: dict[str, Any] = {"priority": 7, "group_key": "g", "ttl": 3600}
    store.create_queue("letters", kind="topic")
    store.subscribe("letters", "s")
    store.create_queue("from", "work", max_deliveries=1, dead_letter="letters", **options)
    store.create_queue("to", "work")
    store.create_queue("topic", kind="topic")
    store.subscribe("topic", "s")

    def header_of(source: str) -> tuple[int, str | None]:
        message = store.get(source)
        assert message is not None
        return message.priority, message.group_key

    for queue, source in (("to", "to"), ("topic", "topic/s")):
        store.put("from", b"moved", **header)
        store.put_stream("from", STREAM, **{**header, "group_key": "h"})
        with store.transaction() as txn:
            assert txn.move("from", queue, 1) == 1
        assert header_of(source) == (7, "g")
        with store.transaction() as txn:
            assert txn.move("from", queue, 1) == 1
        assert header_of(source) == (7, "h")
    assert store.queue("topic").timed is None
    store.put("from", b"dead", **header)
    with store.transaction() as txn:
        message = txn.get("from")
        assert message is not None
        txn.reject(message, "why")
    store.alter_queue("from", order="commit", grouped=False)
    assert store.admin.redrive("letters/s") == 1
    assert header_of("from") == (7, "g")
    store.alter_queue("from", order="priority")
    later = store.put("from", b"later", priority=7, delay=60)
    store.alter_queue("from", order="commit")
    assert store.delayed.reschedule("from", later, delay=timedelta(0)) is not None
    assert header_of("from") == (7, None)


def test_moved_rows_keep_their_header(store: AnyStore) -> None:
    """The same of a typed queue."""
    store.create_queue("from", "work", schema="id bigint", order="priority")
    store.create_queue("to", "work", schema="id bigint")
    store.put("from", {"id": 1}, priority=7)
    store.put("from", {"id": 2}, priority=6, delay=0)
    with store.transaction() as txn:
        assert txn.move("from", "to") == 2
    assert [(m.value, m.priority) for m in store.browse("to")] == [({"id": 1}, 7), ({"id": 2}, 6)]
    with store.transaction() as txn:
        [first, _] = txn.get_many("to")
        txn.put("to", {"id": 3})
        assert txn.move([first], "to") == 1
    assert [m.value for m in store.browse("to")] == [{"id": 3}, {"id": 1}]


@pytest.mark.cases(3)
@pytest.mark.parametrize(
    "wrong",
    [
        1_700_000_000, 1_700_000_000_000, -1, -1.0, 1.8e15, float("nan"), float("inf"), True, "now",
        datetime(2026, 1, 1), timedelta(1), 1 << 62,  # noqa: DTZ001 one without a zone
    ],
    ids=repr,
)  # fmt: skip
def test_wrong_moments_are_refused(store: AnyStore, wrong: Any) -> None:
    """By one rule, with what may be given; of what looks like other units, it is said."""
    store.create_queue("q", kind="work")
    number = store.put("q", b"later", delay=60)
    calls: list[Callable[[], object]] = [
        lambda: store.put("q", b"m", deliver_at=wrong),
        lambda: store.put("q", b"m", expires_at=wrong),
        lambda: store.admin.position_at("q", wrong),
        lambda: store.delayed.reschedule("q", number, deliver_at=wrong),
    ]
    for each in calls:
        with pytest.raises(InvalidArgument, match="datetime") as told:
            each()
        seconds = isinstance(wrong, int) and 0 < wrong < 1 << 50 and wrong is not True
        assert ("seconds where microseconds are meant?" in str(told.value)) is seconds
        assert ("microseconds where seconds are meant?" in str(told.value)) is (
            isinstance(wrong, float) and wrong > 1e12
        )
    assert len(store.delayed.list("q")) == 1


def test_moments_are_said_in_three_ways(store: AnyStore) -> None:
    """All mean the same instant, to the microsecond where they say it."""
    store.create_queue("q", kind="work")
    for moment in (FAR, FAR_US, FAR_US / 1e6, FAR.astimezone()):
        store.put("q", b"m", deliver_at=moment)
        store.put("q", b"m", expires_at=moment)
    assert {message.deliver_at for message in store.delayed.list("q")} == {FAR_US}
    [number] = [m.id for m in store.delayed.list("q")][:1]
    made = store.delayed.reschedule("q", number, deliver_at=FAR + timedelta(microseconds=1))
    found = [m.deliver_at for m in store.delayed.list("q") if m.id == made]
    assert found == [FAR_US + 1]
    store.create_queue("t", kind="topic")
    for moment in (FAR, FAR_US, FAR_US / 1e6):
        assert store.admin.position_at("t", moment) == 0
    store.subscribe("t", "s", start=FAR)
    with store.transaction() as txn:
        txn.seek("t/s", FAR)


def test_spans_are_seconds_or_timedeltas(store: AnyStore, clock: Clock) -> None:
    """In options of queues, of puts, and as time-outs."""
    minute: Any = timedelta(minutes=1)
    made = store.create_queue(
        "q", "work", ttl=minute, max_ttl=2 * minute, dedup_seconds=minute,
        retry={"delay": minute, "cap": minute},
    )  # fmt: skip
    assert (made.ttl, made.max_ttl, made.dedup_seconds) == (60.0, 120.0, 60.0)
    assert made.retry is not None
    assert (made.retry["delay"], made.retry["cap"]) == (60.0, 60.0)
    assert (
        store.admin.create_queues([{"name": "t", "kind": "topic", "keep_seconds": minute}])[
            0
        ].keep_seconds
        == 60.0
    )
    assert store.alter_queue("t", keep_seconds=2 * minute).keep_seconds == 120.0
    store.alter_queue("q", overflow="wait")
    store.put("q", b"m", delay=minute / 2, timeout=minute)
    clock.forward(30)
    short: Any = timedelta(milliseconds=1)
    with store.transaction(timeout=minute) as txn:
        message = txn.get("q", timeout=minute)
        assert message is not None
        txn.reject(message, delay=minute / 10)
        assert txn.get("q", timeout=short) is None
        txn.commit(timeout=short)
    clock.forward(6)
    assert store.get("q", timeout=minute) is not None
    with pytest.raises(InvalidArgument, match=r"ttl .*give seconds above 0"):
        store.put("q", b"m", ttl=-minute)
    with pytest.raises(InvalidArgument, match=r"timeout .*or a timedelta"):
        store.put("q", b"m", timeout=-minute)
