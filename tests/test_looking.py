"""Looking at a store that nobody owns: one sees what an opening would, and nothing changes."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from quire.cli import main
from quire.env import OsEnv
from quire.env.look_env import LookEnv
from quire.errors import InvalidArgument, StoreCorrupt, StoreLocked, StoreNotFound
from quire.interface.store import Store
from quire.opening import open as open_store
from quire.read_only import look
from tests.engine.mounted import small_disk

OPTIONS: dict[str, Any] = {"segment_bytes": 1 << 20, "data_files": 2}
COMMANDS = (
    ["status"],
    ["status", "--json"],
    ["queues", "--json"],
    ["catalog"],
    ["state"],
    ["transactions"],
    ["recover"],
    ["browse", "work", "--json"],
    ["browse", "topic/a"],
    ["verify"],
    ["dump"],
)


def fill(store: Store) -> None:
    """Of everything: small, middle-sized, large and prepared transactions, before a checkpoint and
    after it.
    """
    store.create_queue("work", kind="work")
    store.create_queue("topic", kind="topic")
    store.subscribe("topic", "a")
    for step in range(2):
        for number in range(20):
            store.put("work", b"%d" % number)
        with store.transaction(large=step == 1) as txn:
            txn.put_many("topic", [b"x" * 1000] * 600)
            txn.get_many("work", 5)
            txn.enter("key", step)
        if step == 0:
            store.admin.checkpoint()
    txn = store.transaction()
    txn.put("work", b"prepared")
    txn.prepare("x1")
    txn = store.transaction()
    txn.put("work", b"open")


def seen(store: Store) -> tuple[Any, ...]:
    """What is to be seen of it."""
    return (
        store.integration.store_id,
        store.queues(),
        store.admin.catalog(),
        store.states.names(),
        store.subscriptions("topic"),
        [info.xid for info in store.prepared.list()],
        store.browse("work", max_messages=10_000).payloads(),
        store.browse("topic/a", max_messages=10_000).payloads(),
        store.integration.ledger("key"),
        store.admin.verify().findings,
        store.admin.transactions(),
        store.status()["prepared"][0]["messages"],
    )


def state_of(path: Path) -> dict[str, tuple[int, str]]:
    """All files: when each was changed, and what it holds."""
    return {
        str(file): (
            file.stat().st_mtime_ns,
            hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else "",
        )
        for file in sorted(path.rglob("*"))
    }


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A store as a process that was killed leaves it: a copy of one that is open."""
    path = tmp_path / "killed"
    with open_store(str(tmp_path / "open"), share=False, **OPTIONS) as store:
        fill(store)
        shutil.copytree(tmp_path / "open", path)
        for transaction in store.prepared.list():
            store.prepared.rollback(transaction.xid)
    return path


@pytest.mark.promise(12)
def test_promise_12_looking_sees_what_an_opening_would(killed: Path) -> None:
    """Looking sees what an opening would and changes nothing."""
    before = state_of(killed)
    found = look(str(killed), seen)
    assert look(str(killed), seen) == found
    assert state_of(killed) == before
    assert found[5][-1] != b"open"
    with open_store(str(killed), share=False) as owner:
        assert seen(owner) == found


@pytest.mark.promise(12)
def test_promise_12_commands_that_look_work_on_a_medium_that_is_read_only(
    killed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each of them; one that would change something says why it cannot."""
    with small_disk("tmpfs", 64 << 20) as place:
        shutil.copytree(killed, place / "store")
        subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
        for command, *rest in COMMANDS:
            assert main([command, str(place / "store"), *rest]) == 0, capsys.readouterr()
        assert '"payload": "19"' in capsys.readouterr().out
        assert main(["put", str(place / "store"), "work", "x"]) == 1
        assert "Read-only" in capsys.readouterr().err


def test_an_owner_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What only it knows is shown."""
    path = str(tmp_path / "store")
    with open_store(path, **OPTIONS) as store:
        store.create_queue("work", kind="work")
        txn = store.transaction(owner="me")
        txn.put("work", b"x")
        assert main(["transactions", path, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)[0]["owner"] == "me"
        txn.rollback()


def test_an_owner_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not looked past; the error says what can be done."""
    monkeypatch.setattr("quire.read_only.JOIN_SECONDS", 0.1)
    path = str(tmp_path / "store")
    with (
        open_store(path, share=False, **OPTIONS),
        pytest.raises(StoreLocked, match=rf"process {os.getpid()}, which .*quire dump"),
    ):
        look(path, seen)


@pytest.mark.parametrize("fails", [False, True])
def test_what_was_seen_while_somebody_opened_the_store_does_not_count(
    killed: Path, fails: bool
) -> None:
    """The look is made again, as the files may have changed under it."""
    looks = []

    def act(store: Store) -> int:
        looks.append(store)
        if len(looks) == 1:
            with open_store(str(killed), share=False) as owner:
                owner.put("work", b"more")
            if fails:
                raise StoreCorrupt("as it was changed meanwhile")
        return store.queue("work").messages

    before = look(str(killed), lambda store: store.queue("work").messages)
    assert look(str(killed), act) == before + 1
    assert len(looks) == 2


def test_an_owner_that_ends_under_a_look(tmp_path: Path) -> None:
    """Then the files are looked at, or the next owner is asked."""
    path = str(tmp_path / "store")
    owner = open_store(path, **OPTIONS)
    owner.create_queue("work", kind="work")
    roles = []

    def act(store: Store) -> int:
        roles.append(store.role)
        if len(roles) == 1:
            closing = threading.Thread(target=owner.close)
            closing.start()
            closing.join()
        return len(store.queues())

    assert look(path, act) == 1
    assert roles == ["joined", "owner"]


def test_where_no_store_is(tmp_path: Path) -> None:
    """Nothing is made there."""
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(StoreNotFound):
            look(str(path), seen)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_store(killed: Path) -> None:
    """The error of an opening."""
    for checkpoint in (killed / "checkpoint").iterdir():
        checkpoint.write_bytes(b"damaged")
    before = state_of(killed)
    with pytest.raises(StoreCorrupt):
        look(str(killed), seen)
    assert state_of(killed) == before


def test_the_files_of_a_look_are_as_files_are(tmp_path: Path, rng: random.Random) -> None:
    """Random calls, on a file of the machine and on the same file in a look: the same bytes."""
    path, copy = str(tmp_path / "file"), str(tmp_path / "copy")
    content = rng.randbytes(20_000)
    for name in (path, copy):
        Path(name).write_bytes(content)
    machine = OsEnv()
    env = LookEnv(machine)
    real, looked = machine.open_file(copy), env.open_file(path)
    for _ in range(500):
        offset, length = rng.randrange(25_000), rng.randrange(9_000)
        match rng.randrange(5):
            case 0:
                data = rng.randbytes(length)
                real.write(offset, data)
                looked.write(offset, data)
            case 1:
                real.truncate(offset)
                looked.truncate(offset)
            case 2:
                real.allocate(offset, length + 1)
                looked.allocate(offset, length + 1)
            case _:
                assert looked.read(offset, length) == real.read(offset, length)
        assert looked.size() == real.size()
    assert looked.read(0, 1 << 20) == real.read(0, 1 << 20)
    assert Path(path).read_bytes() == content
    real.close()


def test_the_names_of_a_look_are_as_names_are(tmp_path: Path) -> None:
    """Made, renamed and removed ones are seen there, and by nobody else."""
    (tmp_path / "old").write_bytes(b"old")
    (tmp_path / "gone").write_bytes(b"gone")
    root = str(tmp_path)
    env = LookEnv(OsEnv())
    env.rename(f"{root}/old", f"{root}/new")
    env.remove(f"{root}/gone")
    env.link(f"{root}/new", f"{root}/linked")
    env.make_directory(f"{root}/directory")
    env.open_file(f"{root}/directory/made", create=True).write(0, b"made")
    assert env.list_directory(root) == ["directory", "linked", "new"]
    assert env.open_file(f"{root}/linked").read(0, 10) == b"old"
    with pytest.raises(FileExistsError):
        env.link(f"{root}/new", f"{root}/linked")
    assert env.list_directory(f"{root}/directory") == ["made"]
    assert env.open_file(f"{root}/new").read(0, 10) == b"old"
    for name in ("old", "gone"):
        assert not env.exists(f"{root}/{name}")
        with pytest.raises(FileNotFoundError):
            env.open_file(f"{root}/{name}")
        with pytest.raises(FileNotFoundError):
            env.remove(f"{root}/{name}")
    env.open_file(f"{root}/old", create=True).write(0, b"anew")
    with pytest.raises(FileExistsError):
        env.open_file(f"{root}/old", exclusive=True)
    assert env.open_file(f"{root}/old").read(0, 10) == b"anew"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gone", "old"]
    assert (tmp_path / "old").read_bytes() == b"old"


def test_a_path_that_is_no_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file, or something below one: an error of Quire's, by every command that only looks."""
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(InvalidArgument, match="is a file: give a directory"):
        look(str(file), lambda store: store.status())
    with pytest.raises(StoreNotFound, match="there is no store at"):
        look(f"{file}/below", lambda store: store.status())
    for command in (["status"], ["queues"], ["verify"], ["graph", "ls"]):
        assert main([*command, str(file)]) == 1
        assert "is a file: give a directory" in capsys.readouterr().err
