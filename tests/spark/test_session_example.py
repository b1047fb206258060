"""Sessions of examples/graphs/sessions.py are what they are, however clicks come in batches."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import quire
from examples.graphs import sessions
from quire.spark_graphs import connection
from tests.kit.waiting import SECONDS, eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

GAP, DELAY = 30, 5  # minutes, as the example has them
Click = tuple[str, int]


def model(clicks: list[Click]) -> Counter[str]:
    """The sessions of all clicks, whatever batches there are."""
    found: Counter[str] = Counter()
    for user in {user for user, _ in clicks}:
        minutes = sorted(minute for name, minute in clicks if name == user)
        begins = [n for n in range(len(minutes)) if not n or minutes[n] >= minutes[n - 1] + GAP]
        for start, stop in zip(begins, [*begins[1:], len(minutes)], strict=True):
            length = minutes[stop - 1] - minutes[start]
            found[f"{user}: {stop - start} in {length} minutes"] += 1
    return found


def drawn(rng: random.Random) -> list[Click]:
    """Clicks of several sessions of each user, none later than the delay."""
    clicks, now = [], 0
    for _ in range(60):
        now += rng.choice([0, 1, 2, 9, 25])
        clicks.append((f"u{rng.randrange(4)}", now))
    return sorted(clicks, key=lambda click: click[1] + rng.random() * (DELAY - 1))


@pytest.mark.parametrize("batches", [1, 4])
def test_sessions_do_not_depend_on_batches(
    spark: SparkSession, tmp_path: Path, rng: random.Random, batches: int
) -> None:
    """Each is there once, with all of its clicks, from two inputs, out of order."""
    path, day, clicks = str(tmp_path / "store"), datetime(2026, 1, 1, tzinfo=UTC), drawn(rng)
    end = max(minute for _, minute in clicks) + GAP + DELAY
    with sessions.graph(spark, path).start() as run, quire.open(path) as store:
        size = len(clicks) // batches
        for start in range(0, len(clicks), size):
            with store.transaction() as txn:
                for user, minute in clicks[start : start + size]:
                    at = day + timedelta(minutes=minute)
                    txn.put(rng.choice(["web", "app"]), {"user": user, "at": at})
            run.drain(timeout=SECONDS)
        for queue in ("web", "app"):
            store.put(queue, {"user": "end", "at": day + timedelta(minutes=end)})
        run.drain(timeout=SECONDS)

        def ended() -> Counter[str]:
            return Counter(message.payload.decode() for message in store.browse("sessions"))

        eventually(lambda: ended() == model(clicks))
    connection.forget(path)
