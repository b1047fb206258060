"""The columns of what a step returns for a state, checked before there are rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quire.errors import InvalidArgument
from quire.libraries import pa
from quire.rows.row_input import rows_of
from quire.spark_graphs.graphs.step_state import DELETE, TIMER, TTL, StepState
from quire.spark_graphs.pyspark_features import to_arrow_schema

from .state_tasks import plain_rows

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_GIVE: Final = {
    DELETE: "a boolean: true deletes the row of the key",
    TTL: "a number: seconds until the row is gone",
    TIMER: "a timestamp (`cast(... as timestamp)`): when the row is due",
}


def check_changes(state: StepState, schema: StructType) -> None:
    """Check that rows of a DataFrame may be a state's. Raises InvalidArgument."""
    arrow = to_arrow_schema(schema)
    found = f"rows for state '{state.name}'"
    missing = [name for name in state.key if name not in arrow.names]
    if missing:
        raise InvalidArgument(
            f"{found}: the column {missing[0]!r} of the key is missing; they have "
            f"{', '.join(arrow.names)}"
        )
    for name, words in _GIVE.items():
        if name in arrow.names and not _fits(name, arrow.field(name).type):
            raise InvalidArgument(
                f"{found}: the column {name!r} is {arrow.field(name).type}: give {words}"
            )
    if TIMER in arrow.names and state.on_timer is None:
        raise InvalidArgument(
            f"{found}: the column {TIMER!r} sets timers, for which the state has no function: give "
            "keyed(..., on_timer=...)"
        )
    empty = pa.Table.from_arrays([pa.nulls(0, each.type) for each in arrow], schema=arrow)
    try:
        rows_of(state.schema, plain_rows(empty))
    except InvalidArgument as error:
        raise InvalidArgument(f"{found}: {error}") from None


def _fits(name: str, type_: pa.DataType) -> bool:
    if name == DELETE:
        return bool(pa.types.is_boolean(type_))
    if name == TIMER:
        return bool(pa.types.is_timestamp(type_) and type_.tz is not None)
    types = pa.types
    return bool(types.is_integer(type_) or types.is_floating(type_) or types.is_decimal(type_))
