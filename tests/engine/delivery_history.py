"""Drawn histories of a queue and its subscriptions, each against a `delivery_model` of its own.

After each step every message is where the model says, and what a get returned is what it says, each
with how often it was delivered and failed. The clocks stand still between steps.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import pyarrow as pa

from quire.engine import EmbeddedTransaction as Transaction
from quire.engine.delivery.delivery_table import RULES, Event
from quire.engine.delivery.delivery_table import DeliveryState as State
from quire.engine.delivery.ready_positions import Lanes
from quire.engine.delivery.selection import Selection
from quire.engine.delivery.sequences import _split
from quire.engine.queues.queue import Queue
from quire.engine.queues.subscription import Subscription
from quire.errors import QueueFull, QueueInUse
from quire.limits import POSITIONS
from quire.messages.message import MISSING, Message
from tests.engine.delivery_model import SECOND, Model, Place, Told
from tests.engine.workload import new_machine, open_store

BY_RANK = {"attribute": "rank", "numeric": True}
BY_TEXT = {"attribute": "rank", "numeric": False}
RETRIES = [None, {"delay": 0.5, "growth": "constant"}, {"delay": 0.3, "growth": "linear"}]
SEQUENCES = [{"sequence": "n", "wait": wait, "most": most} for wait in (0.6, 5) for most in (2, 9)]
BY_CODE = "by_sender"
ORDERS: list[Any] = ["commit", "priority", BY_RANK, BY_TEXT, BY_CODE, *SEQUENCES]
GOING = ("SPENT", "EXPIRED", "UNWANTED")
AWAY_STATES = ("IN_FLIGHT", "REJECTED", "SPENT", "EXPIRED")


SELECTOR = "rank = '10' OR rank IS NULL"


def is_asked_for(told: Told) -> bool:
    """Whether the selector holds."""
    return told.rank in ("10", None)


def by_sender(headers: pa.RecordBatch) -> list[int | None]:
    """The code of an order: of "b" first, then of "a", and of nobody last."""
    keys = {"b": 0, "a": 1, None: None}
    return [keys[sender] for sender in headers.column("sender").to_pylist()]


Got = list[tuple[Model, Place, Message]]


class History:
    """A store, one queue of it with its subscriptions, and a model of each."""

    def __init__(self, machine: Machine, rng: random.Random, *, volatile: bool) -> None:
        self.rng, self.machine = rng, machine
        machine.count += 1
        self.name = f"q{machine.count}"
        self.volatile = volatile
        self.is_topic = rng.random() < 0.6
        self.rules: dict[str, Any] = {}
        self.draw_rules(len(CHOICES))
        # So many messages at most, if any: then the oldest give way.
        self.most = rng.choice([4, 7]) if rng.random() < 0.2 else None
        limits: dict[str, Any] = {"keep_messages": 100_000} if self.is_topic else {}
        if self.most is not None:
            limits = {"max_messages": self.most, "overflow": "drop_oldest"}
        self.store.create_queue(
            self.name,
            kind="topic" if self.is_topic else "work",
            type="volatile" if volatile else "persistent",
            **limits,
            **self.all_rules(),
        )
        self.models: dict[str, Model] = {}  # by source
        for name in rng.choice([["s"], ["s", "t"]]) if self.is_topic else [""]:
            where = None
            is_exclusive = self.is_topic and rng.random() < 0.3
            if name:
                where = SELECTOR if rng.random() < 0.25 else None
                self.store.subscribe(self.name, name, exclusive=is_exclusive, where=where)
            source = f"{self.name}/{name}" if name else self.name
            now_us, clock_us = self.clocks
            asks = is_asked_for if where is not None else None
            self.models[source] = Model(dict(self.rules), now_us, clock_us, is_exclusive, asks)
        self.open: list[Transaction] = []
        self.got: dict[Transaction, Got] = {}
        self.latest: dict[Transaction, int] = {}
        self.prepared: dict[str, Got] = {}
        self.xids = 0
        self.numbers = dict.fromkeys("ab", 1)
        self.is_dead_open = True
        self.states: dict[str, list[State]] = {source: [] for source in self.models}  # before

    @property
    def store(self) -> Any:
        return self.machine.store

    @property
    def clocks(self) -> tuple[int, int]:
        """The one on the wall, and the one that nobody sets."""
        env = self.machine.env
        return env.now_us(), round(env.monotonic() * SECOND)

    @property
    def messages(self) -> int:
        """How many were put."""
        return len(next(iter(self.models.values())).places)

    def inside(self, source: str) -> tuple[Queue, Subscription]:
        queue, subscription = self.store._context.state.source(source)
        return queue, subscription

    def draw_rules(self, count: int) -> None:
        for name in self.rng.sample(list(CHOICES), count):
            self.rules[name] = self.rng.choice(CHOICES[name])
        # What would have no effect is refused.
        if not self.rules.get("timed"):
            self.rules |= {"ttl": None, "max_ttl": None, "keep_expired": False}
        if self.rules.get("order") not in ("priority", BY_CODE):
            self.rules["default_priority"] = 0

    def all_rules(self) -> dict[str, Any]:
        sends = self.rules["keep_expired"] or self.rules["max_deliveries"]
        return {**self.rules, **({"dead_letter": "dead"} if sends else {})}

    def some(self) -> Transaction | None:
        return self.rng.choice(self.open) if self.open else None

    def some_source(self) -> tuple[str, Model]:
        return self.rng.choice(list(self.models.items()))

    # Steps

    def put(self) -> None:
        told = [self.draw(number) for number in range(self.rng.choice([1, 1, 2, 4]))]
        try:
            with self.store.transaction() as txn:
                for number, one in enumerate(told):
                    has_room = self.make_room(number + 1)
                    try:
                        self.put_one(txn, one)
                    except QueueFull:
                        assert not has_room
                        raise
                    assert has_room
        except QueueFull:
            return
        # As long as the clock has been set back it is that of the latest commit before.
        there = self.store.browse(self.name, 1, start=self.messages)  # or nobody asks for it
        now_us, last_us = self.machine.env.now_us(), self.store._context.state.last_time_us
        time_us = there[0].time if there else max(now_us, last_us)
        assert time_us >= now_us
        for one in told:
            one.time_us = time_us
            for model in self.models.values():
                model.put(one)

    def draw(self, number: int) -> Told:
        """A message."""
        rng = self.rng
        now = self.machine.env.now_us()
        one = Told(b"%d" % (self.messages + number))
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
        return one

    def put_one(self, txn: Transaction, one: Told) -> None:
        named = {"rank": one.rank, "n": None if one.number is None else str(one.number)}
        header = {
            "priority": one.priority,
            "deliver_at": one.due_us or None,
            "expires_at": one.expires_us,
            "group_key": one.group,
            "sender": one.sender,
            "attributes": {n: v for n, v in named.items() if v is not None},
        }
        txn.put_moved(self.name, one.payload, header)  # whatever its queue obeys now
        if self.rules["timed"] and self.rules["max_ttl"] is not None:
            now = self.machine.env.now_us()
            given = [self.rules["ttl"], self.rules["max_ttl"]]
            unsaid, latest = (
                now + int(min(s for s in some if s is not None) * SECOND)
                for some in (given, given[1:])
            )
            one.expires_us = min(one.expires_us or unsaid, latest)

    def make_room(self, own: int) -> bool:
        """For one more message, as one that nobody has gives way; False: there is none such.

        `own`: so many its transaction has put, with it.
        """
        rows = list(zip(*(model.places for model in self.models.values()), strict=True))
        left = [row for row in rows if any(place.state != "READ" for place in row)]
        if self.most is None or len(left) + own <= self.most:
            return True
        for row in left:
            if not any(place.state in AWAY_STATES for place in row):
                for model, place in zip(self.models.values(), row, strict=True):
                    model.leave(place)
                return True
        return False

    def begin(self) -> None:
        if len(self.open) < 3:
            txn = self.store.transaction(timeout=1e6)
            self.open.append(txn)
            self.got[txn], self.latest[txn] = [], 0

    def get(self) -> None:
        txn = self.some()
        if txn is None:
            return
        source, model = self.some_source()
        limit = self.rng.choice([1, 1, 2, 5, 50])
        if limit == 1:
            message = txn.get(source)
            found = [] if message is None else [message]
        else:
            found = list(txn.get_many(source, limit))
        self.check_got(txn, model, found, model.take(limit, txn))

    def check_got(
        self, txn: Transaction, model: Model, found: list[Message], said: list[Place]
    ) -> None:
        assert [m.payload for m in found] == [p.told.payload for p in said]
        for message, place in zip(found, said, strict=True):
            count = place.attempts + (not model.most)
            assert message.delivery_count == count, place
            failed = place.failures if model.most else count - 1
            assert message.failed_count == failed, place
            missing = {None: None, -1: "unknown"}.get(place.missing, str(place.missing))
            assert message.attributes.get(MISSING) == missing, place
        self.got[txn] += [(model, *pair) for pair in zip(said, found, strict=True)]
        if found:
            self.latest[txn] = len(found)

    def get_delayed(self) -> None:
        txn = self.some()
        if txn is None:
            return
        source, model = self.some_source()
        listed = self.store.delayed.list(source)
        said = [p for p in model.places if p.state == "SCHEDULED"]
        said.sort(key=lambda p: (p.told.due_us, p.position))
        assert [m.payload for m in listed] == [p.told.payload for p in said]
        if not listed:
            return
        at = self.rng.randrange(len(listed))
        to_change = self.rng.random() < 0.3
        message = txn.get_delayed(source, listed[at].id, to_change=to_change)
        is_had = model.take_scheduled(said[at], txn, to_change=to_change)
        assert (message is not None) == is_had
        if message is not None:
            self.check_got(txn, model, [message], [said[at]])

    def unget(self) -> None:
        txn = self.some()
        if txn is None or not self.latest[txn]:
            return
        txn.unget()
        count = self.latest[txn]
        for model, place, _ in self.got[txn][-count:]:
            model.give_back(place, counted=False)
        del self.got[txn][-count:]
        self.latest[txn] = 0

    def reject(self) -> None:
        txn = self.some()
        if txn is None or not self.got[txn]:
            return
        at = self.rng.randrange(len(self.got[txn]))
        model, place, message = self.got[txn][at]
        if place.state == "READ":  # by a read_to: it cannot be told any more
            return
        if sum(m.payload == message.payload for _, _, m in self.got[txn]) > 1:
            return  # of two subscriptions: it would be rejected of either
        delay: Any = self.rng.choice([None, None, 0.0, 0.5, 1.2, *RETRIES])
        txn.reject(message, "bad", delay)
        model.reject(place, delay)
        del self.got[txn][at]
        self.latest[txn] = 0

    def end(self) -> None:
        txn = self.some()
        if txn is None:
            return
        if self.rng.random() < 0.5:
            txn.commit()
            self.all_read(self.got[txn])
        else:
            txn.rollback()
            self.all_back(self.got[txn])
        self.open.remove(txn)
        del self.got[txn]

    def all_read(self, got: Got) -> None:
        for model, place, _ in got:
            model.leave(place)
            place.by = None
            place.is_prepared = False

    def all_back(self, got: Got) -> None:
        for model, place, _ in got:
            model.give_back(place, counted=True)

    def prepare(self) -> None:
        txn = self.some()
        if txn is None or not self.got[txn] or len(self.prepared) > 1:
            return
        self.xids += 1
        xid = f"{self.name}.{self.xids}"
        txn.prepare(xid)
        self.open.remove(txn)
        self.prepared[xid] = self.got.pop(txn)
        for _, place, _ in self.prepared[xid]:
            place.is_prepared = True

    def decide(self) -> None:
        if not self.prepared:
            return
        xid = self.rng.choice(list(self.prepared))
        got = self.prepared.pop(xid)
        if self.rng.random() < 0.5:
            self.store.prepared.commit(xid)
            self.all_read(got)
        else:
            self.store.prepared.rollback(xid)
            self.all_back(got)

    def read_to(self) -> None:
        source, model = self.some_source()
        position = self.rng.randrange(self.messages + 1)
        with self.store.transaction() as txn:
            txn.read_to(source, position)
        model.leave_all(model.places[:position])

    def seek(self) -> None:
        if not self.is_topic or self.most is not None:
            return
        source, model = self.some_source()
        position = self.rng.randrange(self.messages + 1)
        try:
            with self.store.transaction() as txn:
                txn.seek(source, position)
        except QueueInUse:
            assert model.delivered
            return
        assert not model.delivered
        model.seek(position)

    def purge(self) -> None:
        source, model = self.some_source()
        name, _, subscription = source.partition("/")
        self.store.admin.purge(name, subscription or None)
        model.purge()

    def alter(self) -> None:
        self.draw_rules(self.rng.choice([1, 1, 2, 5]))
        self.store.alter_queue(self.name, **self.all_rules())
        for model in self.models.values():
            model.alter(dict(self.rules))

    def alter_dead(self) -> None:
        self.open_dead(self.rng.random() < 0.6)

    def open_dead(self, is_open: bool) -> None:
        """Or shut it, where it is not so already."""
        if is_open != self.is_dead_open:
            self.store.alter_queue("dead", puts=is_open)
            self.is_dead_open = is_open

    def advance(self) -> None:
        self.machine.env.advance(self.rng.choice([0.1, 0.3, 0.7, 2.0]))
        self.look_at_clocks()

    def set_clock(self) -> None:
        self.machine.env.jump_wall_clock(self.rng.choice([-9.0, -0.9, 0.9, 9.0]))
        self.look_at_clocks()

    def look_at_clocks(self) -> None:
        for model in self.models.values():
            model.now_us, model.clock_us = self.clocks

    def reopen(self) -> None:
        is_closed = self.machine.reopen(self.rng)  # which rolls back what is open
        for got in self.got.values() if is_closed else ():
            self.all_back(got)
        self.open.clear()
        self.got.clear()
        self.look_at_clocks()
        for source, model in self.models.items():
            is_over = [is_closed and p.state in GOING for p in model.places]
            model.reopen()
            self.adopt(source, model, is_over)

    def adopt(self, source: str, model: Model, is_over: list[bool]) -> None:
        """What was counted in memory is not known any more.

        And what was over as it was rolled back may have gone before the store was closed.
        """
        _, subscription = self.inside(source)
        for place in model.places:
            if subscription.done.contains(place.position) and is_over[place.position]:
                model.leave(place)
            attempts = subscription.attempts.of(place.position)
            failures = subscription.attempts.failures(place.position)
            assert (attempts, failures) == (place.sure_attempts, place.sure_failures), place
            place.attempts, place.failures = attempts, failures

    def step(self) -> Callable[[], None]:
        weights: dict[Callable[[], None], int] = {
            self.begin: 5, self.put: 8, self.get: 12, self.unget: 2, self.reject: 4, self.end: 5,
            self.read_to: 1, self.seek: 1, self.get_delayed: 3, self.alter: 2, self.advance: 5,
            self.set_clock: 1, self.purge: 1, self.alter_dead: 1,
            self.reopen: 0 if self.volatile else 3, self.decide: 0 if self.volatile else 2,
            self.prepare: 0 if self.volatile else 2,
        }  # fmt: skip
        return self.rng.choices(list(weights), list(weights.values()))[0]

    # What must hold after each

    def settle(self) -> None:
        """What goes by itself, and what comes by itself, until nothing more does."""
        context = self.store._context
        before: list[str] = []
        while before != (now := [p.state for m in self.models.values() for p in m.places]):
            before = now
            for source in self.models:
                context.delivery.look(*self.inside(source))
            self.store._maintenance._dead_letters.move_all()
            for source, model in self.models.items():
                model.look()
                self.let_go(self.inside(source)[1], model)

    def let_go(self, subscription: Subscription, model: Model) -> None:
        """What is spent or has expired, as far as the dead letters' queue takes it."""
        model.leave_all([place for place in model.places if place.state == "UNWANTED"])
        for place in model.places:
            if place.state not in ("SPENT", "EXPIRED"):
                continue
            if self.is_dead_open or (place.state == "EXPIRED" and not self.rules["keep_expired"]):
                model.leave(place)
            elif model.is_spent(place) and subscription.spent.contains(place.position):
                model.put_back(place)  # it was to be moved and came back: then it is spent, too

    def check(self) -> None:
        for source, model in self.models.items():
            _, subscription = self.inside(source)
            for place in model.places:
                found = state_of(subscription, place.position)
                assert found == said_state(place), (place, found)
            assert subscription.delivered == model.delivered

    def check_table(self, events: frozenset[Event]) -> None:
        """What has become of each message since the last step may become of it."""
        events |= BY_ITSELF
        for source, model in self.models.items():
            first = State.UNSEEN if model.is_selected else State.AVAILABLE
            now = [State[said_state(place)] for place in model.places]
            before = self.states[source] + [first] * (len(now) - len(self.states[source]))
            for position, (was, found) in enumerate(zip(before, now, strict=True)):
                if was is not found:
                    assert found in after(was, events), (position, was, found)
                    self.machine.seen.add((was, events, found))
            self.states[source] = now

    def run(self, steps: int) -> None:
        first = [self.alter_dead, self.put, self.begin, self.get]
        for number in range(steps):
            step = first[number] if number < len(first) else self.step()
            step()
            self.settle()
            self.check()
            self.check_table(EVENTS[step.__name__])
        for txn in self.open:
            with suppress(Exception):
                txn.rollback()
        for xid in self.prepared:
            self.store.prepared.rollback(xid)
        self.store.drop_queue(self.name)
        self.open_dead(True)


CHOICES: dict[str, list[Any]] = {
    "order": ORDERS,
    "default_priority": [0, 3],
    "timed": [True, False],
    "grouped": [True, False],
    "ttl": [None, 1.5],
    "max_ttl": [None, None, 1.1],
    "keep_expired": [True, False],
    "max_deliveries": [None, None, 1, 3],
    "retry": RETRIES,
}


TABLE: dict[tuple[State, Event], tuple[State, ...]] = {
    (state, event): tuple(each for rule in found for each in rule.after)
    for state in State
    for event in Event
    if (found := [rule for rule in RULES if rule.event is event and state in rule.before])
}


@cache
def after(state: State, events: frozenset[Event]) -> set[State]:
    """Where a position may be, after any of the events, in any order and number."""
    found = {state}
    ahead = [state]
    while ahead:
        now = ahead.pop()
        for event in events:
            new = set(TABLE.get((now, event), ())) - found
            found |= new
            ahead += new
    return found


# What a step may do to a message, and what happens without one.
BY_ITSELF = frozenset({Event.LOOK, Event.DUE, Event.COME, Event.EXPIRE, Event.GO})
BACK = frozenset({Event.GIVE_BACK, Event.DELAY})
EVENTS: dict[str, frozenset[Event]] = {
    "put": frozenset({Event.READ}), "begin": frozenset(), "advance": frozenset(),
    "set_clock": frozenset(), "alter_dead": frozenset(), "prepare": frozenset(),
    "decide": BACK | {Event.READ}, "purge": frozenset({Event.PICK, Event.READ, Event.ALTER}),
    "get": frozenset({Event.TAKE}), "get_delayed": frozenset({Event.TAKE}), "unget": BACK,
    "reject": BACK, "end": BACK | {Event.READ}, "read_to": frozenset({Event.READ}),
    "seek": frozenset({Event.MOVE}), "alter": frozenset({Event.ALTER}),
    "reopen": frozenset({Event.OPEN}) | BACK,
}  # fmt: skip


def said_state(place: Place) -> str:
    """Where the model has it."""
    if place.state == "IN_FLIGHT":
        return "LATE" if place.is_late else "IN_FLIGHT"
    return place.state


def state_of(subscription: Subscription, position: int) -> str:
    """Where the engine has it: in commit order the first of these that it is."""
    selection = subscription.order
    if not isinstance(selection, Selection):
        state_name = next(name for name, is_there in PLAIN if is_there(subscription, position))
        comes_later = any(start <= position < end for _, start, end in subscription.later)
        is_rejected = comes_later and not subscription.done.contains(position)
        assert is_rejected == (state_name == "REJECTED"), (position, state_name)
        return state_name
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
    assert isinstance(subscription.order, Selection)
    return subscription.order


def stands(subscription: Subscription, position: int) -> bool:
    """Ready to be taken, or where its group shows it when its turn comes."""
    selection = selection_of(subscription)
    standing: Any = selection._standing
    ready: list[int] = []
    for line in standing._lines.values() if isinstance(standing, Lanes) else [standing]:
        ready += line.codes()
    groups = {} if selection.groups is None else selection.groups._groups
    for group in groups.values():
        ready += [group] if isinstance(group, int) else [group.shown, *group.waiting.codes()]
    return position in [code & POSITIONS for code in ready if code >= 0]


def in_line(subscription: Subscription, position: int) -> bool:
    """Among those that wait for others of their sender."""
    sequences: Any = selection_of(subscription).sequences
    lines = sequences._waiting.values()
    return position in [_split(code)[1] for codes in lines for code in codes]


Asked = Callable[[Subscription, int], bool]
PLAIN: tuple[tuple[str, Asked], ...] = (
    ("READ", lambda s, p: s.done.contains(p)),
    ("REJECTED", lambda s, p: bool(s.order.rejected_in(p, p + 1))),
    ("SPENT", lambda s, p: s.spent.contains(p)),
    ("AVAILABLE", lambda s, p: s.order.is_ready(p)),
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
    (State.UNWANTED, lambda s, p: selection_of(s).unwanted.contains(p)),
)


class Machine:
    """A store whose clock stands still, for several histories."""

    def __init__(self, seed: int) -> None:
        self.env = new_machine(seed)
        self.store = open_store(self.env)
        self.store.create_queue("dead", kind="work", capacity=64 << 20)
        self.store.create_queue("beside", kind="work", max_messages=1, overflow="drop_oldest")
        self.count = 0
        self.seen: Seen = set()

    def reopen(self, rng: random.Random) -> bool:
        """In another process; whether it was closed, and neither killed nor without power."""
        way = rng.choices(["close", "kill", "power"], [3, 5, 2])[0]
        if way == "close":
            self.store.close()
        elif way == "kill":
            self.env = self.env.kill()
        else:
            self.store.put("beside", b"durable, and all before it")
            self.env = self.env.crash(outcome="lost")
        self.store.abandon("the machine of before")
        self.store = open_store(self.env)
        return way == "close"


Seen = set[tuple[State, frozenset[Event], State]]  # what has become of one, by one of these


def run_many(seeds: range, *, volatile: bool = True) -> Seen:
    """So many histories, short and long; several share a store. What may have happened in them."""
    machine = None
    seen: Seen = set()
    for seed in seeds:
        if machine is None or machine.count > 30:
            machine = Machine(seed)
        try:
            rng = random.Random(seed)
            History(machine, rng, volatile=volatile).run(rng.choice([8, 8, 12, 16, 40]))
        except BaseException as error:
            error.add_note(f"history {seed}")
            raise
        seen |= machine.seen
    return seen
