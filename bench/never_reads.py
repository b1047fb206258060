"""Others' durable puts beside a client of the owner that asks and never reads an answer.

Some clients put messages of 100 bytes, each in a process of its own. In each round they do so
alone, beside each kind of such a client, and alone once more, in an order that is drawn: so a ratio
compares what happened in the same seconds, and that of the second time alone tells how much of it
is chance. Such a client sends requests for as long as the system takes them, and connects again
when the owner cuts it off. One kind gives up each connection as soon as it is stuck, so that the
owner makes one large answer after another; beside it stands a client that reads as many of them.
The owner's memory is the most that it had in a turn, above what it had before.
"""

from __future__ import annotations

import random
import select
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple

import quire
from bench.figure import Figure, Result, Setting, Table, at_most
from bench.served import Crowd
from bench.served_rivals import QuireServer
from quire.remote.elected_store import ElectedStore
from tests.remote.raw_stream import RawStream, call, get

__all__ = ["run"]

OTHERS = 4
TARGET = 2.0  # times the p99 without such a client
MEMORY_TARGET_MIB = 64
MIB = 1 << 20
LARGE_MESSAGES = 8  # of 1 MiB each, in one answer
STUCK_SECONDS = 0.05
ALONE, ALONE_AGAIN = "nobody", "nobody, again"


class Kind(NamedTuple):
    """What such a client does."""

    request: bytes
    gives_up: bool = False  # a connection that takes no more
    reads: bool = False  # after all, and then pauses for as long as one that gives up is stuck


_BROWSE = {"source": "large", "start": 0, "max_messages": LARGE_MESSAGES}
_LARGE = call({"op": "browse", "arguments": _BROWSE})
ANEW, READ = "large answers, always anew", "large answers that are read"
KINDS = {
    "large answers": Kind(_LARGE * 100),
    "small answers": Kind(get(1, "empty") * 1000),
    ANEW: Kind(_LARGE * 100, gives_up=True),
    READ: Kind(_LARGE, reads=True),
}


class Turn(NamedTuple):
    """What the others did in it, and the owner's memory."""

    p50: float
    p99: float
    rate: float
    grown_mib: float
    connections: int  # of the client beside them


class NeverReading:
    """A client in a thread of this process: it sends, and that is all; but for one kind."""

    def __init__(self, url: str, kind: Kind) -> None:
        self.connections = 0
        self._url = url
        self._kind = kind
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            self.connections += 1
            with closing(RawStream(self._url)) as stream:
                if self._kind.reads:
                    self._read(stream)
                else:
                    stream.socket.setblocking(False)
                    with suppress(ConnectionError):  # the owner has cut it off
                        self._send(stream)

    def _read(self, stream: RawStream) -> None:
        while not self._stop.wait(STUCK_SECONDS):
            stream.ask(self._kind.request)

    def _send(self, stream: RawStream) -> None:
        waiting = memoryview(b"")
        while not self._stop.is_set():
            waiting = waiting or memoryview(self._kind.request)
            try:
                waiting = waiting[stream.socket.send(waiting) :]
            except BlockingIOError:
                _, ready, _ = select.select([], [stream.socket], [], STUCK_SECONDS)
                if self._kind.gives_up and not ready:
                    return


def run(setting: Setting) -> Sequence[Result]:
    """The p99 of others to that without such a client, and the owner's memory."""
    server = QuireServer(setting.folder / "store")
    try:
        found = _measure(setting, server)
    finally:
        server.stop()
    return [*_figures(found), _table(found)]


def _measure(setting: Setting, server: QuireServer) -> dict[str, list[Turn]]:
    rounds, seconds = setting.scaled(12, 1), 0.2 if setting.quick else 1.0
    turns: dict[str, Kind | None] = {ALONE: None, **KINDS, ALONE_AGAIN: None}
    found: dict[str, list[Turn]] = {name: [] for name in turns}
    chance = random.Random(setting.seed)
    with quire.open(server.address) as store, closing(Crowd(server, OTHERS)) as others:
        assert isinstance(store, ElectedStore)
        store.admin.create_queues([{"name": name, "kind": "work"} for name in ("large", "empty")])
        with store.transaction() as transaction:
            transaction.put_many("large", [bytes(MIB)] * LARGE_MESSAGES)
        store.browse("large")  # the owner's memory for one answer is not its growth
        url = str(store.status()["sharing"]["url"])
        others.run("put", seconds)
        for _ in range(rounds):
            for name, kind in chance.sample(list(turns.items()), len(turns)):
                found[name].append(_turn(store.owner_process_id, url, others, kind, seconds))
    return found


def _turn(
    owner_process_id: int, url: str, others: Crowd, kind: Kind | None, seconds: float
) -> Turn:
    before = _most_memory(owner_process_id, anew=True)
    with _beside(url, kind) as client:
        taken = others.run("put", seconds)
        grown = _most_memory(owner_process_id) - before
        connections = 0 if client is None else client.connections
    return Turn(taken["p50"], taken["p99"], taken["rate"], grown, connections)


@contextmanager
def _beside(url: str, kind: Kind | None) -> Iterator[NeverReading | None]:
    if kind is None:
        yield None
        return
    with closing(NeverReading(url, kind)) as client:
        yield client


def _most_memory(process_id: int, *, anew: bool = False) -> float:
    """The most that it had, in MiB, since it was asked `anew`; that begins with what it has now."""
    folder = Path(f"/proc/{process_id}")
    if anew:
        (folder / "clear_refs").write_text("5")
    [line] = [
        line for line in (folder / "status").read_text().splitlines() if line.startswith("VmHWM")
    ]
    return int(line.split()[1]) / 1024


def _ratio(found: dict[str, list[Turn]], name: str) -> float:
    """The p99 to that in the same round without such a client: the median."""
    return median(
        beside.p99 / alone.p99 for beside, alone in zip(found[name], found[ALONE], strict=True)
    )


def _figures(found: dict[str, list[Turn]]) -> list[Figure]:
    p99s = [
        Figure(f"others' p99 beside {name}, to that beside nobody", _ratio(found, name), "times",
               None if name == READ else at_most(TARGET))
        for name in KINDS
    ]  # fmt: skip
    grown = [
        Figure(
            f"the owner's memory beside {name}: most growth",
            max(turn.grown_mib for turn in found[name]),
            "MiB",
            at_most(MEMORY_TARGET_MIB),
        )
        for name in KINDS
    ]
    chance = Figure("the same of nobody, again", _ratio(found, ALONE_AGAIN), "times")
    return [*p99s, chance, *grown]


def _table(found: dict[str, list[Turn]]) -> Table:
    rows = [
        [
            name,
            *(
                f"{median(getattr(turn, what) for turn in turns):,.0f}"
                for what in ("p50", "p99", "rate", "grown_mib", "connections")
            ),
        ]
        for name, turns in found.items()
    ]
    columns = [
        "beside", "p50, us", "p99, us", "puts/s, all", "owner's growth, MiB", "its connections",
    ]  # fmt: skip
    return Table(f"Durable puts of {OTHERS} clients, medians of the rounds", columns, rows)
