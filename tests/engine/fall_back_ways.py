"""The ways that limits choose between, and who counts how often each is gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

from quire.engine.checkpoints.block_mover import Mover
from quire.engine.commits import committer, memory_section, queue_writes, sequencer
from quire.engine.commits.buffer_spiller import BufferSpiller
from quire.engine.commits.committer import Committer
from quire.engine.commits.pending_sections import HeldSection, MovesSection, ValuesSection
from quire.engine.commits.sequencer import Sequencer
from quire.engine.live_state.engine_state import EngineState
from quire.engine.pages.block_places import MemoryBlocks
from quire.engine.pages.data_files import DataFiles
from quire.engine.queues.queue import Queue
from quire.engine.queues.queue_log import QueueLog
from quire.engine.reading.block_reader import BlockReader
from quire.engine.records import commit_record, format
from quire.engine.transactions import arrow_slices, writes
from quire.engine.transactions.reads import TransactionReads
from quire.engine.transactions.registry import Registry
from quire.engine.transactions.streaming import StreamPut
from quire.engine.transactions.writes import TransactionWrites
from quire.journal import Journal

WAYS = (
    "one message alone", "one message alone, in memory", "light, in its record",
    "its full form from the beginning", "its full form later", "blocks in the record",
    "blocks on pages of a file", "blocks on pages of several files", "blocks that were spilled",
    "blocks in its own files",
    "prepared", "prepared, with states", "the write buffer is full", "spilled", "turned large",
    "files that are not kept open", "files that wait to be written", "no further section",
    "moves", "values", "memory", "memory alone", "moves, values", "moves, memory",
    "values, memory", "moves, values, memory",
    "a record in one piece", "a record in pieces", "a group of several",
    "a group with a buffer of its own", "the next segment", "a group that is not synced",
    "synced afterwards", "a block from the journal", "a block from a data file",
    "a block from memory", "a block from a large transaction's file", "blocks packed",
    "one block moved", "Arrow data in slices", "rows in slices", "runs joined",
    "releases looked up", "a payload summed in two copies", "a payload summed in one",
    "a block in memory split", "a stream in a file", "a stream as a message",
    "what was rolled back dropped from a log", "gathered changes cut off", "a group cut off",
)  # fmt: skip
"""What limits choose between."""


_SECTIONS = {
    MovesSection: "moves",
    ValuesSection: "values",
    HeldSection: "held",
}


class Watch:
    """How often each way is gone, in `count`, by spies on the functions of `SPIES`."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()

    # Called before, with what the function is given

    def fill(self, own: TransactionWrites) -> None:
        if own._buffer is None:
            later = own.by_queue and not own.large
            self.count["its full form later" if later else "its full form from the beginning"] += 1

    def place(self, own: Committer, groups: Any, inline_limit: int) -> None:
        self.count["blocks that were spilled"] += format.DATA in _kinds(groups)

    def to_files(self, own: TransactionWrites, may_wait_bytes: int) -> None:
        self.count["turned large"] += not own.large
        most = _now(queue_writes, "LTDS_WRITERS")
        self.count["files that are not kept open"] += len(own.by_queue) > most
        self.count["files that wait to be written"] += may_wait_bytes > 0

    def relieve(self, own: Registry, buffer: Any, asking: int, puts: Any) -> None:
        self.count["the write buffer is full"] += buffer.full

    def merge(self, own: Mover, refs: Any) -> None:
        self.count["blocks packed" if len(refs) > 1 else "one block moved"] += 1

    def together(self, own: Sequencer, turns: Any) -> None:
        most = _now(sequencer, "GATHERED_CHANGES")
        self.count["gathered changes cut off"] += len(turns) >= most

    def drop(self, own: QueueLog, sealing: Any) -> None:
        self.count["what was rolled back dropped from a log"] += not own.sealing

    # Called after, with what it gives as well

    def packed(self, packed: Any, transaction_id: int, *_: Any) -> None:
        self.count["light, in its record"] += transaction_id != 0

    def placed(self, extents: Any, own: Committer, groups: Any, inline_limit: int) -> None:
        count, kinds = self.count, _kinds(groups)
        if extents:
            several = "several files" if len(extents) > 1 else "a file"
            count[f"blocks on pages of {several}"] += 1
        elif len(kinds) < sum(len(pieces) for _, pieces in groups):
            count["blocks in the record"] += 1
        count["blocks in its own files"] += format.LTDS in kinds

    def committed(self, _: None, own: Committer, transaction: Any, *__: Any, **___: Any) -> None:
        change = transaction.change
        kinds = [_SECTIONS[type(section)] for section in change.pending]
        kinds += ["memory"] if change.memory else []
        if "held" in kinds:
            self.count["prepared"] += 1
            self.count["prepared, with states"] += "values" in kinds
            return
        alone = "" if change.record else " alone"
        self.count[(", ".join(kinds) or "no further section") + alone] += 1

    def alone(self, _: int, own: Committer, queue: Queue, *__: Any) -> None:
        self.count["one message alone" + (", in memory" if queue.is_volatile else "")] += 1

    def group(self, _: int, own: Journal, records: Any, *__: Any, **___: Any) -> None:
        self.count["a group of several"] += len(records) > 1
        in_pieces = any(isinstance(record, tuple) for record in records)
        self.count["a record in pieces" if in_pieces else "a record in one piece"] += 1

    def collected(self, _: None, own: Sequencer, group: Any) -> None:
        self.count["a group cut off"] += bool(own._queue)

    def buffer(self, buffer: Any, own: Journal, end: int) -> None:
        self.count["a group with a buffer of its own"] += buffer is not own._buffer

    def slices(self, found: Any, *_: Any) -> None:
        self.count["Arrow data in slices"] += len(found) > 1

    def row_slices(self, _: Any, rows: Any) -> None:
        self.count["rows in slices"] += len(list(arrow_slices.row_slices(rows))) > 1

    def joined(self, joined: Any, own: TransactionReads) -> None:
        self.count["runs joined"] += joined is not own.taken

    def at_hand(self, found: bool, *_: Any) -> None:
        self.count["releases looked up"] += not found


BEFORE: tuple[tuple[Any, str, Callable[..., None]], ...] = (
    (TransactionWrites, "fill", Watch.fill),
    (TransactionWrites, "_to_files", Watch.to_files),
    (Committer, "place", Watch.place),
    (Registry, "relieve", Watch.relieve),
    (Mover, "_merge", Watch.merge),
    (Sequencer, "_write_together", Watch.together),
    (QueueLog, "drop", Watch.drop),
)
AFTER: tuple[tuple[Any, str, Callable[..., None]], ...] = (
    (committer, "pack_light", Watch.packed),
    (Committer, "place", Watch.placed),
    (Committer, "commit", Watch.committed),
    (Committer, "put", Watch.alone),
    (Journal, "write_group", Watch.group),
    (Journal, "_make_room", Watch.buffer),
    (Sequencer, "_collect", Watch.collected),
    (arrow_slices, "slices_of", Watch.slices),
    (writes, "row_slices", Watch.row_slices),
    (TransactionReads, "to_read", Watch.joined),
    (EngineState, "at_hand", Watch.at_hand),
)
CALLED: tuple[tuple[Any, str, str], ...] = (
    (BufferSpiller, "spill", "spilled"),
    (Journal, "_advance", "the next segment"),
    (Journal, "_write_cached", "a group that is not synced"),
    (Journal, "_sync_unsynced", "synced afterwards"),
    (Journal, "read", "a block from the journal"),
    (DataFiles, "read", "a block from a data file"),
    (MemoryBlocks, "read", "a block from memory"),
    (BlockReader, "_ltds_block", "a block from a large transaction's file"),
    (commit_record, "plain_one", "a payload summed in two copies"),
    (commit_record, "checked_one", "a payload summed in one"),
    (memory_section, "split", "a block in memory split"),
    (StreamPut, "finish", "a stream in a file"),
    (StreamPut, "whole", "a stream as a message"),
)


@contextmanager
def watched() -> Iterator[Counter[str]]:
    """How often each of `WAYS` is gone meanwhile."""
    watch = Watch()
    before: list[tuple[Any, str, Any]] = []

    def spy(owner: Any, name: str, first: Callable[..., None], last: Callable[..., None]) -> None:
        whole = getattr(owner, name)

        @wraps(whole)
        def spied(*args: Any, **kwargs: Any) -> Any:
            first(*args, **kwargs)
            found = whole(*args, **kwargs)
            last(found, *args, **kwargs)
            return found

        before.append((owner, name, vars(owner)[name]))
        setattr(owner, name, spied)

    try:
        for owner, name, note in BEFORE:
            spy(owner, name, partial(note, watch), _nothing)
        for owner, name, note in AFTER:
            spy(owner, name, _nothing, partial(note, watch))
        for owner, name, way in CALLED:
            spy(owner, name, _nothing, partial(_count, watch.count, way))
        yield watch.count
    finally:
        for owner, name, value in reversed(before):
            setattr(owner, name, value)


def _nothing(*_: Any, **__: Any) -> None:
    """Nothing is noted."""


def _count(count: Counter[str], way: str, *_: Any, **__: Any) -> None:
    count[way] += 1


def _kinds(groups: Any) -> set[int]:
    """Of the parts that have their place already."""
    return {part.kind for _, pieces in groups for part in pieces if hasattr(part, "kind")}


def _now(module: Any, name: str) -> int:
    """A limit, as it is drawn."""
    value: int = getattr(module, name)
    return value
