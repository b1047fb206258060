"""Topics that keep the latest of each key, over power failures, restarts and a model."""

from __future__ import annotations

import random

import pytest

from quire.batches.delivered_slice import Delivered
from quire.engine import EmbeddedStore as Store
from quire.engine.lookup.latest_of_keys import LatestOfKeys
from tests.engine.crashing.parts import try_parts
from tests.engine.crashing.topics import Latest
from tests.engine.workload import new_machine, open_store
from tests.kit.limits import Limits

KEYS = "abc"


def put(store: Store, n: int) -> None:
    """The next message, of one of the keys."""
    store.put("t", b"%d" % n, attributes={"key": KEYS[n % 3]})


@pytest.mark.crash
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_canary_of_messages_that_are_forgotten(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that supersedes the message itself in the place of the one before is caught."""
    look = LatestOfKeys._look

    def wrong(self: LatestOfKeys, part: Delivered, first: int, superseded: list[int]) -> None:
        look(self, part, first, superseded)
        superseded += [3] if first == 3 else []

    monkeypatch.setattr(LatestOfKeys, "_look", wrong)
    with pytest.raises(AssertionError):
        try_parts(seed, Latest)


@pytest.mark.cases(4)
def test_against_a_model(rng: random.Random, seed: int) -> None:
    """Random puts, batches, deletions, gets, rollbacks, moves, restarts: LK1 and LK2.

    What is left is of each key the latest; of a subscription, what it has not read of that.
    """
    env = new_machine(seed)
    store = open_store(env)
    store.create_queue(
        "t", kind="topic", keep_latest="key", order=rng.choice(["commit", "priority"])
    )
    store.subscribe("t", "a")
    store.subscribe("t", "b", where="key <> 'k0'")
    kept: dict[str, int] = {}  # by key the latest number
    deleted: set[int] = set()
    unread: dict[str, set[int]] = {"a": set(), "b": set()}
    number = 0
    for _ in range(150):
        what = rng.randrange(10)
        if what < 5:
            with store.transaction() as txn:
                for _ in range(rng.choice([1, 1, 2, 30])):
                    number += 1
                    key = f"k{rng.randrange(6)}"
                    is_end = rng.random() < 0.1
                    txn.put("t", b"" if is_end else b"x", attributes={"key": key, "n": str(number)})
                    before = kept.get(key)
                    for name, left in unread.items():
                        left.discard(before or 0)
                        if name == "a" or key != "k0":
                            left.add(number)
                    kept[key] = number
                    if is_end:
                        deleted.add(number)
        elif what < 8:
            name = rng.choice("ab")
            with store.transaction() as txn:
                got = [int(m.attributes["n"]) for m in txn.get_many(f"t/{name}", rng.randint(1, 9))]
                assert set(got) <= unread[name]
                if rng.random() < 0.5:
                    txn.rollback()
                else:
                    unread[name] -= set(got)
        elif what == 8:
            with store.transaction() as txn:
                txn.seek("t/a", "earliest")
            gone = deleted - unread["a"] - unread["b"]
            unread["a"] = {n for n in kept.values() if n not in gone}
        else:
            store.close()
            store = open_store(env)
        store._maintenance.step()
        store._maintenance.step()
        assert store.admin.verify().ok
        everything = set(kept.values()) - (deleted - unread["a"] - unread["b"])
        assert store.queue("t").messages == len(everything)
        for name, left in unread.items():
            found = [int(m.attributes["n"]) for m in store.browse(f"t/{name}", 1000)]
            assert found == sorted(left), name
    store.close()


def test_a_message_that_is_looked_at_twice_does_not_supersede_itself(seed: int) -> None:
    """A look that was broken off by damage, or an interrupt, is made again."""
    with open_store(new_machine(seed)) as store:
        store.create_queue("t", kind="topic", keep_forever=True)
        for n in range(9):
            put(store, n)
        queue = store._context.state.queue("t")
        properties = queue.config.properties._replace(keep_latest="key")
        index, superseded = LatestOfKeys(properties), list[int]()
        for position, part in [*store._context.delivery.parts(queue, 0, 9)] * 2:
            index._look(part, position, superseded)
        assert sorted(superseded) == [0, 1, 2, 3, 4, 5]


def test_prepared_transactions_keep_what_they_have_got(seed: int) -> None:
    """Until they are decided, over a restart, too; what is given back then is superseded."""
    env = new_machine(seed)
    for decides in (True, False):
        with open_store(env) as store:
            store.create_queue("t", kind="topic", keep_latest="key")
            store.subscribe("t", "all")
            put(store, 0)
            txn = store.transaction()
            assert txn.get("t/all") is not None
            txn.prepare("x")
            put(store, 3)
            store._maintenance.step()
            assert store.queue("t").messages == 2
        with open_store(env) as store:
            put(store, 6)
            store._maintenance.step()
            assert store.queue("t").messages == 2
            (store.prepared.commit if decides else store.prepared.rollback)("x")
            put(store, 1)
            store._maintenance.step()
            assert store.queue("t").messages == 2
            assert store.get_many("t/all").payloads() == [b"6", b"1"]
            store.drop_queue("t")


def test_keys_take_memory_as_long_as_their_messages_are_there(seed: int, limits: Limits) -> None:
    """LK3: those of messages that are gone are forgotten, some at a time."""
    limits(KEYS_IN_VAIN=10)
    with open_store(new_machine(seed)) as store:
        store.create_queue("t", kind="topic", keep_latest="key", keep_seconds=0)
        for n in range(100):
            store.put("t", b"x", attributes={"key": str(n)})
            store._maintenance.step()
            [found] = store._maintenance._retention._latest.values()
            assert len(found._latest) <= 2 * store.queue("t").messages + 11
        assert store.queue("t").messages == 0


def test_what_is_read_is_told_by_records_alone(seed: int) -> None:
    """A store that only folds the records comes to the same: nothing is evaluated there."""
    env = new_machine(seed)
    with open_store(env) as store:
        store.create_queue("t", kind="topic", keep_latest="key")
        store.subscribe("t", "all")
        for n in range(9):
            put(store, n)
        store._maintenance.step()
        released = store._context.state.queue("t").released.to_list()
    assert released == [(0, 6)]
    with open_store(env) as store:
        assert store._context.state.queue("t").released.to_list() == released
        assert not store._maintenance._retention._latest
