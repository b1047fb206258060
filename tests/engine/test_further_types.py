"""Queue types that are not built in: found, started and stopped, and missed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quire
from quire.definitions import queue_types
from quire.engine import EmbeddedStore as Store
from quire.errors import InvalidArgument, QueueDisabled
from quire.reports.info import QueueInfo
from tests.kit.messages import take
from tests.kit.waiting import SECONDS

OPTIONS: dict[str, Any] = {"segment_bytes": 4 << 20}
CODE = """
calls = []

class Metered:
    is_volatile = {is_volatile}

    def start(self, queue):
        calls.append(("start", queue.name, queue.messages))

    def stop(self, queue):
        calls.append(("stop", queue.name, queue.messages))
"""


class Steered:
    """A type of the test's own."""

    def __init__(self, *, is_volatile: bool = False, fails: str = "") -> None:
        self.is_volatile = is_volatile
        self.fails = fails
        self.calls: list[tuple[str, str]] = []

    def start(self, queue: QueueInfo) -> None:
        self._do("start", queue)

    def stop(self, queue: QueueInfo) -> None:
        self._do("stop", queue)

    def _do(self, what: str, queue: QueueInfo) -> None:
        self.calls.append((what, queue.name))
        if self.fails == what:
            raise RuntimeError("no meter")


@pytest.fixture(autouse=True)
def registry() -> Iterator[dict[str, Any]]:
    """What a test registers is forgotten."""
    before = dict(queue_types._registered)
    queue_types._registered.clear()
    yield queue_types._registered
    queue_types._registered.clear()
    queue_types._registered.update(before)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages, in which one has an entry point."""
    folder = tmp_path / "packages"
    installed = folder / "metering-1.0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: metering\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(
        "[quire.queue_types]\nmetered = metering:Metered\nbroken = metering:Nothing\n"
    )
    (folder / "metering.py").write_text(CODE.format(is_volatile=False))
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    sys.modules.pop("metering", None)


def test_an_entry_point_gives_a_type(package: Path, store_path: str) -> None:
    """Its queues are started when they are made and at each opening, stopped at each end."""
    with Store.open(store_path, **OPTIONS) as store:
        info = store.create_queue("q", kind="work", type="metered")
        assert (info.type, info.volatile) == ("metered", False)
        store.admin.create_queues(["plain", {"name": "r", "type": "metered"}])
        store.put("q", b"x")
        store.drop_queue("r")
    from metering import calls  # type: ignore[import-not-found]

    assert calls == [
        ("start", "q", 0), ("start", "r", 0), ("stop", "r", 0), ("stop", "q", 0)
    ]  # fmt: skip
    calls.clear()
    with Store.open(store_path, **OPTIONS) as store:
        assert take(store, "q") == [b"x"]
        assert store.admin.verify().ok
    assert calls == [("start", "q", 1), ("stop", "q", 1)]


def test_a_further_type_may_be_volatile(store_path: str) -> None:
    """Then it is handled as the built-in one: what it says when the queue is made holds."""
    metered = Steered(is_volatile=True)
    quire.register_type("metered", metered)
    with Store.open(store_path, **OPTIONS) as store:
        info = store.create_queue("q", kind="work", type="metered")
        assert info.volatile
        store.create_queue("r", kind="work", type="metered", persistent=False)
        store.put("q", b"gone")
        store.put("r", b"gone")
    metered.is_volatile = False
    with Store.open(store_path, **OPTIONS) as store:
        assert [queue.name for queue in store.queues()] == ["q"]
        assert store.queue("q").volatile
        assert take(store, "q") == []
        store.put("q", b"x")
        assert store.status()["volatile"]["blocks"] == 1
    assert metered.calls == [
        ("start", "q"), ("start", "r"), ("stop", "q"), ("stop", "r"), ("start", "q"), ("stop", "q")
    ]  # fmt: skip


@pytest.mark.parametrize("is_volatile", [False, True])
def test_an_owner_without_the_code_stops_that_queue_only(
    store_path: str, registry: dict[str, Any], is_volatile: bool
) -> None:
    """In words that name the type; what it holds is there again with the code."""
    quire.register_type("metered", Steered(is_volatile=is_volatile))
    with Store.open(store_path, **OPTIONS) as store:
        store.create_queue("q", kind="work", type="metered", timed=True, ttl=1000 * SECONDS)
        store.create_queue("plain", kind="work")
        store.put("q", b"x")
    registry.clear()
    with Store.open(store_path, **OPTIONS) as store:
        for call in (
            lambda: store.put("q", b"y"),
            lambda: store.get("q"),
            lambda: store.get("q", timeout=1.0),
            lambda: store.put_many("q", [b"y"]),
        ):
            with pytest.raises(QueueDisabled, match="queue 'q' is stopped: queue type 'metered'"):
                call()
        store.alter_queue("q", puts=True, gets=True, timed=False, ttl=None)
        with pytest.raises(QueueDisabled, match="metered"):
            store.put("q", b"y")
        with pytest.raises(InvalidArgument, match="metered"):
            store.create_queue("more", kind="topic", type="metered")
        store.put("plain", b"z")
        assert take(store, "plain") == [b"z"]
        store.admin.checkpoint()
        assert store.admin.verify().ok
        assert store.queue("q").messages == (0 if is_volatile else 1)
    quire.register_type("metered", Steered())
    with Store.open(store_path, **OPTIONS) as store:
        assert take(store, "q") == ([] if is_volatile else [b"x"])
        assert store.admin.verify().ok


def test_a_queue_whose_code_is_missing_can_be_dropped(
    store_path: str, registry: dict[str, Any]
) -> None:
    """There is nothing to stop."""
    quire.register_type("metered", Steered())
    with Store.open(store_path, **OPTIONS) as store:
        store.create_queue("q", kind="topic", type="metered")
    registry.clear()
    with Store.open(store_path, **OPTIONS) as store:
        store.drop_queue("q")
        assert store.queues() == []


def test_code_that_fails_stops_its_queue(
    store_path: str, caplog: pytest.LogCaptureFixture, registry: dict[str, Any]
) -> None:
    """At its start, with its words; at its stop it keeps nobody from closing the store."""
    quire.register_type("bad", Steered(fails="start"))
    quire.register_type("late", Steered(fails="stop"))
    with Store.open(store_path, **OPTIONS) as store:
        store.create_queue("bad", kind="work", type="bad")
        store.create_queue("late", kind="work", type="late")
        with pytest.raises(QueueDisabled, match=r"type 'bad' did not start .*no meter"):
            store.put("bad", b"x")
        store.put("late", b"x")
    assert "the type of queue 'late' did not stop" in caplog.text
    with Store.open(store_path, **OPTIONS) as store:
        assert take(store, "late") == [b"x"]


def test_what_is_no_type_is_refused(
    package: Path, store_path: str, registry: dict[str, Any]
) -> None:
    """By its name, or by what it is; nothing is made."""
    for name in ("persistent", "volatile", "", ".x", 5):
        with pytest.raises(InvalidArgument, match="queue type"):
            quire.register_type(name, Steered())  # type: ignore[arg-type]
    for wrong in (None, Steered, "metered"):
        with pytest.raises(InvalidArgument, match="it needs is_volatile"):
            quire.register_type("mine", wrong)  # type: ignore[arg-type]
    with Store.open(store_path, **OPTIONS) as store:
        with pytest.raises(InvalidArgument, match="cannot be loaded from metering:Nothing"):
            store.create_queue("q", kind="topic", type="broken")
        with pytest.raises(InvalidArgument, match="keeps messages durably"):
            store.create_queue("q", kind="topic", type="metered", persistent=False)
        assert store.queues() == []
