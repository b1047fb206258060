"""The keyed states of a step, as the program of a graph describes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from quire.definitions.row_schema import schema_of_words
from quire.errors import InvalidArgument
from quire.keyed.row_arguments import check_keyed_name, definition_of
from quire.moments import Duration

DELETE: Final = "_delete"
TTL: Final = "_ttl"
OWN_COLUMNS: Final = (DELETE, TTL)
"""Columns that a step returns with a state's rows, beside those of the schema."""


class StepState(Struct, frozen=True):
    """A keyed state that a step reads and changes: made by `keyed`."""

    name: str
    schema: str  # in words
    key_columns: int  # the first ones
    ttl_us: int | None = None
    place: str = ""  # its name in the store, where that is another one

    @property
    def stored(self) -> str:
        """The name of the keyed state in the store."""
        return self.place or self.name

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns, those of the key first."""
        return tuple(schema_of_words(self.schema).names)

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of the key."""
        return self.columns[: self.key_columns]


def keyed(
    name: str, key: str | Sequence[str], schema: object, *, ttl: Duration | None = None
) -> StepState:
    """Describe a keyed state for `Graph.step(state=...)`: rows by key, which the step remembers.

    `name`: of the keyed state in the store, which programs without Spark open by it, too
    (`quire.keyed.open_state`). `schema`: its columns, as for a typed queue, none of them nested.
    `key`: the first of them, one or several. `ttl`: seconds after which a row is gone by itself,
    unless its column `_ttl` says otherwise. Raises InvalidArgument.
    """
    found = definition_of(check_keyed_name(name), key, schema, ttl)
    own = [each for each in schema_of_words(found.schema).names if each in OWN_COLUMNS]
    if own:
        raise InvalidArgument(
            f"state '{name}': the column {own[0]!r} is what a step returns beside the columns of a "
            "state: give it another name"
        )
    return StepState(name, found.schema, found.key, found.ttl_us)


def states_of(what: str, value: object) -> tuple[StepState, ...]:
    """Return one state or several, as a step is given them. Raises InvalidArgument."""
    if value is None:
        return ()
    found = (value,) if isinstance(value, StepState) else value
    if not isinstance(found, Iterable) or isinstance(found, (str, bytes)):
        raise _no_state(what, found)
    states = tuple(found)
    for each in states:
        if not isinstance(each, StepState):
            raise _no_state(what, each)
    return states


def _no_state(what: str, value: object) -> InvalidArgument:
    return InvalidArgument(
        f"{what} {value!r:.100}: give quire.spark_graphs.keyed(name, key=..., schema=...), or "
        "several"
    )
