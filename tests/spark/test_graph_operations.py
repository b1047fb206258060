"""What is done to a graph from outside of its run: looking, pausing, putting back, resetting."""

from __future__ import annotations

import json
import logging
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

from quire.cli import main
from quire.errors import InvalidArgument, QueueInUse
from quire.graphs import graph_names, load_graph, paused_steps, see, set_paused, step_state_name
from quire.spark_graphs import Graph
from quire.spark_graphs.graphs import Phase
from tests.spark.kit import eventually, numbers_in, put_numbers, topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

NUMBER = "cast(cast(payload as string) as long)"


@pytest.fixture
def graph(spark: SparkSession, store: Any) -> Graph:
    """Two steps: one that fails with numbers from 100 on, and counts; one that copies."""
    found = Graph("shop", spark, store.path)
    found.queue("in", keep_forever=True)
    topic(store, "out")

    @found.step("in", "between", name="check", dead="in.dead", limit=50)
    def check(rows: DataFrame) -> DataFrame:
        values = found.state("check")
        values["seen"] = values.get("seen", 0) + rows.count()
        most = found.state("check").get("most", 100)
        return rows.selectExpr(
            f"if({NUMBER} >= {most}, raise_error('too large'), cast(payload as string)) as payload"
        )

    found.step("between", "out", name="copy")(lambda rows: rows.select("payload"))
    return found


def quire(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What the command line prints."""
    capsys.readouterr()
    assert main(["graph", *arguments]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def test_a_graph_is_shown_told_and_reset(
    graph: Graph, store: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By every process that has the store, with and without a run."""
    path = store.path
    assert graph_names(store) == []
    assert "step check" in graph.explain()
    with graph.start() as run:
        put_numbers(store, "in", [0, 1, 200])
        run.drain(timeout=300)
        assert numbers_in(store, "out") == Counter(range(2))
        shown = quire(capsys, "show", path, "shop")
        for words in ("reads in, from earliest on", "1 dead letters", "0 messages (0 bytes) of in"):
            assert words in shown
        with pytest.raises(QueueInUse, match="stop the graph"):
            graph.reset("check")

        quire(capsys, "pause", path, "shop", "check")
        eventually(lambda: run.status().steps["check"].phase is Phase.PAUSED)
        put_numbers(store, "in", [2])
        assert quire(capsys, "ls", path) == "shop: 2 steps, 1 messages behind\n"
        assert quire(capsys, "resume", path, "shop") == "check, copy: going on\n"
        run.drain(timeout=300)
        quire(capsys, "replay", path, "shop", "check", "--max", "1")
        eventually(lambda: not store.get_state("graph.shop", "replay/check"))
        assert store.queue("in.dead").messages == 1  # it was too large again
    assert numbers_in(store, "out") == Counter(range(3))

    said = json.loads(quire(capsys, "show", path, "shop", "--json", "--svg", f"{tmp_path}/g.svg"))
    assert said["now"]["steps"]["check"]["inputs"][0]["lag_messages"] == 0
    assert [step["name"] for step in said["steps"]] == ["check", "copy"]
    check_picture((tmp_path / "g.svg").read_text())
    assert main(["graph", "reset", path, "shop", "check"]) == 1  # it asks, and nobody is there
    assert store.state_items(step_state_name("shop", "check"))
    assert "from position 0 on" in quire(capsys, "reset", path, "shop", "check", "--yes")
    assert store.state_items(step_state_name("shop", "check")) == {}
    assert see(store, load_graph(store, "shop")).steps["check"].lag_messages == 4
    graph.reset("check", to="latest")
    assert see(store, load_graph(store, "shop")).steps["check"].lag_messages == 0


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
        set_paused(store, "shop", "copy", False)
        eventually(lambda: run.status().steps["copy"].phase is Phase.IDLE)
    assert "graph shop, step copy: told to go on" in caplog.text
    for wrong in ({"graph": "none"}, {"step": "none"}):
        given = {"graph": "shop", "step": "copy"} | wrong
        with pytest.raises(InvalidArgument, match="none"):
            set_paused(store, given["graph"], given["step"], True)


def test_the_command_runs_a_graph(
    spark: SparkSession, store: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """By the name of a Graph, or of a function of the store's path; here until it is drained."""
    topic(store, "in", "out")
    put_numbers(store, "in", range(5))
    (tmp_path / "shop_graphs.py").write_text(
        "from pyspark.sql import SparkSession\n"
        "from quire.spark_graphs import Graph\n"
        "def copying(path):\n"
        "    graph = Graph('shop', SparkSession.getActiveSession(), path)\n"
        "    graph.step('in', 'out', name='copy')(lambda rows: rows.select('payload'))\n"
        "    return graph\n"
        "number = 5\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    said = quire(capsys, "run", store.path, "shop_graphs:copying", "--drain")
    assert "copy: idle, 0 messages behind" in said
    assert numbers_in(store, "out") == Counter(range(5))
    for wrong in ("shop_graphs", "shop_graphs:number", "shop_graphs:none", "no_such:graph"):
        assert main(["graph", "run", store.path, wrong]) == 1
        assert "InvalidArgument" in capsys.readouterr().err
