"""All rules of queues at once, against a plain model: altered, killed and reopened at any time.

The model knows of each message who has read it, who has it in flight, and when it may be delivered.
What leaves a queue by itself is looked up after each step: it is a dead letter, or has expired.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from quire.engine import EmbeddedTransaction as Transaction
from quire.engine.delivery.selection import Selection
from quire.errors import InvalidArgument, QueueDisabled, QueueFull, QueueInUse
from quire.messages.message import Message
from tests.engine.workload import new_machine, open_store

STEPS = 120
SECOND = 1_000_000
NAMES = ("a", "b")
RETRY_SECONDS = 0.5
RETRY = {"delay": RETRY_SECONDS, "growth": "constant"}
BY_RANK = {"attribute": "rank", "numeric": True}


@dataclass
class Put:
    """A message as it was put; `time` is that of its commit."""

    payload: bytes
    priority: int = 0
    deliver_at: int | None = None
    expires_at: int | None = None
    time: int = 0
    group_key: str | None = None
    rank: str | None = None


@dataclass
class Reader:
    """A subscription: payloads by what has become of them."""

    unread: dict[bytes, Put] = field(default_factory=dict)
    in_flight: set[bytes] = field(default_factory=set)
    changed: set[bytes] = field(default_factory=set)  # of these, what holds no group
    later: dict[bytes, float] = field(default_factory=dict)
    may_be_spent: set[bytes] = field(default_factory=set)  # so its delay does not count
    may_be_early: set[bytes] = field(default_factory=set)  # the same, for another reason
    read: set[bytes] = field(default_factory=set)
    handed: Counter[bytes] = field(default_factory=Counter)
    noted: Counter[bytes] = field(default_factory=Counter)


@dataclass
class Known:
    """A queue."""

    kind: str
    order: list[Put] = field(default_factory=list)
    readers: dict[str, Reader] = field(default_factory=dict)
    rules: dict[str, Any] = field(default_factory=dict)
    may_drop: bool = False  # what expires


@dataclass
class Open:
    """A transaction, by the sources of what it has got."""

    txn: Transaction
    got: list[tuple[str, Reader, Message]] = field(default_factory=list)
    latest: int = 0  # of what it has got, so many by the last call
    put: list[tuple[str, Put]] = field(default_factory=list)
    passed: list[tuple[Known, Reader, int]] = field(default_factory=list)


class Machine:
    """A store and its model."""

    def __init__(self, seed: int, rng: random.Random) -> None:
        self.rng = rng
        self.env = new_machine(seed)
        self.store = open_store(self.env)
        self.store.create_queue("dead", kind="work")
        self.queues: dict[str, Known] = {}
        self.open: list[Open] = []
        self.prepared: dict[str, Open] = {}
        self.count = 0
        self.group_of: dict[bytes, str | None] = {}
        for name in ("w", "t"):
            self.create(name)

    def create(self, name: str) -> None:
        kind = "work" if name == "w" else "topic"
        self.store.create_queue(name, kind=kind, timed=False)  # type: ignore[arg-type]
        known = self.queues[name] = Known(kind)
        if kind == "work":
            known.readers["w"] = Reader()
        for sub in NAMES if kind == "topic" else ():
            self.store.subscribe(name, sub)
            known.readers[f"{name}/{sub}"] = Reader()

    @property
    def sources(self) -> list[tuple[str, Known, Reader]]:
        return [(s, q, r) for q in self.queues.values() for s, r in q.readers.items()]

    # What is to be expected

    def expiry(self, known: Known, put: Put) -> int | None:
        ttl = known.rules.get("ttl")
        if put.expires_at is not None:
            return put.expires_at
        return None if ttl is None else put.time + int(ttl * 1e6)

    def key(self, known: Known, put: Put) -> tuple[float, int]:
        order = known.rules.get("order")
        rank = 0.0
        if order == "priority":
            rank = -put.priority
        elif order == BY_RANK:
            rank = float("inf") if put.rank is None else float(put.rank)
        return rank, known.order.index(put)

    def may_get(
        self, known: Known, reader: Reader, put: Put, times: tuple[int, int], *, surely: bool
    ) -> bool:
        """Whether it may, or surely will, be delivered between two times."""
        first, last = times if surely else times[::-1]
        if put.payload in reader.in_flight:
            return False
        is_hidden = reader.later.get(put.payload, 0.0) > first / 1e6
        if is_hidden and (surely or put.payload not in reader.may_be_spent | reader.may_be_early):
            return False
        if known.rules.get("timed"):
            expiry = self.expiry(known, put)
            if (put.deliver_at or 0) > first or (expiry is not None and expiry <= last):
                return False
        most = known.rules.get("max_deliveries")
        return not (surely and most and reader.handed[put.payload] * 2 >= most)

    # Steps

    def begin(self) -> None:
        if len(self.open) < 4:
            self.open.append(Open(self.store.transaction(timeout=1e6)))

    def put(self) -> None:
        name = self.rng.choice(list(self.queues))
        now = self.env.now_us()
        own = self.rng.choice(self.open) if self.open and self.rng.random() < 0.3 else None
        txn = self.store.transaction() if own is None else own.txn
        puts = []
        for _ in range(self.rng.choice([1, 1, 4, 12])):
            self.count += 1
            put = Put(b"%d" % self.count, self.rng.choice([0, 0, 1, 5]))
            if self.rng.random() < 0.3:
                put.deliver_at = now + self.rng.randrange(3 * SECOND)
            if self.rng.random() < 0.3:
                put.expires_at = now + self.rng.randrange(1, 5 * SECOND)
            put.group_key = self.rng.choice([None, "a", "b", f"of its own {self.count}"])
            put.rank = self.rng.choice([None, "-2.5", "7", "10"])
            self.group_of[put.payload] = put.group_key
            names = ("priority", "deliver_at", "expires_at", "group_key")
            fields = {n: getattr(put, n) for n in names}
            fields["attributes"] = {} if put.rank is None else {"rank": put.rank}
            try:
                txn.put_moved(name, put.payload, fields)  # the queue's rules change
            except QueueDisabled:
                assert self.queues[name].rules.get("puts") is False
                break
            puts.append((name, put))
        if own is not None:
            own.put += puts
            own.latest = 0
            return
        txn.commit()
        self.arrived(puts)

    def arrived(self, puts: list[tuple[str, Put]]) -> None:
        for name, put in puts:
            known = self.queues[name]
            known.order.append(put)
            for reader in known.readers.values():
                reader.unread[put.payload] = put

    def get(self) -> None:
        if not self.open or not self.sources:
            return
        own = self.rng.choice(self.open)
        source, known, reader = self.rng.choice(self.sources)
        limit = self.rng.choice([1, 1, 2, 7, 100])
        before = self.env.now_us()
        held = self.held(known, reader, set())
        others = self.held(known, reader, self.mine(own, reader))
        try:
            if limit == 1:
                message = own.txn.get(source)
                got = [] if message is None else [message]
            else:
                got = list(own.txn.get_many(source, limit))
        except QueueDisabled:
            assert known.rules.get("gets") is False
            return
        assert known.rules.get("gets") is not False
        assert not [m for m in got if m.group_key in others]
        self.check_got(known, reader, got, limit, (before, self.env.now_us()), held)
        own.got += [(source, reader, message) for message in got]
        own.latest = len(got)

    def get_delayed(self) -> None:
        """What is listed is not due, in order; one of it is taken all the same."""
        if not self.open or not self.sources:
            return
        own = self.rng.choice(self.open)
        source, known, reader = self.rng.choice(self.sources)
        before = self.env.now_us()
        listed = self.store.delayed.list(source)
        due = [message.deliver_at or 0 for message in listed]
        assert due == sorted(due)
        assert not listed or (due[0] > before and known.rules["timed"])
        assert {message.payload for message in listed} <= reader.unread.keys() - reader.in_flight
        if not listed:
            return
        chosen = self.rng.choice(listed)
        to_change = self.rng.random() < 0.3
        held = self.held(known, reader, set())
        others = self.held(known, reader, self.mine(own, reader))
        may_wait = self.waits(known, reader, reader.unread[chosen.payload])
        try:
            message = own.txn.get_delayed(source, chosen.id, to_change=to_change)
        except QueueDisabled:
            assert known.rules.get("gets") is False
            return
        if message is None:  # by now it is due, or others have its group
            is_held = not to_change and (may_wait or chosen.group_key in held)
            assert due[0] <= self.env.now_us() or is_held
            return
        assert to_change or message.group_key not in others
        if to_change:
            reader.changed.add(message.payload)
        else:
            reader.changed.discard(message.payload)
        reader.in_flight.add(message.payload)
        reader.later.pop(message.payload, None)
        reader.handed[message.payload] += 1
        own.got.append((source, reader, message))
        own.latest = 1

    def is_over(self, known: Known, put: Put) -> bool:
        """Whether it has expired, so that nobody waits for it."""
        expiry = self.expiry(known, put) if known.rules.get("timed") else None
        return expiry is not None and expiry <= self.env.now_us()

    def mine(self, own: Open, reader: Reader) -> set[bytes]:
        """What does not keep this transaction from a group: its own, and what is changed."""
        return {m.payload for _, r, m in own.got if r is reader} | reader.changed

    def held(self, known: Known, reader: Reader, own: set[bytes]) -> set[str]:
        """The groups of which messages are in flight, but for those; and which wait for some."""
        if not known.rules.get("grouped"):
            return set()
        now = self.env.monotonic()
        unsure = reader.may_be_spent | reader.may_be_early
        later = {
            p for p, due in reader.later.items()
            if due > now and p in reader.unread and p not in unsure | own
            and not self.is_over(known, reader.unread[p])
        }  # fmt: skip
        in_flight = {p for p in reader.in_flight - own if p in reader.unread}  # not read past
        groups = {self.group_of[payload] for payload in in_flight | later}
        return {group for group in groups if group is not None}

    def check_got(
        self,
        known: Known,
        reader: Reader,
        got: list[Message],
        limit: int,
        times: tuple[int, int],
        held: set[str],
    ) -> None:
        """What came may come, in order, and nothing before it was left out."""
        most = known.rules.get("max_deliveries")
        keys = []
        for message in got:
            put = reader.unread[message.payload]
            assert self.may_get(known, reader, put, times, surely=False), put
            assert message.delivery_count > reader.noted[put.payload]
            if most:
                assert message.delivery_count <= most
                reader.noted[put.payload] += 1
            keys.append(self.key(known, put))
        assert keys == sorted(keys)
        there = {message.payload for message in got}
        for put in reader.unread.values():
            if put.payload in there or put.group_key in held or self.waits(known, reader, put):
                continue
            if self.may_get(known, reader, put, times, surely=True):
                assert len(got) == limit, put
                assert self.key(known, put) > keys[-1], put
        for payload in there:
            reader.in_flight.add(payload)
            reader.changed.discard(payload)
            reader.later.pop(payload, None)
            reader.handed[payload] += 1

    def waits(self, known: Known, reader: Reader, put: Put) -> bool:
        """Whether its group may wait for one that was rejected with a delay."""
        is_one = known.rules.get("grouped") and put.group_key is not None
        return bool(is_one) and put.group_key in {self.group_of[p] for p in reader.later}

    def unget(self) -> None:
        if self.open and (own := self.rng.choice(self.open)).latest:
            own.txn.unget()
            for source, reader, message in own.got[-own.latest :]:
                reader.in_flight.discard(message.payload)
                if self.queues[source.partition("/")[0]].rules.get("max_deliveries"):
                    reader.noted[message.payload] -= 1  # it does not count
            del own.got[-own.latest :]
            own.latest = 0

    def reject(self) -> None:
        """Not in a topic: a message of two subscriptions would be rejected of either."""
        own = self.rng.choice(self.open) if self.open else None
        mine = [] if own is None else [row for row in own.got if row[0] == "w"]
        if own is None or not mine:
            return
        row = self.rng.choice(mine)
        _, reader, message = row
        delay = self.rng.choice([0.0, 0.0, 0.5, 3.0, None, RETRY])
        seconds = self.retry(row[0]) if delay is None else delay
        now = self.env.monotonic()
        try:
            own.txn.reject(message, "poison", delay)  # type: ignore[arg-type]
        except InvalidArgument:  # somebody has read past it
            assert message.payload in reader.read
            return
        own.latest = 0
        own.got.remove(row)
        reader.in_flight.discard(message.payload)
        if seconds and message.payload in reader.unread:
            self.hide(row, now + (seconds if isinstance(seconds, float) else RETRY_SECONDS))
            reader.handed[message.payload] += 1

    def retry(self, source: str) -> object:
        return self.queues[source.partition("/")[0]].rules.get("retry")

    def hide(self, row: tuple[str, Reader, Message], due: float) -> None:
        source, reader, message = row
        reader.later[message.payload] = due
        reader.may_be_early.discard(message.payload)
        if self.queues[source.partition("/")[0]].rules.get("max_deliveries"):
            reader.may_be_spent.add(message.payload)

    def read_to(self) -> None:
        if not self.open or not self.sources:
            return
        own = self.rng.choice(self.open)
        source, known, reader = self.rng.choice(self.sources)
        position = self.rng.randrange(len(known.order) + 1)
        own.txn.read_to(source, position)
        own.passed.append((known, reader, position))

    def ended(self, own: Open, *, is_read: bool, before: float = 0.0) -> None:
        for row in own.got:
            source, reader, message = row
            reader.in_flight.discard(message.payload)
            if message.payload not in reader.unread:
                continue
            if is_read:
                reader.read.add(message.payload)
                del reader.unread[message.payload]
            elif self.retry(source):
                self.hide(row, before + RETRY_SECONDS)
        if is_read:
            self.arrived([pair for pair in own.put if pair[0] in self.queues])

    def pass_by(self, own: Open) -> None:
        for known, reader, position in own.passed:
            for put in known.order[:position]:
                if reader.unread.pop(put.payload, None) is not None:
                    reader.read.add(put.payload)

    def end(self) -> None:
        if not self.open:
            return
        own = self.open.pop(self.rng.randrange(len(self.open)))
        way = self.rng.choice(["commit", "commit", "rollback", "prepare"])
        if way == "prepare" and not own.passed and len(self.prepared) < 3:
            xid = f"x{self.count}.{self.rng.random()}"
            own.txn.prepare(xid)
            self.prepared[xid] = own
            return
        before = self.env.monotonic()
        if way == "rollback":
            own.txn.rollback()
        else:
            own.txn.commit()
            self.pass_by(own)
        self.ended(own, is_read=way != "rollback", before=before)

    def decide(self) -> None:
        if not self.prepared:
            return
        xid = self.rng.choice(list(self.prepared))
        own = self.prepared.pop(xid)
        if self.rng.random() < 0.5:
            self.store.prepared.commit(xid)
            self.ended(own, is_read=True)
        else:
            before = self.env.monotonic()
            self.store.prepared.rollback(xid)
            self.ended(own, is_read=False, before=before)

    def alter(self) -> None:
        name = self.rng.choice(list(self.queues))
        changes: dict[str, Sequence[Any]] = {
            "order": ["commit", "priority", BY_RANK],
            "default_priority": [0, 3],
            "timed": [True, True, False],
            "grouped": [True, True, False],
            "ttl": [None, 1.5, 4.0],
            "keep_expired": [True, False],
            "max_deliveries": [None, 1, 2, 4, 6],
            "retry": [None, None, RETRY],
            "puts": [True, True, True, False],
            "gets": [True, True, True, False],
        }
        names = self.rng.sample(list(changes), self.rng.choice([1, 1, 2, 5]))
        made = {change: self.rng.choice(changes[change]) for change in names}
        known = self.queues[name]
        after = known.rules | made
        # What would have no effect is refused.
        if not after.get("timed"):
            made |= {"ttl": None, "keep_expired": False}
        if after.get("order") != "priority":
            made["default_priority"] = 0
        known.rules |= made
        if known.rules.get("keep_expired") or known.rules.get("max_deliveries"):
            made["dead_letter"] = "dead"
        self.store.alter_queue(name, **made)
        known.may_drop |= not known.rules.get("keep_expired", False)

    def alter_dead(self) -> None:
        most = self.rng.choice([None, None, self.store.queue("dead").messages + 2])
        self.store.alter_queue("dead", puts=self.rng.random() < 0.8, max_messages=most)

    def define(self) -> None:
        """A subscription or a queue goes, and comes anew."""
        known = self.queues["t"]
        if self.rng.random() < 0.3:
            name = self.rng.choice(list(self.queues))
            with suppress(QueueInUse):
                self.store.drop_queue(name)
                self.create(name)
            return
        sub = self.rng.choice(NAMES)
        if f"t/{sub}" in known.readers:
            with suppress(QueueInUse):
                self.store.unsubscribe("t", sub)
                del known.readers[f"t/{sub}"]
            return
        self.store.subscribe("t", sub, start="latest")
        known.readers[f"t/{sub}"] = Reader()

    def advance(self) -> None:
        self.env.advance(self.rng.choice([0.01, 0.3, 1.0, 2.5]))

    def reopen(self) -> None:
        way = self.rng.choice(["kill", "crash", "close"])
        if way == "close":
            self.store.close()
        else:
            seed = self.rng.randrange(1 << 30)
            self.env = self.env.kill() if way == "kill" else self.env.crash(seed=seed)
        self.store.abandon("the machine of before")
        self.store = open_store(self.env)
        due = self.env.monotonic() + RETRY_SECONDS
        for own in self.open:
            for _, reader, message in own.got:
                reader.in_flight.discard(message.payload)
                if way == "close":  # which rolls back: so it may wait
                    reader.later[message.payload] = due
                    reader.may_be_early.add(message.payload)
        self.open.clear()
        if way == "crash":  # what was not synced yet is lost
            for _, _, reader in self.sources:
                reader.may_be_early |= reader.later.keys()

    def checkpoint(self) -> None:
        self.store.admin.checkpoint()

    def step(self) -> Callable[[], None]:
        weights: dict[Callable[[], None], int] = {
            self.begin: 8, self.put: 10, self.get: 16, self.unget: 2, self.reject: 6,
            self.read_to: 1, self.end: 8, self.decide: 3, self.alter: 6, self.alter_dead: 1,
            self.get_delayed: 3, self.define: 1, self.advance: 5, self.reopen: 2,
            self.checkpoint: 2,
        }  # fmt: skip
        return self.rng.choices(list(weights), list(weights.values()))[0]

    # What must hold between any two of them

    def check(self) -> None:
        dead = Counter(
            (m.attributes["quire.queue"], m.attributes["quire.subscription"], m.payload)
            for m in self.store.browse("dead", max_messages=100_000)
        )
        assert not [letter for letter, count in dead.items() if count > 1]
        now = self.env.now_us()
        for source, known, reader in self.sources:
            queue, _, sub = source.partition("/")
            there = {m.payload: m for m in self.store.browse(source, max_messages=100_000)}
            assert there.keys() <= reader.unread.keys()
            for payload in [p for p in reader.unread if p not in there]:
                put = reader.unread.pop(payload)
                expiry = put.expires_at or (put.time + SECOND)
                dropped = known.may_drop and expiry <= now
                assert dead[queue, sub, payload] or dropped, put
                assert payload not in reader.in_flight
                reader.later.pop(payload, None)
            for payload, message in there.items():
                reader.unread[payload].time = message.time
                assert not dead[queue, sub, payload]
            assert not [p for p in reader.read if dead[queue, sub, p]]
            info = next(s for s in self.store.subscriptions(queue) if s.name == sub)
            assert info.pending == len(there)
            assert info.delivered == len(reader.in_flight), (source, info)
            rest = len([p for p in there if p not in reader.in_flight])
            assert info.spent + info.delayed <= rest, (source, info)

    def finish(self) -> None:
        """All is decided, and can be got: nothing is left anywhere."""
        while self.prepared:
            self.decide()
        for own in self.open:
            own.txn.rollback()
            self.ended(own, is_read=False)
        self.open.clear()
        self.check()
        self.store.alter_queue("dead", puts=True, max_messages=None)
        for name in self.queues:
            self.store.alter_queue(
                name, gets=True, timed=False, ttl=None, max_deliveries=None, grouped=False
            )
        self.env.advance(10)  # what was rejected is due
        self.store.create_queue("more", kind="topic")
        self.check()
        for source, _, reader in self.sources:
            with self.store.transaction() as txn:
                got = txn.get_many(source, 100_000).payloads()
            assert sorted(got) == sorted(reader.unread)
        for name, known in self.queues.items():
            if known.readers:
                assert self.store.queue(name).messages == 0
                assert self.store.queue(name).used_bytes == 0
        report = self.store.admin.verify()
        assert report.ok, report.findings
        self.store.close()


def run(seed: int, steps: int = STEPS) -> None:
    """One history."""
    machine = Machine(seed, random.Random(seed))
    for _ in range(steps):
        step = machine.step()
        with suppress(QueueFull):
            step()
        machine.check()
    machine.finish()


def run_many(seeds: range) -> None:
    """Many."""
    for seed in seeds:
        run(seed)


@pytest.mark.cases(8)
@pytest.mark.fuzz
@pytest.mark.promise(1, 2)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_promise_1_2_all_rules_at_once(seed: int, rounds: int) -> None:
    """Whatever is altered, rejected, prepared or killed: one reader, one place, in order."""
    run_many(range(seed, seed + rounds))


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_broken_selection_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A canary: what is rolled back is lost where messages are selected."""
    monkeypatch.setattr(Selection, "give_back", lambda *_: None)
    with pytest.raises(AssertionError):
        run_many(range(20))
