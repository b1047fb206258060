"""Puts with request ids, of every form of a store."""

from __future__ import annotations

import threading
from types import MappingProxyType
from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.errors import AlreadyCommitted, InvalidArgument, QueueFull, QueueNotFound
from quire.messages.message import GROUP_KEY
from quire.opening import open as open_store
from tests.behaviour.forms import AnyStore
from tests.kit.actors import OPTIONS, actor
from tests.kit.children import child
from tests.kit.waiting import SECONDS


@pytest.fixture
def once(owner: Store) -> str:
    """A work queue that keeps request ids."""
    owner.create_queue("once", kind="work", dedup_count=100)
    return "once"


def test_a_put_that_is_repeated_returns_the_first_id(store: AnyStore, once: str) -> None:
    """And puts nothing, also once the message was read; other fields do not matter."""
    first = store.put(once, b"1", request_id="a")
    assert store.put(once, b"1", request_id="a") == first
    assert store.browse(once).payloads() == [b"1"]
    assert store.get(once) is not None
    assert store.put(once, b"2", request_id="a", group=3) == first
    assert store.queue(once).messages == 0
    assert store.put(once, b"3", request_id="b", sender="me") == first + 1
    message = store.get(once)
    assert message is not None
    assert message.sender == "me"


def test_volatile_queues_keep_none(store: AnyStore) -> None:
    """Their messages would be forgotten with their request ids: refused where it is asked for."""
    with pytest.raises(InvalidArgument, match="is volatile"):
        store.create_queue("memory", kind="work", type="volatile", dedup_count=3)
    store.create_queue("memory", kind="work", type="volatile")
    with pytest.raises(InvalidArgument, match="is volatile"):
        store.alter_queue("memory", dedup_seconds=3.0)
    with pytest.raises(InvalidArgument, match="keeps no request ids"):
        store.put("memory", b"1", request_id="a")
    assert store.put("memory", b"1") > 0


def test_within_transactions(store: AnyStore, once: str) -> None:
    """It counts with the commit; a rollback leaves no trace. The order of puts stays."""
    with store.transaction() as txn:
        ids = [
            txn.put(once, b"0"),
            txn.put(once, b"1", request_id="a"),
            txn.put(once, b"2"),
            txn.put(once, b"3", request_id="a"),
            txn.put(once, b"4", request_id="b", group=1),
            txn.put(once, b"5"),
        ]
    assert store.browse(once).payloads() == [b"0", b"1", b"2", b"4", b"5"]
    assert [int(i) - int(ids[0]) for i in ids] == [0, 1, 2, 1, 3, 4]
    assert [m.id for m in store.browse(once)] == [int(ids[n]) for n in (0, 1, 2, 4, 5)]
    txn = store.transaction()
    assert txn.put(once, b"6", request_id="a") == ids[1]
    txn.put(once, b"6", request_id="c")
    txn.rollback()
    assert store.put(once, b"7", request_id="c") > int(ids[-1])


def test_all_fields_with_a_request_id(store: AnyStore, once: str) -> None:
    """It is one more of them, and no part of the message."""
    attributes = MappingProxyType({"a": "b", "ü": ""})
    store.create_queue("other", kind="work")
    store.alter_queue(once, grouped=True, timed=True)
    with store.transaction() as txn:
        txn.put(once, bytearray(b"1"), request_id="a", attributes=attributes, group_key="g", ttl=9)
        txn.put("other", b"of another mapping", attributes=attributes)
        with pytest.raises(InvalidArgument, match="colour"):
            txn.put(once, b"2", request_id="b", colour="red")  # type: ignore[call-arg]
        with pytest.raises(InvalidArgument, match="payload"):
            txn.put(once, "2", request_id="b")  # type: ignore[arg-type]
    (message,) = store.browse(once)
    assert dict(message.attributes) == {"a": "b", "ü": "", GROUP_KEY: "g"}
    assert message.expires_at is not None
    assert message.expires_at > message.time


def test_the_first_put_of_a_transaction(store: AnyStore, once: str) -> None:
    """Alone, before others, and in several queues."""
    store.create_queue("other", kind="work", dedup_seconds=60.0)
    with store.transaction() as txn:
        one = txn.put("other", b"1", request_id="a")
        two = txn.put(once, b"2", request_id="a")
        three = txn.put("other", b"3")
    assert [m.id for m in store.browse("other")] == [one, three]
    assert [m.id for m in store.browse(once)] == [two]


def test_of_two_open_transactions_one_commits(store: AnyStore, once: str) -> None:
    """The other is told, and rolled back; begun again, its put finds the first one."""
    first, second = store.transaction(), store.transaction()
    message_id = first.put(once, b"1", request_id="a")
    second.put(once, b"2", request_id="a")
    first.commit()
    with pytest.raises(AlreadyCommitted, match="request 'a'"):
        second.commit()
    assert second.state == "rolled back"
    with store.transaction() as txn:
        assert txn.put(once, b"2", request_id="a") == int(message_id)
    assert store.browse(once).payloads() == [b"1"]


def test_many_threads_put_it_once(store: AnyStore, once: str) -> None:
    """All are told the same id for each request."""
    told: list[list[int]] = []

    def put() -> None:
        told.append([store.put(once, b"%d" % n, request_id=f"r{n}") for n in range(20)])

    threads = [threading.Thread(target=put) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) == 4
    assert all(ids == told[0] for ids in told)
    assert sorted(m.payload for m in store.browse(once)) == sorted(b"%d" % n for n in range(20))


def test_what_is_refused_is_not_known(store: AnyStore) -> None:
    """A full queue refuses the put, and a later one with the id is the first."""
    store.create_queue("full", kind="work", max_messages=1, dedup_count=10)
    store.put("full", b"1")
    with pytest.raises(QueueFull):
        store.put("full", b"2", request_id="a")
    assert store.get("full") is not None
    store.put("full", b"3", request_id="a")
    assert store.browse("full").payloads() == [b"3"]


@pytest.mark.parametrize("request_id", [1, "", "x" * 201, "a\nb", b"a"])
def test_what_is_no_request_id(store: AnyStore, once: str, request_id: Any) -> None:
    """A clear error; the transaction goes on."""
    with store.transaction() as txn:
        with pytest.raises(InvalidArgument, match="request_id"):
            txn.put(once, b"1", request_id=request_id)
        txn.put(once, b"2", request_id=None)
    assert store.browse(once).payloads() == [b"2"]


def test_a_queue_that_keeps_none(store: AnyStore) -> None:
    """InvalidArgument says what to do."""
    store.create_queue("plain", kind="work")
    with pytest.raises(InvalidArgument, match="dedup_count"):
        store.put("plain", b"1", request_id="a")
    with pytest.raises(QueueNotFound):
        store.put("nowhere", b"1", request_id="a")


@pytest.mark.parametrize(
    "options", [{"dedup_count": 0}, {"dedup_count": 100_001}, {"dedup_seconds": 0}], ids=str
)
def test_wrong_windows(store: AnyStore, options: Any) -> None:
    """Wrong windows are refused."""
    with pytest.raises(InvalidArgument, match="dedup"):
        store.create_queue("wrong", **options)


def test_beside_a_volatile_queue(store: AnyStore, once: str) -> None:
    """One transaction over both, which is repeated: the volatile queue's messages are no part."""
    store.create_queue("memory", kind="work", type="volatile")
    ids = []
    for _ in range(2):
        with store.transaction() as txn:
            txn.put("memory", b"1")
            ids.append(txn.put(once, b"2", request_id="a"))
    assert int(ids[0]) == ids[1] == store.browse(once)[0].id
    assert store.queue("memory").messages == 2


@pytest.mark.promise(1)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_put_whose_owner_is_killed(store_path: str, moment: str) -> None:
    """It is asked of the next owner again, and put once, whether the first one had committed it."""
    with actor(store_path) as owner:
        owner.ask('store.create_queue("once", kind="work", dedup_count=10)')
        with open_store(store_path, **OPTIONS) as store:
            owner.ask(f'hang(EmbeddedTransaction, "commit", "{moment}")')
            told: list[int] = []
            thread = threading.Thread(
                target=lambda: told.append(store.put("once", b"1", request_id="a"))
            )
            thread.start()
            assert owner.line() == "hanging"
            owner.kill()
            thread.join(SECONDS)
            (message,) = store.browse("once")
            assert told == [message.id]
            assert store.put("once", b"2", request_id="a") == message.id


PUTTER = """
import sys, time
from quire.opening import open
with open(sys.argv[1], segment_bytes=4 << 20) as store:
    print(store.role, flush=True)
    sys.stdin.readline()
    for number in range(120):
        print(store.put("once", b"%d" % number, request_id=f"r{number}"), flush=True)
        time.sleep(0.002)
    sys.stdin.readline()
"""


@pytest.mark.promise(1, 12)
def test_kills_between_puts_of_several_processes(store_path: str) -> None:
    """Each request of each is there once, and those that live are told the same ids."""
    with open_store(store_path, **OPTIONS) as store:
        store.create_queue("once", kind="work", dedup_count=1000)
    with child(PUTTER, store_path) as first:
        assert first.line() == "owner"
        with child(PUTTER, store_path) as second, child(PUTTER, store_path) as third:
            assert (second.line(), third.line()) == ("joined", "joined")
            for process in (first, second, third):
                process.say("go")
            told = [second.line() for _ in range(40)]
            first.kill()
            told += [second.line() for _ in range(80)]
            assert [third.line() for _ in range(120)] == told
            for process in (second, third):
                process.say("end")
                assert process.wait() == 0
    with open_store(store_path, **OPTIONS) as store:
        messages = store.browse("once")
        by_payload = {message.payload: message.id for message in messages}
        assert len(messages) == len(by_payload) == 120
        assert [by_payload[b"%d" % number] for number in range(120)] == list(map(int, told))
        assert store.admin.verify().ok
