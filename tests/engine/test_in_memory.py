"""Stores without a path: in the memory of this process, with queues of each type."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any

import pytest

import quire
import quire.aio
import quire.opening
from quire.engine import EmbeddedStore as Store
from quire.env.memory_env import MemoryEnv
from quire.errors import AlreadyCommitted, InvalidArgument
from quire.testing import SimEnv


def test_a_store_in_memory_is_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With transactions, subscriptions and the ledger, and without a file; it ends when closed."""
    monkeypatch.chdir(tmp_path)
    with quire.open(":memory:") as store, quire.open(":memory:") as other:
        assert (store.path, store.role) == (":memory:", "owner")
        store.create_queue("orders", kind="work", type="volatile", order="priority")
        store.create_queue("events", kind="topic", type="volatile", persistent=False)
        store.subscribe("events", "audit")
        for version in (1, 2):
            with store.transaction() as txn:
                txn.put("orders", b"%d" % version, priority=version)
                txn.put("events", b"x" * (1 << 20))
                txn.enter("loader", version)
        with store.transaction() as txn:
            txn.enter("loader", 2)
            with pytest.raises(AlreadyCommitted):
                txn.commit()
        assert store.get_many("orders").payloads() == [b"2", b"1"]
        assert len(store.get_many("events/audit")) == 2
        store.admin.checkpoint()
        assert store.admin.verify().ok
        assert store.status()["volatile"]["blocks"] == 0
        assert other.queues() == []
    assert list(tmp_path.iterdir()) == []
    with quire.open(":memory:") as store:
        assert store.queues() == []


@pytest.mark.cases(4)
def test_promise_9_definitions_take_no_memory_once_they_are_gone() -> None:
    """The journal in memory is used again, as one on a disk is."""
    env = MemoryEnv()
    options: dict[str, Any] = {"segment_bytes": 1 << 20, "checkpoint_bytes": 1 << 20}
    with Store.open("s", env=env, background=False, **options) as store:
        peak = 0
        for _ in range(24):
            store.admin.create_queues(
                [{"name": f"q{n}", "type": "volatile", "text": "x" * 900} for n in range(100)]
            )
            for n in range(100):
                store.drop_queue(f"q{n}")
            pages = [len(content.pages) for content in env._files.values()]
            peak = max(peak, sum(pages) << 16)
        assert store.status()["journal"]["end_lsn"] > 2 * peak
        assert peak < 12 << 20
        assert store.admin.verify().ok


def test_durable_queues_are_taken_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What they do elsewhere they do here: small and large, streamed, in two phases, verified."""
    monkeypatch.chdir(tmp_path)
    with quire.open(":memory:", checkpoint_bytes=1 << 20, segment_bytes=2 << 20) as store:
        store.create_queue("work", kind="work")
        store.create_queue("events", kind="topic")
        store.create_queue("clicks", kind="work", type="volatile")
        store.subscribe("events", "audit")
        for number in range(1, 101):
            with store.transaction() as txn:
                txn.put_many("work", [b"%d" % number] * 50)
                txn.put("events", bytes(100_000))
                txn.put("clicks", b"1")
                txn.enter("loader", number)
        streamed = store.put_stream("work", io.BytesIO(bytes(3 << 20)))
        with store.transaction(large=True) as txn:
            txn.put_many("events", [bytes(1000)] * 2000)
        txn = store.transaction()
        txn.put("work", b"prepared")
        txn.prepare("both")
        store.prepared.commit("both")
        store.admin.checkpoint()
        assert store.admin.verify(contents=True).ok
        taken = store.get_many("work", 5001)
        assert taken.payloads()[:51] == [b"1"] * 50 + [b"2"]
        assert taken[5000].id == streamed
        assert store.get_many("work").payloads() == [b"prepared"]
        assert len(store.get_many("events/audit", 10_000)) == 2100
        assert len(store.get_many("clicks")) == 100
        assert store.integration.ledger("loader") == 100
        store.admin.checkpoint()
        assert store.admin.verify(contents=True).ok
    assert list(tmp_path.iterdir()) == []


def test_wrong_ways_of_opening_are_refused() -> None:
    """There is none to be found, and it is in no environment. None, as a setting is that is not
    there, would lose messages without a word.
    """
    with pytest.raises(InvalidArgument, match="always a new one"):
        quire.open(":memory:", create=False)
    with pytest.raises(InvalidArgument, match="or ':memory:' for a store in memory"):
        quire.open(None)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        quire.open(":memory:", unheard_of=1)
    with pytest.raises(InvalidArgument, match="in no env"):
        quire.open(":memory:", env=SimEnv(1))
    with pytest.raises(InvalidArgument, match="in the memory of one process"):
        quire.opening.open_or_serve(":memory:")
    with pytest.raises(InvalidArgument, match="in the memory of one process"):
        quire.opening.serve(":memory:")


def test_asyncio_has_it_too() -> None:
    """As coroutines."""

    async def main() -> bytes:
        async with quire.aio.open(":memory:") as store:
            await store.create_queue("orders", kind="work", type="volatile")
            await store.put("orders", b"x")
            message = await store.get("orders")
            assert message is not None
            return bytes(message.payload)

    assert asyncio.run(main()) == b"x"


def test_files_in_memory_are_files() -> None:
    """Sparse, shared by their handles, gone when they are removed; errors as a system's."""
    env = MemoryEnv()
    env.make_directory("d")
    file, same = (env.open_file("d/f", create=True) for _ in range(2))
    file.allocate(0, 1 << 40)
    assert (file.size(), file.read((1 << 40) - 2, 5)) == (1 << 40, bytes(2))
    file.write((1 << 16) - 1, b"abc")
    assert bytes(same.read((1 << 16) - 2, 5)) == b"\0abc\0"
    file.punch(1 << 16, 1 << 20)
    assert same.read((1 << 16) - 2, 5) == b"\0a\0\0\0"
    file.truncate(1 << 16)
    assert same.size() == 1 << 16
    file.truncate((1 << 16) + 1)
    assert same.read((1 << 16) - 1, 5) == b"a\0"
    with pytest.raises(FileExistsError):
        env.open_file("d/f", exclusive=True)
    env.rename("d/f", "d/g")
    env.link("d/g", "d/l")
    assert (env.list_directory("d"), env.exists("d/f")) == (["g", "l"], False)
    assert env.open_file("d/l").read((1 << 16) - 1, 5) == b"a\0"
    with pytest.raises(FileExistsError):
        env.link("d/g", "d/l")
    with pytest.raises(NotADirectoryError):
        env.list_directory("d/l")
    env.remove("d/l")
    assert env.exists("d/g")
    for wrong in (
        lambda: env.open_file("d/f"), lambda: env.open_file("e/f", create=True),
        lambda: env.remove("d/f"), lambda: env.rename("d/f", "d/h"),
        lambda: env.link("d/f", "d/h"), lambda: env.link("d/g", "e/g"),
        lambda: env.list_directory("e"), lambda: env.make_directory("e/f"),
        lambda: env.modified_us("d/f"),
    ):  # fmt: skip
        with pytest.raises(FileNotFoundError):
            wrong()
    with pytest.raises(OSError, match="not empty"):
        env.remove("d")
    env.remove("d/g")
    env.remove("d")
    assert env.list_directory(".") == []
    lock = env.lock_names("l", ["a", "b"])
    assert not isinstance(lock, str)
    assert env.lock_names("l", ["b"]) == "b"
    lock.release()
    assert not env.is_locked("l")
