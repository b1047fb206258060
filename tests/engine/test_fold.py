"""The fold alone gives the state that a store has: from a checkpoint, and from the beginning.

It is run here over the files, with nothing beside it, and compared with what the store holds that
opened them, or that wrote them.
"""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.engine.checkpoints.snapshot import load
from quire.engine.layout import Layout
from quire.engine.namespaces.admin import AdminHandlers
from quire.engine.records import format
from quire.engine.records.checkpoint_file import list_checkpoints, read_checkpoint
from quire.engine.records.prepared_record import PrepareRecord
from quire.engine.state.durable_state import DurableState
from quire.engine.state.fold import Fold, decode_record
from quire.env import Env, OsEnv
from quire.errors import StoreCorrupt
from quire.journal import KIND_GENERATION, JournalFinding, geometry_of, scan
from quire.journal.segments import SegmentSet
from quire.testing import SimEnv
from tests.engine.alone import Alone
from tests.engine.workload import PATH, Oracle, Workload, new_machine, open_store

ARCHIVES = sorted((Path(__file__).parents[1] / "formats").glob("store-*.tar.gz"))


def refuse(where: str, text: str) -> None:
    """The record or the checkpoint contradicts the state."""
    raise StoreCorrupt(f"{where}: {text}")


def folded(env: Env, path: str, *, from_checkpoint: bool = True) -> DurableState:
    """The state that the files tell, from their checkpoint or from the journal's beginning on."""
    layout, nothing = Layout(path), Alone(refuse)
    fold = Fold(DurableState(), nothing)
    since_lsn = restart_lsn = 0
    if from_checkpoint:
        checkpoint = read_checkpoint(
            env, layout.checkpoints, list_checkpoints(env, layout.checkpoints)[-1]
        )
        load(checkpoint, fold, nothing)
        since_lsn, restart_lsn = checkpoint.lsn, checkpoint.document["restart_lsn"]
    for group in scan(
        env, layout.journal, geometry_of(env, layout.journal), restart_lsn=restart_lsn
    ):
        if isinstance(group, JournalFinding):
            assert not group.damage, group
            continue
        for record in group.records():
            if record.kind != KIND_GENERATION and record.address >= since_lsn:
                said = decode_record(record, "a record")
                fold.take(record.kind, record.sequence, record.address, said, "a record")
    return fold.state


def told(state: DurableState) -> dict[str, Any]:
    """All that a state says, but for records and files, as plain values that can be compared."""
    queues = {}
    for queue_id, queue in state.queues.items():
        queues[queue_id] = {
            "config": queue.config,
            "end": queue.end_position,
            "released": queue.released.to_list(),
            "subscriptions": {
                s.subscription_id: (s.name, s.done.to_list(), s.attempts.rows())
                for s in queue.subscriptions.values()
            },
        }
    return {
        "queues": queues,
        "names": {name: queue.config.queue_id for name, queue in state.names.items()},
        "catalog": {name: entries for name, entries in state.catalog.items() if entries},
        "ledger": state.ledger,
        "prepared": {xid: _plain(record) for xid, record in state.prepared.items()},
        "next_id": state.next_id,
        "last_time_us": state.last_time_us,
        "next_queue_id": state.next_queue_id,
        "next_subscription_id": state.next_subscription_id,
    }


def _plain(record: PrepareRecord) -> list[Any]:
    return [
        list(map(tuple, value)) if isinstance(value, list | tuple) else value for value in record
    ]


def released_files(state: DurableState) -> set[int]:
    """Files of large transactions whose messages are all released, of records in the tails."""
    return {
        ref.address
        for queue in state.queues.values()
        for ref in queue.tail.between(0, len(queue.tail))
        if ref.kind == format.LTDS and queue.released.covers(ref.position, ref.end)
    }


def check_records(pure: DurableState, live: DurableState) -> int:
    """The live records are the last of the folded ones, the files those not released."""
    count = 0
    for queue_id, queue in pure.queues.items():
        kept = live.queues[queue_id].tail
        count += len(kept)
        every = list(queue.tail.between(0, len(queue.tail)))
        assert every[len(every) - len(kept) :] == list(kept.between(0, len(kept)))
    released = released_files(pure)
    assert {i: name for i, name in pure.ltds.items() if i not in released} == live.ltds
    return count


# All their records are in record pages: their directories are compared.
IN_PAGES = {"store-names.tar.gz"}


@pytest.mark.promise(8)
@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
def test_the_fold_of_every_golden_store_is_what_its_recovery_arrives_at(
    archive: Path, tmp_path: Path
) -> None:
    """Field by field: queues, subscriptions, records, ledger, prepared transactions, counters."""
    with tarfile.open(archive) as file:
        file.extractall(tmp_path, filter="data")
    path = str(tmp_path / "store")
    pure = folded(OsEnv(), path)
    with Store.open(path, background=False) as store:
        live = store._context.state.durable
        assert told(pure) == told(live)
        assert check_records(pure, live) or pure.prepared or archive.name in IN_PAGES
        for queue_id, queue in pure.queues.items():
            assert [
                entry
                for entry in queue.directory
                if not queue.released.covers(entry.position, entry.end)
            ] == live.queues[queue_id].directory


@pytest.mark.cases(2)
@pytest.mark.promise(8)
@pytest.mark.parametrize("checkpoints", [True, False])
def test_the_fold_of_a_whole_journal_is_the_live_state(
    seed: int, rounds: int, monkeypatch: pytest.MonkeyPatch, checkpoints: bool
) -> None:
    """From the first record on, through power failures: what ran live and what was recovered.

    The journal keeps all of its segments here; with and without checkpoints, which change nothing
    that the fold knows.
    """
    monkeypatch.setattr(SegmentSet, "release", lambda *_: [])
    if not checkpoints:
        monkeypatch.setattr(AdminHandlers, "checkpoint", lambda self: None)
    records = prepared = 0
    for n in range(max(2, rounds // 5)):
        env, oracle = new_machine(seed + n), Oracle()
        store = open_store(env)
        for run in range(3):
            workload = Workload(seed + n + run, steps=40, first_payload=run * 10_000)
            store = workload.run(env, store, oracle)
            records += compare(env, store)
            prepared += len(store.prepared.list())
            env = env.crash(outcome="lost", seed=seed + n)
            store = open_store(env)
            oracle.match(store)
            compare(env, store)
        store.abandon("its files are compared")
    assert records > 50
    assert prepared


def compare(env: SimEnv, store: Store) -> int:
    """The journal folded from its beginning, and the store's state; how many records it has."""
    pure = folded(env, PATH, from_checkpoint=False)
    live = store._context.state.durable
    assert told(pure) == told(live)
    return check_records(pure, live)
