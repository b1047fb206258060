"""Some columns of a block of rows, read without the others."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from quire.block.format import CHECKSUM, CHECKSUM_BYTES, HEAD_CHECKSUM_AT, HEADER_BYTES
from quire.checksum import checksum
from quire.definitions.row_schema import schema_of_words
from quire.errors import StoreCorrupt
from quire.rows.open_block import verified_block
from quire.rows.row_block import RowBlock, head_bytes
from quire.rows.row_builder import RowBuilder
from quire.rows.row_input import rows_of
from quire.rows.row_part import read_columns

WORDS = (
    "id bigint not null, name string, none double, tags array<string>, sizes map<string, int>, "
    "place struct<x: int, y: string>, is_new boolean, raw binary, amount double"
)
ROWS = 3000


def large_block(words: str = WORDS) -> bytes:
    """A block with checksums of its columns. `none` is null in all rows; others in some."""
    rows = [
        {
            "id": row,
            "name": None if row % 7 == 0 else f"ä{row}" * (row % 3),
            "tags": ["a"] * (row % 3),
            "sizes": [("s", row)] if row % 2 else None,
            "place": {"x": row, "y": "here"},
            "is_new": row % 5 == 0,
            "raw": bytes(row % 20),
            "amount": row / 3,
        }
        for row in range(ROWS)
    ]
    builder = RowBuilder()
    for each in rows_of(words, rows):
        builder.add(each)
    [block] = builder.build(1 << 24)
    return bytes(block.data)


class Reads:
    """A block's bytes, and which of them were read."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.places: set[int] = set()
        self.head = memoryview(data)[: head_bytes(memoryview(data))]

    def __call__(self, offset: int, size: int) -> bytes:
        self.places.update(range(offset, offset + size))
        return self.data[offset : offset + size]

    def columns(self, names: Sequence[str]) -> RowBlock | None:
        """What is read of the columns."""
        return read_columns(self.head, names, self)


@pytest.fixture(scope="module")
def data() -> bytes:
    """Of such a block."""
    return large_block()


@pytest.mark.parametrize("name", schema_of_words(WORDS).names)
def test_a_column_is_read_alone(data: bytes, name: str) -> None:
    """With the values that the whole block has, and few bytes of it."""
    whole = verified_block(data, "here")
    assert isinstance(whole, RowBlock)
    reads = Reads(data)
    block = reads.columns([name])
    assert block is not None
    assert block.rows.equals(whole.rows.select([name]))
    assert (block.count, block.checksum, block.length) == (ROWS, whole.checksum, len(data))
    assert len(reads.places) < len(data) / 2


def test_several_columns_and_others(data: bytes) -> None:
    """In the block's order; one that it does not have is left out; most of them take the whole."""
    block = Reads(data).columns(["amount", "id", "later"])
    assert block is not None
    assert block.rows.schema.names == ["id", "amount"]
    nothing = Reads(data).columns(["later"])
    assert nothing is not None
    assert (nothing.count, nothing.rows.num_columns) == (ROWS, 0)
    assert Reads(data).columns(schema_of_words(WORDS).names) is None


@pytest.mark.cases(2)
@pytest.mark.promise(10)
def test_damage_where_is_read_is_found(data: bytes, request: pytest.FixtureRequest) -> None:
    """Of head and column: then nothing is returned, and the block as a whole is refused."""
    rng = Random(f"columns {request.config.getoption('--seed')}")
    reads = Reads(data)
    block = reads.columns(["name"])
    assert block is not None
    looked_at = sorted(reads.places | set(range(CHECKSUM_BYTES, len(reads.head))))
    others = sorted(set(range(CHECKSUM_BYTES, len(data))).difference(looked_at))
    for place in [*rng.sample(looked_at, 300), *looked_at[:64], *rng.sample(others, 100)]:
        damaged = bytearray(data)
        damaged[place] ^= 1 << rng.randrange(8)
        with pytest.raises(StoreCorrupt):
            verified_block(damaged, "here")
        found = Reads(bytes(damaged))
        found.head = memoryview(damaged)[: len(reads.head)]
        again = found.columns(["name"])
        if place in others:
            assert again is not None
            assert again.rows.equals(block.rows)
        else:
            assert again is None


@pytest.mark.promise(10)
def test_forged_heads_are_refused_or_right(data: bytes, request: pytest.FixtureRequest) -> None:
    """A head whose checksum matches garbage: nothing, or the same rows; never a crash."""
    rng = Random(f"heads {request.config.getoption('--seed')}")
    end = head_bytes(memoryview(data))
    whole = Reads(data).columns(["name"])
    assert whole is not None
    refused = 0
    for _ in range(300):
        changed = bytearray(data)
        place = rng.choice([rng.randrange(8, HEAD_CHECKSUM_AT), rng.randrange(HEADER_BYTES, end)])
        change = rng.choice([rng.randbytes(1), rng.randbytes(8), bytes(4)])[: end - place]
        changed[place : place + len(change)] = change
        head = bytes(changed[CHECKSUM_BYTES:HEAD_CHECKSUM_AT] + changed[HEADER_BYTES:end])
        CHECKSUM.pack_into(changed, HEAD_CHECKSUM_AT, checksum(head))
        reads = Reads(data)
        reads.data, reads.head = bytes(changed), memoryview(changed)[:end]
        found = reads.columns(["name"])
        if found is None:
            refused += 1
        elif "name" in found.rows.schema.names:  # a head may give the column another name
            assert found.rows.column("name").equals(whole.rows.column("name"))
    assert refused > 30


def test_a_short_read_is_no_column(data: bytes) -> None:
    """A file that ends inside the block."""
    reads = Reads(data)
    reads.data = data[: len(data) // 8]
    assert reads.columns(["amount"]) is None


def test_small_blocks_have_none() -> None:
    """Nor do those with many columns of few bytes."""
    builder = RowBuilder()
    [rows] = rows_of("id bigint, n int", pa.table({"id": np.arange(100), "n": np.arange(100)}))
    builder.add(rows)
    [block] = builder.build(1 << 20)
    assert Reads(bytes(block.data)).columns(["n"]) is None
