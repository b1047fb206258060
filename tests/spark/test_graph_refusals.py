"""What a graph refuses before Spark has any part in it, and what it says then."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

import quire
from quire.env import os_env
from quire.errors import InvalidArgument
from quire.spark_graphs import Graph, connection
from quire.spark_graphs.graphs.batches.task_store import TaskStore
from quire.spark_graphs.graphs.definition import Step, check_step
from quire.spark_graphs.graphs.functions.step_function import StepWork
from quire.spark_graphs.graphs.preparing import prepare
from quire.spark_graphs.schema import source_schema
from quire.spark_graphs.source import QuireDataSource
from tests.spark.plain_work import PlainSpark


def graph_at(
    path: object, name: str = "shop", reads: Any = "in", writes: Any = "out", **options: Any
) -> Graph:
    """A graph of one step."""
    spark: Any = PlainSpark()
    given: Any = path
    graph = Graph(name, spark, given)
    graph.step(reads, writes, name="copy", **options)(copy)
    return graph


def copy(rows: Any) -> Any:
    """A step's function."""
    return rows


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "give the path"),
        (5, "give the path"),
        ("", "give the path"),
        ("/dev/null/store", "the directory that it is to be made in is not there"),
        ("/nowhere/at/all", "the directory that it is to be made in is not there"),
        ("FOLDER/file", "is a file: give a directory"),
        ("FOLDER", "holds other things"),
        (f"FOLDER/{'x' * 300}", "cannot be a store's"),
    ],
)
def test_a_path_that_no_store_can_have(tmp_path: Path, given: Any, message: str) -> None:
    """At the latest when the graph starts."""
    (tmp_path / "file").touch()
    path = given.replace("FOLDER", str(tmp_path)) if isinstance(given, str) else given
    with pytest.raises(InvalidArgument, match=message):
        graph_at(path).start()


def refused(message: str, action: Callable[..., object], *given: Any, **named: Any) -> None:
    """It is, with these words."""
    with pytest.raises(InvalidArgument, match=message):
        action(*given, **named)


def test_what_is_no_graph(tmp_path: Path) -> None:
    """Names, sessions and queues that cannot be."""
    spark: Any = PlainSpark()
    for name in ("", "a.b", "a b", None, "x" * 61):
        refused("graph name", Graph, name, spark, str(tmp_path))
    refused("give a SparkSession", Graph, "shop", "local", str(tmp_path))
    graph = graph_at(str(tmp_path / "store"))
    refused("'colour' is none of", graph.queue, "a", colour="red")
    refused("kind", graph.queue, "a", kind="stack")
    refused("capacity", graph.queue, "a", capacity=1.5)
    refused("'lnog'", graph.queue, "a", schema="id lnog")
    assert not graph.queues
    refused("no step 'x'; it has copy", graph.state, "x")
    refused("no step 'x'", graph.start, only="x")
    refused("does not write in", graph.backfill, "copy", to={"in": "other"})
    refused("have the backfill write to another queue", graph.backfill, "copy", to={"out": "in"})
    refused("queue name", graph.backfill, "copy", to={"out": 5})
    refused("give a mapping", graph.backfill, "copy", to="other")


@pytest.mark.parametrize("named", ["in", "out", "dead"])
def test_an_alias_is_no_queue_of_a_graph(tmp_path: Path, named: str) -> None:
    """It may become that of another queue; and it is told which queue it is of."""
    path = str(tmp_path / "store")
    graph = graph_at(path)
    graph.step("in", "out", name="more", dead="dead")(copy)
    with quire.open(path) as store:
        store.create_queue("real", kind="topic", schema="id int")
        store.admin.create_alias(named, "real")
        refused(f"'{named}' is an alias of queue 'real'.*: name 'real'", graph.start)
        store.admin.drop_alias(named)
        store.admin.create_alias("other", "real")
        refused("'other' is an alias", graph.backfill, "copy", to={"out": "other"})
        assert [info.name for info in store.queues()] == ["real"]
        connection.forget(path)


def test_what_is_no_step(tmp_path: Path) -> None:
    """It is refused where it is written, and the graph has it not."""
    graph = graph_at(str(tmp_path / "store"))
    refused("one name, or several", graph.step, None)
    refused("one name, or several", graph.step, "in", 5)
    refused(r"a step is added by @graph.step\(reads=...\)", graph.step, copy)
    refused("stateful 'no': give True or False", graph.step, "in", stateful="no")

    def wrong(message: str, **options: Any) -> None:
        refused(message, graph.step("in", "out", **{"name": "other", **options}), copy)

    wrong("has no dead letters", watermark="1 minute", dead="dead")
    wrong("has no dead letters.*Give `dead` to a step before it", stateful=True, dead="dead")
    wrong("ends? where Spark has them end", stateful=True, marker="day")
    wrong("watermark 5", watermark=5)
    wrong("options 5: give a mapping", stateful=True, options=5)
    wrong("are of streaming steps", options={"columns": "id"})
    wrong("has a step 'copy' already", name="copy")
    refused("called with 1 values", graph.step("in", "out", name="other"), lambda: None)
    assert list(graph.steps) == ["copy"]


class Frame:
    """A DataFrame, as far as it is looked at."""

    columns: tuple[str, ...] = ("payload",)
    mapInArrow = None  # noqa: N815 - Spark's name

    def __init__(self, is_streaming: bool) -> None:
        self.isStreaming = is_streaming


def test_what_a_function_must_not_return() -> None:
    """Rows without a place to go to, streams for batches, and the reverse."""
    nobody: Any = None

    def returned(kind: Any, writes: tuple[str, ...], frame: Any) -> Any:
        step = Step("s", kind, copy, ("in",), writes)
        return StepWork(step, nobody, TaskStore("/nowhere", 1)).outputs(frame)

    refused("writes nothing: give it `writes`", returned, "step", (), Frame(False))
    routed = Frame(False)
    routed.columns = ("payload", "queue")
    refused("writes nothing: give it `writes`", returned, "step", (), routed)
    refused("return a dict of DataFrames", returned, "step", ("a", "b"), Frame(False))
    refused("a stream, and the step is none", returned, "step", ("a",), Frame(True))
    refused("no stream, and the step is one", returned, "streaming", ("a",), Frame(False))
    refused("returned int: return a DataFrame of Spark, or a dict", returned, "step", ("a",), 5)
    table = pa.table({"payload": [b"x"]})
    refused("returned pyarrow.lib.Table: return a DataFrame of", returned, "step", ("a",), table)
    refused("returned rows for 5", returned, "step", ("a",), {5: Frame(False)})


def test_names_that_no_step_can_have() -> None:
    """It is told what to use, and that a function without a name of its own can be given one."""
    graph = graph_at("/nowhere/at/all")
    for wrong in ("a b", "a.b", "x" * 61, "", 5, b"s", "é"):
        refused("use 1 to 60 of", graph.step("in", "out", name=wrong), copy)  # type: ignore[arg-type]
    refused("'<lambda>'.* give the step another by `name`", graph.step("in", "out"), lambda x: x)
    assert list(graph.steps) == ["copy"]


async def later(rows: Any) -> Any:
    """What it returns has to be awaited."""
    return rows


def piecemeal(rows: Any) -> Any:
    """What it returns has to be asked for more."""
    yield rows


def test_a_function_that_does_nothing_when_it_is_called() -> None:
    """It is refused where it is given; one that does not show it, when it has been called."""
    graph = graph_at("/nowhere/at/all")
    for wrong, words in (
        (5, "step 5: give a function of a DataFrame"),
        (None, "step None: give a function"),
        (later, r"is a coroutine function \(async def\), whose calls do nothing by themselves"),
        (piecemeal, "is a generator function"),
    ):
        refused(words, graph.step("in", "out", name="s"), wrong)
        refused(words, graph.step("in", "out", name="s", stateful=True), wrong)
        refused(words, graph.terminal("in", name="s"), wrong)
        function = cast("Any", wrong)
        refused(words.replace("step", "step 's'"), check_step, Step("s", "step", function, ("in",)))
    assert list(graph.steps) == ["copy"]
    for makes in (later, piecemeal):
        hidden = Step("s", "step", lambda rows, makes=makes: makes(rows), ("in",), ("out",))
        refused("returned .*, whose work is not done", hidden.call, 5)


@pytest.mark.parametrize("wrong", [5, "", b"x", ["x"]])
def test_checkpoints_are_a_path(wrong: Any) -> None:
    """Told at once, not when a streaming step starts."""
    spark: Any = PlainSpark()
    refused("checkpoints .* give the path or URL", Graph, "shop", spark, "/nowhere/at/all", wrong)


def test_steps_that_a_graph_does_not_have() -> None:
    """Neither names nor anything else that is given in their place."""
    graph = graph_at("/nowhere/at/all")
    refused("only 5: give the name of a step, or several", graph.start, only=5)
    refused("has no steps to start", graph.start, only=[])
    for wrong in ("other", 5, ["copy"], None):
        refused("has no step .* it has copy", graph.start, only=[wrong])
        refused("has no step .* it has copy", graph.reset, wrong)
        refused("has no step .* it has copy", graph.state, wrong)


@pytest.mark.filterwarnings("always::quire.FileSystemWarning")
def test_a_store_on_a_network_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Source, sink and graph refuse it, and warn where they are told to; their owner serves it."""
    monkeypatch.setattr(os_env, "file_system_of", lambda _: "nfs4")
    path = str(tmp_path / "shop.quire")
    schema = source_schema()
    ways: dict[str, Callable[[dict[str, str]], object]] = {
        "source": lambda given: QuireDataSource(given).reader(schema),
        "stream": lambda given: (
            QuireDataSource({**given, "subscription": "s"}).streamReader(schema).initialOffset()
        ),
        "sink": lambda given: QuireDataSource(given).writer(schema, overwrite=False),
        "stream sink": lambda given: QuireDataSource(given).streamWriter(schema, overwrite=False),
    }
    spark: Any = PlainSpark()
    with pytest.raises(InvalidArgument, match="network file system"):
        Graph("shop", spark, path)
    with pytest.warns(quire.FileSystemWarning):
        Graph("shop", spark, path, network_file_system=True)
    with pytest.warns(quire.FileSystemWarning):
        store = quire.open(path, network_file_system=True)
    with store:
        store.create_queue("q", kind="topic")
        for way in ways.values():
            with pytest.raises(InvalidArgument, match="network file system"):
                way({"path": path, "queue": "q"})
            with pytest.warns(quire.FileSystemWarning):
                way({"path": path, "queue": "q", "networkFileSystem": "true"})
        connection.forget(path)
    monkeypatch.undo()
    with pytest.raises(InvalidArgument, match="must be true or false"):
        ways["sink"]({"path": path, "queue": "q", "networkFileSystem": "nfs"})


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"kind": "work"}, "is a work queue"),
        ({"order": "priority"}, "by priority"),
        ({"order": {"attribute": "n"}}, "in the order"),
        ({"timed": True}, "delayed or expire"),
        ({"grouped": True, "timed": False}, "one reader for each group"),
        ({"type": "volatile"}, "is volatile"),
        ({"keep_latest": "n"}, "the latest message of each key"),
    ],
)
def test_inputs_that_cannot_be_read_by_position(
    store: Any, options: dict[str, Any], reason: str
) -> None:
    """They are refused with the reason, whether they are there or the graph would make them."""
    graph = graph_at(store.path)
    graph.queue("in", **options)
    with pytest.raises(InvalidArgument, match=reason):
        prepare(store, "shop", graph.steps.values(), graph.queues)
    assert store.queues() == []
    store.create_queue("in", **{"kind": "topic", **options})
    other = graph_at(store.path, "other")
    with pytest.raises(InvalidArgument, match=reason):
        prepare(store, "other", other.steps.values(), other.queues)
    assert [info.name for info in store.queues()] == ["in"]


def test_steps_that_are_refused(store: Any) -> None:
    """Names, arguments, and queues that stand twice."""
    graph = graph_at(store.path)
    with pytest.raises(InvalidArgument, match="has a step 'copy' already"):
        graph.step("in", "out", name="copy")(copy)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"limit": 0}, "limit"),
        ({"limit": "much"}, "limit"),
        ({"trigger": "500"}, "trigger"),
        ({"trigger": -1}, "trigger"),
        ({"when_full": "drop"}, "when_full"),
        ({"writes": "in"}, "which it reads"),
        ({"dead": "out"}, "its dead letters"),
        ({"reads": []}, "reads no queue"),
        ({"reads": "no name"}, "queue name"),
        ({"reads": ["in", "on"]}, "is called with 2 values"),
    ]
    for options, reason in wrong:
        with pytest.raises(InvalidArgument, match=reason):
            graph_at(store.path, "g", **options)
    with pytest.raises(InvalidArgument, match="graph name"):
        graph_at(store.path, "no name")
