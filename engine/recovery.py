"""Opening a store: the newest checkpoint, and the journal's records after it.

- V1: recovery changes no page that a checkpoint or an acknowledged commit needs: it may be broken
  off and repeated as often as need be (promise 8).
- V2: its time depends on the journal since the checkpoint: no data page and no record page is read
  but those that the journal's records touch.
"""

from __future__ import annotations

import json
from binascii import a2b_base64
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from quire.env import Env
from quire.errors import StoreCorrupt
from quire.intervals import IntervalSet
from quire.journal import Journal, RecoveryReport
from quire.limits import KEPT_BACK_SEGMENTS

from . import format
from .attempts import Attempts
from .checkpoint_file import Checkpoint
from .commit_record import unpack
from .data_files import DataFiles
from .places import Places
from .prepared_record import unpack_decision, unpack_prepare
from .record_list import PageEntry
from .record_page import RecordPages
from .space_maps import read_spaces
from .state import State
from .strategies import Strategy


@dataclass(slots=True)
class Recovered:
    """What recovery read and what it dropped."""

    records: int = 0
    journal: RecoveryReport | None = None
    notes: list[str] = field(default_factory=list)


def restore(
    env: Env, checkpoint: Checkpoint, ltds_directory: str, data: DataFiles, strategy: Strategy
) -> tuple[State, Places, RecordPages]:
    """The state at the checkpoint's LSN."""
    document = checkpoint.document
    try:
        places = Places(env, ltds_directory, data, read_spaces(checkpoint))
        places.ltds = {int(name, 16): queue for name, queue in document["ltds"].items()}
        places.remember_released(int(name, 16) for name in document.get("released", ()))
        pages = RecordPages(data)
        state = State(env, places, pages, strategy)
        state.ledger = dict(document["ledger"])
        for entry in document["queues"]:
            _restore_queue(checkpoint, state, entry)
        for body in document.get("prepared", ()):
            record = unpack_prepare(memoryview(a2b_base64(body)), checkpoint.path)
            state.prepared.restore(record, checkpoint.path)
        state.next_id = document["next_id"]
        state.last_time_us = document["last_time_us"]
        state.next_queue_id = document["next_queue_id"]
        state.next_subscription_id = document["next_subscription_id"]
    except (KeyError, TypeError, ValueError) as error:
        raise StoreCorrupt(f"{checkpoint.path}: contradictory ({error!r})") from error
    return state, places, pages


def _restore_queue(checkpoint: Checkpoint, state: State, entry: dict[str, Any]) -> None:
    state.create_queue(entry)
    queue = state.queues[entry["queue_id"]]
    queue.end_position = entry["end_position"]
    queue.space.recovered(entry["used"], entry["live_messages"])
    for lo, hi in checkpoint.rows(entry["released"], 2):
        queue.released.add(lo, hi)
    queue.records.load([PageEntry(*row) for row in checkpoint.rows(entry["directory"], 4)])
    for saved in entry["subscriptions"]:
        if saved["done"] is None:
            subscription = queue.subscriptions[saved["subscription_id"]]
            subscription.cursor = queue.released.first_gap(0)
        else:
            done = IntervalSet.from_list(checkpoint.rows(saved["done"], 2))
            subscription = queue.add_subscription(saved["subscription_id"], saved["name"], done)
        subscription.attempts = Attempts(checkpoint.rows(saved.get("given_back", [0, 0]), 3))


def replay(
    env: Env,
    directory: str,
    checkpoint: Checkpoint,
    state: State,
    recovered: Recovered,
) -> Journal:
    """Fold the journal's records after the checkpoint; the journal, open for writing."""
    changes: dict[int, Callable[[dict[str, Any]], None]] = {
        format.CREATE_QUEUE: state.create_queue,
        format.DROP_QUEUE: state.drop_queue,
        format.SUBSCRIBE: state.subscribe,
        format.UNSUBSCRIBE: state.unsubscribe,
    }

    def apply(kind: int, sequence: int, address: int, body: memoryview) -> None:
        if address < checkpoint.lsn:
            return
        recovered.records += 1
        where = f"{directory}: record at LSN {address:#x}"
        if kind == format.COMMIT:
            state.recover_commit(unpack(body, where), address)
        elif kind == format.PREPARE:
            state.prepared.recover(unpack_prepare(body, where), where)
        elif kind in (format.COMMIT_PREPARED, format.ROLLBACK_PREPARED):
            state.recover_decision(kind, unpack_decision(body, where), where)
        elif kind in changes:
            try:
                changes[kind](json.loads(bytes(body)))
            except (KeyError, TypeError, ValueError) as error:
                raise StoreCorrupt(f"{where}: contradictory ({error!r})") from error
        else:
            raise StoreCorrupt(f"{where}: unknown record kind {kind}; use a newer release")

    def report(found: RecoveryReport) -> None:
        recovered.journal = found

    journal = Journal.recover(
        env,
        directory,
        store_id=checkpoint.store_id,
        segment_bytes=checkpoint.document["segment_bytes"],
        page_size=checkpoint.document["page_size"],
        restart_lsn=checkpoint.document["restart_lsn"],
        durable_lsn=checkpoint.lsn,
        apply=apply,
        report=report,
        kept_back=KEPT_BACK_SEGMENTS,
        direct=True,
    )
    state.prepared.resume_reading()
    for manager in state.places.managers:
        manager.match_file()
    return journal
