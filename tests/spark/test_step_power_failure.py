"""Power failures at the calls of a graph's step, on the simulated machine.

Runner, cut, fragments, values and commit are the real ones, on a disk that is simulated. The step's
function is plain Python: Spark has no part in what is durable.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from quire.engine import EmbeddedStore as Store
from quire.engine.upkeep.fragment_files import sweep_fragments
from quire.errors import QuireError
from quire.ltds import is_foreign, list_ids
from quire.spark_graphs import connection
from quire.spark_graphs.fragments import fragment_file
from quire.spark_graphs.fragments.fragment import Fragment
from quire.spark_graphs.fragments.fragment_file import FragmentWriter
from quire.spark_graphs.graphs.batches.batch_planner import standing
from quire.spark_graphs.graphs.batches.row_ranges import RowRange
from quire.spark_graphs.graphs.batches.task_store import StoreTrouble, TaskStore, trouble
from quire.spark_graphs.graphs.definition import Limit, Step
from quire.spark_graphs.graphs.functions.kept_values import KeptValues
from quire.spark_graphs.graphs.functions.step_function import StepResult, StepWork
from quire.spark_graphs.graphs.preparing import prepare
from quire.spark_graphs.graphs.steps.step_commit import StepCommit
from quire.spark_graphs.graphs.steps.step_runner import StepRunner
from quire.spark_graphs.reading.message_batch import read_partition
from quire.spark_graphs.reading.partition import QuirePartition
from quire.spark_graphs.reading.row_columns import whole_schema
from quire.spark_graphs.task_files.directory_files import directory_of
from quire.testing import SimEnv, SimulatedCrash, enumerate_crashes
from tests.engine.workload import PATH, new_machine, open_store
from tests.spark.numbered_queues import topic
from tests.spark.plain_work import GRAPH, PlainSpark

pytestmark = [pytest.mark.crash, pytest.mark.promise(1, 2)]

KEY, VALUES = f"graph/{GRAPH}/s", f"graph.{GRAPH}.step.s"
INPUTS, OUTPUTS, DEAD = ("left", "right"), ("small", "own", "shared", "shared-too"), "dead"
READER = dict.fromkeys(INPUTS, f"{GRAPH}.s")
LEFT = 3  # messages that a transaction puts to `left`; one goes to `right`
BAD = 4  # the transaction whose message in `right` the step fails with
SIZES = {"small": 5, "own": 5000, "shared": 600, "shared-too": 600}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Limits so small that each batch has fragments of every kind."""
    limits = {"INLINE_BYTES": 300, "OWN_FILE_BYTES": 5000, "FLUSH_BYTES": 6000}
    for name, size in limits.items():
        monkeypatch.setattr(fragment_file, name, size)
    yield
    connection._stores.pop((os.getpid(), PATH), None)


@dataclass
class Noted:
    """What is there for certain, and what may be."""

    put: int = 0  # transactions
    begun: int = 0
    number: int = -1  # of the last batch


class SimFiles(TaskStore, frozen=True, kw_only=True):
    """The files of a store on the simulated disk."""

    env: SimEnv

    def read(self, part: QuirePartition, words: str | None) -> Iterator[pa.RecordBatch]:
        return read_partition(self.path, part, whole_schema(words), env=self.env)


class SimWork(StepWork):
    """The function gets lists of numbers, and each becomes a message in each output."""

    tasks: SimFiles

    def run(
        self,
        inputs: Sequence[Any],
        runs: Sequence[Sequence[RowRange]],
        number: int,
        values: Any,
        states: Any = None,
    ) -> StepResult:
        rows = [each.part(some).load().rows for each, some in zip(inputs, runs, strict=True)]
        given = [int(payload) for each in rows for payload in each.column("payload").to_pylist()]
        kept: KeptValues = values()
        kept["sum"] = kept.get("sum", 0) + sum(given)
        kept[f"of {number}"] = len(given)
        if not given:
            return StepResult()
        with trouble():
            self.written(given[:1])  # by a task that was lost, and is tried again
            return StepResult(self.written(given))

    def written(self, given: list[int]) -> list[Fragment]:
        """As one attempt of a task has it."""
        writer = FragmentWriter(self.tasks.path, self.tasks.store_id, self.tasks.env)
        for queue, size in SIZES.items():
            payloads = pa.array([made(n, size) for n in given], pa.binary())
            writer.add(pa.record_batch({"payload": payloads}), {queue: len(given)})
        fragments = writer.finish()
        kinds = {(each.block is None, each.shared_id is None) for each in fragments}
        assert kinds == {(False, True), (True, False), (True, True)}
        return fragments


def made(number: int, size: int) -> bytes:
    """What becomes of a number."""
    return b"%d " % number + b"." * size


STEP = Step(
    name="s",
    kind="step",
    function=lambda left, right: None,
    reads=INPUTS,
    writes=OUTPUTS,
    dead=DEAD,
    limit=Limit(2 * LEFT + 3),
)


class InTwo(StepRunner):
    """The canary: what it has read is committed after what it has written. Then the power fails."""

    def _commit(self, batch: Any, number: int, result: Any, letters: Any, began: float) -> bool:
        env: Any = self._env
        StepCommit(self.path, {}, result.fragments, letters=letters, env=env).commit()
        env.crash_at = env.calls.last_number + 1
        return super()._commit(batch, number, StepResult(), [], began)


@contextmanager
def opened(env: SimEnv, kind: type[StepRunner] = StepRunner) -> Iterator[tuple[Any, StepRunner]]:
    """The store and a runner of the step, in a process that has just started."""
    store = open_store(env)
    connection._stores[os.getpid(), PATH] = store  # type: ignore[assignment]
    try:
        found = prepare(store, GRAPH, [STEP], {})
        spark: Any = PlainSpark()
        yield (
            store,
            kind(
                SimWork(STEP, spark, SimFiles(PATH, store.integration.store_id, env=env)),
                {queue: found[queue].created_us for queue in INPUTS},
                graph=GRAPH,
                path=PATH,
                spark=spark,
                restart="never",
                notify=lambda: None,
                env=env,
            ),
        )
    finally:
        connection._stores.pop((os.getpid(), PATH), None)
        if not env.crashed and not store.failed:
            store.close()


@pytest.fixture
def machine(seed: int) -> SimEnv:
    """With a store that has its queues; all that the tests do to it they do to copies (`kill`)."""
    env = new_machine(seed)
    store = open_store(env)
    topic(store, *INPUTS, *OUTPUTS)
    store.close()
    with opened(env):
        pass
    return env


def put(store: Store, noted: Noted, count: int) -> None:
    """So many transactions more, each over both inputs."""
    for number in range(noted.put, noted.put + count):
        noted.begun = number + 1
        with store.transaction() as txn:
            txn.put_many("left", [b"%d" % (LEFT * number + n) for n in range(LEFT)])
            txn.put("right", b"bad %d" % number if number == BAD else b"%d" % (1000 + number))
        noted.put = number + 1


def drain(runner: StepRunner, noted: Noted) -> None:
    """Batches until there is nothing to read."""
    try:
        while runner.do_next():
            noted.number = max(noted.number, runner.tally.number or 0)
    except StoreTrouble as error:
        raise OSError(str(error)) from error


def work(env: SimEnv, noted: Noted, kind: type[StepRunner] = StepRunner) -> None:
    """Batches of what is in the journal, and of what a checkpoint has moved; one has bad rows."""
    with opened(env, kind) as (store, runner):
        noted.put = noted.begun = store.integration.positions("right")[1]
        put(store, noted, 3)
        drain(runner, noted)
        put(store, noted, 3)
        store.admin.checkpoint()
        drain(runner, noted)


def check(env: SimEnv, noted: Noted) -> None:
    """All that a batch does is there, or nothing of it; the step goes on behind it."""
    with opened(env) as (store, runner):
        check_content(store)
        last = store.integration.ledger(KEY)
        assert last is None or noted.number <= last <= noted.number + 1
        assert noted.number < 0 or last is not None
        ends = store.integration.positions_many(INPUTS)
        there = ends["right"][1]
        assert ends["left"][1] == LEFT * there
        assert noted.put <= there <= noted.begun
        noted = Noted(there, there, -1 if last is None else last)
        put(store, noted, 1)
        drain(runner, noted)
        check_content(store)
        assert standing(store, READER)["right"] == noted.put
        env.advance(2 * store._context.options.fragment_age)
        sweep_fragments(store._context)
        left = [each for each in list_ids(env, directory_of(PATH)) if is_foreign(each)]
        assert len(left) == 1 + (store.integration.ledger(KEY) or 0), (
            "only the files that were adopted"
        )
        assert store.admin.verify().ok
    with opened(env.crash(outcome="lost")) as (store, _):
        check_content(store)


def check_content(store: Store) -> None:
    """Outputs, dead letters, values and number are those of what the step has read."""
    read = standing(store, READER)
    transactions = read["right"]
    assert read["left"] == LEFT * transactions, "a transaction is half in a batch"
    expected = [*range(LEFT * transactions)]
    expected += [1000 + number for number in range(transactions) if number != BAD]
    for queue, size in SIZES.items():
        found = store.browse(queue, max_messages=1000).payloads()
        assert sorted(found) == sorted(made(number, size) for number in expected)
    letters = [b"bad %d" % BAD] if transactions > BAD else []
    assert store.browse(DEAD).payloads() == letters
    values = {key: int(data) for key, data in store.states.items(VALUES).items()}
    last = store.integration.ledger(KEY)
    numbers = range(0 if last is None else last + 1)
    assert values.pop("sum", 0) == sum(expected)
    assert values.keys() == {f"of {number}" for number in numbers}
    assert sum(values.values()) == len(expected)


@pytest.mark.cases(8)
def test_promise_1_2_power_failure_at_every_call_of_a_step(machine: SimEnv, spread: int) -> None:
    """Outputs, dead letters, positions, values and number: all of a batch, or nothing of it."""
    enumeration: dict[str, Any] = {
        "seed": machine.seed,
        "rounds": 1,
        "new_env": lambda _: machine.kill(),
    }
    assert enumerate_crashes(work, check, Noted, every=4 * spread, **enumeration) > 90 // spread
    if spread == 1:  # in a long run
        assert enumerate_crashes(work, check, Noted, every=25, resume=work, **enumeration) > 120


@pytest.mark.cases(2)
@pytest.mark.parametrize("room_bytes", [0, 8_000, 30_000, 100_000])
def test_a_step_on_a_full_disk(machine: SimEnv, room_bytes: int) -> None:
    """It fails where its files or its commit find no room, and goes on exactly when there is some.

    No message is at fault: only what is bad is a dead letter.
    """
    env, noted, failures = machine.kill(), Noted(), 0
    with opened(env) as (store, runner):
        put(store, noted, 9)
        env.capacity_bytes = env.used_bytes() + room_bytes
        while True:
            try:
                if not runner.do_next():
                    break
            except (QuireError, StoreTrouble, OSError) as error:
                runner._goes_on(error)  # which a step that is not to be tried again does not
                failures += 1
                check_content(store)
                env.capacity_bytes = None
        assert standing(store, READER)["right"] == noted.put
        check_content(store)
    assert failures == 1
    with opened(env.crash(outcome="lost")) as (store, _):
        check_content(store)


def test_canary_a_step_that_commits_in_two_is_caught(machine: SimEnv) -> None:
    """The power fails between the two: its outputs are there, and what it has read is not."""
    env, noted = machine.kill(), Noted()
    with pytest.raises(SimulatedCrash):
        work(env, noted, InTwo)
    with pytest.raises(AssertionError):
        check(env.crash(outcome="lost"), noted)
