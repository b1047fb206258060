"""The source files that an operation passes: a measure of how many places its reader has to know.

    python scripts/files_passed.py [NAME ...] [--files]

Each operation is done some times over before it counts, and then a few times under a profile
function, in the thread that calls it and in those that serve it (not in the store's maintenance,
which goes on by itself). What counts is the turn with the fewest files: some things are done once
in many turns. A call into code without a file (a named tuple's own) is of none.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import quire

ROOT = Path(__file__).resolve().parents[1]
OWN = ("quire", "engine", "journal", "writebuffer", "ltds", "remote", "coordination")
MAINTENANCE = "quire-maintenance"
WARM, TURNS = 3, 5
SMALL, LARGE = b"x" * 100, b"x" * 400_000


class Operation(NamedTuple):
    """A traced operation; `before` and `after` it are not traced.

    Each gets what the one before returned.
    """

    name: str
    target: int | None  # files at most; None: none was named
    before: Callable[[quire.Store], Any]
    act: Callable[[Any], Any]
    after: Callable[[Any], Any]


class Trace:
    """The files of the code that is called between `begin` and `end`."""

    def __init__(self) -> None:
        self._seen: set[tuple[int, str]] | None = None
        threading.setprofile(self._profile)  # for threads that begin from now on

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        seen = self._seen
        if event == "call" and seen is not None:
            seen.add((threading.get_ident(), frame.f_code.co_filename))

    def of(self, action: Callable[[], Any]) -> list[str]:
        """The files that the action passes."""
        seen: set[tuple[int, str]] = set()
        self._seen = seen
        sys.setprofile(self._profile)
        try:
            action()
        finally:
            sys.setprofile(None)
            self._seen = None
        own = {thread.ident for thread in threading.enumerate() if thread.name == MAINTENANCE}
        files = {source_of(path) for thread, path in seen if thread not in own}
        return sorted(file for file in files if file is not None)

    def close(self) -> None:
        threading.setprofile(None)


@cache
def source_of(path: str) -> str | None:
    """The file below the root, links followed; None: it is no source file of the project."""
    try:
        file = Path(path).resolve().relative_to(ROOT)
    except ValueError:
        return None
    return str(file) if file.parts[0] in OWN and file.suffix == ".py" else None


def transaction(store: quire.Store, payload: bytes = b"", *queues: str) -> quire.Transaction:
    """An open one that has put the payload to the queues."""
    txn = store.transaction()
    for queue in queues:
        txn.put(queue, payload)
    return txn


def to_get(store: quire.Store, *, taken: bool = False) -> quire.Transaction:
    """An open transaction, and a message for it to get; or one that it has."""
    store.put("q", SMALL)
    txn = store.transaction()
    if taken:
        txn.get("q")
    return txn


def with_memory(store: quire.Store) -> quire.Store:
    """The store, with a volatile queue."""
    store.create_queue("memory", kind="work", type="volatile", exist_ok=True)
    return store


def none(_: Any) -> None:
    """Do nothing."""


OPERATIONS = [
    Operation("store.put", 10, lambda s: s, lambda s: s.put("q", SMALL), none),
    Operation("txn.put", 6, transaction, lambda t: t.put("q", SMALL), lambda t: t.rollback()),
    Operation(
        "commit of one small message", 12,
        lambda s: transaction(s, SMALL, "q"), lambda t: t.commit(), none,
    ),
    Operation(
        "commit of 400 KB", 18, lambda s: transaction(s, LARGE, "q"), lambda t: t.commit(), none
    ),
    Operation("txn.get", 8, to_get, lambda t: t.get("q"), lambda t: t.commit()),
    Operation(
        "commit of a get", None, lambda s: to_get(s, taken=True), lambda t: t.commit(), none
    ),
    Operation(
        "commit of 400 KB to each of two data files", None,
        lambda s: transaction(s, LARGE, "q", "other"), lambda t: t.commit(), none,
    ),
    Operation("prepare", None, lambda s: transaction(s, SMALL, "q"), lambda t: t.prepare("x"),
              lambda t: t.commit()),
    Operation(  # the last one: a volatile queue that is there is asked for in each commit
        "store.put, volatile queue", None, with_memory, lambda s: s.put("memory", SMALL), none
    ),
]  # fmt: skip


def made(path: str) -> quire.Store:
    """A store for the operations."""
    store = quire.open(path, data_files=2)
    for number, name in enumerate(("q", "other")):
        store.create_queue(name, kind="work", data_file=number)
    return store


def files_passed(trace: Trace, store: quire.Store, operation: Operation) -> list[str]:
    """Return the files of the turn with the fewest."""
    turns: list[list[str]] = []
    for turn in range(WARM + TURNS):
        argument = operation.before(store)
        if turn < WARM:
            operation.act(argument)
        else:
            turns.append(trace.of(lambda argument=argument: operation.act(argument)))  # type: ignore[misc]
        operation.after(argument)
    return min(turns, key=len)


def measure(names: list[str]) -> dict[str, list[str]]:
    """The files that each operation passes; of those named, or of all."""
    chosen = [each for each in OPERATIONS if not names or each.name in names]
    trace = Trace()
    try:
        with (
            tempfile.TemporaryDirectory() as directory,
            made(f"{directory}/files.quire") as store,
        ):
            return {each.name: files_passed(trace, store, each) for each in chosen}
    finally:
        trace.close()


def main(arguments: list[str] | None = None) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="operations; all by default")
    parser.add_argument("--files", action="store_true", help="list the files, too")
    options = parser.parse_args(arguments)
    known = {operation.name: operation for operation in OPERATIONS}
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"no operation {unknown[0]!r}: give one of {', '.join(known)}")
    print(f"{'files':>5}  {'at most':>7}  operation")
    for name, files in measure(options.names).items():
        target = known[name].target
        print(f"{len(files):5}  {'' if target is None else target:>7}  {name}")
        if options.files:
            print("".join(f"{'':16}{file}\n" for file in files), end="")


if __name__ == "__main__":
    main()
