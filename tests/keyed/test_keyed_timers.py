"""Timers of rows: each is due once, whatever happens in between; and their bytes."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import quire
from quire import keyed
from quire.errors import InvalidArgument, StateConflict, StoreCorrupt
from quire.keyed import manifest, row_lookup
from quire.keyed.format import NEVER
from quire.keyed.fragment_files import SeenFragments
from quire.keyed.key_hash import hashes_of
from quire.keyed.keyed_rows import newest_of
from quire.keyed.open_runs import run_in_memory
from quire.keyed.row_layout import layout_of
from quire.keyed.run_writer import RunWriter
from quire.keyed.state_look import _open_runs
from quire.keyed.timer_mark import BEFORE_ALL, FiredTimers, TimerMark, fired_of
from quire.testing import SimEnv
from tests.keyed.conftest import PATH, SMALL, SMALL_RANGE_BYTES
from tests.keyed.test_run import RUN_ID, WORDS, rows_of
from tests.kit.limits import Limits

FAR = 1 << 62
Row = tuple[int, int | None, int]  # value, timer, when it expires


def opened(store: quire.Store, env: SimEnv) -> keyed.KeyedState:
    """The state of all these tests."""
    return keyed.open_state(store, "timed", "key", "key int, value bigint", env=env)


class TimedHistory:
    """A state and a dict: puts, deletions, times, timers that fire, merges, crashes."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.env = SimEnv(rng.randrange(1 << 32))
        self.rows: dict[int, Row] = {}
        self.open()

    def open(self) -> None:
        """Recover the store."""
        _open_runs.cache_clear()
        self.store = quire.open(PATH, env=self.env, background=False, **SMALL)
        self.state = opened(self.store, self.env)
        self.files = SeenFragments(self.env, f"{PATH}/ltds")

    def step(self) -> None:
        """Do something."""
        do = self.rng.random()
        if do < 0.5:
            self.change()
        elif do < 0.75:
            self.fire()
        elif do < 0.85:
            self.fire_by_tasks()
        elif do < 0.9:
            self.env.advance(self.rng.choice([1, 9, 500]))
        elif do < 0.95:
            self.state.merge(all=self.rng.random() < 0.5)
        else:
            self.store.admin.checkpoint()
            self.env = self.env.crash(outcome="lost")
            self.open()

    def drawn(self) -> dict[int, Row]:
        """Rows to put."""
        ttl = self.rng.choice([None, None, None, 20])
        gone = FAR if ttl is None else self.env.now_us() + ttl * 1_000_000
        keys = self.rng.sample(range(70), self.rng.randrange(30))
        return {key: (self.rng.randrange(99), self.timer(), gone) for key in keys}

    def timer(self) -> int | None:
        """None, or a time: many are the same."""
        return self.rng.choice([None, self.rng.randrange(-20, 200), self.rng.randrange(5)])

    def put(self, rows: keyed.KeyedChanges, drawn: dict[int, Row]) -> None:
        """Put rows, and delete those of three keys."""
        rows.delete([key for key in drawn if key % 5 == 0])
        put = {key: row for key, row in drawn.items() if key % 5}
        timers = [row[1] for row in put.values()]
        values = [{"key": key, "value": row[0]} for key, row in put.items()]
        gone = next((row[2] for row in put.values()), FAR)
        ttl = None if gone == FAR else (gone - self.env.now_us()) / 1e6
        rows.put(values, ttl, timers if any(timers) or self.rng.random() < 0.5 else None)
        for key, row in drawn.items():
            self.rows.pop(key, None)
            if key % 5:
                self.rows[key] = row if any(timers) else (row[0], self.rows_none(rows, key), row[2])

    def rows_none(self, rows: keyed.KeyedChanges, key: int) -> int | None:
        """The timer that a row was put with, where none is but 0 or null."""
        found: int | None = rows.timers([key]).to_pylist()[0]
        return found

    def change(self) -> None:
        """Change rows in a transaction, which commits or not."""
        before = dict(self.rows)
        with self.store.transaction() as txn:
            with self.state.within(txn) as rows:
                self.put(rows, self.drawn())
                if self.rng.random() < 0.4:
                    self.set_timers(rows)
                self.compare(rows)
            if self.rng.random() < 0.2:
                txn.rollback()
                self.rows = before

    def set_timers(self, rows: keyed.KeyedChanges) -> None:
        """Set timers of keys, some of which have no row, and some of which are there twice."""
        keys = self.rng.choices(range(90), k=self.rng.randrange(20))
        timers = [self.timer() for _ in keys]
        rows.set_timers(keys, timers)
        for key, timer in zip(keys, timers, strict=True):
            if key in self.rows:
                value, _, gone = self.rows[key]
                self.rows[key] = value, timer, gone

    def fire(self) -> None:
        """Fire timers, and change rows before it, after it, or not at all."""
        before, until, limit = dict(self.rows), *self.asked()
        with self.store.transaction() as txn:
            with self.state.within(txn) as rows:
                changed = self.drawn() if self.rng.random() < 0.3 else {}
                self.put(rows, changed)
                for _ in range(self.rng.choice([1, 1, 2])):
                    expected = [row for row in self.due(until) if row[1] not in changed]
                    found = rows.due(until, limit)
                    shown = self.shown(found)
                    assert shown == expected[: len(shown)]
                    assert bool(shown) == bool(expected)
                    assert len(shown) <= limit
                    for _, key in shown:
                        self.rows[key] = (self.rows[key][0], None, self.rows[key][2])
                if self.rng.random() < 0.5:
                    self.put(rows, self.drawn())
            if self.rng.random() < 0.2:
                txn.rollback()
                self.rows = before

    def fire_by_tasks(self) -> None:
        """The same by tasks, each with its range: all up to the mark, and each row again."""
        until, limit = self.asked()
        look, count = self.state.look(), self.rng.choice([1, 3])
        mark = look.due_mark(self.files, until, limit)
        expected, waiting = self.due(until), self.due(NEVER - 1)
        assert mark is not None or not expected
        first = look.next_timer(self.files)
        assert not waiting or (first is not None and first <= waiting[0][0])
        written, seen = [], 0
        for number in range(count if mark is not None else 0):
            assert mark is not None
            found = look.due_rows(self.files, mark, number, count)
            shown = self.shown(found)
            own = look.range_numbers([key for _, key in expected], count).tolist()
            inside = [r for r, its in zip(expected, own, strict=True) if its == number]
            assert shown == inside[: len(shown)]
            assert len(shown) == len(inside) or inside[len(shown)][0] >= mark.time
            seen += len(shown)
            again = {key: self.timer() for _, key in shown if self.rng.random() < 0.5}
            run = look.write(
                self.files, [{"key": key, "value": 7} for key in again], (), number, count,
                None, list(again.values()), self.env,
            )  # fmt: skip
            written += [run] if run is not None else []
            for _, key in shown:
                value, _, gone = self.rows[key]
                self.rows[key] = (7, again[key], FAR) if key in again else (value, None, gone)
        assert seen <= limit
        with self.store.transaction() as txn:
            self.state.adopt(txn, look, written, mark)
        self.state.end_look(look)

    def asked(self) -> tuple[int, int]:
        """Until when, and how many."""
        return self.rng.choice([0, 5, 100, 300]), self.rng.choice([1, 3, 1000])

    def due(self, until: int) -> list[tuple[int, int]]:
        """Time and key of all that is due, in order."""
        now, found = self.env.now_us(), []
        for key, (_, timer, gone) in self.rows.items():
            if timer is not None and timer <= until and gone > now:
                found.append((timer, hash_of(key), key))
        return [(timer, key) for timer, _, key in sorted(found)]

    def shown(self, found: keyed.DueRows) -> list[tuple[int, int]]:
        """Time and key of rows; their values are the model's."""
        rows = found.rows.to_pylist()
        assert [row["value"] for row in rows] == [self.rows[row["key"]][0] for row in rows]
        return list(zip(found.timers.to_pylist(), [row["key"] for row in rows], strict=True))

    def compare(self, rows: keyed.KeyedChanges) -> None:
        """All timers, as a block has them."""
        now = self.env.now_us()
        expected = [
            row[1] if (row := self.rows.get(key)) and row[2] > now else None for key in range(70)
        ]
        assert rows.timers(list(range(70))).to_pylist() == expected

    def end(self) -> None:
        """Nothing is due that the model has not, and the store is whole."""
        with self.store.transaction() as txn, self.state.within(txn) as rows:
            self.compare(rows)
            assert self.shown(rows.due(FAR)) == self.due(FAR)
        with self.store.transaction() as txn, self.state.within(txn) as rows:
            assert self.shown(rows.due(FAR)) == []
        self.state.merge(all=True)
        assert all(run.timers == 0 for run in self.state.runs())
        report = self.store.admin.verify()
        assert report.ok, report.findings
        self.store.close()


def hash_of(key: int) -> int:
    """The hash of a key of these tests."""
    return int(hashes_of([pa.array([key], pa.int32())])[0])


def test_timers_are_those_of_a_model(
    rng: Random, rounds: int, small_runs: None, limits: Limits
) -> None:
    """Each is due once: with its commit, and not before; one of a row that was put anew is not
    (KT1), also over merges by range.
    """
    if rng.random() < 0.5:
        limits(RANGE_BYTES=SMALL_RANGE_BYTES)
    for _ in range(max(1, rounds // 6)):
        history = TimedHistory(rng)
        for _ in range(60):
            history.step()
        history.end()


@pytest.mark.parametrize("fault", ["rows", "marks"])
def test_timers_that_are_wrong_are_noticed(
    rng: Random, small_runs: None, limits: Limits, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """The model is one: it sees timers that fire again, also where a lower mark follows."""
    if fault == "rows":
        monkeypatch.setattr(row_lookup, "unfired", lambda rows, mark: rows)
    else:
        monkeypatch.setattr(
            manifest, "fired_after", lambda fired, version, mark, _: (FiredTimers(version, *mark),)
        )
    with pytest.raises(AssertionError):
        test_timers_are_those_of_a_model(rng, 90, None, limits)


def test_a_timer_in_twenty_lines(store: quire.Store, env: SimEnv) -> None:
    """A put sets it, and the next one replaces it; it goes with its row."""
    state = opened(store, env)
    rows = [{"key": key, "value": key} for key in range(5)]
    with store.transaction() as txn, state.within(txn) as changes:
        changes.put(rows, timers=[30, 10, None, 20, 10])
        assert changes.timers([0, 2, 9]).to_pylist() == [30, None, None]
    with store.transaction() as txn, state.within(txn) as changes:
        assert changes.due(9).rows.num_rows == 0
        changes.put(rows[:1])
        changes.delete([1])
    with store.transaction() as txn, state.within(txn) as changes:
        found = changes.due(100)
        assert found.rows.to_pylist() == [rows[4], rows[3]]
        assert found.timers.to_pylist() == [10, 20]
        changes.put(rows[3:4], timers=[5])
    with store.transaction() as txn, state.within(txn) as changes:
        assert changes.due(100).rows.to_pylist() == [rows[3]]
        changes.set_timers([3, 4, 1], [7, 6, 5])  # 1 has no row
    with store.transaction() as txn, state.within(txn) as changes:
        assert changes.due(100).rows.to_pylist() == [rows[4], rows[3]]
    with store.transaction() as txn, state.within(txn) as changes:
        assert changes.due(100).rows.num_rows == 0
    assert state.get([0, 2, 3, 4]).num_rows == 4


def test_timers_fire_with_their_commit(store: quire.Store, env: SimEnv) -> None:
    """Of two that fire the same one commits; a rollback has fired nothing (KT1)."""
    state = opened(store, env)
    with store.transaction() as txn, state.within(txn) as changes:
        changes.put([{"key": 1, "value": 1}], timers=[10])
    first, second = store.transaction(), store.transaction()
    with state.within(first) as rows, state.within(second) as others:
        assert rows.due(10).rows.num_rows == others.due(10).rows.num_rows == 1
    first.commit()
    with pytest.raises(StateConflict):
        second.commit()
    with store.transaction() as txn, state.within(txn) as changes:
        assert changes.due(10).rows.num_rows == 0


def test_times_that_timers_cannot_be(store: quire.Store, env: SimEnv) -> None:
    """Each is refused with what to do."""
    state = opened(store, env)
    row = [{"key": 1, "value": 1}]
    with store.transaction() as txn, state.within(txn) as changes:
        for timers in ([1, 2], [], ["soon"], [1.5], pa.array(["x"])):
            with pytest.raises(InvalidArgument, match="timers"):
                changes.put(row, timers=timers)
        until: Any = 1.5
        with pytest.raises(InvalidArgument, match="a whole number"):
            changes.due(until)
        with pytest.raises(InvalidArgument):
            changes.due(1, 0)
        moment = pa.array([1_000_000], pa.timestamp("ms", "UTC"))
        changes.put(row, timers=moment)
        assert changes.timers([1]).to_pylist() == [1_000_000_000]


def test_timers_of_a_run(limits: Limits, rng: Random) -> None:
    """They are found in their order, between marks; what is damaged is told (KR1)."""
    layout = layout_of(WORDS, 1, timed=True)
    rows = newest_of([rows_of([f"key {number}" for number in range(2000)], layout)], 1)
    data = bytearray()
    writer = RunWriter(data.extend, layout, RUN_ID, len(rows.hashes) * 60, len(rows.hashes))
    writer.add(rows)
    info = writer.finish()
    all_timers = sorted(
        (t, h) for t, h in zip(rows.timers.tolist(), rows.hashes.tolist(), strict=True) if t < FAR
    )
    assert info.timers == len(all_timers) > 512
    run = run_in_memory(bytes(data), RUN_ID, "run it")
    for _ in range(50):
        low, high = sorted(rng.sample(all_timers, 2))
        first, most = rng.randrange(1 << 64), rng.choice([1, 300, 5000])
        found = run.due(TimerMark(*low), TimerMark(*high), (first, (1 << 64) - 1), most)
        expected = [each for each in all_timers if low < each <= high and each[1] >= first]
        assert list(map(tuple, found.tolist())) == expected[:most]
    at = bytes(data).index(
        np.array(all_timers[0][0]).tobytes() + all_timers[0][1].to_bytes(8, "little")
    )
    data[at] ^= 1
    with pytest.raises(StoreCorrupt, match="of timers at"):
        run_in_memory(bytes(data), RUN_ID, "run it").due(
            BEFORE_ALL, TimerMark(FAR), (0, (1 << 64) - 1), 1
        )


def test_runs_have_fired_what_any_later_mark_says() -> None:
    """A run that is newer than a mark has fired nothing of it (KT1)."""
    fired = (FiredTimers(5, 100, 7), FiredTimers(6, 15, 9))
    assert fired_of(fired, 4) == fired_of(fired, 5) == TimerMark(100, 7)
    assert fired_of(fired, 6) == TimerMark(15, 9)
    assert fired_of(fired, 7) == BEFORE_ALL
