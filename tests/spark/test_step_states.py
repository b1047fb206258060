"""Steps that remember by key: reads, outputs, positions and rows of states are one commit."""

from __future__ import annotations

import json
from collections import Counter
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from quire import keyed as plain
from quire.cli import main
from quire.errors import InvalidArgument, StateConflict
from quire.spark_graphs import Graph, StateRows, keyed
from quire.spark_graphs.graphs.functions import step_function
from quire.spark_graphs.graphs.states import state_tasks
from quire.spark_graphs.graphs.states.batch_states import BatchState
from quire.spark_graphs.graphs.steps import step_runner
from quire.spark_graphs.limits import CONFLICTS_BEFORE_TELLING
from tests.kit.waiting import SECONDS, eventually
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


def keys_in(store: Any, name: str) -> set[Any]:
    """The keys of a state whose key is one column."""
    state = plain.open_state(getattr(store, "_owned", store), name)
    return {key for batch in state.rows() for key in batch.column(0).to_pylist()}


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
    status = run.status()
    assert status.steps["add"].batches == 5
    (seen,) = status.steps["add"].states
    assert (seen.name, seen.key) == ("totals", ("customer",))
    assert seen.rows >= len(expected)
    assert "totals: up to" in str(status)
    assert json.dumps(status.to_json())


def test_a_small_batch_of_large_rows(
    graph: Graph, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where its keys may have more than the driver is to have at a time tasks find them."""
    monkeypatch.setattr(state_tasks, "FOUND_BYTES", 500)
    topic(store, "sums")
    summing(graph)
    topic(store, "orders", schema=ORDERS)
    find, found = BatchState.find, list[int]()

    def finding(self: BatchState, keys: DataFrame) -> Any:
        rows = find(self, keys)
        found.append(len(rows))
        return rows

    monkeypatch.setattr(BatchState, "find", finding)
    with graph.start() as run:
        for customers in (100, 100, 1):
            store.put_many("orders", [order(f"c{number}", 1) for number in range(customers)])
            run.drain(timeout=SECONDS)
    assert found == [0, 1]
    assert rows_in(store) == {f"c{number}": 2 if number else 3 for number in range(100)}


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


def test_a_state_that_another_program_changes_all_the_time(
    graph: Graph, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status tells why the step does not go on; it does when the other one pauses."""
    topic(store, "sums")
    summing(graph)
    topic(store, "orders", schema=ORDERS)
    store.put_many("orders", [order("ada", 3)])
    find, pauses, changes = BatchState.find, Event(), [0]

    def disturbed(self: BatchState, keys: DataFrame) -> Any:
        if not pauses.is_set():
            state = plain.open_state(getattr(store, "_owned", store), "totals")
            with store.transaction() as txn, state.within(txn) as rows:
                rows.put([{"customer": "ada", "total": 100}])
            changes[0] += 1
        return find(self, keys)

    monkeypatch.setattr(BatchState, "find", disturbed)
    monkeypatch.setattr(step_runner, "CONFLICTS_BEFORE_TELLING", 2)
    with graph.start() as run:
        eventually(lambda: "times in a row" in str(run.status().steps["add"].last_error), SECONDS)
        pauses.set()
        run.drain(timeout=SECONDS)
        assert run.status().steps["add"].batches == 1
    assert rows_in(store) == {"ada": 103}
    assert changes[0] >= 2


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ("select 'a' as customer, 1L as total union all select 'a', 2L", "another one has, too"),
        ("select cast(null as string) as customer, 1L as total", "is null in 1"),
        ("select 'a' as customer, 1L as total, -1 as _ttl", "give seconds above 0"),
        ("select 'a' as customer, 1L as total, double('nan') as _ttl", "give seconds above 0"),
        ("select 'a' as customer, 1L as total, -1.5 as _ttl", "-1.5: give seconds above 0"),
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
        (["'a' as customer", "'x' as total"], "'total' is of type string, and declared as bigint"),
        (["'a' as customer", "1L as total", "1 as wrong"], "'wrong' is not in the schema"),
        (["'a' as customer", "1L as total", "1 as _delete"], "give a boolean"),
        (["'a' as customer", "1L as total", "'x' as _ttl"], "give a number"),
        (["'a' as customer", "timestamp_ntz '2026-01-01 00:00' as _timer"], "cast.... as timestam"),
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


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        (lambda rows, totals: {"totals": None}, "returned NoneType for 'totals'"),
        (lambda rows, totals: [rows], "by output queue and by state"),
        (lambda rows, totals: rows.selectExpr("'a' as customer"), "for totals are returned in a d"),
        (lambda rows, totals: totals.rows(["ada"]), "the key .customer., not list"),
        (lambda rows, totals: totals.rows("customer"), "the key .customer., not str"),
        (lambda rows, totals: totals.rows(rows.selectExpr("5 as customer")), "declared as string"),
    ],
)
def test_what_a_function_is_told_of_its_mistake(graph: Graph, returned: Any, reason: str) -> None:
    """Before the graph starts, in words of states."""
    graph.queue("in")
    graph.step("in", "out", state=TOTALS, name="wrong")(returned)
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


def test_a_state_gets_columns(graph: Graph, store: Any, drained: Any) -> None:
    """Older rows have nulls there; a step that knows only the first columns goes on."""
    from quire.spark_graphs.graphs.graph import Graph as Anew

    topic(store, "sums")
    topic(store, "orders", schema=ORDERS)
    summing(graph)
    store.put_many("orders", [order("ada", 3), order("bob", 5)])
    drained().stop()
    wide = keyed("totals", "customer", "customer string, total bigint, last bigint")
    later = Anew("later", graph.spark, store.path, graph.checkpoints)

    @later.step("orders", state=wide)
    def add(orders: DataFrame, totals: StateRows) -> DataFrame:
        joined = orders.join(totals.rows(orders), "customer", "left").selectExpr(
            "customer", "total", "coalesce(last, -1L) as before", "amount as last"
        )
        assert joined.columns == ["customer", "total", "before", "last"]
        return joined.drop("before")

    with later.start() as run:
        run.drain(timeout=SECONDS)
    store.put("orders", order("ada", 4))
    drained().stop()
    state = plain.open_state(getattr(store, "_owned", store), "totals")
    found = state.get(["ada", "bob"]).to_pylist()
    assert found == [
        {"customer": "ada", "total": 7, "last": None},
        {"customer": "bob", "total": 5, "last": 5},
    ]


def test_a_state_of_another_schema(graph: Graph, store: Any) -> None:
    """Columns may be added; anything else is refused before the graph starts."""
    owned = getattr(store, "_owned", store)
    plain.open_state(owned, "totals", "customer", "customer string, total int")
    with pytest.raises(InvalidArgument, match="total"):
        summing(graph).start()
    assert plain.open_state(owned, "totals").schema.names == ["customer", "total"]
    assert directory(store)


def test_a_step_is_reset_with_its_states(graph: Graph, store: Any, drained: Any) -> None:
    """Positions and rows, in one transaction: read again, each order counts once."""
    topic(store, "sums")
    topic(store, "orders", schema=ORDERS, keep_forever=True)
    summing(graph, limit=2)
    store.put_many("orders", [order("ada", 3), order("bob", 5), order("ada", 4)])
    drained().stop()
    assert rows_in(store) == {"ada": 7, "bob": 5}
    graph.reset("add")
    assert rows_in(store) == {}
    store.put("orders", order("bob", 1))
    drained().stop()
    assert rows_in(store) == {"ada": 7, "bob": 6}
    graph.reset("add", to="latest")
    assert rows_in(store) == {}


def test_a_backfill_has_states_of_its_own(graph: Graph, store: Any, drained: Any) -> None:
    """Empty at first, whatever the step has; and those of the step stay."""
    topic(store, "sums")
    topic(store, "orders", schema=ORDERS, keep_forever=True)
    summing(graph)
    store.put_many("orders", [order("ada", 3), order("bob", 5), order("ada", 4)])
    drained().stop()
    topic(store, "again")
    assert graph.backfill("add", 0, 2, to={"sums": "again"}, name="b") == 2
    assert sorted(store.browse("again/check").payloads()) == [b"ada 3", b"bob 5"]
    assert rows_in(store, "totals.b") == {"ada": 3, "bob": 5}
    assert rows_in(store) == {"ada": 7, "bob": 5}
    assert graph.backfill("add", 0, 2, to={"sums": "again"}, name="b") == 0


def test_dead_letters_change_states_when_they_are_put_back(
    graph: Graph, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the function fails with leaves the state as it is; put back it counts once, whoever
    else changes the state meanwhile: where they do so all the time it says so.
    """
    from pyspark.sql import functions as f

    topic(store, "in", "out")
    broken = [True]

    @graph.step("in", "out", state=keyed("sums", "digit", "digit bigint, total bigint"), dead="bad")
    def add(rows: DataFrame, sums: StateRows) -> dict[str, DataFrame]:
        text = "cast(payload as string)"
        number = f"cast(regexp_replace({text}, 'x', '{'y' if broken[0] else ''}') as bigint)"
        numbers = rows.selectExpr(f"{number} as number")
        news = numbers.groupBy((f.col("number") % 10).alias("digit")).agg(
            f.sum("number").alias("n")
        )
        after = news.join(sums.rows(news), "digit", "left")
        after = after.selectExpr("digit", "coalesce(total, 0L) + n as total")
        return {"out": numbers.selectExpr("cast(number as string) as payload"), "sums": after}

    store.put_many("in", [b"1", b"x21", b"2", b"12", b"x3"])
    with graph.start() as run:
        run.drain(timeout=SECONDS)
        assert run.status().steps["add"].dead_letters == 2
        assert rows_in(store, "sums") == {1: 1, 2: 14}
        broken[0] = False
        find, changes = BatchState.find, [0] * CONFLICTS_BEFORE_TELLING

        def disturbed(self: BatchState, keys: DataFrame) -> Any:
            if changes:
                changes.pop()
                own = plain.open_state(getattr(store, "_owned", store), "sums")
                with store.transaction() as txn, own.within(txn) as rows:
                    rows.put([{"digit": 1, "total": 100 - len(changes)}])
            return find(self, keys)

        monkeypatch.setattr(BatchState, "find", disturbed)
        with pytest.raises(StateConflict, match=r"was so 10 times in a row: have who else"):
            run.replay("bad", "add")
        changes.append(1)
        assert run.replay("bad", "add") == 2
        assert run.replay("bad", "add") == 0
    assert rows_in(store, "sums") == {1: 121, 2: 14, 3: 3}
    assert sorted(store.browse("out/check").payloads()) == [b"1", b"12", b"2", b"21", b"3"]


def test_the_state_of_a_step_on_the_command_line(
    graph: Graph, store: Any, drained: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it holds, and the row of a key."""
    topic(store, "sums")
    topic(store, "orders", schema=ORDERS)
    summing(graph)
    store.put_many("orders", [order("ada", 3), order("bob", 5)])
    drained().stop()

    def quire(*words: str, status: int = 0) -> str:
        capsys.readouterr()
        assert main(["graph", words[0], directory(store), "shop", *words[1:]]) == status
        return capsys.readouterr().out

    assert quire("state", "add").splitlines()[1].split()[:3] == ["totals", "customer", "2"]
    (seen,) = json.loads(quire("state", "add", "--json"))
    assert (seen["name"], seen["rows"], seen["runs"]) == ("totals", 2, 1)
    assert json.loads(quire("state", "add", "bob")) == {"customer": "bob", "total": 5}
    assert quire("state", "add", "cleo", status=3) == ""
    quire("state", "add", "a", "b", status=1)
    quire("state", "add", "ada", "--name", "other", status=1)
    told = quire("show")
    assert "remembers by key: totals" in told
    assert "totals: up to 2 keys" in told
