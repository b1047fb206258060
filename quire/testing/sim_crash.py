"""Crash a workload at every call, and look at what every kind of failure leaves.

Two kinds of experiment, at each call that is picked:

- the power fails in its midst, and the machine comes up again with what was not durable kept, lost
  or torn;
- if it is a write or a sync, it fails with an I/O error, the workload ends with that, and its
  process is killed. What the call left can be read, but is uncertain (`quire.env`, E3): what is
  built on it, and synced, may have lost its ground when the power fails. With `resume` the workload
  goes on in a new process, and the power fails at the calls of that.

A checker that never fails shows nothing: give it once a workload that is wrong on purpose, and
see that it is caught.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from random import Random
from threading import get_ident
from typing import Generic, Literal, TypeVar

from quire.errors import QuireError
from quire.limits import IMAGES_BYTES
from quire.testing.sim_calls import Call, SimulatedCrash
from quire.testing.sim_env import SimEnv

Oracle = TypeVar("Oracle")
Workload = Callable[[SimEnv, Oracle], None]

FAILING = ("write", "sync", "sync_directory")


def enumerate_crashes(
    workload: Workload[Oracle],
    check: Workload[Oracle],
    new_oracle: Callable[[], Oracle],
    *,
    seed: int = 0,
    rounds: int = 4,
    every: int = 1,
    new_env: Callable[[int], SimEnv] = SimEnv,
    resume: Workload[Oracle] | None = None,
) -> int:
    """Run `workload`, and look at what a crash in each of its calls leaves; returns the cases.

    One run counts the calls, a second one keeps an image of the machine in the midst of each, with
    a copy of the oracle (`copy.deepcopy`), and for each I/O error there is a run of its own.

    `workload(env, oracle)` notes in the oracle what was acknowledged to it. After each crash
    `check(env, oracle)` sees the machine that came up again: with all that was not durable lost,
    with all of it kept, and with `rounds` seeded mixtures. After each I/O error it sees the machine
    that goes on (where it may work on what it finds, and lose the power), and one that has lost the
    power right then. It raises AssertionError if something acknowledged is missing; a note then
    tells call, seed and fate. `every` thins the points out; the seed says which are left.

    `resume(env, oracle)` takes up the work on a machine that goes on after an error. It is crashed
    at each of its calls after one error in each kind of call on each kind of file; what the oracle
    knew when the error came is copied for each of them.
    """
    env = new_env(seed)
    oracle = new_oracle()
    workload(env, oracle)
    calls = list(env.calls.log)
    cases = _check_fates(env, oracle, check, rounds, "after the last call")
    points = calls[seed % every :: every]
    for call, env, oracle in Crashes(workload, partial(new_env, seed), new_oracle, points):
        cases += _check_fates(env, oracle, check, rounds, f"seed {seed}, crash in {call}")
    for call in failing_calls(calls)[seed % every :: every]:
        env, oracle = run_with_error(workload, new_env(seed), new_oracle(), call)
        goes_on = env.kill()
        with CrashNote(f"seed {seed}, error in {call}; the process was killed"):
            check(goes_on, oracle)
        after = env.crash(seed=call.number)
        with CrashNote(f"seed {seed}, error in {call}, then no power: {list(after.survivals)}"):
            check(after, oracle)
        cases += 2
    if resume is not None:
        for call in one_of_each(calls, seed):
            env, oracle = run_with_error(workload, new_env(seed), new_oracle(), call)
            with CrashNote(f"seed {seed}, error in {call}, and gone on after it"):
                cases += _resumed(env, oracle, resume, check, rounds=rounds, every=every)
    return cases


class Crashes(Generic[Oracle]):
    """The machine and the oracle as a crash in each of some calls of a workload leaves them.

    One run is enough for as many as `IMAGES_BYTES` of images hold. A call that another thread than
    the workload's makes has a run of its own: only that one's steps stand still while it calls.
    """

    def __init__(
        self,
        workload: Workload[Oracle],
        new_env: Callable[[], SimEnv],
        new_oracle: Callable[[], Oracle],
        calls: Sequence[Call],
    ) -> None:
        self._workload = workload
        self._new_env = new_env
        self._new_oracle = new_oracle
        self._left = {call.number: call for call in calls}
        self._images: list[tuple[Call, SimEnv, Oracle]] = []
        self._bytes = 0
        self._thread = get_ident()

    def __iter__(self) -> Iterator[tuple[Call, SimEnv, Oracle]]:
        while self._left:
            last = self._left[max(self._left)]
            env, oracle = self._run(last, keep=True)
            images, self._images, self._bytes = self._images, [], 0
            for call, image, known in images:
                del self._left[call.number]
                yield call, image, known
            reached = env.crash_at or 0
            if env.crashed:  # perhaps on another thread, so that nothing was raised
                yield self._left.pop(reached), env, oracle
            for number in [number for number in self._left if number < reached]:
                call = self._left.pop(number)
                env, oracle = self._run(call)
                if env.crashed:
                    yield call, env, oracle
            if reached == last.number:  # it need not come again
                self._left.pop(reached, None)

    def _run(self, call: Call, *, keep: bool = False) -> tuple[SimEnv, Oracle]:
        """Run until the power fails in the call; keep images of those before it, if wanted."""
        env, oracle = self._new_env(), self._new_oracle()
        env.crash_at = call.number
        if keep:
            env.within_call = partial(self._keep, env, oracle)
        try:
            self._workload(env, oracle)
        except (Exception, SimulatedCrash):
            if not env.crashed:
                raise
        return env, oracle

    def _keep(self, env: SimEnv, oracle: Oracle, call: Call) -> None:
        number = call.number
        if number not in self._left or number == env.crash_at or get_ident() != self._thread:
            return
        if self._bytes > IMAGES_BYTES:
            env.crash_at = number  # the next run goes on from here
            return
        image = env.image(self._images[-1][1] if self._images else None)
        self._bytes += image.disk.own_bytes
        self._images.append((self._left[number], image, copy.deepcopy(oracle)))


def _resumed(
    env: SimEnv,
    oracle: Oracle,
    resume: Workload[Oracle],
    check: Workload[Oracle],
    *,
    rounds: int,
    every: int,
) -> int:
    """Go on after an error, and lose the power at the calls of that; the cases."""
    return enumerate_crashes(
        resume,
        check,
        lambda: copy.deepcopy(oracle),
        seed=env.seed,
        rounds=rounds,
        every=every,
        new_env=lambda _: env.kill(),
    )


def run_with_error(
    workload: Workload[Oracle], env: SimEnv, oracle: Oracle, call: Call
) -> tuple[SimEnv, Oracle]:
    """Return the machine and the oracle after a workload that an I/O error met in the call."""
    env.fail_at(call.number)
    with contextlib.suppress(OSError, QuireError):  # it may go on, if the error is not its own
        workload(env, oracle)
    return env, oracle


def failing_calls(calls: list[Call]) -> list[Call]:
    """Return the calls that leave something uncertain when they fail.

    The root directory is not a workload's own.
    """
    return [call for call in calls if call.kind in FAILING and call.path != "/"]


def one_of_each(calls: list[Call], seed: int) -> list[Call]:
    """Return one call of each kind on each kind of file, drawn from the seed."""
    by_kind: dict[tuple[str, str], list[Call]] = {}
    for call in failing_calls(calls):
        by_kind.setdefault((call.kind, kind_of_file(call.path)), []).append(call)
    random = Random(f"errors {seed}")
    return [random.choice(by_kind[key]) for key in sorted(by_kind)]


def kind_of_file(path: str) -> str:
    """Return what files of this kind share: the end of the name, or the name of a directory."""
    name = path.rpartition("/")[2]
    return name.partition(".")[2] or name


def _check_fates(
    env: SimEnv, oracle: Oracle, check: Workload[Oracle], rounds: int, location: str
) -> int:
    outcomes: tuple[Literal["lost", "kept"], ...] = ("lost", "kept")
    fates = [(f"all {outcome}", env.crash(outcome=outcome)) for outcome in outcomes]
    fates += [(f"crash(seed={n})", env.crash(seed=n)) for n in range(rounds)]
    for fate, after in fates:
        with CrashNote(f"{location}; {fate}; not durable then: {list(after.survivals)}"):
            check(after, oracle)
    return len(fates)


class CrashNote:
    """Errors inside tell where they happened."""

    def __init__(self, location: str) -> None:
        self._location = location

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception):
            error.add_note(self._location)
