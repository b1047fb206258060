"""Power failures under a real Spark: a store and a checkpoint as a failure may leave them.

What the sink has synced of the checkpoint (doubles.py notes it) is kept; of the other files each is
kept, gone, empty or cut off, and files that were being written lie about.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import quire
from quire.spark_graphs import connection
from tests.kit.waiting import eventually
from tests.spark.checkpoint_logs import last_logged
from tests.spark.numbered_queues import numbers_in, put_numbers, topic
from tests.spark.queries import run_to_end, sink, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.promise(1, 2)]


def copying(spark: SparkSession, store: Any, checkpoint: Path, control: Path) -> DataStreamWriter:
    """From `in` to `out`, 100 messages at a time."""
    rows = stream(spark, store, "in", maxMessagesPerTrigger=100)
    writer = sink(rows, store, checkpoint, "quire_steered", control=str(control), queue="out")
    return writer.trigger(availableNow=True)


def snapshot(store: Any, checkpoint: Path, place: Path) -> Path:
    """The store and the checkpoint as they are, while nothing is written."""
    shutil.copytree(store.path, place / "store", ignore=shutil.ignore_patterns("run"))  # sockets
    shutil.copytree(checkpoint, place / "checkpoint")
    return place


def lose_power(place: Path, kept: set[str], rng: random.Random) -> list[str]:
    """What is not synced in the checkpoint has some fate; those fates."""
    told, checkpoint = [], place / "checkpoint"
    for path in sorted(checkpoint.rglob("*")):
        name = str(path.relative_to(checkpoint))
        if not path.is_file() or name in kept:
            continue
        fate = rng.choice(["kept", "gone", "empty", "cut"])
        if fate == "gone":
            path.unlink()
        elif fate != "kept":
            content = path.read_bytes()
            path.write_bytes(content[: 0 if fate == "empty" else len(content) // 2])
        told.append(f"{name} {fate}")
    for log in ("offsets", "commits"):
        (checkpoint / log / f".9.{rng.getrandbits(64):x}.tmp").write_bytes(b"v1\n{")
    return told


def synced_in(control: Path, checkpoint: Path) -> set[str]:
    """Files of the checkpoint that the sink has made durable, with their names."""
    synced = set((control / "synced").read_text().split())
    assert f"{checkpoint}/" in synced
    assert f"{checkpoint}/offsets/" in synced
    return {line.removeprefix(f"{checkpoint}/") for line in synced if not line.endswith("/")}


def delete_cut_off(checkpoint: Path, whole: Path) -> bool:
    """As documented: the newest file of a log, if it is cut off."""
    deleted = False
    for log in ("offsets", "commits"):
        last = last_logged(checkpoint, log)
        path = checkpoint / log / str(last)
        if last is not None and path.stat().st_size < (whole / log / str(last)).stat().st_size:
            path.unlink()
            (checkpoint / log / f".{last}.crc").unlink(missing_ok=True)
            deleted = True
    return deleted


@pytest.mark.long
def test_promise_1_2_power_failures_of_a_real_checkpoint(
    spark: SparkSession,
    store: Any,
    tmp_path: Path,
    control: Path,
    rng: random.Random,
    rounds: int,
) -> None:
    """Between the two commits of the third micro-batch, and after both: exactly once."""
    topic(store, "in", "out")
    put_numbers(store, "in", range(200))
    checkpoint = tmp_path / "checkpoint"
    run_to_end(copying(spark, store, checkpoint, control).start())
    put_numbers(store, "in", range(200, 250))
    (control / "hold-after").touch()
    query = copying(spark, store, checkpoint, control).start()
    eventually((control / "committed-2").exists)
    between = snapshot(store, checkpoint, tmp_path / "between")
    assert last_logged(between / "checkpoint", "commits") == 1
    (control / "hold-after").unlink()
    run_to_end(query)
    after = snapshot(store, checkpoint, tmp_path / "after")
    kept = synced_in(control, checkpoint)
    assert {"metadata", "offsets/0", "offsets/1", "offsets/2"} <= kept
    for number in range(max(2, rounds // 25)):
        place = tmp_path / f"round-{number}"
        whole = (between, after)[number % 2]
        shutil.copytree(whole, place)
        told = lose_power(place, kept, rng)
        with quire.open(str(place / "store")) as again:
            put_numbers(again, "in", range(250, 400))
            go_on(spark, again, place, whole / "checkpoint", control)
            assert numbers_in(again, "out") == Counter(range(400)), told
        connection.forget(str(place / "store"))
        shutil.rmtree(place)


def go_on(spark: SparkSession, store: Any, place: Path, whole: Path, control: Path) -> None:
    """Start the query again; a file that is cut off, as Spark says then, is deleted."""
    for _ in range(4):
        query = copying(spark, store, place / "checkpoint", control)
        try:
            run_to_end(query.start())
        except AssertionError:
            raise
        except Exception as error:
            if not delete_cut_off(place / "checkpoint", whole):
                raise AssertionError(f"stuck: {error}") from error
        else:
            return
    raise AssertionError("stuck")
