"""The commands for archives, and the calls beside an owner in another process."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from quire import archive
from quire.archive.shipping import ship_now
from quire.cli import main
from quire.cli.command import ExitStatus
from quire.cli.commands.archives import look_at_archive
from quire.errors import ConnectionLost, PositionLost
from quire.opening import open as open_store
from tests.behaviour.forms import WITH_CALLBACKS, AnyStore, clock, owner, store
from tests.kit.programs import OWNER

__all__ = ["clock", "owner", "store"]


def run(capsys: pytest.CaptureFixture[str], *words: str, status: int = ExitStatus.DONE) -> str:
    """The output of a command, and its errors."""
    assert main([*words]) == status, capsys.readouterr()
    return "".join(capsys.readouterr())


def test_commands(store_path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A backup of a store that nobody has open, listed, verified, restored; old ones removed."""
    place, restored = str(tmp_path / "archive"), str(tmp_path / "restored.quire")
    run(capsys, "create-queue", store_path, "orders")
    run(capsys, "put", store_path, "orders", "apples")
    assert run(capsys, "backup", store_path, place).startswith("backup of record 2, ")
    run(capsys, "put", store_path, "orders", "pears")
    made = json.loads(run(capsys, "backup", store_path, f"file://{place}", "--json"))
    assert made["backup"]["number"] == 3
    assert "2 warnings" not in run(capsys, "verify", place)
    assert run(capsys, "verify", f"file://{place}") == "ok\n"
    heads, first, second = run(capsys, "backups", place).splitlines()
    assert heads.split() == ["TIME", "RECORD", "UNTIL-RECORD", "UNTIL-TIME", "BYTES", "STATE"]
    assert (first.split()[1:3], second.split()[1:3]) == (["2", "2"], ["3", "3"])
    assert made["backup"] in json.loads(run(capsys, "backups", place, "--json"))
    assert "record 2" in run(capsys, "restore", place, restored, "--at", "2")
    assert run(capsys, "browse", restored, "orders") == "apples\n"
    errors = run(capsys, "restore", place, restored, status=ExitStatus.ERROR)
    assert "is there already" in errors
    errors = run(capsys, "restore", place, f"{restored}2", "--at", "1", status=ExitStatus.ERROR)
    assert "the earliest one is of record 2" in errors
    assert "record 3" in run(capsys, "restore", place, f"{restored}2", "--at", "2099-01-01")
    assert run(capsys, "browse", f"{restored}2", "orders") == "apples\npears\n"
    assert "2 older backups removed" in run(
        capsys, "backup", store_path, place, "--keep", "0.000001"
    )
    assert len(json.loads(run(capsys, "backups", place, "--json"))) == 1
    [pack] = (tmp_path / "archive" / "packs").iterdir()
    pack.unlink()
    errors = run(capsys, "verify", place, status=ExitStatus.ERROR)
    assert pack.name in errors
    assert "1 findings of damage" in errors


def test_the_times_of_the_listing_name_its_points(
    store_path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A time of the listing, and of an error, given as it stands there, is that very record."""
    place, restored = str(tmp_path / "archive"), str(tmp_path / "restored.quire")
    run(capsys, "create-queue", store_path, "orders")
    run(capsys, "backup", store_path, place)
    _, row = run(capsys, "backups", place).splitlines()
    time, _, _, until_time, *_ = row.split()
    errors = run(capsys, "restore", place, restored, "--at", "2001-01-01", status=ExitStatus.ERROR)
    assert f"the earliest one is of record 1 ({time})" in errors
    shown = run(capsys, "restore", place, restored, "--at", time)
    assert shown == f"restored {restored}: record 1 ({until_time}), verified\n"


def test_an_archive_is_set_at_the_place_that_was_seen(
    store_path: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A relative path stays that of the directory where it was given; one in the store is none."""
    there, elsewhere = tmp_path / "there", tmp_path / "elsewhere"
    there.mkdir()
    elsewhere.mkdir()
    run(capsys, "create-queue", store_path, "orders")
    errors = run(capsys, "archive", "set", store_path, f"{store_path}/in", status=ExitStatus.ERROR)
    assert "one in the other's directory" in errors
    run(capsys, "archive", "set", store_path, "file:archive", status=ExitStatus.ERROR)
    monkeypatch.chdir(there)
    place = str(there / "archive")
    assert place in run(capsys, "archive", "set", store_path, "archive")
    with open_store(store_path, create=False) as store:
        assert store.admin.set_archive("archive").url == place
        assert store.admin.set_archive("s3://bucket/x").url == "s3://bucket/x"
        store.admin.set_archive(place)
    monkeypatch.chdir(elsewhere)
    run(capsys, "archive", "ship", store_path)
    assert archive.backups(place)
    assert not [*elsewhere.iterdir()]


def test_another_stores_archive_is_refused_at_once(
    store_path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`archive set` names whose it is; so for a restored store, which has its origin's number."""
    place, other, restored = (str(tmp_path / name) for name in ("archive", "other", "restored"))
    with open_store(store_path, share=False) as store, open_store(other, share=False) as second:
        store.create_queue("q")
        store.admin.set_archive(place)
        ship_now(store, 60)
        store.put("q", b"x")
        ship_now(store, 60)
        ids = (f"{each.integration.store_id:016x}" for each in (store, second))
        owner_id, other_id = ids
    errors = run(capsys, "archive", "set", other, place, status=ExitStatus.ERROR)
    assert f"the archive of store {owner_id}, and this one is {other_id}: give another" in errors
    archive.restore(place, restored)
    errors = run(capsys, "archive", "set", restored, place, status=ExitStatus.ERROR)
    assert "of another history" in errors
    assert "give this store another place" in errors
    for path in (other, restored):
        with open_store(path, create=False, share=False) as store:
            assert store.admin.archive() is None
    assert place in run(capsys, "archive", "set", store_path, place, "--keep", "1d")


def test_an_archive_that_cannot_be_seen_is_set_with_a_warning(
    store_path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its owner may reach it: nobody has seen whose it is, and the command says so."""
    open_store(store_path).close()
    place = str(tmp_path / "archive")
    (tmp_path / "archive" / "store").mkdir(parents=True)  # which nobody can read
    assert "nobody has seen whose archive this is" in run(
        capsys, "archive", "set", store_path, place
    )


def test_a_store_that_nobody_has_open_shows_what_its_archive_has(
    store_path: str, tmp_path: Path
) -> None:
    """`archive show` counts from the archive's newest entry: a report of it is never durable."""
    place = str(tmp_path / "archive")
    with open_store(store_path, share=False) as store:
        store.create_queue("q")
        info = store.admin.set_archive(place)
        assert "has no entry of records yet" in look_at_archive(store, info, {"lag_bytes": 1})
        ship_now(store, 60)  # with a base, after which a checkpoint is made
        for _ in range(3):
            store.put("q", b"x")
        ship_now(store, 60)
        shutil.copytree(store_path, f"{store_path}2")  # as a process leaves it that is killed
    with open_store(f"{store_path}2", create=False, share=False) as store:
        assert store.status()["archive"]["lag_records"] == 3
        status = store.status()["archive"]
        end = store.integration.ship(None).end_number
        text = look_at_archive(store, info, status)
        assert f"the latest record in the archive is {end} (20" in text
        assert "no other process has the store open: `quire archive ship`" in text
        assert (status["lag_records"], status["lag_seconds"], status["lag_bytes"]) == (0, 0, 0)
        store.put("q", b"y")
        status = store.status()["archive"]
        look_at_archive(store, info, status)
        assert status["lag_records"] == 1
        assert status["lag_seconds"] > 0
        (tmp_path / "archive" / "store").write_bytes(b"damaged")
        assert "at its last checkpoint" in look_at_archive(store, info, status)
        assert "store is damaged" in status["error"]


@pytest.mark.parametrize("store", WITH_CALLBACKS, indirect=True)
def test_every_form_of_a_store_is_backed_up(store: AnyStore, tmp_path: Path) -> None:
    """By the process that owns it, or one that has joined it, while others put and get."""
    place, restored = str(tmp_path / "archive"), str(tmp_path / "restored.quire")
    store.create_queue("q", kind="work")
    store.put_many("q", [b"%d" % number * 500 for number in range(300)])
    store.put("q", bytes(300_000))
    done = threading.Event()

    def churn() -> None:
        while not done.is_set():
            store.put("q", b"more")
            store.get("q")

    other = threading.Thread(target=churn)
    other.start()
    try:
        made = archive.backup(store, place)
    finally:
        done.set()
        other.join()
    assert archive.verify(place).ok
    archive.restore(place, restored)
    with open_store(restored, create=False) as found:
        report = found.admin.verify()
        assert report.ok
        assert report.checked["state_hash"] == made.backup.state_hash
        assert 1 <= found.queue("q").messages <= 302


def test_a_backup_beside_an_owner(store_path: str, tmp_path: Path) -> None:
    """The command joins it; where that owner is killed meanwhile there is no backup."""
    place = str(tmp_path / "archive")
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, store_path],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert main(["create-queue", store_path, "q"]) == ExitStatus.DONE
        assert main(["put", store_path, "q", "x" * 1000]) == ExitStatus.DONE
        assert main(["backup", store_path, place]) == ExitStatus.DONE
        with open_store(store_path, create=False) as joined:
            assert joined.role == "joined"

            def strike(done: int, expected: int) -> None:
                process.kill()
                process.wait()

            with pytest.raises((PositionLost, ConnectionLost)):
                archive.backup(joined, place, report=strike)
        assert len(archive.backups(place)) == 1
    assert main(["verify", store_path]) == ExitStatus.DONE


def test_a_restore_tells_of_later_records_that_are_damaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without `--at` it goes as far as it can, and says that there was more."""
    store, url = str(tmp_path / "store"), str(tmp_path / "archive")
    assert main(["create-queue", store, "orders"]) == ExitStatus.DONE
    assert main(["archive", "set", store, url]) == ExitStatus.DONE
    for text in ("first", "second"):
        assert main(["put", store, "orders", text]) == ExitStatus.DONE
        assert main(["archive", "ship", store]) == ExitStatus.DONE
    newest = max(path for path in (tmp_path / "archive" / "log").rglob("*") if path.is_file())
    data = bytearray(newest.read_bytes())
    data[20] ^= 1  # in its head
    newest.write_bytes(data)
    capsys.readouterr()
    assert main(["restore", url, str(tmp_path / "restored")]) == ExitStatus.DONE
    shown = capsys.readouterr()
    assert "verified" in shown.out
    assert "cannot be restored" in shown.err
    assert newest.name in shown.err
