"""Graphs over typed queues: steps take and return columns, and queues of bytes beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from quire.errors import InvalidArgument, QueueExists
from quire.messages.typed_message import ARROW_STREAM, TypedMessage
from quire.spark_graphs import Graph
from quire.spark_graphs.graphs.functions import step_function
from tests.kit.waiting import SECONDS, eventually
from tests.spark.numbered_queues import CHECK, topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = [pytest.mark.spark, pytest.mark.cases(4, of_file=True), pytest.mark.at_server]

ORDER = "id bigint not null, amount double"
TEXT = "split(cast(payload as string), ' ')"


def orders_of(raw: DataFrame) -> DataFrame:
    """Columns of text."""
    return raw.selectExpr(f"cast({TEXT}[0] as bigint) id", f"cast({TEXT}[1] as double) amount")


def values(store: Any, queue: str) -> list[dict[str, Any]]:
    """The rows of a queue that `topic` has made, or of a work queue."""
    source = f"{queue}/{CHECK}" if store.queue(queue).kind == "topic" else queue
    return [dict(message.value) for message in store.browse(source)]


@pytest.mark.cases(2)
@pytest.mark.parametrize("by_tasks", [False, True])
def test_steps_take_and_return_columns(
    graph: Graph, store: Any, drained: Any, monkeypatch: pytest.MonkeyPatch, by_tasks: bool
) -> None:
    """From bytes to columns, to other columns and bytes at once; also when tasks read and write."""
    if by_tasks:
        monkeypatch.setattr(step_function, "LOCAL_BYTES", 0)
    topic(store, "big", schema=ORDER)
    topic(store, "small", schema="id bigint")
    topic(store, "lines")
    graph.queue("raw")
    graph.queue("orders", schema=ORDER)
    seen: list[str] = []

    @graph.step(reads="raw", writes="orders", dead="raw.dead", limit=100)
    def parse(raw: DataFrame) -> DataFrame:
        return orders_of(raw)

    @graph.step(reads="orders", writes=["big", "small", "lines"])
    def sort_out(orders: DataFrame) -> dict[str, DataFrame]:
        return {
            "big": orders.where("amount > 5").select("amount", "id", "_meta"),
            "small": orders.where("amount < 5").select("id"),
            "lines": orders.where("_meta.position = 2").selectExpr(
                "concat(_meta.queue, ' ', id) payload"
            ),
        }

    @graph.terminal(reads="orders")
    def lake(rows: DataFrame, batch: int) -> None:
        seen.extend(f"{row.id} {row.amount}" for row in rows.collect())

    with graph.start() as run:
        store.put_many("raw", [b"%d %d.5" % (n, n % 10) for n in range(12)])
        store.put("raw", b"x y")
        run.drain(timeout=SECONDS)
    large = [n for n in range(12) if n % 10 >= 5]
    assert values(store, "big") == [{"id": n, "amount": n % 10 + 0.5} for n in large]
    assert [row["id"] for row in values(store, "small")] == [0, 1, 2, 3, 4, 10, 11]
    assert store.browse(f"lines/{CHECK}").payloads() == [b"orders 2"]
    assert len(seen) == 12
    assert [letter.payload for letter in store.browse("raw.dead")] == [b"x y"]


@pytest.mark.parametrize("dead_schema", [None, ORDER])
def test_dead_letters_are_rows_or_streams(
    graph: Graph, store: Any, drained: Any, dead_schema: str | None
) -> None:
    """A dead row goes to a queue of its columns, or as an Arrow stream; replay puts it through."""
    topic(store, "in", schema=ORDER)
    topic(store, "out", schema="id bigint")
    store.create_queue("dead", "work", schema=dead_schema)
    store.put("in", {"id": 1, "amount": 1.0})
    store.put("in", {"id": 2, "amount": None}, attributes={"k": "v"}, correlation_id="c")
    right = False

    @graph.step(reads="in", writes="out", dead="dead")
    def check(rows: DataFrame) -> DataFrame:
        if right:
            return rows.select("id", "_meta")
        return rows.selectExpr("if(amount is null, raise_error('no amount'), id) id")

    run = drained()
    assert values(store, "out") == [{"id": 1}]
    [letter] = store.browse("dead")
    assert isinstance(letter, TypedMessage) == (dead_schema is not None)
    assert letter.content_type == (None if dead_schema else ARROW_STREAM)
    assert letter.decode("arrow").to_pylist() == [{"id": 2, "amount": None}]
    said = letter.attributes
    assert (said["quire.queue"], said["quire.position"], said["k"]) == ("in", "1", "v")
    right = True
    assert run.replay("dead", step="check") == 1
    run.stop()
    [_, again] = store.browse(f"out/{CHECK}")
    assert (again.value, again.correlation_id, again.content_type) == ({"id": 2}, "c", None)
    assert dict(again.attributes) == {"k": "v"}
    assert store.queue("dead").messages == 0


def test_a_dead_letter_has_columns_that_were_added_meanwhile(graph: Graph, store: Any) -> None:
    """The function has those of the start; what is put aside keeps all, also put back in vain."""
    ids = "if(id > 4, raise_error('too large'), id) id"
    graph.queue("in", schema="id bigint")
    graph.queue("same", schema="id bigint", kind="work")
    graph.step("in", "out", name="s", dead="dead")(
        lambda rows: rows.selectExpr(ids).selectExpr("cast(id as string) payload")
    )
    graph.step("in", "more", name="t", dead="same")(
        lambda rows: rows.selectExpr(ids).selectExpr("cast(id as string) payload")
    )
    with graph.start() as run:
        store.alter_queue("in", schema="id bigint, note string")
        store.put_many("in", [{"id": 1, "note": "a"}, {"id": 5, "note": None}])
        run.drain(timeout=SECONDS)
        assert values(store, "same") == [{"id": 5}]
        store.put("in", {"id": 6, "note": "b"})
        eventually(lambda: "column 'note'" in str(run.status().steps["t"].last_error))
        store.alter_queue("same", schema="id bigint, note string")
        run.drain(timeout=SECONDS)
        assert values(store, "same")[1] == {"id": 6, "note": "b"}
        for name, dead in [("s", "dead"), ("t", "same")]:
            assert run.replay(dead, step=name) == 2
            found = [letter.decode("arrow").to_pylist() for letter in store.browse(dead)]
            assert found == [[{"id": 5, "note": None}], [{"id": 6, "note": "b"}]]


BAD = {
    "other": ("id", "name", "column 'name'"),
    "type": ("cast(id as string) id", "amount", "'id' is of type string"),
    "missing": ("amount", "amount a", "'a'|'id' is missing"),
}


@pytest.mark.parametrize("bad", BAD)
def test_columns_that_do_not_fit_are_refused(graph: Graph, store: Any, bad: str) -> None:
    """At the start, with the name of the column, also for queues that are not there yet."""
    first, second, why = BAD[bad]
    graph.queue("in", schema="id bigint, amount double, name string")
    graph.queue("out", schema=ORDER)
    graph.step("in", "out", name="s")(lambda rows: rows.selectExpr(first, second))
    with pytest.raises(InvalidArgument, match=f"'out'.*({why})"):
        graph.start()
    assert store.queues() == []


def test_dead_letters_need_their_columns(graph: Graph, store: Any) -> None:
    """A typed queue for those of another input is refused."""
    graph.queue("in", schema=ORDER)
    graph.queue("dead", schema="id bigint")
    graph.step("in", "out", name="s", dead="dead")(lambda rows: rows.selectExpr("'x' payload"))
    with pytest.raises(InvalidArgument, match="same columns, or one of bytes"):
        graph.start()
    with pytest.raises(InvalidArgument, match="'x'"):
        graph.queue("other", schema="id x")


def test_rows_go_where_their_column_says(graph: Graph, store: Any, drained: Any) -> None:
    """To typed queues of the same columns; what does not fit any is refused at the start."""
    topic(store, "odd", "even", schema="id bigint")
    topic(store, "in", schema=ORDER)
    store.put_many("in", [{"id": n} for n in range(6)])
    where = "case when id % 2 = 1 then 'odd' else 'even' end queue"
    graph.step("in", ["odd", "even"], name="s")(lambda rows: rows.selectExpr("id", where))
    drained().stop()
    assert [row["id"] for row in values(store, "odd")] == [1, 3, 5]
    graph.step("in", ["odd", "even"], name="t")(lambda rows: rows.selectExpr("id i", where))
    with pytest.raises(InvalidArgument, match="'i'"):
        graph.start(only=["t"])


def test_a_streaming_step_and_a_backfill_have_columns(
    graph: Graph, store: Any, drained: Any
) -> None:
    """With the header's time for the watermark; a new output of a backfill has the same columns."""
    store.create_queue("in", kind="topic", schema=ORDER, keep_forever=True)
    topic(store, "copies", schema=ORDER)
    topic(store, "big", schema="id bigint")
    store.put_many("in", [{"id": n, "amount": n / 2} for n in range(10)])

    @graph.step(reads="in", writes="copies", watermark="1 second")
    def copy(rows: DataFrame) -> DataFrame:
        return rows.where("time = _meta.time").select("id", "amount")

    @graph.step(reads="in", writes="big")
    def large(rows: DataFrame) -> DataFrame:
        return rows.where("amount > 3").select("id")

    drained().stop()
    assert [row["id"] for row in values(store, "copies")] == list(range(10))
    assert [row["id"] for row in values(store, "big")] == [7, 8, 9]
    assert graph.backfill("large", 0, 9, to={"big": "again"}) == 9
    assert store.queue("again").schema == "id bigint"
    store.subscribe("again", CHECK, start="earliest")
    assert [row["id"] for row in values(store, "again")] == [7, 8]


def test_a_declaration_may_lack_the_columns_that_were_added(
    graph: Graph, store: Any, drained: Any
) -> None:
    """The graph starts, and its functions have them; what is really another column is told."""
    store.create_queue("in", kind="topic", schema=ORDER)
    store.alter_queue("in", schema=f"{ORDER}, note string")
    topic(store, "out", schema="id bigint, note string")
    store.put("in", {"id": 1, "note": "new"})
    graph.queue("in", schema=ORDER)

    @graph.step(reads="in", writes="out")
    def copy(rows: DataFrame) -> DataFrame:
        return rows.select("id", "note")

    drained()
    assert values(store, "out") == [{"id": 1, "note": "new"}]
    other = Graph("other", graph.spark, store.path)
    other.queue("in", schema="id bigint not null, amount float")
    other.terminal(reads="in", name="take")(lambda rows, batch: None)
    with pytest.raises(QueueExists, match="column 2 is 'amount double', not 'amount float'"):
        other.start()
    fuller = Graph("fuller", graph.spark, store.path)
    fuller.queue("in", schema=f"{ORDER}, note string, more int")
    fuller.terminal(reads="in", name="take")(lambda rows, batch: None)
    with pytest.raises(QueueExists, match="no column 'more int': alter_queue adds nullable ones"):
        fuller.start()


def test_a_dead_letter_that_is_no_row_stays(graph: Graph, store: Any, drained: Any) -> None:
    """It says that it is one of the step, and its payload is garbage: the others are put back."""
    topic(store, "in", schema=ORDER)
    topic(store, "out", schema="id bigint")
    store.put("in", {"id": 1, "amount": None})
    right = False

    @graph.step(reads="in", writes="out", dead="dead")
    def check(rows: DataFrame) -> DataFrame:
        if right:
            return rows.select("id")
        return rows.selectExpr("if(amount is null, raise_error('no amount'), id) id")

    run = drained()
    right = True
    said = {"quire.step": "shop/check", "quire.queue": "in", "quire.position": "7"}
    for payload in (b"garbage", b""):
        store.put("dead", payload, attributes=said)
    assert run.replay("dead", "check") == 1
    assert values(store, "out") == [{"id": 1}]
    assert store.browse("dead").payloads() == [b"garbage", b""]
