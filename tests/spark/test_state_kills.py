"""SIGKILL to whatever works on a graph with keyed states: all is counted once, and nothing else.

Spark has the store's directory, whose owner is killed too, or the URL of its server, which is.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

import quire
from quire import keyed as plain
from quire.errors import NotFound
from quire.spark_graphs import connection
from quire.spark_graphs.task_files.task_files import files_at
from tests.keyed.conftest import SMALL_RUNS
from tests.keyed.state_digest import Row, digest_of, rows_held
from tests.kit.descendants import is_java, kill_descendants, kill_session
from tests.kit.limits import Limits
from tests.kit.waiting import eventually, wait_for_end
from tests.spark.numbered_queues import numbers_in, put_numbers, topic
from tests.spark.served_store import ServerProcess, served_elsewhere
from tests.spark.session import ROOT
from tests.spark.state_driver import make

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.crash,
    pytest.mark.promise(2),
    pytest.mark.at_server,
]

KINDS = ("steps", "steps", "program", "jvm", "worker", "owner")  # what is killed
STEPS = 30  # of a program, after which it has done most of what a round puts
START_SECONDS = 600
ROUND = 60  # numbers that a round puts


STATES = ("seen", "digits", "held")
MOST = 1_000_000  # messages: more than there are


class OwnerProcess:
    """A store by its directory, whose owner is a process of its own, and another one with the next
    call after its end.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        quire.open(path).close()

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End the owner by a signal."""
        owner = connection.call(self.path, lambda store: store.owner_process_id)
        os.kill(owner, number)
        connection.forget(self.path)
        assert wait_for_end(owner)


@pytest.fixture
def place(
    is_served: bool, store_path: str, tmp_path: Path, rng: random.Random
) -> Iterator[OwnerProcess | ServerProcess]:
    """A store that a process of its own owns."""
    if is_served:
        (tmp_path / "hidden").mkdir()
        with served_elsewhere(tmp_path / "hidden", rng) as made:
            yield made
    else:
        yield OwnerProcess(store_path)
        connection.forget(store_path)


def counted_in(store: Any, queue: str) -> list[tuple[int, int]]:
    """Return the numbers that were put to a queue, in their order, each with its time."""
    found = store.browse(f"{queue}/check", max_messages=MOST)
    return [(int(message.payload), message.time) for message in found]


class KilledStates:
    """A store at its owner, another process, and what was put into it."""

    def __init__(
        self, place: OwnerProcess | ServerProcess, control: Path, rng: random.Random
    ) -> None:
        self.place, self.path, self.control, self.rng = place, place.path, control, rng
        self.put = 0
        connection.call(self.path, lambda store: topic(store, "in", "fresh", "counted", "echo"))

    def more(self) -> None:
        """Put numbers, of which some were put before: late, and repeated."""
        new = list(range(self.put, self.put + ROUND))
        old = [self.rng.randrange(self.put + ROUND) for _ in range(ROUND // 2)]
        self.rng.shuffle(new)
        numbers = new + old
        connection.call(self.path, lambda store: put_numbers(store, "in", numbers, len(numbers)))
        self.put += ROUND

    def check(self, *, ended: bool = False) -> None:
        """What the states hold is what was handed on; and the same where the store is opened anew,
        after its owner was killed or has ended well.
        """
        before = connection.call(self.path, lambda store: self._check(store, ended))
        self.place.kill(self.rng.choice([signal.SIGKILL, signal.SIGTERM]))
        connection.forget(self.path)
        assert connection.call(self.path, lambda store: self._check(store, ended)) == before

    def _check(self, store: Any, ended: bool) -> dict[str, str]:
        """Return the digest of each state, which is that of what it should hold."""
        fresh, counted = numbers_in(store, "fresh"), numbers_in(store, "counted")
        echo = numbers_in(store, "echo")
        assert set(fresh.values()) <= {1}
        assert fresh.keys() <= set(range(self.put))
        assert not counted - fresh
        assert not echo - counted
        digests = {name: digest_of(self.rows_of(store, name)) for name in STATES}
        expected = expected_in(store)
        assert digests == {name: digest_of(rows) for name, rows in expected.items()}
        if ended:
            assert counted == fresh == echo == Counter(range(self.put))
            assert not expected["held"]
        report = store.admin.verify()
        assert report.ok, report.findings
        return digests

    def rows_of(self, store: Any, name: str) -> list[Row]:
        """Return all rows of a state; none where the graph has not made it yet."""
        try:
            state = plain.open_state(store, name, files=files_at(self.path))
        except NotFound:
            return []
        return rows_held(store, state)


def expected_in(store: Any) -> dict[str, list[Row]]:
    """Return the rows of each state by what the steps have read and put."""
    came = dict(reversed(counted_in(store, "in")))  # the first time of each
    counted, times, total = counted_in(store, "counted"), Counter[int](), Counter[int]()
    for number, _ in counted:
        times[number % 10] += 1
        total[number % 10] += number
    handed, echo = numbers_in(store, "fresh"), numbers_in(store, "echo")
    read = {info.name: info.position for info in store.subscriptions("counted")}
    taken = counted[: read.get("kills.hold", 0)]
    return {
        "seen": [(number, came[number], None) for number in handed],
        "digits": [(digit, times[digit], total[digit], None) for digit in times],
        "held": [(number, time) for number, time in taken if number not in echo],
    }


def started(game: KilledStates, log: Path) -> subprocess.Popen[bytes]:
    """Return the program, at work."""
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.spark.state_driver", game.path, str(game.control)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def put_down(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to the program, its JVM and all workers."""
    children = kill_session(process.pid) if process.poll() is None else []
    process.kill()
    process.wait()
    psutil.wait_procs(children, timeout=10)


def is_worker(process: psutil.Process) -> bool:
    """Return True if it is a Python of a task."""
    return "pyspark" in " ".join(process.cmdline())


def killed_round(game: KilledStates, log: Path, kind: str) -> None:
    """Start the program, and kill what the kind says at a moment by chance."""
    by_tasks = game.control / "by-tasks"
    by_tasks.touch() if kind == "worker" or game.rng.random() < 0.5 else by_tasks.unlink(True)
    kill = game.control / "kill-at"
    kill.write_text(str(game.rng.randrange(1, STEPS))) if kind == "steps" else kill.unlink(True)
    game.more()
    before = game.rng.randrange(ROUND)
    process = started(game, log)

    def number() -> int:
        last = connection.call(game.path, lambda s: s.integration.ledger("graph/kills/unique"))
        return -1 if last is None else int(last)

    first = number()

    def is_at_work() -> bool:
        return process.poll() is not None or number() > first

    try:
        eventually(is_at_work, START_SECONDS)
        if kind == "steps":
            eventually(lambda: process.poll() is not None, START_SECONDS)
            return
        time.sleep(before / ROUND)
        if process.poll() is not None:
            return
        chosen: dict[str, Callable[[], Any]] = {
            "jvm": lambda: kill_descendants(process.pid, is_java),
            "worker": lambda: kill_descendants(process.pid, is_worker),
            "owner": game.place.kill,
            "program": lambda: put_down(process),
        }
        chosen[kind]()
        if kind != "program":
            eventually(lambda: process.poll() is not None, START_SECONDS)
    finally:
        put_down(process)


@pytest.mark.long
def test_a_graph_with_states_killed_at_any_moment(
    place: OwnerProcess | ServerProcess,
    tmp_path: Path,
    control: Path,
    kills: int,
    rng: random.Random,
) -> None:
    """Driver, JVM, workers, owner; between a run and its commit, and in the middle of a merge."""
    game = KilledStates(place, control, rng)
    for number in range(max(kills, len(KINDS))):
        killed_round(game, tmp_path / "driver.log", KINDS[number % len(KINDS)])
        game.check()
    game.more()
    (control / "kill-at").unlink(True)
    process = started(game, tmp_path / "driver.log")
    try:
        assert process.wait(START_SECONDS) == 0, (tmp_path / "driver.log").read_text()[-3000:]
    finally:
        put_down(process)
    game.check(ended=True)


def test_an_owner_killed_under_states(
    spark: SparkSession,
    place: OwnerProcess | ServerProcess,
    control: Path,
    kills: int,
    rng: random.Random,
    limits: Limits,
) -> None:
    """The graph goes on with the next owner."""
    limits(**SMALL_RUNS)
    game = KilledStates(place, control, rng)
    with make(spark, place.path).start() as run:
        for _ in range(kills):
            game.more()
            time.sleep(rng.random())
            place.kill()
            run.drain(timeout=START_SECONDS)
            game.check(ended=True)
    for spoil in (miscount, set_timer):  # the canaries
        connection.call(place.path, lambda store, spoil=spoil: spoil(store, place.path))  # type: ignore[misc]
        with pytest.raises(AssertionError):
            game.check(ended=True)


def miscount(store: Any, path: str) -> None:
    """Count a number once more in a state, and nowhere else."""
    state = plain.open_state(store, "digits", files=files_at(path))
    with store.transaction() as txn, state.within(txn) as rows:
        (row,) = rows.get([3]).to_pylist()
        rows.put([{**row, "times": row["times"] + 1}])


def set_timer(store: Any, path: str) -> None:
    """Have a row be as it was, but for its timer; and the state of `miscount`."""
    state = plain.open_state(store, "digits", files=files_at(path))
    with store.transaction() as txn, state.within(txn) as rows:
        (row,) = rows.get([3]).to_pylist()
        rows.put([{**row, "times": row["times"] - 1}], timers=[7])
