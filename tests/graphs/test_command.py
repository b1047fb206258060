"""`quire graph` over a store whose graph nobody runs; that of tests/spark has one that runs."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from xml.etree import ElementTree as ET

import pytest

from quire.cli import main
from quire.engine import EmbeddedStore as Store
from quire.env import OsEnv
from quire.errors import InvalidArgument, QueueInUse, StepTimeout
from quire.graphs import (
    GraphDefinition,
    QueueDefinition,
    StepDefinition,
    awaited_markers,
    draw,
    load_graph,
    paused_steps,
    requested_replays,
    reset_step,
    save_graph,
    see,
    step_state_name,
    take_replay,
    tell_awaited,
    write_drawing,
)

GRAPH = GraphDefinition(
    "shop",
    (QueueDefinition("in"),),
    (
        StepDefinition("check", "step", ("in",), ("out",), "dead", 10, 4096),
        StepDefinition("windows", "streaming", ("out",)),
    ),
)
Command = Callable[..., str]


@pytest.fixture
def path(store_path: str) -> Iterator[str]:
    """Of a store in which the graph has done two batches; nobody has it open."""
    with Store.open(store_path, background=False) as store:
        store.create_queue("in", kind="topic", keep_forever=True)
        store.admin.create_queues([{"name": "out", "kind": "topic"}, "dead"])
        store.subscribe("in", "shop.check")
        store.subscribe("out", "shop.windows")
        save_graph(store, GRAPH)
        save_graph(store, GRAPH)
        store.put_many("in", [b"%d" % number for number in range(10)])
        with store.transaction() as txn:
            txn.read_to("in/shop.check", 7)
            txn.put_many("out", [b"x"] * 6)
            txn.put("dead", b"y")
            txn.enter("graph/shop/check", 1)
            txn.set_value(step_state_name("shop", "check"), "seen", b"7")
        assert store.status()["state"]["keys"] == 2
    yield store_path
    with Store.open(store_path, background=False) as store:
        assert store.admin.verify().ok


@pytest.fixture
def quire(path: str, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command; what it prints, or its error where it ends with another status than 0."""

    def run(command: str, *arguments: str, status: int = 0) -> str:
        capsys.readouterr()
        assert main(["graph", command, path, *arguments]) == status
        out, err = capsys.readouterr()
        return err if status else out

    return run


def test_it_is_listed_and_shown(quire: Command, tmp_path: Path) -> None:
    """In words, as JSON, as a picture; the store is only looked at."""
    assert quire("ls") == "shop: 2 steps, 9 messages behind\n"
    (listed,) = json.loads(quire("ls", "--json"))
    shown = json.loads(quire("show", "shop", "--json", "--svg", f"{tmp_path}/g.svg"))
    assert listed == shown
    check = shown["now"]["steps"]["check"]
    assert (check["number"], check["lag_messages"], check["dead_letters"]) == (1, 3, 1)
    assert (check["is_paused"], check["state_keys"]) == (False, 1)
    texts = {"".join(each.itertext()) for each in ET.parse(tmp_path / "g.svg").iter()}
    assert {"check", "windows", "3 behind", "6 behind", "10 messages", "1 message"} <= texts
    words = quire("show", "shop")
    assert "now: batch 1 is committed, 3 messages" in words
    assert "1 values kept, 1 dead letters" in words
    assert "knows no graph 'none'; it knows shop" in quire("show", "none", status=1)
    assert "InvalidArgument: graph name 'a b': use 1 to" in quire("show", "a b", status=1)


def test_a_picture_that_cannot_be_written(quire: Command, tmp_path: Path) -> None:
    """The folder is not there, or it is a folder: Quire says so, and what to give."""
    for path, reason in [
        (tmp_path / "none" / "g.svg", "No such file or directory"),
        (tmp_path, "Is a directory"),
        (f"{tmp_path}/g\0.svg", "null"),
        ("", "give the path of a file"),
    ]:
        told = quire("show", "shop", "--svg", str(path), status=1)
        assert "InvalidArgument: path" in told
        assert reason in told
    write_drawing(tmp_path / "g.svg", "longer")
    write_drawing(tmp_path / "g.svg", "short")
    assert (tmp_path / "g.svg").read_text() == "short"
    for wrong in (5, None, True):
        with pytest.raises(InvalidArgument, match="give the path of a file"):
            write_drawing(wrong, "x")  # type: ignore[arg-type]


def test_what_a_step_waits_for_is_shown(quire: Command, path: str) -> None:
    """The markers that it lacked when it last looked, as long as there is something to read."""
    with Store.open(path, background=False) as store:
        tell_awaited(store, "shop", "check", {"in": "monday", "out": ""})
        assert awaited_markers(store, "shop") == {"check": {"in": "monday", "out": ""}}
    words = quire("show", "shop")
    assert "to read, waiting for marker monday in in, a marker in out" in words
    shown = json.loads(quire("show", "shop", "--json"))
    assert shown["now"]["steps"]["check"]["awaits"] == {"in": "monday", "out": ""}
    assert shown["now"]["steps"]["windows"]["awaits"] == {}
    with Store.open(path, background=False) as store:
        tell_awaited(store, "shop", "check", {})
        assert awaited_markers(store, "shop") == {}
    assert "waiting" not in quire("show", "shop")


def test_a_step_without_its_subscription_is_shown(quire: Command, path: str) -> None:
    """Nothing is kept for it, which is not the same as nothing to read."""
    with Store.open(path, background=False) as store:
        store.unsubscribe("in", "shop.check")
    assert "batch 1 is committed, no subscription to in, " in quire("show", "shop")


def test_what_a_step_has_left_behind_is_shown(quire: Command, path: str) -> None:
    """By steps that are no more, or read another queue; with a command that ends it as it stands.

    Those of other graphs, of steps that are there, and of consumers are not meant.
    """
    with Store.open(path, background=False) as store:
        left = [("in", "shop.old"), ("out", "shop.check"), ("out", "shop.windows.2")]
        for queue, name in [*left, ("in", "shop"), ("in", "shopping.old"), ("in", "reader")]:
            store.subscribe(queue, name)
        put = store.subscriptions("in")[0].pending
    told = [line for line in quire("show", "shop").splitlines() if "is of no step" in line]
    assert len(told) == len(left)
    assert told[0].startswith(
        f"subscription shop.old of queue in is of no step of the graph, and keeps {put} messages"
    )
    shown = json.loads(quire("show", "shop", "--json"))["now"]["left"]
    assert [(each["queue"], each["subscription"]) for each in shown] == left
    for line in told:
        command = shlex.split(line.partition("it ends with: ")[2])
        assert command[0] == "quire"
        program = Path(sys.executable).with_name("quire")
        subprocess.run([program, *command[1:]], check=True, timeout=60)
    assert "is of no step" not in quire("show", "shop")
    with Store.open(path, background=False) as store:
        assert {each.name for each in store.subscriptions("in")} == {
            "shop.check", "shop", "shopping.old", "reader"
        }  # fmt: skip


def test_steps_are_told_to_pause_and_to_go_on(quire: Command, path: str) -> None:
    """One or all; it is kept."""
    assert quire("pause", "shop", "check") == "check: paused\n"
    with Store.open(path, background=False) as store:
        assert paused_steps(store, "shop") == {"check"}
        assert "paused, 3 behind" in draw(GRAPH, see(store, GRAPH))
    assert "paused, batch 1" in quire("show", "shop")
    assert quire("pause", "shop") == "check, windows: paused\n"
    assert quire("resume", "shop") == "check, windows: going on\n"
    assert "has no step 'none'; it has check, windows" in quire("pause", "shop", "none", status=1)


def test_dead_letters_are_asked_for(quire: Command, path: str) -> None:
    """Whoever answers takes the question away, once."""
    assert "puts the dead letters of dead back" in quire("replay", "shop", "check", "--max", "3")
    assert "no queue for dead letters" in quire("replay", "shop", "windows", status=1)
    with pytest.raises(SystemExit, match="2"):
        quire("replay", "shop", "check", "--max", "0")
    with Store.open(path, background=False) as store:
        assert requested_replays(store, "shop") == {"check": 3}
        assert take_replay(store, "shop", "check")
        assert not take_replay(store, "shop", "check")
        assert requested_replays(store, "shop") == {}


def test_a_step_is_reset(quire: Command, path: str) -> None:
    """Its position and its values in one transaction; asked for, and not while it runs."""
    assert "give --yes" in quire("reset", "shop", "check", status=1)
    assert "Spark's checkpoint" in quire("reset", "shop", "windows", "--yes", status=1)
    assert "from position 0 on" in quire("reset", "shop", "check", "--yes")
    with Store.open(path, background=False) as store:
        assert store.states.items(step_state_name("shop", "check")) == {}
        assert see(store, load_graph(store, "shop")).steps["check"].lag_messages == 10
        held = OsEnv().lock_names(f"{path}/run/readers", ["in/shop.check"])
        assert not isinstance(held, str)
        with pytest.raises(QueueInUse, match="runs: stop it first"):
            reset_step(store, "shop", "check")
        held.release()
        assert reset_step(store, "shop", "check", 4) == {"in": 4}
    assert "from position 10 on" in quire("reset", "shop", "check", "--to", "latest", "--yes")


class Status:
    """As much of a status."""

    steps: Mapping[str, object] = {}

    def __str__(self) -> str:
        return "how it is"


class Graph:
    """As much of a graph as the command needs."""

    name = "shop"
    steps = GRAPH.steps

    def __init__(self, path: str, signals_first: bool = False) -> None:
        self.path = path
        self.drained = False
        self.signals_first = signals_first

    def start(self) -> Graph:
        return self

    def drain(self, timeout: float) -> None:
        if self.signals_first:
            os.kill(os.getpid(), signal.SIGTERM)
            raise StepTimeout("there is more to read")
        self.drained = True

    def status(self) -> Status:
        return Status()

    def __enter__(self) -> Graph:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self.drained != self.signals_first


def endless(path: str) -> Graph:
    """One that never has read all; a signal comes meanwhile."""
    return Graph(path, signals_first=True)


elsewhere = Graph("/elsewhere")


def of_two(spark: object, path: str) -> Graph:
    """No function of a path."""
    return Graph(path)


def test_a_graph_is_run_by_its_name(quire: Command) -> None:
    """A graph, or what makes one of the path; anything else is refused with the reason."""
    assert "how it is" in quire("run", f"{__name__}:Graph", "--drain")
    assert "how it is" in quire("run", f"{__name__}:endless", "--drain")
    for name, words in {
        "shop": "MODULE:ATTRIBUTE", f"{__name__}:none": "cannot be had", "no_such:g": "cannot be",
        f"{__name__}:GRAPH": "is no Graph", f"{__name__}:elsewhere": "not of",
        f"{__name__}:of_two": "called with the store's path alone.*missing.*'path'",
    }.items():  # fmt: skip
        assert re.search(words, quire("run", name, status=1))
