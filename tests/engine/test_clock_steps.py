"""The wall clock is set back and forward: what lasts so many seconds lasts so long.

On a simulated machine, whose monotonic clock does not notice.
"""

from __future__ import annotations

from typing import Any

import pytest

from quire.definitions.order import SequenceOrder
from quire.engine import EmbeddedStore as Store
from quire.testing import SimEnv
from tests.engine.workload import open_store

HOUR = 3600.0
STEPS = [-24 * HOUR, -HOUR, HOUR, 24 * HOUR]
BACK = [-24 * HOUR, -HOUR]
BY_SEQUENCE: SequenceOrder = {"sequence": "seq", "wait": 60.0}


def number(store: Store, *numbers: int) -> None:
    """Put messages of one sender, with these numbers."""
    for each in numbers:
        store.put("q", b"%d" % each, sender="a", attributes={"seq": str(each)})


def passes(store: Store, env: SimEnv, seconds: float) -> None:
    """Time, and the maintenance looks."""
    env.advance(seconds)
    store._maintenance.step()


@pytest.mark.parametrize("step", STEPS)
def test_a_gap_is_waited_for_as_long_as_it_says(env: SimEnv, step: float) -> None:
    """Whether the step comes before the message, or while it waits."""
    with open_store(env) as store:
        store.create_queue("q", kind="work", order=BY_SEQUENCE)
        number(store, 1, 3)
        assert store.get_many("q").payloads() == [b"1"]
        env.jump_wall_clock(step)
        passes(store, env, 50)
        assert store.get("q") is None
        passes(store, env, 11)
        assert store.get_many("q").payloads() == [b"3"]
        env.advance(20)
        number(store, 5)
        assert store.get("q") is None
        passes(store, env, 50)
        assert store.get("q") is None
        passes(store, env, 11)
        assert store.get_many("q").payloads() == [b"5"]


@pytest.mark.parametrize("step", BACK)
def test_a_get_that_waits_for_a_gap(env: SimEnv, step: float) -> None:
    """It is woken in time: the seconds to wait are those of the monotonic clock."""
    with open_store(env) as store:
        store.create_queue("q", kind="work", order=BY_SEQUENCE)
        number(store, 1, 3)
        assert store.get_many("q").payloads() == [b"1"]
        env.jump_wall_clock(step)
        queue, subscription = store._state().source("q")
        seconds = store._context.delivery.advance(queue, subscription)
        assert 59 < seconds <= 60


@pytest.mark.parametrize("step", BACK)
def test_after_a_restart_it_waits_once_more_at_most(env: SimEnv, step: float) -> None:
    """What is known of the wait is gone with the process."""
    with open_store(env) as store:
        store.create_queue("q", kind="work", order=BY_SEQUENCE)
        number(store, 1, 3)
        assert store.get_many("q").payloads() == [b"1"]
    env.jump_wall_clock(step)
    with open_store(env) as store:
        assert store.get("q") is None
        passes(store, env, 61)
        assert store.get_many("q").payloads() == [b"3"]


@pytest.mark.parametrize(
    ("options", "step"),
    [({"ttl": 60.0}, step) for step in STEPS] + [({"max_ttl": 60.0}, step) for step in BACK],
)
def test_a_queue_s_ttl_is_as_long_as_it_says(
    env: SimEnv, step: float, options: dict[str, Any]
) -> None:
    """Of what was there before the step, and of what is put after it."""
    with open_store(env) as store:
        store.create_queue("q", kind="work", timed=True, **options)
        store.put("q", b"before")
        store._maintenance.step()
        env.jump_wall_clock(step)
        passes(store, env, 30)
        store.put("q", b"after")
        passes(store, env, 20)
        assert store.browse("q").payloads() == [b"before", b"after"]
        passes(store, env, 11)
        assert store.browse("q").payloads() == [b"after"]
        assert store.get("q") is not None
        store.put("q", b"more")
        passes(store, env, 50)
        assert store.queue("q").messages == 1
        passes(store, env, 11)
        assert store.get("q") is None
        assert store.queue("q").messages == 0


@pytest.mark.parametrize("step", BACK)
def test_a_message_in_flight_expires_in_time(env: SimEnv, step: float) -> None:
    """Given back, it is gone."""
    with open_store(env) as store:
        store.create_queue("q", kind="work", timed=True, ttl=60.0)
        store.put("q", b"m")
        with store.transaction() as txn:
            assert txn.get("q") is not None
            env.jump_wall_clock(step)
            passes(store, env, 61)
            txn.rollback()
        passes(store, env, 1)
        assert store.get("q") is None
        assert store.queue("q").messages == 0


@pytest.mark.parametrize("step", BACK)
@pytest.mark.parametrize("looks", [True, False])
def test_what_is_looked_at_again_lives_no_longer(env: SimEnv, step: float, looks: bool) -> None:
    """Taken before it was due and rejected: it comes back when its life is over already."""
    with open_store(env) as store:
        store.create_queue("q", kind="work", timed=True, max_ttl=60.0, retry={"delay": 30.0})
        store.put("q", b"later", delay=50.0)
        [listed] = store.delayed.list("q")
        with store.transaction(timeout=HOUR) as txn:
            assert txn.get_delayed("q", listed.id) is not None
            env.jump_wall_clock(step)
            txn.rollback()
        env.advance(61)
        if looks:
            store._maintenance.step()
        assert store.delayed.list("q") == []
        store._maintenance.step()
        assert store.queue("q").messages == 0


@pytest.mark.parametrize("step", BACK)
def test_after_a_restart_a_ttl_is_as_long_at_most(env: SimEnv, step: float) -> None:
    """Once more, and not as long as the step."""
    with open_store(env) as store:
        store.create_queue("q", kind="work", timed=True, ttl=60.0)
        store.put("q", b"m")
    env.jump_wall_clock(step)
    with open_store(env) as store:
        passes(store, env, 1)
        assert store.queue("q").messages == 1
        passes(store, env, 61)
        assert store.queue("q").messages == 0


@pytest.mark.parametrize("step", BACK)
def test_what_is_scheduled_after_a_step_can_be_cancelled(env: SimEnv, step: float) -> None:
    """Though it is due at a time that was there before."""
    with open_store(env) as store:
        store.create_queue("q", kind="work", timed=True)
        store.put("q", b"now")
        assert store.get("q") is not None
        env.jump_wall_clock(step)
        first, second = (store.put("q", b"later", delay=600.0) for _ in range(2))
        assert store.get("q") is None
        assert store.delayed.list("q").ids == [first, second]
        assert store.delayed.cancel("q", first)
        assert not store.delayed.cancel("q", first)
        again = store.delayed.reschedule("q", second, delay=1200.0)
        passes(store, env, 601)
        assert store.get("q") is None
        passes(store, env, 600)
        message = store.get("q")
        assert message is not None
        assert message.id == again
        assert not store.delayed.cancel("q", again)


@pytest.mark.parametrize("step", STEPS)
def test_what_knows_no_wall_clock(env: SimEnv, step: float) -> None:
    """Delays of what was rejected, retries, leases, and how long a transaction may be open."""
    with open_store(env) as store:
        store.create_queue("q", kind="work", retry={"delay": 60.0})
        store.create_queue("plain", kind="work")
        store.put("q", b"retried")
        store.put("plain", b"rejected")
        with store.transaction() as txn:
            assert txn.get("q") is not None
            txn.rollback()
        with store.transaction() as txn:
            message = txn.get("plain")
            assert message is not None
            txn.reject(message, delay=60.0)
        held = store.transaction(timeout=60.0)
        held.put("plain", b"held")
        lease = store.integration.lease("plain", 0, 1, seconds=60.0)
        env.jump_wall_clock(step)
        passes(store, env, 50)
        assert store.get("q") is store.get("plain") is None
        assert held.state == "open"
        store.integration.renew_lease(lease.lease_id, 60.0)
        passes(store, env, 11)
        assert store.get("q") is not None
        assert store.get("plain") is not None
        assert held.state != "open"
        store.integration.renew_lease(lease.lease_id, 60.0)


@pytest.mark.parametrize("step", BACK)
def test_what_is_kept_is_kept_longer(env: SimEnv, step: float) -> None:
    """A topic keeps what all have read, and a queue knows request ids, for no shorter a time."""
    with open_store(env) as store:
        store.create_queue("topic", kind="topic", keep_seconds=60.0)
        store.create_queue("q", kind="work", dedup_seconds=60.0)
        store.put("topic", b"m")
        first = store.put("q", b"m", request_id="r")
        env.jump_wall_clock(step)
        passes(store, env, 30)
        assert store.put("q", b"m", request_id="r") == first
        store.put("topic", b"n")
        passes(store, env, 31)
        assert store.queue("topic").messages == 2
        passes(store, env, 61 - step)
        assert store.queue("topic").messages == 0
        assert store.put("q", b"m", request_id="r") != first
