"""Keyed states in a salvaged store: their runs are messages of a queue."""

from __future__ import annotations

from pathlib import Path

import pytest

import quire
from quire import keyed
from quire.errors import StoreCorrupt


def write_rows(store: quire.Store, first: int, last: int) -> None:
    """Put rows, in one commit."""
    state = keyed.open_state(store, "totals", "name", "name string, total bigint")
    with store.transaction() as txn, state.within(txn) as rows:
        rows.put([{"name": f"name {n}" * 9, "total": n} for n in range(first, last)])


def totals_of(store: quire.Store) -> set[int]:
    """All of the state's rows."""
    state = keyed.open_state(store, "totals")
    return {row["total"] for batch in state.rows() for row in batch.to_pylist()}


@pytest.mark.parametrize("is_damaged", [False, True])
def test_rows_by_key(tmp_path: Path, is_damaged: bool) -> None:
    """They are all there; where a run is lost, the state says so, and gives no wrong row."""
    damaged, new = tmp_path / "damaged.quire", tmp_path / "new.quire"
    with quire.open(damaged) as store:
        write_rows(store, 0, 3000)
        write_rows(store, 3000, 6000)
        store.admin.checkpoint()
    if is_damaged:
        for path in [*(damaged / "data").iterdir(), *(damaged / "ltds").iterdir()]:
            data = bytearray(path.read_bytes())
            place = data.find(b"name 3100")
            if place >= 0:
                data[place] ^= 1
                path.write_bytes(data)
    report = quire.salvage(damaged, new)
    assert report.is_complete == (not is_damaged)
    with quire.open(new) as store:
        assert store.admin.verify().ok
        state = keyed.open_state(store, "totals")
        assert bool(state.verify()) == is_damaged
        if is_damaged:
            assert sum(lost.messages for lost in report.lost) == 1
            with pytest.raises(StoreCorrupt):
                totals_of(store)
        else:
            assert totals_of(store) == set(range(6000))
            write_rows(store, 6000, 6010)
            assert len(totals_of(store)) == 6010
