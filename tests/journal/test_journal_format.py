"""The journal's bytes, spelled out: they are a promise to stores that exist."""

from __future__ import annotations

import struct

import pytest
import xxhash

from quire.errors import InvalidArgument
from quire.journal import Journal, pack_record
from quire.journal.format import checked_geometry, succeeds
from quire.testing import SimEnv

STORE = 0x1122334455667788


@pytest.fixture
def env() -> SimEnv:
    """A simulated machine with a directory /store."""
    env = SimEnv(seed=3)
    env.make_directory("/store")
    return env


def create(env: SimEnv) -> Journal:
    """An empty journal."""
    return Journal.create(
        env, "/store/journal", store_id=STORE, segment_bytes=65536, page_size=4096
    )


def test_segment_header_bytes(env: SimEnv) -> None:
    """Page 0 holds the 64 bytes of the table, the rest of it is zero."""
    create(env).close()
    page = env.contents("/store/journal/0000000000000000.log")[:4096]
    digest, magic, version, flags, page_size, reserved, segment_bytes, store, base, _, last = (
        struct.unpack_from("<Q4sHHIIQQQQQ", page)
    )
    assert (magic, version, flags, reserved, last) == (b"QJSG", 1, 0, 0, 0)
    assert (page_size, segment_bytes, store, base) == (4096, 65536, STORE, 0)
    assert digest == xxhash.xxh3_64_intdigest(page[8:64])
    assert not any(page[64:])


def test_group_and_record_bytes(env: SimEnv) -> None:
    """A group is its header, its records at multiples of 8, and zeros up to the page's end."""
    journal = create(env)
    address = journal.write_group([pack_record(7, 99, b"abc"), pack_record(8, 100, b"")])
    assert address == 8192 + 64
    page = env.contents("/store/journal/0000000000000000.log")[8192:12288]
    fields = struct.unpack_from("<Q4sHHQQQQIIQ", page)
    assert fields == (
        xxhash.xxh3_64_intdigest(page[8:104]),
        b"QJGR",
        1,
        0,
        journal.generation,
        STORE,
        8192,
        4096,
        40,
        2,
        0,
    )
    assert page[64:104] == (
        struct.pack("<IHHQ", 19, 7, 0, 99) + b"abc" + bytes(5) + struct.pack("<IHHQ", 16, 8, 0, 100)
    )
    assert not any(page[104:])


def test_generation_record_bytes(env: SimEnv) -> None:
    """The first group of an open is one record of kind 0 with the generation (J5)."""
    journal = create(env)
    page = env.contents("/store/journal/0000000000000000.log")[4096:8192]
    assert struct.unpack_from("<IHHQQ", page, 64) == (32, 0, 0, 0, journal.generation)
    assert journal.generation >> 32 == 1


def test_padding_is_zero_after_a_larger_group(env: SimEnv) -> None:
    """Nothing of an earlier group shows in the padding of a later one."""
    journal = create(env)
    journal.write_group([pack_record(1, 1, b"\xff" * 9000)])
    lsn = journal.end_lsn
    journal.write_group([pack_record(1, 2, b"x"), pack_record(1, 3, b"y")])
    page = env.contents("/store/journal/0000000000000000.log")[lsn : lsn + 4096]
    assert page.rstrip(b"\0")[-1:] == b"y"
    assert not any(page[64 + 17 : 64 + 24])


@pytest.mark.parametrize(
    ("segment_bytes", "page_size"),
    [(65536, 2048), (65536, 131072), (65536, 5000), (65537, 4096), (8192, 4096), (1 << 31, 4096)],
)
def test_impossible_sizes_are_refused(env: SimEnv, segment_bytes: int, page_size: int) -> None:
    """Sizes outside the documented ranges are errors, before anything is made."""
    with pytest.raises(InvalidArgument):
        checked_geometry(STORE, segment_bytes, page_size)
    with pytest.raises(InvalidArgument):
        Journal.create(
            env, "/store/j", store_id=1, segment_bytes=segment_bytes, page_size=page_size
        )
    assert not env.exists("/store/j")


def test_order_of_generations() -> None:
    """A generation is followed by itself or by a higher counter, whatever the random halves."""
    assert succeeds(5 << 32 | 9, 5 << 32 | 9)
    assert succeeds(6 << 32 | 1, 5 << 32 | 9)
    assert not succeeds(5 << 32 | 10, 5 << 32 | 9)
    assert not succeeds(4 << 32 | 10, 5 << 32 | 9)
