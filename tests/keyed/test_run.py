"""A run of a keyed state: its bytes, what is found in it, and what damage does."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from quire.errors import StoreCorrupt, StoreVersion
from quire.keyed import key_hash
from quire.keyed.format import LAST_HASH, NEVER, TRAILER
from quire.keyed.key_hash import hashes_of
from quire.keyed.keyed_rows import KeyedRows, newest_of
from quire.keyed.open_runs import run_in_memory
from quire.keyed.row_layout import RowLayout, layout_of
from quire.keyed.run import KeyedRun
from quire.keyed.run_writer import RunWriter, seal_trailer
from tests.kit.limits import Limits

WORDS = "k string not null, n bigint, ok boolean, t binary, at date"
RUN_ID = 0xABCD

# Written by version 1, and read by all later ones: three rows of "k string not null, n int".
GOLDEN = (
    "fe0c8b2ac12f8921ffffffffffffff7f000000000102070000000000000000003f84d8441c0b5a5700401e18"
    "240a06000700000000020100000000000000000064656c65746564621f4e961eb632c6e6ffffffffffffff7f"
    "0000000000000100000001000000000061000000000000000000000000000000a3a20cae335b40d148000000"
    "0200000048000000000000006b4bdeee6e1fdc01280000000100000090044281200004c06b20737472696e67"
    "206e6f74206e756c6c2c206e20696e7418177bd10c0024995152554e0100013fcdab00000000000003000000"
    "0000000001000000000000000000000000000000ffffffffffffffff02000000000000004001000000000000"
    "70000000000000001b90299b84c842e7180000002000000000401e18240a0600080000000000000000000000"
    "000000000000000000000000"
)  # fmt: skip


def rows_of(keys: list[str], layout: RowLayout, tag: int = 0) -> KeyedRows:
    """Rows of these keys; every fifth is deleted, every third has nulls."""
    count = len(keys)
    some = [None if number % 3 == 0 else number + tag for number in range(count)]
    columns = [
        pa.array(keys),
        pa.array(some, pa.int64()),
        pa.array([None if n is None else n % 2 == 0 for n in some]),
        pa.array([None if n is None else b"%d" % n * (n % 7) for n in some]),
        pa.array(some, pa.int32()).cast(pa.date32()),
    ]
    deleted = np.arange(count) % 5 == 4
    expires = np.where(np.arange(count) % 4 == 1, 1000 + tag, NEVER).astype(np.int64)
    timers = np.where(np.arange(count) % 3 == 0, 500 - np.arange(count) // 2, NEVER)
    timers = np.where(deleted | (not layout.timed), NEVER, timers)
    batch = pa.RecordBatch.from_arrays(columns, schema=layout.schema)
    return KeyedRows(hashes_of([columns[0]]), expires, deleted, timers, batch)


def written(rows: KeyedRows, layout: RowLayout, parts: int = 1) -> bytes:
    """A run of the rows, which are added in so many parts."""
    data = bytearray()
    writer = RunWriter(data.extend, layout, RUN_ID, len(rows.hashes) * 60, len(rows.hashes))
    step = -(-len(rows.hashes) // parts)
    for start in range(0, len(rows.hashes), step):
        writer.add(rows.slice(start, min(start + step, len(rows.hashes))))
    info = writer.finish()
    assert (info.bytes, info.rows) == (len(data), len(rows.hashes))
    return bytes(data)


class _Pieced:
    """Bytes that are not kept: each piece is read when it is looked for."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.reads: list[tuple[int, int]] = []

    def read(self, offset: int, length: int) -> bytes:
        self.reads.append((offset, length))
        return self.data[offset : offset + length]

    def expect_several(self, places: Sequence[tuple[int, int]]) -> None:
        """Do nothing."""

    def read_several(self, places: Sequence[tuple[int, int]]) -> list[bytes]:
        return [self.read(*place) for place in places if place[1]]


def plain(rows: KeyedRows) -> list[tuple[Any, ...]]:
    """The rows as values."""
    values = [tuple(row.values()) for row in rows.batch.to_pylist()]
    return list(zip(values, rows.deleted.tolist(), rows.expires.tolist(), strict=True))


@pytest.mark.parametrize("count", [1, 7, 500])
@pytest.mark.parametrize("parts", [1, 3])
def test_rows_are_found_as_they_were_written(limits: Limits, count: int, parts: int) -> None:
    """All columns, nulls, times and deletions; by key, by ranges of hashes; no other key (KW1)."""
    limits(PIECE_BYTES=200, SPAN_BYTES=300, KEYS_AT_ONCE=50)
    layout = layout_of(WORDS, 1)
    keys = [f"key {number}" for number in range(count)]
    rows = newest_of([rows_of(keys, layout)], 1)
    data = written(rows, layout, parts)
    assert data == written(rows, layout)
    for run in (
        KeyedRun(_Pieced(data), len(data), RUN_ID, "it"),
        run_in_memory(data, RUN_ID, "it"),
    ):
        assert plain(run.between(0, LAST_HASH)) == plain(rows)
        middle = LAST_HASH // 3
        halves = [run.between(0, middle), run.between(middle + 1, LAST_HASH)]
        assert [row for half in halves for row in plain(half)] == plain(rows)
        asked = pa.array(["none", *keys[::-1], "no key"])
        found = run.find(hashes_of([asked]), [asked], np.arange(len(asked)))
        assert found is not None
        by_key = {row[0][0]: row for row in plain(rows)}
        assert {asked[i].as_py() for i in found.wanted} == set(keys)
        shown = zip(found.wanted.tolist(), plain(found.rows), strict=True)
        assert all(row == by_key[asked[place].as_py()] for place, row in shown)
        others = pa.array(["none", "no key"])
        assert run.find(hashes_of([others]), [others], np.arange(2)) is None


def test_a_look_reads_the_pieces_of_its_keys_only(limits: Limits) -> None:
    """Trailer and index once, then a piece for each key (KR2)."""
    limits(PIECE_BYTES=200)
    layout = layout_of(WORDS, 1)
    rows = newest_of([rows_of([f"key {number}" for number in range(500)], layout)], 1)
    source = _Pieced(written(rows, layout))
    run = KeyedRun(source, len(source.data), RUN_ID, "it")
    assert len(source.reads) == 2
    source.reads.clear()
    asked = pa.array(["key 7", "key 300"])
    assert run.find(hashes_of([asked]), [asked], np.arange(2)) is not None
    assert len(source.reads) == 2
    assert all(0 < length < 1000 for _, length in source.reads)


def test_keys_of_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hash finds candidates, the key decides: in a run, and where the newest row is chosen."""
    monkeypatch.setattr(key_hash, "checksum", lambda key: len(key) << 60)
    layout = layout_of(WORDS, 1)
    keys = [f"{number:03}" for number in range(40)] + [f"{number}" for number in range(9)]
    older = rows_of(keys, layout)
    newer = rows_of(keys[5:20] + keys[41:45], layout, tag=1000)
    rows = newest_of([newer, older], 1)
    assert len(rows.hashes) == len(keys)
    run = run_in_memory(written(rows, layout), RUN_ID, "it")
    asked = pa.array([*keys, "xyz", "x"])
    found = run.find(hashes_of([asked]), [asked], np.arange(len(asked)))
    assert found is not None
    by_key = {row[0][0]: row for row in [*plain(older), *plain(newer)]}
    shown = {row[0][0]: row for row in plain(found.rows)}
    assert shown == by_key
    assert [asked[i].as_py() for i in found.wanted] == found.rows.batch["k"].to_pylist()


def test_keys_of_several_columns(limits: Limits) -> None:
    """A text is not taken for the one beside it, and columns of all kinds are keys."""
    layout = layout_of("a string not null, b binary not null, c int not null, v int", 3)
    values = [("ab", b"c", 1), ("a", b"bc", 1), ("", b"abc", 1), ("ab", b"c", 2)]
    columns = [pa.array(each) for each in zip(*values, strict=True)]
    columns[2] = columns[2].cast(pa.int32())
    hashes = hashes_of(columns)
    assert len(set(hashes.tolist())) == 4
    batch = pa.RecordBatch.from_arrays(
        [*columns, pa.array([1, 2, 3, 4], pa.int32())], layout.schema.names
    )
    rows = KeyedRows(
        hashes,
        np.full(4, NEVER),
        np.zeros(4, np.bool_),
        np.full(4, NEVER),
        batch.cast(layout.schema),
    )
    run = run_in_memory(written(newest_of([rows], 3), layout), RUN_ID, "it")
    for number in range(4):
        asked = [column.slice(number, 1) for column in columns]
        found = run.find(hashes_of(asked), asked, np.arange(1))
        assert found is not None
        assert found.rows.batch["v"].to_pylist() == [number + 1]


@pytest.mark.promise(10)
def test_damage_is_found_and_named(limits: Limits, rng: Random) -> None:
    """Whatever byte is changed, it is an error with the run's name, and no row is wrong (KR1)."""
    limits(PIECE_BYTES=200)
    layout = layout_of(WORDS, 1)
    keys = [f"key {number}" for number in range(60)]
    rows = newest_of([rows_of(keys, layout)], 1)
    data = written(rows, layout)
    asked = pa.array(keys)
    places = [*range(len(data) - TRAILER.size, len(data)), *rng.sample(range(len(data)), 200)]
    for place in places:
        bad = bytearray(data)
        bad[place] ^= 1 << rng.randrange(8)
        with pytest.raises((StoreCorrupt, StoreVersion), match="run it"):
            KeyedRun(_Pieced(bytes(bad)), len(bad), RUN_ID, "run it").find(
                hashes_of([asked]), [asked], np.arange(len(asked))
            )
    for size in rng.sample(range(len(data)), 20):
        with pytest.raises(StoreCorrupt, match="run it"):
            KeyedRun(_Pieced(data[:size]), len(data), RUN_ID, "run it")


def test_another_run_is_refused() -> None:
    """One with another id, of another size, or of a newer release (KR1)."""
    layout = layout_of(WORDS, 1)
    data = written(newest_of([rows_of(["a", "b"], layout)], 1), layout)
    with pytest.raises(StoreCorrupt, match="it is run 000000000000abcd"):
        run_in_memory(data, RUN_ID + 1, "it")
    with pytest.raises(StoreCorrupt, match="trailer"):
        run_in_memory(data + bytes(8), RUN_ID, "it")
    fields = list(TRAILER.unpack(data[-TRAILER.size :]))
    fields[2] += 1
    newer = data[: -TRAILER.size] + seal_trailer(TRAILER.pack(*fields))
    with pytest.raises(StoreVersion, match="use a newer one"):
        run_in_memory(newer, RUN_ID, "it")


@pytest.mark.promise(10)
def test_the_format_stays() -> None:
    """A run that version 1 wrote is read, and written again byte for byte."""
    layout = layout_of("k string not null, n int", 1)
    columns = [pa.array(["a", "b", "deleted"]), pa.array([1, None, None], pa.int32())]
    batch = pa.RecordBatch.from_arrays(columns, schema=layout.schema)
    expires = np.array([NEVER, 1_700_000_000_000_000, NEVER])
    never = np.full(3, NEVER)
    deleted = np.array([False, False, True])
    rows = KeyedRows(hashes_of(columns[:1]), expires, deleted, never, batch)
    rows = newest_of([rows], 1)
    assert written(rows, layout).hex() == GOLDEN
    run = run_in_memory(bytes.fromhex(GOLDEN), RUN_ID, "golden")
    assert plain(run.between(0, LAST_HASH)) == plain(rows)
