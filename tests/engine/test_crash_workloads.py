"""Power failures, I/O errors and full disks at every call of the crash workloads.

`tests.kit.crashes` says how each kind of fault is tried, `tests.engine.crashing` what the workloads
do and how they are judged. A run tries a third of the cells, which the seed picks; a run with more
than the default number of rounds (`make crash`) all of them, at every call, in every variant.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from scripts.commit_seed import PER_TURN
from tests.conftest import DEFAULT_ROUNDS, SEED
from tests.engine.crashing import definitions, delivery, topics
from tests.engine.crashing.drawn import VARIANTS, drawn, variant_of
from tests.engine.crashing.parts import Script
from tests.kit.crashes import FAULTS, POINTS, SHARE, CellRun, all_cells, pick
from tests.kit.limits import limited

pytestmark = [pytest.mark.crash, pytest.mark.filterwarnings("ignore::ResourceWarning")]

SCRIPTS: dict[str, Any] = {"delivery": delivery, "topics": topics, "definitions": definitions}
WORKLOADS = (*VARIANTS, *SCRIPTS)
LONG_ROUNDS = 500  # for each so many every variant has another seed


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a workload's test the kinds of fault that this run tries on it."""
    if "fault" not in metafunc.fixturenames:
        return
    config = metafunc.config
    is_long = config.getoption("--rounds") > DEFAULT_ROUNDS
    cells = all_cells(WORKLOADS) if is_long else pick(config.stash[SEED], WORKLOADS)
    workload = metafunc.function.__name__.rpartition("_")[2]
    metafunc.parametrize("fault", [cell.fault for cell in cells if cell.workload == workload])


def try_drawn(name: str, fault: str, seed: int, rounds: int) -> None:
    """Try a cell of a workload whose operations are drawn; in a long run each of its variants."""
    if rounds <= DEFAULT_ROUNDS:
        try_variant(name, fault, seed, variant_of(name, fault, seed), POINTS)
        return
    for number in range(max(1, rounds // LONG_ROUNDS)):
        for variant in VARIANTS[name]:
            try_variant(name, fault, seed + number, variant, None)


def try_variant(name: str, fault: str, seed: int, variant: str, points: int | None) -> None:
    """Try so many points of a workload, or all of them."""
    workload = drawn(name, seed, variant)
    with limited(workload.limits):
        run = CellRun(workload, seed, points)
        run.try_fault(fault)
    assert run.cases > 3 * POINTS
    assert run.machines > POINTS


@pytest.mark.cases(3)
@pytest.mark.promise(1, 2, 3, 5, 8, 11)
def test_promise_1_2_3_5_8_11_mixed(fault: str, seed: int, rounds: int) -> None:
    """What was acknowledged is there, the last transaction whole or not at all, all in order.

    Other transactions go on in the midst of checkpoints; every store goes on working afterwards.
    """
    try_drawn("mixed", fault, seed, rounds)


@pytest.mark.cases(3)
@pytest.mark.promise(1, 2, 5, 7, 8, 11)
def test_promise_1_2_5_7_8_11_prepared(fault: str, seed: int, rounds: int) -> None:
    """Prepared, decided or not, as acknowledged; the call under way, one of both."""
    try_drawn("prepared", fault, seed, rounds)


@pytest.mark.cases(3)
@pytest.mark.promise(2, 3, 5, 8, 11, 14)
def test_promise_2_3_5_8_11_14_unsynced(fault: str, seed: int, rounds: int) -> None:
    """After a power failure a prefix of the commits is there, all durable ones with it."""
    try_drawn("unsynced", fault, seed, rounds)


@pytest.mark.cases(3)
@pytest.mark.promise(1, 2, 5, 7, 8, 11)
def test_promise_1_2_5_7_8_11_archived(fault: str, seed: int, rounds: int) -> None:
    """What is not shipped to the archive is where its records say, until it is shipped (US1)."""
    try_drawn("archived", fault, seed, rounds)


def try_script(name: str, fault: str, seed: int, rounds: int) -> None:
    """Try a cell of a script; in a long run at every point."""
    module = SCRIPTS[name]
    is_long = rounds > DEFAULT_ROUNDS
    for number in range(max(1, rounds // LONG_ROUNDS)):
        with limited(module.LIMITS):
            run = CellRun(Script(seed + number, module.PARTS), seed, None if is_long else POINTS)
            run.try_fault(fault)
        assert run.cases > 3 * POINTS
        assert run.machines > POINTS


@pytest.mark.cases(3)
@pytest.mark.promise(1, 2, 5, 8, 11)
def test_promise_1_2_5_8_11_delivery(fault: str, seed: int, rounds: int) -> None:
    """Counts, failures, times, groups, sessions, schedules: each message is in one place."""
    try_script("delivery", fault, seed, rounds)


@pytest.mark.cases(3)
@pytest.mark.promise(1, 2, 5, 7, 8, 11, 14)
def test_promise_1_2_5_7_8_11_14_topics(fault: str, seed: int, rounds: int) -> None:
    """Moves, what is kept, clients that go, latest of keys, selectors, what is found, listeners."""
    try_script("topics", fault, seed, rounds)


@pytest.mark.cases(3)
@pytest.mark.promise(1, 2, 5, 7, 8, 11)
def test_promise_1_2_5_7_8_11_definitions(fault: str, seed: int, rounds: int) -> None:
    """States, names, purges, overflow, orders and first times are whole, or not there."""
    try_script("definitions", fault, seed, rounds)


def test_each_workload_has_its_test() -> None:
    """A workload that no test runs is no protection."""
    names = {name.rpartition("_")[2] for name in globals() if name.startswith("test_promise")}
    assert names == set(WORKLOADS)


def test_a_seed_picks_a_third() -> None:
    """Of each workload and of each kind of fault at least one cell, and after three turns all."""
    runs = [pick(turn * PER_TURN, WORKLOADS) for turn in range(400)]
    cells = set(all_cells(WORKLOADS))
    for run in runs:
        assert len(set(run)) == len(run)
        assert abs(len(run) - len(cells) / SHARE) < 1
        assert {cell.workload for cell in run} == set(WORKLOADS)
        assert {cell.fault for cell in run} == set(FAULTS)
    for first in range(400 - SHARE + 1):
        assert set().union(*runs[first : first + SHARE]) == cells
    assert any(one != other for one, other in pairwise(runs))
