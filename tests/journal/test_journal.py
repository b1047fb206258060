"""The writer: groups, segments, recycling, pins, failures (J1 to J4, J6)."""

from __future__ import annotations

import errno

import pytest

from quire.env import Env
from quire.errors import (
    DiskFull,
    InvalidArgument,
    PositionLost,
    StoreClosed,
    StoreFailed,
)
from quire.journal import Journal, pack_record, read_at
from quire.testing import Call, SimEnv, SimulatedCrash
from tests.journal.machine import OPTIONS, PAGE, SEGMENT, Machine, put


@pytest.mark.parametrize("direct", [False, True])
def test_records_come_back_in_order(machine: Machine, direct: bool) -> None:
    """What was written is recovered, in order, over many segments, and again after that (J1)."""
    journal = machine.create(direct=direct)
    written = []
    for number in range(60):
        bodies = [bytes([number]) * (number * 331 % 9000), b"second"]
        put(journal, number, *bodies)
        written += [(1, number, body) for body in bodies]
    assert journal.end_lsn > 3 * SEGMENT
    journal.close()
    for _ in range(2):
        journal, kept = machine.recover(direct=direct)
        journal.close()
        assert kept == written
    assert machine.reports[-1].dropped_bytes == 0
    assert machine.reports[-1].records == len(written)


def test_recovery_from_a_group_on(machine: Machine) -> None:
    """`restart_lsn` is the first group that is read."""
    journal = machine.create()
    put(journal, 1, b"one")
    put(journal, 2, b"two")
    restart = journal.last_lsn
    put(journal, 3, b"three")
    journal.close()
    assert machine.recovered(restart_lsn=restart) == [(1, 2, b"two"), (1, 3, b"three")]


def test_addresses_read_back(machine: Machine) -> None:
    """The address of a record reads it back, by the owner and by another process."""
    journal = machine.create()
    addresses = [put(journal, n, bytes([n]) * 5000) for n in range(20)]
    for n, address in enumerate(addresses):
        assert journal.read(address + 16, 5000) == bytes([n]) * 5000
        other = read_at(machine.env, machine.directory, SEGMENT, address + 16, 5000)
        assert other == bytes([n]) * 5000
    journal.close()


def test_reads_out_of_bounds_are_refused(machine: Machine) -> None:
    """No read beyond the end, over a segment's border, or of a header page."""
    journal = machine.create()
    address = put(journal, 1, b"x" * 100)
    for bad, length in [
        (address, SEGMENT),
        (journal.end_lsn, 1),
        (0, 10),
        (-5, 1),
        (address, -1),
        (SEGMENT + PAGE, 5),
    ]:
        with pytest.raises(InvalidArgument):
            journal.read(bad, length)
    journal.close()


def test_the_durable_end_is_what_a_power_failure_leaves(sim: SimEnv) -> None:
    """Over several segments: where groups are not synced it stays behind, a sync brings it on."""
    journal = Machine(sim, "/store").create()
    after_sync: list[int] = []
    for number in range(40):
        durable = number % 7 == 6
        journal.write_group([pack_record(1, number, bytes(9000))], durable=durable)
        if durable:
            after_sync.append(number)
            assert journal.durable_end == journal.end_lsn
        else:
            assert journal.durable_end < journal.end_lsn
        for outcome in ("lost", "kept"):
            found = Machine(sim.if_it_crashed(outcome=outcome), "/store")
            kept = found.recovered(durable_lsn=journal.durable_end)
            assert len(kept) > (after_sync[-1] if after_sync else -1)
    journal.sync()
    assert journal.durable_end == journal.end_lsn > 3 * SEGMENT
    journal.close()


def test_one_write_and_one_sync(sim: SimEnv) -> None:
    """A group is put down by one write and one sync, whatever its size (J3)."""
    journal = Journal.create(sim, "/store/journal", **OPTIONS)
    for bodies in ([b"a"], [b"b" * 20000], [b"c"] * 50):
        sim.calls.clear()
        put(journal, 1, *bodies)
        assert sim.calls.kinds() == ["write", "sync"]


def test_behind_a_group_is_nothing_of_an_earlier_one(sim: SimEnv) -> None:
    """The rest of a group's last page is zeros, whatever the buffer held before."""
    journal = Journal.create(sim, "/store/journal", **OPTIONS)
    for bodies in ([b"\xff" * 9000], [b"\xff" * 8], [b"\xff" * 3000] * 2, [b"\xff" * 16], [b"x"]):
        before = journal.end_lsn
        address = put(journal, 1, *bodies)
        end = address + sum(-(-(16 + len(body)) // 8) * 8 for body in bodies)
        assert journal.end_lsn - before == -(-(end - before) // PAGE) * PAGE
        assert journal.read(end, journal.end_lsn - end) == bytes(journal.end_lsn - end)
    journal.close()


def test_rotation_needs_no_making_when_prepared(sim: SimEnv) -> None:
    """A segment that was prepared is only opened by the write that crosses into it."""
    journal = Journal.create(sim, "/store/journal", **OPTIONS)
    assert journal.prepare_next()
    assert journal.next_is_ready
    assert not journal.prepare_next()
    put(journal, 1, b"x" * 12 * PAGE)
    sim.calls.clear()
    put(journal, 2, b"y" * 5 * PAGE)
    assert sim.calls.kinds() == ["write", "sync"]
    assert journal.last_lsn == SEGMENT + PAGE
    assert not journal.next_is_ready


def test_a_write_goes_on_while_the_next_segment_is_made(sim: SimEnv) -> None:
    """Making the next segment does not hold up a write (G3): the write happens in its midst."""
    journal = Journal.create(sim, "/store/journal", **OPTIONS)
    written: list[int] = []

    def write_within(call: Call) -> None:
        if call.kind in ("allocate", "rename") and not written:
            written.append(put(journal, 1, b"meanwhile"))

    sim.before_call = write_within
    assert journal.prepare_next()
    sim.before_call = None
    assert written
    assert Machine(sim.crash(outcome="lost"), "/store").recovered() == [(1, 1, b"meanwhile")]


def test_synced_pages_stay_as_they_are(sim: SimEnv) -> None:
    """No page is written twice, over rotation, recovery and recycling (J4)."""
    sim.forbid_overwrite("*.log")
    journal = Journal.create(sim, "/store/journal", direct=True, **OPTIONS)
    for number in range(40):
        put(journal, number, b"x" * 3000 * (number % 4))
        journal.release(journal.last_lsn)
    journal.close()
    machine = Machine(sim, "/store")
    last = journal.last_lsn
    journal, _ = machine.recover(direct=True, restart_lsn=last)
    put(journal, 41, b"on")


def test_released_segments_are_used_again(machine: Machine) -> None:
    """At most `max_spares` files wait; the next segments are made of them (G4)."""
    journal = machine.create(max_spares=2)
    while journal.end_lsn < 6 * SEGMENT:
        put(journal, 1, b"x" * 10000)
    assert journal.release(journal.last_lsn) == [0, 1, 2, 3, 4, 5][: journal.last_lsn // SEGMENT]
    assert journal.status().spares == 2
    before = len(machine.env.list_directory(machine.directory))
    assert journal.prepare_next()
    assert journal.status().spares == 1
    assert len(machine.env.list_directory(machine.directory)) == before
    while journal.end_lsn < 8 * SEGMENT:
        put(journal, 2, b"y" * 10000)
    last = journal.last_lsn
    end = journal.end_lsn
    journal.close()
    assert machine.recovered(restart_lsn=last, durable_lsn=end) == [(1, 2, b"y" * 10000)]


def test_a_released_address_is_lost(machine: Machine) -> None:
    """Reading what was released is PositionLost, never other bytes (JR1)."""
    journal = machine.create()
    address = put(journal, 1, b"old" * 100)
    journal.read(address, 10)
    while journal.end_lsn < 4 * SEGMENT:
        put(journal, 2, b"new" * 3000)
        journal.release(journal.last_lsn)
    with pytest.raises(PositionLost):
        journal.read(address, 10)
    with pytest.raises(PositionLost):
        read_at(machine.env, machine.directory, SEGMENT, address, 10)
    journal.close()


def test_a_pinned_segment_stays(machine: Machine) -> None:
    """A pinned segment is readable until as many unpins, then goes with the next release (G2)."""
    journal = machine.create()
    address = put(journal, 1, b"pinned")
    journal.pin(0)
    journal.pin(0)
    while journal.end_lsn < 3 * SEGMENT:
        put(journal, 2, b"x" * 10000)
    assert 0 not in journal.release(journal.last_lsn)
    journal.unpin(0)
    assert journal.release(journal.last_lsn) == []
    assert journal.read(address + 16, 6) == b"pinned"
    assert journal.status().pinned == [0]
    journal.unpin(0)
    assert journal.release(journal.last_lsn) == [0]
    with pytest.raises(PositionLost):
        journal.read(address, 1)
    with pytest.raises(PositionLost):
        journal.pin(0)
    with pytest.raises(InvalidArgument):
        journal.unpin(0)
    journal.close()


def test_a_pinned_segment_below_the_restart_does_not_hinder_recovery(machine: Machine) -> None:
    """Numbers missing below the restart LSN are no damage: they were released around a pin (G1)."""
    journal = machine.create()
    journal.pin(0)
    while journal.end_lsn < 4 * SEGMENT:
        put(journal, 2, b"x" * 10000)
    last = journal.last_lsn
    assert journal.release(last)
    journal.close()
    assert len(machine.recovered(restart_lsn=last)) == 1


@pytest.mark.parametrize("kind", ["write", "sync"])
def test_a_failed_write_or_sync_poisons(sim: SimEnv, kind: str) -> None:
    """After it every call fails, nothing is written, and reopening recovers (J6)."""
    journal = Journal.create(sim, "/store/journal", **OPTIONS)
    address = put(journal, 1, b"acknowledged")
    sim.fail(kind, "*.log")
    with pytest.raises(StoreFailed) as failure:
        put(journal, 2, b"failed")
    assert isinstance(failure.value.__cause__, OSError)
    assert journal.failed
    sim.calls.clear()
    for _ in range(2):
        with pytest.raises(StoreFailed):
            put(journal, 3, b"after")
        with pytest.raises(StoreFailed):
            journal.prepare_next()
        with pytest.raises(StoreFailed):
            journal.release(0)
    assert sim.calls.kinds() == []
    assert journal.read(address + 16, 12) == b"acknowledged"
    journal.close()
    kept = Machine(sim, "/store").recovered()
    assert kept in ([(1, 1, b"acknowledged")], [(1, 1, b"acknowledged"), (1, 2, b"failed")])


@pytest.mark.crash
@pytest.mark.parametrize("size", [100, 14 * PAGE - 80])
def test_what_recovery_handed_over_stays(seed: int, rounds: int, size: int) -> None:
    """A group whose sync failed, but which recovery read, is there after a power failure (JV2)."""
    for n in range(rounds):
        env = SimEnv(seed=seed + n)
        env.make_directory("/store")
        env.sync_directory("/")
        journal = Journal.create(env, "/store/journal", **OPTIONS)
        env.fail("sync", "*.log")
        with pytest.raises(StoreFailed):
            put(journal, 1, b"c" * size)  # from now on in the page cache only
        assert Machine(env, "/store").peek(PAGE * 2, 80)
        journal.close()
        journal, kept = Machine(env, "/store").recover()
        assert kept == [(1, 1, b"c" * size)]
        put(journal, 2, b"built on it")
        after = Machine(env.crash(outcome="lost"), "/store")
        assert after.recovered() == [*kept, (1, 2, b"built on it")]


@pytest.mark.crash
def test_a_process_killed_while_creating(seed: int) -> None:
    """What it left in memory only is made durable before anything is built on it (JV2, J8)."""
    sound = SimEnv(seed)
    sound.make_directory("/store")
    Journal.create(sound, "/store/journal", **OPTIONS)
    for number in range(2, sound.calls.last_number + 1):
        env = SimEnv(seed)
        env.make_directory("/store")
        env.sync_directory("/")
        env.crash_at = number + 1
        with pytest.raises(SimulatedCrash):
            Journal.create(env, "/store/journal", **OPTIONS)
        machine = Machine(env.kill(), "/store")
        if machine.env.exists(machine.path(0)):
            journal, _ = machine.recover()
        else:
            journal = machine.create()
        put(journal, 1, b"x")
        assert isinstance(machine.env, SimEnv)
        after = Machine(machine.env.crash(outcome="lost"), "/store")
        assert after.recovered() == [(1, 1, b"x")], number


def test_a_ready_segment_is_used_again_after_reopening(machine: Machine) -> None:
    """It becomes a spare: the next one is made of it, without new space (JV2)."""
    journal = machine.create()
    journal.prepare_next()
    journal.close()
    journal, _ = machine.recover()
    assert (journal.status().ready, journal.status().spares) == (0, 1)
    journal.prepare_next()
    assert (journal.status().ready, journal.status().spares) == (1, 0)
    journal.close()


def test_a_segment_recycled_during_a_read(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The read finds out afterwards, and gives nothing (JR1)."""
    journal = machine.create()
    address = put(journal, 1, b"old")
    put(journal, 2, b"x" * 10 * PAGE)
    put(journal, 2, b"x" * 10 * PAGE)
    header = machine.peek(SEGMENT, PAGE)
    read = journal._handles.read

    def recycle_and_read(number: int, offset: int, length: int) -> bytes:
        journal.release(journal.last_lsn)
        machine.env.rename(f"{machine.directory}/{0:016x}.spare", machine.path(0))
        return read(number, offset, length)

    monkeypatch.setattr(journal._handles, "read", recycle_and_read)
    with pytest.raises(PositionLost):
        journal.read(address, 10)
    machine.poke(0, header)
    with pytest.raises(PositionLost):
        read_at(machine.env, machine.directory, SEGMENT, address, 10)
    journal.close()


def test_an_interrupt_poisons_too(sim: SimEnv) -> None:
    """Whatever stops a write halfway: what is on disk is not known any more (J6)."""
    journal = Journal.create(sim, "/store/journal", **OPTIONS)
    sim.fail("sync", "*.log", error=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        put(journal, 1, b"x")
    with pytest.raises(StoreFailed):
        put(journal, 1, b"x")


def test_no_room_for_a_segment_changes_nothing(sim: SimEnv) -> None:
    """DiskFull while a segment is made leaves the journal as it was, and usable."""
    journal = Journal.create(sim, "/store/journal", **OPTIONS)
    put(journal, 1, b"x" * 12 * PAGE)
    sim.capacity_bytes = sim.used_bytes() + 4 * PAGE
    with pytest.raises(DiskFull):
        journal.prepare_next()
    with pytest.raises(DiskFull):
        put(journal, 2, b"y" * 5 * PAGE)
    assert not [name for name in sim.list_directory("/store/journal") if name.endswith(".tmp")]
    put(journal, 3, b"small")
    sim.capacity_bytes = None
    put(journal, 4, b"y" * 5 * PAGE)
    assert [kept[1] for kept in Machine(sim.kill(), "/store").recovered()] == [1, 3, 4]


def test_a_failed_making_of_a_segment_poisons(sim: SimEnv) -> None:
    """An I/O error of another kind while a segment is made is a failure of the store (J6)."""
    journal = Journal.create(sim, "/store/journal", **OPTIONS)
    sim.fail("sync", "*.tmp", error=OSError(errno.EIO, "no"))
    with pytest.raises(StoreFailed):
        journal.prepare_next()
    assert journal.failed


def test_bad_groups_are_refused_before_anything_is_written(sim: SimEnv) -> None:
    """Too large, empty, or not made of records: InvalidArgument, and the journal goes on."""
    journal = Journal.create(sim, "/store/journal", **OPTIONS)
    most = journal.max_group_bytes
    sim.calls.clear()
    for records in (
        [],
        [pack_record(1, 1, b"x" * (most - 15))],
        [b"short"],
        [b"\x07" + bytes(31)],
    ):
        with pytest.raises(InvalidArgument):
            journal.write_group(records)
    assert sim.calls.kinds() == []
    put(journal, 1, b"x" * (most - 16))
    assert len(Machine(sim.kill(), "/store").recovered()) == 1


def test_large_groups_do_not_keep_their_buffer(machine: Machine) -> None:
    """A group larger than the kept buffer is written whole, and its memory given back."""
    env: Env = machine.env
    journal = Journal.create(
        env, machine.directory, store_id=1, segment_bytes=4 << 20, page_size=65536
    )
    address = put(journal, 1, b"x" * (2 << 20), b"tail")
    assert journal.read(address + 16, 2 << 20) == b"x" * (2 << 20)
    assert len(journal._buffer) <= 1 << 20
    journal.close()


def test_a_closed_journal_says_so(machine: Machine) -> None:
    """After `close`, twice or once, every call is StoreClosed."""
    journal = machine.create()
    address = put(journal, 1, b"x")
    journal.close()
    journal.close()
    with pytest.raises(StoreClosed):
        put(journal, 1, b"x")
    with pytest.raises(StoreClosed):
        journal.read(address, 1)


def test_create_never_destroys_records(machine: Machine) -> None:
    """`create` on a journal with records is refused; on one without, it starts anew."""
    machine.create().close()
    journal = machine.create()
    put(journal, 1, b"x")
    journal.close()
    with pytest.raises(InvalidArgument):
        machine.create()
    assert machine.recovered() == [(1, 1, b"x")]


def test_read_handles_are_bounded(machine: Machine) -> None:
    """However many segments are read, few files stay open (JR2)."""
    journal = machine.create()
    addresses = []
    while journal.end_lsn < 24 * SEGMENT:
        addresses.append(put(journal, 1, b"x" * 12 * PAGE))
    for address in addresses:
        assert journal.read(address + 16, 3) == b"xxx"
    assert len(journal._handles) == 16
    journal.close()
