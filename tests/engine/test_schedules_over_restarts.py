"""Schedules on a simulated clock: each due time once, over restarts, failures and any clock."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

import quire.definitions.cron as cron
from quire.definitions.properties import OverflowPolicy
from quire.engine import EmbeddedStore as Store
from quire.engine.state.catalog import RAN_KEY, SCHEDULE, TYPES
from quire.errors import DiskFull, InvalidArgument, ScheduleNotFound
from quire.interface.schedules import DUE, MissedPolicy
from quire.limits import LATE_SECONDS, MAX_SCHEDULE_ENTRY_BYTES, PUT_AT_ONCE
from quire.testing import SimEnv
from tests.engine.workload import PATH, new_machine, open_store
from tests.kit.limits import Limits

MINUTE = 60_000_000


def make(env: SimEnv, missed: MissedPolicy = "once") -> Store:
    """A store with a schedule of every minute, which begins at a whole minute and a second."""
    env.advance((MINUTE - env.now_us() % MINUTE) / 1e6 + 1)
    store = open_store(env)
    store.create_queue("q", kind="work")
    store.cron.create("s", "q", "* * * * *", b"payload", missed=missed)
    return store


def look(store: Store) -> None:
    """The maintenance does what is due."""
    store._maintenance.step()


def due(store: Store, queue: str = "q") -> list[int]:
    """The minutes since the epoch for which messages are there."""
    return [int(message.attributes[DUE]) // MINUTE for message in store.browse(queue)]


def take_due(store: Store) -> list[int]:
    """Those minutes; their messages are read for good."""
    found = due(store)
    store.get_many("q", 100_000)
    return found


def minute(env: SimEnv) -> int:
    """The present one."""
    return env.now_us() // MINUTE


def test_a_message_at_each_due_time(seed: int) -> None:
    """Not before, and not again by another look, a checkpoint or a restart."""
    env = new_machine(seed)
    store = make(env)
    first = minute(env)
    look(store)
    assert due(store) == []
    for _ in range(2):
        env.advance(60)
        look(store)
        look(store)
        store.admin.checkpoint()
    assert due(store) == [first + 1, first + 2]
    [info] = store.cron.list()
    assert (info.last_us, info.next_us) == ((first + 2) * MINUTE, (first + 3) * MINUTE)
    store.close()
    with open_store(env) as store:
        look(store)
        env.advance(60)
        look(store)
        assert due(store) == [first + 1, first + 2, first + 3]


@pytest.mark.parametrize("minutes", [3, 600])
def test_what_was_missed(seed: int, minutes: int, limits: Limits) -> None:
    """While no store was open: nothing, one for all, or each, the last ones; in several looks."""
    limits(MAX_MISSED=7, PUT_AT_ONCE=3)
    each = list(range(1 - min(minutes, 8), 1))
    expected: dict[MissedPolicy, list[int]] = {"skip": [0], "once": [0], "all": each}
    for missed, found in expected.items():
        env = new_machine(seed)
        store = make(env, missed)
        store.close()
        env.advance(60 * minutes)
        with open_store(env) as store:
            for _ in range(4):
                look(store)
            assert [at - minute(env) for at in due(store)] == found
            env.advance(60)
            look(store)
            assert due(store)[-1] == minute(env)


@pytest.mark.parametrize(("missed", "count"), [("skip", 0), ("once", 1), ("all", 2)])
def test_what_is_late_is_missed(seed: int, missed: MissedPolicy, count: int) -> None:
    """By more than a minute: of the last three days, two at midnight are."""
    env = new_machine(seed)
    store = make(env, missed)
    store.cron.alter("s", cron="@daily")
    midnight = store.cron.list()[0].next_us
    assert midnight is not None
    env.advance((midnight - env.now_us()) / 1e6 + 86400 + LATE_SECONDS + 1)
    look(store)
    days = [midnight // MINUTE, midnight // MINUTE + 24 * 60]
    assert due(store) == days[2 - count :]
    store.close()


def test_clocks_that_are_set(seed: int) -> None:
    """Back: no due time comes twice, and it goes on when the clock is there again. Forward."""
    env = new_machine(seed)
    store = make(env, "all")
    first = minute(env)
    env.advance(120)
    look(store)
    assert take_due(store) == [first + 1, first + 2]
    env.jump_wall_clock(-3600)
    env.advance(600)
    look(store)
    store.close()
    store = open_store(env)
    look(store)
    assert take_due(store) == []
    env.jump_wall_clock(3600)
    look(store)
    assert take_due(store) == list(range(first + 3, first + 13))
    env.jump_wall_clock(600)
    look(store)
    assert take_due(store) == list(range(first + 13, first + 23))
    store.close()


def test_a_pause_is_not_missed(seed: int) -> None:
    """Nor what another text would have said before it was given."""
    env = new_machine(seed)
    store = make(env, "all")
    first = minute(env)
    store.cron.alter("s", paused=True)
    assert store.cron.list()[0].next_us is None
    env.advance(600)
    look(store)
    store.cron.alter("s", paused=False)
    env.advance(60)
    look(store)
    assert take_due(store) == [first + 11]
    store.cron.alter("s", cron="0 * * * *")
    env.advance(36_000)
    store.cron.alter("s", cron="* * * * *")
    env.advance(60)
    look(store)
    assert take_due(store)[-1] == minute(env)
    store.cron.alter("s", payload=b"other", sender="me")  # the rest is as it was
    env.advance(180)
    look(store)
    assert len(due(store)) == 3
    message = store.get("q")
    assert message is not None
    assert (message.payload, message.sender) == (b"other", "me")
    store.close()


def fill(store: Store) -> None:
    """The queue has no room for one more."""
    store.alter_queue("q", max_messages=1)
    store.put("q", b"full")


@pytest.mark.parametrize("block", ["full", "stopped", "store stopped", "too large"])
def test_what_cannot_be_put_waits(seed: int, block: str) -> None:
    """It is shown, tried again, and holds up no other schedule."""
    env = new_machine(seed)
    store = make(env, "all")
    first = minute(env)
    store.create_queue("other", kind="work")
    store.cron.create("t", "other", "* * * * *")
    if block == "full":
        fill(store)
    elif block == "stopped":
        store.alter_queue("q", puts=False)
    elif block == "store stopped":
        store.admin.switch(puts=False)
    else:
        store.alter_queue("q", max_message_bytes=1)
    for _ in range(3):
        env.advance(60)
        look(store)
    waiting, other = store.cron.list()
    assert waiting.waiting is not None
    assert waiting.last_us is None
    assert waiting.next_us == (first + 1) * MINUTE
    if block != "store stopped":
        assert other.waiting is None
        assert other.last_us == (first + 3) * MINUTE
    assert "s" in str(store._schedules.last_error)
    assert store.status()["schedules"][0]["waiting"] == waiting.waiting
    store.admin.switch(puts=True, gets=True)
    store.alter_queue("q", max_messages=None, puts=True, max_message_bytes=None)
    if block == "full":
        store.get("q")
    env.advance(1)
    look(store)
    assert due(store) == [first + 1, first + 2, first + 3]
    assert store.cron.list()[0].waiting is None
    assert store._schedules.last_error is None
    store.close()


def test_what_waits_is_not_tried_all_the_time(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits of others do not have it tried again before its time."""
    env = new_machine(seed)
    store = make(env)
    fill(store)
    store.create_queue("other", kind="work")
    env.advance(60)
    look(store)
    tries = []
    real = store._schedules._put_message
    monkeypatch.setattr(
        store._schedules,
        "_put_message",
        lambda *a: (tries.append(a), real(*a)),  # type: ignore[func-returns-value]
    )
    for _ in range(100):
        store.put("other", b"x")
    assert len(tries) <= 1
    assert store._schedules.next_us > env.now_us()
    store.close()


@pytest.mark.parametrize("overflow", ["wait", "drop_oldest", "dead_letter"])
def test_queues_that_make_room(seed: int, overflow: OverflowPolicy) -> None:
    """What a queue does without room it does for these too; nobody waits in the maintenance."""
    env = new_machine(seed)
    store = make(env)
    store.create_queue("dead", kind="work")
    target = "dead" if overflow == "dead_letter" else None
    store.alter_queue("q", overflow=overflow, dead_letter=target)
    fill(store)
    env.advance(60)
    look(store)
    assert (store.cron.list()[0].waiting is None) == (overflow != "wait")
    assert store.browse("q").payloads() == [b"full" if overflow == "wait" else b"payload"]
    store.close()


def fill_disk(store: Store) -> None:
    """Put until nothing more goes."""
    for _ in range(1000):
        store.put("junk", b"x" * 3000)


def test_a_full_disk_makes_it_wait(seed: int) -> None:
    """A full disk makes a schedule wait, and lets schedules be dropped."""
    env = new_machine(seed)
    store = make(env)
    store.cron.create("t", "q", "@daily", b"x" * 9000)
    store.create_queue("junk", kind="work")
    env.capacity_bytes = env.used_bytes()
    with pytest.raises(DiskFull):
        fill_disk(store)
    env.advance(60)
    with suppress(DiskFull):
        look(store)
    assert store.cron.list()[0].waiting is not None
    store.cron.drop("t")
    env.capacity_bytes = None
    env.advance(1)
    look(store)
    assert len(due(store)) == 1
    store.close()


def test_a_zone_that_is_not_known_here(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner whose time zone data base lacks it stops this schedule only, and says so."""
    env = new_machine(seed)
    store = make(env)
    first = minute(env)
    store.cron.create("far", "q", "* * * * *", timezone="Asia/Tokyo")
    real = cron._zone

    def without_tokyo(name: object) -> Any:
        if name == "Asia/Tokyo":
            raise InvalidArgument("timezone 'Asia/Tokyo' is not known")
        return real(name)

    monkeypatch.setattr(cron, "_zone", without_tokyo)
    store.close()
    store = open_store(env)
    env.advance(60)
    look(store)
    far, here = store.cron.list()
    assert "Asia/Tokyo" in str(far.waiting)
    assert due(store) == [first + 1]
    assert here.waiting is None
    store.cron.alter("far", paused=True)
    store.cron.drop("far")
    store.close()


def test_a_new_one_begins_anew(seed: int) -> None:
    """One of the name of another that was dropped has another number, and nothing of its past."""
    env = new_machine(seed)
    store = make(env)
    env.advance(60)
    look(store)
    [info] = store.cron.list()
    assert store.integration.ledger(RAN_KEY.format(info.id)) == info.last_us
    store.cron.drop("s")
    with pytest.raises(ScheduleNotFound):
        store.cron.drop("s")
    store.admin.checkpoint()
    store.close()
    store = open_store(env)
    made = store.cron.create("s", "q", "* * * * *")
    assert made.id > info.id
    assert made.last_us is None
    store.cron.drop("s")
    store.drop_queue("q")
    store.close()


def test_a_due_time_that_another_one_has_noted(seed: int) -> None:
    """It has no message: the ledger decides."""
    env = new_machine(seed)
    store = make(env)
    [info] = store.cron.list()
    assert info.next_us is not None
    with store.transaction() as txn:
        txn.enter(RAN_KEY.format(info.id), info.next_us)
    env.advance(60)
    look(store)
    assert due(store) == []
    env.advance(60)
    look(store)
    assert len(due(store)) == 1
    store.close()


@pytest.mark.promise(9)
def test_there_is_a_limit(sim_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """On how many there are, and on what one takes."""
    sim_store.create_queue("q", kind="topic")
    monkeypatch.setitem(TYPES, SCHEDULE, replace(TYPES[SCHEDULE], most=2))
    for name in "ab":
        sim_store.cron.create(name, "q", "@daily")
    with pytest.raises(InvalidArgument, match="at most 2"):
        sim_store.cron.create("c", "q", "@daily")
    with pytest.raises(InvalidArgument, match=f"at most {MAX_SCHEDULE_ENTRY_BYTES}"):
        sim_store.cron.alter("a", payload=b"x" * MAX_SCHEDULE_ENTRY_BYTES)
    assert sim_store.cron.list()[0].payload == b""


def test_many_are_due_at_once(seed: int) -> None:
    """A look puts so many and leaves the rest to the next one."""
    env = new_machine(seed)
    store = make(env)
    for number in range(PUT_AT_ONCE + 20):
        store.cron.create(f"t{number}", "q", "0 * * * *")
    env.advance(3600)
    before = store.queue("q").messages
    look(store)
    assert store.queue("q").messages == before + PUT_AT_ONCE
    assert store._schedules.next_us <= env.now_us()
    look(store)
    assert store.queue("q").messages == before + PUT_AT_ONCE + 21
    assert all(info.last_us is not None for info in store.cron.list())
    store.close()


def test_an_opening_knows_what_a_dump_shows(seed: int) -> None:
    """In words: the entry, and the last due time."""
    from quire import dump

    env = new_machine(seed)
    store = make(env)
    env.advance(60)
    look(store)
    [info] = store.cron.list()
    store.close()
    lines = "\n".join(str(item) for item in dump(PATH, journal=True, env=env))
    assert "schedule" in lines
    assert RAN_KEY.format(info.id) in lines
