"""Steps that remember by key: reads, outputs, positions and rows of states are one commit."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from quire import keyed as plain
from quire.errors import InvalidArgument
from quire.spark_graphs import Graph, StateRows, keyed
from quire.spark_graphs.graphs.functions import step_function
from quire.spark_graphs.graphs.states.batch_states import BatchState
from tests.kit.waiting import SECONDS
from tests.spark.numbered_queues import topic
from tests.spark.served_store import directory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = [pytest.mark.spark, pytest.mark.cases(4, of_file=True), pytest.mark.at_server]

TOTALS = keyed("totals", "customer", "customer string, total bigint")
BY_TASKS = pytest.mark.parametrize("by_tasks", [False, True])
ORDERS = "customer string, amount bigint"


def summing(graph: Graph, **options: Any) -> Graph:
    """A graph whose step has a sum for each customer."""
    from pyspark.sql import functions as f

    graph.queue("orders", schema=ORDERS)

    @graph.step("orders", "sums", state=TOTALS, **options)
    def add(orders: DataFrame, totals: StateRows) -> dict[str, DataFrame]:
        news = orders.groupBy("customer").agg(f.sum("amount").alias("amount"))
        joined = news.join(totals.rows(news), "customer", "left")
        after = joined.selectExpr("customer", "coalesce(total, 0L) + amount as total")
        return {
            "sums": after.selectExpr("concat(customer, ' ', total) as payload"),
            "totals": after,
        }

    return graph


def order(customer: str, amount: int) -> dict[str, Any]:
    """A row of the queue."""
    return {"customer": customer, "amount": amount}


def rows_in(store: Any, name: str = "totals") -> dict[Any, Any]:
    """All rows of a state of two columns."""
    state = plain.open_state(getattr(store, "_owned", store), name)
    found: dict[Any, Any] = {}
    for batch in state.rows():
        found.update(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    return found


def tasks(monkeypatch: pytest.MonkeyPatch, by_tasks: bool) -> None:
    """Have batches read and written by tasks, as large ones are."""
    if by_tasks:
        monkeypatch.setattr(step_function, "LOCAL_BYTES", 0)


@BY_TASKS
def test_sums_go_on_from_batch_to_batch(
    graph: Graph, store: Any, drained: Any, monkeypatch: pytest.MonkeyPatch, by_tasks: bool
) -> None:
    """Each batch adds to what the ones before have left, and what it puts says the same."""
    tasks(monkeypatch, by_tasks)
    topic(store, "sums")
    summing(graph, limit=40)
    topic(store, "orders", schema=ORDERS)
    orders = [order(f"c{number * 7 % 23}", number) for number in range(200)]
    for start in range(0, 200, 40):
        store.put_many("orders", orders[start : start + 40])
    run = drained()
    expected: Counter[str] = Counter()
    said = []
    for start in range(0, 200, 40):
        own = orders[start : start + 40]
        for each in own:
            expected[each["customer"]] += each["amount"]
        said += [f"{name} {expected[name]}" for name in {each["customer"] for each in own}]
    assert rows_in(store) == expected
    found = store.browse("sums/check", max_messages=1000).payloads()
    assert Counter(found) == Counter(text.encode() for text in said)
    assert run.status().steps["add"].batches == 5


@BY_TASKS
def test_rows_are_deleted_and_expire(
    graph: Graph, store: Any, drained: Any, monkeypatch: pytest.MonkeyPatch, by_tasks: bool
) -> None:
    """By the columns `_delete` and `_ttl`, row by row; a null says nothing."""
    tasks(monkeypatch, by_tasks)
    graph.queue("changes", schema="id bigint, name string, gone boolean, seconds double")

    @graph.step("changes", state=keyed("names", "id", "id bigint, name string"), limit=4)
    def apply(changes: DataFrame, names: StateRows) -> DataFrame:
        return changes.selectExpr("id", "name", "gone as _delete", "seconds as _ttl")

    topic(store, "changes", schema="id bigint, name string, gone boolean, seconds double")

    def change(id: int, name: str | None, gone: bool | None, seconds: float | None) -> Any:
        return {"id": id, "name": name, "gone": gone, "seconds": seconds}

    first = [change(number, f"n{number}", None, None) for number in range(4)]
    second = [
        change(0, None, True, None),
        change(1, "kept", False, 1e12),
        change(2, "short", None, 1e-6),
        change(9, "new", False, 3600.0),
    ]
    store.put_many("changes", first)
    store.put_many("changes", second)
    drained()
    assert rows_in(store, "names") == {1: "kept", 3: "n3", 9: "new"}


def test_a_table_is_read_and_its_writer_goes_on(graph: Graph, store: Any, drained: Any) -> None:
    """One step fills a state from a topic, the other joins a stream with it."""
    names = keyed("names", "id", "id bigint, name string")
    graph.queue("customers", schema="id bigint, name string")
    graph.queue("orders", schema="id bigint, what string")
    topic(store, "bills")

    @graph.step("customers", state=names)
    def known(customers: DataFrame, names: StateRows) -> DataFrame:
        return customers.select("id", "name").dropDuplicates(["id"])

    @graph.step("orders", "bills", tables=names)
    def bill(orders: DataFrame, names: StateRows) -> DataFrame:
        joined = orders.join(names.rows(orders), "id", "left")
        return joined.selectExpr("concat(what, ' for ', coalesce(name, 'nobody')) as payload")

    topic(store, "customers", schema="id bigint, name string")
    topic(store, "orders", schema="id bigint, what string")
    store.put_many("customers", [{"id": number, "name": f"n{number}"} for number in range(5)])
    with graph.start() as run:
        run.drain(timeout=SECONDS)
        store.put_many("orders", [{"id": 3, "what": "pears"}, {"id": 7, "what": "plums"}])
        run.drain(timeout=SECONDS)
    found = sorted(store.browse("bills/check").payloads())
    assert found == [b"pears for n3", b"plums for nobody"]


def test_a_state_that_another_program_changes(
    graph: Graph, store: Any, drained: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that has looked before begins anew, and nothing of either is lost."""
    topic(store, "sums")
    summing(graph)
    topic(store, "orders", schema=ORDERS)
    store.put_many("orders", [order("ada", 3), order("bob", 5)])
    changed: list[bool] = []
    find = BatchState.find

    def disturbed(self: BatchState, keys: DataFrame) -> Any:
        found = find(self, keys)
        if not changed:
            changed.append(True)
            state = plain.open_state(getattr(store, "_owned", store), "totals")
            with store.transaction() as txn, state.within(txn) as rows:
                rows.put([{"customer": "ada", "total": 100}])
        return found

    monkeypatch.setattr(BatchState, "find", disturbed)
    run = drained()
    assert rows_in(store) == {"ada": 103, "bob": 5}
    assert sorted(store.browse("sums/check").payloads()) == [b"ada 103", b"bob 5"]
    status = run.status().steps["add"]
    assert (status.batches, status.last_error) == (1, None)


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ("select 'a' as customer, 1L as total union all select 'a', 2L", "another one has, too"),
        ("select cast(null as string) as customer, 1L as total", "is null in 1"),
        ("select 'a' as customer, 1L as total, -1 as _ttl", "give seconds above 0"),
    ],
)
@BY_TASKS
def test_rows_that_a_state_refuses(
    graph: Graph,
    store: Any,
    monkeypatch: pytest.MonkeyPatch,
    rows: str,
    reason: str,
    by_tasks: bool,
) -> None:
    """A key twice, a null in it, a time that is none: the batch fails, and says what to do."""
    tasks(monkeypatch, by_tasks)
    graph.queue("in")

    @graph.step("in", state=TOTALS)
    def wrong(messages: DataFrame, totals: StateRows) -> DataFrame:
        if messages.isEmpty():
            return messages.selectExpr("'a' as customer", "1L as total").limit(0)
        return graph.spark.sql(rows)

    topic(store, "in")
    store.put("in", b"x")
    with graph.start(restart="never") as run:
        assert run.wait(SECONDS)
        error = run.status().steps["wrong"].last_error or ""
    assert "rows for state 'totals'" in error
    assert reason in error


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        (["1L as total"], "'customer' of the key is missing"),
        (["'a' as customer", "'x' as total"], "total"),
        (["'a' as customer", "1L as total", "1 as wrong"], "wrong"),
        (["'a' as customer", "1L as total", "1 as _delete"], "give a boolean"),
        (["'a' as customer", "1L as total", "'x' as _ttl"], "give a number"),
    ],
)
def test_columns_that_a_state_refuses(
    graph: Graph, store: Any, columns: list[str], reason: str
) -> None:
    """They are found before the graph starts."""
    graph.queue("in")

    @graph.step("in", state=TOTALS, name="wrong")
    def wrong(messages: DataFrame, totals: StateRows) -> DataFrame:
        return messages.selectExpr(*columns)

    with pytest.raises(InvalidArgument, match=reason):
        graph.start()


def test_states_that_are_refused(graph: Graph) -> None:
    """When the step is added, with what to do instead."""

    def step(rows: Any, *states: Any) -> None:
        """Nothing."""

    with pytest.raises(InvalidArgument, match="_ttl"):
        keyed("a", "id", "id bigint, _ttl bigint")
    with pytest.raises(InvalidArgument, match="first columns"):
        keyed("a", "id", "x string, id bigint")
    with pytest.raises(InvalidArgument, match="keyed"):
        graph.step("in", state="totals")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="twice"):
        graph.step("in", state=TOTALS, tables=TOTALS)(step)
    with pytest.raises(InvalidArgument, match="call the state otherwise"):
        graph.step("in", "totals", state=TOTALS)(step)
    with pytest.raises(InvalidArgument, match="streaming query"):
        graph.step("in", state=TOTALS, stateful=True)(step)
    with pytest.raises(InvalidArgument, match="the rows of totals behind them"):
        graph.step("in", state=TOTALS, name="few")(lambda rows: None)
    graph.step("in", state=TOTALS, name="one")(step)
    with pytest.raises(InvalidArgument, match="both change"):
        graph.step("in", state=TOTALS, name="other")(step)
    assert "totals" in graph.explain()


def test_a_state_of_another_schema(graph: Graph, store: Any) -> None:
    """Columns may be added; anything else is refused before the graph starts."""
    owned = getattr(store, "_owned", store)
    plain.open_state(owned, "totals", "customer", "customer string, total int")
    with pytest.raises(InvalidArgument, match="total"):
        summing(graph).start()
    assert plain.open_state(owned, "totals").schema.names == ["customer", "total"]
    assert directory(store)
