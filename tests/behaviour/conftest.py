"""The forms of a store, of which each test gets all, and a queue in them."""

from __future__ import annotations

import pytest

from tests.behaviour.forms import AnyStore, clock, elected, joined, owner, store
from tests.kit.folded_state import stores_are_folded

__all__ = ["clock", "elected", "joined", "owner", "store", "stores_are_folded"]


@pytest.fixture
def work(store: AnyStore) -> str:
    """A work queue."""
    return store.create_queue("work", kind="work").name
