"""Random operations against a model of dicts and lists, with reopenings and power failures."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from quire.engine import EmbeddedStore as Store
from quire.engine.commits.commit_plan import CommitPlan
from quire.engine.commits.committer import Committer
from quire.engine.transactions.reads import TransactionReads
from quire.errors import (
    AlreadyCommitted,
    KeyHeld,
    QueueExists,
    QueueFull,
    QueueInUse,
    QueueNotFound,
    StoreClosed,
    StoreCorrupt,
    StoreFailed,
    SubscriptionNotFound,
    TransactionNotFound,
    XidExists,
)
from quire.limits import COMMIT_BYTES, MESSAGE_OVERHEAD_BYTES, OPEN_BYTES
from quire.testing import SimEnv
from tests.engine.workload import prepared_bytes

CONTROL = OPEN_BYTES + COMMIT_BYTES
OPTIONS: dict[str, Any] = {
    "segment_bytes": 1 << 20,
    "grow_bytes": 1 << 16,
    "checkpoint_bytes": 1 << 16,
    "inline_limit_bytes": 4096,
    "large_limit_bytes": 64 << 10,
    "large_flush_bytes": 8192,
    "write_buffer": "per-queue",
    "write_buffer_messages": 4,
    "commit_timeout": 0.001,
}
NAMES = st.sampled_from(["a", "b", "a", "b", "c"])
SUBSCRIPTIONS = st.sampled_from(["s", "t"])
SIZES = st.sampled_from([0, 1, 100, 100, 3000, 20_000])
PICK = st.integers(0, 7)
XIDS = st.sampled_from(["x1", "x2", "x3"])


@dataclass
class ModelSubscription:
    """A consumer group: what it has read, by index into the queue's messages."""

    read: set[int] = field(default_factory=set)
    in_flight: set[int] = field(default_factory=set)
    returned: dict[int, int] = field(default_factory=dict)  # index -> deliveries


@dataclass
class ModelQueue:
    """A queue: all messages that were ever committed to it, in order."""

    kind: str
    messages: list[bytes] = field(default_factory=list)
    subscriptions: dict[str, ModelSubscription] = field(default_factory=dict)

    def kept(self) -> list[int]:
        """The messages that somebody is still to read."""
        if not self.subscriptions:
            return list(range(len(self.messages)))
        return [
            n
            for n in range(len(self.messages))
            if any(n not in s.read for s in self.subscriptions.values())
        ]


@dataclass
class ModelTransaction:
    """An open transaction, beside the real one."""

    real: Any
    puts: dict[str, list[bytes]] = field(default_factory=dict)
    gets: list[tuple[str, str, int]] = field(default_factory=list)
    version: int | None = None


class StoreMachine(RuleBasedStateMachine):
    """The rules; `self.queues` is the model."""

    def __init__(self) -> None:
        super().__init__()
        self.env = SimEnv(1)
        self.store = self.open()
        self.queues: dict[str, ModelQueue] = {}
        self.open_transactions: list[ModelTransaction] = []
        self.prepared: dict[str, ModelTransaction] = {}
        self.ledger: int | None = None
        self.counter = 0

    def open(self) -> Store:
        return Store.open("/s", env=self.env, background=False, **OPTIONS)

    # Queues and subscriptions

    @initialize()
    def two_queues(self) -> None:
        self.create("a", "topic")
        self.create("b", "work")
        self.subscribe("a", "s", "earliest")

    @rule(name=NAMES, kind=st.sampled_from(["topic", "work"]))
    def create(self, name: str, kind: Any) -> None:
        if name in self.queues:
            with pytest.raises(QueueExists):
                self.store.create_queue(name, kind)
            return
        self.store.create_queue(name, kind)
        built_in = {"": ModelSubscription()} if kind == "work" else {}
        self.queues[name] = ModelQueue(kind, [], built_in)

    @rule(name=st.sampled_from(["c", "c", "c", "a"]))
    def drop(self, name: str) -> None:
        if name not in self.queues:
            with pytest.raises(QueueNotFound):
                self.store.drop_queue(name)
        elif any(
            name in t.puts or any(g[0] == name for g in t.gets)
            for t in [*self.open_transactions, *self.prepared.values()]
        ):
            with pytest.raises(QueueInUse):
                self.store.drop_queue(name)
        else:
            self.store.drop_queue(name)
            del self.queues[name]

    @rule(name=NAMES, subscription=SUBSCRIPTIONS, start=st.sampled_from(["earliest", "latest"]))
    def subscribe(self, name: str, subscription: str, start: Any) -> None:
        queue = self.queues.get(name)
        if queue is None or queue.kind == "work":
            return
        self.store.subscribe(name, subscription, start)
        if subscription not in queue.subscriptions:
            kept = set(queue.kept()) if start == "earliest" else set()
            read = set(range(len(queue.messages))) - kept
            queue.subscriptions[subscription] = ModelSubscription(read)

    @rule(name=NAMES, subscription=SUBSCRIPTIONS)
    def unsubscribe(self, name: str, subscription: str) -> None:
        queue = self.queues.get(name)
        if queue is None or subscription not in queue.subscriptions:
            with pytest.raises((QueueNotFound, SubscriptionNotFound)):
                self.store.unsubscribe(name, subscription)
        elif any((name, subscription) == got[:2] for t in self.prepared.values() for got in t.gets):
            with pytest.raises(QueueInUse):
                self.store.unsubscribe(name, subscription)
        elif subscription == "t" and not queue.subscriptions[subscription].in_flight:
            self.store.unsubscribe(name, subscription)
            del queue.subscriptions[subscription]  # what only it had not read goes

    # Transactions

    @precondition(lambda self: len(self.open_transactions) < 4)
    @rule(large=st.booleans())
    def begin(self, large: bool) -> None:
        self.open_transactions.append(ModelTransaction(self.store.transaction(large=large)))

    def pick(self, number: int) -> ModelTransaction:
        """An open transaction; a new one if there is none."""
        if not self.open_transactions:
            self.begin(large=False)
        return self.open_transactions[number % len(self.open_transactions)]

    def payload(self, size: int) -> bytes:
        self.counter += 1
        return b"%08d" % self.counter + bytes([self.counter % 251]) * size

    @rule(which=PICK, name=NAMES, size=SIZES, many=st.integers(0, 5))
    def put(self, which: int, name: str, size: int, many: int) -> None:
        txn = self.pick(which)
        payloads = [self.payload(size) for _ in range(many or 1)]
        if name not in self.queues:
            with pytest.raises(QueueNotFound):
                txn.real.put(name, payloads[0])
            return
        if many:
            txn.real.put_many(name, payloads)
        else:
            txn.real.put(name, payloads[0])
        txn.puts.setdefault(name, []).extend(payloads)

    @rule(which=PICK, name=NAMES, limit=st.sampled_from([1, 2, 5, 50]), then=st.booleans())
    def get_and_end(self, which: int, name: str, limit: int, then: bool) -> None:
        """A reader's whole transaction, so that much is read and given back."""
        self.get(which, name, "s", limit)
        if then:
            self.commit(which)
        else:
            self.rollback(which)

    @rule(name=NAMES, size=SIZES)
    def put_alone(self, name: str, size: int) -> None:
        payload = self.payload(size)
        if name in self.queues:
            self.store.put(name, payload)
            self.queues[name].messages.append(payload)
        else:
            with pytest.raises(QueueNotFound):
                self.store.put(name, payload)

    @rule(which=PICK, name=NAMES, subscription=SUBSCRIPTIONS, limit=st.sampled_from([1, 2, 5, 50]))
    def get(self, which: int, name: str, subscription: str, limit: int) -> None:
        txn = self.pick(which)
        queue = self.queues.get(name)
        if queue is None:
            with pytest.raises(QueueNotFound):
                txn.real.get(name)
            return
        if queue.subscriptions:
            subscription = sorted(queue.subscriptions)[which % len(queue.subscriptions)]
        source = name if queue.kind == "work" else f"{name}/{subscription}"
        model = queue.subscriptions.get(subscription)
        if model is None:
            with pytest.raises(SubscriptionNotFound):
                txn.real.get(source)
            return
        expected = [
            n
            for n in range(len(queue.messages))
            if n not in model.read and n not in model.in_flight
        ][:limit]
        got = txn.real.get_many(source, limit)
        assert got.payloads() == [queue.messages[n] for n in expected]
        assert [m.delivery_count for m in got] == [model.returned.get(n, 0) + 1 for n in expected]
        assert got.ids == sorted(got.ids)
        model.in_flight.update(expected)
        txn.gets += [(name, subscription, n) for n in expected]

    @rule(which=PICK)
    def record(self, which: int) -> None:
        txn = self.pick(which)
        txn.version = (self.ledger or 0) + 1
        txn.real.enter("key", txn.version)

    @rule(which=PICK)
    def commit(self, which: int) -> None:
        txn = self.pick(which)
        if self.refused_by_the_ledger(txn, txn.real.commit):
            return
        self.open_transactions.remove(txn)
        txn.real.commit()
        self.committed(txn)

    def refused_by_the_ledger(self, txn: ModelTransaction, end: Callable[[], None]) -> bool:
        """Whether `end` has to be refused, and is; a held key leaves the transaction open."""
        if txn.version is None:
            return False
        if txn.version <= (self.ledger or 0):
            self.open_transactions.remove(txn)
            with pytest.raises(AlreadyCommitted):
                end()
            self.give_back(txn)
            return True
        if any(t.version is not None for t in self.prepared.values()):
            with pytest.raises(KeyHeld):
                end()
            return True
        return False

    def committed(self, txn: ModelTransaction) -> None:
        for name, payloads in txn.puts.items():
            self.queues[name].messages += payloads
        for name, subscription, n in txn.gets:
            model = self.queues[name].subscriptions[subscription]
            model.in_flight.remove(n)
            model.returned.pop(n, None)
            model.read.add(n)
        if txn.version is not None:
            self.ledger = txn.version

    @rule(which=PICK, xid=XIDS)
    def prepare(self, which: int, xid: str) -> None:
        txn = self.pick(which)
        if self.refused_by_the_ledger(txn, lambda: txn.real.prepare(xid)):
            return
        if xid in self.prepared:
            with pytest.raises(XidExists):
                txn.real.prepare(xid)
            return
        self.open_transactions.remove(txn)
        txn.real.prepare(xid)
        self.prepared[xid] = txn

    @rule(xid=XIDS, commit=st.booleans(), by_xid=st.booleans())
    def decide(self, xid: str, commit: bool, by_xid: bool) -> None:
        decide = self.store.prepared.commit if commit else self.store.prepared.rollback
        txn = self.prepared.pop(xid, None)
        if txn is None:
            with pytest.raises(TransactionNotFound):
                decide(xid)
            return
        if by_xid or txn.real is None:
            decide(xid)
        else:
            (txn.real.commit if commit else txn.real.rollback)()
        if txn.real is not None:
            assert txn.real.state == ("committed" if commit else "rolled back")
        if commit:
            self.committed(txn)
        else:
            self.give_back(txn)

    @rule(which=PICK)
    def rollback(self, which: int) -> None:
        txn = self.pick(which)
        self.open_transactions.remove(txn)
        txn.real.rollback()
        self.give_back(txn)

    def give_back(self, txn: ModelTransaction) -> None:
        for name, subscription, n in txn.gets:
            model = self.queues[name].subscriptions[subscription]
            model.in_flight.remove(n)
            model.returned[n] = model.returned.get(n, 0) + 1

    # The store as a whole

    @rule()
    def checkpoint(self) -> None:
        self.store.admin.checkpoint()

    @rule()
    def close_and_open(self) -> None:
        self.store.close()
        self.opened_again()

    @rule()
    def kill(self) -> None:
        self.env = self.env.kill()
        self.opened_again()

    @rule(nth=st.integers(1, 30))
    def error_in_a_checkpoint(self, nth: int) -> None:
        """Whatever it leaves: no commit is uncertain, so the next process finds all of them."""
        fault = self.env.fail_at(self.env.calls.last_number + nth)
        with contextlib.suppress(StoreFailed):
            self.store.admin.checkpoint()
        fault.cancel()
        self.env = self.env.kill()
        self.opened_again()

    @rule(seed=st.integers(0, 1 << 20))
    def power_failure(self, seed: int) -> None:
        self.env = self.env.crash(seed=seed)
        self.opened_again()

    def opened_again(self) -> None:
        """Open transactions are gone; how often their messages were delivered may be, too.

        What is prepared stays, and what it has got stays in flight.
        """
        for txn in self.open_transactions:
            self.give_back(txn)
        self.open_transactions = []
        for txn in self.prepared.values():
            txn.real = None
        self.store = self.open()
        for name, queue in self.queues.items():
            for subscription, model in queue.subscriptions.items():
                model.in_flight = {
                    n
                    for t in self.prepared.values()
                    for known, known_subscription, n in t.gets
                    if (known, known_subscription) == (name, subscription)
                }
                self.learn_deliveries(name, queue, subscription, model)

    def learn_deliveries(
        self, name: str, queue: ModelQueue, subscription: str, model: ModelSubscription
    ) -> None:
        """The counts are kept by checkpoints alone: they may be lower than before, never higher."""
        found = self.store._context.state.names[name]
        real = found.subscription(subscription or None)
        before, model.returned = model.returned, {}
        for n in range(len(queue.messages)):
            if n not in model.read and real.deliveries(n) > 1:
                model.returned[n] = real.deliveries(n) - 1
                assert model.returned[n] <= before.get(n, 0)

    @invariant()
    def the_queues_agree(self) -> None:
        infos = {info.name: info for info in self.store.queues()}
        assert set(infos) == set(self.queues)
        assert self.store.integration.ledger("key") == self.ledger
        assert {info.xid: info.messages for info in self.store.prepared.list()} == {
            xid: sum(map(len, txn.puts.values())) for xid, txn in self.prepared.items()
        }
        for name, queue in self.queues.items():
            kept = queue.kept()
            assert infos[name].messages == len(kept)
            assert infos[name].end_position == len(queue.messages)
            assert self.store.browse(name, max_messages=10_000).payloads() == [
                queue.messages[n] for n in kept
            ]
            writers = [t.puts[name] for t in self.prepared.values() if name in t.puts]
            if not kept and not any(name in t.puts for t in self.open_transactions):
                assert infos[name].used_bytes == sum(map(prepared_bytes, writers))
            assert infos[name].prepared == len(writers)
            assert [s.delivered for s in self.store.subscriptions(name)] == [
                len(s.in_flight) for _, s in sorted(queue.subscriptions.items())
            ]
            assert infos[name].open_transactions == sum(
                name in t.puts for t in self.open_transactions
            )

    def teardown(self) -> None:
        report = self.store.admin.verify()
        assert report.ok, report.findings
        self.store.close()


def run(examples: int, steps: int, phases: tuple[Phase, ...] = tuple(Phase)) -> None:
    """So many runs of so many steps each, on the seed of the test run."""
    run_state_machine_as_test(
        StoreMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            phases=phases,
            report_multiple_bugs=False,
        ),
    )


@pytest.mark.cases(8)
@pytest.mark.promise(2)
@pytest.mark.promise(3)
@pytest.mark.promise(8)
@pytest.mark.fuzz
def test_the_store_does_what_the_model_does(rounds: int) -> None:
    """Queues, subscriptions, several open transactions, checkpoints, reopenings and crashes."""
    run(rounds * 2, 40)


def run_broken_store() -> None:
    """Run until it is caught, which ends it.

    A prepared transaction without its reads is a record that no reader takes: the store ends.
    """
    with pytest.raises((AssertionError, QueueInUse, StoreClosed, StoreCorrupt)):
        run(2000, 40, (Phase.generate,))


@pytest.mark.cases(8)
@pytest.mark.fuzz
def test_canary_forgets_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that forgets the first of what was read."""
    whole = Committer.commit

    def commit(self: Committer, transaction: Any, plan: CommitPlan) -> None:
        plan.taken = plan.taken[1:]
        whole(self, transaction, plan)

    monkeypatch.setattr(Committer, "commit", commit)
    run_broken_store()


@pytest.mark.cases(8)
@pytest.mark.fuzz
def test_canary_gives_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store in which what was rolled back is not delivered at its place again."""
    monkeypatch.setattr(
        TransactionReads, "give_back", lambda self, _reason=None: self.taken.clear()
    )
    run_broken_store()


def test_the_model_knows_the_charge_of_a_message(sim_store: Store) -> None:
    """What a message counts: its payload, 16 bytes, and its transaction's control records."""
    sim_store.create_queue("q", kind="work")
    sim_store.put("q", b"x" * 100)
    assert sim_store.queue("q").used_bytes == 100 + MESSAGE_OVERHEAD_BYTES + CONTROL
    sim_store.create_queue("small", kind="work", capacity=4096)
    with pytest.raises(QueueFull):
        sim_store.put("small", b"x" * 4096)
