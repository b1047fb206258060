"""Paths and folders as nobody should leave them: clear errors from the tree under QuireError."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import quire
from quire.engine import EmbeddedStore as Store
from quire.env.os_env import OsEnv
from quire.errors import InvalidArgument, StoreCorrupt, StoreFailed
from quire.remote import join
from quire.remote.ownership.shared_store import SharedStore


def test_paths_that_the_system_refuses(tmp_path: Path) -> None:
    """Too long, not text, a link to nowhere, links in a circle, a folder for a lock."""
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    (tmp_path / "locked" / "LOCK").mkdir(parents=True)
    names = ["x" * 300, "y/" * 3000, "\ud800", "nowhere", "circle", "locked"]
    for name in names:
        with pytest.raises(InvalidArgument, match="path"):
            quire.open(f"{tmp_path}/{name}", share=False)


@pytest.mark.parametrize("path", ["", b"", 5])
def test_paths_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: Any) -> None:
    """An empty one is not the working directory."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgument, match="give the path"):
        quire.open(path, share=False)
    assert not list(tmp_path.iterdir())


def test_paths_of_all_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative ones stay where they were; spaces and letters of all scripts are fine."""
    monkeypatch.chdir(tmp_path)
    store = quire.open(
        "ein lädchen 店", share=False, segment_bytes=1 << 18, checkpoint_bytes=1 << 17
    )
    monkeypatch.chdir("/")
    store.create_queue("q", kind="work")
    for _ in range(200):
        store.put("q", b"x" * 2000)
    store.admin.checkpoint()
    with store.transaction(large=True) as txn:
        txn.put_many("q", [b"x" * 1000] * 5000)
    store.close()
    (tmp_path / "link").symlink_to(tmp_path / "ein lädchen 店")
    with quire.open(str(tmp_path / "link"), share=False) as store:
        assert store.queue("q").messages == 5200
        assert store.admin.verify().ok


@pytest.mark.parametrize("folder", ["checkpoint", "journal", "data", "ltds", "run"])
def test_what_does_not_belong_there_is_left_alone(store_path: str, folder: str) -> None:
    """Names that look nearly like the store's own do not disturb it."""
    with Store.open(store_path) as store:
        store.create_queue("q", kind="work")
        store.put("q", b"kept")
    names = [
        "note.txt", "zzzzzzzzzzzzzzzz.qck", "qck", ".qck", "00000000000000zz.log", "z.ltds",
        "1.dat", "é", ".hidden", "x" * 200,
    ]  # fmt: skip
    for name in names:
        Path(store_path, folder, name).write_bytes(b"garbage" * 100)
    Path(store_path, folder, "folder").mkdir()
    with Store.open(store_path) as store:
        assert store.browse("q").payloads() == [b"kept"]
        store.put("q", b"more")
        store.admin.checkpoint()
        assert store.admin.verify().ok
    assert set(names) <= set(os.listdir(f"{store_path}/{folder}"))


@pytest.mark.parametrize("what", ["ltds", "checkpoint/*.qck", "data/0.dat", "journal/*0.log"])
def test_a_folder_in_a_files_place_or_none_in_a_folders(store_path: str, what: str) -> None:
    """It cannot be opened, and lets go of the lock."""
    with Store.open(store_path) as store:
        store.create_queue("q", kind="work")
    (path,) = Path(store_path).glob(what)
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
        path.mkdir()
    for _ in range(2):
        with pytest.raises((StoreFailed, StoreCorrupt), match=r"cannot be (opened|read)"):
            Store.open(store_path)


@pytest.mark.parametrize("as_it_ends", [False, True])
def test_another_store_takes_the_place(tmp_path: Path, as_it_ends: bool) -> None:
    """A store that was moved away while it was open leaves the one that is there now alone (OD4).

    What it has committed is where it was moved to.
    """
    path, aside = str(tmp_path / "store"), str(tmp_path / "aside")
    old = quire.open(path) if as_it_ends else Store.open(path, background=False)
    old.create_queue("q", kind="work")
    for number in range(100):
        old.put("q", b"%d" % number + bytes(3000))
    os.rename(path, aside)
    with quire.open(path) as new:
        assert isinstance(new, SharedStore)
        new.share(OsEnv()).wait_started()  # its socket is there
        new.create_queue("q", kind="work")
        new.put("q", b"of the new one")
        before = files_of(path)
        if not as_it_ends:
            with pytest.raises(StoreFailed, match="removed, moved or replaced"):
                old.admin.checkpoint()
            with pytest.raises(StoreFailed, match="removed, moved or replaced"):
                old.put("q", b"too late")
        with contextlib.suppress(StoreFailed):  # where it has not found out before
            old.close()
        assert files_of(path) == before
        joined = join(OsEnv(), path)
        assert joined is not None
        with joined:
            joined.put("q", b"by another")
    with quire.open(path) as again:
        assert again.browse("q").payloads() == [b"of the new one", b"by another"]
    with quire.open(aside) as moved:
        assert len(moved.browse("q").payloads()) == 100


def files_of(path: str) -> dict[str, int]:
    """By name, which file it is."""
    return {str(each): each.stat().st_ino for each in Path(path).rglob("*")}


def test_a_lock_that_was_removed_is_no_lock(tmp_path: Path) -> None:
    """Who removes it lets two own one store: the first stops as soon as it looks."""
    path = str(tmp_path / "store")
    with Store.open(path, background=False) as store:
        store.create_queue("q", kind="work")
        os.remove(f"{path}/LOCK")
        with pytest.raises(StoreFailed, match="removed, moved or replaced"):
            store.admin.checkpoint()
        assert store.failed
