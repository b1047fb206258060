"""The benchmarks of requests and of worker pools: each side answers, and does each job once."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.served import pool, request

QUICK = ("Quire, threads of one process",)
BY_HAND = "SQLite, by hand"
SLOW = ("Quire, three processes", "NATS", "Redis lists, appendfsync always", "RabbitMQ, in memory")


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(one, marks=pytest.mark.long) for one in SLOW)]
)
def test_a_side_is_answered(tmp_path: Path, name: str) -> None:
    """As many times as there were requests, and its processes have worked for that."""
    times = request.RequestTimes()
    with ExitStack() as stack:
        try:
            side = request.RunningSide(request.SIDES[name], tmp_path / "side", stack)
        except FileNotFoundError as error:
            pytest.skip(str(error))
        side.turn(5, times)
    assert len(times.seconds) == 5
    assert min(times.seconds) > 0
    assert times.processor >= 0


@pytest.mark.parametrize(
    "name",
    [
        BY_HAND,
        *(pytest.param(one, marks=pytest.mark.long) for one in pool.SIDES if one != BY_HAND),
    ],
)
def test_a_pool_does_each_job_once(tmp_path: Path, name: str) -> None:
    """A turn after another: what ends a worker is of its turn."""
    turns = pool.PoolTurns()
    with ExitStack() as stack:
        try:
            running = pool.RunningPool(pool.SIDES[name], tmp_path / "pool", stack)
        except FileNotFoundError as error:
            pytest.skip(str(error))
        workers = running.workers(1 if name == BY_HAND else 2)
        for worker in workers:
            stack.callback(worker.close)
        for _ in range(2):
            running.turn(workers, 10, turns)  # raises where it is not ten
    assert len(turns.rates) == len(turns.processor) == 2


@pytest.mark.long
def test_a_killed_workers_job_is_begun_again(tmp_path: Path) -> None:
    """By Quire's idle worker at once; in SQLite's table not before the claim is over."""
    found = {}
    for number, name in enumerate((pool.QUIRE, BY_HAND)):
        with ExitStack() as stack:
            running = pool.RunningPool(pool.SIDES[name], tmp_path / f"pool-{number}", stack)
            found[name] = running.strike(tmp_path / f"marks-{number}")
    assert found[pool.QUIRE] is not None
    assert found[BY_HAND] is None


def test_figures_are_ratios_of_what_was_measured() -> None:
    """Half the time of a rival is 0.5 times; a rival that was left out has no figure."""
    times = {
        "Quire, three processes": request.RequestTimes([1.0] * 4, 2.0),
        "Redis lists, appendfsync always": request.RequestTimes([2.0] * 4, 8.0),
    }
    found = {each.name: each.value for each in request.figures(times)}
    assert found == {
        "Quire, three processes: p50 to Redis lists, appendfsync always": 0.5,
        "Quire, three processes: processor to Redis lists, appendfsync always": 0.25,
    }
    turns = {
        (pool.QUIRE, 1): pool.PoolTurns([200.0, 300.0], [2.0, 2.0]),
        (BY_HAND, 1): pool.PoolTurns([100.0, 150.0], [1.0, 4.0]),
    }
    found = {each.name: each.value for each in pool.figures(turns)}
    assert found == {
        f"1 workers: rate to {BY_HAND}": 2.0,
        f"1 workers: processor to {BY_HAND}": 1.25,
    }
