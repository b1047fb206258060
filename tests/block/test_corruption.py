"""Damaged, foreign and forged bytes: an error that names the place, never a wrong message."""

from __future__ import annotations

import struct
from random import Random

import pytest

from quire.block import BlockBuilder, encode_one
from quire.block.format import CHECKSUM, CHECKSUM_BYTES, section_count
from quire.checksum import checksum
from quire.errors import StoreCorrupt, StoreVersion
from quire.messages.message import Message
from quire.messages.message_fields import Fields
from quire.rows.open_block import open_block, verified_block


def rich_block() -> bytes:
    """A small block with every column that a put can set, some rows absent."""
    builder = BlockBuilder()
    builder.add(b"plain")
    builder.add(
        b"full",
        Fields(
            priority=1,
            group=2,
            sender="é",
            correlation_id="b",
            reply_to="c",
            content_type="d",
            expires_at=3,
            deliver_at=4,
            attributes={"k": "v", "ü": ""},
        ),
    )
    builder.add(b"", Fields(sender="third"))
    return bytes(builder.build(1 << 20)[0].data)


def forged(data: bytes, offset: int, change: bytes) -> bytes:
    """The block with other bytes at a place, and the checksum made right again."""
    changed = bytearray(data)
    changed[offset : offset + len(change)] = change
    CHECKSUM.pack_into(changed, 0, checksum(bytes(changed[CHECKSUM_BYTES:])))
    return bytes(changed)


@pytest.mark.promise(10)
@pytest.mark.parametrize("data", [bytes(encode_one(b"payload")), rich_block()], ids=["one", "rich"])
def test_every_flipped_bit_is_found(data: bytes) -> None:
    """No single flipped bit of a block goes unseen, padding included."""
    verified_block(data, "here")
    for place in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[place // 8] ^= 1 << place % 8
        with pytest.raises(StoreCorrupt, match="over there"):
            verified_block(damaged, "over there")


@pytest.mark.promise(10)
def test_every_cut_is_found() -> None:
    """A block that lacks its end is not read."""
    data = rich_block()
    for length in range(len(data)):
        with pytest.raises(StoreCorrupt, match="over there"):
            verified_block(data[:length], "over there")


def test_bytes_after_the_block_are_ignored() -> None:
    """A block knows its own length."""
    block = verified_block(encode_one(b"payload") + b"more", "here")
    assert block.payloads() == [b"payload"]


@pytest.mark.promise(10)
def test_forged_blocks_never_read_out_of_bounds(rng: Random, rounds: int) -> None:
    """Garbage under a right checksum is refused, or is a block whose every message can be read."""
    data = rich_block()
    for _ in range(40 * rounds):
        offset = rng.randrange(12, len(data) - 3)
        change = rng.choice(
            [
                rng.randbytes(1),
                rng.randbytes(4),
                struct.pack("<i", rng.randint(-9, 40)),
                b"\xff\xff\xff\xff",
                b"\xff\xff\xff\x7f",
            ]
        )
        candidate = forged(data, offset, change)[: len(data)]
        try:
            block = verified_block(candidate, "forged")
        except (StoreCorrupt, StoreVersion):
            continue
        for row in range(block.count):
            block.message(row, queue="q", first_id=0, time_us=0, delivery_count=1)
        batch = block.to_arrow(queue="q", first_id=0, time_us=0, delivery_count=1)
        batch.validate(full=True)


def test_one_message_of_a_forged_block_is_refused_or_read_as_it_is_there(
    rng: Random, rounds: int
) -> None:
    """BL1: what one message alone says lies in the block; where all is right it is the same."""
    data = rich_block()
    for turn in range(40 * rounds):
        offset = rng.randrange(12, len(data) - 3)
        change = rng.choice(
            [rng.randbytes(1), rng.randbytes(4), struct.pack("<i", rng.randint(-9, 40))]
        )
        candidate = forged(data, offset, change)[: len(data)] if turn else data
        said: list[object] = []
        for parse in (verified_block, open_block):
            try:
                whole = parse(candidate, "forged")
                row = turn % whole.count
                message = whole.message(row, queue="q", first_id=7, time_us=3, delivery_count=1)
                said.append(message)
            except (StoreCorrupt, StoreVersion) as error:
                said.append(type(error))
        if isinstance(said[0], Message):
            assert said[0] == said[1]
        elif isinstance(said[1], Message):
            block = open_block(candidate, "forged")  # another message, or what is between, is wrong
            with pytest.raises((StoreCorrupt, StoreVersion)):
                block.look()


def test_what_is_looked_at_later_is_refused_then() -> None:
    """BL1: an opened block whose offsets fall is refused when they are asked for."""
    data = rich_block()
    block = open_block(data, "here")
    whole = verified_block(data, "here")
    assert block.headers.fixed.keys() == whole.headers.fixed.keys()
    assert block.offsets.tolist() == whole.offsets.tolist()
    assert block.payloads() == whole.payloads()
    with pytest.raises(AttributeError):
        _ = block.nothing
    sections = 64 + 8 * section_count(whole.columns)
    wrong = open_block(forged(data, sections, struct.pack("<i", 99))[: len(data)], "there")
    with pytest.raises(StoreCorrupt, match="there"):
        wrong.payloads()
    with pytest.raises(StoreCorrupt, match="there"):
        wrong.look()


@pytest.mark.parametrize(
    ("offset", "change"), [(12, b"\x04"), (14, b"\x01"), (18, b"\x01")], ids=str
)
def test_newer_blocks_are_refused_as_such(offset: int, change: bytes) -> None:
    """An unknown version, flag or column is not damage: the message asks for a newer release."""
    with pytest.raises(StoreVersion, match=r"here.*newer"):
        verified_block(forged(bytes(encode_one(b"payload")), offset, change), "here")
