"""Random histories of one subscription against `delivery_model`: every order and rule together.

After each step every message is where the model says, and what a get returned is what it says, each
with how often it was delivered and failed. The clock stands still between steps.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from quire.block import Block
from quire.engine import EmbeddedTransaction as Transaction
from quire.engine.queues.delivery_table import TABLE, Event, reached
from quire.engine.queues.delivery_table import DeliveryState as State
from quire.engine.queues.groups import Groups
from quire.engine.queues.queue import Queue
from quire.engine.queues.selection import Selection
from quire.engine.queues.sequences import _split
from quire.engine.queues.subscription import Subscription
from quire.engine.reading import indexing
from quire.engine.reading.ranks import attribute_ranks
from quire.engine.records.attempts import Attempts
from quire.errors import QueueInUse
from quire.limits import POSITIONS
from quire.message import Message
from quire.testing import sim_env
from tests.engine.delivery_model import SECOND, Model, Place, Told
from tests.engine.workload import new_machine, open_store

BY_RANK = {"attribute": "rank", "numeric": True}
BY_TEXT = {"attribute": "rank", "numeric": False}
RETRIES = [None, {"delay": 0.5, "growth": "constant"}, {"delay": 0.3, "growth": "linear"}]
SEQUENCES = [{"sequence": "n", "wait": wait, "most": most} for wait in (0.6, 5) for most in (2, 9)]
ORDERS: list[Any] = ["commit", "priority", BY_RANK, BY_TEXT, *SEQUENCES]


class History:
    """A store, one queue of it with its subscription, and the model of that."""

    def __init__(self, machine: Machine, rng: random.Random, *, volatile: bool) -> None:
        self.rng, self.machine = rng, machine
        machine.count += 1
        self.name = f"q{machine.count}"
        self.volatile = volatile
        self.is_topic = rng.random() < 0.6
        self.source = f"{self.name}/s" if self.is_topic else self.name
        self.rules: dict[str, Any] = {}
        self.draw_rules(len(CHOICES))
        self.store.create_queue(
            self.name,
            kind="topic" if self.is_topic else "work",
            type="volatile" if volatile else "persistent",
            **({"keep_messages": 100_000} if self.is_topic else {}),
            **self.all_rules(),
        )
        is_exclusive = self.is_topic and rng.random() < 0.3
        if self.is_topic:
            self.store.subscribe(self.name, "s", exclusive=is_exclusive)
        self.model = Model(dict(self.rules), machine.env.now_us(), is_exclusive)
        self.open: list[Transaction] = []
        self.got: dict[Transaction, list[tuple[Place, Message]]] = {}
        self.latest: dict[Transaction, int] = {}
        self.numbers = dict.fromkeys("ab", 1)
        self.is_dead_open = True
        self.states: list[State] = []  # before the step

    @property
    def store(self) -> Any:
        return self.machine.store

    def inside(self) -> tuple[Queue, Subscription]:
        queue, subscription = self.store._context.state.source(self.source)
        return queue, subscription

    def draw_rules(self, count: int) -> None:
        for name in self.rng.sample(list(CHOICES), count):
            self.rules[name] = self.rng.choice(CHOICES[name])

    def all_rules(self) -> dict[str, Any]:
        return {**self.rules, "dead_letter": "dead"}

    # Steps

    def put(self) -> None:
        rng = self.rng
        now = self.machine.env.now_us()
        told: list[Told] = []
        with self.store.transaction() as txn:
            for _ in range(rng.choice([1, 1, 2, 4])):
                one = Told(b"%d" % (len(self.model.places) + len(told)), now)
                one.priority = rng.choice([0, 0, 1, 5])
                if rng.random() < 0.25:
                    one.due_us = now + rng.randrange(1, 20) * 100_000
                if rng.random() < 0.25:
                    one.expires_us = now + rng.randrange(1, 30) * 100_000
                one.group = rng.choice([None, "g", "g", "h"])
                one.rank = rng.choice([None, "-2.5", "7", "10"])
                one.sender = rng.choice([None, "a", "b"])
                if one.sender is not None:
                    top = self.numbers[one.sender]
                    one.number = max(0, top + rng.choice([0, 0, 0, 1, 2, -1, -3]))
                    self.numbers[one.sender] = max(top, one.number + 1)
                named = {"rank": one.rank, "n": None if one.number is None else str(one.number)}
                txn.put(
                    self.name,
                    one.payload,
                    priority=one.priority,
                    deliver_at=one.due_us or None,
                    expires_at=one.expires_us,
                    group_key=one.group,
                    sender=one.sender,
                    attributes={n: v for n, v in named.items() if v is not None},
                )
                told.append(one)
        for one in told:
            self.model.put(one)

    def begin(self) -> None:
        if len(self.open) < 3:
            txn = self.store.transaction(timeout=1e6)
            self.open.append(txn)
            self.got[txn], self.latest[txn] = [], 0

    def some(self) -> Transaction | None:
        return self.rng.choice(self.open) if self.open else None

    def get(self) -> None:
        txn = self.some()
        if txn is None:
            return
        limit = self.rng.choice([1, 1, 2, 5, 50])
        if limit == 1:
            message = txn.get(self.source)
            found = [] if message is None else [message]
        else:
            found = list(txn.get_many(self.source, limit))
        self.check_got(txn, found, self.model.take(limit, txn))

    def check_got(self, txn: Transaction, found: list[Message], said: list[Place]) -> None:
        assert [m.payload for m in found] == [p.told.payload for p in said]
        for message, place in zip(found, said, strict=True):
            count = place.attempts + (not self.model.most)
            assert message.delivery_count == count, place
            failed = place.failures if self.model.most else count - 1
            assert message.failed_count == failed, place
        self.got[txn] += list(zip(said, found, strict=True))
        if found:
            self.latest[txn] = len(found)

    def get_scheduled(self) -> None:
        txn = self.some()
        listed = self.store.scheduled(self.source) if txn is not None else []
        said = [p for p in self.model.places if p.state == "SCHEDULED"]
        if txn is None:
            return
        said.sort(key=lambda p: (p.told.due_us, p.position))
        assert [m.payload for m in listed] == [p.told.payload for p in said]
        if not listed:
            return
        at = self.rng.randrange(len(listed))
        to_change = self.rng.random() < 0.3
        message = txn.get_scheduled(self.source, listed[at].id, to_change=to_change)
        is_had = self.model.take_scheduled(said[at], txn, to_change=to_change)
        assert (message is not None) == is_had
        if message is not None:
            self.check_got(txn, [message], [said[at]])

    def unget(self) -> None:
        txn = self.some()
        if txn is None or not self.latest[txn]:
            return
        txn.unget()
        count = self.latest[txn]
        for place, _ in self.got[txn][-count:]:
            self.model.give_back(place, counted=False)
        del self.got[txn][-count:]
        self.latest[txn] = 0

    def reject(self) -> None:
        txn = self.some()
        if txn is None or not self.got[txn]:
            return
        at = self.rng.randrange(len(self.got[txn]))
        place, message = self.got[txn][at]
        if place.state == "READ":  # by a read_to: it cannot be told any more
            return
        delay: Any = self.rng.choice([None, None, 0.0, 0.5, 1.2, *RETRIES])
        txn.reject(message, "bad", delay)
        self.model.reject(place, delay)
        del self.got[txn][at]
        self.latest[txn] = 0

    def end(self) -> None:
        txn = self.some()
        if txn is None:
            return
        if self.rng.random() < 0.5:
            txn.commit()
            for place, _ in self.got[txn]:
                self.model.leave(place)
                place.by = None
        else:
            txn.rollback()
            for place, _ in self.got[txn]:
                self.model.give_back(place, counted=True)
        self.open.remove(txn)
        del self.got[txn]

    def read_to(self) -> None:
        position = self.rng.randrange(len(self.model.places) + 1)
        with self.store.transaction() as txn:
            txn.read_to(self.source, position)
        for place in self.model.places[:position]:
            self.model.leave(place)

    def seek(self) -> None:
        if not self.is_topic:
            return
        position = self.rng.randrange(len(self.model.places) + 1)
        try:
            with self.store.transaction() as txn:
                txn.seek(self.source, position)
        except QueueInUse:
            assert self.model.delivered
            return
        assert not self.model.delivered
        self.model.seek(position)

    def alter(self) -> None:
        self.draw_rules(self.rng.choice([1, 1, 2, 5]))
        self.store.alter_queue(self.name, **self.all_rules())
        self.model.alter(dict(self.rules))

    def alter_dead(self) -> None:
        self.is_dead_open = self.rng.random() < 0.6
        self.store.alter_queue("dead", puts=self.is_dead_open)

    def advance(self) -> None:
        seconds = self.rng.choice([0.1, 0.3, 0.7, 2.0])
        self.machine.env.advance(seconds)
        self.model.now_us += round(seconds * SECOND)

    def reopen(self) -> None:
        if self.machine.reopen(self.rng):  # which rolls back what is open
            for place in [place for got in self.got.values() for place, _ in got]:
                self.model.give_back(place, counted=True)
        self.model.now_us = self.machine.env.now_us()
        self.model.reopen()
        for txn in self.open:
            self.got.pop(txn)
        self.open.clear()
        self.adopt_counts()

    def adopt_counts(self) -> None:
        """What was counted in memory may be known still, from a checkpoint."""
        _, subscription = self.inside()
        for place in self.model.places:
            attempts = subscription.attempts.of(place.position)
            failures = subscription.attempts.failures(place.position)
            assert place.sure_attempts <= attempts <= place.attempts, place
            assert place.sure_failures <= failures <= place.failures, place
            place.attempts, place.failures = attempts, failures

    def step(self) -> Callable[[], None]:
        weights: dict[Callable[[], None], int] = {
            self.begin: 5, self.put: 8, self.get: 12, self.unget: 2, self.reject: 4, self.end: 5,
            self.read_to: 1, self.seek: 1, self.get_scheduled: 3, self.alter: 2, self.advance: 5,
            self.alter_dead: 1, self.reopen: 0 if self.volatile else 3,
        }  # fmt: skip
        return self.rng.choices(list(weights), list(weights.values()))[0]

    # What must hold after each

    def settle(self) -> None:
        """What goes by itself, and what comes by itself, until nothing more does."""
        queue, subscription = self.inside()
        context = self.store._context
        for _ in range(3):
            context.delivery.look(queue, subscription)
            self.store._maintenance._dead_letters.move_all()
            self.model.look()
            for place in self.model.places:
                keeps = place.state == "SPENT" or self.rules.get("keep_expired")
                if place.state in ("SPENT", "EXPIRED") and (self.is_dead_open or not keeps):
                    self.model.leave(place)

    def check(self) -> None:
        _, subscription = self.inside()
        for place in self.model.places:
            found = state_of(subscription, place.position)
            assert found == said_state(place), (place, found)
        assert subscription.delivered == self.model.delivered

    def check_table(self, events: frozenset[Event]) -> None:
        """What has become of each message since the last step may become of it."""
        first = State.UNSEEN if self.model.is_selected else State.AVAILABLE
        now = [State[said_state(place)] for place in self.model.places]
        before = self.states + [first] * (len(now) - len(self.states))
        for position, pair in enumerate(zip(before, now, strict=True)):
            assert pair[1] in reached(pair[0], events | BY_ITSELF), (position, pair)
            self.machine.seen |= {(pair[0], event, pair[1]) for event in events | BY_ITSELF}
        self.states = now

    def run(self, steps: int) -> None:
        for _ in range(steps):
            step = self.step()
            step()
            self.settle()
            self.check()
            self.check_table(EVENTS[step.__name__])
        for txn in self.open:
            with suppress(Exception):
                txn.rollback()
        self.store.drop_queue(self.name)
        self.store.alter_queue("dead", puts=True)


CHOICES: dict[str, list[Any]] = {
    "order": ORDERS,
    "default_priority": [0, 3],
    "timed": [True, False],
    "grouped": [True, False],
    "ttl": [None, 1.5],
    "keep_expired": [True, False],
    "max_deliveries": [None, None, 1, 3],
    "retry": RETRIES,
}


# What a step may do to a message, and what happens without one.
BY_ITSELF = frozenset({Event.LOOK, Event.DUE, Event.COME, Event.EXPIRE, Event.GO})
BACK = frozenset({Event.GIVE_BACK, Event.DELAY})
EVENTS: dict[str, frozenset[Event]] = {
    "put": frozenset(), "begin": frozenset(), "advance": frozenset(), "alter_dead": frozenset(),
    "get": frozenset({Event.TAKE}), "get_scheduled": frozenset({Event.TAKE}), "unget": BACK,
    "reject": BACK, "end": BACK | {Event.READ}, "read_to": frozenset({Event.READ}),
    "seek": frozenset({Event.MOVE}), "alter": frozenset({Event.ALTER}),
    "reopen": frozenset({Event.OPEN}) | BACK,
}  # fmt: skip


def said_state(place: Place) -> str:
    """Where the model has it."""
    if place.state == "IN_FLIGHT":
        return "LATE" if place.is_late else "AHEAD" if place.is_ahead else "IN_FLIGHT"
    return place.state


def state_of(subscription: Subscription, position: int) -> str:
    """Where the engine has it: in commit order the first of these that it is."""
    selection = subscription.selection
    if selection is None:
        return next(name for name, is_there in PLAIN if is_there(subscription, position))
    is_seen = position < selection.known and not subscription.done.contains(position)
    state = list(State)[selection.where.of(position)] if is_seen else State.UNSEEN
    if subscription.done.contains(position):
        state = State.READ
        assert position >= selection.known or selection.where.of(position) == State.READ.number
    for name, is_there in STANDING:
        assert state is not name or is_there(subscription, position), (position, state)
    for name, is_there in INDEXED:
        assert is_there(subscription, position) == (state is name), (position, state)
    return state.name


def selection_of(subscription: Subscription) -> Selection:
    """Which there is."""
    assert subscription.selection is not None
    return subscription.selection


def stands(subscription: Subscription, position: int) -> bool:
    """Ready to be taken, or where its group shows it when its turn comes."""
    selection = selection_of(subscription)
    standing: Any = selection._standing
    ready = getattr(standing, "_codes", [])
    for lane in getattr(standing, "_lanes", {}).values():
        ready = [*ready, *lane.new[lane.head :], *lane.again]
    groups = {} if selection.groups is None else selection.groups._groups
    for group in groups.values():
        ready = [*ready, *([group] if isinstance(group, int) else [group.shown, *group.waiting()])]
    return position in [code & POSITIONS for code in ready if code >= 0]


def in_line(subscription: Subscription, position: int) -> bool:
    """Among those that wait for others of their sender."""
    sequences: Any = selection_of(subscription).sequences
    lines = sequences._waiting.values()
    return position in [_split(code)[1] for codes in lines for code in codes]


Asked = Callable[[Subscription, int], bool]
PLAIN: tuple[tuple[str, Asked], ...] = (
    ("READ", lambda s, p: s.done.contains(p)),
    ("REJECTED", lambda s, p: any(start <= p < end for _, start, end in s.later)),
    ("SPENT", lambda s, p: s.spent.contains(p)),
    ("AVAILABLE", lambda s, p: s.returned.contains(p) or p >= s.cursor),
    ("IN_FLIGHT", lambda _, __: True),
)
# What is in a state stands there; what stands there may be elsewhere by now.
STANDING: tuple[tuple[State, Asked], ...] = (
    (State.AVAILABLE, stands),
    (State.WAITING, in_line),
    (State.SCHEDULED, lambda s, p: p in [row[1] for row in selection_of(s)._scheduled]),
    (State.REJECTED, lambda s, p: any(start <= p < end for _, start, end in s.later)),
    (
        State.UNSEEN,
        lambda s, p: selection_of(s).unknown.contains(p) or p >= selection_of(s).known,
    ),
)
INDEXED: tuple[tuple[State, Asked], ...] = (
    (State.SPENT, lambda s, p: s.spent.contains(p)),
    (State.EXPIRED, lambda s, p: selection_of(s).expired.contains(p)),
)


class Machine:
    """A store whose clock stands still, for several histories."""

    def __init__(self, seed: int) -> None:
        self.env = new_machine(seed)
        self.store = open_store(self.env)
        self.store.create_queue("dead", kind="work", capacity=64 << 20)
        self.count = 0
        self.seen: set[tuple[State, Event, State]] = set()  # what may have happened

    def reopen(self, rng: random.Random) -> bool:
        is_closed = rng.random() < 0.3
        if is_closed:
            self.store.close()
        else:
            self.env = self.env.kill()
        self.store.abandon("the machine of before")
        self.store = open_store(self.env)
        return is_closed


Seen = set[tuple[State, Event, State]]


def run_many(seeds: range, steps: int = 40, *, volatile: bool = True) -> Seen:
    """So many histories; several share a store. What may have happened in them."""
    machine = None
    seen: Seen = set()
    for seed in seeds:
        if machine is None or machine.count > 30:
            machine = Machine(seed)
        try:
            History(machine, random.Random(seed), volatile=volatile).run(steps)
        except BaseException as error:
            error.add_note(f"history {seed}")
            raise
        seen |= machine.seen
    return seen


@pytest.fixture(autouse=True)
def _still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes only when it is told to."""
    monkeypatch.setattr(sim_env, "STEP_US", 0)


@pytest.mark.fuzz
@pytest.mark.promise(1, 2)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_promise_1_2_every_message_is_where_the_model_says(seed: int, rounds: int) -> None:
    """Of queues in memory, where many histories are soon told."""
    run_many(range(seed, seed + 4 * rounds))


@pytest.mark.fuzz
@pytest.mark.promise(1, 2)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_promise_1_2_the_same_after_kills(seed: int, rounds: int) -> None:
    """Of queues on the disk: waits, what failed, and sequences go on where they were."""
    run_many(range(seed, seed + 2 * rounds), volatile=False)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_each_state_and_event_of_the_table_happens() -> None:
    """So the histories hold the engine to something; what is not looked at is so for no step."""
    seen = run_many(range(60)) | run_many(range(20), volatile=False)
    rows = {(was, event, now) for was, event, now in seen if now in TABLE.get((was, event), ())}
    assert {state for row in rows for state in (row[0], row[2])} >= set(State) - {State.UNSEEN}
    # The histories have no room that runs out, and put nothing back.
    assert {event for _, event, _ in rows} >= set(Event) - {Event.LOOK, Event.PICK}


# Canaries: what is wrong with the rules is seen in a hundred histories


def comes_never(_: Subscription, __: float) -> bool:
    """A transition left out: what was rejected does not come again."""
    return False


def is_open_to_all(_: Groups, __: int, ___: int) -> bool:
    """A group let go early: anybody may have of it what was shown to anybody."""
    return True


def expires_not(_: Selection, __: int) -> None:
    """What has expired is delivered."""


def hidden_no_more(_: Subscription) -> list[tuple[int, int, int]]:
    """A wait forgotten: what is recorded of it counts for nothing after a restart."""
    return []


def last_first(block: Block, start: int, stop: int, name: str, *, numeric: bool) -> Any:
    """An order's tie turned round: of equal rank the later one comes first."""
    ranks = attribute_ranks(block, start, stop, name, numeric=numeric)
    return np.array([(rank << 20) - row for row, rank in enumerate(ranks)], object)


def counts_twice(attempts: Attempts, start: int, end: int) -> None:
    """What is noted as delivered counts as two deliveries: it is spent too soon."""
    for _ in range(2):
        attempts._count(start, end, 1, 0, None)


FAULTS: dict[str, tuple[object, str, object]] = {
    "left out": (Subscription, "bring_back", comes_never),
    "let go": (Groups, "is_open", is_open_to_all),
    "expired": (Selection, "_expire", expires_not),
    "forgotten": (Subscription, "_hidden", hidden_no_more),
    "turned round": (indexing, "attribute_ranks", last_first),
    "twice": (Attempts, "add", counts_twice),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_fault_of_the_rules_is_caught(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever it is."""
    place, name, wrong = FAULTS[fault]
    monkeypatch.setattr(place, name, wrong)
    with pytest.raises(AssertionError):
        run_many(range(100), volatile=fault != "forgotten")
