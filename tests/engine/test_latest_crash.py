"""Topics that keep the latest of each key, over power failures, restarts and a model."""

from __future__ import annotations

import random

import pytest

from quire.batches.delivered_slice import Delivered
from quire.engine import EmbeddedStore as Store
from quire.engine.finding.latest_of_keys import LatestOfKeys
from quire.testing import SimEnv, enumerate_crashes
from tests.engine.workload import new_machine, open_store
from tests.kit.limits import Limits

KEYS = "abc"


def put(store: Store, n: int) -> None:
    """The next message, of one of the keys."""
    store.put("t", b"%d" % n, attributes={"key": KEYS[n % 3]})


def latest(numbers: list[int]) -> list[int]:
    """Of each key the latest, in commit order."""
    return sorted({n % 3: n for n in numbers}.values())


def crashes(seed: int, spread: int) -> None:
    """Power failures at every call while messages are superseded, some of them in flight."""
    base = new_machine(seed)
    with open_store(base) as store:
        store.create_queue("t", kind="topic", keep_latest="key")
        store.subscribe("t", "all")

    def run(env: SimEnv, done: list[tuple[str, int]]) -> None:
        store = open_store(env)
        for n in range(4):
            put(store, n)
            done.append(("put", n))
            store._maintenance.step()
        txn = store.transaction()
        got = txn.get("t/all")
        assert got is not None
        for n in range(4, 7):
            put(store, n)
            done.append(("put", n))
            store._maintenance.step()
        txn.commit()
        done.append(("got", int(got.payload)))
        store.admin.checkpoint()
        put(store, 7)
        done.append(("put", 7))
        store.close()

    def check(env: SimEnv, done: list[tuple[str, int]]) -> None:
        put_so_far = [n for what, n in done if what == "put"]
        got = [n for what, n in done if what == "got"]
        with open_store(env) as store:
            store._maintenance.step()
            store.subscribe("t", "late")
            found = [int(each) for each in store.get_many("t/late").payloads()]
            more = [*put_so_far, len(put_so_far)]
            assert found in (latest(put_so_far), latest(more))
            own = [int(each) for each in store.get_many("t/all").payloads()]
            # Once read, never again; what is unread is there, if it is a key's latest.
            read = [n for n in found if n not in own]
            assert own == [n for n in found if n not in read]
            assert len(read) <= 1 + len(got)
            assert not set(own) & set(got)
            store._maintenance.step()
            assert store.queue("t").messages == len(found)
            assert store.admin.verify().ok

    assert enumerate_crashes(
        run, check, list, seed=seed, rounds=1, every=(spread + 1) // 2,
        new_env=lambda _: base.kill(),
    ) > 20  # fmt: skip


@pytest.mark.crash
@pytest.mark.promise(1, 2)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_promise_1_2_power_failure_at_every_call(seed: int, spread: int) -> None:
    """Of each key the latest that was acknowledged is there, in commit order, and no other."""
    crashes(seed, spread)


@pytest.mark.crash
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_canary_of_messages_that_are_forgotten(
    seed: int, spread: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that supersedes the message itself in the place of the one before is caught."""
    look = LatestOfKeys._look

    def wrong(self: LatestOfKeys, part: Delivered, first: int, superseded: list[int]) -> None:
        look(self, part, first, superseded)
        superseded += [3] if first == 3 else []

    monkeypatch.setattr(LatestOfKeys, "_look", wrong)
    with pytest.raises(AssertionError):
        crashes(seed, spread)


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
