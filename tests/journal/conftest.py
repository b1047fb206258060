"""The machines that the journal's tests run on: the real one and the simulated one."""

from __future__ import annotations

from pathlib import Path

import pytest

from quire.env import OsEnv
from quire.testing import SimEnv
from tests.journal.machine import Machine


@pytest.fixture(params=["os", "sim"])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Machine:
    """Each environment in turn."""
    if request.param == "os":
        return Machine(OsEnv(), str(tmp_path))
    env = SimEnv(seed=1)
    env.make_directory("/store")
    return Machine(env, "/store")


@pytest.fixture
def sim() -> SimEnv:
    """A simulated machine with a directory /store."""
    env = SimEnv(seed=2)
    env.make_directory("/store")
    env.sync_directory("/")
    return env
