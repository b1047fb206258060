"""The engine on the simulated machine: crashes, I/O errors, full disks and damage at every call.

The workloads and the model that judges them are in `tests.engine.workload`. Each kind of test has a
canary: an engine that is broken on purpose, which the same check must catch.
"""

from __future__ import annotations

from typing import Any

import pytest

from quire.testing import SimEnv, enumerate_crashes
from tests.engine.workload import Oracle, Workload, check_store

pytestmark = pytest.mark.crash


def crash_everywhere(
    seed: int, *, every: int = 1, rounds: int = 2, direct: bool = True, **options: Any
) -> int:
    """A workload, crashed at its calls; the number of cases."""

    def check(env: SimEnv, oracle: Oracle) -> None:
        check_store(env, oracle, seed=seed + env.random.getrandbits(16))

    return enumerate_crashes(
        Workload(seed, **options),
        check,
        Oracle,
        seed=seed,
        rounds=rounds,
        every=every,
        new_env=lambda n: SimEnv(n, direct=direct),
    )


@pytest.mark.promise(1, 2, 3, 8)
@pytest.mark.parametrize("direct", [True, False])
def test_promise_1_2_3_power_failure_at_every_call(seed: int, rounds: int, direct: bool) -> None:
    """What was acknowledged is there, the last transaction whole or not at all, all in order."""
    for n in range(max(1, rounds // 12)):
        assert crash_everywhere(seed + n, direct=direct, every=2) > 100
