"""The typed queues of a graph, and the rows that their steps need.

- What a typed queue gives a step are its columns and `_meta`, the header; what it takes are its
  columns, checked by names and types before the graph runs, and by values when they are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from quire.definitions.row_schema import is_part
from quire.errors import InvalidArgument
from quire.spark_graphs.schema import check_sink_schema
from quire.spark_graphs.writing.row_sink import Routes, check_fit

from .definition import GraphQueue, Step

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from quire.interface.store import Store

Schemas = Mapping[str, str | None]
"""The schema of each queue, in words; None: it holds bytes. One that is to be made has bytes."""

NO_SCHEMAS: Final[Schemas] = MappingProxyType({})


def schemas_of(store: Store, queues: Mapping[str, GraphQueue]) -> dict[str, str | None]:
    """Return the schemas of all queues that are there, and of those that the graph will make."""
    found = {name: queue.options.get("schema") for name, queue in queues.items()}
    return found | {info.name: info.schema for info in store.queues()}


def typed_among(queues: Iterable[str], schemas: Schemas) -> Routes:
    """Return those of the queues that are typed."""
    found = {queue: schemas.get(queue) for queue in queues}
    return {queue: schema_ddl for queue, schema_ddl in found.items() if schema_ddl is not None}


def routes_of(schema: StructType, queue: str | None, typed: Routes) -> Routes | None:
    """The typed queues that rows of a DataFrame may go to; None: they are messages of bytes.

    `queue`: where all go; None: each goes where its column `queue` says. `typed`: those that the
    step writes. Raises InvalidArgument, with the column, for rows that fit none.
    """
    if queue is not None and queue in typed:
        _check(schema, queue, typed[queue])
        return {queue: typed[queue]}
    if queue is None and typed and "payload" not in schema.names and "queue" in schema.names:
        refused = []
        for name, schema_ddl in typed.items():
            try:
                _check(schema, name, schema_ddl, without=("queue",))
            except InvalidArgument as error:
                refused.append(error)
        if len(refused) == len(typed):
            raise refused[0]
        return typed
    check_sink_schema(schema, queue)
    return None


def check_letters(steps: Iterable[Step], schemas: Schemas) -> None:
    """A queue for dead letters has bytes, or the columns of the inputs. Raises InvalidArgument.

    Where rows of a state may be due it has bytes: they have other columns.
    """
    for step, queue in [(each, queue) for each in steps for queue in each.inputs]:
        own = schemas.get(queue)
        theirs = None if step.dead is None else schemas.get(step.dead)
        if theirs is None:
            continue
        _check_due(step, theirs)
        if own is None or not is_part(own, theirs):
            raise InvalidArgument(
                f"queue '{step.dead}' takes dead letters of step '{step.name}' and has {theirs}, "
                f"and queue '{queue}' has {own or 'bytes'}: have a queue for dead letters with the "
                "same columns, or one of bytes, which gets rows as Arrow streams"
            )


def _check_due(step: Step, theirs: str) -> None:
    timed = [each.name for each in step.states if each.on_timer is not None]
    if timed:
        raise InvalidArgument(
            f"queue '{step.dead}' takes dead letters of step '{step.name}' and has {theirs}, "
            f"and rows of state '{timed[0]}' that its timers fail with have other columns: have a "
            "queue for dead letters of bytes, which gets rows as Arrow streams"
        )


def _check(schema: StructType, queue: str, schema_ddl: str, without: Iterable[str] = ()) -> None:
    try:
        check_fit(schema, schema_ddl, without)
    except InvalidArgument as error:
        raise InvalidArgument(
            f"rows for queue '{queue}', which has {schema_ddl}: {error}"
        ) from None
