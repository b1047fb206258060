"""Rows of a DataFrame on their way to typed queues.

- Rows fit their queue's schema when the write is planned, as far as Spark's types tell, and each
  value when its task writes it; the error names the column.
YZ2. What the store sets itself in `_meta` is accepted and not used, so that what was read can be
    written as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from quire.definitions.row_schema import META
from quire.errors import InvalidArgument
from quire.libraries import pa, pc
from quire.messages.message import SETTABLE
from quire.rows.row_input import Rows, rows_of
from quire.spark_graphs import position_range
from quire.spark_graphs.pyspark_features import to_arrow_schema

if TYPE_CHECKING:
    from quire.interface.store import Store

Routes = Mapping[str, str]
"""The schemas of typed queues, by name."""


def routes(store: Store, queue: str | None, schema: StructType) -> Routes | None:
    """Return the schemas of the queues that the rows may go to; None: the rows hold bytes.

    Raises QueueNotFound with what to do, InvalidArgument for rows that fit no queue.
    """
    if queue is not None:
        words = position_range.infos(store, [queue])[queue].schema
        if words is None:
            return None
        check_fit(schema, words)
        return {queue: words}
    if "payload" in schema.names or "queue" not in schema.names:
        return None
    found = {each.name: each.schema for each in store.queues() if each.schema is not None}
    return found or None


def check_fit(schema: StructType, words: str, without: Iterable[str] = ()) -> None:
    """Check that rows of a DataFrame may fit. Raises InvalidArgument."""
    arrow = to_arrow_schema(schema)
    empty = pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in arrow], schema=arrow)
    rows_of(words, without_columns(empty, without))


def routed(
    batches: Iterable[pa.RecordBatch],
    queue: str | None,
    routes: Routes,
    priorities: Mapping[str, int],
) -> Iterator[tuple[str, Rows]]:
    """The rows of each queue; those of one queue in their order.

    `queue`: where all go; by default each goes where its column `queue` says. `priorities`: by
    queue, what rows get that say none.
    """

    for batch in batches:
        if queue is not None:
            for rows in rows_of(
                routes[queue], without_columns(batch, ()), priorities.get(queue, 0)
            ):
                yield queue, rows
            continue
        names = batch.column("queue")
        if names.null_count:
            raise InvalidArgument(
                f"column 'queue' is null in {names.null_count} rows: every message needs its queue"
            )
        own = without_columns(batch, ("queue",))
        for name in names.unique().to_pylist():
            words = routes.get(name)
            if words is None:
                raise InvalidArgument(
                    f"queue '{name}' is no typed queue of this store: rows without a column "
                    "'payload' go to typed queues only"
                )
            for rows in rows_of(words, own.filter(pc.equal(names, name)), priorities.get(name, 0)):
                yield name, rows


def without_columns(batch: pa.RecordBatch, without: Iterable[str]) -> pa.RecordBatch:
    """Return the batch without these columns, and without what the store sets in `_meta` (YZ2)."""
    dropped = set(without)
    names, columns = [], []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name in dropped:
            continue
        if name == META and pa.types.is_struct(column.type):
            kept = [field.name for field in column.type if field.name in SETTABLE]
            if not kept:
                continue
            inner = dict(zip((f.name for f in column.type), column.flatten(), strict=True))
            column = pa.StructArray.from_arrays([inner[each] for each in kept], names=kept)
        names.append(name)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names=names)
