"""How long messages live at most (`max_ttl`): the same however the store is opened."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from quire.block import BlockBuilder
from quire.engine import EmbeddedStore as Store
from quire.errors import InvalidArgument
from quire.limits import MAX_TTL_SECONDS
from quire.messages.message_id import PutId
from tests.behaviour.forms import AnyStore

MOST = 3600.0
MOST_US = int(MOST * 1e6)


def now_us() -> int:
    """Microseconds since the epoch."""
    return time.time_ns() // 1000


@pytest.fixture
def limited(owner: Store) -> str:
    """A work queue whose messages live for an hour at most."""
    owner.create_queue("limited", kind="work", timed=True, max_ttl=MOST)
    return "limited"


def expiries(store: AnyStore, queue: str) -> dict[bytes, int | None]:
    """When each message that is there expires, by payload."""
    return {m.payload: m.expires_at for m in store.browse(queue)}


def batch(*expires_at: int | None) -> pa.RecordBatch:
    """Messages named by their places, from "row 0" on."""
    times = pa.array(expires_at, pa.timestamp("us", "UTC"))
    payloads = [b"row %d" % index for index in range(len(expires_at))]
    return pa.RecordBatch.from_pydict({"payload": payloads, "expires_at": times})


def test_a_longer_life_is_cut_and_the_put_is_told(store: AnyStore, limited: str) -> None:
    """A put without any gets the most; what expires sooner does so. The message shows it."""
    before = now_us()
    ids = [
        store.put(limited, b"none"),
        store.put(limited, b"more", ttl=2 * MOST),
        store.put(limited, b"at", expires_at=before + 3 * MOST_US, sender="me"),
        store.put(limited, b"less", ttl=60.0),
        *store.put_many(limited, [b"one of two", b"two of two"]),
    ]
    after = now_us()
    shown = expiries(store, limited)
    for message_id, (payload, expires_at) in zip(ids, shown.items(), strict=True):
        assert isinstance(message_id, PutId)
        assert before + MOST_US <= message_id.expires_by <= after + MOST_US
        if payload != b"less":
            assert expires_at == message_id.expires_by
    assert shown[b"less"] is not None
    assert before < shown[b"less"] <= after + 60_000_000
    assert [m.id for m in store.browse(limited)] == ids
    store.create_queue("plain", kind="work", timed=True, ttl=MOST)
    assert type(store.put("plain", b"")) is int
    with store.transaction() as txn:
        plain = txn.put("plain", b"", ttl=2 * MOST)
    assert plain.expires_by is None


def test_every_form_of_a_put_is_cut(store: AnyStore, limited: str) -> None:
    """One after another, lists, columns and blocks, of one transaction, large ones too."""
    far = now_us() + 5 * MOST_US
    builder = BlockBuilder()
    builder.add(b"block 0")
    builder.add_arrow(batch(far, None, 7).rename_columns(["payload", "expires_at"]))
    (block,) = builder.blocks(1 << 20)
    for large in (False, True):
        with store.transaction(large=large) as txn:
            ids = [
                txn.put(limited, b"1"),
                txn.put(limited, b"2", group=3),
                txn.put(limited, b"3", expires_at=far, attributes={"a": "b"}),
                *txn.put_many(limited, [b"4"]),
                *txn.put_many(limited, pa.array([b"5"])),
                *txn.put_many(limited, batch(None, far, 7)),
                *txn.integration.put_block(limited, block.data),
            ]
        limits = {message_id.expires_by for message_id in ids}
        assert len(limits) == 1
        rows = [(m.payload, m.expires_at) for m in store.browse(limited)]
        short = [payload for payload, expires_at in rows if expires_at == 7]
        assert short == [b"row 2", b"row 2"]
        assert {expires_at for _, expires_at in rows} == limits | {7}
        assert dict(store.browse(limited)[2].attributes) == {"a": "b"}
        assert [m.id for m in store.browse(limited)] == [int(i) for i in ids]
        assert len(store.get_many(limited)) == len(ids) - 2  # without what has expired
        store.admin.purge(limited)


def test_a_large_array_is_cut(store: AnyStore, limited: str) -> None:
    """One that is put slice by slice."""
    count = 70_000
    with store.transaction() as txn:
        ids = txn.put_many(limited, pa.array([b"x"] * count))
    last = store.browse(limited, start=count - 1)
    assert [m.expires_at for m in last] == [ids[count - 1].expires_by]


def test_a_prepared_transaction_is_told(store: AnyStore, limited: str) -> None:
    """Once it is prepared, as it is counted from its put on."""
    with store.transaction() as txn:
        message_id = txn.put(limited, b"1")
        txn.prepare("x")
        assert message_id.expires_by is not None
        txn.commit()
    assert expiries(store, limited) == {b"1": message_id.expires_by}


def test_the_default_may_be_less(store: AnyStore, limited: str) -> None:
    """A put that says nothing gets the queue's `ttl`, or the most where that is less."""
    store.alter_queue(limited, ttl=60.0)
    told = store.put(limited, b"default")
    assert isinstance(told, PutId)
    [expires_at] = expiries(store, limited).values()
    assert expires_at == told.expires_by - MOST_US + 60_000_000
    store.admin.purge(limited)
    store.alter_queue(limited, ttl=2 * MOST)
    told = store.put(limited, b"most")
    assert isinstance(told, PutId)
    assert expiries(store, limited) == {b"most": told.expires_by}


def test_it_is_settable_off(store: AnyStore, limited: str) -> None:
    """Where times do not count there is no limit; `None` takes it away."""
    far = now_us() + 5 * MOST_US
    with pytest.raises(InvalidArgument, match="max_ttl=None"):
        store.alter_queue(limited, timed=False)
    store.alter_queue(limited, timed=False, max_ttl=None)
    store.put(limited, b"none")
    assert expiries(store, limited) == {b"none": None}
    store.alter_queue(limited, timed=True)
    store.put(limited, b"far", expires_at=far)
    assert expiries(store, limited)[b"far"] == far
    assert store.queue(limited).max_ttl is None


def test_it_holds_for_what_waits(store: AnyStore) -> None:
    """Messages that were put before: they expire so long after their commit."""
    store.create_queue("q", kind="work", timed=True)
    store.put("q", b"far", ttl=1e6)
    store.put("q", b"none")
    time.sleep(0.02)
    store.alter_queue("q", max_ttl=0.01)
    assert store.get_many("q").payloads() == []
    store.alter_queue("q", max_ttl=MOST)


def test_messages_come_from_elsewhere(store: AnyStore, limited: str) -> None:
    """Moved, rescheduled, and put once by their request ids; volatile queues are no other."""
    store.create_queue("from", kind="work", timed=True)
    store.put("from", b"moved", ttl=2 * MOST)
    store.put("from", b"plain")
    store.alter_queue(limited, dedup_count=10)
    with store.transaction() as txn:
        assert txn.move("from", limited) == 2
        once = txn.put(limited, b"once", request_id="a", ttl=2 * MOST)
    assert set(expiries(store, limited).values()) == {once.expires_by}
    assert type(store.put(limited, b"again", request_id="a")) is int  # the first one was told
    later = store.put(limited, b"later", delay=60.0)
    made = store.delayed.reschedule(limited, later, delay=90.0)
    assert isinstance(made, int)
    assert None not in expiries(store, limited).values()
    store.create_queue("memory", kind="work", type="volatile", timed=True, max_ttl=MOST)
    told = store.put("memory", b"1", ttl=2 * MOST)
    assert isinstance(told, PutId)
    assert expiries(store, "memory") == {b"1": told.expires_by}


def test_wrong_ones_are_refused(store: AnyStore) -> None:
    """Wrong values of `max_ttl` are refused, and nothing has changed."""
    store.create_queue("q", kind="topic")
    wrong: list[Any] = [0, -1.0, "3", True, MAX_TTL_SECONDS * 2, float("nan")]
    for value in wrong:
        with pytest.raises(InvalidArgument, match="max_ttl"):
            store.alter_queue("q", max_ttl=value)
    assert store.queue("q").max_ttl is None


def test_it_is_durable(tmp_path: Path) -> None:
    """It is in the queue's entry of the catalog."""
    with Store.open(str(tmp_path / "s"), segment_bytes=4 << 20) as store:
        store.create_queue("q", kind="work", timed=True, max_ttl=MOST)
    with Store.open(str(tmp_path / "s")) as store:
        assert store.queue("q").max_ttl == MOST
        assert isinstance(store.put("q", b"1"), PutId)
