"""Recovery: torn tails, damage, stale groups, crashes at every call (J1, J2, J5, J7, J8)."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from quire.checksum import checksum
from quire.errors import StoreCorrupt, StoreFailed, StoreVersion
from quire.journal import Group, Journal, JournalFinding, Tail, geometry_of, scan
from quire.journal.format import Geometry
from quire.journal.scan import Chain
from quire.testing import Call, SimEnv, SimulatedCrash, enumerate_crashes
from tests.journal.machine import OPTIONS, PAGE, SEGMENT, Kept, Machine, put

GEOMETRY = Geometry(**OPTIONS)


@dataclass
class Oracle:
    """What was acknowledged, and what was on its way."""

    created: bool = False
    acknowledged: list[Kept] = field(default_factory=list)
    pending: list[Kept] = field(default_factory=list)
    restart_lsn: int = 0
    restart_index: int = 0
    end_lsn: int = 0


def expected(oracle: Oracle) -> list[list[Kept]]:
    """What recovery may hand over: what was acknowledged, or with it the pending group, whole."""
    kept = oracle.acknowledged[oracle.restart_index :]
    return [kept, kept + oracle.pending]


class Workload:
    """Groups of all sizes with rotation, preparing, releasing and reopening between them."""

    def __init__(self, seed: int, *, direct: bool, groups: int = 12) -> None:
        self.seed = seed
        self.direct = direct
        self.groups = groups

    def __call__(self, env: SimEnv, oracle: Oracle) -> None:
        rng = random.Random(self.seed)
        env.make_directory("/store")
        env.sync_directory("/")
        machine = Machine(env, "/store")
        journal = machine.create(direct=self.direct)
        env.sync_directory("/store")
        oracle.created = True
        for number in range(self.groups):
            bodies = [rng.randbytes(rng.choice([3, 200, 3000, 9000, 25000])) for _ in range(2)]
            oracle.pending = [(1, number, body) for body in bodies]
            put(journal, number, *bodies)
            oracle.acknowledged += oracle.pending
            oracle.pending = []
            oracle.end_lsn = journal.end_lsn
            event = rng.randrange(6)
            if event == 0:
                journal.prepare_next()
            elif event == 1:
                oracle.restart_lsn = journal.last_lsn
                oracle.restart_index = len(oracle.acknowledged) - len(bodies)
                journal.release(oracle.restart_lsn)
            elif event == 2:
                journal.close()
                journal, kept = machine.recover(direct=self.direct, restart_lsn=oracle.restart_lsn)
                assert kept == expected(oracle)[0]


class GoneOn:
    """A new process after an error: what it recovers stays, and it goes on over segments."""

    def __init__(self, seed: int, *, direct: bool) -> None:
        self.seed = seed
        self.direct = direct

    def __call__(self, env: SimEnv, oracle: Oracle) -> None:
        machine = Machine(env, "/store")
        if not oracle.created:
            journal = machine.create(direct=self.direct)
            oracle.created = True
        else:
            journal, kept = machine.recover(direct=self.direct, restart_lsn=oracle.restart_lsn)
            assert kept in expected(oracle)
            oracle.acknowledged[oracle.restart_index :] = kept
            oracle.pending = []
        rng = random.Random(self.seed)
        for number in range(100, 106):
            oracle.pending = [(1, number, rng.randbytes(rng.choice([3, 9000, 25000])))]
            put(journal, number, oracle.pending[0][2])
            oracle.acknowledged += oracle.pending
            oracle.pending = []
            oracle.end_lsn = journal.end_lsn
            if number == 103:
                oracle.restart_lsn = journal.last_lsn
                oracle.restart_index = len(oracle.acknowledged) - 1
                journal.release(oracle.restart_lsn)
        journal.close()


def check(env: SimEnv, oracle: Oracle) -> None:
    """Recover, twice, go on, lose the power again: every time the same records."""
    machine = Machine(env, "/store")
    if not oracle.created:
        env.make_directory("/store")
        machine.create().close()
        return
    kept = machine.recovered(restart_lsn=oracle.restart_lsn, durable_lsn=oracle.end_lsn)
    assert kept in expected(oracle)
    assert scanned(machine, restart_lsn=oracle.restart_lsn)[1] == []
    again, kept_again = machine.recover(restart_lsn=oracle.restart_lsn)
    assert kept_again == kept
    put(again, 77, b"goes on")
    again.close()
    after = Machine(env.crash(outcome="lost"), "/store")
    assert after.recovered(restart_lsn=oracle.restart_lsn) == [*kept, (1, 77, b"goes on")]


@pytest.mark.crash
@pytest.mark.cases(4, of_file=True)
@pytest.mark.promise(1)
@pytest.mark.parametrize("direct", [False, True])
def test_promise_1_power_failure_at_every_call(
    seed: int, rounds: int, spread: int, direct: bool
) -> None:
    """Every acknowledged group is recovered; nothing else but the last one, whole (J1, J2, J8)."""
    for n in range(max(1, rounds // 8)):
        enumerate_crashes(
            Workload(seed + n, direct=direct),
            check,
            Oracle,
            seed=seed + n,
            rounds=2,
            every=(spread + 2) // 3,
            resume=GoneOn(seed + n, direct=direct) if n == 0 else None,
        )


@pytest.mark.crash
@pytest.mark.cases(4, of_file=True)
def test_canary_builds_on_what_may_be_gone(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recovery that does not write the last group again is caught."""
    skipped = "quire.journal.recovery._settle_last_groups"
    monkeypatch.setattr(skipped, lambda *_, **options: None)

    def enumerate_all() -> None:
        for its_seed in range(seed, seed + 8):  # few workloads of a hundred never meet it
            enumerate_crashes(
                Workload(its_seed, direct=True),
                check,
                Oracle,
                seed=its_seed,
                resume=GoneOn(its_seed, direct=True),
            )

    with pytest.raises((AssertionError, StoreCorrupt)):
        enumerate_all()


@pytest.mark.crash
@pytest.mark.cases(4, of_file=True)
def test_crash_at_every_call_of_recovery(seed: int) -> None:
    """A crash in the midst of recovery leaves what the next one takes (J8)."""

    def workload(env: SimEnv, oracle: Oracle) -> None:
        Workload(seed, direct=False, groups=6)(env, oracle)
        for number in range(3):
            journal, kept = Machine(env, "/store").recover(restart_lsn=oracle.restart_lsn)
            assert kept == expected(oracle)[0]
            oracle.pending = [(1, 100 + number, b"r")]
            put(journal, 100 + number, b"r")
            oracle.acknowledged += oracle.pending
            oracle.pending = []
            journal.prepare_next()
            journal.close()

    enumerate_crashes(workload, check, Oracle, seed=seed, rounds=2)


def test_several_later_segments_are_retired_whole_or_from_the_newest_down(seed: int) -> None:
    """The only group of a segment is lost, and the next one is prepared: both go, over crashes."""
    env = SimEnv(seed)
    env.make_directory("/store")
    env.sync_directory("/")
    machine = Machine(env, "/store")
    journal = machine.create(max_spares=0)
    kept: list[Kept] = []
    address = 0
    while address < 2 * SEGMENT:  # until there is one group in the third segment
        kept.append((1, len(kept), b"x" * 3000))
        address = put(journal, kept[-1][1], kept[-1][2])
    journal.prepare_next()
    journal.close()
    machine.poke(address // PAGE * PAGE, bytes(PAGE))
    kept.pop()
    sound = env.crash(outcome="kept")
    assert Machine(sound, "/store").recovered() == kept
    for number in range(1, sound.calls.last_number + 1):
        cut = env.crash(outcome="kept")
        cut.fail_at(number, SimulatedCrash(), forever=True)
        with pytest.raises(SimulatedCrash):
            Machine(cut, "/store").recovered()
        for outcome in ("kept", "lost"):
            assert Machine(cut.crash(outcome=outcome), "/store").recovered() == kept, number


@pytest.mark.crash
@pytest.mark.cases(4, of_file=True)
@pytest.mark.promise(11)
@pytest.mark.parametrize("direct", [False, True])
def test_promise_11_an_io_error_at_every_call(seed: int, rounds: int, direct: bool) -> None:
    """Whatever call fails: on the same machine recovery goes on, and what it read stays (JV2)."""
    for n in range(max(1, rounds // 8)):
        workload = Workload(seed + n, direct=direct)
        sound = SimEnv(seed + n)
        workload(sound, Oracle())
        for number in range(1, sound.calls.last_number + 1):
            env, oracle = SimEnv(seed + n), Oracle()
            env.fail_at(number)
            with pytest.raises((OSError, StoreFailed)):
                workload(env, oracle)
            if not oracle.created:
                continue
            machine = Machine(env, "/store")
            journal, kept = machine.recover(direct=direct, restart_lsn=oracle.restart_lsn)
            assert kept in expected(oracle), number
            for more in range(10):
                kept.append((1, more, b"x" * 9000))
                put(journal, more, b"x" * 9000)
            after = Machine(env.crash(outcome="lost"), "/store")
            assert after.recovered(restart_lsn=oracle.restart_lsn) == kept, number


def test_a_group_in_another_place_is_not_valid(machine: Machine) -> None:
    """A group that was copied to another page is none, even as the first that is read (JS1)."""
    lsns = written(machine, 100, 100)
    machine.poke(lsns[2] + PAGE, machine.peek(lsns[1], PAGE))
    with pytest.raises(StoreCorrupt, match=f"offset {lsns[2] + PAGE}"):
        machine.recovered(restart_lsn=lsns[2] + PAGE)
    assert len(machine.recovered()) == 2


def test_a_missing_journal_is_damage(machine: Machine) -> None:
    """Recovery makes no journal of its own where there should be one (J7)."""
    with pytest.raises(StoreCorrupt, match=machine.path(0)):
        machine.recovered()


class UnguardedChain(Chain):
    """A scan that does not look at the generation: the canary."""

    def admits(self, header: object) -> bool:
        return self.groups == 0 or getattr(header, "previous_lsn", None) == self.last_lsn


def stale_group_behind_a_torn_one(machine: Machine) -> None:
    """The disk loses groups A and B; after the next open, B's page shows its old bytes again."""
    journal = machine.create()
    put(journal, 1, b"before")
    put(journal, 2, b"A")
    lsn_a = journal.last_lsn
    put(journal, 3, b"B")
    journal.close()
    page_b = machine.peek(lsn_a + PAGE, PAGE)
    machine.poke(lsn_a, bytes(2 * PAGE))
    assert machine.recovered() == [(1, 1, b"before")]
    machine.poke(lsn_a + PAGE, page_b)


def test_a_stale_group_never_comes_back(machine: Machine) -> None:
    """An intact group of an older generation ends the chain, although it links to it (J5)."""
    stale_group_behind_a_torn_one(machine)
    assert machine.recovered() == [(1, 1, b"before")]
    assert machine.reports[-1].tail is Tail.STALE
    assert machine.recovered() == [(1, 1, b"before")]


def test_canary_a_scan_without_generations_is_caught(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the check of the generation the stale group is handed over."""
    stale_group_behind_a_torn_one(machine)
    monkeypatch.setattr("quire.journal.recovery.Chain", UnguardedChain)
    assert machine.recovered() == [(1, 1, b"before"), (1, 3, b"B")]


def written(machine: Machine, *sizes: int) -> list[int]:
    """A closed journal with one group of each size; their LSNs and the end."""
    journal = machine.create()
    lsns = []
    for number, size in enumerate(sizes):
        put(journal, number, bytes([number + 1]) * size)
        lsns.append(journal.last_lsn)
    lsns.append(journal.end_lsn)
    journal.close()
    return lsns


@pytest.mark.parametrize("where", [0, 30, 70, 200, 5000])
def test_damage_in_the_middle_is_never_cut(machine: Machine, where: int) -> None:
    """A damaged group with an intact one behind it is StoreCorrupt: file, page, offset (J7)."""
    lsns = written(machine, 100, 6000, 100, 100)
    machine.flip(lsns[1] + where)
    before = machine.peek(0, SEGMENT)
    with pytest.raises(StoreCorrupt) as damage:
        machine.recovered()
    text = str(damage.value)
    assert machine.path(0) in text
    assert f"page {lsns[1] // PAGE}, offset {lsns[1]}" in text
    assert machine.peek(0, SEGMENT) == before
    assert machine.reports == []


def test_damage_with_the_intact_group_in_a_later_segment(machine: Machine) -> None:
    """The search for later groups goes through all later segments (J7)."""
    lsns = written(machine, 100, 10 * PAGE, 10 * PAGE)
    assert lsns[2] > SEGMENT
    machine.flip(lsns[1] + 100)
    with pytest.raises(StoreCorrupt, match=f"page {lsns[1] // PAGE}, offset {lsns[1]}"):
        machine.recovered()


def test_a_torn_tail_is_cut_and_reported(machine: Machine) -> None:
    """Nothing valid behind it: the group was never acknowledged; the report says what went (J7)."""
    lsns = written(machine, 100, 6000)
    machine.flip(lsns[1] + 5000)
    journal, kept = machine.recover()
    assert kept == [(1, 0, b"\x01" * 100)]
    report = machine.reports[-1]
    assert (report.tail, report.tail_file) == (Tail.TORN, machine.path(0))
    assert (report.tail_offset, report.dropped_bytes) == (lsns[1], 64 + 16 + 6000)
    assert report.dropped_records == 1
    assert journal.last_lsn == lsns[1]
    put(journal, 9, b"after")
    journal.close()
    assert machine.recovered() == [(1, 0, b"\x01" * 100), (1, 9, b"after")]


def test_a_torn_tail_on_the_next_segment_is_cut(machine: Machine) -> None:
    """A torn group that did not fit in its predecessor's segment is found and cut there."""
    lsns = written(machine, 10 * PAGE, 10 * PAGE)
    assert lsns[1] == SEGMENT + PAGE
    machine.flip(lsns[1] + 1000)  # one that its first sector does not tell from a torn one
    assert machine.recovered() == [(1, 0, b"\x01" * 10 * PAGE)]
    assert machine.reports[-1].tail_file == machine.path(1)
    assert machine.recovered() == [(1, 0, b"\x01" * 10 * PAGE)]


def test_a_watermark_beyond_the_end_is_damage(machine: Machine) -> None:
    """What a checkpoint knows to have been durable cannot be a torn tail (J7)."""
    lsns = written(machine, 100, 1000)
    machine.flip(lsns[1] + 800)
    with pytest.raises(StoreCorrupt, match=f"offset {lsns[1]}"):
        machine.recovered(durable_lsn=lsns[2])
    assert machine.recovered(durable_lsn=lsns[1]) == [(1, 0, b"\x01" * 100)]


def test_no_group_at_the_restart_is_damage(machine: Machine) -> None:
    """The group that a checkpoint points to was durable (J7)."""
    lsns = written(machine, 100, 100)
    machine.flip(lsns[1] + 80)
    with pytest.raises(StoreCorrupt, match=f"offset {lsns[1]}"):
        machine.recovered(restart_lsn=lsns[1])


def test_a_missing_segment_is_damage(machine: Machine) -> None:
    """A file missing between others, or before the restart's, is StoreCorrupt naming it (J7)."""
    lsns = written(machine, *[10 * PAGE] * 4)
    machine.env.remove(machine.path(1))
    with pytest.raises(StoreCorrupt, match=machine.path(1)):
        machine.recovered()
    assert len(machine.recovered(restart_lsn=lsns[2])) == 2
    machine.env.remove(machine.path(2))
    with pytest.raises(StoreCorrupt, match=machine.path(2)):
        machine.recovered(restart_lsn=lsns[2])


@pytest.mark.parametrize("place", [2, 9, 20, 33, 45, 60])
def test_a_damaged_segment_header_is_damage(machine: Machine, place: int) -> None:
    """Headers are durable before a segment counts, so that a bad one is damage (JG1)."""
    written(machine, 100)
    machine.flip(place)
    with pytest.raises(StoreCorrupt, match="page 0, offset 0"):
        machine.recovered()


def test_a_cut_segment_file_is_damage(machine: Machine) -> None:
    """Segments are preallocated: a shorter file has lost something (JG1)."""
    written(machine, 100)
    file = machine.env.open_file(machine.path(0))
    file.truncate(8 * PAGE)
    file.close()
    with pytest.raises(StoreCorrupt, match="bytes, not"):
        machine.recovered()


def test_a_journal_of_another_store_is_refused(machine: Machine) -> None:
    """A segment that was copied from another store is not taken."""
    written(machine, 100)
    with pytest.raises(StoreCorrupt, match="belongs elsewhere"):
        Journal.recover(
            machine.env,
            machine.directory,
            store_id=5,
            segment_bytes=SEGMENT,
            page_size=PAGE,
            apply=lambda *_: None,
            report=machine.reports.append,
        )


@pytest.mark.parametrize("where", [0, PAGE])
def test_an_unknown_version_is_refused(machine: Machine, where: int) -> None:
    """A valid header of another version is StoreVersion, and nothing is changed."""
    written(machine, 100)
    page = bytearray(machine.peek(where, PAGE))
    page[12] = 9
    end = 64 if where == 0 else 64 + int.from_bytes(page[48:52], "little")
    page[0:8] = checksum(bytes(page[8:end])).to_bytes(8, "little")
    machine.poke(where, bytes(page))
    with pytest.raises(StoreVersion, match="version 9"):
        machine.recovered()
    assert machine.peek(where, PAGE) == bytes(page)


def test_a_group_of_another_store_is_not_valid(machine: Machine) -> None:
    """A group that names another store is none, with a right checksum too (JS1)."""
    lsns = written(machine, 100, 100)
    page = bytearray(machine.peek(lsns[1], PAGE))
    page[24] ^= 1
    end = 64 + int.from_bytes(page[48:52], "little")
    page[0:8] = checksum(bytes(page[8:end])).to_bytes(8, "little")
    machine.poke(lsns[1], bytes(page))
    assert len(machine.recovered()) == 1


def with_two_ready(seed: int) -> SimEnv:
    """A torn first group in segment 1, while segment 2 is ready already."""
    env = SimEnv(seed)
    env.make_directory("/store")
    env.sync_directory("/")
    machine = Machine(env, "/store")
    journal = machine.create()
    put(journal, 1, b"x" * 12 * PAGE)

    def prepare_and_crash(call: Call) -> None:
        if call.kind == "write" and call.path == machine.path(1) and call.offset:
            env.before_call = None
            journal.prepare_next()
            env.crash_at = call.number

    env.before_call = prepare_and_crash
    with pytest.raises(SimulatedCrash):
        put(journal, 2, b"y" * 12 * PAGE)
    return env.crash(outcome="lost")


@pytest.mark.crash
@pytest.mark.cases(4, of_file=True)
def test_crashes_while_two_ready_segments_are_retired(seed: int) -> None:
    """No crash leaves a gap in the numbers (JV2, J8)."""
    env = with_two_ready(seed)
    assert [path[-5:] for path in env.files()] == ["0.log", "1.log", "2.log"]
    before = env.calls.last_number
    Machine(env, "/store").recovered()
    for number in range(before + 1, env.calls.last_number + 1):
        for fate in range(8):
            env = with_two_ready(seed)
            env.crash_at = number
            with pytest.raises(SimulatedCrash):
                Machine(env, "/store").recovered()
            after = Machine(env.crash(seed=fate), "/store")
            assert after.recovered() == [(1, 1, b"x" * 12 * PAGE)]


@pytest.mark.crash
@pytest.mark.cases(4, of_file=True)
def test_errors_while_two_ready_segments_are_retired(seed: int) -> None:
    """Nor does an error, and what it leaves uncertain: the next recovery makes it certain (JV3)."""

    def failed(number: int) -> SimEnv:
        """An error in this call of a recovery with two ready segments."""
        env = with_two_ready(seed)
        env.fail_at(number)
        with pytest.raises((OSError, StoreFailed), match="simulated"):
            Machine(env, "/store").recovered()
        return env.kill()

    env = with_two_ready(seed)
    before = env.calls.last_number
    Machine(env, "/store").recover()
    for number in range(before + 1, env.calls.last_number + 1):
        env = failed(number)
        Machine(env, "/store").recovered()
        for fate in range(8):
            after = Machine(env.crash(seed=fate), "/store")
            assert after.recovered() == [(1, 1, b"x" * 12 * PAGE)], number
        calls = env.calls.last_number
        for crash_at in range(1, calls + 1):
            env = failed(number)
            env.crash_at = crash_at
            with pytest.raises(SimulatedCrash):
                Machine(env, "/store").recovered()
            after = Machine(env.crash(seed=crash_at), "/store")
            assert after.recovered() == [(1, 1, b"x" * 12 * PAGE)], (number, crash_at)


def findings_once_a_segment_came_back(seed: int) -> list[JournalFinding]:
    """A released segment, whose new name was uncertain when it was used again, is there again."""
    env = SimEnv(seed)
    env.make_directory("/store")
    env.sync_directory("/")
    machine = Machine(env, "/store")
    journal = machine.create()
    while journal.end_lsn < 3 * SEGMENT:
        put(journal, 1, b"x" * 10000)
    restart = journal.last_lsn
    env.fail("sync_directory", "journal")
    with pytest.raises(StoreFailed):
        journal.release(restart)
    env = env.kill()
    journal, kept = Machine(env, "/store").recover(restart_lsn=restart)
    env.crash_at = env.calls.last_number + 3
    with pytest.raises(SimulatedCrash):
        journal.prepare_next()  # the used file's header is durable, its next name is not
    assert env.calls.log[-1].kind == "rename"
    after = Machine(env.crash(outcome="lost"), "/store")
    assert after.recovered(restart_lsn=restart) == kept
    return scanned(after, restart_lsn=restart)[1]


@pytest.mark.crash
@pytest.mark.cases(4, of_file=True)
def test_a_released_segment_that_comes_back_has_its_own_header(seed: int) -> None:
    """So that `verify` finds no damage (JV3)."""
    assert findings_once_a_segment_came_back(seed) == []


@pytest.mark.crash
@pytest.mark.cases(4, of_file=True)
def test_canary_uses_a_spare_whose_name_is_uncertain(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recovery that leaves the spares' names as they are is caught."""
    monkeypatch.setattr("quire.journal.recovery._rename_spares", lambda *_: None)
    assert findings_once_a_segment_came_back(seed) != []


def test_generations_rise(machine: Machine) -> None:
    """Every open begins a generation of a higher counter (J5)."""
    journal = machine.create()
    generations = [journal.generation]
    for _ in range(3):
        journal.close()
        journal, _ = machine.recover()
        generations.append(journal.generation)
    journal.close()
    assert [generation >> 32 for generation in generations] == [1, 2, 3, 4]


def test_recycled_content_is_never_taken_for_valid(machine: Machine) -> None:
    """Old groups in a recycled file have other LSNs: the tail is clean and nothing comes back."""
    journal = machine.create()
    while journal.end_lsn < 5 * SEGMENT:
        put(journal, 1, b"old" * 100)
        journal.release(journal.last_lsn)
    last = journal.last_lsn
    journal.close()
    assert machine.recovered(restart_lsn=last) == [(1, 1, b"old" * 100)]
    assert machine.reports[-1].tail is Tail.CLEAN


def scanned(machine: Machine, **options: Any) -> tuple[list[int], list[JournalFinding]]:
    """The LSNs of the groups, and the findings."""
    lsns, findings = [], []
    for item in scan(machine.env, machine.directory, GEOMETRY, **options):
        if isinstance(item, Group):
            lsns.append(item.header.lsn)
        else:
            findings.append(item)
    return lsns, findings


def test_scan_of_a_sound_journal_finds_nothing(machine: Machine) -> None:
    """All groups, no findings; the geometry is in the files (JD1)."""
    lsns = written(machine, *[10 * PAGE] * 4)
    assert geometry_of(machine.env, machine.directory) == GEOMETRY
    assert scanned(machine) == ([PAGE, *lsns[:-1]], [])
    assert scanned(machine, until_lsn=lsns[2]) == ([PAGE, *lsns[:2]], [])


def test_scan_names_damage_and_goes_on_behind_it(machine: Machine) -> None:
    """One finding for each break; the groups behind it are still handed out (JD1)."""
    lsns = written(machine, 100, 100, 100, 9 * PAGE, 9 * PAGE, 100)
    machine.flip(lsns[1] + 70)
    machine.flip(lsns[4] + 70)
    groups, findings = scanned(machine)
    assert groups == [PAGE, lsns[0], lsns[2], lsns[3], lsns[5]]
    assert [(found.damage, found.lsn) for found in findings] == [(True, lsns[1]), (True, lsns[4])]


def test_scan_tells_a_torn_tail_from_damage(machine: Machine) -> None:
    """A torn tail is a finding, but no damage, unless the end is known (JD2)."""
    lsns = written(machine, 100, 1000)
    machine.flip(lsns[1] + 600)
    assert [(found.damage, found.offset) for found in scanned(machine)[1]] == [(False, lsns[1])]
    for options in ({"durable_lsn": lsns[2]}, {"until_lsn": lsns[2]}):
        assert [found.damage for found in scanned(machine, **options)[1]] == [True]


def test_scan_names_bad_and_missing_segments(machine: Machine) -> None:
    """A damaged header or a missing file is a finding; the other segments are scanned (JD1)."""
    lsns = written(machine, *[10 * PAGE] * 5)
    machine.flip(SEGMENT + 20)
    machine.env.remove(machine.path(3))
    groups, findings = scanned(machine)
    assert groups == [PAGE, lsns[0], lsns[2], lsns[4]]
    assert [found.file for found in findings] == [machine.path(1), machine.path(3)]
