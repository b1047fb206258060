"""Orders inside the engine: ranks, sequences, memory, restarts, and codes that are missing."""

from __future__ import annotations

import random
import sys
import threading
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import quire
from quire.definitions.order import AttributeOrder, Order, SequenceOrder
from quire.engine import EmbeddedStore as Store
from quire.engine.delivery import ready_positions
from quire.engine.delivery.delivery_counts import DeliveryCounts
from quire.engine.delivery.ready_positions import Line
from quire.engine.delivery.selection import Selection, SelectionHeaders
from quire.engine.delivery.sequences import NO_SEQUENCE, Sequences, _split, link_of
from quire.engine.reading.ranks import _ranks_of, number_rank, text_rank
from quire.engine.records.format import DATA
from quire.engine.state.attempts import Attempts
from quire.errors import InvalidArgument, QueueDisabled, StoreCorrupt
from quire.intervals import IntervalSet
from quire.limits import LAST_RANK, MAX_DATA_BLOCK_BYTES, SCATTERED_BLOCK_BYTES
from quire.testing import SimEnv
from tests.engine.workload import open_store
from tests.kit.limits import Limits
from tests.kit.messages import take
from tests.kit.registries import order_codes

SECOND = 1_000_000
BY_NUMBER: AttributeOrder = {"attribute": "due", "numeric": True}
BY_SEQUENCE: SequenceOrder = {"sequence": "seq", "wait": 5.0}


registry = pytest.fixture(autouse=True)(order_codes)


def put_numbers(store: Store, *numbers: int, sender: str = "a") -> None:
    """Messages of a sender, whose payloads are their numbers."""
    for number in numbers:
        store.put("q", b"%d" % number, sender=sender, attributes={"seq": str(number)})


def reopened(store: Store, env: SimEnv) -> tuple[Store, SimEnv]:
    """After a kill."""
    env = env.kill()
    store.abandon("the machine of before")
    return open_store(env), env


# Ranks


def test_ranks_are_in_the_order_of_numbers(rng: random.Random) -> None:
    """Whole ones exactly, among floats; at the edges of what 64 bits hold, too."""
    edges = [0, 1, 2**53, 2**62, 2**63]
    whole = [sign * (edge + step) for sign in (1, -1) for edge in edges for step in (-2, -1, 0, 1)]
    whole += [rng.randrange(-(2**62), 2**62) for _ in range(50)]
    floats = [0.5, -0.0, 1e300, -1e300, float("inf"), float("-inf"), 2.0**53, 1e-310]
    values = sorted({*whole, *floats, *(rng.gauss(0, 1e6) for _ in range(50))})
    ranks = [number_rank(value) for value in values]
    assert all(low < high for low, high in pairwise(ranks))
    assert ranks[-1] < number_rank(float("nan")) == number_rank(None) == LAST_RANK
    assert number_rank(10**400) == ranks[-1]
    within = np.array([n for n in whole if -(2**63) <= n < 2**63])
    some = [float(n) for n in values if abs(n) < 2**62]
    for keys in (within, np.array(some), np.array([2**64 - 1, 5], np.uint64), np.array([True])):
        assert _ranks_of(keys).tolist() == [number_rank(key) for key in keys.tolist()]
    assert _ranks_of(np.array([np.nan, 1.0])).tolist() == [LAST_RANK, number_rank(1)]


def test_ranks_are_in_the_order_of_texts(rng: random.Random) -> None:
    """By so many bytes of them; a missing one comes after all."""
    texts = [bytes(rng.choices(b"\x00ab\xff", k=rng.randrange(70))) for _ in range(300)]
    for text in (*texts, b"", b"\xff" * 100):
        assert text_rank(text) == text_rank(memoryview(text)) < LAST_RANK
    by_rank = sorted(texts, key=text_rank)
    assert [text[:64].rstrip(b"\0") for text in by_rank] == sorted(
        text[:64].rstrip(b"\0") for text in texts
    )


def links(count: int, several: int) -> list[int]:
    """Numbers of so many senders, each in order."""
    return [link_of(n // several + 1, n % several + 1) for n in range(count)]


MEMORY: dict[str, tuple[Order, Callable[[int], list[int]]]] = {
    "numbers": (BY_NUMBER, lambda count: [number_rank(n * 1e9) for n in range(count)]),
    "texts": (BY_NUMBER, lambda count: [text_rank(b"%064d" % n) for n in range(count)]),
    "few senders": (BY_SEQUENCE, lambda count: links(count, 10)),
    "a sender each": (BY_SEQUENCE, lambda count: links(count, count)),
    "waiting": (
        {**BY_SEQUENCE, "most": 10_000},
        lambda count: [link_of(n + 5, n % 10) for n in range(count)],
    ),
}


@pytest.mark.cases(3)
@pytest.mark.parametrize("kind", MEMORY)
def test_memory_of_orders(kind: str) -> None:
    """Below 200 bytes for each message that waits, as counted, and as the interpreter allocates."""
    count = 20_000
    order, make = MEMORY[kind]
    full = {"wait": 5.0, "most": 1000, **order}  # type: ignore[dict-item]
    ranks = np.empty(count, object)
    ranks[:] = make(count)
    np.random.default_rng(1).shuffle(ranks)
    times = np.full(count, 7) if "sequence" in full else None
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    done, attempts = IntervalSet(), DeliveryCounts(Attempts())
    selection = Selection(IntervalSet(), 0, order=full)
    selection.learn(0, SelectionHeaders(ranks, times=times), done, 0, 0)
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    # Made before it began to count: an int that a code is built of, but not in it.
    assert used < count * 200
    assert 0.8 * used < selection.memory_bytes < 1.3 * used
    selection.advance(10**12, 10**12, count)
    runs = [selection.take(1, attempts) for _ in range(count)]
    assert sorted(run[0] for run in runs if run) == list(range(count))
    for run in runs:
        assert run is not None
        selection.forget(*run)
        done.add(*run)
    left = 200_000 if "sender" not in kind else count * 200  # who is known stays so
    assert selection.memory_bytes < left
    assert sys.getsizeof(selection) < 1000


# Lines against a plain list


@pytest.mark.fuzz
@pytest.mark.parametrize("limit", [1, 4, 8192])
def test_a_line_shows_the_lowest(
    seed: int, rounds: int, limit: int, monkeypatch: pytest.MonkeyPatch, limits: Limits
) -> None:
    """However codes came: one by one, together, in turn, again, short or long, and some read."""
    for name in ("LINE_RUN", "HEAPIFIED", "LANE_SLACK"):
        monkeypatch.setattr(ready_positions, name, min(limit, getattr(ready_positions, name)))
    limits(LONGEST_CODE=1 << 20)
    for number in range(rounds):
        draw_line(random.Random(seed + number))


def draw_line(rng: random.Random) -> None:
    """One of them, and what it shows after each change."""
    line, said = Line(), list[int]()
    for _ in range(300):
        way = rng.choice(["pop", "pop", "add", "push", "extend", "next", "drop"])
        if way == "pop" and said:
            assert line.first() == said[0]
            line.pop()
            del said[0]
        elif way == "drop" and rng.random() < 0.2:
            done = IntervalSet.from_list([(code, code + 1) for code in said if rng.random() < 0.3])
            line.drop(done)
            said = [code for code in said if not done.contains(code)]
        elif way in ("add", "next"):
            code = rng.randrange(1 << 21) if way == "add" else said[-1] + 1 if said else 0
            line.add(code)
            said.append(code)
        elif way in ("push", "extend"):
            codes = rng.sample(range(1 << (21 if way == "push" else 20)), rng.randrange(1, 12))
            said += codes
            if way == "push":
                line.learn(np.array(codes), np.zeros(len(codes), object))
            else:
                line.extend(np.array(sorted(codes)))
        said.sort()
        assert (len(line), bool(line)) == (len(said), bool(said))
        assert line.first() == (said[0] if said else -1)
        assert sorted(line.codes()) == said


# Sequences against a plain model


@dataclass
class Sender:
    """Which number is next, and what waits: number, position, when it is due."""

    expected: int | None = None
    waiting: list[tuple[int, int, int]] = field(default_factory=list)


class Model:
    """The rules of SQ1 and SQ2, said in the plainest way."""

    def __init__(self, wait_us: int, most: int) -> None:
        self.wait_us, self.most = wait_us, most
        self.senders: dict[int, Sender] = {}
        self.gaps: dict[int, int] = {}

    def arrive(self, position: int, number: int, sender: int, time_us: int) -> list[int]:
        """The positions that are let through."""
        known = self.senders.setdefault(sender, Sender())
        known.waiting.append((number, position, time_us + self.wait_us))
        shown = self.follow(known)
        if len(known.waiting) > self.most:
            shown += self.force(known)
        return shown

    def follow(self, known: Sender) -> list[int]:
        shown = []
        while known.waiting:
            first = min(known.waiting)
            if first[0] > (1 if known.expected is None else known.expected):
                break
            known.waiting.remove(first)
            known.expected = max(known.expected or 0, first[0] + 1)
            shown.append(first[1])
        return shown

    def force(self, known: Sender) -> list[int]:
        number, position, _ = min(known.waiting)
        self.gaps[position] = -1 if known.expected is None else number - known.expected
        known.expected = number
        return self.follow(known)

    def overdue(self, now_us: int) -> list[int]:
        shown = []
        for known in self.senders.values():
            while any(due <= now_us for _, _, due in known.waiting):
                shown += self.force(known)
        return shown


def compare(rng: random.Random, rounds: int) -> None:
    """Random messages of a few senders: what is let through, what is missing, in which ranks."""
    for _ in range(rounds):
        wait_us, most = rng.choice([0, 5, 20]), rng.choice([1, 3, 100])
        found, model = Sequences(wait_us / 1e6, most), Model(wait_us, most)
        ranks: dict[tuple[int, int], int] = {}
        now, top = 0, [1, 1, 1]
        for position in range(60):
            now += rng.choice([0, 1, 4])
            if rng.random() < 0.1:
                row = found.arrive(position, NO_SEQUENCE, 0, now)
                assert row == [(position, position << 20, 0)]
                continue
            sender = rng.randrange(3)
            number = max(0, top[sender] + rng.choice([0, 0, 0, 1, 2, -1, -3]))
            top[sender] = max(top[sender], number + 1)
            shown = found.arrive(position, link_of(number, sender), position % 7, now)
            expected = model.arrive(position, number, sender, now)
            assert [row[0] for row in shown] == expected
            if rng.random() < 0.3:
                late = found.overdue(now)
                assert sorted(row[0] for row in late) == sorted(model.overdue(now))
                shown += late
            assert all(group == at % 7 for at, _, group in shown)
            ranks |= {(rank, at): at for at, rank, _ in shown}
            waiting = [_split(code)[1] for codes in found._waiting.values() for code in codes]
            assert sorted(waiting) == sorted(
                at for known in model.senders.values() for _, at, _ in known.waiting
            )
        assert found.gaps == model.gaps
        assert found.missed == len(model.gaps)
        assert len(ranks) == len(set(ranks.values()))


def test_sequences_are_let_through_as_the_model_says(rng: random.Random) -> None:
    """Whatever is missing, late, or comes again."""
    compare(rng, 300)


def test_a_sequence_that_waits_for_nothing_is_caught(
    rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A canary."""
    monkeypatch.setattr(Sequences, "_follow", lambda *_: None)
    with pytest.raises(AssertionError):
        compare(rng, 20)


def test_ranks_follow_numbers(rng: random.Random) -> None:
    """Of what a sender sends in any order, whoever else is there."""
    for _ in range(50):
        found = Sequences(5.0, 1000)
        numbers = {sender: rng.sample(range(1, 21), 20) for sender in range(3)}
        by_rank: list[tuple[int, int, int, int]] = []
        where: dict[int, tuple[int, int]] = {}
        position = 0
        while any(numbers.values()):
            sender = rng.choice([s for s, left in numbers.items() if left])
            where[position] = sender, numbers[sender].pop()
            link = link_of(where[position][1], sender)
            for at, rank, _ in found.arrive(position, link, 0, 0):
                by_rank.append((rank, at, *where[at]))
            position += 1
        assert len(by_rank) == 60
        for sender in range(3):
            assert [row[3] for row in sorted(by_rank) if row[2] == sender] == list(range(1, 21))


def test_senders_that_are_not_heard_are_forgotten(limits: Limits) -> None:
    """So that memory is bounded: what comes then waits, and tells that something may be missing."""
    limits(SEQUENCE_SENDERS=3)
    found = Sequences(1.0, 10)
    for sender in range(4):
        assert found.arrive(sender, link_of(1, sender), 0, 0)
    assert found.arrive(4, link_of(2, 0), 0, 0)  # it is heard again
    for sender in range(4, 8):
        assert found.arrive(sender + 1, link_of(1, sender), 0, 0)
    assert found.arrive(20, link_of(2, 1), 0, 0) == []
    assert found.overdue(SECOND) == [(20, 20 << 20, 0)]
    assert found.gaps == {20: -1}
    assert len(found._known) + len(found._older) <= 6


def test_what_comes_back_is_due_before_those_that_wait() -> None:
    """As it came before them, whatever came in between."""
    found = Sequences(1.0, 10)
    assert found.arrive(20, link_of(7, 1), 0, 50) == []
    assert found.arrive(8, link_of(5, 1), 0, 10) == []
    assert found.overdue(SECOND + 10) == [(8, 8 << 20, 0)]
    assert found.overdue(SECOND + 49) == []
    assert found.overdue(SECOND + 50) == [(20, 20 << 20, 0)]


def test_dues_that_nobody_waits_for_are_forgotten() -> None:
    """Where each message waits for a moment, of a time that is a year."""
    found = Sequences(366 * 86400.0, 10)
    for number in range(1, 6000, 2):
        found.arrive(number, link_of(number + 1, 1), 0, number)
        found.arrive(number + 1, link_of(number, 1), 0, number)
    assert not found._waiting
    assert found.next_due_us is None
    assert len(found._due) < 1100


# Restarts


def test_a_sequence_is_in_order_after_a_restart(env: SimEnv, limits: Limits) -> None:
    """Also where its messages are looked at in parts, long after they were due.

    What is read is known: nothing is missing before what follows it, though it is gone.
    """
    limits(ORDERED_AT_ONCE=4)
    store = open_store(env)
    store.create_queue("q", kind="work", order=BY_SEQUENCE)
    put_numbers(store, 1, 2)
    assert take(store, "q") == [b"1", b"2"]
    numbers = [3, 12, 11, 10, 9, 8, 7, 6, 5, 4]
    put_numbers(store, *numbers)
    store.admin.checkpoint()
    env.advance(60)
    store, env = reopened(store, env)
    with store.transaction() as txn:
        batch = txn.get_many("q")
        assert batch.payloads() == [b"%d" % number for number in sorted(numbers)]
        assert [m.attributes.get("quire.missing") for m in batch] == [None] * 10
    store.close()


def test_what_was_read_of_a_block_tells_what_is_next(env: SimEnv) -> None:
    """After a restart: the rest of the block waits for nothing that was read."""
    store = open_store(env)
    store.create_queue("q", kind="work", order=BY_SEQUENCE)
    with store.transaction() as txn:
        txn.put("q", b"first")
        for number in (3, 4, 5, 7):
            txn.put("q", b"%d" % number, attributes={"seq": str(number)})
    env.advance(10)
    with store.transaction() as txn:
        batch = txn.get_many("q", 3)
        assert batch.payloads() == [b"first", b"3", b"4"]
        txn.reject(batch[0])
    store, env = reopened(store, env)
    put_numbers(store, 2, sender="of another name")
    with store.transaction() as txn:
        batch = txn.get_many("q")
        assert batch.payloads() == [b"first", b"5", b"7"]
        assert [m.attributes.get("quire.missing") for m in batch] == [None, None, "1"]
    assert store.subscriptions("q")[0].delayed == 1
    assert store.subscriptions("q")[0].gaps == 1
    store.close()


def test_who_is_not_known_waits_since_its_commit(env: SimEnv) -> None:
    """Not since the restart; and what is missing before it is unknown."""
    store = open_store(env)
    store.create_queue("q", kind="work", order=BY_SEQUENCE)
    put_numbers(store, 5)
    env.advance(3)
    store, env = reopened(store, env)
    assert take(store, "q") == []
    env.advance(3)
    with store.transaction() as txn:
        message = txn.get("q")
        assert message is not None
        assert message.attributes == {"seq": "5", "quire.missing": "unknown"}
    store.close()


def test_what_expires_is_not_missing(env: SimEnv) -> None:
    """Nor what is not due yet, before the time to wait for it is over."""
    store = open_store(env)
    store.create_queue("q", kind="work", order=BY_SEQUENCE, timed=True)
    store.put("q", b"1", attributes={"seq": "1"}, expires_at=env.now_us() + 1)
    env.advance(1)
    with store.transaction() as txn:
        txn.put("q", b"2", attributes={"seq": "2"})
        txn.put("q", b"3", attributes={"seq": "3"}, deliver_at=env.now_us() + 2 * SECOND)
        txn.put("q", b"4", attributes={"seq": "4"})
    assert take(store, "q") == [b"2"]
    env.advance(3)
    assert take(store, "q") == [b"3", b"4"]
    assert store.subscriptions("q")[0].gaps == 0
    assert store.queue("q").messages == 0
    store.close()


def test_what_is_read_past_is_not_waited_for(env: SimEnv) -> None:
    """By a `read_to` of another, or a move: what follows comes at once, or in order again."""
    store = open_store(env)
    store.create_queue("q", kind="topic", order=BY_SEQUENCE, keep_forever=True)
    store.subscribe("q", "s")
    put_numbers(store, 3, 4, 6)
    with store.transaction() as txn:
        assert txn.get("q/s") is None
        txn.read_to("q/s", 1)
    assert store.subscriptions("q")[0].delayed == 1
    with store.transaction() as txn:
        assert txn.get_many("q/s").payloads() == [b"4"]
    with store.transaction() as txn:
        txn.seek("q/s", 0)
    env.advance(10)
    with store.transaction() as txn:
        assert txn.get_many("q/s").payloads() == [b"3", b"4", b"6"]
    store.close()


def test_a_damaged_block_comes_last(seed: int) -> None:
    """As a message that has nothing to be ordered by; the others are delivered."""
    env = SimEnv(seed)
    with open_store(env, path="/s") as store:
        store.create_queue("q", kind="work", order=BY_NUMBER)
        for number in (3, 1, 2):
            with store.transaction() as txn:
                txn.put("q", b"%d" % number * 9000, attributes={"due": str(number)})
        store.admin.checkpoint()
        [path] = [path for path in env.files() if path.endswith(".dat")]
        at = env.contents(path).index(b"1" * 9000)
    env.corrupt(path, at)
    with open_store(env, path="/s") as store, store.transaction() as txn:
        assert [payload[:1] for payload in txn.get_many("q", 2).payloads()] == [b"2", b"3"]
        with pytest.raises(StoreCorrupt):
            txn.get("q")
        txn.rollback()


# Registered code


def test_an_entry_point_gives_an_order(
    tmp_path: Path, store_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function, or a class whose objects are called."""
    installed = tmp_path / "packages" / "sorting-1.0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: sorting\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(
        "[quire.orders]\ndown = sorting:down\nup = sorting:Up\nbroken = sorting:no\n"
        "none = sorting:none\n"
    )
    (tmp_path / "packages" / "sorting.py").write_text(
        "none = 7\ndef down(headers):\n    return -headers['priority'].to_numpy()\n"
        "class Up:\n    def __call__(self, headers):\n        return headers['priority']\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    try:
        with Store.open(store_path, segment_bytes=4 << 20) as store:
            for order, expected in (("down", [b"2", b"1"]), ("up", [b"1", b"2"])):
                store.create_queue(order, kind="work", order=order)
                store.put(order, b"1", priority=1)
                store.put(order, b"2", priority=2)
                assert store.get_many(order).payloads() == expected
            for order, why in (("broken", "cannot be loaded"), ("none", "a function of headers")):
                with pytest.raises(InvalidArgument, match=why):
                    store.create_queue(order, kind="topic", order=order)
    finally:
        sys.modules.pop("sorting", None)


def test_an_owner_without_the_code_stops_that_queue_only(
    env: SimEnv, registry: dict[str, Any]
) -> None:
    """In words that name the order; it goes on with the code, or with another order."""
    quire.register_order("mine", lambda headers: headers["priority"])
    store = open_store(env)
    store.create_queue("q", kind="work", order="mine", timed=True)
    store.create_queue("plain", kind="work")
    store.put("q", b"2", priority=2)
    store.put("q", b"1", priority=1)
    registry.clear()
    store, env = reopened(store, env)
    for call in (
        lambda: store.put("q", b"y"),
        lambda: store.get("q"),
        lambda: store.get("q", timeout=1.0),
        lambda: store.put_many("q", [b"y"]),
    ):
        with pytest.raises(QueueDisabled, match="queue 'q' is stopped: order 'mine' is not known"):
            call()
    store.alter_queue("q", text="still stopped")
    with pytest.raises(QueueDisabled, match="mine"):
        store.get("q")
    with pytest.raises(InvalidArgument, match="mine"):
        store.create_queue("more", kind="topic", order="mine")
    store.put("plain", b"z")
    store.admin.checkpoint()
    assert store.admin.verify().ok
    store.alter_queue("q", order="commit")
    assert take(store, "q") == [b"2", b"1"]
    quire.register_order("mine", lambda headers: headers["priority"])
    store.alter_queue("q", order="mine")
    registry.clear()
    store, env = reopened(store, env)
    with pytest.raises(QueueDisabled, match="mine"):
        store.get("q")
    quire.register_order("mine", lambda headers: headers["priority"])
    store, env = reopened(store, env)
    assert take(store, "q") == []
    store.drop_queue("q")
    store.close()


def test_what_is_no_order_is_refused() -> None:
    """What is no order is refused by its name, or by what it is."""
    for name in ("commit", "priority", "", ".x", 5):
        with pytest.raises(InvalidArgument, match="give another name"):
            quire.register_order(name, len)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="a function of headers"):
        quire.register_order("mine", 7)  # type: ignore[arg-type]


# Many at once


def test_many_threads_keep_the_order_of_senders(store_path: str) -> None:
    """Each sender's numbers are handed out in order, however they were sent and rolled back."""
    count, senders = 60, 4
    with Store.open(store_path, segment_bytes=4 << 20) as store:
        store.create_queue("q", kind="work", order={"sequence": "seq", "wait": 600})
        handed: dict[str, list[int]] = {str(sender): [] for sender in range(senders)}
        lock = threading.Lock()

        def put(sender: int) -> None:
            rng = random.Random(sender)
            numbers = list(range(1, count + 1))
            for at in range(0, count, 5):  # each a little out of order
                part = numbers[at : at + 5]
                rng.shuffle(part)
                for number in part:
                    attributes = {"seq": str(number)}
                    store.put("q", b"%d" % number, sender=str(sender), attributes=attributes)

        def get(seed: int) -> None:
            rng = random.Random(seed)
            while sum(map(len, handed.values())) < count * senders:
                with lock, store.transaction() as txn:  # so that what is noted is in order
                    batch = list(txn.get_many("q", 3))
                    if rng.random() < 0.3:
                        txn.rollback()
                        continue
                    for message in batch:
                        handed[str(message.sender)].append(int(message.payload))

        with ThreadPoolExecutor(2 * senders) as pool:
            done = [pool.submit(put, sender) for sender in range(senders)]
            done += [pool.submit(get, seed) for seed in range(senders)]
            for one in done:
                one.result()
        assert handed == {str(sender): list(range(1, count + 1)) for sender in range(senders)}
        assert store.subscriptions("q")[0].gaps == 0


KEYED: AttributeOrder = {"attribute": "key", "numeric": True}


@pytest.mark.cases(4)
@pytest.mark.parametrize(
    ("properties", "most"),
    [
        ({"order": KEYED}, SCATTERED_BLOCK_BYTES),
        ({"order": {"sequence": "key"}}, MAX_DATA_BLOCK_BYTES),
        ({"order": "priority"}, MAX_DATA_BLOCK_BYTES),
        ({}, MAX_DATA_BLOCK_BYTES),
    ],
)
@pytest.mark.parametrize("large", [False, True])
def test_blocks_are_small_where_messages_are_taken_from_anywhere(
    store: Store, properties: dict[str, Any], most: int, large: bool
) -> None:
    """Of a queue by keys alone, whose next message may be in any block: in pages and in files."""
    store.create_queue("q", kind="work", **properties)
    count = 5 * MAX_DATA_BLOCK_BYTES // 1000  # large enough for a file
    pairs = [[("key", str(count - number))] for number in range(count)]
    columns = {
        "payload": pa.array([b"x" * 1000] * count, pa.binary()),
        "attributes": pa.array(pairs, pa.map_(pa.string(), pa.string())),
    }
    with store.transaction(large=large) as txn:
        txn.put_many("q", pa.table(columns))
    queue, reader = store._context.state.queue("q"), store._context.reader
    with queue.lock:
        refs = [pointer.ref for pointer in queue.pointers(0, count)]
    lengths = [ref.length for ref in refs]
    if large:
        [ref] = refs
        with reader.ltds(ref) as file:
            lengths = [block.length for block, _ in file]
    assert most // 2 < max(lengths) <= most
    if properties == {"order": KEYED}:
        assert [m.attributes["key"] for m in store.get_many("q", 3)] == ["1", "2", "3"]


def test_a_checkpoint_packs_no_more_than_a_block_of_the_queue(store: Store) -> None:
    """Small blocks of the journal become blocks of the size that suits the queue's order."""
    lengths = {}
    orders: dict[str, Order] = {"q": "commit", "k": KEYED}
    for name, order in orders.items():
        store.create_queue(name, kind="work", order=order)
        for number in range(30):
            store.put_many(name, [b"x" * 1000] * 5 + [b"%d" % number])
    store.admin.checkpoint()
    for name in "qk":
        queue = store._context.state.queue(name)
        with queue.lock:
            refs = [pointer.ref for pointer in queue.pointers(0, 180)]
        assert {ref.kind for ref in refs} == {DATA}
        lengths[name] = [ref.length for ref in refs]
    assert len(lengths["q"]) == 1
    assert len(lengths["k"]) > 1
    assert max(lengths["k"]) <= SCATTERED_BLOCK_BYTES
