"""kill -9 of a process that changes a keyed state: at steps of runs, of commits, of merges."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

import quire
from quire import keyed
from quire.keyed.run_merge import deepest
from tests.keyed.state_digest import digest_of, state_digest
from tests.keyed.test_keyed_crashes import SCHEMA, fired_by, rows_after
from tests.kit.children import child

FEW, MANY = 3, 30
STEPS = 12  # of a process, at most; a batch has four or more
CODE = """
import os, signal, sys
from contextlib import nullcontext
import quire
from quire import keyed
from quire.keyed import keyed_merges, run_files, run_output
from tests.keyed.conftest import SMALL_RUNS
from tests.keyed.test_keyed_crashes import SCHEMA, go_on
from tests.kit.limits import limited

path, last, beside = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "True"
steps = 0

def at_steps(kind, name):
    method = getattr(kind, name)
    def counted(*args, **kwargs):
        step()
        result = method(*args, **kwargs)
        step()
        return result
    setattr(kind, name, counted)

def step():
    global steps
    steps += 1
    if steps >= last > 0:
        os.kill(os.getpid(), signal.SIGKILL)

at_steps(run_output.RunOutput, "finish")
at_steps(run_files.RunFiles, "put")
at_steps(keyed_merges.KeyedMerges, "_merge")
with limited(SMALL_RUNS), quire.open(path) as store:
    state = keyed.open_state(store, "totals", "customer", SCHEMA)
    print("open", flush=True)
    with keyed.merging(state) if beside else nullcontext():
        go_on(store, state, [])
"""


def look(path: str, batches: int) -> int:
    """Return how many batches are done: each is whole, and opening the store changes nothing."""
    hashes: list[object] = []
    digests: list[str] = []
    done: list[bytes] = []
    for _ in range(2):
        with quire.open(path) as store:
            state = keyed.open_state(store, "totals", "customer", SCHEMA)
            done = store.browse("out", batches).payloads()
            assert done == [b"%d" % number for number in range(len(done))]
            assert store.queue("in").messages == batches - len(done)
            assert store.browse("fired", batches).payloads() == fired_by(len(done))
            digests.append(state_digest(store, state))
            assert deepest(state.runs())[0] <= 6
            report = store.admin.verify()
            assert report.ok, report.findings
            hashes.append(report.checked["state_hash"])
    assert hashes[0] == hashes[1]
    assert digests == [digest_of(rows_after(len(done)))] * 2
    return len(done)


def kill_again_and_again(path: str, kills: int, rng: Random, *, beside: bool = False) -> None:
    """Kill so many processes, each at a step, and look; then the last one ends its work.

    `beside`: a thread of each merges.
    """
    batches = 4 * kills
    with quire.open(path) as store:
        store.create_queue("in")
        store.create_queue("out")
        store.create_queue("fired")
        store.put_many("in", [b"%d" % number for number in range(batches)])
        keyed.open_state(store, "totals", "customer", SCHEMA)
    for number in range(kills + 1):
        last = rng.randrange(1, STEPS) if number < kills else 0
        with child(CODE, path, str(last), str(beside)) as process:
            assert process.line() == "open"
            process.wait()
        done = look(path, batches)
        assert done == batches or number < kills


@pytest.mark.crash
@pytest.mark.promise(1, 2)
def test_a_few_kills_leave_nothing_half(tmp_path: Path, rng: Random) -> None:
    """The short slice of the test below."""
    kill_again_and_again(str(tmp_path / "store"), FEW, rng)


@pytest.mark.crash
@pytest.mark.promise(1, 2)
def test_kills_amid_merges_beside_leave_nothing_half(tmp_path: Path, rng: Random) -> None:
    """The same where a thread merges, and is killed in the midst of it."""
    kill_again_and_again(str(tmp_path / "store"), FEW, rng, beside=True)


@pytest.mark.crash
@pytest.mark.long
@pytest.mark.promise(1, 2)
@pytest.mark.parametrize("beside", [False, True])
def test_thirty_kills_leave_nothing_half(tmp_path: Path, rng: Random, beside: bool) -> None:
    """Between the writing of a run and its commit, amid merges, after them: all is exact."""
    kill_again_and_again(str(tmp_path / "store"), MANY, rng, beside=beside)
