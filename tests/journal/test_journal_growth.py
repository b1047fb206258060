"""The journal's files get their space in steps ahead of need (G5, JG3); some is kept back (G6)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from quire.errors import DiskFull
from quire.journal import Journal, pack_record
from quire.testing import SimEnv
from quire.testing.sim_calls import Call

PAGE = 4096
SEGMENT = 4 << 20
FIRST = 128 << 10


def create(env: SimEnv, kept_back: int = 0) -> Journal:
    """An empty journal."""
    return Journal.create(
        env, "/journal", store_id=7, segment_bytes=SEGMENT, kept_back=kept_back, direct=True
    )


def recover(env: SimEnv, kept_back: int = 0, restart: int = 0) -> tuple[Journal, list[int]]:
    """The journal and the sequence numbers of its records."""
    found: list[int] = []
    journal = Journal.recover(
        env,
        "/journal",
        store_id=7,
        segment_bytes=SEGMENT,
        kept_back=kept_back,
        restart_lsn=restart,
        apply=lambda record: found.append(record.sequence),
        report=lambda report: None,
        direct=True,
    )
    return journal, found


def put(journal: Journal, number: int, size: int = 100, *, relieving: bool = False) -> None:
    """A group of one record."""
    journal.write_group([pack_record(1, number, b"x" * size)], relieving=relieving)


def fill(journal: Journal) -> None:
    """Put until the disk is full."""
    with pytest.raises(DiskFull):
        repeat(lambda: put(journal, 1))


def repeat(action: Callable[[], None]) -> None:
    """Often."""
    for _ in range(10_000):
        action()


def test_space_doubles_from_segment_to_segment() -> None:
    """It is allocated as a whole before its use, and what is skipped is nowhere missed."""
    env = SimEnv()
    journal = create(env)
    seen = []
    for number in range(3000):
        if journal.segment_space not in seen:
            seen.append(journal.segment_space)
        put(journal, number)
    assert seen == [FIRST << step for step in range(6)]  # and the last one is a whole segment
    journal.close()
    journal, found = recover(env.crash(outcome="lost"))
    assert found == list(range(3000))
    assert journal.segment_space == SEGMENT


def test_no_group_is_written_to_space_that_is_missing() -> None:
    """Every write lies in pages that were allocated before: none of them makes the file larger."""
    env = SimEnv()
    journal = create(env)
    missing: list[str] = []

    def look(call: Call) -> None:
        if call.kind == "write" and call.path.endswith(".log"):
            pages = env.disk.file(call.path).pages
            first, stop = call.offset // PAGE, (call.offset + call.length) // PAGE
            missing.extend(call.path for page in range(first, stop) if page not in pages)

    env.before_call = look
    for number in range(400):
        put(journal, number, size=number * 20)
    assert missing == []


def test_a_large_group_gets_a_segment_of_its_size() -> None:
    """One that is ready and too small for it gets more space first."""
    env = SimEnv()
    journal = create(env)
    assert journal.prepare_next()
    put(journal, 1, size=2 << 20)
    assert journal.segment_space >= 2 << 20
    put(journal, 2)
    journal.close()
    assert recover(env.crash(outcome="lost"))[1] == [1, 2]


def test_recycled_files_keep_their_space_and_get_more() -> None:
    """A small spare becomes a segment of the size that is due."""
    env = SimEnv()
    journal = create(env)
    while journal.segment_space < SEGMENT:
        put(journal, 1)
    restart = journal.last_lsn
    assert journal.release(restart)
    assert journal.status().spares == 2
    assert journal.status().bytes < 2 * SEGMENT
    assert journal.prepare_next()
    assert (journal.status().spares, journal.status().bytes >= 2 * SEGMENT) == (1, True)
    for number in range(SEGMENT // PAGE):
        put(journal, number)
    assert journal.segment_space == SEGMENT
    journal.close()
    assert recover(env.crash(outcome="lost"), restart=restart)[0].segment_space == SEGMENT


def test_a_nearly_full_disk_gives_smaller_steps() -> None:
    """Where the next step does not fit, half of it may, so that space is used to its end."""
    env = SimEnv()
    journal = create(env)
    env.capacity_bytes = env.used_bytes() + 3 * FIRST
    fill(journal)
    assert env.used_bytes() > env.capacity_bytes - FIRST
    journal.close()


def test_relieving_groups_go_on_when_the_disk_is_full() -> None:
    """[J9] Others stop before what is kept back; two small files are enough for ever."""
    env = SimEnv()
    journal = create(env, kept_back=2)
    assert journal.status().kept_back_bytes == 2 * FIRST
    env.capacity_bytes = env.used_bytes()
    fill(journal)
    assert journal.status().kept_back_bytes == 2 * FIRST
    first = journal.last_lsn
    for number in range(5000):
        try:
            put(journal, number, relieving=True)
        except DiskFull:
            # A checkpoint: the first segment has something that must stay, all others have not.
            assert journal.release(journal.last_lsn, keep={first // SEGMENT})
            put(journal, number, relieving=True)
    with pytest.raises(DiskFull):
        put(journal, 0)
    assert journal.read(first, 100)
    env.capacity_bytes = None
    put(journal, 0)
    assert journal.status().kept_back_bytes == 2 * FIRST


def test_it_is_opened_on_a_full_disk_again_and_again() -> None:
    """[J9] Each opening writes a group; what is kept back outlives them."""
    env = SimEnv()
    journal = create(env, kept_back=2)
    env.capacity_bytes = env.used_bytes()
    fill(journal)
    first, restart = journal.last_lsn, 0
    for number in range(200):
        env = env.crash(seed=number)
        journal, _ = recover(env, kept_back=2, restart=restart)
        if journal.lacks_room:
            restart = journal.last_lsn
            journal.release(restart, keep={first // SEGMENT})
        with pytest.raises(DiskFull):
            put(journal, 0, size=FIRST // 2)
    put(journal, 1, relieving=True)


def test_no_spare_has_the_number_of_a_segment_to_come() -> None:
    """A ready segment that an opening makes a spare: released, a later one would overwrite it."""
    env = SimEnv()
    journal = create(env, kept_back=2)
    put(journal, 0)
    assert journal.prepare_next()
    env = env.crash(outcome="lost")
    journal, found = recover(env, kept_back=2)
    assert found == [0]
    spares = [spare.path for spare in journal._segments._spares]
    assert len(spares) == 3
    assert not any(path.startswith("/journal/0") for path in spares)
    journal.close()
