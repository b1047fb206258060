"""What is at the journal's end: a torn group, or the last one with other bits (JT1, JT2)."""

from __future__ import annotations

import contextlib
import random

import pytest

from quire.errors import StoreCorrupt
from quire.journal import Geometry, JournalFinding, Tail, pack_record, scan
from quire.testing import SimEnv
from quire.testing.sim_calls import SimulatedCrash
from tests.journal.machine import OPTIONS, PAGE, SEGMENT, Machine

SIZES = (40, 380, 900, 3900, 9000)  # of the last record: from a part of a sector to three pages


def killed(sizes: tuple[int, ...], *, recycled: bool, seed: int = 1) -> tuple[Machine, int, int]:
    """A journal whose process was killed; where its last group is in its file, and its length."""
    env = SimEnv(seed=seed)
    env.make_directory("/store")
    machine = Machine(env, "/store")
    journal = machine.create(direct=True)
    rng = random.Random(seed)
    if recycled:  # what is behind the end is old groups, not zeros
        while len(journal.status().segments) < 3:
            journal.write_group([pack_record(1, 0, rng.randbytes(rng.choice(SIZES)))])
        while journal.status().segments[-1] < 5:
            journal.write_group([pack_record(1, 0, rng.randbytes(rng.choice(SIZES)))])
            journal.release(journal.end_lsn)
    for number, size in enumerate(sizes):
        journal.write_group([pack_record(1, number, rng.randbytes(size))])
    last = journal.last_lsn
    return Machine(env.kill(), "/store"), last, 64 + 16 + (sizes[-1] + 7 & -8)


def outcome(machine: Machine, restart_lsn: int) -> Tail | None:
    """How the chain ended; None: it is damaged."""
    try:
        machine.recover(restart_lsn=restart_lsn)
    except StoreCorrupt:
        return None
    return machine.reports[-1].tail


def flip(size: int, bits: str, step: int, *, recycled: bool) -> None:
    """Bits of the last group in turn: which are told, and which may be torn and are cut."""
    machine, last, length = killed((30, size), recycled=recycled)
    number, offset = divmod(last, SEGMENT)
    silent = []
    for place in [*range(0, min(length, 512), step), *range(512, length, 61 * step)]:
        for mask in [1 << place % 8] if step > 1 or bits == "a byte" else [1, 8, 128]:
            image = Machine(machine.env.kill(), "/store")  # type: ignore[attr-defined]
            damage = mask if bits == "a bit" else 0xA5
            image.env.corrupt(image.path(number), offset + place, damage)  # type: ignore[attr-defined]
            if outcome(image, last - PAGE) is not None:
                silent.append(place)
                report = image.reports[-1]
                assert report.tail is not Tail.TORN or "was cut at offset" in report.words
    if bits == "a bit":
        assert [place for place in silent if place < 512] == []
    elif length <= 512:
        assert silent == []


@pytest.mark.cases(4)
@pytest.mark.parametrize("recycled", [False, True])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("bits", ["a bit", "a byte"])
def test_some_other_bits_in_the_last_group(size: int, recycled: bool, bits: str) -> None:
    """JT1, JT2: the short slice of the test below, for every run."""
    flip(size, bits, 11, recycled=recycled)


@pytest.mark.parametrize("size", [40, 900])
@pytest.mark.parametrize("place", [0, 9, 47, 70, 600])
def test_a_scan_tells_it_as_a_recovery(size: int, place: int) -> None:
    """JD2: a damaged last group is damage for `verify` and dumps, too; a torn one is not."""
    machine, last, length = killed((30, size), recycled=False)
    number, offset = divmod(last, SEGMENT)
    machine.env.corrupt(machine.path(number), offset + place % length, 1)  # type: ignore[attr-defined]
    scanned = scan(machine.env, machine.directory, Geometry(**OPTIONS), restart_lsn=last - PAGE)
    told = [found for found in scanned if isinstance(found, JournalFinding)]
    found = outcome(machine, last - PAGE)
    assert (found is None) == (size == 40 or place < 512)
    if found is None:
        assert [each.damage for each in told] == [True]
        assert (told[0].file, told[0].offset, told[0].lsn) == (machine.path(number), offset, last)
    else:
        assert [each.damage for each in told] == [False]


@pytest.mark.long
@pytest.mark.parametrize("recycled", [False, True])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("bits", ["a bit", "a byte"])
def test_other_bits_in_the_last_group(size: int, recycled: bool, bits: str) -> None:
    """JT1, JT2: a bit of its first sector is always told; a byte where it is its only sector."""
    flip(size, bits, 1, recycled=recycled)


@pytest.mark.cases(4)
def test_no_power_failure_is_called_damage(seed: int, rounds: int) -> None:
    """JT1, JT2: whatever is left of a last group that was not acknowledged, it is cut."""
    tails = set()
    for number in range(rounds * 8):
        rng = random.Random(f"{seed}/{number}")
        env = SimEnv(seed=rng.getrandbits(32))
        env.make_directory("/store")
        env.sync_directory("/")
        machine = Machine(env, "/store")
        journal = machine.create(direct=rng.random() < 0.5)
        alike = rng.randbytes(9000) if rng.random() < 0.5 else bytes(9000)
        for _ in range(rng.randrange(1, 60)):
            body = bytearray(alike[: rng.choice(SIZES)])
            body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)  # sectors that differ by a bit
            journal.write_group([pack_record(1, 0, bytes(body))], durable=rng.random() < 0.8)
            if rng.random() < 0.3:
                journal.release(journal.last_lsn)
        restart = journal.last_lsn
        journal.sync()
        env.crash_at = env.calls.last_number + rng.randrange(1, 4)
        with contextlib.suppress(SimulatedCrash):
            while True:
                body = bytearray(alike[: rng.choice(SIZES)])
                body[rng.randrange(len(body))] ^= 1
                journal.write_group([pack_record(1, 0, bytes(body))], durable=rng.random() < 0.8)
                journal.sync()
        assert env.crashed
        for fate in range(6):
            after = Machine(env.if_it_crashed(seed=fate), "/store")
            found = outcome(after, restart)
            assert found is not None, f"a false alarm: seed {seed}, {number}, fate {fate}"
            tails.add(found)
    assert Tail.TORN in tails
