"""What steps are made of, without Spark: where batches end, commits, dead letters, values."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from quire.errors import (
    InvalidArgument,
    OutcomeUnknown,
    PositionLost,
    QueueExists,
    SubscriptionNotFound,
)
from quire.limits import MAX_ATTRIBUTES_BYTES
from quire.messages.message_schema import MESSAGE_SCHEMA
from quire.spark_graphs import connection
from quire.spark_graphs.graphs.batches.batch_inputs import Input, Leased, arrow_columns, empty
from quire.spark_graphs.graphs.batches.batch_planner import Batch, Planner, cut, release, standing
from quire.spark_graphs.graphs.batches.task_store import TaskStore
from quire.spark_graphs.graphs.definition import Limit, Step, limit_of, seconds_of
from quire.spark_graphs.graphs.failures.dead_letters import (
    RowFailure,
    letter,
    origin_of,
    own_attributes,
    together,
)
from quire.spark_graphs.graphs.failures.poison import Poison
from quire.spark_graphs.graphs.functions.kept_values import KeptValues
from quire.spark_graphs.graphs.functions.step_function import StepWork
from quire.spark_graphs.graphs.preparing import prepare
from quire.spark_graphs.graphs.steps.step_commit import StepCommit
from tests.spark.numbered_queues import put_numbers, topic

COUNT = 20_000  # messages that go to a file


def planner(store: Any, limit: Limit, *queues: str) -> Planner:
    """One for the queues as they are."""
    created_us = {info.name: info.created_us for info in store.queues(queues)}
    return Planner(created_us, limit, TaskStore(store.path, store.integration.store_id))


def planned(plan: Planner, *given: Any, **options: Any) -> Batch:
    """The next batch, which there is."""
    found = plan.plan(*given, **options)
    assert found is not None
    return found


def payloads(store: Any, part: Input) -> list[int]:
    """The numbers of an input."""
    return [int(part.message(n).column("payload")[0].as_py()) for n in range(part.count)]


def test_batches_end_between_transactions(store: Any, rng: random.Random) -> None:
    """Of several queues, whatever the limit: no transaction is in two batches, and all are read."""
    queues = ["a", "b", "c"]
    topic(store, *queues)
    where: dict[str, list[int]] = {queue: [] for queue in queues}  # the transaction of each message
    for number in range(150):
        with store.transaction(durable=False) as txn:
            for queue in rng.sample(queues, rng.randint(1, 3)):
                count = rng.choice([1, 1, 2, 5])
                txn.put_many(queue, [b"x"] * count)
                where[queue] += [number] * count
    store.admin.checkpoint()  # so that some are packed, and the others are not
    for limit in (Limit(1), Limit(7), Limit(40), Limit()):
        at = dict.fromkeys(queues, 0)
        ends = {queue: end for queue, (_, end) in store.integration.positions_many(queues).items()}
        done = -1
        while at != ends:
            found = cut(store, at, ends, limit)
            taken = [n for q in queues for n in where[q][at[q] : found[q]]]
            assert taken
            assert min(taken) > done
            left = [n for q in queues for n in where[q][found[q] :]]
            done = max(taken)
            assert not left or min(left) > done
            at = found


def test_one_input_ends_at_the_limit(store: Any) -> None:
    """Of messages exactly; of bytes about, and one message at least."""
    topic(store, "a")
    store.put_many("a", [b"9" * 100] * 50)
    store.put_many("a", [b"9" * 10_000] * 5)
    ends = {"a": 55}
    assert cut(store, {"a": 0}, ends, Limit(10)) == {"a": 10}
    plan = planner(store, Limit(size_bytes=2_000), "a")
    first = planned(plan, store, {"a": 0}, ends)
    assert 10 <= first.ends["a"] <= 20
    one = planned(plan, store, {"a": 50}, ends)
    assert one.messages == 1
    plan.shrink(4)
    assert planned(plan, store, {"a": 0}, ends).messages == 4


def test_what_was_removed_is_counted(store: Any) -> None:
    """A batch is what is there of its range; one that has to be whole is refused."""
    topic(store, "a")
    put_numbers(store, "a", range(30))
    with store.transaction() as txn:
        txn.read_to("a/check", 12)
    plan = planner(store, Limit(), "a")
    batch = planned(plan, store, {"a": 5}, {"a": 30})
    assert (batch.messages, batch.removed) == (18, 7)
    assert payloads(store, batch.inputs[0]) == list(range(12, 30))
    with pytest.raises(PositionLost):
        plan.plan(store, {"a": 5}, {"a": 30}, whole=True)
    release(store.path, batch)
    connection.forget(store.path)


def test_a_planned_batch_keeps_its_messages(store: Any) -> None:
    """Whatever is removed, and wherever its blocks would go."""
    topic(store, "a")
    put_numbers(store, "a", range(30))
    batch = planned(planner(store, Limit(20), "a"), store, {"a": 0}, {"a": 30})
    store.admin.purge("a")
    store.admin.checkpoint()
    put_numbers(store, "a", range(100, 200))
    store.admin.checkpoint()
    assert payloads(store, batch.inputs[0]) == list(range(20))
    part = batch.inputs[0]
    assert isinstance(part, Leased)
    cut_pieces = part._cut([(3, 5), (11, 14)])
    found = [p.piece.stop - p.piece.start for p in cut_pieces]
    assert sum(found) == 5
    release(store.path, batch)
    connection.forget(store.path)


def test_where_subscriptions_stand(store: Any) -> None:
    """It is told where subscriptions stand, and what to do where one is gone."""
    topic(store, "a")
    put_numbers(store, "a", range(3))
    store.get_many("a/check", 2)
    assert standing(store, {"a": "check"}) == {"a": 2}
    with pytest.raises(SubscriptionNotFound, match="Start the graph anew"):
        standing(store, {"a": "other"})


@pytest.fixture
def commit(store: Any) -> StepCommit:
    """Of a batch that has read three messages and keeps a value."""
    topic(store, "a", "dead")
    put_numbers(store, "a", range(5))
    values = KeptValues("s", {})
    values["count"] = 3
    return StepCommit(
        store.path,
        {"graph/g/s": 0},
        reads={"a/check": 3},
        created_us={"a/check": store.queue("a").created_us},
        letters=[("dead", pa.RecordBatch.from_pylist([{"payload": b"x"}]))],
        values=values,
        values_name="graph.g.step.s",
    )


def check_committed(store: Any) -> None:
    """That it has happened once."""
    assert standing(store, {"a": "check"}) == {"a": 3}
    assert store.states.items("graph.g.step.s") == {"count": b"3"}
    assert store.integration.ledger("graph/g/s") == 0
    assert store.queue("dead").messages == 1


def test_a_commit_has_its_effect_once(store: Any, commit: StepCommit) -> None:
    """Reads, letters, values and the number together; a second time nothing of it."""
    assert commit.commit()
    check_committed(store)
    assert not commit.commit()
    check_committed(store)
    connection.forget(store.path)


def test_an_unknown_outcome_is_found_out(
    store: Any, commit: StepCommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is lost after the commit: it is this one that did it, and not a second time."""
    lost = [True]
    enter = StepCommit.enter

    def entering(self: StepCommit, joined: Any, txn: Any) -> None:
        enter(self, joined, txn)
        if lost:
            lost.clear()
            txn.commit()
            raise OutcomeUnknown("the test has lost the answer")

    monkeypatch.setattr(StepCommit, "enter", entering)
    assert commit.commit()
    check_committed(store)
    connection.forget(store.path)


def test_an_unknown_outcome_may_be_that_of_somebody_else(
    store: Any, commit: StepCommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit fails, and another run does a batch of that number, which reads another range."""
    enter = StepCommit.enter

    def entering(self: StepCommit, joined: Any, txn: Any) -> None:
        monkeypatch.undo()
        txn.rollback()
        with store.transaction() as other:
            enter(replace(self, reads={"a/check": 2}), store, other)
        raise OutcomeUnknown("the test has lost the answer")

    monkeypatch.setattr(StepCommit, "enter", entering)
    assert not commit.commit()
    assert standing(store, {"a": "check"}) == {"a": 2}
    connection.forget(store.path)


def test_a_queue_that_was_made_again_is_refused(store: Any, commit: StepCommit) -> None:
    """Its positions are others: nothing is committed."""
    store.drop_queue("a")
    topic(store, "a")
    put_numbers(store, "a", range(5))
    with pytest.raises(PositionLost, match="made again"):
        commit.commit()
    assert store.integration.ledger("graph/g/s") is None
    assert store.queue("dead").messages == 0
    connection.forget(store.path)


def message(**fields: Any) -> pa.RecordBatch:
    """A message as tasks read it."""
    row = {"queue": "a", "position": 7, "payload": b"x", "attributes": [("k", "v")], **fields}
    return pa.RecordBatch.from_pylist([row], schema=arrow_columns(None))


def test_a_dead_letter_says_where_it_comes_from(store: Any) -> None:
    """And is the message as it was; what is too much for attributes is left out."""
    topic(store, "dead")
    poison = Poison.of(0, 7, ValueError("no number\n" + "more of it " * 500))
    said = RowFailure("g/s", 4, poison.reason, poison.trace, 5), "g.s"
    made = letter(message(correlation_id="c", priority=3), *said)
    large = letter(message(attributes=[("k", "v" * (MAX_ATTRIBUTES_BYTES - 2_000))]), *said)
    full = letter(message(attributes=[("k", "v" * (MAX_ATTRIBUTES_BYTES - 1))]), *said)
    with store.transaction() as txn:
        for each in together([made, large, full]):
            txn.put_moved_many("dead", each)
    found = list(store.browse("dead"))
    assert (found[0].payload, found[0].correlation_id, found[0].priority) == (b"x", "c", 3)
    assert origin_of(found[0].attributes) == ("a", 7)
    assert own_attributes(found[0].attributes) == {"k": "v"}
    assert found[0].attributes["quire.reason"] == "no number"
    assert "ValueError: no number" in found[0].attributes["quire.trace"]
    assert found[0].attributes["quire.batch"] == "4"
    assert "quire.trace" not in found[1].attributes
    assert found[1].attributes["quire.position"] == "7"
    assert set(found[2].attributes) == {"k"}
    assert set(made) < set(MESSAGE_SCHEMA.names)


def test_values_are_a_mapping_of_what_json_can_hold() -> None:
    """With the changes of the batch, until they are forgotten or committed."""
    values = KeptValues("s", {"a": b"1", "b": b'{"x":[null,true]}'})
    assert dict(values) == {"a": 1, "b": {"x": [None, True]}}
    values["c"] = "é"
    del values["a"]
    assert (list(values), len(values), "a" in values) == (["b", "c"], 2, False)
    with pytest.raises(KeyError):
        values["a"]
    with pytest.raises(KeyError):
        del values["a"]
    values.forget_changes()
    assert (values["a"], values.get("c")) == (1, None)
    values["a"] = 2
    del values["b"]
    values.committed()
    values.forget_changes()
    assert dict(values) == {"a": 2}
    for wrong in (b"bytes", {1, 2}, float("nan"), object()):
        with pytest.raises(InvalidArgument, match="JSON can hold"):
            values["x"] = wrong
    for key in ("", 3, None):
        with pytest.raises(InvalidArgument, match="give a printable string of 1 to 1024 bytes"):
            values[key] = 1  # type: ignore[index]
    assert repr(values) == "KeptValues({'a': 2})"


def test_limits_and_triggers_in_words() -> None:
    """Messages and seconds as numbers, bytes and other units as text."""
    assert limit_of(None) == Limit()
    assert limit_of(10).messages == 10
    assert limit_of("64m").size_bytes == 64 << 20
    assert [seconds_of("t", each) for each in (None, 2, "500 ms", "1 min")] == [0.0, 2.0, 0.5, 60.0]
    for wrong in (0, -1, True, 1.5, "", "x", "1 parsec", [1]):
        with pytest.raises(InvalidArgument):
            limit_of(wrong)
    for wrong in (-1, True, "500", "soon", [1], float("nan")):
        with pytest.raises(InvalidArgument):
            seconds_of("t", wrong)


def test_what_is_too_much_for_the_driver_goes_by_tasks(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small batch of which much has become: the next try does not have it collected."""

    def here(self: StepWork, outputs: Any, *more: Any) -> Any:
        raise RuntimeError("results (1.2 GiB) are bigger than spark.driver.maxResultSize (1.0 GiB)")

    nobody: Any = None
    made = StepWork(
        Step("s", "step", here, ("a",)), nobody, TaskStore(store.path, store.integration.store_id)
    )
    monkeypatch.setattr(StepWork, "_call", lambda *given, **how: {"out": nobody})
    monkeypatch.setattr(StepWork, "_frames", lambda *given, **how: {})
    monkeypatch.setattr(StepWork, "_here", here)
    monkeypatch.setattr(StepWork, "_by_tasks", lambda *given: [])
    for _ in range(2):
        with pytest.raises(RuntimeError):
            made.run([empty("a", made.tasks, None)], [[]], 0, nobody)
        assert (
            made.run([empty("a", made.tasks, None)], [[]], 0, nobody).fragments == []
        )  # which has made little: the next one is small


def test_a_few_messages_of_a_file_are_few_bytes(store: Any) -> None:
    """A large transaction's rows tell their bytes, so that small batches need no tasks."""
    topic(store, "a")
    topic(store, "rows", schema="id bigint, text string")
    given = {"a": b"9" * 500, "rows": {"id": 1, "text": "9" * 480}}
    for queue, message in given.items():
        with store.transaction(large=True) as txn:
            txn.put_many(queue, [message] * COUNT)
        whole = {queue: COUNT}
        batch = planned(planner(store, Limit(10), queue), store, {queue: 5}, whole)
        (found,) = batch.inputs
        assert isinstance(found, Leased)
        assert {each.piece.kind for each in found.pieces} == {"ltds"}
        assert 5000 <= found.size_bytes <= 6000
        release(store.path, batch)
        batch = planned(planner(store, Limit(size_bytes=20_000), queue), store, {queue: 0}, whole)
        assert 30 <= batch.messages <= 80
        release(store.path, batch)
    connection.forget(store.path)


def test_a_streamed_message_is_as_large_as_it_is(store: Any) -> None:
    """It does not travel with a job as if it were small."""
    topic(store, "a")
    store.put_stream("a", [b"x" * 1_000_000] * 3)
    batch = planned(planner(store, Limit(), "a"), store, {"a": 0}, {"a": 1})
    assert batch.inputs[0].size_bytes >= 3_000_000
    release(store.path, batch)
    connection.forget(store.path)


def test_what_a_file_does_not_tell_counts_as_much(store: Any) -> None:
    """As where it is gone: then the messages are looked for by tasks."""
    topic(store, "a")
    with store.transaction(large=True) as txn:
        txn.put_many("a", [b"9" * 500] * COUNT)
    created_us = {"a": store.queue("a").created_us}
    plan = Planner(created_us, Limit(), TaskStore("/nowhere", 1))
    batch = planned(plan, store, {"a": 0}, {"a": 10})
    assert batch.inputs[0].size_bytes >= 1 << 20
    release(store.path, batch)
    connection.forget(store.path)


@pytest.mark.parametrize("kind", ["topic", "work"])
def test_queues_that_somebody_makes_meanwhile(
    store: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Two graphs that begin at once share what is the same; what is not is refused."""
    create = store.admin.create_queues

    def late(given: Any) -> Any:
        monkeypatch.undo()
        store.create_queue("out", kind=kind)
        return create(given)

    store.create_queue("in", kind="topic")
    monkeypatch.setattr(type(store.admin), "create_queues", lambda _, given: late(given))
    steps = [Step("s", "step", lambda rows: rows, ("in",), ("out", "more"))]
    if kind == "topic":
        assert prepare(store, "g", steps, {}).keys() == {"in", "out", "more"}
    else:
        with pytest.raises(QueueExists, match="kind"):
            prepare(store, "g", steps, {})
    assert [each.name for each in store.subscriptions("in")] == ["g.s"] * (kind == "topic")
