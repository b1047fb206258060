"""Power failures at every call of a sink's tasks and commits, on the simulated machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from quire.engine import EmbeddedStore as Store
from quire.engine.upkeep.fragment_files import sweep_fragments
from quire.ltds import is_foreign, list_ids
from quire.spark_graphs import connection
from quire.spark_graphs.fragments import fragment_file
from quire.spark_graphs.fragments.fragment import Fragment
from quire.spark_graphs.fragments.fragment_file import FragmentWriter
from quire.spark_graphs.task_files.directory_files import directory_of
from quire.spark_graphs.writing.sink_committer import FragmentCommitter
from quire.spark_graphs.writing.write_ledger import StreamLedger
from quire.testing import SimEnv, enumerate_crashes
from tests.engine.workload import PATH, open_store

pytestmark = [pytest.mark.crash, pytest.mark.promise(1, 2)]

QUEUES = [f"q{n}" for n in range(6)]
KEY = "spark:q"
BATCHES = 3
Messages = dict[str, list[bytes]]


@dataclass
class Oracle:
    """The last micro-batch that was acknowledged, and whether the queues were made."""

    furnished: bool = False
    committed: int = -1
    begun: list[int] = field(default_factory=list)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Limits so small that each micro-batch has fragments of every kind."""
    limits = {"INLINE_BYTES": 100, "OWN_FILE_BYTES": 5000, "FLUSH_BYTES": 6000}
    for name, size in limits.items():
        monkeypatch.setattr(fragment_file, name, size)
    yield
    connection._stores.pop((os.getpid(), PATH), None)


def messages_of(batch: int, task: int) -> Messages:
    """What a task writes: little for one queue, much for another, the rest in between."""
    sizes = [10, 7000, *[500] * (len(QUEUES) - 2)]
    return {
        queue: [b"%d.%d.%d " % (batch, task, n) + b"." * size for n in range(3)]
        for queue, size in zip(QUEUES, sizes, strict=True)
    }


def task_fragments(env: SimEnv, store: Store, batch: int, task: int) -> list[Fragment]:
    """One attempt of a task."""
    writer = FragmentWriter(PATH, store.integration.store_id, env)
    for queue, payloads in messages_of(batch, task).items():
        writer.add(pa.record_batch({"payload": payloads}), {queue: len(payloads)})
    fragments = writer.finish()
    kinds = {(f.block is None, f.shared_id is None) for f in fragments}
    assert kinds == {(False, True), (True, False), (True, True)}
    return fragments


def run_batch(env: SimEnv, store: Store, batch: int) -> None:
    """A micro-batch of two tasks, one of which is tried twice."""
    task_fragments(env, store, batch, 0)
    fragments = [each for task in (0, 1) for each in task_fragments(env, store, batch, task)]
    connection._stores[os.getpid(), PATH] = store  # type: ignore[assignment]
    FragmentCommitter(PATH, StreamLedger("q", batch), 1.0, env).commit(fragments)


def workload(env: SimEnv, oracle: Oracle) -> None:
    """Some micro-batches, with a checkpoint between them."""
    if not env.exists("/disk"):
        env.make_directory("/disk")
        env.sync_directory("/")
    store = open_store(env)
    store.admin.create_queues([{"name": name, "kind": "topic"} for name in QUEUES])
    store.integration.subscribe_many("keep", dict.fromkeys(QUEUES, "earliest"))
    oracle.furnished = True
    for batch in range(BATCHES):
        oracle.begun.append(batch)
        run_batch(env, store, batch)
        oracle.committed = batch
        if batch == 1:
            store.admin.checkpoint()


def check(env: SimEnv, oracle: Oracle) -> None:
    """Every micro-batch is there once and whole, or not at all; Spark repeats the last one."""
    if not oracle.furnished:
        return
    store = open_store(env)
    last = store.integration.ledger(KEY)
    last = -1 if last is None else last
    assert last in {oracle.committed, *oracle.begun[-1:]}
    check_content(store, last)
    for batch in range(max(0, last), BATCHES):
        run_batch(env, store, batch)
        check_content(store, batch)
    env.advance(2 * store._context.options.fragment_age)
    sweep_fragments(store._context)
    left = [ltds_id for ltds_id in list_ids(env, directory_of(PATH)) if is_foreign(ltds_id)]
    assert len(left) == 2 * BATCHES, "only the files that were adopted"
    assert store.admin.verify().ok
    store.close()
    check_content(open_store(env.crash(outcome="lost")), BATCHES - 1)


def check_content(store: Store, last: int) -> None:
    """The micro-batches up to this one, in order."""
    for queue in QUEUES:
        wanted = [
            payload
            for batch in range(last + 1)
            for task in (0, 1)
            for payload in messages_of(batch, task)[queue]
        ]
        assert store.browse(queue, max_messages=1000).payloads() == wanted


@pytest.mark.cases(8)
def test_promise_1_2_power_failure_at_every_call_of_a_sink(
    seed: int, rounds: int, spread: int
) -> None:
    """Of its tasks and its commits: nothing is lost, nothing twice, and no file stays for ever."""
    for n in range(max(1, rounds // 25)):
        every = 2 if spread == 1 else 7
        cases = enumerate_crashes(workload, check, Oracle, seed=seed + n, rounds=2, every=every)
        assert cases > 90
