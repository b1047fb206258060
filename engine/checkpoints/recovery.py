"""Opening a store: the newest checkpoint, and the journal's records after it.

- Recovery changes no page that a checkpoint or an acknowledged commit needs: it may be broken off
  and repeated as often as need be (promise 8).
- Its time depends on the journal since the checkpoint: no data page and no record page is read but
  those that the journal's records touch.
- RV3: what recovery makes stays. So the garbage collector, which would look through all of it
  again and again, waits until it is done: of a store with 10,000 queues that took two thirds of the
  processor time.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from quire.engine.live_state.engine_state import EngineState
from quire.engine.pages.block_places import Places
from quire.engine.pages.data_files import DataFiles
from quire.engine.pages.free_space import FreeSpace
from quire.engine.pages.record_page import RecordPages
from quire.engine.records.checkpoint_file import Checkpoint
from quire.engine.state.durable_state import DurableState
from quire.engine.state.fold import decode_record
from quire.engine.strategies import Strategy
from quire.env import Env
from quire.errors import StoreCorrupt
from quire.journal import Hooks, Journal, Record, RecoveryReport
from quire.limits import KEPT_BACK_SEGMENTS

from .snapshot import load
from .space_maps import read_spaces


class RecoveredRecords(NamedTuple):
    """The latest record that recovery read, and what it dropped."""

    number: int  # of the latest record (see `Sequencer.number`)
    cut: str  # off the journal's end, in words; empty: nothing


@contextmanager
def uncollected() -> Iterator[None]:
    """The garbage collector waits, of all threads (RV3); one that is off stays so."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def new_state(
    env: Env,
    ltds_directory: str,
    data: DataFiles,
    spaces: Sequence[FreeSpace],
    strategy: Strategy,
    *,
    parallel: bool,
) -> EngineState:
    """Return the state of an empty store on these files."""
    durable = DurableState()
    places = Places(env, ltds_directory, data, spaces, durable.ltds, parallel=parallel)
    return EngineState(env, durable, places, RecordPages(data), strategy)


def restore(
    checkpoint: Checkpoint, state_on: Callable[[Sequence[FreeSpace]], EngineState]
) -> EngineState:
    """The state at the checkpoint's LSN; `state_on` makes an empty one with this free space."""
    try:
        state = state_on(read_spaces(checkpoint))
        load(checkpoint, state.fold, state)
        released = checkpoint.document["released"]
        state.places.remember_released(int(name, 16) for name in released)
        unshipped = checkpoint.document.get("unshipped")
        if unshipped is not None:
            runs = [checkpoint.runs(place) for place in unshipped["pages"]]
            state.places.remember_unshipped(unshipped, runs)
    except (KeyError, TypeError, ValueError) as error:
        raise StoreCorrupt(f"{checkpoint.path}: contradictory ({error!r})") from error
    return state


def replay(
    env: Env, directory: str, checkpoint: Checkpoint, state: EngineState, hooks: Hooks
) -> tuple[Journal, RecoveredRecords]:
    """Fold the journal's records after the checkpoint; the journal, open for writing.

    `State.resume` comes next.

    No other file is touched: the checkpoint may still be uncertain (`opened`, OD3).
    """
    number = int(checkpoint.document["number"])
    reports: list[RecoveryReport] = []

    def apply(record: Record) -> None:
        nonlocal number
        if record.address < checkpoint.lsn:
            return
        number += 1
        where = f"{directory}: record at LSN {record.address:#x}"
        body = decode_record(record, where)
        state.fold.take(record.kind, record.sequence, record.address, body, where)

    journal = Journal.recover(
        env,
        directory,
        store_id=checkpoint.store_id,
        segment_bytes=checkpoint.document["segment_bytes"],
        page_size=checkpoint.document["page_size"],
        restart_lsn=checkpoint.document["restart_lsn"],
        durable_lsn=checkpoint.lsn,
        apply=apply,
        report=reports.append,
        hooks=hooks,
        kept_back=KEPT_BACK_SEGMENTS,
        direct=True,
    )
    return journal, RecoveredRecords(number, reports[-1].words)
