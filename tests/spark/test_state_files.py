"""The files that a batch writes for outputs and states: none stays of a batch that fails."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from quire import keyed as plain
from quire.env import OsEnv
from quire.keyed import StateLook
from quire.ltds import is_foreign, list_ids
from quire.spark_graphs import Graph, StateRows, keyed
from quire.spark_graphs.graphs.batches.task_store import RowRefused
from quire.spark_graphs.graphs.states.state_tasks import RangeTagger, RowWriter
from quire.spark_graphs.task_files.directory_files import directory_of
from tests.kit.waiting import SECONDS
from tests.spark.numbered_queues import topic
from tests.spark.served_store import directory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = [pytest.mark.spark, pytest.mark.at_server]

TEXTS = keyed("texts", "id", "id bigint, text string")
LONG = "x" * 300_000


def files_in(store: Any) -> set[int]:
    """The files of other processes than the store's owner."""
    ids = list_ids(OsEnv(), directory_of(directory(store)))
    return {each for each in ids if is_foreign(each)}


def test_a_batch_whose_rows_a_state_refuses_leaves_no_file(graph: Graph, store: Any) -> None:
    """Neither of its outputs nor of another state; as it should be it leaves those of both."""
    topic(store, "in", "out")
    broken = [True]
    counts = keyed("counts", "id", "id bigint, times bigint")

    @graph.step("in", "out", state=[TEXTS, counts])
    def spread(rows: DataFrame, texts: StateRows, counts: StateRows) -> dict[str, DataFrame]:
        many = rows.selectExpr("explode(sequence(1, 4)) as id")
        long = many.selectExpr("cast(id as bigint) as id", "repeat('x', 300000) as text")
        key = "1L" if broken[0] else "id"
        return {
            "out": long.selectExpr("text as payload"),
            "texts": long,
            "counts": long.selectExpr(f"{key} as id", "1L as times"),
        }

    store.put("in", b"1")
    with graph.start(restart="never") as run:
        assert run.wait(SECONDS)
        assert "another one has, too" in (run.status().steps["spread"].last_error or "")
    assert files_in(store) == set()
    broken[0] = False
    with graph.start() as run:
        run.drain(timeout=SECONDS)
    assert len(files_in(store)) == 2
    assert len(store.browse("out/check").payloads()) == 4


def test_a_task_that_fails_in_one_of_its_ranges_leaves_no_file(store: Any) -> None:
    """The runs of the others are removed; as it should be they are the state's."""
    state = plain.open_state(getattr(store, "_owned", store), "texts", "id", TEXTS.schema)
    look: StateLook = state.look()
    rows = pa.table({"id": pa.array(range(12), pa.int64()), "text": [LONG] * 12})
    tagger, writer = RangeTagger(TEXTS, look, 4), RowWriter(store.path, TEXTS, look, 4)

    def tagged(table: pa.Table) -> list[pa.RecordBatch]:
        return list(tagger(iter(table.combine_chunks().to_batches())))

    last = tagged(rows)[0].to_pylist()[-1]
    again = rows.filter(pa.compute.equal(rows.column("id"), last["id"]))
    with pytest.raises(RowRefused, match="another one has, too"):
        list(writer(iter(tagged(pa.concat_tables([rows, again])))))
    assert files_in(store) == set()
    [found] = list(writer(iter(tagged(rows))))
    written = pickle.loads(found.column(0)[0].as_py())
    assert files_in(store) == {run.file for run in written} != set()
    with store.transaction() as txn:
        state.adopt(txn, look, written)
    state.end_look(look)
    assert sum(batch.num_rows for batch in state.rows()) == 12
