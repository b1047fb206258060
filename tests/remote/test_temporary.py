"""Subscriptions that end with their clients: closed, killed, and while owners come and go."""

from __future__ import annotations

import time

import pytest

import quire
from quire.engine import EmbeddedStore
from quire.errors import InvalidArgument, NobodyReads, SubscriptionExists, SubscriptionNotFound
from quire.interface.store import Store
from tests.kit.children import child, join
from tests.kit.waiting import SECONDS

CLIENT = """
import sys, quire
with quire.open(sys.argv[1]) as store:
    store.subscribe("events", sys.argv[2], durable=False)
    txn = store.transaction()
    message = txn.get("events/" + sys.argv[2])
    print(store.role, message and message.payload, flush=True)
    sys.stdin.readline()
    txn.rollback()
"""


def names(store: Store) -> list[str]:
    """Of the subscriptions of the topic."""
    return [info.name for info in store.subscriptions("events")]


def wait_for(store: Store, expected: list[str]) -> None:
    """Until there are these subscriptions."""
    deadline = time.monotonic() + SECONDS
    while names(store) != expected and time.monotonic() < deadline:
        time.sleep(0.005)
    assert names(store) == expected


def test_a_subscription_ends_with_its_client(owner: EmbeddedStore, store: Store) -> None:
    """Of several with the last one; what only it had not read goes with it."""
    store.create_queue("events", kind="topic")
    assert not store.subscribe("events", "mine", durable=False).durable
    assert store.subscribe("events", "audit").durable
    assert store.subscribe("events", "audit").durable  # it stays as it is
    with pytest.raises(SubscriptionExists, match="durable is True, not False"):
        store.subscribe("events", "audit", durable=False)
    store.put("events", b"0")
    with join(owner.path) as other:
        starts: dict[str, quire.Start] = {"events": "latest"}
        other.integration.subscribe_many("hers", starts, exclusive=True, durable=False)
        other.subscribe("events", "mine", durable=False)
        store.put("events", b"1")
        assert other.get_many("events/mine").payloads() == [b"0", b"1"]
        assert store.get("events/hers").payload == b"1"  # type: ignore[union-attr]
        assert names(store) == ["audit", "hers", "mine"]
    wait_for(store, ["audit", "mine"])
    with pytest.raises(SubscriptionNotFound):
        store.get("events/hers")
    with join(owner.path) as other:
        other.subscribe("events", "mine", durable=False)
        other.unsubscribe("events", "mine")
    assert names(store) == ["audit"]
    store.subscribe("events", "mine", durable=False)
    with pytest.raises(InvalidArgument):
        store.subscribe("events", "other", durable=0)  # type: ignore[arg-type]
    is_owner = store.role == "owner"
    store.close()
    if is_owner:
        owner.close()
        with quire.open(owner.path) as again:
            assert names(again) == ["audit"]
    else:
        wait_for(owner, ["audit"])


def test_a_prepared_transaction_keeps_it_until_it_is_decided(owner: EmbeddedStore) -> None:
    """Then it ends."""
    owner.create_queue("events", kind="topic")
    with join(owner.path) as client:
        client.subscribe("events", "mine", durable=False)
        client.put("events", b"0")
        with client.transaction() as txn:
            txn.get("events/mine")
            txn.prepare("x")
    owner.put("events", b"1")
    assert names(owner) == ["mine"]
    owner.prepared.commit("x")
    wait_for(owner, [])


def test_it_ends_with_a_client_that_is_killed(owner: EmbeddedStore) -> None:
    """What it had in flight goes with it."""
    owner.create_queue("events", kind="topic")
    with pytest.warns(NobodyReads):
        owner.put("events", b"0")
    with child(CLIENT, owner.path, "killed") as client:
        assert client.line() == "joined b'0'"
        assert names(owner) == ["killed"]
        client.kill()
        wait_for(owner, [])
    assert owner.queue("events").subscriptions == ()


@pytest.mark.parametrize("end", ["kill", "close"])
def test_it_outlives_the_owner(store_path: str, end: str) -> None:
    """Its client takes over, or finds who does; what came in between is there."""
    with quire.open(store_path) as made:
        made.create_queue("events", kind="topic")
    with child(CLIENT, store_path, "first") as first:
        assert first.line() == "owner None"
        with quire.open(store_path) as one, quire.open(store_path) as two:
            one.subscribe("events", "one", durable=False)
            two.subscribe("events", "two", durable=False)
            one.put("events", b"0")
            if end == "kill":
                first.kill()
            else:
                first.say("")
                assert first.wait() == 0
            two.put("events", b"1")
            for store, name in ((one, "one"), (two, "two")):
                assert store.get_many(f"events/{name}").payloads() == [b"0", b"1"]
            left = ["first"] * (end == "kill")  # for a minute
            assert names(one) == [*left, "one", "two"]
            leaver, stayer = (one, two) if one.role == "joined" else (two, one)
            leaver.close()
            wait_for(stayer, [*left, "two" if stayer is two else "one"])
