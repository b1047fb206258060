"""`quire graph`: list the graphs of a store, show, draw and run them, tell their steps things."""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from os.path import realpath
from typing import Any, TypeVar

from quire.errors import InvalidArgument, StepTimeout
from quire.limits import GRAPH_LINE_SECONDS

from .definition import GraphDefinition
from .drawing import draw, write_drawing
from .kept import ask_replay, graph_names, load_graph, reset_step, set_paused
from .sight import GraphSight, see
from .words import explain

T = TypeVar("T")
Command = Callable[[argparse.Namespace], "int | None"]


def add_commands(parser: argparse.ArgumentParser, start: Callable[[str], object]) -> None:
    """The commands below `quire graph`. `start`: reads where a step is to begin again."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, run: Command, help: str, *arguments: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=help, description=help)
        sub.set_defaults(run=run)
        sub.add_argument("path", metavar="PATH", help="the store's directory")
        for argument in arguments:
            is_optional = argument.endswith("?")
            name = argument.removesuffix("?")
            sub.add_argument(name, metavar=name.upper(), nargs="?" if is_optional else None)
        return sub

    sub = add("ls", _list, "list the graphs that were started in a store")
    sub.add_argument("--json", action="store_true", help="as JSON")
    sub = add("show", _show, "tell a graph's steps, and how far they are", "graph")
    sub.add_argument("--json", action="store_true", help="as JSON")
    sub.add_argument("--svg", metavar="FILE", help="draw it into this file")
    sub = add("run", _run, "run a graph until a signal comes")
    sub.add_argument(
        "graph", metavar="MODULE:ATTRIBUTE", help="a Graph, or what makes one of the store's path"
    )
    sub.add_argument("--drain", action="store_true", help="end when all inputs are empty")
    add("pause", _pause, "have a step, or all, begin no further batch", "graph", "step?")
    add("resume", _resume, "let a step, or all, go on", "graph", "step?")
    sub = add("replay", _replay, "have dead letters put back through their step", "graph", "step")
    sub.add_argument("--max", type=int, metavar="N", help="so many at most")
    sub = add("reset", _reset, "have a step read again, and forget its values", "graph", "step")
    sub.add_argument(
        "--to",
        type=start,
        default="earliest",
        metavar="START",
        help="earliest, latest, a time, ...",
    )
    sub.add_argument("--yes", action="store_true", help="do not ask")


def _look(options: argparse.Namespace, action: Callable[[Any], T]) -> T:
    """What the action gives of the store, which is not owned for it."""
    from quire.looking import look

    return look(options.path, action)


def _open(options: argparse.Namespace) -> Any:
    from quire.opening import open as open_store

    return open_store(options.path, create=False)


def _list(options: argparse.Namespace) -> None:
    def found(store: Any) -> list[tuple[GraphDefinition, GraphSight]]:
        graphs = [load_graph(store, name) for name in graph_names(store)]
        return [(graph, see(store, graph)) for graph in graphs]

    graphs = _look(options, found)
    if options.json:
        print(json.dumps([_as_json(*each) for each in graphs]))
        return
    for graph, sight in graphs:
        behind = sum(step.lag_messages for step in sight.steps.values())
        steps = f"{len(graph.steps)} steps" if len(graph.steps) != 1 else "1 step"
        print(f"{graph.name}: {steps}, {behind} messages behind")


def _show(options: argparse.Namespace) -> None:
    def found(store: Any) -> tuple[GraphDefinition, GraphSight]:
        graph = load_graph(store, options.graph)
        return graph, see(store, graph)

    graph, sight = _look(options, found)
    if options.svg is not None:
        write_drawing(options.svg, draw(graph, sight))
    print(json.dumps(_as_json(graph, sight)) if options.json else explain(graph, sight))


def _as_json(graph: GraphDefinition, sight: GraphSight) -> dict[str, Any]:
    now = asdict(sight)
    for name, step in sight.steps.items():
        now["steps"][name]["lag_messages"] = step.lag_messages
    return {**asdict(graph), "now": now}


def _pause(options: argparse.Namespace) -> None:
    _tell(options, paused=True)


def _resume(options: argparse.Namespace) -> None:
    _tell(options, paused=False)


def _tell(options: argparse.Namespace, *, paused: bool) -> None:
    with _open(options) as store:
        steps = set_paused(store, options.graph, options.step, paused)
    print(f"{', '.join(steps)}: {'paused' if paused else 'going on'}")


def _replay(options: argparse.Namespace) -> None:
    with _open(options) as store:
        dead = ask_replay(store, options.graph, options.step, options.max)
    print(f"asked for: who runs graph {options.graph} puts the dead letters of {dead} back")


def _reset(options: argparse.Namespace) -> int:
    if not options.yes and not _agreed(options):
        print("nothing was done", file=sys.stderr)
        return 1
    with _open(options) as store:
        positions = reset_step(store, options.graph, options.step, options.to)
    for queue, position in positions.items():
        print(f"{options.step} reads {queue} from position {position} on")
    return 0


def _agreed(options: argparse.Namespace) -> bool:
    """Whether somebody is there and says yes."""
    if not sys.stdin.isatty():
        raise InvalidArgument("what a step has put would be put again: give --yes to do it")
    question = f"step {options.step} reads again, and puts what it has put again. Go on? [y/N] "
    return input(question).strip().lower() in ("y", "yes")


def _run(options: argparse.Namespace) -> int:
    """Until SIGINT or SIGTERM; a line for every change of what the steps do."""
    graph = _graph_named(options.graph, options.path)
    ending = threading.Event()
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: ending.set()) for number in signals]
    try:
        return _follow(graph, ending, drain=options.drain)
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


def _follow(graph: Any, ending: threading.Event, *, drain: bool) -> int:
    """How the command ends: 0 where it was told to, or all is read; 1 where a step has failed."""
    with graph.start() as run:
        print(f"graph {graph.name} runs on {graph.path}", flush=True)
        if not drain:
            threading.Thread(target=_tell_end, args=(run, ending), daemon=True).start()
        before = ""
        while not ending.is_set() and not _has_ended(run, ending, drain=drain):
            now = str(run.status())
            if now != before and not drain:
                print(now, flush=True)
            before = now
        status = run.status()
        print(status, flush=True)
    return 1 if any(step.phase == "failed" for step in status.steps.values()) else 0


def _tell_end(run: Any, ending: threading.Event) -> None:
    """The command ends at once with its run."""
    run.wait()
    ending.set()


def _has_ended(run: Any, ending: threading.Event, *, drain: bool) -> bool:
    """Whether all is done, after some time in which a signal is seen. Raises StepFailed."""
    if not drain:
        return ending.wait(GRAPH_LINE_SECONDS)
    try:
        run.drain(GRAPH_LINE_SECONDS)
    except StepTimeout:
        return False
    return True


def _made(name: str, function: Callable[[str], Any], path: str) -> Any:
    """What the function makes of the path. Raises InvalidArgument where it takes something else."""
    try:
        signature = inspect.signature(function)
        signature.bind(path)
    except TypeError as error:
        raise InvalidArgument(
            f"{name!r} is called with the store's path alone, and makes the session itself: {error}"
        ) from None
    except ValueError:  # a function that does not tell
        pass
    return function(path)


def _graph_named(name: str, path: str) -> Any:
    """The graph that is called so, over the store at the path. Raises InvalidArgument."""
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise InvalidArgument(f"{name!r}: give MODULE:ATTRIBUTE, as shop.graphs:orders")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InvalidArgument(f"{name!r} cannot be had: {error}") from error
    if callable(found):
        found = _made(name, found, path)
    if not hasattr(found, "start") or not hasattr(found, "steps"):
        raise InvalidArgument(f"{name!r} is no Graph, nor a function of a path that makes one")
    if realpath(found.path) != realpath(path):
        raise InvalidArgument(f"{name!r} is a graph of the store {found.path}, not of {path}")
    return found
