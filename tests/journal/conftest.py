"""The machines that the journal's tests run on: the real one and the simulated one."""

from __future__ import annotations

from pathlib import Path

import pytest

from quire.testing import SimEnv
from tests.journal.machine import Machine
from tests.kit.machines import empty_machine


@pytest.fixture(params=["os", "sim"])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Machine:
    """Each environment in turn."""
    return Machine(*empty_machine(request.param, tmp_path))


@pytest.fixture
def sim() -> SimEnv:
    """A simulated machine with a directory /store."""
    env = SimEnv(seed=2)
    env.make_directory("/store")
    env.sync_directory("/")
    return env
