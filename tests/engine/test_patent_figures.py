"""The worked examples of "Managing message queues" (JP 2008-547130), figures 2A to 5, step by step.

In the figures a message is named by its transaction and its number in it, as "T1:M2". Lists run in
queue order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from quire.engine import EmbeddedStore as Store
from quire.engine import EmbeddedTransaction as Transaction
from quire.engine.inspection.status import listing
from quire.engine.queues.queue import Queue
from quire.engine.queues.queue_log import MESSAGES
from quire.engine.records.commit_record import Part
from quire.rows.open_block import verified_block
from quire.testing import SimEnv


class Figure:
    """A store, its transactions T1, T2, ... and what is where, in the figures' words."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.transactions: dict[str, Transaction] = {}
        self.counts: dict[str, int] = {}
        self._names: dict[int, str] = {}

    def open(self, name: str, *queues: str, large: bool = False) -> None:
        """A new transaction; its OPEN record comes with its first message to a queue, or here."""
        self.transactions[name] = transaction = self.store.transaction(large=large)
        self._names[transaction.id] = name
        for queue in queues:
            transaction.put_many(queue, [])

    def add(self, *messages: str, queue: str = "A") -> None:
        """ADD messages."""
        for message in messages:
            self.transactions[message.partition(":")[0]].put(queue, message.encode())

    def commit(self, name: str) -> None:
        self.transactions[name].commit()

    def buffer(self, queue: str = "A") -> dict[str, list[str]]:
        """What the write buffer holds of the queue, by transaction."""
        held = {}
        for name, transaction in self.transactions.items():
            puts = transaction._writes
            written = (
                None if puts is None else puts.by_queue.get(self.store._context.state.queue(queue))
            )
            if written is not None and transaction.state == "open" and not written.buffer.empty:
                blocks = written.buffer.encode(1 << 20)
                held[name] = [
                    payload for block in blocks for payload in payloads(bytes(block.data))
                ]
        return held

    def queue(self, name: str = "A") -> list[str]:
        """The queue's records."""
        found = self.store._context.state.queue(name)
        shown: list[str] = []
        for record in listing(found):
            who = self._names.get(record.transaction_id or 0, "?")
            if record.kind != MESSAGES:
                shown.append(f"{record.kind} {who}")
                continue
            shown += self._read(name, record.position, record.messages, record.address)
        return shown

    def _read(self, queue: str, position: int | None, count: int, address: int) -> list[str]:
        if position is not None:
            return [m.decode() for m in self.store.browse(queue, count, start=position).payloads()]
        places = self.store._context.places
        part = next(
            entry.part
            for entry in self.store._context.state.queue(queue).log.entries
            if entry.part is not None and entry.part.address == address
        )
        return payloads(bytes(places.data.read(part.address, part.length)))

    def delivered(self, source: str = "A", count: int = 100) -> list[str]:
        with self.store.transaction() as txn:
            return [payload.decode() for payload in txn.get_many(source, count).payloads()]


def payloads(data: bytes) -> list[str]:
    """Of an encoded block."""
    block = verified_block(data, "a block")
    return [payload.decode() for payload in block.payloads()]


@contextmanager
def figure(messages: int, **options: str | int) -> Iterator[Figure]:
    """A store whose write buffer holds so many messages, with the queues A, B and P."""
    with Store.open(
        "/s",
        env=SimEnv(),
        background=False,
        write_buffer_messages=messages,
        **options,  # type: ignore[arg-type]
    ) as store:
        for name in "ABP":
            store.create_queue(name, kind="work")
        yield Figure(store)
        assert store.admin.verify().ok


def figure_2a(fig: Figure) -> None:
    """T1 and T2 are opened, and their messages arrive in turn."""
    fig.open("T1")
    fig.add("T1:M1")
    fig.open("T2")
    fig.add("T2:M1", "T1:M2")


def figure_2b(fig: Figure) -> None:
    """T1 commits: its messages move to the queue together."""
    figure_2a(fig)
    fig.commit("T1")


def figure_2c(fig: Figure) -> None:
    """T3 comes, T2 commits, T4 comes: the buffer is full again."""
    figure_2b(fig)
    fig.open("T3")
    fig.add("T3:M1", "T3:M2")
    fig.commit("T2")
    fig.open("T4")
    fig.add("T4:M1")


def figure_2d(fig: Figure) -> None:
    """T4's second message finds no room."""
    figure_2c(fig)
    fig.add("T4:M2")


def figure_2e(fig: Figure) -> None:
    """T4 commits, T3 gets one more message and commits."""
    figure_2d(fig)
    fig.commit("T4")
    fig.add("T3:M3")
    fig.commit("T3")


TILL_2B = ["OPEN T1", "OPEN T2", "T1:M1", "T1:M2", "COMMIT T1"]
TILL_2C = [*TILL_2B, "OPEN T3", "T2:M1", "COMMIT T2", "OPEN T4"]
TILL_2D = [*TILL_2C, "T3:M1", "T3:M2"]
TILL_2E = [*TILL_2D, "T4:M1", "T4:M2", "COMMIT T4", "T3:M3", "COMMIT T3"]


@pytest.mark.parametrize(
    ("steps", "buffer", "queue"),
    [
        (figure_2a, {"T1": ["T1:M1", "T1:M2"], "T2": ["T2:M1"]}, ["OPEN T1", "OPEN T2"]),
        (figure_2b, {"T2": ["T2:M1"]}, TILL_2B),
        (figure_2c, {"T3": ["T3:M1", "T3:M2"], "T4": ["T4:M1"]}, TILL_2C),
        (figure_2d, {"T4": ["T4:M1", "T4:M2"]}, TILL_2D),
        (figure_2e, {}, TILL_2E),
    ],
    ids=["2A", "2B", "2C", "2D", "2E"],
)
def test_figure_2(
    steps: Callable[[Figure], None], buffer: dict[str, list[str]], queue: list[str]
) -> None:
    """[0047-0052] A buffer of three messages un-interleaves T1 and T2; when it is full T3 goes."""
    with figure(3) as fig:
        steps(fig)
        assert fig.buffer() == buffer
        assert fig.queue() == queue


def test_figure_2e_is_delivered_in_commit_order() -> None:
    """T3's messages stand on both sides of T4's, and come together after them."""
    with figure(3) as fig:
        figure_2e(fig)
        expected = ["T1:M1", "T1:M2", "T2:M1", "T4:M1", "T4:M2", "T3:M1", "T3:M2", "T3:M3"]
        assert fig.delivered() == expected


def test_figure_2d_with_conversion() -> None:
    """[0052, 0060] Instead, T3 becomes a large transaction: no message stands apart."""
    with figure(3, when_full="large") as fig:
        figure_2d(fig)
        assert fig.buffer() == {"T4": ["T4:M1", "T4:M2"]}
        assert fig.transactions["T3"].large
        assert fig.queue() == TILL_2C
        fig.commit("T4")
        fig.add("T3:M3")
        fig.commit("T3")
        assert fig.queue() == [*TILL_2C, "T4:M1", "T4:M2", "COMMIT T4", "INDIRECT T3", "COMMIT T3"]
        assert fig.delivered()[-3:] == ["T3:M1", "T3:M2", "T3:M3"]


def figure_3a(fig: Figure) -> None:
    """T1 and T2 write to A, T3 to B, T4 to both: ten messages fill the buffer."""
    for name in ("T1", "T2", "T3", "T4"):
        fig.open(name)
    fig.add("T1:M1", "T1:M2")
    fig.add("T2:M1")
    fig.add("T3:M1", "T3:M2", queue="B")
    fig.add("T4:M1", queue="B")
    fig.add("T1:M3", "T4:M2", "T2:M2")
    fig.add("T3:M3", queue="B")


def test_figure_3() -> None:
    """[0053] One buffer of ten messages for two queues: the oldest transaction, T1, leaves it."""
    with figure(10) as fig:
        figure_3a(fig)
        assert sum(len(held) for queue in "AB" for held in fig.buffer(queue).values()) == 10
        assert fig.queue("A") == ["OPEN T1", "OPEN T2", "OPEN T4"]
        assert fig.queue("B") == ["OPEN T3", "OPEN T4"]
        fig.add("T1:M4", "T4:M3")  # 3B
        assert fig.queue("A") == ["OPEN T1", "OPEN T2", "OPEN T4", "T1:M1", "T1:M2", "T1:M3"]
        assert fig.queue("B") == ["OPEN T3", "OPEN T4"]
        assert fig.buffer("A") == {
            "T1": ["T1:M4"],
            "T2": ["T2:M1", "T2:M2"],
            "T4": ["T4:M2", "T4:M3"],
        }
        assert fig.buffer("B") == {"T3": ["T3:M1", "T3:M2", "T3:M3"], "T4": ["T4:M1"]}


def test_figure_3_with_a_buffer_for_each_queue() -> None:
    """[0053] Each queue has ten messages of room: nothing leaves."""
    with figure(10, write_buffer="per-queue") as fig:
        figure_3a(fig)
        fig.add("T1:M4", "T4:M3")
        assert fig.queue("A") == ["OPEN T1", "OPEN T2", "OPEN T4"]
        fig.add("T1:M5", "T2:M3")
        assert fig.queue("A") == ["OPEN T1", "OPEN T2", "OPEN T4"]
        fig.add("T4:M4")  # the eleventh of A: T1 leaves A's buffer
        assert fig.queue("A")[3:] == ["T1:M1", "T1:M2", "T1:M3", "T1:M4", "T1:M5"]
        assert fig.queue("B") == ["OPEN T3", "OPEN T4"]


def figure_4(fig: Figure) -> None:
    """Four transactions whose messages interleave, as every message leaves the buffer at once."""
    fig.open("T1")
    fig.add("T1:M1")
    fig.open("T2")
    fig.add("T2:M1", "T1:M2")
    fig.open("T3")
    fig.add("T3:M1", "T2:M2")
    fig.commit("T1")
    fig.open("T4")
    fig.add("T3:M2", "T4:M1", "T3:M3", "T4:M2", "T2:M3")
    for transaction in fig.transactions.values():
        transaction.leave(None)


def sublist(queue: Queue, transaction_id: int) -> list[Part]:
    """Pointers to the messages that a transaction has in the queue's log."""
    entries = [each for each in queue.log.entries if each.transaction_id == transaction_id]
    return [each.part for each in entries if each.part is not None]


def test_figure_4() -> None:
    """[0054-0057] A sublist of pointers for each transaction; T4 commits, and comes, before T3."""
    with figure(1) as fig:
        figure_4(fig)
        queue = fig.store._context.state.queue("A")
        sublists = {
            name: len(sublist(queue, fig.transactions[name].id)) for name in fig.transactions
        }
        assert sublists == {"T1": 2, "T2": 3, "T3": 3, "T4": 2}
        assert fig.delivered() == ["T1:M1", "T1:M2"]
        assert fig.delivered() == []
        fig.commit("T4")
        fig.commit("T3")
        fig.transactions["T2"].rollback()
        assert fig.queue()[-4:] == ["T2:M3", "COMMIT T4", "COMMIT T3", "ROLLBACK T2"]
        assert fig.delivered() == ["T4:M1", "T4:M2", "T3:M1", "T3:M2", "T3:M3"]
        assert sublist(queue, fig.transactions["T2"].id)  # until a checkpoint
        fig.store.admin.checkpoint()
        assert fig.queue() == []


def test_figure_4_scans_headers_once() -> None:
    """[0054] What is scanned are records, one for a run of messages; no payload is read for it."""
    with figure(1) as fig:
        figure_4(fig)
        fig.commit("T4")
        fig.commit("T3")
        queue = fig.store._context.state.queue("A")
        (subscription,) = queue.subscriptions.values()
        scanned = subscription.read_structure.scanned_records
        with queue.lock:
            pointers = subscription.read_structure.pointers(0, queue.end_position, 100)
        assert subscription.read_structure.scanned_records - scanned == len(pointers) == 7


def test_figure_5() -> None:
    """[0058-0059] T2 is large: the queue holds an INDIRECT record; no sublist is made for it."""
    with figure(1000, large_flush_bytes=1024) as fig:
        fig.open("T1")
        fig.add("T1:M1", "T1:M2", queue="P")
        fig.open("T2", large=True)
        fig.add(*(f"T2:M{number}" for number in range(1, 501)), queue="P")
        fig.commit("T2")
        fig.commit("T1")
        assert fig.queue("P") == [
            "OPEN T1", "OPEN T2", "INDIRECT T2", "COMMIT T2", "T1:M1", "T1:M2", "COMMIT T1",
        ]  # fmt: skip
        queue = fig.store._context.state.queue("P")
        assert sublist(queue, fig.transactions["T2"].id) == []
        (subscription,) = queue.subscriptions.values()
        expected = [*(f"T2:M{number}" for number in range(1, 501)), "T1:M1", "T1:M2"]
        assert fig.delivered("P", 1000) == expected
        assert subscription.read_structure.scanned_records == 2
