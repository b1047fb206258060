"""The pipelines that users of Spark have, whose program is killed: each result is exact."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.kit.descendants import kill_descendants
from tests.kit.waiting import eventually
from tests.source_tree import ROOT
from tests.spark.checkpoint_logs import last_logged
from tests.spark.numbered_queues import CHECK, topic
from tests.spark.pipelines import (
    CLOSING,
    FIRST_SECONDS,
    INPUTS,
    KEYS,
    OUTPUTS,
    WINDOW_SECONDS,
    event,
)

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.promise(2), pytest.mark.long]

ROUNDS = 3
IN_A_ROUND = 300
QUERIES = ("unique", "windows", "joined", "numbered", "split")
START_SECONDS = 600


def put(store: Any, numbers: range) -> None:
    """Events, each of them twice, orders, and the payment of each order."""
    for number in numbers:
        with store.transaction() as txn:
            for _ in range(2):
                txn.put("events", event(number))
            txn.put("orders", event(number))
            txn.put("payments", event(number, number + 30))


def close(store: Any) -> None:
    """Events of a far future, in two micro-batches, so that all windows end."""
    for first in (CLOSING, 2 * CLOSING):
        for queue in INPUTS:
            for number in range(first, first + 70):
                store.put(queue, event(number, number))


def found(store: Any, queue: str) -> list[dict[str, int]]:
    """The rows of a queue."""
    payloads = store.browse(f"{queue}/{CHECK}", max_messages=100_000).payloads()
    return [json.loads(payload) for payload in payloads]


def ids(store: Any, queue: str) -> Counter[int]:
    """How often each id is there, but for the closing ones."""
    return Counter(row["id"] for row in found(store, queue) if row["id"] < CLOSING)


class Program:
    """The program of pipelines.py."""

    def __init__(self, store: Any, tmp_path: Path) -> None:
        self.log = tmp_path / "pipelines.log"
        arguments = [store.path, str(tmp_path / "checkpoints"), str(tmp_path), str(START_SECONDS)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.pipelines", *arguments],
                cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def kill(self) -> None:
        """SIGKILL to the program, its JVM and its workers."""
        children = kill_descendants(self.process.pid)
        self.process.kill()
        psutil.wait_procs(children, timeout=60)
        self.process.wait(60)


def test_pipelines_are_exact_whenever_their_program_is_killed(
    store: Any, tmp_path: Path, rng: random.Random
) -> None:
    """JSON in; duplicates dropped, windows, a join, two targets, numbers by state. Three kills."""
    topic(store, *INPUTS, *OUTPUTS)
    checkpoints = tmp_path / "checkpoints"

    def progress() -> dict[str, int | None]:
        return {name: last_logged(checkpoints / name, "offsets") for name in QUERIES}

    count = 0
    for killed in rng.sample(QUERIES, ROUNDS):
        put(store, range(count, count + IN_A_ROUND))
        count += IN_A_ROUND
        before = progress()
        program = Program(store, tmp_path)

        def has_begun(
            program: Program = program, killed: str = killed, before: Any = before
        ) -> bool:
            assert program.process.poll() is None, program.log.read_text()[-3000:]
            return bool(progress()[killed] != before[killed])

        eventually(has_begun, START_SECONDS)
        time.sleep(rng.random() * 5)
        program.kill()
    close(store)
    program = Program(store, tmp_path)
    assert program.process.wait(START_SECONDS) == 0, program.log.read_text()[-3000:]
    everything = Counter(range(count))
    assert ids(store, "unique") == everything
    assert ids(store, "joined") == everything
    assert ids(store, "small") == Counter(n for n in everything if n % KEYS < 2)
    assert ids(store, "large") == Counter(n for n in everything if n % KEYS >= 2)
    windows = {row["start"] - FIRST_SECONDS: row["count"] for row in found(store, "windows")}
    assert len(windows) == len(found(store, "windows"))
    expected = Counter(n // WINDOW_SECONDS * WINDOW_SECONDS for n in everything)
    last = CLOSING - WINDOW_SECONDS
    assert {start: n for start, n in windows.items() if start < last} == expected
    by_key: dict[int, list[int]] = {}
    for row in found(store, "numbered"):
        by_key.setdefault(row["key"], []).append(row["number"])
    per_key = (count + 140) // KEYS
    assert {key: sorted(n) for key, n in by_key.items()} == {
        key: list(range(1, per_key + 1)) for key in range(KEYS)
    }
