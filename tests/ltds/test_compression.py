"""Compressed files of large transactions: what is compressed, what is refused, what is bounded."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pytest

from quire.block import BlockBuilder
from quire.checksum import checksum
from quire.errors import InvalidArgument, StoreCorrupt, StoreVersion
from quire.ltds import Compression, LtdsReader, LtdsWriter, codec_named, path_of
from quire.ltds.files import seal
from quire.ltds.format import (
    HEADER,
    PAGE_BYTES,
    PLAIN_BYTES_PER_PAGE,
    TRAILER,
    entry_type,
)
from quire.testing import SimEnv

STORE_ID = 77
LTDS_ID = 5
PATH = path_of("/ltds", LTDS_ID)

compressed = pytest.mark.parametrize(
    "codec", [Compression.ZSTD, Compression.LZ4], ids=["zstd", "lz4"]
)


def written(payloads: list[bytes], codec: Compression, block_bytes: int = 1 << 20) -> SimEnv:
    """A machine with a finished file of the payloads."""
    env = SimEnv()
    env.make_directory("/ltds")
    writer = LtdsWriter(env, "/ltds", STORE_ID, LTDS_ID, codec)
    builder = BlockBuilder()
    builder.add_many(payloads)
    writer.append(builder.blocks(block_bytes))
    writer.finish()
    return env


def opened(env: SimEnv) -> LtdsReader:
    """The file, open."""
    return LtdsReader(env, "/ltds", LTDS_ID, STORE_ID)


def read(env: SimEnv) -> list[bytes]:
    """All payloads of the file."""
    with opened(env) as reader:
        return [payload for block, _ in reader for payload in block.payloads()]


def forge_directory(env: SimEnv, **fields: int) -> None:
    """Fields of the first entry changed, under right checksums."""
    whole = env.contents(PATH)
    trailer = list(TRAILER.unpack(whole[-PAGE_BYTES:]))
    count, place = trailer[7], trailer[11]
    entries = np.frombuffer(whole, entry_type(), count, place).copy()
    for name, value in fields.items():
        entries[name][0] = value
    trailer[12] = checksum(entries.tobytes())
    file = env.open_file(PATH)
    file.write(place, entries.tobytes())
    file.write(len(whole) - PAGE_BYTES, seal(TRAILER.pack(*trailer)))


@compressed
def test_what_can_be_compressed_takes_less(codec: Compression) -> None:
    """Text takes a small part of its size; the sums are those of the messages, not of the disk."""
    payloads = [b'{"number": %d, "name": "a name"}' % n for n in range(50_000)]
    env = written(payloads, codec)
    size = sum(map(len, payloads))
    with opened(env) as reader:
        assert reader.codec is codec
        assert reader.bytes < size / 3
        assert (reader.count, reader.payload_bytes) == (len(payloads), size)
        assert reader.charge_bytes == size + 16 * len(payloads)
    assert read(env) == payloads


@compressed
def test_what_cannot_be_compressed_is_stored_as_it_is(codec: Compression, rng: Random) -> None:
    """Random bytes take no more than without compression."""
    payloads = [rng.randbytes(5000) for _ in range(500)]
    env = written(payloads, codec)
    with opened(env) as reader, opened(written(payloads, Compression.NONE)) as plain:
        assert reader.bytes == plain.bytes
        assert [len(reader.stored(n)) for n in range(reader.block_count)] == [
            block.length for block, _ in reader
        ]
    assert read(env) == payloads


@compressed
def test_compressed_and_other_blocks_in_one_file(codec: Compression, rng: Random) -> None:
    """Each block is as small as it can be, and each can be read without the others."""
    payloads = [b"x" * 60_000, rng.randbytes(60_000), b"y" * 60_000, b"small"]
    env = written(payloads, codec, block_bytes=61_000)
    with opened(env) as reader:
        lengths = [len(reader.stored(number)) for number in range(reader.block_count)]
        assert lengths[0] < PAGE_BYTES < 60_000 < lengths[1]
        assert lengths[2] < PAGE_BYTES
        for index in (2, 0, 3, 1):
            block, first = reader.block_at(reader.locate(index))
            assert block.payloads(index - first, index - first + 1) == [payloads[index]]


@pytest.mark.promise(9)
def test_a_page_never_becomes_more_than_a_mebibyte() -> None:
    """A message that would compress more than 256-fold is stored as it is, once it is large."""
    env = written([b"\0" * (1 << 20), b"\0" * (8 << 20)], Compression.ZSTD)
    with opened(env) as reader:
        lengths = [len(reader.stored(number)) for number in range(2)]
        assert lengths[0] > PLAIN_BYTES_PER_PAGE  # the block's header makes it a little more
        assert lengths[1] > 8 << 20
    assert read(written([b"\0" * 1_000_000], Compression.ZSTD)) == [b"\0" * 1_000_000]
    assert opened(written([b"\0" * 1_000_000], Compression.ZSTD)).bytes == 4 * PAGE_BYTES


@compressed
@pytest.mark.promise(9, 10)
def test_a_forged_length_allocates_nothing(codec: Compression) -> None:
    """What the directory claims is bounded by what lies on the disk, before memory is taken."""
    payloads = [b"%05d" % n * 20 for n in range(500)]
    for plain_length in (0, 1, 1 << 20, (1 << 20) + 1, 1 << 31, (1 << 32) - 1):
        env = written(payloads, codec, block_bytes=12_000)
        forge_directory(env, plain_length=plain_length)
        before = pa.default_memory_pool().max_memory()
        with pytest.raises(StoreCorrupt, match=PATH):
            read(env)
        assert pa.default_memory_pool().max_memory() <= before + (2 << 20)
    for field in ("length", "reserved", "checksum", "count", "first_index", "offset"):
        env = written(payloads, codec, block_bytes=12_000)
        forge_directory(env, **{field: 1})
        with pytest.raises(StoreCorrupt, match=PATH):
            read(env)


@compressed
@pytest.mark.promise(10)
def test_garbage_under_a_right_checksum_is_refused(
    codec: Compression, rng: Random, rounds: int
) -> None:
    """Stored bytes that were changed before their checksum was made: an error, nothing else."""
    payloads = [b"%05d" % n * 20 for n in range(500)]
    for _ in range(4 * rounds):
        env = written(payloads, codec, block_bytes=12_000)
        with opened(env) as reader:
            stored = bytearray(reader.stored(0))
        stored[rng.randrange(len(stored))] ^= 1 << rng.randrange(8)
        file = env.open_file(PATH)
        file.write(PAGE_BYTES, bytes(stored))
        forge_directory(env, checksum=checksum(bytes(stored)))
        try:
            assert read(env) == payloads  # what changed means nothing to the codec
        except StoreCorrupt as error:
            assert PATH in str(error)  # noqa: PT017


def test_unknown_codecs_are_refused_as_such() -> None:
    """A file of a codec that is not known asks for a newer release; a contradiction is damage."""
    for codec, content, error in (
        (3, 0, StoreVersion), (65535, 0, StoreVersion), (1, 2, StoreVersion), (1, 1, StoreCorrupt),
        (0, 0, StoreCorrupt), (2, 0, StoreCorrupt),
    ):  # fmt: skip
        env = written([b"x" * 10_000], Compression.ZSTD)
        page = list(HEADER.unpack(env.contents(PATH)[:PAGE_BYTES]))
        page[3:5] = codec, content
        env.open_file(PATH).write(0, seal(HEADER.pack(*page)))
        with pytest.raises(error, match=PATH):
            read(env)


def test_names_of_codecs() -> None:
    """None, "zstd" and "lz4"; anything else is refused, and says which there are."""
    assert [codec_named(name) for name in (None, "zstd", "lz4")] == list(Compression)
    for name in ("gzip", "ZSTD", "", 1, True, b"zstd"):
        with pytest.raises(InvalidArgument, match="'zstd' or 'lz4'"):
            codec_named(name)


def test_the_codec_is_a_field() -> None:
    """All files have one layout, compressed or not."""
    for codec in Compression:
        env = written([b"x"], codec)
        for page, layout in ((0, HEADER), (-PAGE_BYTES, TRAILER)):
            whole = env.contents(PATH)[page:]
            assert layout.unpack(whole[:PAGE_BYTES])[2:5] == (1, codec, 0)
