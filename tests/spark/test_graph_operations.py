"""What is done to a graph from outside of its run, without Spark: looking, pausing, replaying."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

import pytest

from quire.cli import main
from quire.errors import InvalidArgument, QueueInUse, StepTimeout
from quire.graphs import graph_names, load_graph, paused_steps, see, set_paused
from quire.spark_graphs import Graph, connection
from quire.spark_graphs.graphs import Phase, Run
from quire.spark_graphs.graphs import graph as module
from quire.spark_graphs.graphs import run as run_module
from tests.kit.limits import limited
from tests.kit.waiting import SECONDS, eventually
from tests.spark.numbered_queues import numbers_in, put_numbers, topic
from tests.spark.plain_work import PlainSpark, PlainWork, thread

Payloads = dict[str, list[bytes]]


class Spark(PlainSpark):
    """What a run asks of it besides."""

    conf: Final[Mapping[str, str]] = {"spark.master": "local[2]"}

    def interruptTag(self, tag: str) -> None:  # noqa: N802 - Spark's name
        """Nothing runs there."""


@pytest.fixture
def graph(store: Any, monkeypatch: pytest.MonkeyPatch) -> Graph:
    """Two steps: one that fails with what is no number; one that copies."""
    monkeypatch.setattr(module, "StepWork", PlainWork)
    monkeypatch.setattr(module, "try_out", lambda work: None)
    monkeypatch.setattr(Run, "_thread", lambda run, target: thread(target))
    spark: Any = Spark()
    found = Graph("shop", spark, store.path)
    found.queue("in", keep_forever=True)
    topic(store, "out")

    def check(payloads: list[bytes]) -> Payloads:
        return {"between": [b"%d" % int(payload) for payload in payloads]}

    def copy(payloads: list[bytes]) -> Payloads:
        return {"out": payloads}

    found.step("in", "between", dead="in.dead", limit=50)(check)
    found.step("between", "out")(copy)
    return found


def quire(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What the command line prints."""
    capsys.readouterr()
    assert main(["graph", *arguments]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def test_a_graph_that_runs_is_shown_and_told(
    graph: Graph, store: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the command line, which needs neither the graph's program nor Spark."""
    path = store.path
    assert graph_names(store) == []
    with graph.start() as run:
        put_numbers(store, "in", range(9))
        store.put("in", b"none")
        run.drain(SECONDS)
        assert numbers_in(store, "out") == Counter(range(9))
        shown = quire(capsys, "show", path, "shop")
        for words in ("reads in, from earliest on", "1 dead letters", "0 messages (0 bytes) of in"):
            assert words in shown
        with pytest.raises(QueueInUse, match="stop it first"):
            graph.reset("check")

        quire(capsys, "pause", path, "shop", "check")
        eventually(lambda: run.status().steps["check"].phase is Phase.PAUSED)
        put_numbers(store, "in", [9])
        assert quire(capsys, "ls", path) == "shop: 2 steps, 1 messages behind\n"
        assert quire(capsys, "resume", path, "shop") == "check, copy: going on\n"
        eventually(lambda: run.status().steps["check"].phase is not Phase.PAUSED)
        run.drain(SECONDS)
        first = store.browse("in.dead")[0].id
        quire(capsys, "replay", path, "shop", "check", "--max", "1")
        eventually(lambda: store.states.get("graph.shop", "replay/check") is None)
        (letter,) = store.browse("in.dead")
        assert letter.id > first  # it is no number still
        assert graph.draw(f"{tmp_path}/g.svg") == (tmp_path / "g.svg").read_text()
        check_picture((tmp_path / "g.svg").read_text())
    assert numbers_in(store, "out") == Counter(range(10))
    said = json.loads(quire(capsys, "show", path, "shop", "--json"))
    assert [step["name"] for step in said["steps"]] == ["check", "copy"]
    assert said["queues"][0]["options"] == {"keep_forever": "True"}
    assert graph.reset("check") == {"in": 0}
    assert see(store, load_graph(store, "shop")).steps["check"].lag_messages == 11
    assert "11 messages" in graph.explain()
    connection.forget(path)


def check_picture(svg: str) -> None:
    """It is XML, with every name; nothing is drawn outside of it."""
    root = ET.fromstring(svg)
    texts = {"".join(each.itertext()) for each in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"check", "copy", "in", "between", "out", "in.dead", "1 message"} <= texts
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for box in root.iter("{http://www.w3.org/2000/svg}rect"):
        assert 0 <= float(box.attrib["x"]) <= width - float(box.attrib["width"])
        assert 0 <= float(box.attrib["y"]) <= height - float(box.attrib["height"])


def test_a_graph_that_was_told_to_pause_starts_so(
    graph: Graph, store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """What it is told outlives its run; the log says what happens."""
    with graph.start():
        pass
    assert set_paused(store, "shop", None, True) == ["check", "copy"]
    assert paused_steps(store, "shop") == {"check", "copy"}
    with caplog.at_level(logging.INFO, "quire"), graph.start(only=["copy"]) as run:
        eventually(lambda: run.status().steps["copy"].phase is Phase.PAUSED)
        eventually(lambda: "graph shop, step copy: told to pause" in caplog.text)
        set_paused(store, "shop", "copy", False)
        eventually(lambda: run.status().steps["copy"].phase is Phase.IDLE)
        eventually(lambda: "graph shop, step copy: told to go on" in caplog.text)
    for wrong in ({"graph": "none"}, {"step": "none"}):
        given = {"graph": "shop", "step": "copy"} | wrong
        with pytest.raises(InvalidArgument, match="none"):
            set_paused(store, given["graph"], given["step"], True)
    connection.forget(store.path)


def run_and_tell(graph: Graph, telling: int) -> None:
    """Run it in this process, and tell a pipe whenever all steps are paused, or not any more."""
    try:
        connection._stores.clear()
        run, was = graph.start(), False
        while True:
            now = all(step.phase is Phase.PAUSED for step in run.status().steps.values())
            if now != was:
                os.write(telling, b"paused" if now else b"going on")
            was = now
            time.sleep(0.005)
    finally:
        os._exit(1)


@pytest.mark.crash
@pytest.mark.promise(2)
def test_a_graph_killed_while_it_is_paused(
    graph: Graph, store: Any, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Started again it is paused still, and goes on where it was when it is told to."""
    monkeypatch.setattr(run_module, "WATCH_SECONDS", 0.02)
    store.create_queue("in", kind="topic", keep_forever=True)
    put, before = 0, Counter[int]()
    for number in range(max(2, rounds // 25)):
        told, telling = os.pipe()
        process = os.fork()
        if process == 0:
            run_and_tell(graph, telling)
        os.close(telling)
        put_numbers(store, "in", range(put, put + 30))
        put += 30
        if number:
            assert os.read(told, 100) == b"paused"
            assert numbers_in(store, "out") == before
            set_paused(store, "shop", None, False)
        eventually(lambda old=before: numbers_in(store, "out").total() > old.total())  # type: ignore[misc]
        set_paused(store, "shop", None, True)
        eventually(lambda told=told: os.read(told, 100).endswith(b"paused"))  # type: ignore[misc]
        os.close(told)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        before = numbers_in(store, "out")
        assert not before - Counter(range(put))
    with graph.start():
        set_paused(store, "shop", None, False)
        eventually(lambda: numbers_in(store, "out") == Counter(range(put)))
    connection.forget(store.path)


def test_a_graph_without_a_store_is_told_and_drawn(graph: Graph, tmp_path: Path) -> None:
    """Nothing is made for it."""
    spark: Any = Spark()
    planned = Graph("plan", spark, f"{tmp_path}/none")
    planned.step("a", "b", name="s")(lambda payloads: {"b": payloads})
    assert "step s\n  reads a" in planned.explain()
    assert "now:" not in planned.explain()
    assert planned.draw().startswith("<svg")
    assert not (tmp_path / "none").exists()
    with pytest.raises(InvalidArgument, match="has no step 'x'"):
        planned.reset("x")


def test_how_long_a_run_is_waited_for(graph: Graph) -> None:
    """Seconds from 0 on: what is none is told, and nothing waits for ever by mistake."""
    with graph.start() as run:
        assert not run.wait(0)
        for wrong in ("x", -1, float("nan"), True):
            with pytest.raises(InvalidArgument, match="give seconds from 0 on"):
                run.wait(wrong)  # type: ignore[arg-type]
        run.stop("copy")
        run.stop("check")
        assert run.wait(float("inf"))
    connection.forget(graph.path)


def test_what_goes_on_when_the_time_is_over(
    graph: Graph, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of Quire's that is a TimeoutError too, with what to do."""
    topic(store, "slow-in")
    going_on = threading.Event()

    def slow(payloads: list[bytes]) -> Payloads:
        going_on.wait()
        return {}

    graph.step("slow-in", name="slow")(slow)
    store.put("slow-in", b"1")
    with limited({"STOP_SECONDS": 0.0}):
        run = graph.start()
        with pytest.raises(StepTimeout, match="more to read: slow 1 messages; wait for longer"):
            run.drain(0.01)
        with pytest.raises(TimeoutError, match=r"'slow' goes on after .*: stop it again"):
            run.stop("slow")
        going_on.set()
    monkeypatch.undo()
    run.stop()
    connection.forget(graph.path)
