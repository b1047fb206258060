"""Keyed states in every form of a store that sees the store's files."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

import quire
from quire import keyed
from tests.kit.behind_loop import BehindLoop
from tests.kit.limits import Limits

from .forms import AnyStore


def test_rows_messages_and_positions_are_one_commit(store: AnyStore, work: str) -> None:
    """A transaction that is rolled back changes none of them; one that commits, all."""
    totals = keyed.open_state(store, "totals", "customer", "customer string, total bigint")
    store.create_queue("done")
    store.put_many(work, [b"ada", b"bob", b"ada"])
    for ends in ("rollback", "commit", "commit", "commit"):
        with store.transaction() as txn:
            message = txn.get(work)
            assert message is not None
            name = message.payload.decode()
            with totals.within(txn) as rows:
                before = sum(rows.get([name]).column("total").to_pylist())
                rows.put([{"customer": name, "total": before + 1}])
            txn.put("done", message.payload)
            if ends == "rollback":
                txn.rollback()
    assert store.browse("done").payloads() == [b"ada", b"bob", b"ada"]
    assert [tuple(row.values()) for row in totals.get(["ada", "bob", "cleo"]).to_pylist()] == [
        ("ada", 2),
        ("bob", 1),
    ]


def test_many_rows_go_to_files_and_are_merged(store: AnyStore) -> None:
    """Files that this process writes, and the owner adopts and removes."""
    state = keyed.open_state(store, "many", "key", "key bigint, text string")
    for number in range(12):
        keys = range(number * 500, number * 500 + 3000)
        with store.transaction() as txn, state.within(txn) as rows:
            rows.put([{"key": key, "text": f"{number} " * 60} for key in keys])
            rows.delete([number])
    assert len(state.runs()) <= 8
    assert any(run.file for run in state.runs())
    state.merge(all=True)
    (run,) = state.runs()
    found = {row["key"]: row["text"] for batch in state.rows() for row in batch.to_pylist()}
    last = {key: min(key // 500, 11) for key in range(12, 8500)}
    assert found == {key: f"{number} " * 60 for key, number in last.items()}
    assert (run.rows, run.deleted) == (len(found), 0)
    assert store.admin.verify().findings == []


def _end_by_block(txn: quire.Transaction) -> None:
    with txn:
        pass


@pytest.mark.parametrize(
    "end", [lambda txn: txn.commit(), lambda txn: txn.prepare("xid"), _end_by_block]
)
def test_a_transaction_does_not_end_before_its_block_of_rows(
    store: AnyStore, work: str, end: Callable[[quire.Transaction], None]
) -> None:
    """[KC2] It would have all but the rows: it is refused, and nothing changes."""
    if isinstance(store, BehindLoop):
        return  # there is no form for asyncio
    state = keyed.open_state(store, "rows", "key", "key bigint, text string")
    txn = store.transaction()
    txn.put(work, b"1")
    rows = state.within(txn)
    assert rows.get([1]).num_rows == 0
    rows.put([{"key": 1, "text": "one"}])
    with pytest.raises(quire.TransactionError, match="end it first"):
        end(txn)
    is_over = end is _end_by_block
    assert txn.state == ("rolled back" if is_over else "open")
    assert (store.browse(work).payloads(), state.get([1]).num_rows) == ([], 0)
    rows.end()
    if not is_over:
        end(txn)
        if txn.state == "prepared":
            txn.commit()
        assert (store.browse(work).payloads(), state.get([1]).num_rows) == ([b"1"], 1)


def test_a_block_that_changes_nothing_is_in_no_commits_way(store: AnyStore, work: str) -> None:
    """One that only reads, and one that an exception has left."""
    state = keyed.open_state(store, "rows", "key", "key bigint, text string")
    with store.transaction() as txn:
        txn.put(work, b"1")
        assert state.within(txn).get([1]).num_rows == 0
    with store.transaction() as txn:
        txn.put(work, b"2")
        with suppress(ZeroDivisionError), state.within(txn) as rows:
            rows.put([{"key": 1, "text": "one"}])
            raise ZeroDivisionError
    assert (store.browse(work).payloads(), state.get([1]).num_rows) == ([b"1", b"2"], 0)


def test_rows_of_a_prepared_transaction_wait_for_its_decision(store: AnyStore) -> None:
    """Nobody sees them before; they are there, or not, by the decision."""
    state = keyed.open_state(store, "held", "key", "key bigint, text string")
    for number, commits in enumerate([True, False]):
        txn = store.transaction()
        with state.within(txn) as rows:
            rows.put([{"key": number, "text": "x"}])
        txn.prepare(f"xid {number}")
        assert state.get([number]).num_rows == 0
        if commits:
            store.prepared.commit(f"xid {number}")
        else:
            store.prepared.rollback(f"xid {number}")
        assert state.get([number]).num_rows == commits


def test_changes_of_several_threads_are_all_there(store: AnyStore, limits: Limits) -> None:
    """Each is begun again where another was faster; merges and looks go on meanwhile."""
    limits(MAX_RUNS=3, MERGED_RUNS=2, RUN_MESSAGE_BYTES=1500, PIECE_BYTES=256)
    threads, changes, keys = 2, 8, [f"key {number}" for number in range(40)]
    state = keyed.open_state(store, "counts", "key", "key string, count bigint")
    errors: list[BaseException] = []

    def change(txn: quire.Transaction) -> None:
        with state.within(txn) as rows:
            counts = {row["key"]: row["count"] for row in rows.get(keys).to_pylist()}
            rows.put([{"key": key, "count": counts.get(key, 0) + 1} for key in keys])

    def work() -> None:
        try:
            for _ in range(changes):
                quire.run_transaction(store, change, attempts=1000)
                counts = state.get(keys).column("count").to_pylist()
                assert len(counts) == len(keys)
                assert len(set(counts)) == 1
        except BaseException as error:
            errors.append(error)
            raise

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert errors == []
    assert set(state.get(keys).column("count").to_pylist()) == {threads * changes}
    assert len(state.runs()) <= 3
