"""Files of large transactions: what LW1 to LW3 of `quire.ltds.writer` promise, on both disks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from quire.block import BlockBuilder
from quire.env import Env, OsEnv
from quire.errors import DiskFull, InvalidArgument, StoreCorrupt, StoreVersion
from quire.ltds import (
    Compression,
    LtdsInfo,
    LtdsReader,
    LtdsWriter,
    is_foreign,
    list_ids,
    modified_us,
    new_id,
    path_of,
    remove,
)
from quire.ltds.files import seal
from quire.ltds.format import HEADER, PAGE_BYTES, TRAILER, VERSION
from quire.rows.open_block import verified_block
from quire.testing import SimEnv, enumerate_crashes
from tests.kit.limits import Limits

STORE_ID = 0xFEDC_BA98_7654_3210
LTDS_ID = 0x1234
BLOCK_BYTES = 3000
COMPRESSED_BLOCK_BYTES = 12_000  # so that compression saves pages

codecs = pytest.mark.parametrize("codec", Compression, ids=lambda codec: codec.name.lower())


@pytest.fixture(params=["os", "sim"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Env, str]]:
    """An environment and a directory in it."""
    if request.param == "os":
        yield OsEnv(), str(tmp_path)
    else:
        env = SimEnv()
        env.make_directory("/ltds")
        yield env, "/ltds"


def payloads_of(count: int) -> list[bytes]:
    """Payloads of different lengths, some empty."""
    return [f"{i}".encode() * (i % 7) for i in range(count)]


def write(
    env: Env,
    directory: str,
    payloads: list[bytes],
    ltds_id: int = LTDS_ID,
    codec: Compression = Compression.NONE,
) -> LtdsInfo:
    """A finished file of the payloads, in blocks of up to 3000 bytes, or 12,000 compressed."""
    writer = LtdsWriter(env, directory, STORE_ID, ltds_id, codec)
    builder = BlockBuilder()
    builder.add_many(payloads)
    writer.append(builder.blocks(COMPRESSED_BLOCK_BYTES if codec else BLOCK_BYTES))
    return writer.finish()


def read(env: Env, directory: str, ltds_id: int = LTDS_ID) -> list[bytes]:
    """All payloads of the file, with the places of the blocks checked."""
    payloads: list[bytes] = []
    with LtdsReader(env, directory, ltds_id, STORE_ID) as reader:
        for block, first_index in reader:
            assert first_index == len(payloads)
            payloads += block.payloads()
        assert reader.count == len(payloads)
        contents = list(reader.contents(range(reader.block_count)))
    blocks = (verified_block(content, "content") for content in contents)
    assert [payload for block in blocks for payload in block.payloads()] == payloads
    return payloads


def read_or_refuse(env: Env, ltds_id: int = LTDS_ID) -> list[bytes] | None:
    """All payloads of the file, or None if it is refused by its name."""
    try:
        return read(env, "/ltds", ltds_id)
    except StoreCorrupt as error:
        if path_of("/ltds", ltds_id) not in str(error):
            raise
        return None


@codecs
@pytest.mark.parametrize("count", [0, 1, 5000])
def test_what_is_written_is_read(place: tuple[Env, str], count: int, codec: Compression) -> None:
    """Messages, totals and places, with none, one and many blocks."""
    env, directory = place
    payloads = payloads_of(count)
    info = write(env, directory, payloads, codec=codec)
    payload_bytes = sum(map(len, payloads))
    size = env.open_file(path_of(directory, LTDS_ID), read_only=True).size()
    charge_bytes = payload_bytes + 16 * count
    with LtdsReader(env, directory, LTDS_ID, STORE_ID) as reader:
        trailer = reader.checksum
    assert info == LtdsInfo(LTDS_ID, count, size, charge_bytes, payload_bytes, trailer)
    assert read(env, directory) == payloads
    with LtdsReader(env, directory, LTDS_ID, STORE_ID) as reader:
        assert (reader.payload_bytes, reader.charge_bytes) == (payload_bytes, info.charge_bytes)
        for index in range(0, count, 97):
            block, first_index = reader.block_at(reader.locate(index))
            assert block.payloads(index - first_index, index - first_index + 1) == [payloads[index]]
        for index in (-1, count):
            with pytest.raises(IndexError):
                reader.locate(index)
        for number in (-1, reader.block_count):
            with pytest.raises(IndexError):
                reader.block_at(number)


@codecs
def test_contents_are_the_blocks_that_were_written(
    place: tuple[Env, str], codec: Compression, limits: Limits
) -> None:
    """Whichever are asked for, in whatever order, and however few are read together."""
    env, directory = place
    write(env, directory, payloads_of(5000), codec=codec)
    builder = BlockBuilder()
    builder.add_many(payloads_of(5000))
    size = COMPRESSED_BLOCK_BYTES if codec else BLOCK_BYTES
    blocks = [bytes(block.data) for block in builder.blocks(size)]
    everything = list(range(len(blocks)))
    for limit in (1, 3 * PAGE_BYTES, 1 << 20):
        limits(LTDS_WRITE_BYTES=limit)
        with LtdsReader(env, directory, LTDS_ID, STORE_ID) as reader:
            for numbers in (everything, everything[::-1], everything[1::3], []):
                found = [bytes(block) for block in reader.contents(numbers)]
                assert found == [blocks[number] for number in numbers]


def test_builders_and_blocks_of_a_mebibyte(place: tuple[Env, str]) -> None:
    """`add` cuts at 1 MiB; a message above that is a block of its own."""
    env, directory = place
    writer = LtdsWriter(env, directory, STORE_ID, LTDS_ID)
    assert writer.size_bytes == 0
    payloads = [bytes([i]) * 300_000 for i in range(10)]
    builder = BlockBuilder()
    builder.add_many(payloads)
    writer.add(builder)
    builder.clear()
    builder.add(b"x" * 2_000_000)
    writer.add(builder)
    assert (writer.count, writer.payload_bytes) == (11, 5_000_000)
    assert 5_000_000 < writer.size_bytes < 5_100_000
    writer.finish()
    with LtdsReader(env, directory, LTDS_ID, STORE_ID) as reader:
        assert [block.count for block, _ in reader] == [3, 3, 3, 1, 1]
    assert read(env, directory) == [*payloads, b"x" * 2_000_000]


def test_names_ids_and_ages(place: tuple[Env, str]) -> None:
    """Files are found by name, whatever else is in the directory."""
    env, directory = place
    own, foreign = new_id(env), new_id(env, foreign=True)
    assert (is_foreign(own), is_foreign(foreign)) == (False, True)
    assert 0 <= own < foreign < 1 << 63
    for ltds_id in (own, foreign):
        write(env, directory, [b"x"], ltds_id)
    for name in ("0.ltds", "000000000000000G.ltds", "8000000000000000.ltds", "x"):
        env.open_file(f"{directory}/{name}", create=True).close()
    assert list_ids(env, directory) == [own, foreign]
    assert abs(modified_us(env, directory, own) - env.now_us()) < 60_000_000
    assert remove(env, directory, own)
    assert not remove(env, directory, own)
    assert list_ids(env, directory) == [foreign]
    with pytest.raises(InvalidArgument, match="63 bits"):
        path_of(directory, 1 << 63)


def test_abort_leaves_nothing(place: tuple[Env, str]) -> None:
    """An aborted file is gone, twice is once, and a finished one stays."""
    env, directory = place
    writer = LtdsWriter(env, directory, STORE_ID, LTDS_ID)
    builder = BlockBuilder()
    builder.add(b"x")
    writer.add(builder)
    assert list_ids(env, directory) == [LTDS_ID]
    writer.abort()
    writer.abort()
    assert list_ids(env, directory) == []
    with pytest.raises(InvalidArgument, match="finished or aborted"):
        writer.add(builder)
    finished = LtdsWriter(env, directory, STORE_ID, LTDS_ID)
    finished.finish()
    finished.abort()
    assert read(env, directory) == []


def test_an_id_is_written_once(place: tuple[Env, str]) -> None:
    """A second writer of the same id fails, and its abort leaves the first one's file."""
    env, directory = place
    write(env, directory, [b"first"])
    writer = LtdsWriter(env, directory, STORE_ID, LTDS_ID)
    with pytest.raises(FileExistsError):
        writer.finish()
    writer.abort()
    assert read(env, directory) == [b"first"]


@pytest.mark.cases(3)
@codecs
@pytest.mark.promise(1, 10)
def test_a_finished_file_is_whole_after_any_crash(
    rounds: int, limits: Limits, codec: Compression
) -> None:
    """LW1 and LW2: what was finished is read; all else is whole or says that it is not finished."""
    limits(LTDS_WRITE_BYTES=8192)
    payloads = payloads_of(6000 if codec else 1500)

    def workload(env: SimEnv, finished: list[int]) -> None:
        env.make_directory("/ltds")
        env.sync_directory("/")
        for ltds_id in (1, 2):
            write(env, "/ltds", payloads, ltds_id, codec)
            finished.append(ltds_id)

    def check(env: SimEnv, finished: list[int]) -> None:
        for ltds_id in finished:
            assert read(env, "/ltds", ltds_id) == payloads
        for ltds_id in list_ids(env, "/ltds") if env.exists("/ltds") else []:
            assert read_or_refuse(env, ltds_id) in (payloads, None)

    def hasty(env: SimEnv, finished: list[int]) -> None:
        finished.append(1)
        workload(env, [])

    with pytest.raises(StoreCorrupt, match="missing"):  # the canary
        enumerate_crashes(hasty, check, list)
    assert enumerate_crashes(workload, check, list, rounds=min(rounds, 8)) > 100


@pytest.mark.promise(11)
@pytest.mark.parametrize("kind", ["write", "sync", "sync_directory", "open_file"])
def test_a_failed_call_ends_the_writer(kind: str) -> None:
    """After a failed write or sync only `abort` is left, and it removes the file."""
    for nth in range(1, 5):
        env = SimEnv()
        env.make_directory("/ltds")
        fault = env.fail(kind, "/ltds*", nth=nth)
        writer = LtdsWriter(env, "/ltds", STORE_ID, LTDS_ID)
        builder = BlockBuilder()
        builder.add_many(payloads_of(1500))
        try:
            writer.append(builder.blocks(BLOCK_BYTES))
            writer.finish()
        except OSError:
            with pytest.raises(InvalidArgument, match="abort"):
                writer.finish()
            writer.abort()
            assert list_ids(env, "/ltds") == []
        else:
            fault.cancel()
            assert read(env, "/ltds") == payloads_of(1500)


def test_no_room_is_disk_full(limits: Limits) -> None:
    """A full disk is said to be one; aborting gives the room back."""
    limits(LTDS_WRITE_BYTES=8192)
    env = SimEnv(capacity_bytes=20_000)
    env.make_directory("/ltds")
    writer = LtdsWriter(env, "/ltds", STORE_ID, LTDS_ID)
    builder = BlockBuilder()
    builder.add_many(payloads_of(5000))
    with pytest.raises(DiskFull):
        writer.append(builder.blocks(BLOCK_BYTES))
    writer.abort()
    write(env, "/ltds", [b"small"])


@pytest.mark.promise(9)
def test_syncs_go_along(limits: Limits) -> None:
    """LW3: what was written is synced on the way, so that finishing costs one small sync."""
    limits(LTDS_WRITE_BYTES=8192, LTDS_SYNC_BYTES=16_384)
    env = SimEnv(direct=False)
    env.make_directory("/ltds")
    write(env, "/ltds", payloads_of(5000))
    size = env.open_file(path_of("/ltds", LTDS_ID), read_only=True).size()
    assert size // 16_384 <= env.calls.count("sync", "/ltds/*") <= size // 16_384 + 1


@pytest.mark.promise(9)
def test_a_block_larger_than_the_buffer(limits: Limits) -> None:
    """LW3: a large message is written by itself, in its place."""
    limits(LTDS_WRITE_BYTES=8192)
    env = SimEnv()
    env.make_directory("/ltds")
    payloads = [b"a", b"b" * 50_000, b"c", b"d" * 9_000]
    write(env, "/ltds", payloads)
    assert read(env, "/ltds") == payloads


@pytest.mark.cases(3)
@codecs
@pytest.mark.promise(10)
def test_damage_anywhere_is_found_or_harmless(rng: Random, rounds: int, codec: Compression) -> None:
    """A flipped bit is an error that names the file, or lies where nothing is kept."""
    env = SimEnv()
    env.make_directory("/ltds")
    payloads = payloads_of(6000 if codec else 1500)
    size = write(env, "/ltds", payloads, codec=codec).bytes
    path = path_of("/ltds", LTDS_ID)
    for _ in range(8 * rounds):
        offset, mask = rng.randrange(size), 1 << rng.randrange(8)
        env.corrupt(path, offset, mask)
        payloads_or_none = read_or_refuse(env)
        assert payloads_or_none in (payloads, None)
        if payloads_or_none:
            assert env.contents(path)[offset] == mask  # in the zeros between two blocks
        env.corrupt(path, offset, mask)
    assert read(env, "/ltds") == payloads


@pytest.mark.promise(10)
def test_cut_missing_and_foreign_files() -> None:
    """No file, a cut file, another store's, another id's: each is named and refused."""
    env = SimEnv()
    env.make_directory("/ltds")
    with pytest.raises(StoreCorrupt, match="missing"):
        read(env, "/ltds")
    size = write(env, "/ltds", payloads_of(1500)).bytes
    with pytest.raises(StoreCorrupt, match="in store fedcba9876543210"):
        LtdsReader(env, "/ltds", LTDS_ID, STORE_ID + 1)
    env.rename(path_of("/ltds", LTDS_ID), path_of("/ltds", 9))
    with pytest.raises(StoreCorrupt, match="is of file 0000000000001234"):
        read(env, "/ltds", 9)
    env.rename(path_of("/ltds", 9), path_of("/ltds", LTDS_ID))
    for length in (size - 1, size - PAGE_BYTES, 2 * PAGE_BYTES, PAGE_BYTES, 100, 0):
        env.open_file(path_of("/ltds", LTDS_ID)).truncate(length)
        with pytest.raises(StoreCorrupt, match="not finished"):
            read(env, "/ltds")


@codecs
@pytest.mark.promise(10)
def test_a_forged_directory_is_refused(rng: Random, rounds: int, codec: Compression) -> None:
    """Garbage in the directory under right checksums is refused, or harms nothing."""
    env = SimEnv()
    env.make_directory("/ltds")
    payloads = payloads_of(1500)
    write(env, "/ltds", payloads, codec=codec)
    path = path_of("/ltds", LTDS_ID)
    whole = env.contents(path)
    trailer = list(TRAILER.unpack(whole[-PAGE_BYTES:]))
    file = env.open_file(path)
    for _ in range(2 * rounds):
        forged = list(trailer)
        forged[rng.randrange(7, len(forged))] = rng.choice(
            [0, 1, 4096, rng.getrandbits(64), (1 << 64) - 1]
        )
        file.write(len(whole) - PAGE_BYTES, seal(TRAILER.pack(*forged)))
        assert read_or_refuse(env) in (payloads, None)


def test_newer_files_are_refused_as_such() -> None:
    """A version that is not known asks for a newer release."""
    env = SimEnv()
    env.make_directory("/ltds")
    write(env, "/ltds", [b"x"])
    page = list(HEADER.unpack(env.contents(path_of("/ltds", LTDS_ID))[:PAGE_BYTES]))
    page[2] = VERSION + 1
    env.open_file(path_of("/ltds", LTDS_ID)).write(0, seal(HEADER.pack(*page)))
    with pytest.raises(StoreVersion, match="newer"):
        read(env, "/ltds")


def test_bytes_of_the_format() -> None:
    """Header, trailer and directory do not change."""
    env = SimEnv()
    env.make_directory("/ltds")
    assert write(env, "/ltds", [b"payload"]).bytes == 4 * PAGE_BYTES
    pages = env.contents(path_of("/ltds", LTDS_ID))
    golden = [pages[at : at + 96].hex() for at in range(0, 4 * PAGE_BYTES, PAGE_BYTES)]
    assert golden == GOLDEN


GOLDEN = [
    (
        "04096b2e35bb2ccf514c54445348445201000000000000003412000000000000"
        "1032547698badcfe000000000000000000000000000000000000000000000000"
        "0000000000000000000000000000000000000000000000000000000000000000"
    ),
    (
        "8ea31c2f20c0ab3051424c4b0100000000000000010000005000000000000000"
        "0700000000000000000000000000000000000000000000000000000000000000"
        "00000000070000007061796c6f61640000000000000000000000000000000000"
    ),
    (
        "0010000000000000000000000000000050000000010000008ea31c2f20c0ab30"
        "5000000000000000000000000000000000000000000000000000000000000000"
        "0000000000000000000000000000000000000000000000000000000000000000"
    ),
    (
        "76f7bb618feffbfd514c544453454e4401000000000000003412000000000000"
        "1032547698badcfe010000000000000001000000000000000700000000000000"
        "170000000000000000200000000000006e4935ae4f6329b20000000000000000"
    ),
]
