"""Reports on the arrival and the delivery of a message, in every form of a store.

Those on expiry and on exceptions: `test_requests_and_replies` and `test_sessions`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from quire.errors import InvalidArgument, QueueFull
from tests.behaviour.forms import AnyStore

ASKED: dict[str, Any] = {"reply_to": "told", "attributes": {"quire.reports": "arrival delivery"}}


def told(store: AnyStore) -> list[tuple[str, str | None]]:
    """The reports that are there, taken: of what, and on which message."""
    found = store.get_many("told")
    for report in found:
        assert report.payload == b""
        assert report.attributes["quire.type"] == "report"
        assert report.attributes["quire.queue"] == "q"
        assert "quire.reports" not in report.attributes
        assert report.reply_to is None
    return [(report.attributes["quire.report"], report.correlation_id) for report in found]


@pytest.fixture(autouse=True)
def _queues(store: AnyStore) -> None:
    store.create_queue("q")
    store.create_queue("told")


def test_who_asks_is_told_of_the_arrival_and_of_the_delivery(store: AnyStore) -> None:
    """By the commit of the put, and by the one of the get."""
    with store.transaction() as txn:
        txn.put("q", b"x", correlation_id="7", **ASKED)
        assert store.get("told") is None
    assert told(store) == [("arrival", "7")]
    with store.transaction() as txn:
        assert txn.get("q") is not None
        assert store.get("told") is None
    assert told(store) == [("delivery", "7")]


def test_a_report_on_a_delivery_names_the_message_that_has_no_correlation_id(
    store: AnyStore,
) -> None:
    """By its id, in digits; at the arrival nobody knows that yet (AR3)."""
    message_id = store.put("q", b"x", **ASKED)
    assert store.get("q") is not None
    assert told(store) == [("arrival", None), ("delivery", str(message_id))]


@pytest.mark.parametrize("by", ["soon", "-5"])
def test_a_message_that_says_no_sensible_time_is_reported_on(store: AnyStore, by: str) -> None:
    """What anybody writes there keeps no message from being put and got."""
    attributes = {**ASKED["attributes"], "quire.reply_by": by}
    store.put("q", b"x", reply_to="told", correlation_id="1", attributes=attributes)
    assert store.get("q") is not None
    assert told(store) == [("arrival", "1"), ("delivery", "1")]


def test_what_is_rolled_back_is_not_told(store: AnyStore) -> None:
    """It has neither arrived nor been delivered; what is rejected has not, either."""
    with store.transaction() as txn:
        txn.put("q", b"x", correlation_id="1", **ASKED)
        txn.rollback()
    assert told(store) == []
    store.put("q", b"x", correlation_id="2", **ASKED)
    with store.transaction() as txn:
        assert txn.get("q") is not None
        txn.rollback()
    with store.transaction() as txn:
        found = txn.get("q")
        assert found is not None
        txn.reject(found, "later", delay=0.0)
    assert told(store) == [("arrival", "2")]
    assert store.get("q") is not None
    assert told(store) == [("delivery", "2")]


def test_each_asks_for_itself(store: AnyStore) -> None:
    """Among others that ask for nothing, or for the other one, or name no queue."""
    with store.transaction() as txn:
        txn.put("q", b"0", correlation_id="0", **ASKED)
        txn.put("q", b"1")
        txn.put("q", b"2", correlation_id="2", reply_to="told")
        txn.put("q", b"3", correlation_id="3", attributes={"quire.reports": "arrival delivery"})
        txn.put("q", b"4", correlation_id="4", reply_to="told",
                attributes={"quire.reports": "arrival"})  # fmt: skip
        txn.put("q", b"5", correlation_id="5", reply_to="told",
                attributes={"quire.reports": "expiry delivery"})  # fmt: skip
        txn.put("q", b"6", correlation_id="6", reply_to="told",
                attributes={"quire.reports": "arrivals", "a": "arrival delivery"})  # fmt: skip
    assert told(store) == [("arrival", "0"), ("arrival", "4")]
    with store.transaction() as txn:
        assert [message.payload for message in txn.get_many("q", 5)] == [
            b"%d" % n for n in range(5)
        ]
        assert txn.get("q") is not None
        assert txn.get("q") is not None
    assert told(store) == [("delivery", "0"), ("delivery", "5")]


def test_many_at_once_and_streams(store: AnyStore) -> None:
    """However they are put and got."""
    batch = pa.RecordBatch.from_pydict(
        {
            "payload": [b"0", b"1", b"2"],
            "correlation_id": ["0", "1", "2"],
            "reply_to": ["told", None, "told"],
            "attributes": [[("quire.reports", "arrival delivery")]] * 3,
        },
        pa.schema(
            [
                ("payload", pa.binary()),
                ("correlation_id", pa.string()),
                ("reply_to", pa.string()),
                ("attributes", pa.map_(pa.string(), pa.string())),
            ]
        ),
    )
    store.put_many("q", batch)
    assert told(store) == [("arrival", "0"), ("arrival", "2")]
    with store.transaction() as txn:
        assert txn.get("q") is not None
        assert len(txn.get_many("q")) == 2
    assert told(store) == [("delivery", "0"), ("delivery", "2")]
    with store.transaction() as txn, txn.put_writer("q", correlation_id="3", **ASKED) as writer:
        writer.write(b"x" * 300_000)
    assert told(store) == [("arrival", "3")]
    assert store.get("q") is not None
    assert told(store) == [("delivery", "3")]


def test_rows_of_a_typed_queue_report_too(store: AnyStore) -> None:
    """Their header is as any other's."""
    store.drop_queue("q")
    store.create_queue("q", schema="n INT")
    store.put("q", {"n": 1}, correlation_id="1", **ASKED)
    assert store.get("q") is not None
    assert told(store) == [("arrival", "1"), ("delivery", "1")]


def test_each_subscription_delivers(store: AnyStore) -> None:
    """And the message has arrived once."""
    store.drop_queue("q")
    store.create_queue("q", kind="topic")
    for name in ("s", "t"):
        store.subscribe("q", name)
    store.put("q", b"x", correlation_id="1", **ASKED)
    for name in ("s", "t"):
        assert store.get(f"q/{name}") is not None
    assert told(store) == [("arrival", "1"), ("delivery", "1"), ("delivery", "1")]


def test_what_is_moved_or_removed_is_not_delivered_by_that(store: AnyStore) -> None:
    """Nor does it arrive a second time; who gets it at last is (AR4)."""
    store.create_queue("other")
    for number in ("1", "2"):
        store.put("other", b"x", correlation_id=number, **ASKED)
    assert [report.correlation_id for report in store.get_many("told")] == ["1", "2"]
    with store.transaction() as txn:
        found = txn.get("other")
        assert found is not None
        txn.move([found], "q")
    with store.transaction() as txn:
        (second,) = txn.read_many("other")
        assert txn.remove("other", second.id)
    assert told(store) == []
    assert store.get("q") is not None
    assert told(store) == [("delivery", "1")]


def test_a_dead_letter_is_not_delivered(store: AnyStore) -> None:
    """Until somebody gets it where it is then."""
    store.create_queue("dead")
    store.alter_queue("q", max_deliveries=1, dead_letter="dead")
    store.put("q", b"x", correlation_id="1", reply_to="told",
              attributes={"quire.reports": "exception delivery"})  # fmt: skip
    with store.transaction() as txn:
        found = txn.get("q")
        assert found is not None
        txn.reject(found, "bad")
    assert store.queue("dead").messages == 1
    assert told(store) == [("exception", "1")]
    assert store.get("dead") is not None
    (report,) = store.get_many("told")
    assert (report.attributes["quire.report"], report.attributes["quire.queue"]) == (
        "delivery", "dead",
    )  # fmt: skip


def test_a_put_that_is_refused_is_not_told(store: AnyStore) -> None:
    """Though its transaction is committed."""
    store.create_queue("small", capacity=64 << 10)
    with store.transaction() as txn:
        with suppress(QueueFull, InvalidArgument):
            txn.put("small", b"x" * 200_000, correlation_id="1", **ASKED)
            pytest.skip("a joined store's puts are refused by the commit")
        with pytest.raises(InvalidArgument):
            txn.put("q", b"x", priority=7, correlation_id="1", **ASKED)
        txn.put("q", b"x")
    assert told(store) == []


def test_a_put_that_is_known_by_its_request_id_is_told_once(store: AnyStore) -> None:
    """It has arrived before."""
    store.alter_queue("q", dedup_count=10)
    for _ in range(2):
        store.put("q", b"x", correlation_id="1", request_id="r", **ASKED)
    assert told(store) == [("arrival", "1")]


def test_where_there_is_no_queue_for_it_there_is_no_report(store: AnyStore) -> None:
    """The message comes and goes all the same; so where that queue takes no such message."""
    store.drop_queue("told")
    store.put("q", b"x", **ASKED)
    assert store.get("q") is not None
    store.create_queue("told", schema="n INT")
    store.put("q", b"x", **ASKED)
    assert store.get("q") is not None
    assert store.queue("told").messages == 0


def test_what_is_prepared_tells_when_it_is_decided(store: AnyStore) -> None:
    """Both reports are a part of it."""
    store.put("q", b"x", correlation_id="1", **ASKED)
    assert told(store) == [("arrival", "1")]
    for is_committed in (False, True):
        txn = store.transaction()
        assert txn.get("q") is not None
        txn.put("q", b"y", correlation_id="2", **ASKED)
        txn.prepare("both")
        assert told(store) == []
        (store.prepared.commit if is_committed else store.prepared.rollback)("both")
    assert told(store) == [("arrival", "2"), ("delivery", "1")]


@pytest.mark.parametrize("event", ["arrival", "delivery"])
def test_a_request_asks_for_no_report_that_is_no_end(store: AnyStore, event: str) -> None:
    """It would be taken for one."""
    options: dict[str, Any] = {"attributes": {"quire.reports": event}}
    with pytest.raises(InvalidArgument, match=event):
        store.request("q", b"x", timeout=0.0, **options)
    session = store.session("s")
    with pytest.raises(InvalidArgument, match=event):
        session.begin("q", b"x", **options)
    assert store.queue("q").messages == 0
