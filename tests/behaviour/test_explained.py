"""Why a message is not delivered: situations of the user's pages, each set up and asked for.

The list was written from docs/ alone (handling, order, times, queues, finding, two-phase-commit,
selectors), before anything was there that explains them.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

import quire
from quire.reports.explanation import Explanation, UndeliveredReason
from tests.behaviour.forms import AnyStore, Clock

R = UndeliveredReason
HOUR_US = 3600 * 1_000_000


def explained(store: AnyStore, source: str, id: Any = None) -> Explanation:
    """Return the explanation, which is a sentence too; and see that asking has changed nothing."""
    found = store.admin.explain(source, None if id is None else int(id))
    assert found.source == source
    assert found.text.endswith(".")
    assert len(found.text) > 20
    again = store.admin.explain(source, None if id is None else int(id))
    assert (again.reason, again.id, again.position) == (found.reason, found.id, found.position)
    return found


def taken(txn: Any, source: str) -> quire.Message:
    """Return a message that the transaction gets."""
    message: quire.Message | None = txn.get(source)
    assert message is not None
    return message


# Times --------------------------------------------------------------------------------------------


def test_a_message_that_is_not_due_is_due_at_a_time(store: AnyStore, work: str) -> None:
    """Situation 1: a delay. Also of the next one, where nothing else is there."""
    late = store.put(work, b"late", delay=3600)
    found = explained(store, work, late)
    assert found.reason is R.SCHEDULED
    assert found.until_us == store.delayed.list(work)[0].deliver_at
    assert explained(store, work) == found
    assert "cancel" in found.text


def test_of_several_that_are_not_due_the_next_is_the_one_that_is_due_first(
    store: AnyStore, work: str
) -> None:
    """Situation 2: no id is given."""
    store.put(work, b"later", delay=7200)
    soon = store.put(work, b"soon", delay=3600)
    assert explained(store, work).id == int(soon)


def test_what_has_become_due_is_there(store: AnyStore, work: str, clock: Clock) -> None:
    """Situation 3: its time has come, and nobody has got it yet."""
    late = store.put(work, b"late", delay=3600)
    assert explained(store, work, late).reason is R.SCHEDULED
    clock.forward(3601)
    assert explained(store, work, late).reason is R.READY
    assert store.get(work) is not None


def test_what_has_expired_waits_for_a_stopped_queue_of_dead_letters(
    store: AnyStore, clock: Clock
) -> None:
    """Situation 4: `keep_expired`, and the dead-letter queue takes nothing."""
    store.create_queue("dead", kind="work", puts=False)
    store.create_queue("q", kind="work", timed=True, keep_expired=True, dead_letter="dead")
    old = store.put("q", b"old", ttl=10)
    clock.forward(11)
    found = explained(store, "q", old)
    assert (found.reason, found.queue) == (R.EXPIRED, "dead")


# Order --------------------------------------------------------------------------------------------


def test_a_group_is_in_flight_in_a_transaction(store: AnyStore) -> None:
    """Situation 5: another message of its group is; the transaction is named, and since when."""
    store.create_queue("q", kind="work", grouped=True)
    ids = [store.put("q", payload, group_key="ann") for payload in (b"1", b"2")]
    with store.transaction(owner="worker 7") as txn:
        taken(txn, "q")
        [open_one] = store.admin.transactions()
        found = explained(store, "q", ids[1])
        assert (found.reason, found.transaction) == (R.GROUP_IN_FLIGHT, open_one.id)
        assert (found.owner, found.since_us) == (open_one.owner, open_one.opened_us)
        assert "worker 7" in found.text
        assert explained(store, "q").reason is R.GROUP_IN_FLIGHT
        txn.rollback()
    assert explained(store, "q").reason is R.READY


def test_a_group_waits_for_its_message_that_is_retried_later(store: AnyStore) -> None:
    """Situation 6: the first of the group was rejected with a delay."""
    store.create_queue("q", kind="work", grouped=True)
    ids = [store.put("q", payload, group_key="ann") for payload in (b"1", b"2")]
    with store.transaction() as txn:
        txn.reject(taken(txn, "q"), "not now", delay=3600)
    found = explained(store, "q", ids[1])
    assert (found.reason, found.behind) == (R.GROUP_RETRY, int(ids[0]))
    assert found.until_us is not None
    assert abs(found.until_us - time.time_ns() // 1000 - HOUR_US) < HOUR_US // 2
    first = explained(store, "q", ids[0])
    assert (first.reason, first.until_us) == (R.RETRY, found.until_us)


def test_messages_come_behind_others_by_priority(store: AnyStore) -> None:
    """Situation 7: it is there, and another one is first; so is it among equals."""
    store.create_queue("q", kind="work", order="priority")
    low = store.put("q", b"low", priority=1)
    high = store.put("q", b"high", priority=9)
    found = explained(store, "q", low)
    assert (found.reason, found.behind) == (R.BEHIND, int(high))
    assert explained(store, "q", high).reason is R.READY
    assert explained(store, "q").id == int(high)


def test_messages_come_behind_older_ones(store: AnyStore, work: str) -> None:
    """Situation 8: in the order of commits."""
    first, second = store.put_many(work, [b"1", b"2"])
    found = explained(store, work, second)
    assert (found.reason, found.behind) == (R.BEHIND, first)
    assert explained(store, work).id == first


def test_messages_come_behind_others_by_an_attribute(store: AnyStore) -> None:
    """Situation 9: the lowest value is first."""
    store.create_queue("q", kind="work", order={"attribute": "weight", "numeric": True})
    heavy = store.put("q", b"books", attributes={"weight": "12"})
    light = store.put("q", b"letter", attributes={"weight": "0.1"})
    found = explained(store, "q", heavy)
    assert (found.reason, found.behind) == (R.BEHIND, int(light))


def test_a_message_waits_for_what_its_sender_has_numbered_before_it(store: AnyStore) -> None:
    """Situation 10: number 2 is there, number 1 is not."""
    store.create_queue("q", kind="work", order={"sequence": "number", "wait": 600.0})
    second = store.put("q", b"2", sender="till 7", attributes={"number": "2"})
    found = explained(store, "q", second)
    assert (found.reason, found.number) == (R.SEQUENCE, 1)
    assert found.until_us is not None
    first = store.put("q", b"1", sender="till 7", attributes={"number": "1"})
    assert explained(store, "q", first).reason is R.READY
    assert explained(store, "q", second).reason is R.BEHIND


def test_an_exclusive_subscription_has_one_reader_at_a_time(store: AnyStore) -> None:
    """Situation 11: another transaction has messages of it."""
    store.create_queue("prices", kind="topic")
    store.subscribe("prices", "shop", exclusive=True)
    first, second = store.put_many("prices", [b"3", b"4"])
    with store.transaction() as txn:
        taken(txn, "prices/shop")
        [open_one] = store.admin.transactions()
        assert explained(store, "prices/shop", first).reason is R.IN_FLIGHT
        found = explained(store, "prices/shop", second)
        assert (found.reason, found.transaction) == (R.EXCLUSIVE, open_one.id)
        txn.rollback()


# Who has it ---------------------------------------------------------------------------------------


def test_it_is_in_flight_in_a_transaction(store: AnyStore, work: str) -> None:
    """Situation 12: which one, whose, and since when."""
    message = store.put(work, b"1")
    with store.transaction(owner="worker 7") as txn:
        taken(txn, work)
        [open_one] = store.admin.transactions()
        found = explained(store, work, message)
        assert (found.reason, found.transaction, found.owner, found.since_us) == (
            R.IN_FLIGHT, open_one.id, open_one.owner, open_one.opened_us,
        )  # fmt: skip
        assert str(open_one.id) in found.text
        assert "abort" in found.text
        assert explained(store, work) == found
        txn.rollback()


def test_it_is_in_flight_in_a_prepared_transaction(store: AnyStore, work: str) -> None:
    """Situation 13: nobody has decided it."""
    message = store.put(work, b"1")
    txn = store.transaction()
    taken(txn, work)
    txn.prepare("order 17")
    found = explained(store, work, message)
    assert (found.reason, found.xid) == (R.PREPARED, "order 17")
    [prepared] = store.prepared.list()
    assert found.since_us == prepared.prepared_us
    assert explained(store, work) == found
    txn.rollback()
    assert explained(store, work, message).reason is R.READY


def test_it_is_held_by_a_transaction(store: AnyStore, work: str) -> None:
    """Situation 14: read with `hold`, and not got."""
    message = store.put(work, b"1")
    with store.transaction() as txn:
        assert txn.read(work, hold=True) is not None
        [open_one] = store.admin.transactions()
        found = explained(store, work, message)
        assert (found.reason, found.transaction) == (R.HELD, open_one.id)
        txn.rollback()


def test_it_was_put_and_is_not_committed(store: AnyStore, work: str) -> None:
    """Situation 15: nothing is there, but an open transaction has put something."""
    assert explained(store, work).reason is R.EMPTY
    with store.transaction(owner="the shop") as txn:
        txn.put(work, b"1")
        txn.get(work)  # by which the put has arrived at the owner
        [open_one] = store.admin.transactions()
        found = explained(store, work)
        assert (found.reason, found.transaction) == (R.UNCOMMITTED, open_one.id)
        assert "the shop" in found.text
        txn.rollback()


def test_it_was_put_and_is_not_decided(store: AnyStore, work: str) -> None:
    """Situation 16: a prepared transaction has put it."""
    txn = store.transaction()
    txn.put(work, b"1")
    txn.prepare("order 18")
    found = explained(store, work)
    assert (found.reason, found.xid) == (R.UNDECIDED, "order 18")
    txn.commit()
    assert explained(store, work).reason is R.READY


def test_a_transaction_moves_the_subscription(store: AnyStore) -> None:
    """Situation 17: nobody gets anything of it until the seek has ended."""
    store.create_queue("prices", kind="topic")
    store.subscribe("prices", "shop")
    first, second = store.put_many("prices", [b"3", b"4"])
    with store.transaction() as txn:
        txn.seek("prices/shop", "latest")
        assert explained(store, "prices/shop", first).reason is R.SEEKING
        txn.commit()
    assert explained(store, "prices/shop", second).reason is R.NOT_THERE  # all have passed it


# Failures -----------------------------------------------------------------------------------------


def test_it_was_rejected_and_comes_later(store: AnyStore) -> None:
    """Situation 18: the queue's own retry, or the delay of a rejection."""
    store.create_queue("q", kind="work", retry={"delay": 600})
    message = store.put("q", b"1")
    with store.transaction() as txn:
        txn.reject(taken(txn, "q"), "bad")
    found = explained(store, "q", message)
    assert found.reason is R.RETRY
    assert found.until_us is not None
    assert explained(store, "q") == found


def test_it_was_delivered_too_often_and_its_dead_letter_queue_is_stopped(store: AnyStore) -> None:
    """Situation 19: it can neither be delivered nor leave."""
    store.create_queue("dead", kind="work")
    store.create_queue("q", kind="work", max_deliveries=1, dead_letter="dead")
    message = store.put("q", b"1")
    store.alter_queue("dead", puts=False)
    with store.transaction() as txn:
        txn.reject(taken(txn, "q"), "bad")
    found = explained(store, "q", message)
    assert (found.reason, found.queue) == (R.SPENT, "dead")
    assert "dead" in found.text


def test_it_went_to_the_dead_letters(store: AnyStore) -> None:
    """Situation 20: by its old id it is nowhere, by its new one it is a dead letter."""
    store.create_queue("dead", kind="work")
    store.create_queue("q", kind="work", max_deliveries=1, dead_letter="dead")
    message = store.put("q", b"1")
    with store.transaction() as txn:
        txn.reject(taken(txn, "q"), "bad")
    found = explained(store, "q", message)
    assert (found.reason, found.queue) == (R.NOT_THERE, "dead")
    letter = store.browse("dead")[0]
    found = explained(store, "q", letter.id)
    assert (found.reason, found.queue) == (R.DEAD_LETTER, "dead")
    assert "redrive" in found.text


# Limits and stops ---------------------------------------------------------------------------------


def test_as_many_are_in_flight_as_may_be(store: AnyStore) -> None:
    """Situation 21: `max_in_flight`."""
    store.create_queue("q", kind="work", max_in_flight=1)
    _, second = store.put_many("q", [b"1", b"2"])
    with store.transaction() as txn:
        taken(txn, "q")
        found = explained(store, "q", second)
        assert (found.reason, found.limit) == (R.MAX_IN_FLIGHT, 1)
        assert explained(store, "q").reason is R.MAX_IN_FLIGHT
        txn.rollback()
    assert explained(store, "q").reason is R.READY


def test_as_many_have_started_as_may_in_that_time(store: AnyStore, clock: Clock) -> None:
    """Situation 22: `rate`."""
    clock.stop()
    store.create_queue("q", kind="work", rate=1 / 600)
    store.put_many("q", [b"1", b"2"])
    assert store.get("q") is not None
    found = explained(store, "q")
    assert (found.reason, found.until_us) == (R.RATE, clock.now_us() + 600_000_000)
    clock.forward(600.0)
    assert explained(store, "q").reason is R.READY


def test_a_group_has_as_many_in_flight_as_it_may(store: AnyStore) -> None:
    """Situation 23: `group_max_in_flight`."""
    store.create_queue("q", kind="work", grouped=True, group_max_in_flight=1)
    ids = [store.put("q", payload, group_key="ann") for payload in (b"1", b"2")]
    with store.transaction() as txn:
        taken(txn, "q")
        found = explained(store, "q", ids[1])
        assert (found.reason, found.limit) == (R.GROUP_MAX_IN_FLIGHT, 1)
        txn.rollback()


def test_a_group_has_started_as_many_as_it_may(store: AnyStore, clock: Clock) -> None:
    """Situation 24: `group_rate`."""
    clock.stop()
    store.create_queue("q", kind="work", grouped=True, group_rate=1 / 600)
    ids = [store.put("q", payload, group_key="ann") for payload in (b"1", b"2")]
    assert store.get("q") is not None
    found = explained(store, "q", ids[1])
    assert (found.reason, found.until_us) == (R.GROUP_RATE, clock.now_us() + 600_000_000)


def test_gets_of_the_queue_are_stopped(store: AnyStore, work: str) -> None:
    """Situation 25: `alter_queue(gets=False)`."""
    message = store.put(work, b"1")
    store.alter_queue(work, gets=False)
    found = explained(store, work, message)
    assert found.reason is R.QUEUE_STOPPED
    assert "gets=True" in found.text
    store.alter_queue(work, gets=True)
    assert explained(store, work, message).reason is R.READY


def test_gets_of_the_store_are_stopped(store: AnyStore, work: str) -> None:
    """Situation 26: `admin.switch(gets=False)`; what keeps a message back besides is told first."""
    store.put(work, b"1")
    late = store.put(work, b"2", delay=3600)
    store.admin.switch(gets=False)
    assert explained(store, work).reason is R.STORE_STOPPED
    found = explained(store, work, late)
    assert (found.reason, found.also) == (R.SCHEDULED, (R.STORE_STOPPED,))
    store.admin.switch(gets=True)


def test_puts_are_stopped_where_nothing_is_there(store: AnyStore, work: str) -> None:
    """Situation 27: an empty queue that nothing can come to."""
    store.alter_queue(work, puts=False)
    found = explained(store, work)
    assert (found.reason, found.also) == (R.EMPTY, (R.PUTS_STOPPED,))


def test_the_code_of_its_order_fails(store: AnyStore) -> None:
    """Situation 28: registered code raises, by which its queue is stopped."""

    def failing_order(headers: Any) -> Any:
        raise ValueError("no key")

    quire.register_order("explained_failing", failing_order)
    store.create_queue("q", kind="work", order="explained_failing")
    message = store.put("q", b"1")
    with pytest.raises(quire.QueueDisabled):
        store.get("q")
    found = explained(store, "q", message)
    assert found.reason is R.QUEUE_UNUSABLE
    assert "explained_failing" in found.text


# Not for this subscription, or not any more -------------------------------------------------------


def test_the_condition_of_the_subscription_does_not_match(store: AnyStore) -> None:
    """Situation 29: nobody has looked at it yet, or it counts as read already."""
    store.create_queue("events", kind="topic")
    store.subscribe("events", "red", where="colour = 'red'")
    store.subscribe("events", "all")
    blue = store.put("events", b"1", attributes={"colour": "blue"})
    found = explained(store, "events/red", blue)
    assert found.reason is R.UNWANTED
    assert found.where == "colour = 'red'"
    assert explained(store, "events/all", blue).reason is R.READY


def test_it_was_read(store: AnyStore) -> None:
    """Situation 30: acknowledged by this subscription, and not by another."""
    store.create_queue("events", kind="topic")
    store.subscribe("events", "a")
    store.subscribe("events", "b")
    message = store.put("events", b"1")
    assert store.get("events/a") is not None
    assert explained(store, "events/a", message).reason is R.READ
    assert explained(store, "events/b", message).reason is R.READY


def test_it_is_before_the_subscription_began(store: AnyStore) -> None:
    """Situation 31: `start="latest"`."""
    store.create_queue("events", kind="topic")
    store.subscribe("events", "a")
    message = store.put("events", b"1")
    store.subscribe("events", "late", start="latest")
    assert explained(store, "events/late", message).reason is R.READ


def test_there_is_no_such_message(store: AnyStore, work: str) -> None:
    """Situation 32: got and gone; of another queue; of no queue yet."""
    message = store.put(work, b"1")
    assert store.get(work) is not None
    assert explained(store, work, message).reason is R.NOT_THERE
    store.create_queue("other", kind="work")
    elsewhere = store.put("other", b"2")
    assert explained(store, work, elsewhere).reason is R.NOT_THERE
    found = explained(store, work, int(elsewhere) + 1000)
    assert found.reason is R.NOT_THERE


def test_nothing_stands_against_it(store: AnyStore) -> None:
    """Situation 33: also in a queue in memory, and by an alias."""
    store.create_queue("q", kind="work", type="volatile")
    message = store.put("q", b"1")
    assert explained(store, "q", message).reason is R.READY
    store.admin.create_alias("other", "q")
    assert store.admin.explain("other").id == int(message)


def test_what_cannot_be_explained_is_refused(store: AnyStore, work: str) -> None:
    """A queue or a subscription that is not there, a pattern, an id that is none."""
    store.create_queue("events", kind="topic")
    with pytest.raises(quire.QueueNotFound):
        store.admin.explain("none")
    with pytest.raises(quire.SubscriptionNotFound):
        store.admin.explain("events")
    with pytest.raises(quire.InvalidArgument):
        store.admin.explain("work.*")
    for wrong in (0, -1, "1", True, 1.5):
        with pytest.raises(quire.InvalidArgument):
            store.admin.explain(work, wrong)  # type: ignore[arg-type]
