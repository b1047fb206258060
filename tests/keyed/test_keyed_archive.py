"""A keyed state in an archive: restored as of a record, amid changes and merges."""

from __future__ import annotations

import random

import pytest

from quire import keyed
from quire.archive import backup, restore, verify
from quire.archive.objects import open_objects
from quire.archive.shipper import Shipper
from quire.engine import EmbeddedStore as Store
from tests.archive.shipping_kit import ship_all
from tests.archive.test_backup_and_restore import ARCHIVE, RESTORED, clock_machine, opened


def shown(state: keyed.KeyedState) -> dict[int, int]:
    """All rows."""
    return {row["key"]: row["value"] for batch in state.rows() for row in batch.to_pylist()}


@pytest.mark.promise(10)
def test_a_restored_state_has_its_rows(seed: int, small_runs: None) -> None:
    """Of a backup, and of each of some records that were shipped, its files too."""
    env, rng = clock_machine(seed), random.Random(seed)
    expected: dict[int, dict[int, int]] = {}

    def change(store: Store, state: keyed.KeyedState) -> None:
        keys = rng.sample(range(200), 60)
        with store.transaction() as txn, state.within(txn) as rows:
            rows.put([{"key": key, "value": rng.randrange(9)} for key in keys[:50]])
            rows.delete(keys[50:])
        expected[store.admin.verify().checked["number"]] = shown(state)

    with opened(env) as store:
        state = keyed.open_state(store, "s", "key", "key int, value int", env=env)
        change(store, state)
        expected.clear()
        store.admin.set_archive(ARCHIVE)
        backup(store, ARCHIVE, env=env)
        shipper = Shipper(store, open_objects(ARCHIVE, env), env)
        for number in range(8):
            change(store, state)
            if number == 3:
                backup(store, ARCHIVE, env=env)
            if number % 3 == 2:
                store.admin.checkpoint()
            ship_all(shipper)
        assert state.merge(all=True)
        ship_all(shipper)
        last, wanted = shown(state), dict(expected)  # to which restored stores add their own
    assert verify(ARCHIVE, env=env).findings == []
    numbers: list[int | None] = [None, *rng.sample(sorted(wanted), 3)]
    for place, until in enumerate(numbers):
        path = f"{RESTORED}{place}"
        restore(ARCHIVE, path, number=until, env=env)
        with opened(env, path) as store:
            state = keyed.open_state(store, "s", env=env)
            assert shown(state) == (last if until is None else wanted[until])
            assert store.admin.verify().ok
            change(store, state)
