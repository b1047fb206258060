"""Streamed messages over power failures, failed writes, a full disk, and many at a time."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from quire.engine import EmbeddedStore as Store
from quire.errors import DiskFull, TransactionError, TransactionTimeout
from quire.limits import LTDS_WRITERS
from quire.ltds import LtdsReader, list_ids
from quire.ltds.format import FileContent
from quire.testing import SimEnv, enumerate_crashes
from tests.engine.workload import PATH, new_machine, open_store
from tests.kit.limits import Limits

CHUNK = 4096
QUEUES = [{"name": "films", "kind": "work"}, {"name": "titles", "kind": "work"}]


@pytest.fixture(autouse=True)
def small_chunks(limits: Limits) -> None:
    """Payloads of a few pages have many chunks."""
    limits(CHUNK_BYTES=CHUNK)


def film(number: int) -> bytes:
    """A payload of a few chunks, by its number."""
    return b"%6d" % number + random.Random(number).randbytes(3 * CHUNK + number)


@dataclass
class Known:
    """What was acknowledged: the films are numbered from `first` to before `end`."""

    first: int = 0
    end: int = 0
    made: bool = False
    prepared: bool = False


def put(store: Store, known: Known) -> None:
    """A film and its title; one that is given up, and one that is rolled back, leave nothing."""
    with store.transaction() as txn:
        writer = txn.put_writer("films")
        writer.write(film(999))
        writer.abandon()
        txn.put_stream("films", film(known.end))
        txn.put("titles", b"%6d" % known.end)
        with store.transaction() as other:
            other.put_stream("films", film(998))
            other.rollback()
    known.end += 1


def take_film(store: Store, known: Known) -> None:
    """The first of them, read to its end."""
    with store.transaction() as txn:
        message = txn.get("films")
        assert message is not None
        assert message.open().read() == film(known.first)
        assert txn.get("titles") is not None
    known.first += 1


def run(env: SimEnv, known: Known) -> None:
    """From nothing."""
    env.make_directory("/disk")
    env.sync_directory("/")
    with open_store(env) as store:
        store.admin.create_queues(QUEUES)
        known.made = True
        put(store, known)
        put(store, known)
        take_film(store, known)
        store.admin.checkpoint()
        put(store, known)
        take_film(store, known)
        txn = store.transaction()
        txn.put_stream("films", film(known.end))
        txn.put("titles", b"%6d" % known.end)
        txn.prepare("both")
        known.prepared = True
        store.admin.checkpoint()
        store.prepared.commit("both")
        known.prepared = False
        known.end += 1


def check(env: SimEnv, known: Known) -> None:
    """All that was acknowledged is there, and what was not is there whole or not at all."""
    if not known.made:
        return
    with open_store(env) as store:
        for info in store.prepared.list():
            store.prepared.commit(info.xid)
        films = [message.open().read() for message in store.browse("films")]
        titles = [int(payload) for payload in store.browse("titles").payloads()]
        assert films == [film(number) for number in titles]
        first, end = (titles[0], titles[-1] + 1) if titles else (known.end, known.end)
        assert titles == list(range(first, end))
        assert first in (known.first, known.first + 1)
        assert end in (known.end, known.end + 1)
        report = store.admin.verify()
        assert report.ok, report.findings
        store._opened.places.sweep()
        assert len(list_ids(env, f"{PATH}/ltds")) == len(films)
        now = Known(first, end)
        put(store, now)
        while now.first < now.end:
            take_film(store, now)
        assert store.queue("films").used_bytes == 0
        store._opened.places.sweep()
        assert list_ids(env, f"{PATH}/ltds") == []


@pytest.mark.cases(4)
@pytest.mark.crash
@pytest.mark.promise(1, 2)
def test_promise_1_2_power_failure_at_every_call_of_a_stream(seed: int) -> None:
    """And every fate of a write that failed: a film and its title are both there, or neither."""
    assert enumerate_crashes(run, check, Known, seed=seed, rounds=1, every=6) > 40


def test_a_full_disk_leaves_the_transaction_as_it_was() -> None:
    """At whatever chunk it is: its room is given back, and the transaction commits the others."""
    for chunks in range(1, 14, 3):
        env = new_machine(chunks)
        with open_store(env) as store:
            store.admin.create_queues(QUEUES)
            with store.transaction() as txn:
                txn.put("films", b"before")
                used = store.queue("films").used_bytes
                env.capacity_bytes = env.used_bytes() + chunks * CHUNK
                with pytest.raises(DiskFull):
                    txn.put_stream("films", film(1) * 5)
                assert store.queue("films").used_bytes == used
                store._opened.places.sweep()
                env.capacity_bytes = None
                txn.put_stream("films", film(1))
                txn.put("films", b"behind")
            assert [m.size for m in store.browse("films")] == [6, len(film(1)), 6]
            assert len(list_ids(env, f"{PATH}/ltds")) == 1


def test_it_is_compressed_like_large_transactions() -> None:
    """Chunk by chunk; each is read without the others."""
    env = new_machine(1)
    with open_store(env, ltds_compression="zstd") as store:
        store.admin.create_queues(QUEUES)
        payload = b"ha" * 10 * CHUNK
        store.put_stream("films", payload)
        (ltds_id,) = list_ids(env, f"{PATH}/ltds")
        with LtdsReader(env, f"{PATH}/ltds", ltds_id, store.integration.store_id) as reader:
            assert reader.chunk_count == 20
            assert reader.content == FileContent.STREAM
        payload_reader = store.browse("films")[0].open()
        payload_reader.seek(11 * CHUNK + 1)
        assert payload_reader.read(5) == b"ahaha"
        assert store.browse("films")[0].payload == payload
        assert store.admin.verify().ok


def test_many_streams_at_a_time_keep_few_files_open() -> None:
    """Past a limit a file is closed between two chunks."""
    env = new_machine(2)
    count = LTDS_WRITERS + 6
    with open_store(env) as store:
        store.admin.create_queues(
            [{"name": f"q{number}", "kind": "work"} for number in range(count)]
        )
        with store.transaction() as txn:
            writers = [txn.put_writer(f"q{number}") for number in range(count)]
            for start in range(4):
                for number, writer in enumerate(writers):
                    writer.write(film(number)[start * CHUNK : (start + 1) * CHUNK])
            for writer in writers:
                writer.finish()
        for number in range(count):
            (message,) = store.browse(f"q{number}")
            assert message.open().read() == film(number)[: 4 * CHUNK]
        assert store.admin.verify().ok


def test_a_transaction_that_ends_while_its_source_is_slow_leaves_nothing() -> None:
    """Its time is over, and it holds nobody up meanwhile."""
    env = new_machine(3)
    with open_store(env) as store:
        store.admin.create_queues(QUEUES)

        def slow() -> Iterator[bytes]:
            yield film(1)
            env.sleep(100.0)
            store.put("titles", b"not held up")  # this commit ends what is late
            yield film(1)

        with pytest.raises(TransactionTimeout), store.transaction(timeout=10.0) as txn:
            txn.put_stream("films", slow())
        assert store.queue("films").used_bytes == 0
        assert store.queue("titles").messages == 1
        store._opened.places.sweep()
        assert list_ids(env, f"{PATH}/ltds") == []


def test_several_threads_put_and_read_streams(store_path: str) -> None:
    """Each message is read whole, by one of them."""
    count, threads = 8, 4
    with Store.open(store_path, segment_bytes=4 << 20) as store:
        store.admin.create_queues(QUEUES)
        found: list[int] = []

        def work(number: int) -> None:
            for turn in range(count):
                store.put_stream("films", film(number * count + turn))
            for _ in range(count):
                with store.transaction() as txn:
                    message = txn.get("films", timeout=60.0)
                    assert message is not None
                    payload = message.open().read()
                    assert payload == film(int(payload[:6]))
                    found.append(int(payload[:6]))

        running = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        assert sorted(found) == list(range(count * threads))
        assert store.admin.verify().ok
        assert store.queue("films").used_bytes == 0


def test_nothing_is_put_between_the_chunks_of_a_stream() -> None:
    """A put to its queue is refused, also where the queue was put to before."""
    with Store.open("/s", env=SimEnv(), background=False) as store:
        store.create_queue("q", kind="work")
        with store.transaction() as txn:
            txn.put("q", b"first")
            txn.put("q", b"second")
            with txn.put_writer("q") as writer:
                writer.write(b"x" * (1 << 20))
                with pytest.raises(TransactionError, match="finish it first"):
                    txn.put("q", b"between")
                writer.write(b"y")
            txn.put("q", b"last")
        assert [len(message.payload) for message in store.browse("q")] == [5, 6, (1 << 20) + 1, 4]
        assert store.admin.verify().ok
