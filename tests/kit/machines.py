"""Environments with an empty directory."""

from __future__ import annotations

from pathlib import Path

from quire.env import Env, OsEnv
from quire.testing import SimEnv


def empty_machine(kind: str, path: Path) -> tuple[Env, str]:
    """The real machine ("os") with that directory, or a simulated one with `/store`."""
    if kind == "os":
        return OsEnv(), str(path)
    env = SimEnv(seed=1)
    env.make_directory("/store")
    return env, "/store"
