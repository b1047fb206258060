"""A keyed state of a step as its store shows it, and its rows by keys in words."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from quire.definitions.row_schema import words_of
from quire.errors import InvalidArgument, NotFound
from quire.keyed import KeyedState, open_state
from quire.libraries import pa

from .definition import StepDefinition

if TYPE_CHECKING:
    from quire.interface.store import Store


class StateSight(Struct, frozen=True):
    """A keyed state."""

    name: str
    schema: str  # in words
    key: tuple[str, ...]  # the first columns
    rows: int  # at most: what is in several runs counts in each until they are merged
    size_bytes: int
    runs: int
    put_bytes: int  # that changes have written so far
    write_amplification: float  # how often those were written, with merges

    def __str__(self) -> str:
        return (
            f"{self.name}: up to {self.rows:,} keys, {self.size_bytes:,} bytes in {self.runs} "
            f"runs, written {self.write_amplification:.1f} times"
        )


def see_state(store: Store, name: str) -> StateSight | None:
    """Return how a state is now; None: it is not there. No file of it is read."""
    state = KeyedState(store, name)
    with suppress(NotFound):
        status, schema = state.status(), state.schema
        return StateSight(
            name,
            words_of(schema),
            tuple(state.key_names),
            status.rows,
            status.size_bytes,
            status.runs,
            status.put_bytes,
            status.write_amplification,
        )
    return None


def rows_by_key(store: Store, name: str, texts: Sequence[str]) -> list[dict[str, Any]]:
    """Return the row of a key, if there is one. `texts`: a value for each column of the key.

    Raises InvalidArgument, NotFound.
    """
    state = open_state(store, name)
    sight = see_state(store, name)
    assert sight is not None
    fields = [state.schema.field(each) for each in sight.key]
    if len(texts) != len(fields):
        raise InvalidArgument(
            f"the key of state {name!r} is {', '.join(sight.key)}: give {len(fields)} values, not "
            f"{len(texts)}"
        )
    columns = [_value(field, text) for field, text in zip(fields, texts, strict=True)]
    found: list[dict[str, Any]] = state.get(
        pa.RecordBatch.from_arrays(columns, names=list(sight.key))
    ).to_pylist()
    return found


def state_of_step(step: StepDefinition, name: str | None) -> str:
    """Return the state that is meant: the step's only one, or that of the name.

    Raises InvalidArgument.
    """
    names = (*step.states, *step.tables)
    if name is None and len(step.states) == 1:
        return step.states[0]
    if name is None or name not in names:
        raise InvalidArgument(
            f"step '{step.name}' has the states {', '.join(names) or 'none'}: name one of them"
        )
    return name


def _value(field: pa.Field, text: str) -> pa.Array:
    try:
        return pa.array([text]).cast(field.type)
    except pa.ArrowException as error:
        raise InvalidArgument(
            f"{text!r:.100} is no {field.type}, which the column {field.name!r} of the key has: "
            f"{error}"
        ) from error
