"""Fixtures of pytest for tests of programs that use Quire.

In a `conftest.py`:

    pytest_plugins = ["quire.testing.fixtures"]

| fixture | gives each test |
|---|---|
| `quire_store` | an empty store in memory: no disk, no other process. Closed after the test |
| `quire_disk_store` | an empty store on the disk of pytest's `tmp_path`. Closed after the test |
| `quire_path` | a path where a test opens a store by itself, as often as it wants |

Needs pytest, which Quire does not install.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.interface.store import Store
from quire.libraries.late_imports import importing

__all__ = ["quire_disk_store", "quire_path", "quire_store"]


@pytest.fixture
def quire_store() -> Iterator[Store]:
    """An empty store in memory."""
    with importing():
        from quire.opening import open as open_store

    with open_store(":memory:") as store:
        yield store


@pytest.fixture
def quire_path(tmp_path: Path) -> str:
    """A path where nothing is yet, in a folder of this test alone."""
    return str(tmp_path / "quire")


@pytest.fixture
def quire_disk_store(quire_path: str) -> Iterator[Store]:
    """An empty store on a disk, which other processes may join by its `path`."""
    with importing():
        from quire.opening import open as open_store

    with open_store(quire_path) as store:
        yield store
