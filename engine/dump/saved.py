"""The newest checkpoint that can be read, as a dump takes it: plain values, everything checked."""

from __future__ import annotations

from binascii import a2b_base64
from dataclasses import dataclass
from typing import Any

from quire.engine.checkpoint_file import Checkpoint, list_checkpoints, path_of, read_checkpoint
from quire.engine.layout import Layout
from quire.engine.prepared_record import PrepareRecord, unpack_prepare
from quire.engine.record_list import PageEntry
from quire.engine.space_maps import read_spaces
from quire.env import Env
from quire.errors import QuireError, StoreCorrupt
from quire.intervals import IntervalSet
from quire.journal import Geometry

from .items import CheckpointItem, Finding
from .queue_state import QueueState, SubscriptionState

_CONTRADICTIONS = (KeyError, TypeError, ValueError, OverflowError, AttributeError, IndexError)


@dataclass(slots=True)
class Saved:
    """What the checkpoint says."""

    item: CheckpointItem
    geometry: Geometry
    queues: list[QueueState]
    ledger: dict[str, int]
    large_files: dict[int, str]
    prepared: list[PrepareRecord]
    spaces: list[tuple[int, IntervalSet]]  # of each data file: pages, and those that are free


def newest_lsn(env: Env, layout: Layout) -> int | None:
    """Of the checkpoint that is the newest now."""
    try:
        lsns = list_checkpoints(env, layout.checkpoints)
    except OSError:
        return None
    return lsns[-1] if lsns else None


def newest_saved(env: Env, layout: Layout) -> tuple[Saved | None, list[Finding]]:
    """The newest checkpoint that can be read, and what is wrong with newer ones."""
    findings: list[Finding] = []
    try:
        lsns = list_checkpoints(env, layout.checkpoints)
    except OSError as error:
        findings.append(Finding("checkpoint", None, True, str(error), "all checkpoints"))
        return None, findings
    for lsn in reversed(lsns):
        try:
            return _saved(read_checkpoint(env, layout.checkpoints, lsn)), findings
        except (QuireError, OSError, MemoryError, RecursionError, *_CONTRADICTIONS) as error:
            if newest_lsn(env, layout) != lsns[-1]:  # the owner has made a newer one meanwhile
                return newest_saved(env, layout)
            file = path_of("checkpoint", lsn)
            text = str(error) if isinstance(error, (QuireError, OSError)) else f"{error!r}"
            findings.append(Finding(file, 0, True, text, "the state that it held"))
    return None, findings


def _saved(checkpoint: Checkpoint) -> Saved:
    document = checkpoint.document
    geometry = Geometry(
        checkpoint.store_id, int(document["segment_bytes"]), int(document["page_size"])
    )
    if geometry.page_size < 512 or geometry.segment_bytes < geometry.page_size:
        raise StoreCorrupt(f"{checkpoint.path}: impossible sizes {geometry}")
    spaces = [
        (
            space.total_pages,
            IntervalSet.from_list([(lo, lo + pages) for lo, pages in space.extents().tolist()]),
        )
        for space in read_spaces(checkpoint)
    ]
    ledger = {str(key): int(version) for key, version in document["ledger"].items()}
    large = {int(name, 16): str(queue) for name, queue in document["ltds"].items()}
    prepared = [
        unpack_prepare(memoryview(a2b_base64(body)), checkpoint.path)
        for body in document.get("prepared", ())
    ]
    queues = [_queue(checkpoint, entry) for entry in document["queues"]]
    item = CheckpointItem(
        file=path_of("checkpoint", checkpoint.lsn),
        lsn=checkpoint.lsn,
        restart_lsn=int(document["restart_lsn"]),
        created_us=int(document["created_us"]),
        next_id=int(document["next_id"]),
        last_time_us=int(document["last_time_us"]),
        queues=len(queues),
        ledger_entries=len(ledger),
        large_files=len(large),
        data_files=len(spaces),
        data_pages=sum(total for total, _ in spaces),
        free_pages=sum(free.total for _, free in spaces),
    )
    return Saved(item, geometry, queues, ledger, large, prepared, spaces)


def _queue(checkpoint: Checkpoint, entry: dict[str, Any]) -> QueueState:
    queue = QueueState.of_definition(entry)
    queue.end_position = int(entry["end_position"])
    for lo, hi in checkpoint.rows(entry["released"], 2):
        queue.released.add(lo, hi)
    queue.directory = [PageEntry(*row) for row in checkpoint.rows(entry["directory"], 4)]
    for saved in entry["subscriptions"]:
        if saved["done"] is not None:
            done = IntervalSet.from_list(checkpoint.rows(saved["done"], 2))
            number, name = int(saved["subscription_id"]), str(saved["name"])
            queue.subscriptions[number] = SubscriptionState(number, name, done)
    return queue
