"""The benchmark of the smallest transactions: both sides do the same, beside another checkout."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import quire
from bench.measuring.journal_in_memory import JournalInMemory
from bench.small.small_sides import QuireSide, SmallSide, SqliteSide

ROOT = Path(__file__).resolve().parents[2]


def _bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.cases(4)
@pytest.mark.parametrize("kind", [QuireSide, SqliteSide])
@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("empty", ["get", "move"])
def test_both_sides_move_the_same_messages(
    tmp_path: Path, kind: type[QuireSide | SqliteSide], empty: str, *, sync: bool
) -> None:
    """What is put is got, and nothing else: after a rollback and a drain the queues are empty."""
    side: SmallSide = kind(tmp_path, sync=sync, seed=1)
    side.put()
    side.put_in_transaction()
    side.put_and_roll_back()
    side.put_each(9)
    side.get()
    side.move()
    side.get_each(9)
    side.of_thread(0)()
    side.drain()
    with pytest.raises((AssertionError, TypeError)):
        getattr(side, empty)()
    side.close()


def test_a_journal_in_memory_keeps_messages_while_it_is_open(tmp_path: Path) -> None:
    """Over more than one segment, and without a byte of them in the files."""
    env = JournalInMemory()
    payload = bytes(range(256)) * 256
    with quire.open(str(tmp_path / "store"), env=env, segment_bytes=1 << 20) as store:
        store.create_queue("queue", kind="work")
        for _ in range(40):
            store.put("queue", payload)
        with store.transaction() as transaction:
            assert [each.payload for each in transaction.get_many("queue")] == [payload] * 40
        store.admin.checkpoint()
        store.put("queue", payload)
        assert store.admin.verify().ok
    segments = sorted((tmp_path / "store" / "journal").iterdir())
    assert segments
    assert not any(segment.stat().st_size for segment in segments)


@pytest.mark.long
def test_a_quick_run_shows_before_and_after() -> None:
    """Each tree has its columns; here both are the same."""
    run = _bench("small", "--quick", "--before", str(ROOT))
    assert run.returncode == 0, run.stderr
    assert "before: Quire" in run.stdout
    assert "32 threads: rate to before" in run.stdout
    assert "transaction with one get: processor time to SQLite's" in run.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("commit", "--no-sync"), "for the benchmark small alone"),
        (("small", "--before", "nowhere"), "is no checkout of Quire"),
    ],
)
def test_options_that_mean_nothing_are_refused(arguments: tuple[str, ...], words: str) -> None:
    """Options that mean nothing are refused before anything is measured."""
    run = _bench(*arguments)
    assert run.returncode == 2
    assert words in run.stderr
