"""The shipper's process beside an owner: it is started, watched, started again, and ended."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from random import Random
from typing import Any

import pytest

import quire
from quire import archive
from quire.archive import base_due
from quire.archive.shipping import ship_now
from quire.opening import open_or_serve
from quire.remote.limits import LAST_SHIPPING_SECONDS
from tests.kit.children import child
from tests.kit.waiting import eventually, wait_for_end

PUTS = """
import sys, quire
with quire.open(sys.argv[1]) as store:
    store.create_queue("orders", kind="work", exist_ok=True)
    if sys.argv[2]:
        store.admin.set_archive(sys.argv[2])
    number = int(sys.argv[3])
    while True:
        store.put("orders", b"%08d" % number)
        number += 1
        print(number, flush=True)
"""
FORKS = """
import os, sys, time, quire
store = quire.open(sys.argv[1])
store.create_queue("orders", kind="work")
store.admin.set_archive(sys.argv[2])
for number in range(5):
    store.put("orders", b"%08d" % number)
while not (store.status()["archive"].get("base_number") and os.path.exists(sys.argv[2])):
    time.sleep(0.05)
other = os.fork()
if not other:
    time.sleep(60)
    os._exit(0)
print("forked", flush=True)
sys.stdin.readline()
process_id = store.status()["archive"]["process_id"]
begun = time.monotonic()
store.close()
seconds = time.monotonic() - begun
os.kill(other, 9)
print(os.waitpid(other, 0)[1] == 9, seconds, flush=True)
"""


def shipped(store: quire.Store) -> dict[str, Any]:
    """The archive's part of a store's status."""
    found: dict[str, Any] = store.status()["archive"]
    return found


def restored(url: Path, path: Path) -> list[int]:
    """The messages of the store that is restored from an archive."""
    archive.restore(url, path)
    with quire.open(path) as store:
        assert store.admin.archive() is None
        return [int(message.payload) for message in store.browse("orders", 10**6)]


def put(store: quire.Store, start: int, end: int) -> None:
    """Put these numbers."""
    store.create_queue("orders", kind="work", exist_ok=True)
    with store.transaction() as txn:
        for number in range(start, end):
            txn.put("orders", b"%08d" % number)


def test_what_was_put_before_a_close_is_in_the_archive(tmp_path: Path) -> None:
    """A program that closes its store need not wait for the archive by itself (SP3)."""
    with quire.open(tmp_path / "store") as store:
        info = store.admin.set_archive(str(tmp_path / "archive"))
        assert (info.url, info.full) == (str(tmp_path / "archive"), "gap")
        eventually(lambda: shipped(store).get("process_id"))
        eventually(lambda: shipped(store)["base_number"])
        for number in range(50):
            put(store, number, number + 1)
    assert restored(tmp_path / "archive", tmp_path / "restored") == list(range(50))


def test_a_shipper_that_is_killed_is_started_again(tmp_path: Path) -> None:
    """Nothing is shipped twice or left out (SP2)."""
    with quire.open(tmp_path / "store") as store:
        store.admin.set_archive(str(tmp_path / "archive"))
        for turn in range(2):
            put(store, 10 * turn, 10 * turn + 10)
            eventually(lambda: shipped(store).get("process_id"))
            process_id = shipped(store)["process_id"]
            os.kill(process_id, signal.SIGKILL)
            eventually(lambda: shipped(store).get("process_id") not in (None, process_id))  # noqa: B023 - called at once
        eventually(lambda: shipped(store)["lag_records"] == 0 and shipped(store)["base_number"])
    assert restored(tmp_path / "archive", tmp_path / "restored") == list(range(20))


def test_a_store_that_is_opened_again_needs_no_new_base(tmp_path: Path) -> None:
    """The base that is there is found, whether a checkpoint knows of it or not."""
    for turn in range(2):
        with quire.open(tmp_path / "store") as store:
            if turn == 0:
                store.admin.set_archive(str(tmp_path / "archive"))
            put(store, turn, turn + 1)
            eventually(lambda: shipped(store)["base_number"] and not shipped(store)["lag_records"])
            put(store, 10 + turn, 11 + turn)
        with quire.open(tmp_path / "store") as store:
            ship_now(store, 20.0)
    assert len(archive.backups(tmp_path / "archive")) == 1


def test_a_shipper_ends_with_a_killed_owner(tmp_path: Path) -> None:
    """The next owner ships what was left (SP1)."""
    path, url = tmp_path / "store", tmp_path / "archive"
    with child(PUTS, str(path), str(url), "0") as owner:
        assert owner.line() == "1"
        with quire.open(path) as joined:
            eventually(lambda: shipped(joined).get("process_id"))
            process_id = shipped(joined)["process_id"]
        last = int(owner.line())
        owner.kill()
    with quire.open(path) as store:
        assert wait_for_end(process_id)
        eventually(lambda: shipped(store)["lag_records"] == 0 and shipped(store)["base_number"])
        count = store.queue("orders").messages
    assert count >= last
    assert restored(url, tmp_path / "restored") == list(range(count))


def test_a_store_goes_on_without_its_archive(tmp_path: Path) -> None:
    """Where nothing can be there its owner says why, and ships once that is mended."""
    (tmp_path / "disk").write_bytes(b"not mounted")
    url = tmp_path / "disk" / "archive"
    with quire.open(tmp_path / "store") as store:
        store.admin.set_archive(str(url))
        put(store, 0, 10)
        eventually(lambda: shipped(store)["error"])
        assert "disk" in shipped(store)["error"]
        put(store, 10, 20)
        assert shipped(store)["lag_records"] >= 2
    (tmp_path / "disk").unlink()
    with quire.open(tmp_path / "store") as store:
        eventually(lambda: shipped(store)["base_number"])
    assert restored(url, tmp_path / "restored") == list(range(20))


def test_no_shipper_keeps_an_owner_process_up(tmp_path: Path) -> None:
    """It is no client: an owner that lingers ends as if it were not there."""
    with open_or_serve(str(tmp_path / "store"), linger=0.5) as store:
        store.admin.set_archive(str(tmp_path / "archive"))
        put(store, 0, 3)
        eventually(lambda: shipped(store)["base_number"])
        owner, process_id = store.owner_process_id, shipped(store)["process_id"]
    assert wait_for_end(owner)
    assert wait_for_end(process_id)
    assert restored(tmp_path / "archive", tmp_path / "restored") == [0, 1, 2]


def test_a_forked_child_keeps_no_shipper_up(tmp_path: Path) -> None:
    """It has the shipper's standard input, too: the shipper ends by itself at the close (SP3)."""
    with child(FORKS, str(tmp_path / "store"), str(tmp_path / "archive")) as owner:
        assert owner.line() == "forked"
        owner.say("close")
        status, seconds = owner.line().split()
    assert status == "True"
    assert float(seconds) < LAST_SHIPPING_SECONDS
    assert restored(tmp_path / "archive", tmp_path / "restored") == list(range(5))


def test_a_shipper_that_is_started_during_a_close_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The maintenance goes on until the server is closed, and may start one (SP1)."""
    store: Any = quire.open(tmp_path / "store")
    server = store._server
    close = server.close
    started: list[Any] = []

    def close_late() -> None:
        if not started:
            store.admin.set_archive(str(tmp_path / "archive"))
            store._look()
            started.append(store._shipper._process)
        close()

    monkeypatch.setattr(server, "close", close_late)
    store.close()
    assert store._shipper._process is None
    assert wait_for_end(started[0].process_id)


def test_a_shipper_ends_when_the_archive_is_taken_off(tmp_path: Path) -> None:
    """What is put after that is not in the archive."""
    with quire.open(tmp_path / "store") as store:
        store.admin.set_archive(str(tmp_path / "archive"))
        put(store, 0, 3)
        eventually(lambda: shipped(store)["base_number"] and not shipped(store)["lag_records"])
        process_id = shipped(store)["process_id"]
        store.admin.stop_archive()
        assert "archive" not in store.status()
        assert wait_for_end(process_id)
        put(store, 3, 6)
    assert restored(tmp_path / "archive", tmp_path / "restored") == [0, 1, 2]


def test_shipping_at_once_makes_bases_and_removes_what_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that is only shipped now and then has an archive like any other."""
    monkeypatch.setattr(base_due, "BASE_SECONDS", 0.0)
    found: list[list[archive.BackupInfo]] = []
    with quire.open(tmp_path / "store", share=False) as store:
        store.admin.set_archive(str(tmp_path / "archive"), keep=0.001)
        for turn in range(4):
            put(store, turn, turn + 1)
            ship_now(store, 60.0)
            found.append(archive.backups(tmp_path / "archive"))
    assert found[0][0].number < found[3][0].number
    assert len(found[3]) <= 2
    assert restored(tmp_path / "archive", tmp_path / "restored") == [0, 1, 2, 3]


@pytest.mark.long
@pytest.mark.parametrize("killed", ["shipper", "owner"])
def test_twenty_kills_lose_nothing(tmp_path: Path, killed: str, seed: int) -> None:
    """At any moment: what the last owner has shipped is all that was acknowledged."""
    random = Random(f"{seed} {killed}")
    path, url, known = tmp_path / "store", tmp_path / "archive", 0
    for turn in range(20):
        with child(PUTS, str(path), str(url) if turn == 0 else "", str(known)) as owner:
            known = int(owner.line())
            for _ in range(random.randrange(1, 400)):
                known = int(owner.line())
            if killed == "shipper":
                with quire.open(path) as joined:
                    process_id = shipped(joined).get("process_id")
                if process_id is not None:
                    os.kill(process_id, signal.SIGKILL)
                for _ in range(random.randrange(1, 400)):
                    known = int(owner.line())
            owner.kill()
        with quire.open(path) as store:
            known = store.queue("orders").messages
    with quire.open(path) as store:
        eventually(lambda: shipped(store)["lag_records"] == 0 and shipped(store)["base_number"])
    assert archive.verify(url).ok
    assert restored(url, tmp_path / "restored") == list(range(known))
