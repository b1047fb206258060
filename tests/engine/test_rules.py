"""What the rules of a queue do to counts, memory and messages when they meet each other."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.engine.delivery.selection import Selection
from quire.engine.queues.subscription import BY_RULE, Subscription
from quire.engine.reading.fetcher import DeliveryRequest
from quire.engine.upkeep.own_transaction import own_transaction, pass_unwanted, take_gone
from quire.errors import QueueDisabled, QueueInUse
from quire.limits import LANE_SLACK, REASONS_KEPT
from quire.messages.message import Message
from quire.testing import SimEnv
from tests.engine.workload import open_store

SECOND = 1_000_000


def make(env: SimEnv, **options: Any) -> Store:
    """A store with a work queue of these properties, and one for its dead letters."""
    store = open_store(env)
    store.create_queue("dead", kind="work")
    store.create_queue("q", kind="work", **options)
    return store


def inside(store: Store) -> Subscription:
    """The built-in subscription of the queue."""
    return store._context.state.queue("q").subscription(None)


def test_rules_that_are_altered_hold_after_a_kill(env: SimEnv) -> None:
    """Also where no checkpoint has them: what expires leaves, the dead-letter queue stays."""
    store = make(env)
    store.alter_queue("q", timed=True, keep_expired=True, dead_letter="dead")
    env = env.kill()
    store = open_store(env)
    store.put("q", b"m", expires_at=env.now_us() + 1000)
    env.advance(1)
    store.create_queue(
        "more", kind="topic"
    )  # after a commit the maintenance looks, as no thread does
    assert store.queue("q").messages == 0
    assert store.browse("dead").payloads() == [b"m"]
    with pytest.raises(QueueInUse, match="dead-letter queue of 'q'"):
        store.drop_queue("dead")
    store.close()


@pytest.mark.parametrize("order", ["commit", "priority"])
@pytest.mark.parametrize("asked", ["id", "where", "hold"])
def test_what_was_spent_before_a_kill_is_not_got_by_what_it_is(
    env: SimEnv, order: str, asked: str
) -> None:
    """It was delivered as often as it may be; it goes to the dead letters."""
    store = make(env, max_deliveries=1, dead_letter="dead", order=order)
    message_id = store.put("q", b"m", attributes={"a": "x"})
    assert store.transaction().get("q") is not None
    store = open_store(env.kill())
    with store.transaction() as txn:
        where: Any = "a = 'x'" if asked == "where" else message_id
        if asked == "hold":
            assert txn.read("q", id=where, hold=True) is None
        else:
            assert not txn.get_many("q", where=where)
    store.put("q", b"more")  # after a commit the maintenance looks, as no thread does
    assert store.browse("q").payloads() == [b"more"]
    assert store.browse("dead").payloads() == [b"m"]
    store.close()


def test_what_is_passed_by_keeps_nobody_from_an_exclusive_subscription(env: SimEnv) -> None:
    """It is in no one's hands while that is noted."""
    store = open_store(env)
    store.create_queue("t", kind="topic")
    store.subscribe("t", "red", exclusive=True, where="colour = 'red'")
    with store.transaction() as txn:
        for colour in ("blue", "red", "blue"):
            txn.put("t", colour.encode(), attributes={"colour": colour})
        txn.seek("t/red", "earliest")  # so nothing is noted as it commits
    queue, subscription = store._context.state.source("t/red")
    store._context.delivery.look(queue, subscription)
    with own_transaction(store._context, "maintenance") as noting:
        noting.getting(pass_unwanted, queue, subscription, 1000)
        with store.transaction() as txn:
            got = txn.get("t/red")
            assert got is not None
            assert got.payload == b"red"
            noting.commit()
    assert store.queue("t").messages == 0
    store.close()


def test_a_named_dead_letter_queue_stays(env: SimEnv) -> None:
    """Also where nothing goes there now: every other property could not be altered any more."""
    store = make(env, max_deliveries=1, dead_letter="dead")
    store.alter_queue("q", max_deliveries=None)
    with pytest.raises(QueueInUse, match="dead-letter queue of 'q'"):
        store.drop_queue("dead")
    assert store.alter_queue("q", text="words").text == "words"
    store.alter_queue("q", dead_letter=None)
    store.drop_queue("dead")
    store.close()


def test_what_expires_is_not_got_while_it_is_moved(env: SimEnv) -> None:
    """It was available before, so it still stands among what is; altering changes nothing in it."""
    store = make(env, timed=True, keep_expired=True, dead_letter="dead")
    store.put("q", b"m", expires_at=env.now_us() + SECOND)
    with store.transaction() as txn:
        assert txn.get("q") is not None
        txn.rollback()
    env.advance(2)
    queue, subscription = store._context.state.queue("q"), inside(store)
    store._context.delivery.look(queue, subscription)
    mover, other = own_transaction(store._context, "a test"), store.transaction()
    assert mover.getting(take_gone, queue, subscription, 10)[0] == 1
    assert other.get("q") is None
    store.alter_queue("q", timed=False)
    assert other.get("q") is None
    mover.rollback()
    message = other.get("q")
    assert message is not None
    assert message.delivery_count == 2  # the maintenance's try is none
    other.commit()
    store.close()


def test_dead_letters_go_as_far_as_there_is_room(env: SimEnv) -> None:
    """A few at a time; and the maintenance's tries count as no deliveries."""
    store = make(env, timed=True, keep_expired=True, dead_letter="dead")
    store.alter_queue("dead", max_messages=5)
    with store.transaction() as txn:
        for _ in range(20):
            txn.put("q", b"m", expires_at=env.now_us() + 1000)
    env.advance(1)
    for number in range(3):
        store.create_queue(f"more{number}", kind="topic")
    assert (store.queue("dead").messages, store.queue("q").messages) == (5, 15)
    store.alter_queue("dead", max_messages=None)
    store.create_queue("more", kind="topic")
    assert {m.attributes["quire.deliveries"] for m in store.browse("dead")} == {"0"}
    assert (store.queue("dead").messages, store.queue("q").messages) == (20, 0)
    store.close()


def test_what_is_spent_is_so_for_its_own_count(env: SimEnv) -> None:
    """Where `max_deliveries` is raised, each is available again that had fewer; in any order."""
    store = make(env, max_deliveries=5, dead_letter="dead")
    store.alter_queue("dead", puts=False)
    for number in range(2):
        store.put("q", b"%d" % number)
    for turn in range(5):
        with store.transaction() as txn:
            txn.get_many("q", 2 if turn < 3 else 1)
            txn.rollback()
    subscription = inside(store)
    subscription.spent.add(0, 2)  # together, as with a smaller number
    subscription.commit_order.returned.clear()
    subscription.obey(store._context.state.queue("q").config.properties)
    assert subscription.spent.to_list() == [(0, 1)]
    subscription.commit_order.returned.clear()
    subscription.spent.add(0, 2)
    assert subscription.take_gone(10) == (0, 1, False)
    assert subscription.take_gone(10) == (1, 2, False)
    store.close()


@pytest.mark.parametrize("most", [None, 1])
@pytest.mark.parametrize("delay", [0.0, 5.0])
def test_a_message_that_was_read_past_is_rejected(
    env: SimEnv, most: int | None, delay: float
) -> None:
    """It does not come back, and is not in flight for ever."""
    store = make(env)
    target = None if most is None else "dead"
    store.create_queue("t", kind="topic", max_deliveries=most, dead_letter=target)
    store.subscribe("t", "a")
    store.subscribe("t", "b")
    store.put("t", b"m")
    with store.transaction() as txn:
        message = txn.get("t/a")
        assert message is not None
        with store.transaction() as other:
            other.read_to("t/a", 1)
        txn.reject(message, "too late", delay=delay)
    info = store.subscriptions("t")[0]
    assert (info.delivered, info.pending, info.spent, info.delayed) == (0, 0, 0, 0)
    assert store._context.state.queue("t").subscription("a").reasons == {}
    store.drop_queue("t")
    assert store.queue("dead").messages == 0
    store.close()


def test_reasons_are_forgotten_with_their_messages(env: SimEnv) -> None:
    """Else there would be no room for those of later messages."""
    store = make(env, max_deliveries=1, dead_letter="dead")
    for number in range(5):
        store.put("q", b"m")
        with store.transaction() as txn:
            message = txn.get("q")
            assert message is not None
            txn.reject(message, f"reason {number}")
    assert [m.attributes["quire.reason"] for m in store.browse("dead")] == [
        f"reason {number}" for number in range(5)
    ]
    assert inside(store).reasons == {}
    assert REASONS_KEPT > 5
    store.close()


def test_what_is_read_past_is_not_delayed(env: SimEnv) -> None:
    """Neither what was rejected, nor what was not due."""
    store = make(env, timed=True)
    store.put("q", b"rejected")
    store.put("q", b"scheduled", deliver_at=env.now_us() + 1000 * SECOND)
    with store.transaction() as txn:
        message = txn.get("q")
        assert message is not None
        txn.reject(message, delay=1000.0)
        assert txn.get("q") is None
    assert store.subscriptions("q")[0].delayed == 2
    with store.transaction() as txn:
        txn.read_to("q", 2)
    assert store.subscriptions("q")[0].delayed == 0
    store.close()


def test_a_dropped_queue_is_forgotten(env: SimEnv) -> None:
    """Though a message of it was to come back in a year."""
    store = make(env)
    store.put("q", b"m")
    with store.transaction() as txn:
        message = txn.get("q")
        assert message is not None
        txn.reject(message, delay=366 * 86400.0)
    assert len(store._context.delivery._delayed) == 1
    store.drop_queue("q")
    store.create_queue("more", kind="topic")
    assert not store._context.delivery._delayed
    store.close()


@pytest.mark.parametrize("by", ["get", "read_to"])
def test_what_was_read_takes_no_memory(env: SimEnv, by: str) -> None:
    """Messages that would expire in a day are gone long before, however they were read."""
    store = make(env, timed=True, ttl=86400.0)
    for _ in range(30):
        with store.transaction() as txn:
            for _ in range(200):
                txn.put("q", b"m")
        with store.transaction() as txn:
            if by == "get":
                assert len(txn.get_many("q", 1000)) == 200
            else:
                txn.read_to("q", store.queue("q").end_position)
    selection = inside(store).order
    assert isinstance(selection, Selection)
    assert len(selection._expiring) <= 2 * LANE_SLACK
    assert len(selection._standing) <= 2 * LANE_SLACK
    store.close()


def test_unget_after_reject(env: SimEnv) -> None:
    """What the latest get took and was not rejected goes back; what came before stays."""
    store = make(env)
    for number in range(5):
        store.put("q", b"%d" % number)
    with store.transaction() as txn:
        assert txn.get("q") is not None
        second = txn.get("q")
        assert second is not None
        txn.reject(second)
        txn.unget()
        assert txn.info().in_flight == 1
        batch = txn.get_many("q", 4)
        assert batch.payloads() == [b"1", b"2", b"3", b"4"]
        txn.reject(batch[1])
        assert txn.info().in_flight == 4
        txn.unget()
        assert txn.info().in_flight == 1
    assert store.browse("q").payloads() == [b"1", b"2", b"3", b"4"]
    assert store.subscriptions("q")[0].delivered == 0
    store.close()


@pytest.mark.cases(2)
@pytest.mark.parametrize("counted", [False, True])
def test_many_of_mixed_priorities_are_one_commit(env: SimEnv, counted: bool) -> None:
    """They come in no order of their positions, and the record of that is short all the same."""
    options = {"max_deliveries": 3, "dead_letter": "dead"} if counted else {}
    store = make(env, order="priority", **options)
    count = 0
    for _ in range(40):
        with store.transaction() as txn:
            for number in range(200):
                txn.put("q", b"m", priority=number % 2)
                count += 1
    while count:
        with store.transaction() as txn:
            got = len(txn.get_many("q", 100_000))
            assert 0 < got <= count
            count -= got
    assert store.queue("q").messages == 0
    assert store.admin.verify().ok
    store.close()


def test_who_waits_goes_on_waiting_while_another_takes(store_path: str) -> None:
    """Each message wakes all who wait for a queue that is read by priority; one of them gets it."""
    with Store.open(store_path) as store, ThreadPoolExecutor(1) as pool:
        store.create_queue("q", kind="work", order="priority")
        queue, subscription = store._context.state.queue("q"), inside(store)
        waits = threading.Event()
        other: list[Message | None] = []

        def put() -> None:
            waits.wait()
            store.put("q", b"first")

        def wanted() -> bool:
            """Asked while it waits, with the lock; and when it is woken, without, by `take`."""
            if sys._getframe(1).f_code.co_name != "take":
                waits.set()
            elif not other:
                with store.transaction() as txn:
                    other.append(txn.get("q"))
                pool.submit(store.put, "q", b"second")
            return True

        pool.submit(put)
        delivery = store._context.delivery
        asking = DeliveryRequest(queue, subscription, store, wanted)
        assert delivery.take(asking, 1, 60.0) == [(1, 2, 1)]
        assert [message and message.payload for message in other] == [b"first"]
        delivery.give_back(queue, subscription, [(1, 2, 1)])


def test_what_was_altered_in_between_is_looked_up(env: SimEnv) -> None:
    """A get that found a plain queue, and comes to it when it is none: it is not empty for that."""
    store = make(env)
    store.put("q", b"m")
    queue, subscription = store._context.state.queue("q"), inside(store)
    subscription.obey(queue.config.properties._replace(order="priority"))
    assert subscription.take_one(queue.end_position) == BY_RULE
    asking = DeliveryRequest(queue, subscription, store, lambda: True)
    assert store._context.delivery._take(asking, 1, 0.0)  # more is to be looked at
    assert asking.runs == []
    with store.transaction() as txn:
        assert txn.get("q") is not None
    store.close()


def test_a_put_that_is_refused_loses_nothing(env: SimEnv) -> None:
    """A queue that is stopped while a transaction has put to it refuses the next put, no more."""
    store = make(env)
    txn = store.transaction()
    txn.put("q", b"before")
    txn.put("q", b"before")
    store.alter_queue("q", puts=False)
    for _ in range(2):
        with pytest.raises(QueueDisabled):
            txn.put("q", b"m")
        with pytest.raises(QueueDisabled):
            txn.put_many("q", [b"m", b"m"])
    txn.put("dead", b"elsewhere")
    txn.commit()
    assert store.browse("q").payloads() == [b"before", b"before"]
    assert store.browse("dead").payloads() == [b"elsewhere"]
    assert store.admin.verify().ok
    store.close()


def test_what_comes_back_later_has_its_place(env: SimEnv) -> None:
    """Also where priorities were switched meanwhile: the first get after its delay has it."""
    store = make(env, order="priority")
    for number in range(3):
        store.put("q", b"%d" % number, priority=3 - number)
    store.alter_queue("q", order="commit")
    with store.transaction() as txn:
        message = txn.get("q")
        assert message is not None
        txn.reject(message, delay=1.0)
    store.alter_queue("q", order="priority")
    with store.transaction() as txn:
        assert txn.get_many("q", 3).payloads() == [b"1", b"2"]
        txn.rollback()
    env.advance(2)
    with store.transaction() as txn:
        assert txn.get_many("q", 3).payloads() == [b"0", b"1", b"2"]
    store.close()


def test_what_was_read_unlooked_at_does_not_come_again(env: SimEnv) -> None:
    """Priorities are switched on, a message comes back, is read past, and they are switched off."""
    store = make(env)
    store.put_many("q", [b"a", b"b"])
    with store.transaction() as txn:
        assert txn.get("q") is not None
        store.alter_queue("q", order="priority")
        txn.rollback()
    with store.transaction() as txn:
        txn.read_to("q", 1)
    store.alter_queue("q", order="commit")
    order = store.get("q")
    assert order is not None
    assert order.payload == b"b"
    store.close()
