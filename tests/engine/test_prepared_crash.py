"""Canaries of the workload `prepared`: engines that are broken on purpose must be caught by it."""

from __future__ import annotations

from typing import Any

import pytest

from quire.engine.checkpoints import snapshot
from quire.engine.queues.subscription import Subscription
from quire.errors import StoreCorrupt, TransactionNotFound
from tests.engine.crashing.drawn import try_several

pytestmark = pytest.mark.crash


def caught(seed: int) -> None:
    """The checks find what is broken."""
    with pytest.raises((AssertionError, StoreCorrupt, TransactionNotFound)):
        try_several(range(seed, seed + 40), "prepared")


@pytest.mark.cases(8)
def test_nothing_is_caught_where_nothing_is_broken(seed: int) -> None:
    """What the canaries run first passes as it is."""
    try_several(range(seed, seed + 1), "prepared")


@pytest.mark.cases(4)
def test_canary_delivers_what_is_in_flight(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recovery after which others get what a prepared transaction has got."""
    resume = Subscription.resume

    def all_of_it(self: Subscription, in_flight: list[tuple[int, int]], *rest: Any) -> None:
        resume(self, [], *rest)

    monkeypatch.setattr(Subscription, "resume", all_of_it)
    caught(seed)


def test_canary_checkpoints_without_them(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint that forgets the prepared transactions."""
    document = snapshot.Snapshot.document

    def without(self: snapshot.Snapshot, numbers: Any) -> dict[str, Any]:
        return {**document(self, numbers), "held": []}

    monkeypatch.setattr(snapshot.Snapshot, "document", without)
    caught(seed)


def test_canary_keeps_the_space(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rollback that keeps the queues' space."""
    monkeypatch.setattr(
        "quire.engine.queues.reservation.Space.rollback_prepared",
        lambda self, charge, messages: self.keep_prepared(-charge, -messages, -1),
    )
    caught(seed)
