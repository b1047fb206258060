"""Processes that open one store, put and consume in compound transactions, and end in any way.

    python -m tests.remote.come_and_go STORE LOGS

reads lines `NAME SEED` and forks a worker for each, which it names by its process id. It has the
modules loaded and no store open, so that a worker starts in no time. A worker goes on until
SIGTERM, and then closes the store, or just ends. Each writes a log: a line before each transaction,
and one with what came of it.

Every message has the name of its transaction. It goes to several topics; the subscription `audit`
of each keeps all, the workers share the subscription `work`. A transaction that takes messages puts
a receipt that lists them. So the audit tells of every transaction whether it took effect, with all
of its parts, and which messages were taken, by whom.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np  # noqa: F401 - now, and not in each worker; so are the others

import quire
import quire.engine.store
import quire.remote.ownership.election
import quire.remote.ownership.shared_store
import quire.remote.ownership.succession
import quire.remote.server.store_server
from quire.errors import ConnectionLost, OutcomeUnknown
from tests.kit.violation import Violation, check

__all__ = [
    "OPTIONS",
    "Event",
    "Found",
    "create",
    "look",
    "reconcile",
    "take_over_times",
]

TOPICS = ("a", "b", "c")
RECEIPTS = "receipts"
OPTIONS: dict[str, Any] = {"segment_bytes": 4 << 20, "checkpoint_bytes": 4 << 20}
CHUNK = 10_000
PAUSE_SECONDS = 0.003  # between two transactions of a worker
DECIDE_SECONDS = 0.02  # for which some transactions stay prepared
SIGNALS = (signal.SIGCHLD, signal.SIGTERM)  # that wait while a worker begins


# A worker -----------------------------------------------------------------------------------------


class Worker:
    """One process' part."""

    def __init__(self, path: str, log: str, name: str, seed: str) -> None:
        self._path = path
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._name = name
        self._rng = random.Random(f"{seed}:{name}")
        self._told = False  # no event: one that a signal sets while it is waited for may hang
        signal.signal(signal.SIGTERM, self._end)

    def _end(self, *_: object) -> None:
        self._told = True

    def run(self) -> None:
        """Until SIGTERM."""
        store: Any = quire.open(self._path, **OPTIONS)
        number = 0
        while not self._told:
            time.sleep(self._rng.random() * 2 * PAUSE_SECONDS)
            number += 1
            name = f"{self._name}.{number}"
            keyed = self._rng.random() < 0.5
            self._note("begins", name, "keyed" if keyed else "plain")
            try:
                outcome = self._transact(store, name, number if keyed else None)
            except ConnectionLost:
                outcome = "refused"
            except OutcomeUnknown:
                outcome = "doubt"
            self._note(outcome, name, store.owner_process_id if joined(store) else os.getpid())
        self._note("ends", self._name, "")
        if self._rng.random() < 0.8:
            store.close()
        self._note("ended", self._name, "")

    def _transact(self, store: Any, name: str, version: int | None) -> str:
        """One transaction; how it ended."""
        rng = self._rng
        if version is None and rng.random() < 0.2:
            store.put(rng.choice(TOPICS), f"{name} 1/1".encode())
            return "done"
        with store.transaction() as txn:
            taken: list[bytes] = []
            if rng.random() < 0.6:
                source = f"{rng.choice(TOPICS)}/work"
                taken = txn.get_many(source, rng.randint(1, 8), rng.choice((0, 0, 0.1))).payloads()
                if taken:
                    txn.put(RECEIPTS, b"\n".join([name.encode(), *taken]))
            if not taken or rng.random() < 0.4:
                puts = rng.randint(1, 4)
                for index in range(puts):
                    txn.put(rng.choice(TOPICS), f"{name} {index + 1}/{puts}".encode())
            if version is not None:
                txn.enter(self._name, version)
            how = rng.random()
            if how < 0.1:
                txn.rollback()
                return "refused"
            if how < 0.2:
                txn.prepare(name)
                time.sleep(rng.random() * DECIDE_SECONDS)
                txn.commit()
        return "done"

    def _note(self, what: str, name: str, more: object) -> None:
        os.write(self._log, f"{what}\t{time.monotonic():.4f}\t{name}\t{more}\n".encode())


def joined(store: Any) -> bool:
    return bool(store.role == "joined")


def main() -> None:
    """Fork a worker for each line; kill those that are left at the end."""
    path, logs = sys.argv[1:]
    running: set[int] = set()
    signal.signal(signal.SIGCHLD, lambda *_: reap(running))
    for line in sys.stdin:
        name, seed = line.split()
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            try:
                worker = Worker(path, f"{logs}/{name}.log", name, seed)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # the worker has its handler
                worker.run()
            except BaseException:  # noqa: BLE001 it is shown, and the status tells
                sys.excepthook(*sys.exc_info())
                os._exit(1)
            sys.exit()
        running.add(child)
        os.write(1, f"born {child} 0\n".encode())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    for child in list(running):
        os.kill(child, signal.SIGKILL)


def reap(running: set[int]) -> None:
    """Tell of each worker that has ended how it did."""
    for child in list(running):
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            running.discard(child)
            os.write(1, f"ended {child} {os.waitstatus_to_exitcode(status)}\n".encode())


# The reconciliation -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Event:
    """A line of a log."""

    what: str
    time: float
    name: str
    more: str


@dataclass
class Found:
    """What a store holds at the end."""

    messages: Counter[str] = field(default_factory=Counter)  # ever put
    receipts: dict[str, list[str]] = field(default_factory=dict)  # by transaction
    left: Counter[str] = field(default_factory=Counter)  # that nobody has taken


def create(path: str) -> None:
    """Make the store and its queues."""
    with quire.open(path, **OPTIONS) as store:
        for name in (*TOPICS, RECEIPTS):
            store.create_queue(name, kind="topic")
            store.subscribe(name, "audit")
        for name in TOPICS:
            store.subscribe(name, "work")


def look(store: Any) -> Found:
    """Take all that the audit has kept, and all that is left."""
    found = Found()
    for topic in TOPICS:
        found.messages.update(payload.decode() for payload in _drain(store, f"{topic}/audit"))
        found.left.update(payload.decode() for payload in _drain(store, f"{topic}/work"))
    for payload in _drain(store, f"{RECEIPTS}/audit"):
        name, *taken = payload.decode().split("\n")
        if name in found.receipts:
            raise Violation(f"two receipts of {name}")
        found.receipts[name] = taken
    return found


def _drain(store: Any, source: str) -> Iterator[bytes]:
    while True:
        with store.transaction() as txn:
            payloads = txn.get_many(source, CHUNK).payloads()
        if not payloads:
            return
        yield from payloads


def read_logs(directory: Path) -> list[Event]:
    """All lines, in order of time."""
    events = []
    for path in directory.glob("*.log"):
        for line in path.read_text().split("\n")[:-1]:
            what, at, name, more = line.split("\t")
            events.append(Event(what, float(at), name, more))
    return sorted(events, key=lambda event: event.time)


def reconcile(events: Iterable[Event], found: Found) -> Counter[str]:
    """Compare what was acknowledged with what is there; how many ended how. Raises Violation."""
    outcomes: dict[str, str] = {}
    keyed: set[str] = set()
    for event in events:
        if event.what == "begins":
            outcomes[event.name] = "killed"
            if event.more == "keyed":
                keyed.add(event.name)
        elif event.what in ("done", "refused", "doubt"):
            outcomes[event.name] = event.what
    parts: dict[str, set[str]] = {}
    for message, count in found.messages.items():
        name, _, part = message.partition(" ")
        check(count == 1, f"{message} was put {count} times")
        check(name in outcomes, f"{message} is nobody's")
        parts.setdefault(name, set()).add(part)
    for name, there in parts.items():
        wanted = int(next(iter(there)).partition("/")[2])
        check(len(there) == wanted, f"of {name} only {sorted(there)} is there")
    taken = Counter(message for receipt in found.receipts.values() for message in receipt)
    for message, count in taken.items():
        check(count == 1, f"{message} was taken {count} times")
    check(taken + found.left == found.messages, "taken and left is not what was put")
    for name, outcome in outcomes.items():
        is_there = name in parts or name in found.receipts
        check(is_there or outcome != "done", f"{name} was acknowledged, and is not there")
        check(not is_there or outcome != "refused", f"{name} was refused, and is there")
        check(outcome != "doubt" or name not in keyed, f"{name} is in doubt despite the ledger")
    return Counter(outcomes.values())


def take_over_times(events: list[Event], ends: Iterable[tuple[float, int]]) -> list[float]:
    """How long it took, after each end of an owner, until a transaction was done at the next.

    `ends`: when which process was told to end, or killed.
    """
    done = [(event.time, int(event.more)) for event in events if event.what == "done"]
    times = []
    for at, process_id in ends:
        before = [owner for when, owner in done if at - 1.0 < when <= at]
        if before and before[-1] == process_id:
            after = next((when for when, owner in done if when > at and owner != process_id), None)
            if after is not None:
                times.append(after - at)
    return times


if __name__ == "__main__":
    main()
