"""Spark that ends, with its JVM or by a word: the run ends with it, and says so."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.kit.waiting import SECONDS, eventually
from tests.spark.ended_graph import STEPS
from tests.spark.numbered_queues import numbers_in, put_numbers, topic
from tests.spark.session import ROOT
from tests.spark.test_graph_kills import killed

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.crash, pytest.mark.promise(2)]

ENDED = "Spark has ended: start the graph again in a new session"
END_SECONDS = 60  # well beyond the ten that it takes, on a machine that has much else to do


@pytest.fixture
def program(store: Any, tmp_path: Path) -> Any:
    """Starts a program of this directory over the store, which has messages for it."""
    topic(store, "in", "copied", "streamed")
    put_numbers(store, "in", range(10))
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        with (tmp_path / "said").open("wb") as said:
            started.append(
                subprocess.Popen(
                    [sys.executable, "-m", *arguments],
                    cwd=ROOT,
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            killed(process)


def said(tmp_path: Path) -> str:
    """What the program has written."""
    return (tmp_path / "said").read_text()


def java_of(process: subprocess.Popen[bytes]) -> psutil.Process:
    """Its JVM."""
    children = psutil.Process(process.pid).children(recursive=True)
    return next(child for child in children if child.name() == "java")


def are_read(store: Any) -> bool:
    """Whether all steps have read all there is."""
    ends = store.queue("in").end_position
    graph = [each for each in store.subscriptions("in") if each.name.startswith("ended.")]
    return len(graph) == len(STEPS) and all(each.position == ends for each in graph)


def test_a_command_ends_with_spark(program: Any, store: Any, tmp_path: Path) -> None:
    """All steps are at rest; the JVM is killed. Started again, each goes on where it was."""
    process = program("quire", "graph", "run", store.path, "tests.spark.ended_graph:make")
    eventually(lambda: are_read(store) or process.poll() is not None)
    assert process.poll() is None, said(tmp_path)
    java_of(process).kill()
    assert process.wait(END_SECONDS) == 1, said(tmp_path)
    last = said(tmp_path)[said(tmp_path).rindex("graph ended at") :]
    for name in STEPS:
        assert f"{name}: failed, 0 messages behind" in last
    assert last.count(ENDED) == len(STEPS)

    put_numbers(store, "in", range(10, 20))
    again = program("quire", "graph", "run", store.path, "tests.spark.ended_graph:make", "--drain")
    assert again.wait(SECONDS) == 0, said(tmp_path)
    assert numbers_in(store, "copied") == numbers_in(store, "streamed") == Counter(range(20))


def test_a_command_ends_though_a_function_does_not(
    program: Any, store: Any, tmp_path: Path
) -> None:
    """One that waits in Python, where it sees nothing of Spark; also with `--drain`."""
    process = program(
        "quire", "graph", "run", store.path, "tests.spark.ended_graph:make", "--drain"
    )
    store.put("in", b"hold")
    eventually(
        lambda: (
            process.poll() is not None
            or (numbers_of(store, "streamed") == 11 and numbers_of(store, "copied") == 11)
        )
    )
    assert process.poll() is None, said(tmp_path)
    java_of(process).kill()
    assert process.wait(END_SECONDS) == 1, said(tmp_path)
    assert ENDED in said(tmp_path)


def numbers_of(store: Any, queue: str) -> int:
    """How many messages it has got."""
    return int(store.queue(queue).end_position)


def test_a_signal_ends_a_command_that_drains(program: Any, store: Any, tmp_path: Path) -> None:
    """Though there is more to read, which a step holds up."""
    store.put("in", b"hold")
    process = program(
        "quire", "graph", "run", store.path, "tests.spark.ended_graph:make", "--drain"
    )
    eventually(lambda: process.poll() is not None or numbers_of(store, "streamed") == 11)
    assert process.poll() is None, said(tmp_path)
    process.send_signal(signal.SIGTERM)
    process.wait(SECONDS)
    assert "'take' goes on after" in said(tmp_path)  # which is told, as ever


def test_a_run_ends_with_spark(program: Any, store: Any, tmp_path: Path) -> None:
    """Its waits return, its steps have failed, and nothing is begun again in it."""
    process = program("tests.spark.ended_graph", store.path)
    assert process.wait(SECONDS) == 0, said(tmp_path)
    (line,) = [each for each in said(tmp_path).splitlines() if each.startswith('{"has_ended"')]
    found = json.loads(line)
    assert found["has_ended"]
    assert found["phases"] == dict.fromkeys(STEPS, "failed")
    for name in STEPS:
        assert found["errors"][name].startswith(f"StepFailed: {ENDED}")
    assert found["drain"].startswith("StepFailed: step 'copy' is failed and 0 messages behind")
    assert ENDED in found["drain"]
    assert ENDED in found["resume"]
    assert found["stop"] == "nothing"
