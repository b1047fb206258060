"""Files that are cut, gone, unreadable or garbage beneath an open store, and each call then."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

import quire
from quire.engine import EmbeddedStore as Store
from quire.errors import QuireError, StoreCorrupt
from quire.testing import SimEnv
from tests.engine.spoiled import calls_of, furnish, spoil
from tests.kit.children import child

KINDS = (
    "LOCK",
    "data/0.dat",
    "journal/*.log",
    "journal/*.spare",
    "checkpoint/*.qck",
    "ltds/*.ltds",
)
HOW = ("cut to nothing", "cut in half", "removed", "garbage", "replaced")


@pytest.mark.parametrize("pattern", KINDS)
@pytest.mark.parametrize("how", HOW)
def test_every_call_is_right_or_tells(store_path: str, pattern: str, how: str) -> None:
    """Never another error, nor the end of the process, whichever file and whatever is done."""
    with child(USE, store_path, pattern, how) as user:
        assert user.line().startswith("raised ")
        assert user.wait() == 0


USE = """
import sys, warnings
from tests.engine.spoiled import use
warnings.simplefilter("ignore")
print("raised", use(*sys.argv[1:]))
"""


@pytest.mark.cases(3)
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
    """A last group that may be torn, or a commit that was damaged: logged, in `status`, and a
    finding of `verify` that is a warning, as long as this owner has the store; else nothing is."""
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
            assert len(report.findings) == damaged
            assert report.findings == report.warnings
            assert all(words in text and "commit" in text for text in report.findings)
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
    with child(OWN, store_path, pattern) as owner:
        assert owner.line() == "owner"
        joined = quire.open(store_path)
        assert joined.role == "joined"
        for path in Path(store_path).glob(pattern):
            spoil(str(path), how)
        for call in calls_of(joined):  # type: ignore[arg-type]
            with contextlib.suppress(QuireError):
                call()
        assert owner.process.poll() is None
        owner.process.stdin.close()
        if pattern.startswith("run"):
            assert owner.wait() == 0


OWN = """
import sys, warnings, quire
from quire.engine import EmbeddedStore
from tests.engine.spoiled import furnish
warnings.simplefilter("ignore")
with EmbeddedStore.open(sys.argv[1], background=False) as store:
    furnish(store)
with quire.open(sys.argv[1]) as store:
    print(store.role, flush=True)
    sys.stdin.read()
    print(store.put("journal", b"of the owner") if sys.argv[2].startswith("run") else "ends")
"""
