"""Rows that are due and that the function of their timers fails with, without Spark."""

from __future__ import annotations

import math
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from quire import keyed as plain
from quire.errors import InvalidArgument, OutcomeUnknown
from quire.graphs import pause_reason
from quire.keyed import keyed_changes
from quire.messages.typed_message import row_of_payload
from quire.spark_graphs import keyed
from quire.spark_graphs.graphs.definition import Limit, Step
from quire.spark_graphs.graphs.failures import failed_batch
from quire.spark_graphs.graphs.preparing import prepare
from quire.spark_graphs.graphs.states import state_tasks
from quire.spark_graphs.graphs.status import Phase
from quire.spark_graphs.graphs.steps import row_letters
from quire.spark_graphs.graphs.steps.replay import replay
from quire.spark_graphs.graphs.steps.step_commit import StepCommit
from quire.spark_graphs.limits import REPLAY_ROWS_AT_ONCE
from tests.kit.waiting import eventually
from tests.spark.numbered_queues import numbers_in, topic
from tests.spark.plain_work import GRAPH, runner_of, step, thread
from tests.spark.test_step_runner import running, told_of

SCHEMA = "number bigint, text string"
Row = dict[str, Any]


class Timers:
    """A step with a state whose rows are numbers; those with another text than "ok" fail."""

    def __init__(self, store: Any) -> None:
        topic(store, "in", "fired")
        self.store = store
        self.is_mended = False
        self.calls = 0
        self.during: Callable[[], None] = lambda: None  # what happens while the function works
        self.state = keyed("waiting", "number", SCHEMA, on_timer=self.fire)

    def fire(self, rows: list[Row]) -> dict[str, list[bytes]]:
        """The function of the timers."""
        self.calls += 1
        self.during()
        bad = [] if self.is_mended else [row for row in rows if row["text"] != "ok"]
        if bad:
            raise ValueError(f"no text of a good row: {bad[0]['text']}")
        return {"fired": [b"%d" % row["number"] for row in rows]}

    def step(self, **options: Any) -> Step:
        """The step."""
        return step(lambda payloads: {}, writes="fired", states=(self.state,), **options)

    @property
    def keyed(self) -> plain.KeyedState:
        """The state, as another program has it."""
        return plain.open_state(self.store, "waiting", "number", SCHEMA)

    def put(self, rows: dict[int, str], timers: list[int | None]) -> None:
        """Put rows by their numbers, with timers."""
        values = [{"number": number, "text": text} for number, text in rows.items()]
        with self.store.transaction() as txn, self.keyed.within(txn) as changes:
            changes.put(values, timers=timers)

    def left(self) -> list[int]:
        """How many rows have a timer, and how many there are."""
        keys = [key for batch in self.keyed.rows() for key in batch.column(0).to_pylist()]
        with self.store.transaction() as txn, self.keyed.within(txn) as changes:
            timers = changes.timers(keys)
        return [len(timers) - timers.null_count, len(keys)]

    def done(self) -> int:
        """How many rows have fired, or are dead letters."""
        return int(numbers_in(self.store, "fired").total() + self.store.queue("dead").messages)

    def letters(self) -> list[tuple[int, int]]:
        """The numbers of the rows in dead letters, and when they were due."""
        return [
            (
                row_of_payload(each.payload).to_pylist()[0]["number"],
                int(each.attributes["quire.timer"]),
            )
            for each in self.store.browse("dead", max_messages=10_000)
        ]


@pytest.mark.parametrize("seconds", [0.0, math.inf])
def test_rows_that_fail_are_dead_letters(store: Any, rng: random.Random, seconds: float) -> None:
    """All others fire once, whatever the limit and the time to tell them apart; mended these do."""
    timers = Timers(store)
    numbers = rng.sample(range(1000), rng.randrange(60, 120))
    bad = set(rng.sample(numbers, rng.choice([1, 3, len(numbers) // 3])))
    rows = {n: f"bad {n}" if n in bad else "ok" for n in numbers}
    due: list[int | None] = [rng.choice([1, 2, 2, rng.randrange(50)]) for _ in numbers]
    timers.put(rows, due)
    again = rng.sample(numbers, 20)  # whose first timers count no more
    timers.put({n: rows[n] for n in again}, [50 + n % 3 for n in again])
    times = dict(zip(numbers, due, strict=True)) | {n: 50 + n % 3 for n in again}
    limit = Limit(rng.choice([1, 7, 30, 1000]))
    made = timers.step(dead="dead", limit=limit, poison_seconds=seconds)
    with running(store, made) as runner:
        eventually(lambda: timers.left()[0] == 0 and runner.tally.phase is Phase.IDLE)
        assert numbers_in(store, "fired") == Counter(set(numbers) - bad)
        assert sorted(timers.letters()) == sorted((n, times[n]) for n in bad)
        assert runner.tally.dead_letters == len(bad)
        assert runner.tally.messages_in == 0
        letter = next(iter(store.browse("dead")))
        told = {key: letter.attributes[f"quire.{key}"] for key in ("step", "state", "reason")}
        text = row_of_payload(letter.payload).to_pylist()[0]["text"]
        reason = f"no text of a good row: {text}"
        assert told == {"step": "g/s", "state": "waiting", "reason": reason}
        assert "ValueError" in letter.attributes["quire.trace"]
        assert "quire.queue" not in letter.attributes
        assert replay(runner, "dead", None) == len(bad)  # and they are dead letters again
        eventually(lambda: runner.tally.dead_letters == 2 * len(bad))
        assert sorted(timers.letters()) == sorted((n, times[n]) for n in bad)
        timers.is_mended = True
        some = len(bad) // 2
        assert (replay(runner, "dead", some) if some else 0) == some
        assert replay(runner, "dead", None) == len(bad) - some
        eventually(lambda: numbers_in(store, "fired") == Counter(numbers))
        eventually(lambda: timers.left() == [0, len(numbers)])
    assert store.queue("dead").messages == 0


def test_a_letter_whose_row_has_changed(store: Any) -> None:
    """It is taken, and sets no timer where the row is gone, or has another one."""
    timers = Timers(store)
    timers.put(dict.fromkeys(range(5), "bad"), [10, 11, 12, 13, 14])
    with running(store, timers.step(dead="dead")) as runner:
        eventually(lambda: store.queue("dead").messages == 5)
        runner.pause(True)
        eventually(lambda: runner.tally.phase is Phase.PAUSED)
        with store.transaction() as txn, timers.keyed.within(txn) as rows:
            rows.delete([0])
            rows.put([{"number": 1, "text": "new"}, {"number": 2, "text": "new"}], 3600)
            rows.set_timers([1, 3], [1 << 60, 1 << 60])
        timers.is_mended = True
        assert replay(runner, "dead", None) == 5
        with store.transaction() as txn, timers.keyed.within(txn) as rows:
            assert rows.timers(range(5)).to_pylist() == [None, 1 << 60, 12, 1 << 60, 14]
            assert rows.get([2]).to_pylist() == [{"number": 2, "text": "new"}]
        runner.pause(False)
        eventually(lambda: numbers_in(store, "fired") == Counter([2, 4]))
    assert store.queue("dead").messages == 0


def test_large_rows_that_are_due(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of them are due at a time, the earliest first: no batch has more bytes than that."""
    monkeypatch.setattr(state_tasks, "FOUND_BYTES", 10_000)
    timers = Timers(store)
    timers.is_mended = True
    timers.put(dict.fromkeys(range(40), "x" * 1000), list(range(40)))
    with running(store, timers.step()) as runner:
        eventually(lambda: timers.left()[0] == 0 and runner.tally.phase is Phase.IDLE)
        assert runner.tally.batches >= 4
    fired = [int(each.payload) for each in store.browse("fired")]
    assert fired == list(range(40))


def test_letters_of_large_rows(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are put back a few at a time, as a transaction has bounds; also with a limit."""
    timers = Timers(store)
    numbers = range(REPLAY_ROWS_AT_ONCE * 4)
    timers.put(dict.fromkeys(numbers, "bad" * 1000), list(numbers))
    with running(store, timers.step(dead="dead", poison_share=1.0)) as runner:
        eventually(lambda: store.queue("dead").messages == len(numbers))
        timers.is_mended = True
        monkeypatch.setattr(row_letters, "REPLAY_BYTES", 100_000)
        monkeypatch.setattr(keyed_changes, "MAX_PENDING_BYTES", 250_000)
        assert replay(runner, "dead", 30) == 30
        assert replay(runner, "dead", None) == len(numbers) - 30
        eventually(lambda: numbers_in(store, "fired") == Counter(numbers))
    assert store.queue("dead").messages == 0


def test_letters_of_one_row(store: Any) -> None:
    """Of two the first sets the timer; it fires once."""
    timers = Timers(store)
    timers.put({1: "bad"}, [10])
    with running(store, timers.step(dead="dead")) as runner:
        eventually(lambda: store.queue("dead").messages == 1)
        timers.put({1: "bad"}, [20])
        store.put("in", b"look")
        eventually(lambda: store.queue("dead").messages == 2)
        runner.pause(True)
        eventually(lambda: runner.tally.phase is Phase.PAUSED)
        assert replay(runner, "dead", None) == 2
        with store.transaction() as txn, timers.keyed.within(txn) as rows:
            assert rows.timers([1]).to_pylist() == [10]


def test_letters_of_messages_and_of_rows(store: Any) -> None:
    """They are put back from one queue, each as what it is; what is neither stays."""
    timers = Timers(store)
    is_right: list[bool] = []

    def function(payloads: list[bytes]) -> dict[str, list[bytes]]:
        if b"bad" in payloads and not is_right:
            raise ValueError("a bad message")
        return {"fired": [b"77"] * len(payloads)}

    wrong = [{"quire.state": "other"}, {"quire.timer": "x"}, {"quire.timer": "9" * 30}]
    with running(store, step(function, writes="fired", states=(timers.state,), dead="dead")) as own:
        store.put("in", b"bad")
        eventually(lambda: store.queue("dead").messages == 1)
        timers.put({1: "bad", 2: "bad"}, [10, 11])
        store.put("in", b"good")
        eventually(lambda: store.queue("dead").messages == 3)
        (row,) = [
            each for each in store.browse("dead") if each.attributes.get("quire.timer") == "11"
        ]
        for attributes in wrong:
            store.put("dead", row.payload, attributes={**row.attributes, **attributes})
        store.put("dead", b"no row", attributes=dict(row.attributes))
        timers.is_mended = True
        is_right.append(True)
        assert store.admin.redrive("dead") == 1  # the rows are in no queue that they could go to
        eventually(lambda: numbers_in(store, "fired") == Counter([77, 77]))
        assert replay(own, "dead", None) == 2
        eventually(lambda: numbers_in(store, "fired") == Counter([77, 77, 1, 2]))
    assert store.queue("dead").messages == len(wrong) + 1


def test_a_conflict_while_rows_are_told_apart(store: Any) -> None:
    """Another program has changed the state: it counts, and what fails now is a dead letter."""
    timers = Timers(store)
    timers.put({n: "bad" if n % 4 == 1 else "ok" for n in range(12)}, list(range(12)))
    changes = iter([{1: "ok"}, {2: "bad"}, {5: "bad"}])

    def change() -> None:
        if timers.calls > 2:
            for rows in changes:
                timers.put(rows, [3])
                break

    timers.during = change
    with running(store, timers.step(dead="dead", poison_seconds=0.0)) as runner:
        eventually(lambda: timers.left()[0] == 0 and runner.tally.phase is Phase.IDLE)
    assert next(changes, None) is None
    assert sorted(timers.letters()) == [(2, 3), (5, 3), (9, 9)]
    assert numbers_in(store, "fired") == Counter(set(range(12)) - {2, 5, 9})


@pytest.mark.parametrize("takes_effect", [True, False])
def test_an_answer_that_is_lost(
    store: Any, monkeypatch: pytest.MonkeyPatch, takes_effect: bool
) -> None:
    """Whether the commit with the letters took effect or not, each row is in one of the two."""
    timers = Timers(store)
    lost = [OutcomeUnknown("the test has lost the answer")]
    enter = StepCommit.enter

    def entering(self: StepCommit, joined: Any, txn: Any) -> None:
        enter(self, joined, txn)
        if lost and self.letters:
            if takes_effect:
                txn.commit()
            raise lost.pop()

    monkeypatch.setattr(StepCommit, "enter", entering)
    timers.put({n: "bad" if n in (3, 5) else "ok" for n in range(9)}, list(range(9)))
    with running(store, timers.step(dead="dead")) as runner:
        eventually(lambda: timers.left()[0] == 0 and runner.tally.phase is Phase.IDLE)
        assert (runner.tally.batches, runner.tally.dead_letters) == (1, 2)
    assert not lost
    assert timers.letters() == [(3, 3), (5, 5)]
    assert numbers_in(store, "fired") == Counter(set(range(9)) - {3, 5})


@pytest.mark.crash
def test_drivers_killed_among_rows_that_fail(store: Any, rounds: int, rng: random.Random) -> None:
    """Each row has fired once, or is one dead letter, whenever the process ends."""
    timers = Timers(store)
    timers.during = lambda: time.sleep(rng.random() * 0.01)
    made = timers.step(dead="dead", limit=Limit(9), poison_share=1.0)
    runner = runner_of(store, made)
    count = 0
    for _ in range(max(2, rounds // 10)):
        numbers = range(count, count + 30)
        timers.put({n: "bad" if n % 7 == 3 else "ok" for n in numbers}, list(numbers))
        count += 30
        process = os.fork()
        if process == 0:
            runner.start(thread)
            time.sleep(60)
            os._exit(1)
        time.sleep(rng.random() * 0.6)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        eventually(lambda: timers.done() + timers.left()[0] == count)  # noqa: B023
    with running(store, made):
        eventually(lambda: timers.left()[0] == 0)
    bad = {n for n in range(count) if n % 7 == 3}
    assert sorted(timers.letters()) == [(n, n) for n in sorted(bad)]
    assert numbers_in(store, "fired") == Counter(set(range(count)) - bad)


def test_a_broken_function_of_timers_pauses(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the batch is put anywhere; messages that go well do not hide it."""
    monkeypatch.setattr(failed_batch, "POISON_WINDOW", 50)
    timers = Timers(store)
    timers.put(dict.fromkeys(range(20), "bad"), list(range(20)))
    store.put_many("in", [b"good"] * 300)
    with running(store, timers.step(dead="dead")) as runner:
        eventually(lambda: runner.tally.phase is Phase.PAUSED)
        told = "the function of the timers of state 'waiting' is broken: it fails with 6 of the "
        assert told in told_of(runner)
        assert "rows, and `poison_share` 0.1 allows 5 of 50" in told_of(runner)
        assert pause_reason(store, "g", "s") == told_of(runner).removeprefix("StepFailed: ")
    assert store.queue("dead").messages == 0
    assert timers.left() == [20, 20]


def test_without_a_queue_for_dead_letters(store: Any) -> None:
    """The batch is tried again, until its rows are as they should be."""
    timers = Timers(store)
    timers.put({1: "bad", 2: "ok"}, [1, 2])
    with running(store, timers.step()) as runner:
        eventually(lambda: runner.tally.retries == 2)
        assert "no text of a good row: bad" in told_of(runner)
        assert timers.left()[0] == 2
        timers.is_mended = True
        eventually(lambda: numbers_in(store, "fired") == Counter([1, 2]))


def test_a_queue_for_dead_letters_that_has_columns(store: Any) -> None:
    """It is refused where rows may be due, which have others."""
    timers = Timers(store)
    store.create_queue("typed", kind="topic", schema=SCHEMA)
    store.create_queue("dead", kind="work", schema=SCHEMA)
    made = step(lambda rows: {}, reads="typed", states=(timers.state,), dead="dead")
    with pytest.raises(InvalidArgument, match=r"state 'waiting' .* dead letters of bytes"):
        prepare(store, GRAPH, [made], {})
