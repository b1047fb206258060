"""What is around the functions of steps, without Spark: batches, errors, room, kills."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from quire.errors import OutcomeUnknown, StoreFailed
from quire.graphs import (
    GraphDefinition,
    StepDefinition,
    pause_reason,
    save_graph,
    set_paused,
)
from quire.opening import open_or_serve
from quire.spark_graphs import connection
from quire.spark_graphs.graphs.batches.task_store import trouble
from quire.spark_graphs.graphs.definition import Limit, Step
from quire.spark_graphs.graphs.functions.kept_values import ValueRefused
from quire.spark_graphs.graphs.graph_status import look
from quire.spark_graphs.graphs.status import Phase
from quire.spark_graphs.graphs.steps.replay import replay
from quire.spark_graphs.graphs.steps.step_commit import StepCommit
from quire.spark_graphs.graphs.steps.step_runner import StepRunner
from tests.kit.waiting import SECONDS, eventually
from tests.spark.numbered_queues import fill, numbers_in, put_numbers, topic
from tests.spark.plain_work import runner_of, step, thread


def doubled(payloads: list[bytes]) -> dict[str, list[bytes]]:
    """What is no number is an error."""
    return {"out": [b"%d" % (2 * int(payload)) for payload in payloads]}


@contextmanager
def running(store: Any, made: Step, restart: str = "backoff") -> Iterator[StepRunner]:
    """The step, until the end of the block."""
    runner = runner_of(store, made, restart)
    runner.start(thread)
    try:
        yield runner
    finally:
        runner.stop()
        assert runner.join(SECONDS)
        connection.forget(store.path)


def told_of(runner: StepRunner) -> str:
    """The last error, as its status tells it."""
    return str(runner.tally.last_error)


def at_end(store: Any, runner: StepRunner) -> bool:
    """Whether it has read all there is."""
    (subscription,) = [s for s in store.subscriptions("in") if s.name == runner.subscription]
    return bool(subscription.position == store.queue("in").end_position)


def test_batches_follow_one_another(store: Any) -> None:
    """What comes while it runs is seen at once, in batches of the limit, each counted once."""
    topic(store, "in", "out")
    put_numbers(store, "in", range(25))
    with running(store, step(doubled, limit=Limit(10))) as runner:
        eventually(lambda: at_end(store, runner))
        put_numbers(store, "in", range(25, 30))
        eventually(lambda: at_end(store, runner))
    assert (runner.tally.number, runner.tally.messages_in) == (3, 30)
    assert numbers_in(store, "out") == Counter(2 * n for n in range(30))
    assert store.integration.ledger("graph/g/s") == 3


def test_poison_in_any_place(store: Any, rng: random.Random) -> None:
    """The messages that fail, and no others, are dead letters; put back when they are right."""
    topic(store, "in", "out")
    bad = set(rng.sample(range(100), 7))
    for start in range(0, 100, 50):
        numbers = range(start, start + 50)
        store.put_many("in", [b"bad %d" % n if n in bad else b"%d" % n for n in numbers])
    is_right: list[bool] = []

    def function(payloads: list[bytes]) -> dict[str, list[bytes]]:
        if is_right:
            payloads = [payload.removeprefix(b"bad ") for payload in payloads]
        return doubled(payloads)

    with running(store, step(function, dead="dead", limit=Limit(80))) as runner:
        eventually(lambda: at_end(store, runner))
        assert numbers_in(store, "out") == Counter(2 * n for n in range(100) if n not in bad)
        letters = list(store.browse("dead"))
        assert [int(each.attributes["quire.position"]) for each in letters] == sorted(bad)
        assert all("invalid literal" in each.attributes["quire.reason"] for each in letters)
        store.put("dead", b"another's")
        assert replay(runner, "dead", 3) == 3
        assert store.queue("dead").messages == 8  # the three are dead letters again
        is_right.append(True)
        assert replay(runner, "dead", None) == 7
    assert numbers_in(store, "out") == Counter(2 * n for n in range(100))
    assert store.browse("dead").payloads() == [b"another's"]


def test_many_poison_messages_pause_the_step(store: Any) -> None:
    """Above its share nothing of the batch is put: it pauses until it is told to go on."""
    topic(store, "in", "out")
    store.put_many("in", [b"%d" % n if n % 6 == 0 else b"bad" for n in range(130)])
    is_right: list[bool] = []

    def function(payloads: list[bytes]) -> dict[str, list[bytes]]:
        return {"out": payloads} if is_right else doubled(payloads)

    with running(store, step(function, dead="dead")) as runner:
        eventually(lambda: runner.tally.phase is Phase.PAUSED)
        told = "StepFailed: the function is broken: it fails with 101 of the last 122 messages"
        assert told_of(runner).startswith(told)
        assert "`poison_share` 0.1 allows 100 of 1000; at last with: inv" in told_of(runner)
        assert pause_reason(store, "g", "s") == told_of(runner).removeprefix("StepFailed: ")
        assert (store.queue("dead").messages, store.integration.ledger("graph/g/s")) == (0, None)
        is_right.append(True)
        save_graph(store, GraphDefinition("g", steps=(StepDefinition("s", "step", ("in",)),)))
        set_paused(store, "g", "s", False)
        eventually(lambda: at_end(store, runner))
        assert store.queue("out").messages == 130


@pytest.mark.cases(8)
def test_a_share_of_one_never_pauses(store: Any) -> None:
    """Then all that fails is a dead letter, however much it is."""
    topic(store, "in", "out")
    store.put_many("in", [b"%d" % n if n % 6 == 0 else b"bad" for n in range(1200)])
    made = step(doubled, dead="dead", limit=Limit(700), poison_share=1.0, poison_seconds=1e6)
    with running(store, made) as runner:
        eventually(lambda: at_end(store, runner))
        assert (store.queue("out").messages, store.queue("dead").messages) == (200, 1000)
        eventually(lambda: (runner.tally.number, runner.tally.dead_letters) == (1, 1000))


def test_telling_apart_takes_its_time_at_most(store: Any) -> None:
    """What is known when it is over is committed with the good messages before it."""
    topic(store, "in", "out")
    numbers = range(40)
    store.put_many("in", [b"bad %d" % n if n % 7 == 3 else b"%d" % n for n in numbers])
    made = step(doubled, dead="dead", limit=Limit(16), poison_seconds=0.0)
    with running(store, made) as runner:
        eventually(lambda: at_end(store, runner))
        assert runner.tally.batches > 3  # of which none has taken longer than a trial
    assert numbers_in(store, "out") == Counter(2 * n for n in numbers if n % 7 != 3)
    found = [int(each.attributes["quire.position"]) for each in store.browse("dead")]
    assert found == [n for n in numbers if n % 7 == 3]


def test_errors_of_the_function_are_no_poison(store: Any) -> None:
    """Where it fails without messages too; and `restart="never"` ends the step at once."""
    topic(store, "in", "out")
    put_numbers(store, "in", range(5))

    def wrong(payloads: list[bytes]) -> dict[str, list[bytes]]:
        raise KeyError("no such column")

    with running(store, step(wrong, dead="dead"), "never") as runner:
        eventually(lambda: runner.tally.phase is Phase.FAILED)
        told = "KeyError: 'no such column' (nothing of it goes to the dead letters: it fails with"
        assert str(runner.tally.last_error).startswith(told)
    assert store.queue("dead").messages == 0
    assert store.integration.ledger("graph/g/s") is None


def test_trouble_with_the_store_is_no_poison(store: Any) -> None:
    """Where a batch is read or written in the driver itself: no message is at fault."""
    topic(store, "in", "out")
    put_numbers(store, "in", range(5))

    def unlucky(payloads: list[bytes]) -> dict[str, list[bytes]]:
        if b"3" in payloads:
            with trouble():
                raise OSError("no such device")
        return {"out": payloads}

    with running(store, step(unlucky, dead="dead"), "never") as runner:
        eventually(lambda: runner.tally.phase is Phase.FAILED)
        assert "no such device" in str(runner.tally.last_error)
    assert store.queue("dead").messages == 0
    assert numbers_in(store, "out") == Counter()


def test_a_value_that_cannot_be_kept_is_poison(store: Any) -> None:
    """It comes of a message, which is told."""
    topic(store, "in", "out")
    store.put_many("in", [b"1", b"nan", b"3"])

    def sums(payloads: list[bytes]) -> dict[str, list[bytes]]:
        values = runner.memory.values()
        values["sum"] = values.get("sum", 0.0) + sum(float(payload) for payload in payloads)
        return {}

    with running(store, step(sums, dead="dead")) as runner:
        eventually(lambda: at_end(store, runner))
    assert store.browse("dead").payloads() == [b"nan"]
    with running(store, step(lambda payloads: {}), "never"):
        for key, value in [("k" * 1025, 1), ("\ud800", 1), ("a\n", 1), ("a", "x" * (1 << 20))]:
            with pytest.raises(ValueRefused):
                runner.memory.values()[key] = value
    assert store.states.items("graph.g.step.s") == {"sum": b"4.0"}


def test_a_function_that_ends_its_program_has_failed(store: Any) -> None:
    """`sys.exit` ends no thread unseen: it is an error like others."""
    topic(store, "in", "out")
    put_numbers(store, "in", range(3))
    left = [True]

    def leaving(payloads: list[bytes]) -> dict[str, list[bytes]]:
        if left:
            left.clear()
            sys.exit("enough")
        return {"out": payloads}

    with running(store, step(leaving), "never") as runner:
        eventually(lambda: runner.tally.phase is Phase.FAILED)
        assert runner.tally.last_error == "SystemExit: enough"
        left.append(True)
    with running(store, step(leaving)) as runner:
        eventually(lambda: at_end(store, runner))
    assert numbers_in(store, "out") == Counter(range(3))


def test_a_failed_store_is_told_with_what_to_do(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which process has to let go of it, as nothing else helps."""
    topic(store, "in", "out")
    put_numbers(store, "in", range(3))

    def failing(self: StepCommit) -> bool:
        raise StoreFailed("the disk is broken")

    monkeypatch.setattr(StepCommit, "commit", failing)
    with running(store, step(doubled), "never") as runner:
        eventually(lambda: runner.tally.phase is Phase.FAILED)
        told = str(runner.tally.last_error)
    assert "the disk is broken. The step goes on when process" in told
    assert f"process {os.getpid()}, which has the store open" in told


def test_a_batch_whose_answer_is_lost_is_counted(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took effect, as the ledger tells: the batch and its messages count, once."""
    topic(store, "in", "out")
    lost = [OutcomeUnknown("the test has lost the answer")]
    enter = StepCommit.enter

    def entering(self: StepCommit, joined: Any, txn: Any) -> None:
        enter(self, joined, txn)
        if lost:
            txn.commit()
            raise lost.pop()

    monkeypatch.setattr(StepCommit, "enter", entering)
    put_numbers(store, "in", range(10))
    with running(store, step(doubled)) as runner:
        eventually(lambda: at_end(store, runner))
        put_numbers(store, "in", range(10, 15))
        eventually(lambda: at_end(store, runner))
        eventually(lambda: runner.tally.number == 1)
    tally = runner.tally
    assert not lost
    assert (tally.batches, tally.messages_in, tally.messages_out) == (2, 15, 15)
    assert numbers_in(store, "out") == Counter(2 * n for n in range(15))


def test_what_is_no_dead_letter_stays(store: Any) -> None:
    """Also what says that it is one, and lacks what it needs; what is one is put back."""
    topic(store, "in", "out")
    store.put("in", b"bad 1")
    is_right: list[bool] = []

    def function(payloads: list[bytes]) -> dict[str, list[bytes]]:
        return doubled([p.removeprefix(b"bad ") if is_right else p for p in payloads])

    title = {"quire.step": "g/s"}
    wrong = ["x", "", "-1", "1.5", "9" * 30]
    with running(store, step(function, dead="dead")) as runner:
        eventually(lambda: at_end(store, runner))
        is_right.append(True)
        store.put("dead", b"1", attributes=title)
        for position in wrong:
            said = {**title, "quire.queue": "in", "quire.position": position}
            store.put("dead", b"1", attributes=said)
        assert replay(runner, "dead", None) == 1
    assert numbers_in(store, "out") == Counter([2])
    assert store.queue("dead").messages == 1 + len(wrong)


def test_a_replay_whose_answer_is_lost_counts_right(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger tells that it took effect: it is counted, and no more than asked for are taken."""
    topic(store, "in", "out")
    store.put_many("in", [b"bad %d" % number for number in range(7)])
    is_right: list[bool] = []

    def function(payloads: list[bytes]) -> dict[str, list[bytes]]:
        return doubled([p.removeprefix(b"bad ") if is_right else p for p in payloads])

    def losing(path: str, action: Any, **options: Any) -> Any:
        def lost(joined: Any) -> Any:
            found = action(joined)
            if isinstance(found, tuple) and answers:  # of a batch of dead letters
                raise answers.pop()
            return found

        return call(path, lost, **options)

    call, answers = connection.call, [OutcomeUnknown("the test has lost the answer")]
    with running(store, step(function, dead="dead")) as runner:
        eventually(lambda: at_end(store, runner))
        is_right.append(True)
        monkeypatch.setattr(connection, "call", losing)
        assert replay(runner, "dead", 3) == 3
        assert not answers
        assert store.queue("dead").messages == 4
        assert replay(runner, "dead", None) == 4
        monkeypatch.undo()
    assert numbers_in(store, "out") == Counter(2 * number for number in range(7))
    assert store.integration.ledger("graph/g/s/replay") == 1


def test_a_queue_that_somebody_has_renamed(store: Any) -> None:
    """The status tells what there is, and why the step does not go on."""
    topic(store, "in", "out")
    with running(store, step(doubled)) as runner:
        eventually(lambda: runner.tally.phase is Phase.IDLE)
        store.admin.rename_queue("in", "other")
        eventually(lambda: runner.tally.phase is Phase.RETRYING)
        found = look("g", store.path, {"s": runner}, {})
        assert list(found.queues) == ["out"]
        assert found.steps["s"].inputs == ()
        assert "no queue 'in'" in str(found)
        store.admin.rename_queue("other", "in")
        put_numbers(store, "in", range(3))
        eventually(lambda: at_end(store, runner))


def test_room_is_waited_for(store: Any) -> None:
    """With nothing held: no transaction, and files of fragments that are there once, or not."""
    topic(store, "in")
    topic(store, "out", capacity=8192)
    before = fill(store, "out")
    put_numbers(store, "in", range(20))
    with running(store, step(doubled)) as runner:
        eventually(lambda: runner.tally.phase is Phase.WAITING)
        assert list(runner.tally.full) == ["out"]
        assert store.admin.transactions() == []
        assert not at_end(store, runner)
        assert len(store.get_many("out/check", before)) == before
        eventually(lambda: at_end(store, runner))
    assert len(runner.tally.full) == 0
    assert numbers_in(store, "out") == Counter(2 * n for n in range(20))


def test_what_is_full_is_told_by_its_name(store: Any) -> None:
    """Of several outputs that one; or the queue for dead letters."""
    topic(store, "in", "out")
    store.create_queue("bounded", kind="work", max_messages=2)
    store.create_queue("dead", kind="work", max_messages=1)
    store.put_many("bounded", [b"x"] * 2)

    def both(payloads: list[bytes]) -> dict[str, list[bytes]]:
        return {"out": doubled(payloads)["out"], "bounded": payloads[:1]}

    made = step(both, writes=("out", "bounded"), dead="dead")
    with running(store, made) as runner:
        put_numbers(store, "in", range(3))
        eventually(lambda: runner.tally.phase is Phase.WAITING)
        eventually(lambda: runner.tally.full == ("bounded",))
        store.get("bounded")
        eventually(lambda: at_end(store, runner))
        store.admin.purge("bounded")
        store.put("dead", b"another's")
        store.put_many("in", [b"1", b"bad", b"2"])
        eventually(lambda: runner.tally.full == ("dead",))
        store.get("dead")
        eventually(lambda: at_end(store, runner))
    assert store.browse("dead").payloads() == [b"bad"]


def test_dead_letters_that_never_fit_make_batches_smaller(store: Any) -> None:
    """As results do: one by one they go to a queue that takes one."""
    topic(store, "in", "out")
    store.create_queue("dead", kind="work", max_messages=1)
    store.put_many("in", [b"bad %d" % number for number in range(3)])
    found = []
    with running(store, step(doubled, dead="dead")) as runner:
        for _ in range(3):
            eventually(lambda: store.queue("dead").messages == 1)
            found.append(store.get("dead").payload)
        eventually(lambda: at_end(store, runner))
    assert found == [b"bad 0", b"bad 1", b"bad 2"]


def test_two_runs_of_one_step_do_each_batch_once(store: Any) -> None:
    """Nothing but the ledger keeps them apart here, as on two machines."""
    topic(store, "in", "out")
    made = step(doubled, limit=Limit(3))
    with running(store, made) as first, running(store, made) as second:
        for start in range(0, 60, 6):
            put_numbers(store, "in", range(start, start + 6))
        eventually(lambda: at_end(store, first))
    assert numbers_in(store, "out") == Counter(2 * n for n in range(60))
    # The second to end takes the connection from the first: should that lose an answer, it cannot
    # tell the other's same batch from its own (YSC3), and counts it, too.
    done = store.integration.ledger("graph/g/s") + 1
    assert first.tally.batches + second.tally.batches - done in (0, 1)


def test_it_stops_while_it_waits_or_works(store: Any) -> None:
    """At rest, paused, and between two trials of a batch."""
    topic(store, "in", "out")
    with running(store, step(doubled)) as runner:
        runner.pause(True)
        eventually(lambda: runner.tally.phase is Phase.PAUSED)
        put_numbers(store, "in", range(3))
        assert not at_end(store, runner)
        runner.pause(False)
        eventually(lambda: at_end(store, runner))
        runner.stop()
        assert runner.join(SECONDS)
        assert runner.tally.phase is Phase.STOPPED
        runner.start(thread)
        put_numbers(store, "in", range(3, 6))
        eventually(lambda: at_end(store, runner))
    assert numbers_in(store, "out") == Counter(2 * n for n in range(6))


@pytest.mark.cases(8)
@pytest.mark.crash
@pytest.mark.promise(2)
def test_drivers_killed_at_any_moment(store: Any, rounds: int, rng: random.Random) -> None:
    """A process that runs the step, killed while it reads, computes, writes or commits.

    Each message's result is there once, and the sum that the step keeps is that of the results.
    """
    topic(store, "in", "out")

    def function(payloads: list[bytes]) -> dict[str, list[bytes]]:
        kept = runner.memory.values()
        kept["sum"] = kept.get("sum", 0) + sum(map(int, payloads))
        time.sleep(rng.random() * 0.01)
        return {"out": payloads}

    runner = runner_of(store, step(function, limit=Limit(7)))
    put = 0
    for _ in range(max(3, rounds // 5)):
        put_numbers(store, "in", range(put, put + 40))
        put += 40
        process = os.fork()
        if process == 0:
            runner.start(thread)
            time.sleep(60)
            os._exit(1)
        time.sleep(rng.random() * 0.3)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        found = numbers_in(store, "out")
        assert not found - Counter(range(put))
        total = store.states.get("graph.g.step.s", "sum")
        assert int(total or 0) == sum(found.elements())
    with running(store, step(function, limit=Limit(7))) as runner:
        eventually(lambda: at_end(store, runner))
    assert numbers_in(store, "out") == Counter(range(put))


@pytest.mark.cases(8)
@pytest.mark.crash
@pytest.mark.promise(2)
def test_owners_killed_at_any_moment(store_path: str, rounds: int, rng: random.Random) -> None:
    """The step goes on with the next owner, and each message's result is there once."""
    with open_or_serve(store_path) as store:
        topic(store, "in", "out")
    store = connection.store_at(store_path)
    runner = runner_of(store, step(doubled, limit=Limit(5)))
    runner.start(thread)
    try:
        for end in range(40, 40 * max(2, rounds // 12) + 40, 40):
            numbers = range(end - 40, end)
            connection.call(store_path, lambda s, n=numbers: put_numbers(s, "in", n, 40))  # type: ignore[misc]
            time.sleep(rng.random() * 0.05)
            owner = connection.call(store_path, lambda s: s.owner_process_id)
            os.kill(owner, signal.SIGKILL)
            eventually(
                lambda end=end: connection.call(  # type: ignore[misc]
                    store_path, lambda s: numbers_in(s, "out").total() >= end
                )
            )
    finally:
        runner.stop()
        assert runner.join(SECONDS)
    found = connection.call(store_path, lambda s: numbers_in(s, "out"))
    assert found == Counter(2 * n for n in range(end))
    connection.forget(store_path)


def test_a_commit_that_fails_leaves_no_files(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What tasks have written is removed where it cannot be part of the store."""
    topic(store, "in", "out")
    put_numbers(store, "in", [1])

    def function(payloads: list[bytes]) -> dict[str, list[bytes]]:
        return {"out": [b"x" * 100_000] * 20}

    failures = [StoreFailed("a test"), ValueError("a test")]
    enter = StepCommit.enter

    def entering(self: StepCommit, joined: Any, txn: Any) -> None:
        enter(self, joined, txn)
        if failures:
            raise failures.pop()

    monkeypatch.setattr(StepCommit, "enter", entering)
    with running(store, step(function)) as runner:
        eventually(lambda: at_end(store, runner))
        assert store.queue("out").messages == 20
    files = os.listdir(f"{store.path}/ltds")
    assert len(files) <= 2  # the one that is adopted; and one whose fate was not known
