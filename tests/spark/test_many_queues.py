"""A source of many queues asks for all of them at once. No Spark session is needed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

import quire
from quire.block import encode_one
from quire.errors import PositionLost
from quire.remote.client.channel import Channel
from quire.spark_graphs import connection
from quire.spark_graphs.fragments.fragment import Fragment
from quire.spark_graphs.options import read_options
from quire.spark_graphs.planning.batch_reader import BatchReader
from quire.spark_graphs.planning.stream_reader import StreamReader
from quire.spark_graphs.schema import source_schema
from quire.spark_graphs.writing.sink_committer import FragmentCommitter
from quire.spark_graphs.writing.write_ledger import StreamLedger

pytestmark = pytest.mark.at_server

QUEUES = [f"q{n}" for n in range(50)]
ALL = ReadAllAvailable()


@pytest.fixture
def store(store_path: str) -> Iterator[Any]:
    """A store with many queues, each with three messages."""
    with quire.open(store_path) as opened:
        opened.admin.create_queues([{"name": name, "kind": "topic"} for name in QUEUES])
        fill(opened)
        yield opened
        connection.forget(store_path)
        assert opened.admin.verify().ok


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each operation is asked of the owner."""
    seen: Counter[str] = Counter()
    real = Channel.request

    def request(self: Channel, header: Any, *rest: Any, **named: Any) -> Any:
        seen[header["op"]] += 1
        return real(self, header, *rest, **named)

    real_exchange = Channel.exchange

    def exchange(self: Channel, *rest: Any, **named: Any) -> Any:
        seen["commit"] += 1  # the only one of them that a sink has
        return real_exchange(self, *rest, **named)

    monkeypatch.setattr(Channel, "request", request)
    monkeypatch.setattr(Channel, "exchange", exchange)
    return seen


def fill(store: Any) -> None:
    """Three messages for each queue."""
    with store.transaction() as txn:
        for queue in QUEUES:
            txn.put_many(queue, [queue.encode()] * 3)


def reader(store: Any, **options: str) -> StreamReader:
    """A reader as a new source process has it."""
    given = {"path": store.path, "subscribe": ",".join(QUEUES), "subscription": "s", **options}
    return StreamReader(read_options(given, streaming=True), source_schema())


def read(source: Any, partitions: Any) -> Counter[str]:
    """How many messages the tasks read of each queue."""
    found: Counter[str] = Counter()
    for partition in partitions:
        for batch in source.read(partition):
            found.update(batch.column("queue").to_pylist())
            assert batch.column("queue").cast("binary").equals(batch.column("payload"))
    return found


@pytest.mark.parametrize("strict", ["true", "false"])
def test_a_micro_batch_asks_a_few_times(store: Any, asked: Counter[str], strict: str) -> None:
    """However many queues there are: to begin, to look, to plan, to commit."""
    source = reader(store, startingOffsets="earliest", failOnDataLoss=strict)
    start = source.initialOffset()
    assert asked == {"queues": 1, "subscribe_for": 1}
    asked.clear()
    end = source.latestOffset(start, ALL)
    assert asked == {"queues": 1, "integration.ledger_many": 1}
    asked.clear()
    planned = source.partitions(start, end)
    assert asked == {"integration.lease_many": 1, "commit": 1}
    assert read(source, planned) == dict.fromkeys(QUEUES, 3)
    asked.clear()
    source.commit(end)
    assert asked == {"integration.end_lease": 1, "integration.read_to_many": 1, "commit": 1}
    assert {store.subscriptions(queue)[0].position for queue in QUEUES} == {3}
    assert store.status()["leases"] == 0


def test_a_target_is_seen_before_the_subscription_is_made(store: Any) -> None:
    """With AvailableNow Spark asks for the end first; the subscription is not taken for lost."""
    source = reader(store, startingOffsets="earliest")
    source.prepareForTriggerAvailableNow()
    start = source.initialOffset()
    end = source.latestOffset(start, ALL)
    assert read(source, source.partitions(start, end)) == dict.fromkeys(QUEUES, 3)


def test_a_commit_asks_a_few_times(store: Any, asked: Counter[str]) -> None:
    """However many queues there are, and also where none of them is known yet."""
    fragments = [Fragment(name, 1, block=bytes(encode_one(name.encode()))) for name in QUEUES]
    FragmentCommitter(store.path, StreamLedger("q", 1), 1.0).commit(fragments)
    # The second look at the queues says that nobody reads them.
    assert asked == {"integration.ledger_many": 1, "queues": 2, "commit": 1}
    asked.clear()
    FragmentCommitter(store.path, StreamLedger("q", 2), 1.0).commit(fragments)
    assert asked == {"integration.ledger_many": 1, "commit": 1}
    assert {info.messages for info in store.queues(QUEUES)} == {5}


def test_a_batch_read_asks_a_few_times(store: Any, asked: Counter[str]) -> None:
    """It leases all queues' ranges at once."""
    given = {"path": store.path, "subscribe": ",".join(QUEUES), "endingOffsets": "latest"}
    source = BatchReader(read_options(given, streaming=False), source_schema())
    assert read(source, source.partitions()) == dict.fromkeys(QUEUES, 3)
    assert asked == {"queues": 1, "integration.lease_many": 1}


def test_words_and_positions_in_one_batch_read(store: Any, asked: Counter[str]) -> None:
    """Where a word begins a queue, what is there is read; a position asks for all from there."""
    store.integration.subscribe_many("s", {"q1": "earliest", "q2": "earliest"})
    with store.transaction() as txn:
        txn.integration.read_to_many({"q1/s": 2, "q2/s": 2})
    asked.clear()

    def found(**starts: int) -> Counter[str]:
        given = {"path": store.path, "subscribe": ",".join(QUEUES)}
        given["startingOffsets"] = json.dumps({**dict.fromkeys(QUEUES, -2), **starts})
        source = BatchReader(read_options(given, streaming=False), source_schema())
        return read(source, source.partitions())

    rest = {**dict.fromkeys(QUEUES, 3), "q1": 1, "q2": 1}
    assert found() == found(q1=2) == found(q1=2, q2=2) == rest
    assert asked == {"queues": 3, "integration.lease_many": 5}
    with pytest.raises(PositionLost, match=r"'q2': messages 1 to 3.*Give earliest and latest"):
        found(q1=2, q2=1)
    assert found(q0=1) == {**rest, "q0": 2}


def test_what_is_gone_is_left_out_of_many(store: Any) -> None:
    """With failOnDataLoss=false the rest is read, where a queue's subscription is gone too."""
    store.integration.subscribe_many("other", dict.fromkeys(QUEUES, "earliest"))
    source = reader(store, startingOffsets="earliest", failOnDataLoss="false")
    start = source.initialOffset()
    end = source.latestOffset(start, ALL)
    with store.transaction() as txn:
        txn.integration.read_to_many({"q1/s": 2, "q1/other": 2, "q2/s": 3, "q2/other": 3})
    store.unsubscribe("q3", "s")
    counts = {**dict.fromkeys(QUEUES, 3), "q1": 1}
    del counts["q2"]
    assert read(source, source.partitions(start, end)) == counts
    source.stop()
    again = reader(store, startingOffsets="earliest", failOnDataLoss="false")
    assert read(again, again.partitions(start, end)) == counts
    assert [info.name for info in store.subscriptions("q3")] == ["other", "s"]
