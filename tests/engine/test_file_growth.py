"""A store's files grow ahead of need, in steps that begin small."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import pairwise

import pytest

import quire
from quire.engine import EmbeddedStore as Store
from quire.testing import SimEnv


def allocated_bytes(path: str) -> int:
    """What `du` counts: the blocks of all files and directories."""
    total = os.lstat(path).st_blocks * 512
    for folder, folders, files in os.walk(path):
        for name in folders + files:
            with suppress(FileNotFoundError):  # the address of the owner is written by a rename
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
    return total


@pytest.mark.parametrize("share", [True, False])
def test_an_empty_store_takes_less_than_a_mebibyte(store_path: str, share: bool) -> None:
    """Open or closed, with a queue and a message, and with what is kept back for a full disk."""
    for _ in range(3):
        with quire.open(store_path, share=share) as store:
            assert allocated_bytes(store_path) < 1 << 20
            if not store.queues():
                store.create_queue("q", kind="work")
                store.put("q", b"a message")
            assert allocated_bytes(store_path) < 1 << 20
        assert allocated_bytes(store_path) < 1 << 20


def test_a_data_file_grows_by_what_it_has() -> None:
    """From 256 KiB to `grow_bytes`."""
    env = SimEnv()
    with Store.open("/s", env=env, background=False, grow_bytes=4 << 20) as store:
        store.create_queue("q", kind="work")
        sizes = []
        for _ in range(40):
            with store.transaction() as txn:
                txn.put("q", b"x" * 500_000)
            sizes.append(store.status()["data"]["bytes"])
    assert sizes[0] <= 1 << 20
    assert all(new - old <= max(old, 1 << 20) for old, new in pairwise(sizes))
    assert {new - old for old, new in pairwise(sizes)} >= {0, 4 << 20}


def test_a_file_that_was_cut_is_not_grown_by_an_opening() -> None:
    """A checkpoint says how long it was; it was cut after that, and now the disk is full."""
    env = SimEnv()
    store = Store.open("/s", env=env, background=False, grow_bytes=1 << 16)
    store.create_queue("q", kind="work")
    for _ in range(20):
        store.put("q", b"x" * 400_000)
    with store.transaction() as txn:
        assert len(txn.get_many("q", 20)) == 20
    store.admin.checkpoint()
    shown = store.status()["data"]["bytes"]
    env = env.kill()
    env.capacity_bytes = env.used_bytes()
    with Store.open("/s", env=env, background=False) as store:
        assert store.status()["data"]["bytes"] == shown
        assert store.admin.verify().ok
