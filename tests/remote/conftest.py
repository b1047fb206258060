"""Stores for the tests of sharing: those of `tests/behaviour`; and an owner that a test plays."""

from collections.abc import Iterator

import pytest

from tests.behaviour.forms import clock, elected, joined, owner, store

from .scripted_owner import ScriptedOwner

__all__ = ["clock", "elected", "joined", "owner", "store"]


@pytest.fixture
def silent(store_path: str) -> Iterator[ScriptedOwner]:
    """An owner that answers nothing by itself."""
    with ScriptedOwner(store_path) as owner:
        yield owner
