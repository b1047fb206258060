"""Limits held against a model, in drawn histories over simulated time.

The model says it in the plainest way: a list of when each message started and of whom, and what is
in flight. Nothing of a limit is ever exceeded; and what a get is refused, a limit refuses.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from quire.definitions.limits import RATE_SLICES
from quire.engine import EmbeddedTransaction as Transaction
from quire.engine.delivery.pace_keeping import GroupPaces, StartWindow, SubscriptionPace
from quire.engine.live_state.engine_state import EngineState
from quire.messages.message import Message
from quire.testing import SimEnv, sim_env
from tests.engine.workload import new_machine, open_store

SECOND = 1_000_000
SLACK = 1 + 1 / RATE_SLICES  # a slice later than it could, where a rate is high


@pytest.fixture(autouse=True)
def _still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes only when it is told to."""
    monkeypatch.setattr(sim_env, "STEP_US", 0)


@dataclass
class Model:
    """What has started, and is in flight."""

    rules: dict[str, Any]
    starts: list[tuple[int, str]] = field(default_factory=list)  # when, and of which group
    flying: Counter[str] = field(default_factory=Counter)
    waiting: Counter[str] = field(default_factory=Counter)
    full_until: dict[bool, int] = field(default_factory=dict)  # of groups, or in all

    def rate(self, group: str | None) -> float | None:
        found: float | None = self.rules["rate" if group is None else "group_rate"]
        return found

    def span(self, rate: float) -> int:
        return round(max(SECOND, SECOND / rate))

    def started(self, group: str | None, since: int) -> int:
        return sum(at > since and group in (None, own) for at, own in self.starts)

    def check(self, now: int) -> None:
        """That nothing is exceeded, just after something has started."""
        for group in (None, *[g for g in self.flying if g]):
            rate = self.rate(group)
            if rate is not None:
                started = self.started(group, now - self.span(rate))
                assert started <= max(1, rate), (group, started)
            most = self.rules["max_in_flight" if group is None else "group_max_in_flight"]
            if most is not None:
                flying = self.flying.total() if group is None else self.flying[group]
                assert flying <= most, (group, flying)

    def is_refused(self, group: str | None, now: int) -> bool:
        """Whether a limit of the group (None: in all) may refuse one more; "" has no limits."""
        if group == "":
            return False
        rate = self.rate(group)
        most = self.rules["max_in_flight" if group is None else "group_max_in_flight"]
        flying = self.flying.total() if group is None else self.flying[group]
        if most is not None and flying >= most:
            return True
        if group is not None and self.rules["group_max_in_flight"] is None and flying:
            return True  # an ordered group
        if rate is None:
            return False
        since = now - round(self.span(rate) * SLACK)
        if self.started(group, since) >= int(max(1, rate)):
            return True
        return now < self.full_until.get(group is not None, 0)


class History:
    """A store, a queue with limits, and some who get."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.env: SimEnv = new_machine(seed)
        self.store = open_store(self.env)
        self.model = Model(self.draw())
        self.store.create_queue("q", grouped=True, **self.model.rules)
        self.open: list[tuple[Transaction, list[Message]]] = []
        self.full_from = -60 * SECOND  # when an owner of before may have started something
        self.groups = rng.choice([["a"], ["a", "b", ""], ["a", "b", "c", "d", ""]])

    def draw(self) -> dict[str, Any]:
        choose = self.rng.choice
        rules = {
            "max_in_flight": choose([None, None, 1, 3, 8]),
            "rate": choose([None, None, 0.5, 1, 3, 10, 1000]),
            "group_max_in_flight": choose([None, 1, 2, 5]),
            "group_rate": choose([None, None, 0.2, 2, 5, 500]),
        }
        if not any(rules.values()):
            rules["max_in_flight"] = 4
        return rules

    @property
    def now(self) -> int:
        return round(self.env.monotonic() * SECOND)

    def put(self) -> None:
        group = self.rng.choice(self.groups)
        count = self.rng.choice([1, 3, 12])
        for _ in range(count):
            self.store.put("q", b"", group_key=group or None)
        self.model.waiting[group] += count

    def get(self) -> None:
        if not self.open or self.rng.random() < 0.4:
            self.open.append((self.store.transaction(), []))
        txn, got = self.rng.choice(self.open)
        own = Counter(m.group_key or "" for m in got)
        found = list(txn.get_many("q", self.rng.choice([1, 1, 2, 20])))
        for message in found:
            group = message.group_key or ""
            got.append(message)
            self.model.starts.append((self.now, group))
            self.model.flying[group] += 1
            self.model.waiting[group] -= 1
            assert self.model.waiting[group] >= 0
        if found:
            self.model.check(self.now)
        elif not self.model.is_refused(None, self.now):
            for group, count in self.model.waiting.items():
                if count and not (own[group] and self.model.rules["group_max_in_flight"] is None):
                    assert self.model.is_refused(group, self.now), group

    def end(self) -> None:
        if not self.open:
            return
        txn, got = self.open.pop(self.rng.randrange(len(self.open)))
        is_read = self.rng.random() < 0.6
        (txn.commit if is_read else txn.rollback)()
        for message in got:
            group = message.group_key or ""
            self.model.flying[group] -= 1
            self.model.waiting[group] += not is_read

    def advance(self) -> None:
        self.env.advance(self.rng.choice([0.01, 0.1, 0.3, 0.5, 1.0, 2.0]))

    def reopen(self) -> None:
        is_killed = self.rng.random() < 0.5
        if is_killed:
            for txn, _ in self.open:
                txn.abandon("the machine of before")
            self.env = self.env.kill()
            self.store.abandon("the machine of before")
        else:
            self.store.close()
            self.env.advance(self.rng.choice([0.0, 0.0, 0.3, 2.0]))
        self.store = open_store(self.env)
        for _, got in self.open:
            for message in got:
                self.model.waiting[message.group_key or ""] += 1
        self.open.clear()
        self.model.flying.clear()
        if is_killed:
            self.full_from = self.now
        else:
            starts = [at for at, _ in self.model.starts]
            self.full_from = max(self.full_from, *starts, -60 * SECOND)
        for is_group, name in ((False, "rate"), (True, "group_rate")):
            rate = self.model.rules[name]
            if rate is not None:
                span = round(self.model.span(rate) * SLACK)
                self.model.full_until[is_group] = self.full_from + span

    def run(self) -> None:
        steps = [self.put] * 3 + [self.get] * 8 + [self.end] * 4 + [self.advance] * 4
        steps += [self.reopen]
        for _ in range(self.rng.choice([20, 60, 120])):
            self.rng.choice(steps)()
        for txn, _ in self.open:
            txn.rollback()
        self.store.close()


def run_many(seeds: range) -> None:
    """So many histories."""
    for seed in seeds:
        try:
            History(seed).run()
        except BaseException as error:
            error.add_note(f"history {seed}")
            raise


@pytest.mark.cases(8)
@pytest.mark.fuzz
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_no_limit_is_exceeded_and_only_limits_refuse(seed: int, rounds: int) -> None:
    """Over kills and openings too: who opens a store starts nothing that the rate forbids."""
    run_many(range(seed, seed + 4 * rounds))


FAULTS: dict[str, tuple[object, str, object]] = {
    "never full": (StartWindow, "room", lambda *_: 1_000_000),
    "never empty": (StartWindow, "due_us", lambda _, __, now_us: now_us + 1),
    "a fresh burst": (SubscriptionPace, "rest", lambda *_: None),
    "no start is told": (EngineState, "last_start_us", lambda _: 0),
    "groups without limits": (GroupPaces, "is_full", lambda *_: False),
    "not counted": (GroupPaces, "start", lambda *_: None),
}


@pytest.mark.cases(3)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_fault_of_the_limits_is_caught(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever it is."""
    place, name, wrong = FAULTS[fault]
    monkeypatch.setattr(place, name, wrong)
    with pytest.raises(AssertionError):
        run_many(range(300))


@pytest.mark.cases(3)
@pytest.mark.parametrize("rate", [1, 2, 7, 100, 129, 1000, 5000])
def test_a_rate_is_never_exceeded_and_nearly_reached(rate: int) -> None:
    """In any second, and over twenty of them, where there is always work and who asks for it."""
    env = new_machine(1)
    store = open_store(env)
    store.create_queue("q", type="volatile", rate=rate, capacity=64 << 20)
    store.put_many("q", [b""] * (21 * rate))
    starts: list[int] = []
    begin = round(env.monotonic() * SECOND)
    while (now := round(env.monotonic() * SECOND)) < begin + 20 * SECOND:
        starts += [now] * len(store.get_many("q", rate))
        env.advance(0.0017)
    first = 0
    for index, at in enumerate(starts):
        while starts[first] <= at - SECOND:
            first += 1
        assert index + 1 - first <= rate
    assert len(starts) >= 0.95 * 20 * rate
    store.close()


def test_a_new_owner_starts_no_fresh_burst() -> None:
    """What the one before has started in the second before is not known: so it waits that long."""
    env = new_machine(1)
    store = open_store(env)
    store.create_queue("q", rate=100)
    store.create_queue("g", grouped=True, group_rate=2)
    store.put_many("q", [b""] * 500)
    for _ in range(9):
        store.put("g", b"", group_key="a")
    assert len(store.get_many("q", 500)) == 100
    assert len(store.get_many("g", 500)) == 2
    env = env.kill()
    store.abandon("the machine of before")
    store = open_store(env)
    assert store.get("q") is None
    assert store.get("g") is None
    env.advance(1.0)
    assert len(store.get_many("q", 500)) == 100
    assert len(store.get_many("g", 500)) == 2
    store.close()


def test_what_was_closed_tells_when_something_started() -> None:
    """So its next opening waits for the rest of a second only, and for nothing after that."""
    env = new_machine(1)
    store = open_store(env)
    store.create_queue("q", rate=100)
    store.create_queue("minutes", grouped=True, group_rate=1 / 60)
    store.put_many("q", [b""] * 500)
    store.put("minutes", b"", group_key="a")
    store.close()
    store = open_store(env)  # nothing has ever started
    assert len(store.get_many("q", 500)) == 100
    assert store.get("minutes") is not None
    store.put("minutes", b"", group_key="a")
    env.advance(0.3)
    store.close()
    env.advance(0.3)
    store = open_store(env)
    assert store.get("q") is None
    env.advance(0.4)
    assert len(store.get_many("q", 500)) == 100
    env.advance(5.0)
    store.close()
    store = open_store(env)
    assert len(store.get_many("q", 500)) == 100
    assert store.get("minutes") is None
    env.advance(60.0)
    assert store.get("minutes") is not None
    store.close()


def test_what_an_opening_before_the_last_has_told_counts_no_more() -> None:
    """The last owner was killed, and had perhaps started as many as it might."""
    env = new_machine(1)
    store = open_store(env)
    store.create_queue("q", rate=100)
    store.put_many("q", [b""] * 500)
    env.advance(60.0)
    store.close()
    env.advance(60.0)
    store = open_store(env)
    txn = store.transaction()  # nothing of it is committed
    assert len(txn.get_many("q", 500)) == 100
    env = env.kill()
    store.abandon("the machine of before")
    store = open_store(env)
    assert store.get("q") is None
    env.advance(1.0)
    assert len(store.get_many("q", 500)) == 100
    store.close()
    store = open_store(env)
    assert store.get("q") is None
    store.close()


def test_what_is_prepared_is_in_flight_after_a_restart() -> None:
    """Of its queue and of its group, until somebody decides."""
    env = new_machine(1)
    store = open_store(env)
    store.create_queue("q", max_in_flight=2)
    store.create_queue("g", grouped=True, group_max_in_flight=2)
    store.put_many("q", [b"0", b"1", b"2"])
    for payload in (b"0", b"1", b"2"):
        store.put("g", payload, group_key="a")
    txn = store.transaction()
    assert txn.get_many("q", 1).payloads() == [b"0"]
    assert txn.get_many("g", 1).payloads() == [b"0"]
    txn.prepare("x")
    for is_killed in (False, True):
        if is_killed:
            env = env.kill()
            store.abandon("the machine of before")
        else:
            store.close()
        store = open_store(env)
        with store.transaction() as other:
            for queue in ("q", "g"):
                assert other.get_many(queue, 3).payloads() == [b"1"]
                assert store.get(queue) is None
            other.rollback()
    store.prepared.rollback("x")
    for queue in ("q", "g"):
        assert store.get_many(queue, 3).payloads() == [b"0", b"1"]
    store.close()


@pytest.mark.cases(3)
@pytest.mark.parametrize(
    ("workers", "many"),
    [(1, 20_000), (5, 20_000), pytest.param(20, 1_000_000, marks=pytest.mark.long), (20, 20_000)],
)
def test_a_million_delay_three_by_what_is_in_flight(workers: int, many: int) -> None:
    """However many wait before them."""
    store = open_store(new_machine(1))
    store.create_queue("q", type="volatile", grouped=True, group_max_in_flight=100,
                       max_in_flight=workers, capacity=256 << 20)  # fmt: skip
    with store.transaction() as putting:
        for _ in range(many):
            putting.put("q", b"", group_key="many")
    flying = [store.transaction() for _ in range(workers)]
    for txn in flying:
        assert txn.get("q") is not None
    for _ in range(3):
        store.put("q", b"", group_key="few")
    started: list[str | None] = []
    for _ in range(6):  # one of them ends, and who is free gets the next
        flying.pop(0).commit()
        flying.append(store.transaction())
        found = flying[-1].get("q")
        assert found is not None
        started.append(found.group_key)
    assert started == ["few", "many"] * 3
    for txn in flying:
        txn.rollback()
    store.close()
