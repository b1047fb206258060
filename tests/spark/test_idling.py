"""How often a source without news looks for some."""

from __future__ import annotations

from itertools import pairwise

import pytest

from quire.spark_graphs.limits import IDLE_PAUSE_SECONDS
from quire.spark_graphs.planning.batch_pace import Idling
from quire.testing import SimEnv

POLL = 0.01  # what Spark waits between two looks


def looks(env: SimEnv, idling: Idling, seconds: float, poll: float = POLL) -> list[float]:
    """When Spark looks, for so many seconds."""
    end, times = env.monotonic() + seconds, []
    while env.monotonic() < end:
        idling.pause()
        times.append(env.monotonic())
        env.advance(poll)
    return times


def test_a_source_without_news_looks_less_and_less_often() -> None:
    """At once at first, and never after more than the longest pause."""
    env = SimEnv()
    idling = Idling(env)
    times = looks(env, idling, 30.0)
    assert times[5] - times[0] < 0.07
    assert len([each for each in times if each > times[0] + 10]) < 20 / IDLE_PAUSE_SECONDS + 2
    for before, after in pairwise(times):
        most = min(IDLE_PAUSE_SECONDS, 0.1 * (after - times[0]))
        assert after - before <= max(most, POLL) + 0.001


def test_a_micro_batch_ends_the_waiting() -> None:
    """Whatever comes next is seen at once."""
    env = SimEnv()
    idling = Idling(env)
    looks(env, idling, 30.0)
    idling.end()
    begin = env.monotonic()
    assert looks(env, idling, 0.02)[0] - begin < 0.001


def test_a_trigger_interval_is_pause_enough() -> None:
    """The look at its end does not wait."""
    env = SimEnv()
    idling = Idling(env)
    times = looks(env, idling, 30.0, poll=1.0)
    assert [after - before for before, after in pairwise(times)] == [
        pytest.approx(1.0, abs=0.001)
    ] * (len(times) - 1)
