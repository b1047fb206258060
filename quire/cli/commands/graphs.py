"""Commands for graphs: list, show, draw and run them, tell their steps things."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from os.path import realpath
from typing import TYPE_CHECKING, Any, Final

from quire.calls.wake_up import Thread
from quire.cli.command import JSON, Command, ExitStatus, argument
from quire.cli.opened_store import opened, seen
from quire.cli.printing import fields_of, print_json, print_listing
from quire.cli.typed_values import START, count, start
from quire.errors import InvalidArgument, StepTimeout
from quire.libraries.late_imports import importing
from quire.limits import GRAPH_LINE_SECONDS
from quire.messages.typed_message import row_json

if TYPE_CHECKING:
    from quire.graphs import GraphDefinition, GraphSight, StateSight
    from quire.remote.server.signals import SignalFlag


_GRAPH: Final = argument("graph", metavar="GRAPH")
_STEP: Final = argument("step", metavar="STEP")
_STEPS: Final = argument("step", nargs="?", metavar="STEP", help="else all of them")


def _list(options: argparse.Namespace) -> None:
    with importing():
        from quire.graphs import graph_names, load_graph, see

    def found(store: Any) -> list[tuple[GraphDefinition, GraphSight]]:
        graphs = [load_graph(store, name) for name in graph_names(store)]
        return [(graph, see(store, graph)) for graph in graphs]

    graphs = seen(options, found)
    if options.json:
        print_json([_as_json(*each) for each in graphs])
        return
    for graph, sight in graphs:
        behind = sum(step.lag_messages for step in sight.steps.values())
        steps = f"{len(graph.steps)} steps" if len(graph.steps) != 1 else "1 step"
        print(f"{graph.name}: {steps}, {behind} messages behind")


def _show(options: argparse.Namespace) -> None:
    with importing():
        from quire.graphs import draw, explain, load_graph, see, write_drawing

    def found(store: Any) -> tuple[GraphDefinition, GraphSight]:
        graph = load_graph(store, options.graph)
        return graph, see(store, graph)

    graph, sight = seen(options, found)
    if options.svg is not None:
        write_drawing(options.svg, draw(graph, sight))
    if options.json:
        print_json(_as_json(graph, sight))
    else:
        print(explain(graph, sight))


def _as_json(graph: GraphDefinition, sight: GraphSight) -> dict[str, Any]:
    steps = {
        name: {**fields_of(step), "lag_messages": step.lag_messages}
        for name, step in sight.steps.items()
    }
    return {**fields_of(graph), "now": {**fields_of(sight), "steps": steps}}


def _pause(options: argparse.Namespace) -> None:
    _tell(options, paused=True)


def _resume(options: argparse.Namespace) -> None:
    _tell(options, paused=False)


def _tell(options: argparse.Namespace, *, paused: bool) -> None:
    with importing():
        from quire.graphs import set_paused

    with opened(options) as store:
        steps = set_paused(store, options.graph, options.step, paused)
    print(f"{', '.join(steps)}: {'paused' if paused else 'going on'}")


def _replay(options: argparse.Namespace) -> None:
    with importing():
        from quire.graphs import ask_replay

    with opened(options) as store:
        dead = ask_replay(store, options.graph, options.step, options.max)
    print(f"asked for: who runs graph {options.graph} puts the dead letters of {dead} back")


def _reset(options: argparse.Namespace) -> int:
    with importing():
        from quire.graphs import reset_step

    if not options.yes and not _agreed(options):
        print("nothing was done", file=sys.stderr)
        return ExitStatus.ERROR
    with opened(options) as store:
        positions = reset_step(store, options.graph, options.step, options.to)
    for queue, position in positions.items():
        print(f"{options.step} reads {queue} from position {position} on")
    return ExitStatus.DONE


def _state(options: argparse.Namespace) -> int:
    with importing():
        from quire.graphs import (
            load_graph,
            rows_by_key,
            see_state,
            state_of_step,
            states_of_step,
            step_of,
        )

    with opened(options) as store:
        step = step_of(load_graph(store, options.graph), options.step)
        if not options.key:
            names = states_of_step(step, options.name)
            _print_states(options, [see_state(store, name) for name in names])
            return ExitStatus.DONE
        rows = rows_by_key(store, state_of_step(step, options.name), options.key)
    for row in rows:
        print_json(row_json(row))
    return ExitStatus.DONE if rows else ExitStatus.NOTHING


def _print_states(options: argparse.Namespace, states: Sequence[StateSight | None]) -> None:
    found = [state for state in states if state is not None]
    heads = ("STATE", "KEY", "UP TO KEYS", "BYTES", "RUNS", "WRITTEN", "SCHEMA")
    rows = [
        (
            *(s.name, ", ".join(s.key), str(s.rows), str(s.size_bytes), str(s.runs)),
            *(f"{s.write_amplification:.1f} times", s.schema),
        )
        for s in found
    ]
    print_listing(options, [fields_of(state) for state in found], heads, rows)


def _agreed(options: argparse.Namespace) -> bool:
    """Return True if somebody is there and says yes."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise InvalidArgument("what a step has put would be put again: give --yes to do it")
    question = f"step {options.step} reads again, and puts what it has put again. Go on? [y/N] "
    return input(question).strip().lower() in ("y", "yes")


def _run(options: argparse.Namespace) -> int:
    """Run until SIGINT or SIGTERM; print a line for every change of what the steps do."""
    graph = _graph_named(options.graph, options.path)
    with importing():
        from quire.remote import stop_on_signals

    with stop_on_signals() as ending:
        return _follow(graph, ending, drain=options.drain)


def _follow(graph: Any, ending: SignalFlag, *, drain: bool) -> int:
    """Follow a run to its end, and return the exit status: 1 where a step has failed."""
    with graph.start() as run:
        print(f"graph {graph.name} runs on {graph.path}", flush=True)
        if not drain:
            Thread(target=_tell_end, args=(run, ending)).start()
        before = ""
        while not ending.wait(0.0) and not _has_ended(run, ending, drain=drain):
            now = str(run.status())
            if now != before and not drain:
                print(now, flush=True)
            before = now
        status = run.status()
        print(status, flush=True)
    failed = any(step.phase == "failed" for step in status.steps.values())
    return ExitStatus.ERROR if failed else ExitStatus.DONE


def _tell_end(run: Any, ending: SignalFlag) -> None:
    """The command ends at once with its run."""
    run.wait()
    with suppress(OSError):  # it has just ended
        ending.set()


def _has_ended(run: Any, ending: SignalFlag, *, drain: bool) -> bool:
    """Return True if all is done, after some time in which a signal is seen. Raises StepFailed."""
    if not drain:
        return ending.wait(GRAPH_LINE_SECONDS)
    try:
        run.drain(GRAPH_LINE_SECONDS)
    except StepTimeout:
        return False
    return True


def _made(name: str, function: Callable[[str], Any], path: str) -> Any:
    """Return the function's result for the path.

    Raises InvalidArgument where it takes something else.
    """
    with importing():
        import inspect  # no other command needs it

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


COMMANDS: Final = (
    Command("graph ls", "list the graphs that were started in a store", _list, (JSON,)),
    Command(
        "graph show",
        "tell a graph's steps, and how far they are",
        _show,
        (
            argument("graph", metavar="GRAPH", help="as `graph ls` lists it"),
            JSON,
            argument("--svg", metavar="FILE", help="draw it into this file"),
        ),
    ),
    Command(
        "graph run",
        "run a graph until a signal comes",
        _run,
        (
            argument(
                "graph", metavar="MODULE:ATTRIBUTE",
                help="a Graph, or what makes one of the store's path",
            ),
            argument("--drain", action="store_true", help="end when all inputs are empty"),
        ),
        "  quire graph run shop.quire shop.graphs:orders",
    ),
    Command("graph pause", "have a step, or all, begin no further batch", _pause, (_GRAPH, _STEPS)),
    Command("graph resume", "let a step, or all, go on", _resume, (_GRAPH, _STEPS)),
    Command(
        "graph replay",
        "have dead letters put back through their step",
        _replay,
        (_GRAPH, _STEP, argument("--max", type=count, metavar="N", help="up to N; else all")),
    ),
    Command(
        "graph state",
        "tell of what a step remembers by key, or print the row of a key",
        _state,
        (
            _GRAPH,
            _STEP,
            argument(
                "key", nargs="*", metavar="KEY",
                help="a value for each column of the key, as rows show it: binary in base64",
            ),
            argument("--name", metavar="STATE", help="where the step has several, or of a table"),
            JSON,
        ),
        "  quire graph state shop.quire shop add ada",
    ),
    Command(
        "graph reset",
        "have a step read again, and forget its values and rows",
        _reset,
        (
            _GRAPH,
            _STEP,
            argument("--to", type=start, default="earliest", metavar="START", help=START),
            argument("--yes", action="store_true", help="do not ask"),
        ),
        "What it has put is put again.",
    ),
)  # fmt: skip
