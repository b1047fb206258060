"""Signals that raise, at random moments of every call of an embedded store."""

from __future__ import annotations

import signal
import threading
from random import Random

import pytest

import quire
from tests.engine.interrupting import FEW, NAMES, SHOWN, interrupt, prepared

pytestmark = SHOWN


@pytest.mark.promise(2)
@pytest.mark.parametrize("rounds", [FEW, pytest.param(1000, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", NAMES)
def test_promise_2_signals_that_raise_at_random_moments(
    store_path: str, rng: Random, name: str, rounds: int
) -> None:
    """Embedded: the store goes on, and each call is whole, or was not made."""
    with quire.open(store_path, share=False) as store:
        calls = prepared(store)
        count = interrupt(calls, name, rng, rounds)
        calls.check()
        assert count > rounds / 20
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    assert threading.active_count() < 20
    with quire.open(store_path, share=False) as store:
        assert store.admin.verify().ok
