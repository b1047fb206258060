"""The store as a whole: creation, opening, owning, options, closing, forks."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.engine.checkpoints import recovery
from quire.errors import (
    InvalidArgument,
    StoreClosed,
    StoreCorrupt,
    StoreLocked,
    StoreNotFound,
)
from quire.opening import open as open_store
from quire.testing import SimEnv
from tests.kit.messages import FIELDS, take


def tree(path: str) -> dict[str, bytes]:
    """All files below a path."""
    root = Path(path)
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


# Opening


def test_a_store_is_made_where_there_is_none(tmp_path: Path) -> None:
    """In a new or an empty directory; without `create` only what is there is opened."""
    new, empty = tmp_path / "new", tmp_path / "empty"
    empty.mkdir()
    for path in (new, empty):
        with pytest.raises(StoreNotFound, match=path.name):
            Store.open(str(path), create=False)
        assert path == empty or not path.exists()
        with Store.open(str(path)) as store:
            assert store.queues() == []
            assert store.role == "owner"
        with Store.open(str(path), create=False) as store:
            assert store.admin.verify().ok


@pytest.mark.promise(1)
@pytest.mark.parametrize("checkpoint", [False, True])
def test_everything_is_there_after_a_reopening(store_path: str, checkpoint: bool) -> None:
    """Queues, messages, fields, what was read, the ledger, ids that go on."""
    with Store.open(store_path) as store:
        store.create_queue("t", kind="topic", capacity=1 << 20, max_messages=1000)
        store.create_queue("w", kind="work")
        store.subscribe("t", "a")
        store.subscribe("t", "b", start="latest")
        with store.transaction() as txn:
            txn.put_moved("t", b"1", FIELDS)
            txn.put_many("t", [b"2", b"3"])
            txn.put_many("w", [b"x" * 1000] * 400)
            txn.enter("key", 7)
        with store.transaction(large=True) as txn:
            txn.put_many("w", [b"y" * 1000] * 6000)
        assert take(store, "t/a", 2) == [b"1", b"2"]
        assert len(take(store, "w", 5000)) == 5000
        last = store.put("t", b"4")
        idle = store.transaction()
        idle.put("t", b"never")
        assert idle.get("t/a") is not None
        messages = list(store.browse("t"))
        if checkpoint:
            store.admin.checkpoint()
        idle.rollback()
        infos, subscriptions = store.queues(), store.subscriptions("t")
    with Store.open(store_path) as store:
        assert store.queues() == infos
        assert store.subscriptions("t") == subscriptions
        assert list(store.browse("t")) == messages
        assert (store.integration.ledger("key"), store.integration.ledger("other")) == (7, None)
        assert take(store, "t/a") == [b"3", b"4"]
        assert take(store, "w") == [b"y" * 1000] * 1400
        assert store.put("t", b"5") > last
        assert store.admin.verify().ok


@pytest.mark.parametrize("is_on", [True, False])
def test_the_garbage_collector_waits_for_recovery(
    store_path: str, is_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is then as it was before, though recovery fails."""
    Store.open(store_path).close()
    seen: list[bool] = []

    def load(*_: object) -> None:
        seen.append(gc.isenabled())
        raise ValueError("it fails")

    try:
        (gc.enable if is_on else gc.disable)()
        with monkeypatch.context() as patch:
            patch.setattr(recovery, "load", load)
            with pytest.raises(StoreCorrupt, match="it fails"):
                Store.open(store_path)
        assert (seen, gc.isenabled()) == ([False], is_on)
        Store.open(store_path).close()
        assert gc.isenabled() == is_on
    finally:
        gc.enable()


def test_an_open_store_without_changes_is_reopened_unchanged(store_path: str) -> None:
    """Many openings in a row add nothing to what is kept."""
    with Store.open(store_path) as store:
        store.create_queue("q", kind="work")
        store.put("q", b"x")
    for _ in range(5):
        with Store.open(store_path) as store:
            assert store.browse("q").payloads() == [b"x"]
    sizes = {name: len(data) for name, data in tree(store_path).items()}
    for _ in range(5):
        Store.open(store_path).close()
    assert sum(len(data) for data in tree(store_path).values()) <= sum(sizes.values()) * 1.2


@pytest.mark.promise(13)
def test_paths_that_cannot_be_a_store(tmp_path: Path) -> None:
    """A file, a directory with other things, a missing parent: refused and left as they are."""
    file, foreign = tmp_path / "file", tmp_path / "foreign"
    file.write_bytes(b"text")
    foreign.mkdir()
    (foreign / "notes.txt").write_bytes(b"mine")
    with pytest.raises(InvalidArgument, match="is a file"):
        Store.open(str(file))
    with pytest.raises(InvalidArgument, match="notes"):
        Store.open(str(foreign))
    for path in (tmp_path / "no" / "store", file / "store"):
        with pytest.raises(InvalidArgument, match="directory"):
            Store.open(str(path))
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(InvalidArgument, match="a link to a directory that is not there"):
        Store.open(str(tmp_path / "link"))
    wrong: list[Any] = [5, "", b"x", [], "a\0b"]
    for path in wrong:
        with pytest.raises(InvalidArgument, match="path"):
            Store.open(path)
    assert tree(str(tmp_path)) == {"file": b"text", "foreign/notes.txt": b"mine"}


@pytest.mark.promise(13)
@pytest.mark.parametrize(
    "options",
    [
        {"speed": 9},
        {"page_size": 0},
        {"page_size": -4096},
        {"page_size": 5000},
        {"page_size": 1 << 20},
        {"page_size": "4096"},
        {"page_size": True},
        {"segment_bytes": 5},
        {"segment_bytes": 4096 * 1000 + 1},
        {"checkpoint_bytes": 0},
        {"checkpoint_bytes": 1.5},
        {"warn_below_bytes": -1},
        {"refuse_below_bytes": 0.0},
        {"warn_below_bytes": 1, "refuse_below_bytes": 2},
        {"write_buffer_bytes": None},
        {"transaction_timeout": -1.0},
        {"transaction_timeout": float("nan")},
        {"fragment_age": "1"},
    ],
    ids=str,
)
def test_bad_options(store_path: str, options: dict[str, Any]) -> None:
    """An error that names the option, and no store: the path can be used with good ones."""
    with pytest.raises(InvalidArgument, match=next(iter(options))):
        Store.open(store_path, **options)
    with Store.open(store_path) as store:
        assert store.admin.verify().ok
    with pytest.raises(InvalidArgument, match=next(iter(options))):
        Store.open(store_path, **options)
    with Store.open(store_path) as store:
        assert store.admin.verify().ok


def test_what_is_fixed_at_creation(store_path: str) -> None:
    """page_size and segment_bytes stay; the same values may be given, others are refused."""
    fixed: dict[str, Any] = {"page_size": 8192, "segment_bytes": 2 << 20}
    with Store.open(store_path, **fixed) as store:
        store.create_queue("q", kind="work")
        store.put("q", b"x")
    others: list[dict[str, Any]] = [{"page_size": 4096}, {"segment_bytes": 1 << 20}]
    for other in others:
        with pytest.raises(InvalidArgument, match="fixed when a store is created"):
            Store.open(store_path, **other)
    for options in ({}, fixed):
        with Store.open(store_path, **options) as store:
            assert store.status()["data"]["page_size"] == 8192
    with Store.open(store_path, checkpoint_bytes=1 << 20, transaction_timeout=5) as store:
        assert take(store, "q") == [b"x"]


# One owner


@pytest.mark.promise(12)
def test_a_second_opening_is_refused(store_path: str) -> None:
    """In the same process, by the same or another path: StoreLocked names the owner."""
    with Store.open(store_path, owner="the first") as store:
        link = store_path + ".link"
        os.symlink(store_path, link)
        for path in (store_path, link, store_path + "/."):
            with pytest.raises(StoreLocked, match=f"{os.getpid()}.*the first"):
                Store.open(path)
        store.create_queue("q", kind="topic")
    with Store.open(store_path) as store:
        assert [info.name for info in store.queues()] == ["q"]


OPEN_ELSEWHERE = """
import sys
from quire.engine import EmbeddedStore as Store
from quire.errors import StoreLocked
try:
    with Store.open(sys.argv[1], owner="the second") as store:
        print("opened", len(store.queues()))
except StoreLocked as error:
    print("locked", error)
"""


@pytest.mark.promise(12)
def test_reading_the_lock_file_gives_nothing_away(store_path: str) -> None:
    """Copying the store's directory in the owner's process, say: it goes on owning the store."""
    with Store.open(store_path) as store:
        assert "LOCK" in tree(store_path)
        done = subprocess.run(
            [sys.executable, "-c", OPEN_ELSEWHERE, store_path],
            capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        assert done.stdout.startswith("locked")
        store.create_queue("q", kind="topic")


@pytest.mark.cases(4)
@pytest.mark.promise(12)
def test_another_process_is_refused_until_the_store_is_closed(store_path: str) -> None:
    """The error there names this process; once this one lets go the other may have it."""

    def elsewhere() -> str:
        done = subprocess.run(
            [sys.executable, "-c", OPEN_ELSEWHERE, store_path],
            capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        return done.stdout

    with Store.open(store_path, owner="the first") as store:
        store.create_queue("q", kind="work")
        before = tree(store_path)
        said = elsewhere()
        assert said.startswith("locked")
        assert str(os.getpid()) in said
        assert "the first" in said
        assert tree(store_path) == before
        store.put("q", b"goes on")
    assert elsewhere() == "opened 1\n"


@pytest.mark.promise(12)
@pytest.mark.promise(13)
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_cannot_use_the_store(store_path: str) -> None:
    """Every use of it or its transactions there is StoreClosed; the parent goes on, locked."""
    with Store.open(store_path) as store:
        store.create_queue("q", kind="work")
        store.put("q", b"1")
        txn = store.transaction()
        txn.put("q", b"2")
        assert txn.get("q") is not None
        before = tree(store_path)
        child = os.fork()
        if child == 0:
            os._exit(use_in_child(store, txn))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert tree(store_path) == before
        with pytest.raises(StoreLocked):
            Store.open(store_path)
        txn.commit()
        assert take(store, "q") == [b"2"]


def use_in_child(store: Store, txn: Any) -> int:
    """How many calls were not refused; 100 if anything else happened."""
    allowed = 0
    try:
        for use in (
            lambda: store.put("q", b"child"),
            lambda: store.put("q", b"child", group=1),
            store.transaction,
            store.queues,
            store.admin.checkpoint,
            store.status,
            store.admin.verify,
            lambda: store.browse("q"),
            lambda: store.create_queue("r", kind="topic"),
            lambda: txn.put("q", b"child"),
            lambda: txn.get("q"),
            txn.commit,
        ):
            try:
                use()
                allowed += 1
            except StoreClosed as error:
                allowed += "forked" not in str(error)
        txn.rollback()
        store.close()
        try:
            Store.open(store.path)
            allowed += 1
        except StoreLocked:
            pass
    except BaseException:  # noqa: BLE001 - the exit status tells
        return 100
    return allowed


# Closing


@pytest.mark.promise(13)
def test_a_closed_store_refuses_everything(store_path: str) -> None:
    """StoreClosed says to open it again; closing twice is closing once."""
    store = Store.open(store_path)
    store.create_queue("q", kind="work")
    store.create_queue("t", kind="topic")
    store.put("q", b"x")
    txn = store.transaction()
    txn.put("q", b"never")
    message = txn.get("q")
    store.close()
    store.close()
    for use in (
        lambda: store.put("q", b"x"),
        lambda: store.put("q", b"x", group=1),
        store.transaction,
        store.queues,
        lambda: store.queue("q"),
        lambda: store.create_queue("r", kind="topic"),
        lambda: store.drop_queue("q"),
        lambda: store.subscribe("t", "s"),
        lambda: store.unsubscribe("t", "s"),
        lambda: store.subscriptions("t"),
        lambda: store.browse("q"),
        lambda: store.integration.positions("q"),
        lambda: store.integration.ledger("key"),
        lambda: store.integration.lease("q", 0, 0),
        lambda: store.integration.renew_lease(1),
        lambda: store.integration.end_lease(1),
        store.admin.checkpoint,
        store.status,
        store.admin.verify,
    ):
        with pytest.raises(StoreClosed, match="open it again"):
            use()
    assert txn.state == "rolled back"
    with pytest.raises(StoreClosed, match="open it again"):
        txn.put("q", b"x")
    with pytest.raises(StoreClosed, match="open it again"):
        txn.commit()
    assert message is not None
    assert message.payload == b"x"  # what was returned stays readable
    with Store.open(store_path) as store:
        assert take(store, "q") == [b"x"]
        assert store.admin.verify().ok


def test_a_failure_to_open_lets_go_of_the_lock(store_path: str) -> None:
    """After a refused opening the store can be opened at once."""
    Store.open(store_path).close()
    for _ in range(3):
        with pytest.raises(InvalidArgument):
            Store.open(store_path, page_size=8192)
    Store.open(store_path).close()


def test_messages_outlive_the_store(store_path: str) -> None:
    """Messages, also those not looked at yet, do not need the store any more."""
    with Store.open(store_path) as store:
        store.create_queue("q", kind="work")
        with store.transaction() as txn:
            txn.put_many("q", [b"%d" % n * 100 for n in range(5000)])
        store.admin.checkpoint()
        with store.transaction() as txn:
            messages = txn.get_many("q", 5000)
            batch = messages.to_arrow()
    assert messages.payloads() == [b"%d" % n * 100 for n in range(5000)]
    assert batch.column("payload").to_pylist() == messages.payloads()


def test_without_threads_maintenance_happens_within_commits() -> None:
    """background=False: checkpoints are made by the commits themselves, on any environment."""
    with Store.open(
        "/s", env=SimEnv(), background=False, checkpoint_bytes=100_000, segment_bytes=1 << 20
    ) as store:
        store.create_queue("q", kind="work")
        for _ in range(50):
            store.put("q", b"x" * 10_000)
        status = store.status()
        assert status["checkpoints"]["count"] >= 3
        assert status["journal"]["since_checkpoint_bytes"] <= 150_000
        assert status["maintenance_error"] is None
        assert store.admin.verify().ok


def test_a_working_directory_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path from there says so; one from / on is opened."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(InvalidArgument, match="working directory, which is not there any more"):
        open_store("shop.quire")
    with open_store(str(tmp_path / "shop.quire")) as store:
        assert store.queues() == []
