"""Shutdown by a client, in every form of a store: where its owner lets clients do so."""

from __future__ import annotations

from datetime import timedelta

import pytest

import quire
from quire.engine import EmbeddedStore as Store
from quire.remote.ownership.shared_store import SharedStore
from tests.behaviour.forms import AnyStore


def test_a_program_that_owns_a_store_is_not_shut_down(store: AnyStore, work: str) -> None:
    """It is told what to do, and all goes on: also where it asks itself."""
    with pytest.raises(quire.NotAllowed, match=r"not `quire serve`.*end that program"):
        store.admin.shutdown(grace=5.0)
    store.put(work, b"1")
    assert store.admin.explain(work).reason == "ready"


def test_who_serves_a_store_is_told_of_the_shutdown(
    store: AnyStore, owner: Store, work: str
) -> None:
    """With the grace; the call returns at once, and who asks why is told."""
    assert isinstance(owner, SharedStore)
    told: list[float] = []
    owner.on_shutdown(told.append)
    store.put(work, b"1")
    store.admin.shutdown()
    store.admin.shutdown(grace=1.5)
    store.admin.shutdown(grace=timedelta(minutes=1))
    assert told == [0.0, 1.5, 60.0]
    assert store.admin.explain(work).reason == "shutting down"
    for wrong in (-1, "soon", None, True, float("nan")):
        with pytest.raises(quire.InvalidArgument, match="grace"):
            store.admin.shutdown(grace=wrong)  # type: ignore[arg-type]
    assert len(told) == 3
