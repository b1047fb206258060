"""The newest checkpoint that can be read, as a dump takes it: plain values, everything checked."""

from __future__ import annotations

from dataclasses import dataclass

from quire.dump_items import Described, Finding
from quire.engine.checkpoints.snapshot import load
from quire.engine.checkpoints.space_maps import read_spaces
from quire.engine.layout import Layout
from quire.engine.records.checkpoint_file import (
    Checkpoint,
    list_checkpoints,
    path_of,
    read_checkpoint,
)
from quire.engine.records.durable_state import DurableState
from quire.engine.records.fold import Fold
from quire.env import Env
from quire.errors import QuireError, StoreCorrupt, StoreVersion
from quire.intervals import IntervalSet
from quire.journal import Geometry

from .queue_state import Beside

_CONTRADICTIONS = (KeyError, TypeError, ValueError, OverflowError, AttributeError, IndexError)


@dataclass(slots=True)
class Saved:
    """What the checkpoint says."""

    newest: int  # the LSN of the newest one then, which this is, or could not be read
    lsn: int
    restart_lsn: int
    item: Described
    geometry: Geometry
    state: DurableState
    beside: Beside
    spaces: list[tuple[int, IntervalSet]]  # of each data file: pages, and those that are free


def newest_lsn(env: Env, layout: Layout) -> int | None:
    """Of the checkpoint that is the newest now."""
    try:
        return max(list_checkpoints(env, layout.checkpoints), default=None)
    except OSError:
        return None


def newest_saved(env: Env, layout: Layout) -> tuple[Saved | None, list[Finding]]:
    """The newest checkpoint that can be read, and what is wrong with newer ones.

    Raises StoreVersion if a newer release wrote it: what would be left to list is not the store.
    """
    findings: list[Finding] = []
    try:
        lsns = list_checkpoints(env, layout.checkpoints)
    except OSError as error:
        return None, [Finding("checkpoint", None, True, str(error), "all checkpoints")]
    for lsn in reversed(lsns):
        try:
            return _saved(read_checkpoint(env, layout.checkpoints, lsn), lsns[-1]), findings
        except StoreVersion:
            raise
        except (QuireError, OSError, MemoryError, RecursionError, *_CONTRADICTIONS) as error:
            if newest_lsn(env, layout) != lsns[-1]:  # the owner has made a newer one meanwhile
                return newest_saved(env, layout)
            file = path_of("checkpoint", lsn)
            text = str(error) if isinstance(error, (QuireError, OSError)) else f"{error!r}"
            findings.append(Finding(file, 0, True, text, "the state that it held"))
    return None, findings


def _saved(checkpoint: Checkpoint, newest: int) -> Saved:
    document, state = checkpoint.document, DurableState()
    sizes = (int(document[name]) for name in ("segment_bytes", "page_size"))
    geometry = Geometry(checkpoint.store_id, *sizes)
    if geometry.page_size < 512 or geometry.segment_bytes < geometry.page_size:
        raise StoreCorrupt(f"{checkpoint.path}: impossible sizes {geometry}")
    spaces = [
        (
            space.total_pages,
            IntervalSet.from_list([(lo, lo + pages) for lo, pages in space.extents().tolist()]),
        )
        for space in read_spaces(checkpoint)
    ]
    beside = Beside(_refuse)
    load(checkpoint, Fold(state, beside), beside)
    lsn, restart_lsn = checkpoint.lsn, int(document["restart_lsn"])
    said = {
        "file": path_of("checkpoint", lsn),
        "lsn": lsn,
        "restart_lsn": restart_lsn,
        "created_us": int(document["created_us"]),
        "last_time_us": state.last_time_us,
        "next_id": state.next_id,
        "queues": len(state.queues),
        "ledger_entries": len(state.ledger),
        "large_files": len(state.ltds),
        "data_files": len(spaces),
        "data_pages": sum(total for total, _ in spaces),
        "free_pages": sum(free.total for _, free in spaces),
    }
    item = Described("checkpoint", said)
    return Saved(newest, lsn, restart_lsn, item, geometry, state, beside, spaces)


def _refuse(where: str, text: str) -> None:
    raise StoreCorrupt(f"{where}: {text}")
