"""Crash a workload at every call, and look at what every kind of failure leaves.

A checker that never fails shows nothing: give it once a workload that is wrong on purpose, and
see that it is caught.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeVar

from quire.testing.sim_calls import SimulatedCrash
from quire.testing.sim_env import SimEnv

Oracle = TypeVar("Oracle")


def enumerate_crashes(
    workload: Callable[[SimEnv, Oracle], None],
    check: Callable[[SimEnv, Oracle], None],
    new_oracle: Callable[[], Oracle],
    *,
    seed: int = 0,
    rounds: int = 4,
    every: int = 1,
    new_env: Callable[[int], SimEnv] = SimEnv,
) -> int:
    """Run `workload` once to count its calls, then once for each crash point; returns the cases.

    `workload(env, oracle)` notes in the oracle what was acknowledged to it. After each crash
    `check(env, oracle)` sees the machine that came up again: with all that was not durable lost,
    with all of it kept, and with `rounds` seeded mixtures. It raises AssertionError if something
    acknowledged is missing; a note then tells call, seed and fate. `every` thins the points out.
    """
    env = new_env(seed)
    oracle = new_oracle()
    workload(env, oracle)
    total = env.calls.last_number
    cases = _check_fates(env, oracle, check, rounds, "after the last call")
    for number in range(1, total + 1, every):
        env = new_env(seed)
        env.crash_at = number
        oracle = new_oracle()
        try:
            workload(env, oracle)
        except (Exception, SimulatedCrash):
            if not env.crashed:
                raise
        if env.crashed:  # perhaps on another thread, so that nothing was raised here
            where = f"seed {seed}, crash in {env.calls.log[number - 1]}"
            cases += _check_fates(env, oracle, check, rounds, where)
    return cases


def _check_fates(
    env: SimEnv,
    oracle: Oracle,
    check: Callable[[SimEnv, Oracle], None],
    rounds: int,
    where: str,
) -> int:
    outcomes: tuple[Literal["lost", "kept"], ...] = ("lost", "kept")
    fates = [(f"all {outcome}", env.crash(outcome=outcome)) for outcome in outcomes]
    fates += [(f"crash(seed={n})", env.crash(seed=n)) for n in range(rounds)]
    for fate, after in fates:
        survivals = list(after.survivals)
        try:
            check(after, oracle)
        except Exception as error:
            error.add_note(f"{where}; {fate}; not durable then: {survivals}")
            raise
    return len(fates)
