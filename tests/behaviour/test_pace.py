"""Limits of what is in flight and of what starts in a second, for every form of a store."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from quire.errors import InvalidArgument
from tests.behaviour.forms import AnyStore, Clock


def put_tenants(store: AnyStore, **counts: int) -> None:
    """So many messages of each group, one group after another."""
    for tenant, count in counts.items():
        for number in range(count):
            store.put("q", b"%s%d" % (tenant.encode(), number), group_key=tenant)


def payloads(store: AnyStore, count: int) -> list[bytes]:
    """What so many gets return, each in a transaction of its own."""
    return [message.payload for _ in range(count) if (message := store.get("q")) is not None]


def test_no_more_are_in_flight_than_may_be(store: AnyStore) -> None:
    """In all transactions together; what one ends with, by whatever, another one gets."""
    store.create_queue("q", max_in_flight=3)
    store.put_many("q", [b"%d" % n for n in range(6)])
    with store.transaction() as first, store.transaction() as second:
        assert first.get_many("q", 2).payloads() == [b"0", b"1"]
        assert second.get_many("q", 9).payloads() == [b"2"]
        assert second.get("q") is None
        assert store.get("q") is None
        assert first.get("q", timeout=0.01) is None
        first.rollback()
        assert second.get_many("q").payloads() == [b"0", b"1"]
    assert store.get_many("q").payloads() == [b"3", b"4", b"5"]


def test_who_waits_gets_what_may_start_when_another_one_ends(store: AnyStore) -> None:
    """By a commit, where nothing else is told of it."""
    store.create_queue("q", max_in_flight=1)
    store.put_many("q", [b"0", b"1"])
    with store.transaction() as first, store.transaction() as second, ThreadPoolExecutor(1) as pool:
        assert first.get("q") is not None
        waiting = pool.submit(second.get, "q", 60.0)
        first.commit()
        found = waiting.result()
        assert found is not None
        assert found.payload == b"1"


def test_no_more_start_in_a_second_than_may(store: AnyStore, clock: Clock) -> None:
    """Whoever gets them, and whether they are read or come again."""
    clock.stop()
    store.create_queue("q", rate=100)
    store.put_many("q", [b"%d" % n for n in range(300)])
    with store.transaction() as txn:
        assert len(txn.get_many("q", 60)) == 60
        txn.rollback()
    assert len(store.get_many("q", 300)) == 40
    assert store.get("q") is None
    clock.forward(1.0)
    assert len(store.get_many("q", 300)) == 100
    assert store.get("q") is None


def test_of_a_rate_below_one_one_starts_in_its_time(store: AnyStore, clock: Clock) -> None:
    """One a minute: no sooner."""
    clock.stop()
    store.create_queue("q", rate=1 / 60)
    store.put_many("q", [b"0", b"1"])
    assert store.get_many("q").payloads() == [b"0"]
    clock.forward(50.0)
    assert store.get("q") is None
    clock.forward(10.0)
    assert store.get_many("q").payloads() == [b"1"]


def test_who_waits_gets_what_its_rate_lets_start(store: AnyStore) -> None:
    """Nothing else happens in the queue meanwhile: the time alone wakes it."""
    store.create_queue("q", rate=2)
    store.put_many("q", [b"0", b"1", b"2", b"3", b"4"])
    with ThreadPoolExecutor(5) as pool:
        waiting = [pool.submit(store.get, "q", 60.0) for _ in range(5)]
        found = [each.result() for each in waiting]
    assert sorted(m.payload for m in found if m is not None) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_tenant_with_many_does_not_keep_out_one_with_few(store: AnyStore) -> None:
    """Groups take turns: behind what is in flight the others are next, however many came before."""
    store.create_queue("q", grouped=True, max_in_flight=2)
    put_tenants(store, many=20, few=3)
    found = payloads(store, 7)
    assert found == [b"many0", b"few0", b"many1", b"few1", b"many2", b"few2", b"many3"]
    put_tenants(store, late=2)  # who comes later does not catch up
    assert payloads(store, 5) == [b"late0", b"many4", b"late1", b"many5", b"many6"]


def test_what_has_no_key_has_its_turns_too(store: AnyStore) -> None:
    """As one more group, of which several may be in flight at once."""
    store.create_queue("q", grouped=True, max_in_flight=3)
    put_tenants(store, a=3)
    store.put_many("q", [b"0", b"1", b"2"])
    with store.transaction() as first, store.transaction() as second, store.transaction() as third:
        each = [txn.get("q") for txn in (first, second, third)]
        assert [m.payload for m in each if m is not None] == [b"a0", b"0", b"1"]
    assert payloads(store, 3) == [b"a1", b"a2", b"2"]


def test_an_ordered_group_stays_one_readers(store: AnyStore) -> None:
    """Where the queue has a limit, and its groups none."""
    store.create_queue("q", grouped=True, max_in_flight=10)
    put_tenants(store, a=3, b=2)
    with store.transaction() as first, store.transaction() as second:
        assert first.get_many("q", 1).payloads() == [b"a0"]
        assert second.get_many("q").payloads() == [b"b0", b"b1"]
        assert first.get_many("q").payloads() == [b"a1", b"a2"]


def test_so_many_of_a_group_are_in_flight(store: AnyStore) -> None:
    """In any transactions; others of the group follow as these end."""
    store.create_queue("q", grouped=True, group_max_in_flight=2)
    put_tenants(store, a=5, b=1)
    with store.transaction() as first, store.transaction() as second:
        assert first.get_many("q", 1).payloads() == [b"a0"]
        assert second.get_many("q").payloads() == [b"b0", b"a1"]
        assert store.get("q") is None
        assert store.get("q", where="n IS NULL") is None
        first.commit()
        assert second.get_many("q").payloads() == [b"a2"]
    assert store.get_many("q").payloads() == [b"a3", b"a4"]


def test_what_comes_later_holds_up_no_shared_group(store: AnyStore, clock: Clock) -> None:
    """It is in flight no more, and comes in its turn."""
    store.create_queue("q", grouped=True, group_max_in_flight=1)
    put_tenants(store, a=3)
    with store.transaction() as txn:
        first = txn.get("q")
        assert first is not None
        txn.reject(first, "not yet", delay=600.0)
        assert txn.get_many("q").payloads() == [b"a1"]
    clock.forward(601.0)
    assert store.get_many("q").payloads() == [b"a0"]
    assert store.get_many("q").payloads() == [b"a2"]


def test_each_group_has_its_rate(store: AnyStore, clock: Clock) -> None:
    """One that has started as many as it may holds up no other one."""
    clock.stop()
    store.create_queue("q", grouped=True, group_rate=2, group_max_in_flight=10)
    put_tenants(store, a=4, b=1)
    assert store.get_many("q").payloads() == [b"a0", b"b0", b"a1"]
    put_tenants(store, c=1)
    assert store.get_many("q").payloads() == [b"c0"]
    clock.forward(1.0)
    assert store.get_many("q").payloads() == [b"a2", b"a3"]
    put_tenants(store, a=1)
    clock.go_on()
    found = store.get("q", timeout=60.0)
    assert found is not None
    assert found.payload == b"a0"


def test_who_waits_for_a_group_is_woken_by_its_rate(store: AnyStore) -> None:
    """Several wait, and nothing else happens."""
    store.create_queue("q", grouped=True, group_rate=1)
    put_tenants(store, a=3)
    with ThreadPoolExecutor(3) as pool:
        found = [pool.submit(store.get, "q", 60.0) for _ in range(3)]
        assert sorted(m.payload for each in found if (m := each.result())) == [b"a0", b"a1", b"a2"]


def test_what_is_asked_for_counts_too(store: AnyStore, clock: Clock) -> None:
    """By its id and by a condition: it starts, and only where it may."""
    clock.stop()
    store.create_queue("q", rate=2, timed=True)
    ids = store.put_many("q", [b"0", b"1", b"2"])
    later = store.put("q", b"later", delay=600.0)
    with store.transaction() as txn:
        assert txn.get("q", id=ids[1]) is not None
        assert txn.get("q", where="JMSPriority = 0") is not None
        assert txn.get("q", where="JMSPriority = 0") is None
        assert txn.get("q", id=ids[2]) is None
        assert txn.get("q", id=later) is None
        clock.forward(1.0)
        assert txn.get("q", id=ids[2]) is not None


def test_limits_are_altered(store: AnyStore, clock: Clock) -> None:
    """While messages wait and are in flight; what has started counts for a new rate, too."""
    clock.stop()
    store.create_queue("q")
    store.put_many("q", [b"%d" % n for n in range(40)])
    with store.transaction() as txn:
        assert len(txn.get_many("q", 3)) == 3
        store.alter_queue("q", max_in_flight=4)
        assert len(txn.get_many("q", 9)) == 1
        store.alter_queue("q", max_in_flight=2)
        assert txn.get("q") is None
        store.alter_queue("q", max_in_flight=None, rate=10)
        assert len(txn.get_many("q", 99)) == 10
        store.alter_queue("q", rate=12)
        assert len(txn.get_many("q", 99)) == 2
        store.alter_queue("q", rate=5)
        assert txn.get("q") is None
        clock.forward(1.0)
        assert len(txn.get_many("q", 99)) == 5
        store.alter_queue("q", rate=None)
        assert len(txn.get_many("q", 99)) == 19
    info = store.queue("q")
    assert (info.rate, info.max_in_flight, info.group_rate) == (None, None, None)


def test_groups_get_limits_while_messages_wait(store: AnyStore) -> None:
    """And lose them; what is in flight counts."""
    store.create_queue("q", grouped=True)
    put_tenants(store, a=4, b=2)
    with store.transaction() as txn:
        assert txn.get_many("q", 2).payloads() == [b"a0", b"a1"]
        store.alter_queue("q", group_max_in_flight=3)
        assert store.get_many("q").payloads() == [b"a2", b"b0", b"b1"]
        assert store.get_many("q").payloads() == [b"a3"]
    put_tenants(store, a=2)
    store.alter_queue("q", group_max_in_flight=None)
    with store.transaction() as first, store.transaction() as second:
        assert first.get("q") is not None
        assert second.get("q") is None


def test_each_subscription_has_the_limits(store: AnyStore, clock: Clock) -> None:
    """What one reads delays no other one."""
    clock.stop()
    store.create_queue("t", kind="topic", rate=2)
    for name in ("s", "u"):
        store.subscribe("t", name)
    store.put_many("t", [b"0", b"1", b"2"])
    for name in ("s", "u"):
        assert store.get_many(f"t/{name}").payloads() == [b"0", b"1"]
        assert store.get(f"t/{name}") is None


def test_priorities_come_before_turns(store: AnyStore) -> None:
    """Among messages of one priority the groups take turns."""
    store.create_queue("q", grouped=True, order="priority", group_max_in_flight=9)
    for key, priority in (("a", 1), ("a", 1), ("a", 5), ("a", 5), ("b", 1), ("b", 5)):
        store.put("q", b"%s%d" % (key.encode(), priority), group_key=key, priority=priority)
    assert payloads(store, 6) == [b"a5", b"b5", b"a5", b"b1", b"a1", b"a1"]


def test_messages_that_are_delivered_once_only_are_counted_so(
    store: AnyStore, clock: Clock
) -> None:
    """With deliveries that are noted, and dead letters, which are nobody's starts."""
    clock.stop()
    store.create_queue("dead")
    store.create_queue("q", max_deliveries=1, dead_letter="dead", rate=3)
    store.put_many("q", [b"%d" % n for n in range(5)])
    with store.transaction() as txn:
        for message in txn.get_many("q", 9):
            txn.reject(message, "bad")
    assert store.get_many("dead").payloads() == [b"0", b"1", b"2"]
    assert store.get("q") is None


@pytest.mark.cases(3)
@pytest.mark.parametrize(
    "options",
    [
        {"max_in_flight": 0},
        {"max_in_flight": True},
        {"max_in_flight": 1.5},
        {"rate": 0},
        {"rate": -1},
        {"rate": 2.5},
        {"rate": float("nan")},
        {"rate": "fast"},
        {"rate": 10_000_000},
        {"group_rate": 1},
        {"group_max_in_flight": 1},
        {"grouped": True, "group_rate": 0},
    ],
    ids=str,
)
def test_what_is_no_limit_is_refused(store: AnyStore, options: dict[str, Any]) -> None:
    """And what would have no effect: nothing is made."""
    with pytest.raises(InvalidArgument, match="give"):
        store.create_queue("q", **options)
    assert not store.queues()
