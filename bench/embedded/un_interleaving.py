"""The saving by un-interleaving: pages and records for each message, by the size of the write
buffer.

Transactions that are open at the same time put messages of 100 bytes in turns into one queue, and
then commit. With room for one message in the write buffer every message leaves it at once, for
pages of the queue where those of the others lie in between: that is no buffer. With more room those
of a transaction leave together, or not before its commit; then they travel in the commit's record,
and the checkpoint that follows packs them. The store is closed and opened again, so that the reader
that takes everything finds nothing in memory.

Pages of 4 KiB are counted at the environment's seam: those that are written until the checkpoint is
done, those that the reader reads. Records are those that the queue's read structure scans. Counts
are the same in each round; times are medians of the rounds, in which the buffers take turns.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

from bench.drawing import COLOURS, drawing, plain_numbers
from bench.figure import BenchmarkSetting, Figure, Plot, Result, Table
from bench.measuring.counting_env import CountingEnv
from bench.measuring.payloads import as_list
from quire.engine import EmbeddedStore as Store
from quire.limits import DEFAULT_WRITE_BUFFER_MESSAGES

__all__ = ["run"]

CONCURRENT = (8, 64)  # transactions
NONE = 1  # message in the buffer: the next one makes it leave
BUFFERS = (NONE, 16, 64, 1024, DEFAULT_WRITE_BUFFER_MESSAGES)  # messages
TAKEN = 1000  # messages that the reader takes in a transaction
# Of one message; its share of the commits is in both times.
VALUES = ("pages written", "pages read", "records scanned", "put us", "take us")


class Round(NamedTuple):
    """The figures of one message, in the order of `VALUES`."""

    written: float
    read: float
    scanned: float
    put_us: float
    take_us: float


class MeasuredQueue:
    """A store with one queue, whose write buffer holds so many messages."""

    def __init__(self, setting: BenchmarkSetting, concurrent: int, buffer: int) -> None:
        self._path = str(setting.folder / f"{concurrent}-{buffer}")
        self._env = CountingEnv()
        self._concurrent = concurrent
        self._buffer = buffer
        with self._open() as store:
            store.create_queue("queue", kind="work")

    def round(self, payloads: Sequence[bytes]) -> Round:
        """Put the payloads, as many by each of the transactions, and take them."""
        count = len(payloads)
        env = self._env
        with self._open() as store:
            env.pages.clear()
            began = time.perf_counter()
            self._put(store, payloads)
            put = time.perf_counter() - began
            store.admin.checkpoint()
            written = env.pages["write"]
        with self._open() as store:
            _, subscription = store._context.state.source("queue")
            env.pages.clear()
            began = time.perf_counter()
            taken = _take_all(store)
            take = time.perf_counter() - began
            read = env.pages["read"]
            scanned = subscription.read_structure.scanned_records
        if sorted(taken) != sorted(payloads):
            raise AssertionError(f"{len(taken)} messages came of the {count} that were put")
        return Round(
            written / count, read / count, scanned / count, put / count * 1e6, take / count * 1e6
        )

    def _open(self) -> Store:
        return Store.open(
            self._path,
            env=self._env,
            background=False,  # all calls are this thread's
            write_buffer_messages=self._buffer,
            checkpoint_bytes=1 << 30,  # none but the one that is asked for
        )

    def _put(self, store: Store, payloads: Sequence[bytes]) -> None:
        transactions = [store.transaction() for _ in range(self._concurrent)]
        for at, payload in enumerate(payloads):
            transactions[at % self._concurrent].put("queue", payload)
        for transaction in transactions:
            transaction.commit()


def _take_all(store: Store) -> list[bytes]:
    taken: list[bytes] = []
    while True:
        with store.transaction() as transaction:
            found = transaction.get_many("queue", max_messages=TAKEN).payloads()
        if not found:
            return taken
        taken += found


def run(setting: BenchmarkSetting) -> list[Result]:
    """Pages, records and time for each message, for each number of transactions and buffer."""
    each = setting.scaled(128, 4)  # messages of a transaction
    rounds = setting.scaled(3, 1)
    measured: dict[tuple[int, int], Round] = {}
    for concurrent in CONCURRENT:
        payloads = as_list(concurrent * each, setting.seed)
        queues = {buffer: MeasuredQueue(setting, concurrent, buffer) for buffer in BUFFERS}
        found: dict[int, list[Round]] = {buffer: [] for buffer in BUFFERS}
        for _ in range(rounds + 1):
            for buffer, queue in queues.items():
                found[buffer].append(queue.round(payloads))
        for buffer, own in found.items():
            kept = own[1:]  # in the first round the files had to grow
            measured[concurrent, buffer] = Round(*(median(v) for v in zip(*kept, strict=True)))
    return [*_figures(measured), *_tables(measured, each), _plot(measured)]


def _figures(measured: dict[tuple[int, int], Round]) -> list[Figure]:
    figures = []
    for concurrent in CONCURRENT:
        none = measured[concurrent, NONE]
        default = measured[concurrent, DEFAULT_WRITE_BUFFER_MESSAGES]
        words = f"{concurrent} transactions"
        figures += [
            Figure(f"{words}, no buffer: pages read a message", none.read, "pages"),
            Figure(f"{words}, default buffer: pages read a message", default.read, "pages"),
            Figure(f"{words}: read without a buffer to with it", none.read / default.read, "times"),
            Figure(
                f"{words}: written without a buffer to with it",
                none.written / default.written,
                "times",
            ),
        ]
    return figures


def _tables(measured: dict[tuple[int, int], Round], each: int) -> list[Table]:
    values: list[list[float | str]] = []
    ratios: list[list[float | str]] = []
    for (concurrent, buffer), found in measured.items():
        none = measured[concurrent, NONE]
        name = f"{concurrent} transactions, {_words(buffer)}"
        values.append([name, *found])
        ratios.append([name, *(a / b for a, b in zip(none, found, strict=True))])
    title = f"{each} messages of 100 bytes by each transaction: for one message"
    return [
        Table(title, ["write buffer", *VALUES], values),
        Table("Without a buffer, to with it (times)", ["write buffer", *VALUES], ratios),
    ]


def _words(buffer: int) -> str:
    if buffer == NONE:
        return "no buffer"
    default = buffer == DEFAULT_WRITE_BUFFER_MESSAGES
    return "default" if default else f"{buffer:,} messages"


def _plot(measured: dict[tuple[int, int], Round]) -> Plot:
    figure, axes = drawing(3, "Un-interleaving: messages of 100 bytes, put in turns into one queue")
    names = [_words(buffer).replace(" ", "\n") for buffer in BUFFERS]
    panels: list[tuple[str, str, Any]] = [
        ("written", "pages a message", lambda found: found.written),
        ("read", "pages a message", lambda found: found.read),
        ("scanned", "records a message", lambda found: found.scanned),
    ]
    for part, (title, unit, pick) in zip(axes, panels, strict=True):
        for colour, concurrent in zip(COLOURS, CONCURRENT, strict=False):
            shown = [pick(measured[concurrent, buffer]) for buffer in BUFFERS]
            part.plot(names, shown, "o-", color=colour, label=f"{concurrent} transactions")
        part.set_title(title)
        part.set_ylabel(unit)
        part.set_xlabel("write buffer")
        part.set_yscale("log")
        plain_numbers(part)
        part.legend(loc="lower left", fontsize=9)
    words = "pages written and read, and records scanned, for each message"
    return Plot("un_interleaving", words, figure)
