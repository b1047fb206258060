"""A seeded workload on a store, and the plain model that says what must be there after it.

`Model` is dicts and lists. `Workload` does every kind of change on a store and notes in an `Oracle`
what was acknowledged and what was under way; `check_store` compares a recovered store with it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import pytest

from quire.block import BlockBuilder
from quire.engine import EmbeddedStore as Store
from quire.engine import EmbeddedTransaction as Transaction
from quire.env import Env
from quire.errors import (
    AlreadyCommitted,
    DiskFull,
    KeyHeld,
    PositionLost,
    QueueFull,
    QueueInUse,
    StoreCorrupt,
)
from quire.limits import COMMIT_BYTES, MESSAGE_OVERHEAD_BYTES, OPEN_BYTES
from quire.ltds import LtdsWriter, new_id
from quire.testing import Call, SimEnv
from tests.engine.checking_shipper import Archive, ship
from tests.kit.folded_state import check_folded

PATH = "/disk/store"
KEYS = ("alpha", "beta")
XIDS = ("x1", "x2", "x3")
OPTIONS: dict[str, Any] = {
    "segment_bytes": 64 << 10,
    "inline_limit_bytes": 6000,
    "large_limit_bytes": 40_000,
    "large_limit_messages": 60,
    "large_flush_bytes": 8192,
    "grow_bytes": 64 << 10,
    "write_buffer_messages": 8,
    "write_buffer_bytes": 16_000,
    "commit_timeout": 0.001,
}
ALL = 1_000_000
REQUESTS = 4  # ids that a queue keeps, of those below
REQUEST_IDS = [f"r{n}" for n in range(9)]


def open_store(env: Env, path: str = PATH, **options: Any) -> Store:
    """The store of the tests, created or recovered, without a thread."""
    return Store.open(path, env=env, background=False, **{**OPTIONS, **options})


def new_machine(seed: int, **options: Any) -> SimEnv:
    """A machine with a durable directory for the store."""
    env = SimEnv(seed, **options)
    env.make_directory("/disk")
    env.sync_directory("/")
    return env


# The model ----------------------------------------------------------------------------------------


@dataclass
class ModelQueue:
    """One queue: all its payloads by position, and what each subscription has read."""

    uid: int
    kind: Literal["topic", "work"]
    payloads: list[bytes] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)  # subscription name -> its uid
    done: dict[int, set[int]] = field(default_factory=dict)
    released: set[int] = field(default_factory=set)
    text: str = ""
    priority: bool = False
    requests: dict[str, bytes] = field(default_factory=dict)  # payloads, the oldest first

    def copy(self) -> ModelQueue:
        done = {uid: set(positions) for uid, positions in self.done.items()}
        return replace(
            self,
            payloads=list(self.payloads),
            names=dict(self.names),
            done=done,
            released=set(self.released),
            requests=dict(self.requests),
        )

    def release(self) -> None:
        if self.done:
            self.released |= set.intersection(*self.done.values())

    def unread(self, uid: int) -> list[int]:
        return [p for p in range(len(self.payloads)) if p not in self.done[uid]]

    def in_order(self, positions: list[int]) -> list[int]:
        """As they are delivered."""
        if not self.priority:
            return positions
        return sorted(positions, key=lambda p: (-priority_of(self.payloads[p]), p))


def priority_of(payload: bytes) -> int:
    """What it was put with (see `Runner.payload`)."""
    return int(payload.partition(b":")[0].partition(b"p")[2] or 0)


@dataclass
class Effects:
    """What a transaction does once it commits. Queues and subscriptions by uid."""

    puts: list[tuple[int, bytes]] = field(default_factory=list)
    reads: list[tuple[int, int, int]] = field(default_factory=list)
    passed: list[tuple[int, int, int]] = field(default_factory=list)
    entries: dict[str, int] = field(default_factory=dict)
    requests: dict[tuple[int, str], tuple[bytes, Any]] = field(default_factory=dict)
    ids: list[tuple[Any, list[bytes]]] = field(default_factory=list)


@dataclass
class Model:
    """A whole store."""

    queues: dict[str, ModelQueue] = field(default_factory=dict)
    ledger: dict[str, int] = field(default_factory=dict)
    next_uid: int = 1
    prepared: dict[str, Effects] = field(default_factory=dict)  # by xid

    def copy(self) -> Model:
        queues = {name: queue.copy() for name, queue in self.queues.items()}
        return Model(queues, dict(self.ledger), self.next_uid, dict(self.prepared))

    def uid(self) -> int:
        self.next_uid += 1
        return self.next_uid

    def create(self, name: str, kind: Literal["topic", "work"]) -> None:
        queue = self.queues[name] = ModelQueue(self.uid(), kind)
        if kind == "work":
            queue.names[""] = uid = self.uid()
            queue.done[uid] = set()

    def drop(self, name: str) -> None:
        del self.queues[name]

    def subscribe(self, queue: str, name: str, start: int) -> None:
        target = self.queues[queue]
        uid = target.names[name] = self.uid()
        target.done[uid] = target.released | set(range(start))
        target.release()

    def unsubscribe(self, queue: str, name: str) -> None:
        target = self.queues[queue]
        del target.done[target.names.pop(name)]
        target.release()

    def commit(self, effects: Effects) -> None:
        by_uid = {queue.uid: queue for queue in self.queues.values()}
        for uid, payload in effects.puts:
            by_uid[uid].payloads.append(payload)
        for uid, subscription, position in effects.reads:
            self._acknowledge(by_uid.get(uid), subscription, {position})
        for uid, subscription, position in effects.passed:
            self._acknowledge(by_uid.get(uid), subscription, set(range(position)))
        self.ledger.update(effects.entries)
        for (uid, request_id), (payload, _) in effects.requests.items():
            requests = by_uid[uid].requests
            requests.pop(request_id, None)
            requests[request_id] = payload
            if len(requests) > REQUESTS:
                del requests[next(iter(requests))]

    def knows_any(self, effects: Effects) -> bool:
        """Whether a request id of these was committed meanwhile."""
        by_uid = {queue.uid: queue for queue in self.queues.values()}
        return any(
            uid in by_uid and request_id in by_uid[uid].requests
            for uid, request_id in effects.requests
        )

    def prepare(self, xid: str, effects: Effects) -> None:
        self.prepared[xid] = effects

    def decide(self, xid: str, *, commit: bool) -> None:
        effects = self.prepared.pop(xid)
        if commit:
            self.commit(effects)

    def in_flight(self, queue: ModelQueue, subscription: int) -> set[int]:
        """What prepared transactions have got."""
        return {
            position
            for effects in self.prepared.values()
            for uid, known, position in effects.reads
            if (uid, known) == (queue.uid, subscription)
        }

    def is_prepared(self, queue: ModelQueue) -> bool:
        """Whether a prepared transaction has written to the queue or got messages from it."""
        return any(
            place[0] == queue.uid
            for effects in self.prepared.values()
            for place in [*effects.puts, *effects.reads]
        )

    def _acknowledge(
        self, queue: ModelQueue | None, subscription: int, positions: set[int]
    ) -> None:
        if queue is not None and subscription in queue.done:
            queue.done[subscription] |= positions
            queue.release()

    def view(self) -> dict[str, Any]:
        """What a store with this content shows."""
        return {
            "ledger": {key: self.ledger.get(key) for key in KEYS},
            "prepared": {xid: len(effects.puts) for xid, effects in self.prepared.items()},
            "queues": {
                name: {
                    "kind": queue.kind,
                    "text": queue.text,
                    "priority": queue.priority,
                    "end": len(queue.payloads),
                    "requests": list(queue.requests),
                    "kept": [p for i, p in enumerate(queue.payloads) if i not in queue.released],
                    "unread": {
                        subscription: [queue.payloads[i] for i in queue.unread(uid)]
                        for subscription, uid in sorted(queue.names.items())
                    },
                    "in_flight": {
                        subscription: len(self.in_flight(queue, uid))
                        for subscription, uid in sorted(queue.names.items())
                    },
                }
                for name, queue in sorted(self.queues.items())
            },
        }


def view_of(store: Store) -> dict[str, Any]:
    """The same of a store: all that its interface shows."""
    queues: dict[str, Any] = {}
    for info in store.queues():
        unread = {}
        in_flight = {}
        for subscription in store.subscriptions(info.name):
            source = f"{info.name}/{subscription.name}" if subscription.name else info.name
            unread[subscription.name] = store.browse(source, max_messages=ALL).payloads()
            assert subscription.pending == len(unread[subscription.name])
            in_flight[subscription.name] = subscription.delivered
        kept = store.browse(info.name, max_messages=ALL).payloads()
        assert info.messages == len(kept)
        queues[info.name] = {
            "kind": info.kind,
            "text": info.text,
            "priority": info.order == "priority",
            "end": info.end_position,
            "requests": request_ids(store, info.name),
            "kept": kept,
            "unread": unread,
            "in_flight": in_flight,
        }
    return {
        "ledger": {key: store.integration.ledger(key) for key in KEYS},
        "prepared": {info.xid: info.messages for info in store.prepared.list()},
        "queues": queues,
    }


def request_ids(store: Store, name: str) -> list[str]:
    """Those that a queue knows, the oldest first."""
    return list(store._context.state.queue(name).durable.requests.copy_known())


# What was promised --------------------------------------------------------------------------------


@dataclass
class Oracle:
    """What was acknowledged, and what the store may hold instead because it was under way."""

    created: bool = False
    model: Model = field(default_factory=Model)
    pending: Model | None = None
    ids: dict[bytes, int] = field(default_factory=dict)
    adopted: set[int] = field(default_factory=set)  # files of others that were committed
    earlier: list[Model] = field(default_factory=list)  # since then nothing was made durable
    archive: Archive = field(default_factory=Archive)  # of a workload whose store has one

    def __deepcopy__(self, memo: dict[int, Any]) -> Oracle:
        """A copy that knows nothing of the store that its effects come from."""
        pending = None if self.pending is None else self.pending.copy()
        earlier = [model.copy() for model in self.earlier]
        known = dict(self.ids), set(self.adopted)
        archive = replace(self.archive)
        return Oracle(self.created, self.model.copy(), pending, *known, earlier, archive)

    def allowed(self) -> list[Model]:
        now = [self.model] if self.pending is None else [self.model, self.pending]
        return [*now, *self.earlier]

    def match(self, store: Store) -> Model:
        """The model that the store holds; AssertionError if it is none that is allowed."""
        shown = view_of(store)
        for model in self.allowed():
            if model.view() == shown:
                return model
        raise AssertionError(f"the store holds {brief(shown)}, not {brief(self.model.view())}")


def brief(view: dict[str, Any]) -> str:
    """A view with payloads by their numbers."""

    def numbers(payloads: list[bytes]) -> list[int]:
        return [int(payload.partition(b":")[0].partition(b"p")[0]) for payload in payloads]

    return str(
        {
            name: {
                "end": queue["end"],
                "requests": queue["requests"],
                "text": queue["text"],
                "priority": queue["priority"],
                "kept": numbers(queue["kept"]),
                "unread": {s: numbers(p) for s, p in queue["unread"].items()},
                "in_flight": queue["in_flight"],
            }
            for name, queue in view["queues"].items()
        }
        | view["ledger"]
        | view["prepared"]
    )


def check_ids(store: Store, oracle: Oracle) -> None:
    """Ids ascend in every queue, are unique in the store, and are those that were told."""
    seen: set[int] = set()
    for info in store.queues():
        messages = store.browse(info.name, max_messages=ALL)
        ids = messages.ids
        assert ids == sorted(set(ids)), f"{info.name}: ids do not ascend"
        assert not seen & set(ids), f"{info.name}: ids of another queue"
        seen |= set(ids)
        for message_id, payload in zip(ids, messages.payloads(), strict=True):
            assert oracle.ids.get(payload, message_id) == message_id


def check_adopted(store: Store, oracle: Oracle) -> None:
    """A file that a commit has held is not adopted again, whether it is still there or not."""
    for ltds_id in sorted(oracle.adopted):
        for info in store.queues()[:1]:
            transaction = store.transaction()
            with pytest.raises((PositionLost, StoreCorrupt)):
                transaction.integration.adopt(info.name, ltds_id)
            transaction.rollback()


def check_space(store: Store, model: Model, *, at_rest: bool = True) -> None:
    """Nothing is reserved at rest, nothing is used where nothing is kept, and verify is content."""
    for info in store.queues():
        queue = model.queues[info.name]
        writers = [
            [payload for uid, payload in effects.puts if uid == queue.uid]
            for effects in model.prepared.values()
        ]
        assert info.prepared == sum(map(bool, writers)), info
        if at_rest:
            assert (info.open_transactions, info.reserving) == (0, 0), info
            if not info.messages:
                assert info.used_bytes == sum(map(prepared_bytes, writers)), info
        kept = [p for i, p in enumerate(queue.payloads) if i not in queue.released]
        assert info.used_bytes >= sum(map(len, kept)) * (not queue.released), info
    report = store.admin.verify()
    assert report.ok, report.findings


def prepared_bytes(payloads: list[bytes]) -> int:
    """What the messages of a prepared transaction take of a queue, with its control records."""
    charge = sum(len(payload) + MESSAGE_OVERHEAD_BYTES for payload in payloads)
    return charge + OPEN_BYTES + COMMIT_BYTES if payloads else 0


def drain(store: Store, model: Model) -> None:
    """Read everything: no byte stays in use, no page, no file of a large transaction."""
    assert sorted(model.queues) == [info.name for info in store.queues()]
    drain_all(store)


def drain_all(store: Store) -> None:
    """The same for any store, without a model."""
    for info in store.prepared.list():
        store.prepared.rollback(info.xid)
    names = [info.name for info in store.queues()]
    for name in names:
        if not store.subscriptions(name):
            store.subscribe(name, "drain")
        for subscription in store.subscriptions(name):
            source = f"{name}/{subscription.name}" if subscription.name else name
            while True:
                with store.transaction() as transaction:
                    if not transaction.get_many(source, max_messages=100):
                        break
    assert [info.used_bytes for info in store.queues()] == [0] * len(names)
    store.admin.stop_archive()  # so that nothing waits to be shipped
    store.admin.checkpoint()  # record pages go out of use with it
    store.admin.checkpoint()  # and may be used again with the next
    numbers = store.status()
    data = numbers["data"]
    assert {f["bytes"] - f["free_bytes"] for f in data["files"]} == {data["page_size"]}, data
    assert numbers["large_transactions"]["files"] == 0
    assert store.admin.verify().ok


def make_room(env: SimEnv) -> None:
    """The directory that the store is made in."""
    env.make_directory("/disk")
    env.sync_directory("/")


def check_store(
    env: SimEnv, oracle: Oracle, *, seed: int = 0, steps: int = 3, **options: Any
) -> None:
    """Recover; compare; go on working; lose the power again; compare; read everything.

    The options are those that the store was made with.
    """
    env.capacity_bytes = None
    if not oracle.created:
        make_room(env)
    store = open_store(env, **options)
    model = oracle.match(store)
    check_ids(store, oracle)
    check_adopted(store, oracle)
    check_space(store, model)
    archive, is_archived = replace(oracle.archive), store.admin.archive() is not None
    ship(env, store, archive, reports=bool(seed % 3))
    more = Workload(
        seed, steps=steps, first_payload=100_000, ids=oracle.ids, archived=is_archived, **options
    )
    known = oracle.ids, set(oracle.adopted)
    going_on = Oracle(True, model.copy(), None, *known, archive=archive)
    store = more.run(env, store, going_on)
    if seed % 4 == 0:
        check_folded(store)
    if seed % 2:
        store.admin.checkpoint()
    again = env.crash(outcome="lost", seed=seed)
    store = open_store(again, **options)
    model = going_on.match(store)
    check_ids(store, going_on)
    check_adopted(store, going_on)
    ship(again, store, going_on.archive)
    check_space(store, model)
    drain(store, model)
    store.close()
    open_store(again, **options).close()


def gone_on(
    seed: int,
    *,
    steps: int = 4,
    prepares: int = 4,
    lazy: float = 0.0,
    repeats: float = 0.0,
    archived: bool = False,
    **options: Any,
) -> Callable[[SimEnv, Oracle], None]:
    """What goes on in a new process where an error ended a workload (`resume` of enumerations).

    What the store shows once it is open again is what must be there from then on.
    """

    def resume(env: SimEnv, oracle: Oracle) -> None:
        env.capacity_bytes = None
        if not oracle.created:
            make_room(env)
        store = open_store(env, **options)
        oracle.model, oracle.pending, oracle.created = oracle.match(store).copy(), None, True
        oracle.earlier = []
        more = Workload(
            seed,
            steps=steps,
            prepares=prepares,
            lazy=lazy,
            repeats=repeats,
            archived=archived,
            first_payload=50_000,
            **options,
        )
        more.run(env, store, oracle).close()

    return resume


# The workload -------------------------------------------------------------------------------------


class Held:
    """A transaction that is open for a while."""

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction
        self.effects = Effects()


class Workload:
    """Mixed changes, drawn from the seed. Called with (env, oracle) by `enumerate_crashes`."""

    def __init__(
        self,
        seed: int,
        *,
        steps: int = 40,
        first_payload: int = 0,
        ids: dict[bytes, int] | None = None,
        beside: float = 0.5,
        full: float = 0.0,
        prepares: int = 4,
        lazy: float = 0.0,
        repeats: float = 0.0,
        archived: bool = False,
        **options: Any,
    ) -> None:
        self.archived = archived  # the store has an archive, and a shipper now and then
        self.repeats = repeats  # how often a put has a request id
        self.lazy = lazy  # how often a transaction is not durable when its commit returns
        self.runner: Runner | None = None
        self.prepares = prepares  # weight of preparing and of deciding
        self.full = full  # how often the disk fills up, or has room again
        self.seed = seed
        self.steps = steps
        self.beside = beside  # how often something else happens in the midst of a checkpoint
        self.options = options
        self.operation = "create the store"  # under way
        self._first_payload = first_payload
        self._known_ids = ids

    def __call__(self, env: SimEnv, oracle: Oracle) -> None:
        env.make_directory("/disk")
        env.sync_directory("/")
        store = open_store(env, **self.options)
        oracle.created = True
        self.run(env, store, oracle).close()

    def run(self, env: SimEnv, store: Store, oracle: Oracle) -> Store:
        """Do the steps; the store as it is open at the end."""
        self.runner = runner = Runner(self, env, store, oracle)
        for _ in range(self.steps):
            runner.step()
        runner.end_all()
        return runner.store

    @property
    def first_payload(self) -> int:
        return self._first_payload


class Runner:
    """One run of a workload."""

    def __init__(self, workload: Workload, env: SimEnv, store: Store, oracle: Oracle) -> None:
        self.workload = workload
        self.env = env
        self.store = store
        self.oracle = oracle
        self.options = workload.options
        self.beside = workload.beside
        self.full = workload.full
        self.prepares = workload.prepares
        self.lazy = workload.lazy
        self.repeats = workload.repeats
        self.archived = workload.archived
        self.refused = 0  # because the disk was full
        self.rng = random.Random(f"workload {workload.seed}")
        self.number = workload.first_payload
        self.held: list[Held] = []
        self.prepared: dict[str, Held] = {}  # of this opening
        self.is_beside = False

    # Steps

    def step(self) -> None:
        names = self.oracle.model.queues
        if self.archived and self.store.admin.archive() is None:
            self.workload.operation = "set an archive"
            with suppress(DiskFull):
                self.store.admin.set_archive("/archive")
            return
        if len(names) < 3:
            self.workload.operation = "create"
            self.create()
            return
        weights: dict[Callable[[], None], int] = {
            self.single: 5,
            self.transact: 12,
            self.hold: 3,
            self.end_one: 3,
            self.prepare: self.prepares,
            self.decide: self.prepares,
            self.subscription: 3,
            self.create: 1,
            self.alter: 2,
            self.drop: 1,
            self.adopt: 2,
            self.checkpoint: 4,
            self.compact: 1,
            self.reopen: 1,
        }
        if self.lazy:
            weights[self.sync] = 1
        if self.archived:
            weights |= {self.ship: 4, self.set_archive: 1}
        if self.full and self.rng.random() < self.full:
            self.fill_up()
        [action] = self.rng.choices(list(weights), list(weights.values()))
        self.workload.operation = action.__name__
        try:
            action()
        except DiskFull:
            self.refused += 1

    def fill_up(self) -> None:
        """The disk is full, or nearly, or it has room again."""
        room = self.rng.choice([0, 4096, 20_000, 100_000, None])
        self.env.capacity_bytes = None if room is None else self.env.used_bytes() + room

    def begin(self, **options: Any) -> Held:
        """A transaction, durable or not."""
        durable = not self.lazy or self.rng.random() >= self.lazy
        return Held(self.store.transaction(durable=durable, **options))

    def sync(self) -> None:
        self.store.sync()
        assert not self.store.status()["journal"]["unsynced_bytes"]
        self.oracle.earlier = []

    def ship(self) -> None:
        """The shipper reads all that is new, and perhaps it ends before it reports that."""
        ship(self.env, self.store, self.oracle.archive, reports=self.rng.random() < 0.7)

    def set_archive(self) -> None:
        """Stop, limit or move it; what is not shipped by then is let go of."""
        action = self.rng.random()
        if action < 0.3:
            self.store.admin.stop_archive()
        else:
            full = "gap" if action < 0.6 else "wait"
            limit = self.rng.choice(["64k", "200k", "1g"])
            self.store.admin.set_archive("/archive", limit=limit, full=full)

    def change(
        self, effect: Callable[[Model], None], action: Callable[[], Any], *, durable: bool = True
    ) -> None:
        """Do it; the oracle holds both outcomes meanwhile."""
        after = self.oracle.model.copy()
        effect(after)
        self.oracle.pending = after
        try:
            action()
        except (QueueFull, QueueInUse, AlreadyCommitted, KeyHeld, DiskFull):
            self.oracle.pending = None
            raise
        if durable or not self.store.status()["journal"]["unsynced_bytes"]:
            self.oracle.earlier = []
        else:
            self.oracle.earlier.append(self.oracle.model)
        self.oracle.model, self.oracle.pending = after, None

    def create(self) -> None:
        name = self.rng.choice(["t0", "t1", "t2", "t3", "w0", "w1"])
        if name in self.oracle.model.queues:
            return
        kind: Literal["topic", "work"] = "topic" if name[0] == "t" else "work"
        capacity = self.rng.choice([60_000, 1 << 20, 1 << 20])
        kept: Any = {"dedup_count": REQUESTS} if self.repeats else {}
        self.change(
            lambda model: model.create(name, kind),
            lambda: self.store.create_queue(name, kind=kind, capacity=capacity, **kept),
        )
        if kind == "topic" and self.rng.random() < 0.8:
            self.subscribe(name, "a")
            self.subscribe(name, "b")

    def alter(self) -> None:
        """Words, and perhaps the order in which it is read from then on."""
        name = self.rng.choice(sorted(self.oracle.model.queues))
        text = f"altered {self.rng.randrange(100)}"
        priority = self.oracle.model.queues[name].priority ^ (self.rng.random() < 0.5)

        def effect(model: Model) -> None:
            queue = model.queues[name]
            queue.text, queue.priority = text, priority

        order = "priority" if priority else "commit"
        self.change(effect, lambda: self.store.alter_queue(name, text=text, order=order))

    def drop(self) -> None:
        if len(self.oracle.model.queues) < 4:
            return
        name = self.rng.choice(sorted(self.oracle.model.queues))
        try:
            self.change(lambda model: model.drop(name), lambda: self.store.drop_queue(name))
        except QueueInUse:
            queue = self.oracle.model.queues[name]
            assert self.oracle.model.is_prepared(queue) or any(
                place[0] == queue.uid
                for held in self.held
                for place in [*held.effects.puts, *held.effects.reads]
            )

    def subscribe(self, queue: str, name: str) -> None:
        end = len(self.oracle.model.queues[queue].payloads)
        start: Any = self.rng.choice(["earliest", "latest", self.rng.randint(0, end)])
        position = {"earliest": 0, "latest": end}.get(start, start)
        self.change(
            lambda model: model.subscribe(queue, name, position),
            lambda: self.store.subscribe(queue, name, start),
        )

    def subscription(self) -> None:
        topics = [n for n, q in sorted(self.oracle.model.queues.items()) if q.kind == "topic"]
        if not topics:
            return
        queue = self.rng.choice(topics)
        name = self.rng.choice("abc")
        if name not in self.oracle.model.queues[queue].names:
            self.subscribe(queue, name)
        elif self.rng.random() < 0.4:
            target = self.oracle.model.queues[queue]
            try:
                self.change(
                    lambda model: model.unsubscribe(queue, name),
                    lambda: self.store.unsubscribe(queue, name),
                )
            except QueueInUse:
                assert self.oracle.model.in_flight(target, target.names[name])

    def request_id(self) -> str | None:
        """Of a put, perhaps one that was put before."""
        if self.repeats and self.rng.random() < self.repeats:
            return self.rng.choice(REQUEST_IDS)
        return None

    def single(self) -> None:
        if (request_id := self.request_id()) is not None:
            self.single_once(request_id)
            return
        name = self.rng.choice(sorted(self.oracle.model.queues))
        payload = self.payload(self.rng.choice([10, 100, 1000, 5000, 9000]))
        effects = Effects(puts=[(self.oracle.model.queues[name].uid, payload)])
        told: list[int] = []
        durable = not self.lazy or self.rng.random() >= self.lazy
        try:
            self.change(
                lambda model: model.commit(effects),
                lambda: told.append(self.store.put(name, payload, durable=durable)),
                durable=durable,
            )
            self.oracle.ids[payload] = told[0]
        except QueueFull:
            pass

    def single_once(self, request_id: str) -> None:
        """A put with a request id, which is known or not."""
        name = self.rng.choice(sorted(self.oracle.model.queues))
        queue = self.oracle.model.queues[name]
        payload = self.payload(self.rng.choice([10, 5000, 9000]))
        first = queue.requests.get(request_id)
        if first is not None:
            told = self.store.put(name, payload, request_id=request_id)
            assert self.oracle.ids.setdefault(first, told) == told
            return
        effects = Effects(puts=[(queue.uid, payload)])
        effects.requests[queue.uid, request_id] = payload, None
        ids: list[int] = []
        try:
            self.change(
                lambda model: model.commit(effects),
                lambda: ids.append(self.store.put(name, payload, request_id=request_id)),
            )
            self.oracle.ids[payload] = ids[0]
        except (QueueFull, KeyHeld):
            pass

    def put_once(self, held: Held, name: str, request_id: str) -> None:
        """The same in a transaction, which may have put with it itself."""
        queue = self.oracle.model.queues[name]
        payload = self.payload(self.rng.choice([10, 900, 12_000]))
        message_id = held.transaction.put(name, payload, request_id=request_id)
        first, own = queue.requests.get(request_id), held.effects.requests
        if first is not None:
            assert self.oracle.ids.setdefault(first, int(message_id)) == message_id
        elif (queue.uid, request_id) in own:
            assert message_id is own[queue.uid, request_id][1]
        else:
            own[queue.uid, request_id] = payload, message_id
            held.effects.puts.append((queue.uid, payload))
            held.effects.ids.append(([message_id], [payload]))

    def transact(self) -> None:
        held = self.begin(large=self.rng.random() < 0.1)
        if self.fill(held):
            self.end(held)

    def hold(self) -> None:
        if len(self.held) < 3:
            held = self.begin()
            if self.fill(held):
                self.held.append(held)

    def end_one(self) -> None:
        if self.held:
            self.end(self.held.pop(self.rng.randrange(len(self.held))))

    def prepare(self) -> None:
        """A transaction, new or held for a while, is prepared."""
        free = [xid for xid in XIDS if xid not in self.oracle.model.prepared]
        if not free:
            return
        durable = [held for held in self.held if held.transaction.durable]
        if durable and self.rng.random() < 0.3:
            held = self.rng.choice(durable)
            self.held.remove(held)
            if held.transaction.state == "rolled back":
                assert self.full or self.store.failed  # as `forget_lost` says
                return
        else:
            held = Held(self.store.transaction(large=self.rng.random() < 0.1))
            if not self.fill(held):
                return
        xid = self.rng.choice(free)
        try:
            self.change(
                lambda model: model.prepare(xid, held.effects),
                lambda: held.transaction.prepare(xid),
            )
        except (QueueFull, AlreadyCommitted, KeyHeld, DiskFull) as error:
            self.refused += isinstance(error, DiskFull)
            held.transaction.rollback()
            return
        self.prepared[xid] = held
        for _, payloads in held.effects.ids:  # known from here on only if this opening decides it
            for payload in payloads:
                self.oracle.ids.pop(payload, None)

    def decide(self) -> None:
        """A prepared transaction is committed or rolled back, by its object or by its xid."""
        if not self.oracle.model.prepared:
            return
        xid = self.rng.choice(sorted(self.oracle.model.prepared))
        commit, by_xid = self.rng.random() < 0.6, self.rng.random() < 0.5
        held = self.prepared.get(xid)
        if held is None or by_xid:
            call = self.store.prepared.commit if commit else self.store.prepared.rollback
            action: Callable[[], None] = partial(call, xid)
        else:
            action = held.transaction.commit if commit else held.transaction.rollback
        self.change(lambda model: model.decide(xid, commit=commit), action)
        if held is not None:
            del self.prepared[xid]
            assert held.transaction.state == ("committed" if commit else "rolled back")
            if commit:
                self.learn_ids(held)

    def end_all(self) -> None:
        self.workload.operation = "end"
        self.env.capacity_bytes = None
        while self.held:
            self.end_one()

    def adopt(self) -> None:
        """A file of another process, in a transaction with a ledger entry."""
        env, store = self.env, self.store
        name = self.rng.choice(sorted(self.oracle.model.queues))
        payloads = [self.payload(self.rng.choice([30, 2000])) for _ in range(5)]
        builder = BlockBuilder()
        builder.add_many(payloads)
        writer = LtdsWriter(
            env, f"{PATH}/ltds", store.integration.store_id, new_id(env, foreign=True)
        )
        writer.add(builder)
        info = writer.finish()
        held = Held(store.transaction())
        uid = self.oracle.model.queues[name].uid
        try:
            self.put_some(held)
            held.effects.ids.append((held.transaction.integration.adopt(name, info.id), payloads))
        except (QueueFull, DiskFull):
            held.transaction.rollback()
            return
        held.effects.puts += [(uid, payload) for payload in payloads]
        self.end(held)
        if held.transaction.state == "committed":
            self.oracle.adopted.add(info.id)

    def checkpoint(self) -> None:
        """A checkpoint, with other changes between its calls."""
        self.env.before_call = self.step_beside
        try:
            self.store.admin.checkpoint()
        finally:
            self.env.before_call = None

    def compact(self) -> None:
        self.store.admin.compact()

    def step_beside(self, call: Call) -> None:
        # The size of the data file is changed under a lock that a commit may need.
        if call.kind in ("allocate", "truncate", "punch") or self.is_beside:
            return
        if self.store._context.sequencer.busy:  # this thread writes a group, or syncs
            return
        if self.rng.random() >= self.beside:
            return
        self.is_beside = True
        try:
            steps = [self.transact, self.transact, self.single, self.hold, self.end_one]
            steps += [self.prepare, self.decide]
            steps += [self.subscription, self.drop, self.create, self.alter]
            steps += [self.ship] * 2 * self.archived
            action = self.rng.choice(steps)
            self.workload.operation = f"{action.__name__} beside a checkpoint"
            action()
        except DiskFull:
            self.refused += 1
        finally:
            self.workload.operation = "checkpoint"
            self.is_beside = False

    def reopen(self) -> None:
        self.held.clear()
        self.prepared.clear()
        self.store.close()
        try:
            self.store = open_store(self.env, **self.options)
        except DiskFull:
            self.env.capacity_bytes = None
            self.store = open_store(self.env, **self.options)

    # Parts of them

    def payload(self, size: int, priority: int = 0) -> bytes:
        self.number += 1
        head = f"{self.number}p{priority}:" if priority else f"{self.number}:"
        return head.encode().ljust(size, b".")

    def fill(self, held: Held) -> bool:
        """Puts and gets; False if it was rolled back because a queue was full."""
        try:
            for _ in range(self.rng.randint(1, 4)):
                part = self.rng.random()
                if part < 0.5:
                    self.put_some(held)
                elif part < 0.85:
                    self.get_some(held)
                elif part < 0.92:
                    self.read_to(held)
                else:
                    key = self.rng.choice(KEYS)
                    version = self.oracle.model.ledger.get(key, -1) + self.rng.randint(1, 3)
                    held.transaction.enter(key, version)
                    held.effects.entries[key] = version
        except (QueueFull, DiskFull):
            held.transaction.rollback()
            return False
        return True

    def put_some(self, held: Held) -> None:
        for name in self.rng.sample(sorted(self.oracle.model.queues), self.rng.randint(1, 3)):
            size = self.rng.choice([10, 200, 900, 3000, 12_000])
            count = self.rng.choice([1, 1, 3, 8 if size < 4000 else 1])
            if count == 1 and (request_id := self.request_id()) is not None:
                self.put_once(held, name, request_id)
                continue
            priority = self.rng.choice([0, 0, 1, 2]) if count == 1 else 0
            payloads = [self.payload(size, priority) for _ in range(count)]
            if count == 1:
                header = {"priority": priority}  # taken whatever the queue obeys
                ids: Any = [held.transaction.put_moved(name, payloads[0], header)]
            else:
                ids = held.transaction.put_many(name, payloads)
            held.effects.ids.append((ids, payloads))
            uid = self.oracle.model.queues[name].uid
            held.effects.puts += [(uid, payload) for payload in payloads]

    def get_some(self, held: Held) -> None:
        """What it gets is what the model says: in order, without what is in flight."""
        found = self.source()
        if found is None:
            return
        self.forget_lost()
        source, queue, uid = found
        in_flight = {
            position
            for other in [*self.held, held]
            for known, subscription, position in other.effects.reads
            if (known, subscription) == (queue.uid, uid)
        } | self.oracle.model.in_flight(queue, uid)
        limit = self.rng.choice([1, 2, 5, 30])
        expected = queue.in_order([p for p in queue.unread(uid) if p not in in_flight])[:limit]
        if limit == 1:
            message = held.transaction.get(source)
            got = [] if message is None else [message.payload]
        else:
            got = held.transaction.get_many(source, limit).payloads()
        assert got == [queue.payloads[p] for p in expected], source
        held.effects.reads += [(queue.uid, uid, position) for position in expected]

    def read_to(self, held: Held) -> None:
        found = self.source()
        if found is not None:
            source, queue, uid = found
            position = self.rng.randint(0, len(queue.payloads))
            held.transaction.read_to(source, position)
            held.effects.passed.append((queue.uid, uid, position))

    def source(self) -> tuple[str, ModelQueue, int] | None:
        sources = [
            (f"{name}/{subscription}" if subscription else name, queue, uid)
            for name, queue in sorted(self.oracle.model.queues.items())
            for subscription, uid in sorted(queue.names.items())
        ]
        return self.rng.choice(sources) if sources else None

    def forget_lost(self) -> None:
        """One that left the write buffer for a file when another needed the memory may be gone.

        Its file found no room, or the disk failed.
        """
        lost = [held for held in self.held if held.transaction.state == "rolled back"]
        assert not lost or self.full or self.store.failed
        self.held = [held for held in self.held if held not in lost]

    def end(self, held: Held, *, again: bool = False) -> None:
        if held.transaction.state == "rolled back":
            assert self.full or self.store.failed  # as `forget_lost` says
            return
        if not again and self.rng.random() < 0.2:
            held.transaction.rollback()
            return
        is_late = self.oracle.model.knows_any(held.effects)
        try:
            self.change(
                lambda model: model.commit(held.effects),
                held.transaction.commit,
                durable=held.transaction.durable,
            )
            assert not is_late, "a request id was committed twice"
        except (QueueFull, AlreadyCommitted, KeyHeld):
            held.transaction.rollback()
            return
        except DiskFull:
            self.refused += 1
            if not held.transaction.large and self.rng.random() < 0.5:
                self.env.capacity_bytes = None  # there is room again: the same commit succeeds
                self.end(held, again=True)
            else:
                held.transaction.rollback()
            return
        self.learn_ids(held)

    def learn_ids(self, held: Held) -> None:
        for ids, payloads in held.effects.ids:
            for message_id, payload in zip(ids, payloads, strict=True):
                self.oracle.ids[payload] = int(message_id)
