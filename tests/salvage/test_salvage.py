"""Salvage of damaged stores: what is whole is there, nothing wrong is, the rest is told."""

from __future__ import annotations

import random
from contextlib import closing

import pytest

from quire.block import Block
from quire.checksum import checksum
from quire.engine.built_beside import built_beside
from quire.engine.layout import Layout
from quire.engine.pages.data_files import split_address
from quire.engine.records.block_ref import BlockRef
from quire.errors import InvalidArgument, QuireError, StoreCorrupt, StoreLocked, StoreNotFound
from quire.file_dump.source import DumpSource
from quire.file_salvage.queue_salvage import QueueSalvage
from quire.file_salvage.report import SalvageReport
from quire.file_salvage.salvage import salvage
from quire.file_salvage.store_salvage import SALVAGING
from quire.file_salvage.unplaced import UnplacedMessages
from quire.rows.open_block import verified_block
from quire.testing import SimEnv, SimulatedCrash
from quire.testing.sim_calls import matches
from tests.engine.workload import PATH, new_machine, open_store
from tests.salvage.damaged_stores import (
    NEW,
    Outcome,
    Sound,
    files_of,
    intact,
    outcome,
    spoil,
    story,
)


def salvaged(env: SimEnv) -> tuple[SalvageReport, Outcome]:
    """Salvage the store; it is what it was afterwards."""
    before = files_of(env)
    report = salvage(PATH, NEW, env=env)
    assert files_of(env) == before
    return report, outcome(env)


def check(sound: Sound, env: SimEnv, before: dict[str, bytes]) -> SalvageReport:
    """Salvage a damaged store, and compare what is there with what its bytes allow."""
    report, found = salvaged(env)
    for name, texts in found.texts.items():
        number = int(name.rpartition("-")[2]) if name.startswith("salvaged-queue-") else 0
        for text in texts:
            own = sound.put[text]  # KeyError: it was never put
            assert name in (own, "salvaged", "salvaged-2") or number == sound.numbers[own], name
        if not name.startswith("salvaged"):
            assert len(texts) == len(set(texts)), f"{name} has messages twice"
    assert found.prepared <= sound.put.keys()
    there = {text for texts in found.texts.values() for text in texts} | found.prepared
    for each in intact(sound.kept, before, env):
        assert each.text in there, f"lost: {each.queue} {each.position} {each.path} {each.offset}"
    if files_of(env) == before:
        assert found.unread == sound.unread
        assert report.is_complete
    return report


def test_a_sound_store(rng: random.Random) -> None:
    """All of it, at its positions, read as far as it was."""
    sound = story(rng, 60)
    report = check(sound, sound.env, files_of(sound.env))
    assert report.is_complete


@pytest.mark.fuzz
@pytest.mark.promise(10)
def test_random_damage(rng: random.Random, rounds: int) -> None:
    """Every message whose block is whole is salvaged, and nothing wrong (QS1, SX3)."""
    for _ in range(max(rounds // 4, 1)):
        damage_one(rng)


@pytest.mark.long
@pytest.mark.fuzz
@pytest.mark.promise(10)
def test_two_hundred_stores(rng: random.Random) -> None:
    """The same, with 200 of them."""
    for _ in range(200):
        damage_one(rng)


def damage_one(rng: random.Random) -> None:
    """One store, damaged at random."""
    sound = story(rng, rng.choice([10, 40, 100]))
    before = files_of(sound.env)
    done = [spoil(sound.env, rng) for _ in range(rng.choice([1, 1, 2, 4]))]
    try:
        check(sound, sound.env, before)
    except BaseException as error:
        error.add_note(str(done))
        raise


@pytest.mark.fuzz
@pytest.mark.promise(10)
def test_damage_of_blocks_alone(rng: random.Random, rounds: int) -> None:
    """All others are in their queues, at their positions, read or not as they were."""
    for _ in range(max(rounds // 8, 1)):
        sound = story(rng, 40)
        before = files_of(sound.env)
        blocks = [each for each in sound.kept if "/data/" in each.path]
        for _ in range(3 if blocks else 0):
            spoil(sound.env, rng, blocks=blocks)
        report, found = salvaged(sound.env)
        whole = intact(sound.kept, before, sound.env)
        expected: dict[str, dict[str, int]] = {}
        for each in whole:
            expected.setdefault(each.queue, {})[each.text] = each.position
        assert found.positions == expected
        texts = {each.text for each in whole}
        assert found.unread == {source: own & texts for source, own in sound.unread.items()}
        assert sum(lost.messages for lost in report.lost) == len(sound.kept) - len(whole)
        assert all(lost.file.startswith("data/") for lost in report.lost)
        assert report.is_complete == (len(whole) == len(sound.kept))


@pytest.mark.fuzz
def test_canary_believes_what_it_reads(monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """A salvage that looks for no checksum of a block gives wrong messages, which is seen."""

    def unverified(self: DumpSource, ref: BlockRef) -> tuple[Block, bytes]:
        number, offset = split_address(ref.address)
        data = bytearray(self.data_file(number).read(offset, ref.length))
        data[:8] = checksum(bytes(data[8:])).to_bytes(8, "little")
        return verified_block(data, "unverified"), bytes(data)

    sound = story(rng, 30)
    while not any("/data/" in each.path for each in sound.kept):
        sound = story(rng, 30)
    before = files_of(sound.env)
    for each in sound.kept:
        if "/data/" in each.path:
            sound.env.corrupt(each.path, each.offset + each.length - 9, 0x02)
    monkeypatch.setattr(DumpSource, "verified", unverified)
    with pytest.raises((KeyError, AssertionError, QuireError)):
        check(sound, sound.env, before)


@pytest.mark.fuzz
def test_canary_looks_for_no_block(monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """A salvage without the search for blocks that no record names loses whole ones."""
    sound = story(rng, 30)
    before = files_of(sound.env)
    for path in before:
        if path.endswith((".qck", ".log")):
            sound.env.remove(path)
    monkeypatch.setattr(UnplacedMessages, "search", lambda self, **_: None)
    monkeypatch.setattr(QueueSalvage, "_take", lambda self, ref: None)
    with pytest.raises((AssertionError, QuireError)):
        check(sound, sound.env, before)


# One thing at a time ------------------------------------------------------------------------------


@pytest.fixture
def env() -> SimEnv:
    """A machine with the store of `make`."""
    return make()


def make(*, seals: bool = True) -> SimEnv:
    """A machine with a store that was killed: two queues, some read, a checkpoint in between."""
    env = new_machine(1)
    store = open_store(env)
    store.create_queue("jobs", kind="work")
    store.create_queue("news", kind="topic")
    store.subscribe("news", "all")
    for number in range(6):
        store.put("jobs", b"job %d" % number)
        store.put("news", b"news %d" % number)
    assert store.get("jobs") is not None
    if seals:
        store.admin.checkpoint()
    for number in range(6, 9):
        store.put("jobs", b"job %d" % number)
    assert store.get("jobs") is not None
    return env.kill()


def jobs(env: SimEnv, queue: str = "jobs") -> list[bytes]:
    """The messages of the new store's queue."""
    store = open_store(env, NEW)
    payloads = [bytes(message.payload) for message in store.browse(queue)]
    store.close()
    return payloads


def files_in(env: SimEnv, folder: str, ending: str) -> list[str]:
    """The store's files of a kind."""
    return sorted(p for p in files_of(env) if f"/{folder}/" in p and p.endswith(ending))


def test_without_a_checkpoint() -> None:
    """The journal from the store's beginning tells all that it still has, definitions too."""
    env = make(seals=False)
    for path in files_in(env, "checkpoint", ".qck"):
        env.remove(path)
    report = salvage(PATH, NEW, env=env)
    assert jobs(env) == [b"job %d" % number for number in range(2, 9)]
    assert not report.is_complete


def test_definitions_that_are_lost(env: SimEnv) -> None:
    """Without checkpoint and journal a queue has its number as name; all its blocks are there."""
    for path in files_in(env, "checkpoint", ".qck") + files_in(env, "journal", ".log"):
        env.remove(path)
    with pytest.raises(StoreCorrupt, match="nothing says how large"):
        salvage(PATH, NEW, env=new_machine_with(env, without="/data/"))
    report = salvage(PATH, NEW, env=env)
    names = [queue.name for queue in report.queues]
    assert names == ["salvaged-queue-1", "salvaged-queue-2"]
    assert all(queue.is_reconstructed for queue in report.queues)
    assert jobs(env, names[0]) == [b"job %d" % number for number in range(1, 6)]
    assert jobs(env, names[1]) == [b"news %d" % number for number in range(6)]


def new_machine_with(env: SimEnv, without: str) -> SimEnv:
    """A machine with the files of a store but for some."""
    other = new_machine(2)
    for path, data in files_of(env).items():
        if without not in path:
            folder = path.rpartition("/")[0]
            other.make_directory(PATH) if not other.exists(PATH) else None
            other.make_directory(folder) if not other.exists(folder) else None
            with closing(other.open_file(path, create=True)) as file:
                file.write(0, data)
    return other


def test_what_comes_behind_damage_is_delivered_again(env: SimEnv) -> None:
    """A record of the journal is lost: what was read behind it may come a second time (SX4)."""
    [journal] = files_in(env, "journal", ".log")
    data = env.contents(journal)
    env.corrupt(journal, data.index(b"job 7"), 0x20)
    report = salvage(PATH, NEW, env=env)
    [queue] = [each for each in report.queues if each.name == "jobs"]
    assert jobs(env) == [b"job %d" % number for number in (2, 3, 4, 5, 6, 8)]
    assert (queue.moved, report.unplaced) == (1, 0)
    assert any(finding.damage for finding in report.findings)


def test_a_read_behind_damage_is_of_nothing_that_came_later(env: SimEnv) -> None:
    """Positions that were read behind the damage are those of lost messages (QS3)."""
    store = open_store(env)
    store.put("jobs", b"job that is lost")
    assert len(store.get_many("jobs", 100)) == 8
    store.put("jobs", b"job after")
    store.put("jobs", b"job at last")
    env = env.kill()
    places = {p: env.contents(p).find(b"is lost") for p in files_in(env, "journal", ".log")}
    [(journal, place)] = [(path, place) for path, place in places.items() if place >= 0]
    env.corrupt(journal, place, 0x20)
    salvage(PATH, NEW, env=env)
    assert jobs(env) == [b"job after", b"job at last"]


def test_blocks_that_are_unnamed(env: SimEnv) -> None:
    """A record page is lost: its messages are in a queue of their own, and the report says so."""
    data = env.contents(f"{PATH}/data/0.dat")
    env.corrupt(f"{PATH}/data/0.dat", data.index(b"QREC"), 0x20)  # that of the first queue
    report = salvage(PATH, NEW, env=env)
    assert report.unplaced == 5
    assert [(lost.queue, lost.start, lost.end) for lost in report.lost] == [("jobs", 2, 6)]
    assert jobs(env, "salvaged") == [b"job %d" % number for number in range(1, 6)]
    assert jobs(env) == [b"job %d" % number for number in range(6, 9)]


@pytest.mark.promise(7)
def test_prepared_transactions(env: SimEnv) -> None:
    """One that is whole stays prepared; one that is not is rolled back, and told."""
    store = open_store(env)
    for xid, size in (("whole", 10), ("broken", 900)):
        transaction = store.transaction()
        transaction.put("jobs", xid.encode() * size)
        assert transaction.get("jobs") is not None
        transaction.prepare(xid)
    env = env.kill()
    data = env.contents(f"{PATH}/data/0.dat")
    env.corrupt(f"{PATH}/data/0.dat", data.index(b"broken" * 9), 0x20)
    report = salvage(PATH, NEW, env=env)
    assert [(each.xid, each.is_kept) for each in report.prepared] == [
        ("whole", True), ("broken", False),
    ]  # fmt: skip
    assert not report.is_complete
    store = open_store(env, NEW)
    assert [each.xid for each in store.prepared.list()] == ["whole"]
    assert store.admin.verify().ok
    store.prepared.commit("whole")
    texts = [bytes(message.payload) for message in store.browse("jobs")]
    assert texts == [*(b"job %d" % number for number in range(3, 9)), b"whole" * 10]
    store.close()


# The damaged store is left alone ------------------------------------------------------------------


def test_it_is_never_written_to(env: SimEnv) -> None:
    """No call changes anything below it (SX1)."""
    env.calls.clear()
    salvage(PATH, NEW, env=env)
    assert env.calls.count("write", f"{NEW}*")
    for pattern in (PATH, f"{PATH}/*"):
        assert not [call for call in env.calls.log if matches(call.path, pattern)]


def test_whatever_fails_nothing_is_at_the_path(env: SimEnv) -> None:
    """A power failure or an error at any call: the damaged store is whole, the next one works."""
    env = env.crash(outcome="kept")
    before = files_of(env)
    for outcome_of in ("kept", "lost"):
        number = 0
        while True:
            number += 7
            machine = env.crash(outcome="kept")
            machine.crash_at = machine.calls.last_number + number
            try:
                salvage(PATH, NEW, env=machine)
            except SimulatedCrash:
                after = machine.crash(outcome=outcome_of)
                assert files_of(after) == before
                if not after.exists(NEW):
                    salvage(PATH, NEW, env=after)
                assert len(jobs(after)) == 7
                continue
            break


def test_the_path_is_taken_meanwhile(env: SimEnv) -> None:
    """Of two that build a store there at once the second is refused, and leaves nothing."""
    late = built_beside(env, Layout(NEW), SALVAGING, "salvage")
    built = late.__enter__()
    with pytest.raises(StoreLocked, match="another salvage to /disk/new is under way"):
        salvage(PATH, NEW, env=env)
    with built_beside(env, Layout(NEW), ".restoring-", "restore") as first:
        env.make_directory(first.layout.journal)
    with pytest.raises(InvalidArgument, match="is there already"):
        late.__exit__(None, None, None)
    assert sorted(env.list_directory(NEW)) == ["LOCK", "journal"]
    assert not env.exists(built.layout.path)


def test_refusals(env: SimEnv) -> None:
    """An open store, a path that is taken, one below the damaged store, no store."""
    with pytest.raises(InvalidArgument, match="is in the damaged store"):
        salvage(PATH, f"{PATH}/new", env=env)
    with pytest.raises(StoreNotFound):
        salvage("/disk/none", NEW, env=env)
    with pytest.raises(InvalidArgument, match="is there already"):
        salvage(PATH, "/disk", env=env)
    store = open_store(env)
    with pytest.raises(StoreLocked, match="end it first"):
        salvage(PATH, NEW, env=env)
    store.close()
