"""Data files are reorganised: what is left of a burst at a file's end moves down, and it is cut.

Invariants Z1 to Z6 of `engine/checkpoints/reorganising.py`. The small stores here have files that
grow and are cut by a few pages at a time, so that the same happens in them as after a burst of
100 MB.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.engine import PieceReader
from quire.engine.checkpoints import space_maps
from quire.engine.checkpoints.reorganising import Reorganisation
from quire.engine.pages.block_places import Extent
from quire.engine.pages.io_manager import IoManager
from quire.env import Env
from quire.errors import DiskFull, PositionLost, StoreCorrupt, StoreFailed
from quire.testing import Call, SimEnv, enumerate_crashes
from tests.engine.page_guard import guard_pages
from tests.engine.workload import (
    ALL,
    PATH,
    Effects,
    Held,
    Oracle,
    Runner,
    Workload,
    check_ids,
    check_space,
    check_store,
    drain,
    gone_on,
    new_machine,
    open_store,
)
from tests.kit.limits import Limits
from tests.kit.messages import take
from tests.kit.waiting import SECONDS

pytestmark = [pytest.mark.crash, pytest.mark.cases(7, of_file=True)]

SLACK = 1 << 20  # what the engine leaves free at the end
SMALL: dict[str, Any] = {"grow_bytes": 8192}
LEFT = 3  # messages of the burst's end that stay unread


@pytest.fixture
def small_slack(limits: Limits) -> None:
    """Files are cut to a few pages more than what is in use."""
    limits(FILE_SLACK_BYTES=8192)


@pytest.fixture
def keen(small_slack: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearly every checkpoint reorganises, however little that brings."""

    def cut(manager: IoManager, looser: int = 0) -> int | None:
        space = manager.space
        end = space.total_pages - space.free_pages + (2 << looser)
        return end if end < space.end_in_use else None

    monkeypatch.setattr(IoManager, "cut", cut)


# After a burst ------------------------------------------------------------------------------------


def payload(number: int) -> bytes:
    """A message of 1 MB."""
    return b"%03d" % number * 333_334


def burst(store: Store, files: int) -> None:
    """100 x 1 MB to a work queue and a topic, 95 taken; 5 of the end stay, all after one another.

    In the topic it is the subscription "slow" that has not read them.
    """
    store.create_queue("work", kind="work", data_file=0)
    store.create_queue("topic", kind="topic", data_file=files - 1)
    store.subscribe("topic", "fast")
    store.subscribe("topic", "slow")
    for number in range(100):
        store.put(("topic", "work")[number % 2], payload(number))
        if number == 60:
            store.admin.checkpoint()
    assert len(take(store, "topic/fast", 50)) == 50
    assert len(take(store, "topic/slow", 48)) == 48
    assert len(take(store, "work", 47)) == 47


def check_left(store: Store) -> None:
    """What the burst left is there, and every file is as small as it should be."""
    assert store.browse("work").payloads() == [payload(number) for number in (95, 97, 99)]
    assert store.browse("topic/slow").payloads() == [payload(number) for number in (96, 98)]
    report = store.admin.verify()
    assert report.ok, report.findings


def check_sizes(store: Store, path: str) -> None:
    """Each file is within 10 % of what is in use of it, and the slack."""
    for number, shown in enumerate(store.status()["data"]["files"]):
        live = shown["bytes"] - shown["free_bytes"]
        assert shown["bytes"] <= 1.1 * live + SLACK, shown
        assert Path(path, "data", f"{number}.dat").stat().st_size == shown["bytes"]


@pytest.mark.parametrize("files", [1, 2])
@pytest.mark.parametrize("way", ["checkpoint", "maintenance"])
def test_a_burst_that_is_not_all_read(
    store_path: str, files: int, way: str, limits: Limits
) -> None:
    """A few unread messages at the end do not keep the file long: they move, by a few checkpoints.

    These are made by hand, or by the maintenance for this alone, which then has no more to do.
    """
    limits(TRIM_SECONDS=0.0)
    with Store.open(store_path, background=False, data_files=files) as store:
        burst(store, files)
        before = store.status()
        assert before["data"]["bytes"] > 99_000_000
        for _ in range(4):
            if way == "checkpoint":
                store.admin.checkpoint()
            else:
                store._maintenance.step()
        check_sizes(store, store_path)
        check_left(store)
        shown = store.status()["checkpoints"]
        assert 5_000_000 < shown["reorganised_bytes"] < 5_100_000
        count = shown["count"]
        store._maintenance.step()
        assert store.status()["checkpoints"]["count"] == count
    with Store.open(store_path, background=False) as store:
        check_left(store)
        assert take(store, "work") == [payload(number) for number in (95, 97, 99)]


@pytest.mark.parametrize("files", [1, 2])
def test_each_checkpoint_moves_a_bounded_part(store_path: str, files: int, limits: Limits) -> None:
    """Z1: 2 MB at most a checkpoint, of 5, and one record page is looked at: the next goes on.

    The maintenance makes so many, and comes to rest only when all is done, in every file.
    """
    limits(TRIM_SECONDS=0.0, REORGANISE_BYTES=2 << 20, REORGANISE_RECORD_PAGES=1)
    with Store.open(store_path, background=False, data_files=files) as store:
        burst(store, files)
        moved = [0]
        for _ in range(12):
            store._maintenance.step()
            moved.append(store.status()["checkpoints"]["reorganised_bytes"])
        steps = [after - before for before, after in itertools.pairwise(moved)]
        assert max(steps) <= (2 << 20) + 4096 * 3
        assert sum(1 for step in steps if step > 0) >= 3
        check_sizes(store, store_path)
        check_left(store)


def test_online(store_path: str) -> None:
    """Readers and committers go on while what they read and write moves again and again."""
    with Store.open(store_path, data_files=2, grow_bytes=1 << 20) as store:
        burst(store, 2)
        stop = threading.Event()
        wrong: list[BaseException] = []

        def watched(step: Callable[[int], None]) -> threading.Thread:
            def run() -> None:
                try:
                    for number in itertools.count():
                        if stop.is_set():
                            return
                        step(number)
                except BaseException as error:  # noqa: BLE001 - shown by the main thread
                    wrong.append(error)

            return threading.Thread(target=run)

        def read(number: int) -> None:
            check_left_payloads(store)

        def commit(number: int) -> None:
            part = b"%d" % number * 100_000
            store.put("beside", part)
            store.put("beside", part[:50])
            assert take(store, "beside", 2) == [part, part[:50]]

        store.create_queue("beside", kind="work")
        threads = [watched(read), watched(commit)]
        for thread in threads:
            thread.start()
        for round_number in range(12):
            for _ in range(round_number % 4):  # something at the end that goes again
                store.put("work", b"x" * 1_000_000)
            with store.transaction() as transaction:
                transaction.read_to("topic/fast", store.queue("topic").end_position)
            store.admin.checkpoint()
        stop.set()
        for thread in threads:
            thread.join(SECONDS)
        assert not wrong, wrong
        assert store.status()["checkpoints"]["reorganised_bytes"] > 5_000_000
        check_left_payloads(store)
        report = store.admin.verify()
        assert report.ok, report.findings


def check_left_payloads(store: Store) -> None:
    """What the burst left, read through the record list, and taken and given back."""
    assert store.browse("work", max_messages=3).payloads() == [payload(n) for n in (95, 97, 99)]
    transaction = store.transaction()
    got = transaction.get_many("topic/slow", 2).payloads()
    transaction.rollback()
    assert got == [payload(number) for number in (96, 98)]


# A small store ------------------------------------------------------------------------------------


class Scenario:
    """A store in which much was put and taken, and the model of what is left.

    At the files' ends are blocks in sealed pages and in the tail, some of them partly read; beside
    them a prepared transaction's; and the record pages themselves.
    """

    def __init__(self, seed: int, env: SimEnv, *, prepare_at: int = 1, **options: Any) -> None:
        self.env = env
        self.oracle = Oracle()
        self.workload = Workload(seed, beside=0.0, **{**SMALL, **options})
        self.store = open_store(env, **{**SMALL, **options})
        self.oracle.created = True
        self.runner = Runner(self.workload, env, self.store, self.oracle)
        self._furnish(prepare_at)

    def _furnish(self, prepare_at: int) -> None:
        store, runner = self.store, self.runner
        store._opened.state.pages.capacity = 4  # so that there are several
        runner.change(lambda m: m.create("w0", "work"), lambda: store.create_queue("w0", "work"))
        runner.change(lambda m: m.create("t0", "topic"), lambda: store.create_queue("t0", "topic"))
        for name in ("t1", "t2"):  # for what the workload does in the midst of a checkpoint
            runner.change(
                lambda m: m.create(name, "topic"),  # noqa: B023
                lambda: store.create_queue(name, kind="topic"),  # noqa: B023
            )
        for name in "ab":
            runner.change(
                lambda m: m.subscribe("t0", name, 0),  # noqa: B023
                lambda: store.subscribe("t0", name, "earliest"),  # noqa: B023
            )
        for number in range(16):
            if number < 12:
                self.put("w0", 9000)
            self.put("t0", 4000, 3)
            if number == prepare_at:
                held = Held(store.transaction())
                self.fill(held, "w0", 9000)
                runner.change(
                    lambda m: m.prepare("x1", held.effects),  # noqa: B023
                    lambda: held.transaction.prepare("x1"),  # noqa: B023
                )
            if number == 13:
                store.admin.checkpoint()  # a full page of each is left, and of the topic more
        self.take("w0", "", 12 - LEFT)
        self.take("t0", "a", 48)
        self.take("t0", "b", 48 - 6 * LEFT + 1)

    def change(self, effect: Any, action: Callable[[], Any]) -> None:
        self.runner.change(effect, action)

    def fill(self, held: Held, name: str, size: int, count: int = 1) -> None:
        payloads = [self.runner.payload(size) for _ in range(count)]
        held.effects.ids.append((held.transaction.put_many(name, payloads), payloads))
        uid = self.oracle.model.queues[name].uid
        held.effects.puts += [(uid, part) for part in payloads]

    def put(self, name: str, size: int, count: int = 1) -> None:
        held = Held(self.store.transaction())
        self.fill(held, name, size, count)
        self.runner.change(lambda m: m.commit(held.effects), held.transaction.commit)
        self.runner.learn_ids(held)

    def take(self, name: str, subscription: str, count: int) -> None:
        queue = self.oracle.model.queues[name]
        uid = queue.names[subscription]
        positions = queue.unread(uid)[:count]
        transaction = self.store.transaction()
        source = f"{name}/{subscription}" if subscription else name
        got = transaction.get_many(source, count).payloads()
        assert got == [queue.payloads[position] for position in positions]
        effects = Effects(reads=[(queue.uid, uid, position) for position in positions])
        self.runner.change(lambda m: m.commit(effects), transaction.commit)

    def reorganised(self) -> int:
        return int(self.store.status()["checkpoints"]["reorganised_bytes"])

    def check(self) -> None:
        """The store holds what it should, now and when it is opened again."""
        check_ids(self.store, self.oracle)
        check_space(self.store, self.oracle.match(self.store))

    def check_all(self, seed: int = 0) -> None:
        """The store holds what it should, also after a power failure, until all is read."""
        self.check()
        check_store(self.env.crash(outcome="lost"), self.oracle, seed=seed, **self.workload.options)


def scenario(seed: int, **options: Any) -> Scenario:
    """On a machine of its own."""
    return Scenario(seed, new_machine(seed), **options)


def sizes(store: Store) -> list[int]:
    """Bytes of each data file."""
    return [shown["bytes"] for shown in store.status()["data"]["files"]]


def in_copies(store: Store, action: Callable[[], Any], nth: int = 1) -> Callable[[Call], None]:
    """For `before_call`: do something once the nth page or block is to be written to a data file
    by the checkpoint that reorganises.
    """
    seen = itertools.count(1)

    def before(call: Call) -> None:
        if call.kind == "write" and call.path.endswith(".dat") and next(seen) == nth:
            action()

    return before


@pytest.mark.usefixtures("small_slack")
@pytest.mark.parametrize("options", [{}, {"data_files": 2}, {"page_size": 16384}], ids=str)
def test_a_small_store_shrinks(seed: int, options: dict[str, Any]) -> None:
    """What the other tests build on: the store moves blocks and record pages, and gets shorter."""
    found = scenario(seed, **options)
    before = sum(sizes(found.store))
    for _ in range(4):
        found.store.admin.checkpoint()
    assert found.reorganised() > 20_000
    assert sum(sizes(found.store)) < before // 2
    found.check_all(seed)


@pytest.mark.cases(4)
@pytest.mark.promise(3, 8)
@pytest.mark.usefixtures("small_slack")
@pytest.mark.parametrize(("options", "beside"), [({}, 0.0), ({"data_files": 2}, 0.3)], ids=str)
def test_promise_3_8_power_failure_at_every_call(
    seed: int, rounds: int, spread: int, options: dict[str, Any], beside: float
) -> None:
    """Z2: whatever the disk keeps of a checkpoint that reorganises, nothing is lost or wrong.

    Other transactions, drops and prepared transactions come in the midst of it in half the cases.
    """
    moved = []
    options = {**SMALL, **options}
    for n in range(max(1, rounds // 12)):
        found = scenario(seed + n, **options)
        found.store.close()

        def run(env: SimEnv, oracle: Oracle) -> None:
            store = open_store(env, **options)
            workload = Workload(seed, beside=beside, first_payload=1000, **options)
            runner = Runner(workload, env, store, oracle)
            for _ in range(3):
                runner.checkpoint()
            runner.end_all()
            moved.append(store.status()["checkpoints"]["reorganised_bytes"])
            store.close()

        cases = enumerate_crashes(
            run,
            lambda env, oracle: check_store(env, oracle, seed=seed, **options),
            lambda: Oracle(True, found.oracle.model.copy(), None, dict(found.oracle.ids)),  # noqa: B023
            seed=seed + n,
            rounds=2,
            every=(spread + 1) // 2 * (1 if not beside else 2),
            new_env=lambda number: found.env.crash(seed=number, outcome="kept"),  # noqa: B023
        )
        assert cases > 30
    assert moved[0] > 20_000


@pytest.mark.promise(8)
@pytest.mark.usefixtures("small_slack")
def test_promise_8_recovered_again_and_again(seed: int) -> None:
    """A store that loses the power after each of its checkpoints, and in recovery, is the same."""
    found = scenario(seed)
    env, oracle = found.env, found.oracle
    moved = 0
    for n in range(6):
        env = env.crash(seed=n)
        store = open_store(env, **SMALL)
        model = oracle.match(store)
        check_ids(store, oracle)
        check_space(store, model)
        store.admin.checkpoint()
        moved += store.status()["checkpoints"]["reorganised_bytes"]
        if n == 5:
            drain(store, model)
    assert moved > 20_000


@pytest.mark.cases(4)
@pytest.mark.promise(11)
@pytest.mark.usefixtures("small_slack")
@pytest.mark.parametrize("fault", ["error", "full"])
def test_promise_11_a_fault_at_every_call(seed: int, fault: str) -> None:
    """Z6, K4, K7: an I/O error fails the store, a full disk not even the checkpoint."""
    sound = scenario(seed)
    start = sound.env.calls.last_number
    for _ in range(3):
        sound.store.admin.checkpoint()
    stopped = went_on = 0
    for number in range(start + 1, sound.env.calls.last_number + 1):
        found = scenario(seed)
        assert found.env.calls.last_number == start
        try:
            if fault == "error":
                found.env.fail_at(number)
            else:
                found.env.before_call = fill_up_at(found.env, number)
            for _ in range(3):
                found.store.admin.checkpoint()
        except (StoreFailed, DiskFull):
            stopped += 1
        finally:
            found.env.before_call = None
            found.env.capacity_bytes = None
        assert found.store.failed == (fault == "error")
        found.oracle.match(found.store)
        if not found.store.failed:
            for _ in range(3):
                found.store.admin.checkpoint()
            went_on += found.reorganised() > 20_000
            found.check()
        check_store(found.env.crash(seed=number), found.oracle, seed=number, **SMALL)
    assert stopped > 5 if fault == "error" else stopped == 0 and went_on > 10


def fill_up_at(env: SimEnv, number: int) -> Callable[[Call], None]:
    """For `before_call`: the disk is full from the call of this number on."""

    def before(call: Call) -> None:
        if call.number >= number and env.capacity_bytes is None:
            env.capacity_bytes = env.used_bytes()

    return before


@pytest.mark.promise(5)
@pytest.mark.usefixtures("small_slack")
def test_promise_5_no_room_for_copies(seed: int) -> None:
    """Z6: a disk that has no room for the copies leaves all where it is; the checkpoint is made."""
    found = scenario(seed)
    env = found.env.kill()
    store = open_store(env, **SMALL)
    fault = env.fail("allocate", "*.dat", error=DiskFull("no room"))
    store.admin.checkpoint()
    assert fault.hits == 1
    assert store.status()["checkpoints"]["reorganised_bytes"] == 0
    check_space(store, found.oracle.match(store))
    for _ in range(4):
        store.admin.checkpoint()
    assert store.status()["checkpoints"]["reorganised_bytes"] > 20_000
    check_space(store, found.oracle.match(store))


@pytest.mark.cases(3)
@pytest.mark.usefixtures("small_slack")
@pytest.mark.parametrize("nth", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("what", ["drop", "read", "read a part", "unsubscribe", "commit"])
def test_changes_while_blocks_are_copied(seed: int, what: str, nth: int) -> None:
    """Z3: of the old place and the copy each is freed once, whatever happens in between."""
    found = scenario(seed)
    store, model = found.store, found.oracle.model.copy()

    def drop() -> None:
        found.change(lambda m: m.drop("t0"), lambda: store.drop_queue("t0"))

    def unsubscribe() -> None:
        found.change(lambda m: m.unsubscribe("t0", "b"), lambda: store.unsubscribe("t0", "b"))

    def commit() -> None:
        found.change(lambda m: m.decide("x1", commit=True), lambda: store.prepared.commit("x1"))

    actions: dict[str, Callable[[], None]] = {
        "drop": drop,
        "unsubscribe": unsubscribe,
        "commit": commit,
        "read": lambda: found.take("t0", "b", 99),
        "read a part": lambda: found.take("t0", "b", 1),
    }
    found.env.before_call = in_copies(store, actions[what], nth)
    store.admin.checkpoint()
    found.env.before_call = None
    assert found.reorganised() > 0
    assert model != found.oracle.model  # it has happened
    found.check()
    for _ in range(3):
        store.admin.checkpoint()
        found.check()
    found.check_all(seed)


@pytest.mark.cases(4)
@pytest.mark.usefixtures("keen")
@pytest.mark.parametrize("options", [{}, {"data_files": 3}], ids=str)
def test_mixed_workloads(seed: int, rounds: int, options: dict[str, Any]) -> None:
    """Everything that a store can do, with files that its checkpoints reorganise."""
    moved = 0
    for n in range(rounds):
        env, oracle = SimEnv(seed + n), Oracle()
        workload = Workload(seed + n, steps=80, beside=0.2, **{**SMALL, **options})
        workload(env, oracle)
        assert workload.runner is not None
        moved += workload.runner.store._checkpointer.reorganised_bytes
        store = open_store(env, **SMALL)
        model = oracle.match(store)
        check_ids(store, oracle)
        check_space(store, model)
        for _ in range(3):
            store.admin.checkpoint()
        moved += store.status()["checkpoints"]["reorganised_bytes"]
        check_space(store, oracle.match(store))
        drain(store, model)
    assert moved > 100_000


@pytest.mark.promise(1, 2, 3)
@pytest.mark.usefixtures("keen")
def test_promise_1_2_3_power_failure_of_mixed_workloads(
    seed: int, rounds: int, spread: int
) -> None:
    """The same with crashes at its calls: what was acknowledged is there, whole and in order."""
    for n in range(max(1, rounds // 25)):
        cases = enumerate_crashes(
            Workload(seed + n, steps=60, **SMALL),
            lambda env, oracle: check_store(env, oracle, seed=seed, **SMALL),
            Oracle,
            seed=seed + n,
            rounds=2,
            every=7 * spread,
            resume=gone_on(seed + n, **SMALL),
        )
        assert cases > 100


@pytest.mark.promise(10)
@pytest.mark.usefixtures("keen")
def test_promise_10_mixed_workloads_overwrite_nothing(seed: int, rounds: int) -> None:
    """The same on a disk that lets no page in use be written or cut."""
    moved = 0
    least = max(1, rounds // 8)
    for n in range(least + 50):
        if n >= least and moved:  # of some seeds the first few workloads leave nothing to be moved
            break
        env, oracle = SimEnv(seed + n), Oracle()
        guard_pages(env, PATH)
        workload = Workload(seed + n, steps=80, checkpoint_bytes=100_000, **SMALL)
        workload(env, oracle)
        assert workload.runner is not None
        moved += workload.runner.store._checkpointer.reorganised_bytes
    assert moved > 0


# Leases, damage, what cannot move -----------------------------------------------------------------


def read_pieces(env: Env, pieces: list[Any]) -> list[bytes]:
    """What another process reads."""
    reader = PieceReader(PATH, env=env)
    try:
        batches = list(reader.read_all(pieces))
    finally:
        reader.close()
    return [part for batch in batches for part in batch.column("payload").to_pylist()]


@pytest.mark.usefixtures("small_slack")
def test_a_lease_keeps_the_old_places(seed: int) -> None:
    """P3: leased blocks are read where they were, also when all is read; then the file is cut."""
    found = scenario(seed)
    store, queue = found.store, found.oracle.model.queues["w0"]
    start, end = 12 - LEFT, 12
    lease = store.integration.lease("w0", start, end)
    before = sizes(store)
    for _ in range(4):
        store.admin.checkpoint()
    assert found.reorganised() > 20_000
    assert sum(sizes(store)) > sum(before) // 2
    again = store.integration.lease("w0", start, end)
    addresses = [{piece.address for piece in held.pieces} for held in (lease, again)]
    assert not addresses[0] & addresses[1]
    for held in (lease, again):
        assert read_pieces(found.env, held.pieces) == queue.payloads[start:end]
    found.take("w0", "", LEFT)
    for _ in range(3):
        found.put("w0", 9000)
        store.admin.checkpoint()
    for held in (lease, again):
        assert read_pieces(found.env, held.pieces) == queue.payloads[start:end]
        store.integration.end_lease(held.lease_id)
    for _ in range(3):
        store.admin.checkpoint()
    assert sum(sizes(store)) < sum(before) * 2 // 3
    with pytest.raises(PositionLost):
        read_pieces(found.env, lease.pieces)
    found.check_all(seed)


@pytest.mark.usefixtures("small_slack")
def test_a_reader_whose_block_has_moved_looks_it_up_anew(seed: int) -> None:
    """B2: also if it has moved once more by then, and its old place is cut off or used again."""
    found = scenario(seed)
    store = found.store
    queue = store._context.state.names["w0"]
    with queue.lock:
        pointers = queue.pointers(12 - LEFT, 12)
    for _ in range(3):
        store.admin.checkpoint()
    assert found.reorganised() > 20_000
    for _ in range(3):
        found.put("t0", 9000)
    parts = [
        part for pointer in pointers for part in store._context.delivery.fetch(queue, pointer, 1)
    ]
    got = [p for part in parts for p in part.block.payloads(part.start, part.stop)]
    assert got == found.oracle.model.queues["w0"].payloads[12 - LEFT : 12]


@pytest.mark.promise(10)
@pytest.mark.usefixtures("small_slack")
def test_promise_10_damage_is_not_copied(seed: int) -> None:
    """Z6: a damaged block stays where it is, is told of by its place, and stops no checkpoint."""
    found = scenario(seed)
    store = found.store
    queue = store._context.state.names["w0"]
    with queue.lock:
        ref = queue.pointers(10, 11)[0].ref
    found.env.corrupt(f"{PATH}/data/0.dat", ref.address + 5000)
    for _ in range(4):
        store.admin.checkpoint()
    assert found.reorganised() > 10_000
    with pytest.raises(StoreCorrupt, match=rf"0\.dat page {ref.address // 4096} "):
        store.browse("w0", max_messages=ALL)
    assert len(store.admin.verify().findings) == 1


@pytest.mark.usefixtures("small_slack")
def test_what_cannot_move_is_not_tried_for_ever(seed: int, limits: Limits) -> None:
    """Z5: a prepared transaction's pages at the end stay; the maintenance comes to rest."""
    limits(TRIM_SECONDS=0.0)
    found = scenario(seed, prepare_at=15)
    store = found.store
    counts = []
    for _ in range(12):
        store._maintenance.step()
        counts.append(store.status()["checkpoints"]["count"])
    assert counts[-1] == counts[-3] > 1
    assert store.prepared.list()[0].xid == "x1"
    found.change(lambda m: m.decide("x1", commit=True), lambda: store.prepared.commit("x1"))
    before = sum(sizes(store))
    for _ in range(12):
        store._maintenance.step()
    assert sum(sizes(store)) < before
    found.check_all(seed)


# Nothing is overwritten ---------------------------------------------------------------------------


@pytest.mark.promise(10)
@pytest.mark.usefixtures("small_slack")
@pytest.mark.parametrize("options", [{}, {"data_files": 2}], ids=str)
def test_promise_10_pages_in_use_are_not_overwritten(seed: int, options: dict[str, Any]) -> None:
    """Z2: no page that a durable record refers to is written or cut while others are moved."""
    found = scenario(seed, **options)
    guard_pages(found.env, PATH)
    for _ in range(4):
        found.store.admin.checkpoint()
        found.put("t0", 9000)
        found.take("t0", "b", 1)
    assert found.reorganised() > 20_000
    found.check()


@pytest.mark.usefixtures("small_slack")
def test_canary_a_record_page_is_changed_in_place(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reorganisation that writes new addresses over a record page is caught at the write."""
    take_low = Reorganisation._take

    def careless(self: Reorganisation, page: int, pages: int, taken: list[Extent]) -> Extent | None:
        return Extent(page, 1) if pages == 1 else take_low(self, page, pages, taken)

    monkeypatch.setattr(Reorganisation, "_take", careless)
    found = scenario(seed)
    guard_pages(found.env, PATH)
    with pytest.raises(AssertionError, match="in use by pages"):
        found.store.admin.checkpoint()


@pytest.mark.usefixtures("small_slack")
def test_canary_old_places_are_forgotten(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint that tells recovery nothing of the old places is caught by `verify`."""
    spaces_after = space_maps.spaces_after

    def forgetful(snapshots: Any, taken: Any, freed: Any, page_size: int) -> Any:
        return spaces_after(snapshots, taken, [f for f in freed if f[1] == 1], page_size)

    monkeypatch.setattr("quire.engine.checkpoints.checkpoint.spaces_after", forgetful)
    found = scenario(seed)
    found.store.admin.checkpoint()
    assert found.reorganised() > 0
    again = open_store(found.env.crash(outcome="lost"), **SMALL)
    assert any("belong to nobody" in text for text in again.admin.verify().findings)
