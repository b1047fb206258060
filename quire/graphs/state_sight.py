"""A keyed state of a step as its store shows it, and its rows by keys in words."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from quire.definitions.row_schema import word_of_type, words_of
from quire.errors import InvalidArgument, NotFound
from quire.keyed import KeyedState, open_state
from quire.libraries import pa

from .definition import StepDefinition

if TYPE_CHECKING:
    from quire.interface.store import Store

_EXAMPLES: Final = {
    "boolean": "true or false",
    "date": "one as 2026-01-31",
    "timestamp": "one as 2026-01-31T12:30:00Z, in UTC if no zone is there",
    "timestamp_ntz": "one as 2026-01-31T12:30:00, without a zone",
    "binary": "its base64, as rows show it",
}
_ZONE: Final = re.compile(r"(Z|[+-]\d\d(:?\d\d)?)$")


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
    merge_error: str | None = None  # what keeps a run from merging it now, as far as it is told

    def __str__(self) -> str:
        trouble = f", not merged: {self.merge_error}" if self.merge_error else ""
        return (
            f"{self.name}: up to {self.rows:,} keys, {self.size_bytes:,} bytes in {self.runs} "
            f"runs, written {self.write_amplification:.1f} times{trouble}"
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


def states_of_step(step: StepDefinition, name: str | None) -> tuple[str, ...]:
    """Return the state of the name; None: the states of the step, or its tables if it has none.

    Raises InvalidArgument.
    """
    if name is None:
        return step.states or step.tables
    return (state_of_step(step, name),)


def state_of_step(step: StepDefinition, name: str | None) -> str:
    """Return the state that is meant: that of the name, or the only one (see `states_of_step`).

    Raises InvalidArgument.
    """
    names = (*step.states, *step.tables)
    if name is None and len(states_of_step(step, None)) == 1:
        return states_of_step(step, None)[0]
    if name is None or name not in names:
        raise InvalidArgument(
            f"step '{step.name}' has the states {', '.join(names) or 'none'}: name one of them"
        )
    return name


def _value(field: pa.Field, text: str) -> pa.Array:
    """Return the value of a key that a text says, as the rows of states show it."""
    types = pa.types
    try:
        if types.is_binary(field.type):
            return pa.array([base64.b64decode(text, validate=True)], field.type)
        value = pa.array([text])
        if types.is_timestamp(field.type) and field.type.tz and not _ZONE.search(text):
            value = value.cast(pa.timestamp("us"))
        return value.cast(field.type)
    except (pa.ArrowException, ValueError) as error:
        word = word_of_type(field.type)
        raise InvalidArgument(
            f"{text!r:.100} is no {word}, which the column {field.name!r} of the key is: give "
            f"{_EXAMPLES.get(word, 'a whole number that the type holds')}"
        ) from error
