"""Restores and backups whose process is killed: never half a store, never half a backup."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

import quire
from quire.archive import backup, backups, restore, verify
from quire.archive.base_restoring import RESTORING
from quire.archive.objects import open_objects
from quire.archive.shipper import Shipper
from quire.engine import EmbeddedStore as Store
from quire.env import OsEnv
from tests.archive.shipping_kit import ship_all
from tests.kit.children import child

RESTORE = """
import sys
from quire.archive import restore
print("ready", flush=True)
restore(sys.argv[1], sys.argv[2])
print("done", flush=True)
"""
BACKUPS = """
import sys
import quire
from quire.archive import backup
with quire.open(sys.argv[2]) as store:
    while True:
        print(backup(store, sys.argv[1]).backup.number, flush=True)
        store.put("q", bytes(5000))
        with store.transaction(large=True) as txn:
            txn.put_many("q", [bytes(3000)] * 5)
"""
KILLS = [4, pytest.param(20, marks=pytest.mark.long)]


def fill(store: Store) -> None:
    """Blocks in the journal and on pages, and a large transaction's file."""
    for number in range(40):
        store.put("q", b"%d" % number * 2000)
        with store.transaction(large=number % 10 == 0) as txn:
            txn.put_many("q", [bytes(3000)] * 5)
            txn.get_many("q", 2)


@pytest.mark.crash
@pytest.mark.parametrize("kills", KILLS)
def test_a_killed_restore_leaves_nothing_at_the_path(
    tmp_path: Path, rng: random.Random, kills: int
) -> None:
    """At random moments: nothing is there, or all of it; the next one removes what was left."""
    place, path, env = str(tmp_path / "archive"), tmp_path / "restored", OsEnv()
    with Store.open(str(tmp_path / "source"), env=env, background=False) as store:
        store.admin.set_archive(place)
        shipper = Shipper(store, open_objects(place, env), env)
        store.create_queue("q", kind="work")
        fill(store)
        ship_all(shipper)
        backup(store, place)
        fill(store)
        ship_all(shipper)
        expected = store.queue("q").messages
    began = time.monotonic()
    restore(place, f"{path}-first")
    seconds = time.monotonic() - began
    killed = 0
    for _ in range(kills):
        with child(RESTORE, place, str(path)) as process:
            assert process.line() == "ready"
            time.sleep(rng.random() * seconds)
            process.kill()
        if path.exists():
            assert Store.open(str(path), create=False).admin.verify().ok
            path.rename(f"{path}-{killed}")
        killed += any(RESTORING in each.name for each in tmp_path.iterdir())
    restore(place, path)
    assert not [each for each in tmp_path.iterdir() if RESTORING in each.name]
    with quire.open(path, create=False) as restored:
        assert restored.queue("q").messages == expected
        assert restored.admin.verify().ok
    assert killed


@pytest.mark.crash
@pytest.mark.parametrize("kills", KILLS)
def test_a_killed_backup_is_none(tmp_path: Path, rng: random.Random, kills: int) -> None:
    """Of a process that owns the store: all that are listed are whole, and the store goes on."""
    place, path = str(tmp_path / "archive"), str(tmp_path / "store")
    with Store.open(path, background=False) as store:
        store.create_queue("q", kind="work")
        fill(store)
    known = 0
    for _ in range(kills):
        with child(BACKUPS, place, path) as process:
            number = int(process.line())
            time.sleep(rng.random() * 0.3)
            process.kill()
        found = backups(place)
        assert number in [info.number for info in found]
        assert len(found) > known
        known = len(found)
        assert verify(place).damage == []
    restore(place, tmp_path / "restored")
    with quire.open(tmp_path / "restored", create=False) as restored:
        assert restored.admin.verify().ok
    with quire.open(path, create=False) as store:
        assert store.admin.verify().ok
