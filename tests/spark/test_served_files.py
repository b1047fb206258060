"""The files of a store at a server, without Spark: what its tasks read and write of them.

All is over TLS, as a user with a token.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from quire import keyed as plain
from quire.engine.reading.place_bytes import PlaceBytes
from quire.engine.upkeep.fragment_files import sweep_fragments
from quire.env import OsEnv
from quire.errors import PositionLost, StoreCorrupt
from quire.keyed.fragment_files import SeenFragments
from quire.keyed.state_look import _open_runs
from quire.libraries import pa
from quire.ltds import Compression, list_ids, path_of
from quire.reports.info import Piece
from quire.spark_graphs import connection
from quire.spark_graphs.fragments.fragment_file import FragmentWriter
from quire.spark_graphs.limits import FILE_END_BYTES
from quire.spark_graphs.task_files.directory_files import directory_of
from quire.spark_graphs.task_files.served_files import ServedFiles
from quire.spark_graphs.task_files.task_files import files_at
from quire.spark_graphs.writing.sink_committer import FragmentCommitter
from tests.kit.limits import Limits
from tests.spark.served_store import served

pytestmark = pytest.mark.spark

MIB = 1 << 20


@pytest.fixture
def url(store: Any, tmp_path: Path) -> Iterator[str]:
    """The URL of the store's server, without a slash behind it."""
    with served(store, tmp_path / "users") as url:
        yield connection.check_url(url)


@pytest.fixture(autouse=True)
def _users_directory(tmp_path: Path) -> None:
    (tmp_path / "users").mkdir()


def furnish(store: Any) -> list[bytes]:
    """A topic with messages in the journal, in pages and in files."""
    store.create_queue("t", kind="topic")
    payloads = [b"%d" % n for n in range(20)]
    for each in payloads:
        store.put("t", each)
    for number, large in ((5, False), (2000, True), (7, False)):
        part = [b"%d:" % n + b"x" * 3000 for n in range(number)]
        with store.transaction(large=large) as txn:
            txn.put_many("t", part)
        payloads += part
        store.admin.checkpoint()
    store.put_many("t", [b"last"])
    return [*payloads, b"last"]


def pieces_of(store: Any) -> list[Piece]:
    """All messages of the topic, leased."""
    lease = store.integration.lease("t", *store.integration.positions("t"))
    assert {piece.kind for piece in lease.pieces} == {"journal", "data", "ltds"}
    pieces: list[Piece] = lease.pieces
    return pieces


def read(url: str, pieces: list[Piece]) -> list[bytes]:
    """Their payloads, as a task elsewhere reads them."""
    with closing(files_at(url).reader()) as reader:
        batches = list(reader.read_all(pieces, "t"))
    return [payload for batch in batches for payload in batch.column("payload").to_pylist()]


@pytest.mark.parametrize("at_once", [4 * MIB, 5000, 4096])
def test_leased_pieces_come_from_the_server(
    store: Any, url: str, limits: Limits, at_once: int
) -> None:
    """Blocks of the journal, of pages and of files, also such as are more than one answer has."""
    payloads = furnish(store)
    pieces = pieces_of(store)
    limits(PLACES_BYTES=at_once)
    assert isinstance(files_at(url), ServedFiles)
    assert read(url, pieces) == payloads


def test_small_blocks_come_together(store: Any, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand commits of one message each are read by one request, and not by a thousand."""
    store.create_queue("t", kind="topic")
    for number in range(1000):
        store.put("t", b"%d" % number)
    lease = store.integration.lease("t", 0, 1000)
    requests: list[int] = []
    real = PlaceBytes.read

    def read_places(self: PlaceBytes, queue: str, places: Any) -> Any:
        requests.append(len(places))
        return real(self, queue, places)

    monkeypatch.setattr(PlaceBytes, "read", read_places)
    assert read(url, lease.pieces) == [b"%d" % number for number in range(1000)]
    assert requests == [len(lease.pieces)]


def test_the_pieces_of_a_look_come_together(
    store: Any, url: str, limits: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one request for each run, or by as many as their bytes need; the rows are the same."""
    limits(RUN_MESSAGE_BYTES=1500, PIECE_BYTES=256)
    state = plain.open_state(store, "totals", "key", "key bigint, total bigint")
    numbers = list(range(3000))
    with store.transaction() as txn, state.within(txn) as rows:
        rows.put([{"key": number, "total": 2 * number} for number in numbers])
    look, keys = state.look(), numbers[::50]
    files, requests = files_at(url), list[int]()
    expected = look.rows_of(SeenFragments(OsEnv(), directory_of(store.path)), keys)
    real = PlaceBytes.read

    def read_places(self: PlaceBytes, queue: str, places: Any) -> Any:
        requests.append(sum(place[3] for place in places))
        return real(self, queue, places)

    monkeypatch.setattr(PlaceBytes, "read", read_places)
    for at_once in (4 * MIB, 4096):
        limits(PLACES_BYTES=at_once)
        _open_runs.cache_clear()
        look.rows_of(files, keys[:1])  # the run is open
        requests.clear()
        assert look.rows_of(files, keys) == expected
        assert max(requests) <= at_once
        assert len(requests) <= 1 + 2 * sum(requests) // at_once
    assert len(requests) > 2
    state.end_look(look)


def test_no_byte_of_a_file_comes_twice(
    store: Any, url: str, limits: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for its directory, wherever a block lies in the parts that are asked for."""
    store.create_queue("t", kind="topic")
    payloads = [b"%d:" % number + b"x" * 3000 for number in range(5000)]
    with store.transaction(large=True) as txn:
        txn.put_many("t", payloads)
    [piece] = store.integration.lease("t", 0, len(payloads)).pieces
    with files_at(url).open_large("t", piece.address, store.integration.store_id) as file:
        block_bytes = len(file.stored(0))
        assert file.block_count > 2
    limits(PLACES_BYTES=block_bytes * 3 // 2)  # a block begins in one part, and ends in the next
    sizes: list[int] = []
    real = PlaceBytes.read

    def read_places(self: PlaceBytes, queue: str, places: Any) -> Any:
        found = real(self, queue, places)
        sizes.extend(map(len, found))
        return found

    monkeypatch.setattr(PlaceBytes, "read", read_places)
    assert read(url, [piece]) == payloads
    whole = store.integration.file_size("t", piece.address)
    assert whole - 8192 <= sum(sizes) <= whole + 2 * FILE_END_BYTES


def test_damage_is_noticed_by_the_reader(store: Any, url: str) -> None:
    """Bytes of another block than the leased one are an error, wherever they come from."""
    furnish(store)
    for piece in pieces_of(store):
        if piece.kind == "data":
            file = f"{store.path}/data/0.dat"
            with Path(file).open("r+b") as changed:
                changed.seek((piece.address & ((1 << 48) - 1)) + piece.length - 1)
                last = changed.read(1)
                changed.seek(-1, os.SEEK_CUR)
                changed.write(bytes([last[0] ^ 1]))
                changed.flush()
                with pytest.raises((PositionLost, StoreCorrupt)):
                    read(url, [piece])
                changed.seek(-1, os.SEEK_CUR)
                changed.write(last)
            return
    raise AssertionError("no piece is in pages")


def test_a_file_that_is_gone_is_lost(store: Any, url: str) -> None:
    """Its lease has ended: the reader says so, as with files of its own."""
    furnish(store)
    pieces = [piece for piece in pieces_of(store) if piece.kind == "ltds"]
    gone = Piece("ltds", 12345, 0, 0, 0, 5, 1, 0, 0)
    with pytest.raises(PositionLost, match="plan"):
        read(url, [gone])
    assert len(read(url, pieces)) == 2000


def fragments(store: Any, url: str, **options: Any) -> list[Any]:
    """A task's fragments: a block, a file of one queue, and one of several."""
    writer = FragmentWriter(url, store.integration.store_id, **options)
    for queue, size in {"large": 3 * MIB, "a": 200_000, "b": 200_000, "small": 1}.items():
        payload = pa.array([b"1" * (size // 4 + 1)] * 4, pa.binary())
        writer.add(pa.record_batch({"payload": payload}), {queue: 4})
    found = writer.finish()
    assert {(each.ltds_id is None, each.shared_id is None) for each in found} == {
        (True, True), (False, True), (False, False)
    }  # fmt: skip
    return found


def files(store: Any) -> list[int]:
    """The files of large transactions that the store has."""
    return list_ids(OsEnv(), directory_of(store.path))


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
@pytest.mark.parametrize("at_once", [4 * MIB, 8192])
def test_fragments_are_written_at_the_server_and_adopted(
    store: Any, url: str, limits: Limits, at_once: int, codec: Compression
) -> None:
    """Whatever a task writes, in parts; the one commit has all of it, and what it shared goes."""
    limits(INLINE_BYTES=100_000, LTDS_WRITE_BYTES=at_once, PLACES_BYTES=at_once)
    for queue in ("large", "a", "b", "small"):
        store.create_queue(queue, kind="topic")
    found = fragments(store, url, codec=codec)
    FragmentCommitter(url, None, 60.0).commit(found)
    for queue in ("large", "a", "b", "small"):
        assert [len(each.payload) for each in store.browse(queue)] == [
            {"large": 3 * MIB, "a": 200_000, "b": 200_000, "small": 1}[queue] // 4 + 1
        ] * 4
    adopted = next(each.ltds_id for each in found if each.queue == "large")
    assert files(store) == [adopted]
    with pytest.raises(PositionLost, match="belongs to"):
        store.integration.write_fragment("large", adopted, 0, b"another")
    files_at(url).remove([adopted])  # which has no effect
    assert files(store) == [adopted]


def test_an_aborted_attempt_leaves_nothing_at_the_server(
    store: Any, url: str, limits: Limits
) -> None:
    """The parts that were written go with the file."""
    store.create_queue("q")
    limits(INLINE_BYTES=1, LTDS_WRITE_BYTES=8192, FLUSH_BYTES=10_000)
    writer = FragmentWriter(url, store.integration.store_id)
    for _ in range(3):
        payload = pa.array([b"1" * 9000] * 4, pa.binary())
        writer.add(pa.record_batch({"payload": payload}), {"q": 4})
    assert len(files(store)) == 1
    writer.abort()
    assert files(store) == []


def test_what_nobody_adopted_goes_and_its_writer_hears_of_it(
    store: Any, url: str, limits: Limits
) -> None:
    """A file that is a day old goes with the next look; who writes on finds it gone, and fails."""
    store.create_queue("q", kind="work")
    limits(INLINE_BYTES=1, LTDS_WRITE_BYTES=8192, FLUSH_BYTES=10_000)
    payload = pa.array([b"1" * 9000] * 4, pa.binary())
    batch = pa.record_batch({"payload": payload})
    old, young = (FragmentWriter(url, store.integration.store_id) for _ in range(2))
    old.add(batch, {"q": 4})
    [first] = files(store)
    os.utime(path_of(directory_of(store.path), first), (0, 0))
    young.add(batch, {"q": 4})

    sweep_fragments(store._context)
    assert first not in files(store)
    with pytest.raises(PositionLost, match="write it anew"):
        old.add(batch, {"q": 4})
    old.abort()
    young.add(batch, {"q": 4})
    FragmentCommitter(url, None, 60.0).commit(young.finish())
    assert sum(len(each.payload) == 9000 for each in store.browse("q")) == 8


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_a_user_needs_the_rights_of_the_queues(
    store: Any, tmp_path: Path, limits: Limits, codec: Compression
) -> None:
    """To read what `browse` allows and to write what `put` allows, files of several included."""
    limits(INLINE_BYTES=100_000)
    payloads = furnish(store)
    for queue in ("large", "a", "b", "small"):
        store.create_queue(queue, kind="topic")
    rights = "browse queue:t; " + "; ".join(f"put queue:{q}" for q in ("large", "a", "b", "small"))
    with served(store, tmp_path / "users", rights) as url:
        url = connection.check_url(url)
        assert read(url, pieces_of(connection.store_at(url))) == payloads
        found = fragments(store, url, codec=codec)
        FragmentCommitter(url, None, 60.0).commit(found)
    assert [store.queue(each).messages for each in ("large", "a", "b", "small")] == [4] * 4
