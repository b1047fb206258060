"""What of a record is shared by all machines, and what is the local tail of one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.engine.records import format
from quire.engine.records.commit_record import CommitRecord
from quire.engine.records.local_tail import mark_of, placed, shared, split
from quire.engine.state.fold import decode, decode_record, prepared_in
from quire.env import Env
from quire.errors import StoreCorrupt, StoreVersion
from quire.journal import (
    KIND_GENERATION,
    RECORD_HEADER,
    RECORD_HEADER_BYTES,
    JournalFinding,
    Record,
    geometry_of,
    list_segments,
    scan,
)
from quire.testing import SimEnv
from tests.engine.workload import PATH, new_machine

OPTIONS: dict[str, Any] = {
    "background": False,
    "inline_limit_bytes": 8192,
    "large_flush_bytes": 1 << 20,
    "data_files": 2,
}


def fill(store: Store) -> None:
    """Records with each kind of part, with and without a tail."""
    store.create_queue("a", kind="work", data_file=0)
    store.create_queue("b", kind="work", data_file=1, dedup_count=9)
    store.create_queue("t", kind="topic")
    store.subscribe("t", "s")
    store.put("a", b"small")
    with store.transaction() as txn:  # on pages of two files
        txn.put_many("a", [b"a%d" % number * 700 for number in range(8)])
        txn.put("b", bytes(30_001), request_id="r")
        txn.put("t", b"topic")
        txn.get("a")
        txn.enter("k", 1)
        txn.set_value("s", "k", b"v")
        txn.seek("t/s", 0)
    with store.transaction(large=True) as txn:
        txn.put_many("a", [b"large"] * 10)
    for xid in ("undecided", "decided"):
        txn = store.transaction()
        txn.put("a", b"prepared")
        txn.put("b", b"prepared too")
        txn.set_value("s", xid, b"held")
        txn.get("a")
        txn.prepare(xid)
    store.prepared.commit("decided")


def records(env: Env, path: str) -> Iterator[tuple[Record, bytes]]:
    """All of the journal, read and as they are."""
    geometry = geometry_of(env, f"{path}/journal")
    oldest = list_segments(env, f"{path}/journal")[0] * geometry.segment_bytes
    for group in scan(env, f"{path}/journal", geometry, restart_lsn=oldest):
        assert not isinstance(group, JournalFinding), group
        for record in group.records():
            if record.kind != KIND_GENERATION:
                length = RECORD_HEADER_BYTES + len(record.body)
                header = RECORD_HEADER.pack(length, record.kind, record.flags, record.sequence)
                yield record, header + record.body


@pytest.fixture(scope="module")
def filled() -> SimEnv:
    """A store's machine; who changes it takes a copy."""
    env = new_machine(7)
    with Store.open(PATH, env=env, **OPTIONS) as store:
        fill(store)
        env = env.kill()
        store.abandon("its machine was copied")
    return env


def test_a_record_is_its_shared_part_and_a_tail(filled: SimEnv) -> None:
    """Cut off and put back it has the same bytes; only blocks on pages need one."""
    tails = []
    for record, whole in records(filled, PATH):
        part = shared(whole)
        said = decode_record(record, "here")
        data = []
        if isinstance(said, CommitRecord):
            data = [each for each in said.parts if each.kind == format.DATA]
        assert bool(record.flags & format.TAIL) == bool(data)
        if not data:
            assert part == whole
            continue
        tails.append(len(data))
        places = [each.address for each in data]
        assert split(record.body, "here", mark_of(record.generation))[1] == tuple(places)
        assert placed(part, places, mark_of(record.generation)) == whole
        assert len(whole) - len(part) == 8 * len(places) + 8
        assert RECORD_HEADER.unpack_from(part)[0] == len(part)
        assert RECORD_HEADER.unpack_from(part)[2] == format.SECTIONS
        with pytest.raises(StoreCorrupt, match="another machine"):
            decode(record.kind, memoryview(part)[RECORD_HEADER_BYTES:], "here", format.SECTIONS)
        elsewhere = placed(part, [place + (5 << 20) for place in places], 99)
        body = memoryview(elsewhere)[RECORD_HEADER_BYTES:]
        moved = decode(record.kind, body, "here", record.flags, 99)
        assert isinstance(moved, CommitRecord)
        assert [each.address for each in moved.parts if each.kind == format.DATA] == [
            place + (5 << 20) for place in places
        ]
        for wrong in (places[:-1], [*places, places[0]]):
            body = memoryview(placed(part, wrong, 99))[RECORD_HEADER_BYTES:]
            with pytest.raises(StoreCorrupt, match="here"):
                decode(record.kind, body, "here", record.flags, 99)
    assert tails == [3, 2, 2]


def fill_with_a_tail_of_another(seed: int) -> SimEnv:
    """A machine in whose journal the last record is another one's, with its tail."""
    env = new_machine(seed)
    with Store.open(PATH, env=env, **OPTIONS) as store:
        fill(store)
        env = env.kill()
        store.abandon("its machine was copied")
    tailed = [whole for record, whole in records(env, PATH) if record.flags & format.TAIL]
    env = new_machine(seed + 1)
    store = Store.open(PATH, env=env, **OPTIONS)
    fill(store)
    store._opened.journal.write_group([tailed[0]])
    env = env.kill()
    store.abandon("its machine has crashed")
    return env


def test_a_tail_of_another_machine_is_no_place(seed: int) -> None:
    """Its mark is another one: the store that finds it in its journal refuses to use it."""
    env = fill_with_a_tail_of_another(seed)
    with pytest.raises(StoreCorrupt, match="another machine's disk"):
        Store.open(PATH, env=env, **OPTIONS)


def test_garbage_and_flags_of_a_newer_release_are_refused(filled: SimEnv) -> None:
    """Whatever count the tail's end says."""
    record, whole = next(pair for pair in records(filled, PATH) if pair[0].flags & format.TAIL)
    for count in (0, 1, 2, 4, 1 << 20, (1 << 32) - 1):
        body = bytes(record.body[:-8]) + format.TAIL_END.pack(count, mark_of(record.generation))
        with pytest.raises(StoreCorrupt, match="here"):
            decode_record(record._replace(body=memoryview(body)), "here")
    with pytest.raises(StoreCorrupt, match="here"):
        decode_record(record._replace(body=record.body[:4]), "here")
    with pytest.raises(StoreCorrupt, match="or a local tail"):
        decode_record(record._replace(kind=format.CATALOG), "here")
    with pytest.raises(StoreVersion, match="newer"):
        decode_record(record._replace(flags=4), "here")
    assert whole


def test_a_checkpoint_holds_whole_records(filled: SimEnv) -> None:
    """With the tail, which is of this machine, whatever the generation by then."""
    env = filled.kill()
    for _ in range(2):
        with Store.open(PATH, env=env, **OPTIONS) as store:
            (held,) = store._context.state.durable.prepared.values()
            assert held.attachment
            assert len(held.sets) == 1
            store.admin.checkpoint()
            (live,) = store._context.state.prepared
            assert live.record == held
            assert store.admin.verify().ok
    with Store.open(PATH, env=env, **OPTIONS) as store:
        store.prepared.commit("undecided")
        assert store.browse("b").payloads()[-1] == b"prepared too"
        assert store.states.items("s")["undecided"] == b"held"
    with pytest.raises(StoreCorrupt, match="not prepared"):
        prepared_in(memoryview(RECORD_HEADER.pack(16, format.CATALOG, 0, 0) + b"[]"), "here")
