"""Files that are cut, gone, unreadable or garbage beneath an open store, and each call then."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import quire
from quire.engine import EmbeddedStore as Store
from quire.errors import QuireError, StoreCorrupt
from quire.testing import SimEnv

KINDS = (
    "LOCK",
    "data/0.dat",
    "journal/*.log",
    "journal/*.spare",
    "checkpoint/*.qck",
    "ltds/*.ltds",
)
HOW = ("cut to nothing", "cut in half", "removed", "garbage", "replaced")


def furnish(store: Store) -> None:
    """Queues whose messages are in the journal, in the data file, and in files of their own."""
    for name in ("journal", "data", "large", "streamed"):
        store.create_queue(name, kind="work")
    with store.transaction(large=True) as transaction:
        transaction.put_many("large", [b"l" * 1000] * 3000)
    with store.transaction() as transaction:
        transaction.put_stream("streamed", io.BytesIO(b"s" * 3_000_000))
    for _ in range(40):
        with store.transaction() as transaction:
            transaction.put_many("data", [b"d" * 1000] * 10)
    store.admin.checkpoint()
    store.put("journal", b"j" * 3000)
    store._context.places.cache.close()  # what is in memory would hide what is gone
    store._context.state.pages._cache.clear()


def calls_of(store: Store) -> Iterator[Callable[[], object]]:
    """Each way to read, and each to change something; the last ones end the store."""
    for name in ("journal", "data", "large", "streamed"):
        yield lambda name=name: [bytes(m.payload) for m in store.browse(name)]  # type: ignore[misc]
        yield lambda name=name: read_open(store, name)  # type: ignore[misc]
        yield lambda name=name: get_and_give_back(store, name)  # type: ignore[misc]
        yield lambda name=name: store.integration.lease_many([(name, 0, 1)])  # type: ignore[misc]
    yield store.status
    yield store.admin.verify
    yield lambda: store.put("journal", b"more")
    yield lambda: store.put("data", bytes(400_000))
    yield store.admin.checkpoint
    yield store.admin.verify
    yield store.close


def read_open(store: Store, name: str) -> None:
    """Each payload, in pieces."""
    for message in store.browse(name):
        while message.open().read(1 << 16) == b"never":
            pass


def get_and_give_back(store: Store, name: str) -> None:
    """Get one, and give it back."""
    with store.transaction() as transaction:
        transaction.get(name)
        transaction.rollback()


def spoil(path: str, how: str) -> None:
    """What somebody, or a disk, does to a file."""
    size = os.path.getsize(path)
    if how == "removed":
        os.remove(path)
    elif how == "replaced":
        content = Path(path).read_bytes()
        os.remove(path)
        Path(path).write_bytes(content)
    elif how == "garbage":
        with open(path, "r+b") as file:
            file.write(os.urandom(min(size, 1 << 20)))
    else:
        os.truncate(path, 0 if how == "cut to nothing" else size // 2)


def use(store_path: str, pattern: str, how: str) -> int:
    """Use a store with such a file, and open it again; how many calls raised an error of Quire."""
    store = Store.open(store_path, background=False, checkpoint_bytes=1 << 20)
    furnish(store)
    for path in Path(store_path).glob(pattern):
        spoil(str(path), how)
    raised = unnamed = 0
    for call in calls_of(store):
        try:
            call()
        except QuireError as error:
            raised += 1
            unnamed += type(error) is StoreCorrupt and store_path not in str(error)
    with contextlib.suppress(QuireError), Store.open(store_path, background=False) as again:
        for call in calls_of(again):
            with contextlib.suppress(QuireError):
                call()
    assert not unnamed
    return raised


@pytest.mark.parametrize("pattern", KINDS)
@pytest.mark.parametrize("how", HOW)
def test_every_call_is_right_or_tells(store_path: str, pattern: str, how: str) -> None:
    """Never another error, nor the end of the process, whichever file and whatever is done."""
    script = f"""
from tests.engine.test_what_is_gone import use
print("raised", use({store_path!r}, {pattern!r}, {how!r}))
"""
    root = Path(__file__).resolve().parents[2]
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        cwd=root, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert ended.stdout.startswith("raised ")


@pytest.mark.parametrize("kind", ["open", "read", "list_directory"])
@pytest.mark.parametrize("pattern", ["*.dat", "*.log", "*.qck", "*.ltds", "*"])
def test_what_the_disk_does_not_give(kind: str, pattern: str) -> None:
    """EIO at any of these calls: an error of Quire; what needs the file not goes on."""
    env = SimEnv(seed=1)
    store = Store.open("/store", env=env, background=False)
    furnish(store)
    fault = env.fail(kind, pattern, forever=True)
    for call in calls_of(store):
        with contextlib.suppress(QuireError):
            call()
    with contextlib.suppress(QuireError):
        Store.open("/store", env=env, background=False).close()
    fault.cancel()
    with Store.open("/store", env=env, background=False) as again:
        assert again.admin.verify().ok


def test_what_is_damaged_is_told_with_its_queue(store_path: str) -> None:
    """File, place and queue; the other queues go on, and so do commits."""
    with quire.open(store_path, share=False) as store:
        furnish(store)  # type: ignore[arg-type]
        with store.transaction() as transaction:
            message = transaction.get("streamed")
            assert message is not None
            with message.open() as reader:
                assert reader.read(1000) == b"s" * 1000
                for each in Path(store_path).glob("ltds/*.ltds"):
                    os.truncate(each, 1 << 16)
                with pytest.raises(StoreCorrupt, match=r"queue 'streamed'.*\.ltds"):
                    reader.read(2_900_000)
            transaction.rollback()
        os.truncate(f"{store_path}/data/0.dat", 1 << 13)
        store._context.state.pages._cache.clear()  # type: ignore[attr-defined]
        with pytest.raises(StoreCorrupt, match=r"data/0\.dat page .* \(records of queue \d"):
            store.browse("data").payloads()
        assert store.browse("journal").payloads() == [b"j" * 3000]
        store.put("journal", b"more")
        assert store.browse("journal").payloads() == [b"j" * 3000, b"more"]


def test_what_an_opening_cuts_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """A last group that may be torn: logged, and in `status` and `verify`; else nothing is."""
    env = SimEnv(seed=1)
    store = Store.open("/store", env=env, background=False)
    store.create_queue("q", kind="work")
    store.put("q", b"one")
    store.put("q", bytes(3000))
    journal = store._opened.journal
    path, offset = journal.segment_path, journal.last_lsn % store._opened.settings["segment_bytes"]
    for damaged in (True, False):
        env = env.kill()
        caplog.clear()
        if damaged:
            env.corrupt(path, offset + 2000)
        with Store.open("/store", env=env, background=False) as again:
            assert again.queue("q").messages == 1
            words = again.status()["journal"]["cut"]
            report = again.admin.verify()
            assert report.ok
            assert report.checked["journal_cut"] == words
            logged = [r.getMessage() for r in caplog.records if r.name == "quire.recovery"]
            assert logged == ([words] if damaged else [])
            assert words.startswith(f"{path}: a group of ") == damaged
            assert bool(words) == damaged


JOINED = (
    ("data/0.dat", "cut to nothing"),
    ("journal/*.log", "cut to nothing"),
    ("ltds/*.ltds", "removed"),
    ("LOCK", "removed"),
    ("run/address", "garbage"),
    ("run/quire.sock", "removed"),
    ("run/*", "removed"),
)


@pytest.mark.parametrize(("pattern", "how"), JOINED)
def test_every_call_of_a_joined_process_is_right_or_tells(
    store_path: str, pattern: str, how: str
) -> None:
    """The same of what a joined process asks; its owner goes on."""
    script = f"""
import sys, quire
from quire.engine import EmbeddedStore
from tests.engine.test_what_is_gone import furnish
with EmbeddedStore.open({store_path!r}, background=False) as store:
    furnish(store)
with quire.open({store_path!r}) as store:
    print(store.role, flush=True)
    sys.stdin.read()
    print(store.put("journal", b"of the owner") if {pattern!r}.startswith("run") else "ends")
"""
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", script],
        cwd=root, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as owner:  # fmt: skip
        try:
            assert owner.stdout is not None
            assert owner.stdout.readline() == "owner\n"
            joined = quire.open(store_path)
            assert joined.role == "joined"
            for path in Path(store_path).glob(pattern):
                spoil(str(path), how)
            for call in calls_of(joined):  # type: ignore[arg-type]
                with contextlib.suppress(QuireError):
                    call()
            assert owner.poll() is None
            _, errors = owner.communicate("", timeout=120)
            if pattern.startswith("run"):
                assert owner.returncode == 0, errors[-3000:]
        finally:
            if owner.poll() is None:
                owner.kill()
