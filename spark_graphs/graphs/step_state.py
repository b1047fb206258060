"""The keyed states of a step, as the program of a graph describes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from msgspec import Struct

from quire.callbacks import check_function
from quire.definitions.row_schema import schema_of_words
from quire.errors import InvalidArgument
from quire.keyed.row_arguments import check_keyed_name, definition_of
from quire.moments import Duration, seconds_of
from quire.spark_graphs.options import quantity_of_seconds

DELETE: Final = "_delete"
TTL: Final = "_ttl"
TIMER: Final = "_timer"
OWN_COLUMNS: Final = (DELETE, TTL, TIMER)
"""Columns that a step returns with a state's rows, beside those of the schema."""


class StepState(Struct, frozen=True):
    """A keyed state that a step reads and changes: made by `keyed`."""

    name: str
    schema: str  # in words
    key_columns: int  # the first ones
    ttl_us: int | None = None
    place: str = ""  # its name in the store, where that is another one
    on_timer: Callable[..., Any] | None = None  # called for rows whose timers are due
    event_time: str | None = None  # an expression of the inputs; None: timers go by the clock
    delay_us: int = 0  # of the watermark behind the latest time

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
    name: str,
    key: str | Sequence[str],
    schema: object,
    *,
    ttl: Duration | None = None,
    on_timer: Callable[..., Any] | None = None,
    event_time: str | None = None,
    delay: Duration | str = 0.0,
) -> StepState:
    """Describe a keyed state for `Graph.step(state=...)`: rows by key, which the step remembers.

    `name`: of the keyed state in the store, which programs without Spark open by it, too
    (`quire.keyed.open_state`). `schema`: its columns, as for a typed queue, none of them nested.
    `key`: the first of them, one or several. `ttl`: seconds after which a row is gone by itself,
    unless its column `_ttl` says otherwise.

    `on_timer`: a function that is called for rows whose timers, of their column `_timer`, are due:
    as the step's function, with a DataFrame of these rows in the place of the inputs
    (docs/state.md). They are due by the clock; with `event_time`, an expression in SQL of the
    columns of each input, as soon as the latest time of every input is `delay` (seconds, a
    timedelta, or a str as "10 minutes") beyond. Raises InvalidArgument.
    """
    found = definition_of(check_keyed_name(name), key, schema, ttl)
    own = [each for each in schema_of_words(found.schema).names if each in OWN_COLUMNS]
    if own:
        raise InvalidArgument(
            f"state '{name}': the column {own[0]!r} is what a step returns beside the columns of a "
            "state: give it another name"
        )
    if on_timer is not None:
        check_function(f"state '{name}': on_timer", on_timer, "give a function of a DataFrame")
    elif event_time is not None or delay:
        raise InvalidArgument(
            f"state '{name}': `event_time` and `delay` are of timers: give `on_timer`, too"
        )
    if event_time is not None and not (isinstance(event_time, str) and event_time):
        raise InvalidArgument(
            f"state '{name}': event_time {event_time!r:.100}: give an expression in SQL, as 'time'"
        )
    delay_us = _micros(name, delay)
    if delay_us and event_time is None:
        raise InvalidArgument(
            f"state '{name}': `delay` is how late messages may come, in event time: give "
            "`event_time`, too, or set the timers later"
        )
    return StepState(
        name,
        found.schema,
        found.key,
        found.ttl_us,
        on_timer=on_timer,
        event_time=event_time,
        delay_us=delay_us,
    )


def _micros(name: str, delay: object) -> int:
    seconds = seconds_of(delay)
    if isinstance(seconds, str):
        return int(quantity_of_seconds("delay", seconds) * 1e6)
    if isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and 0 <= seconds < 1e9:
        return int(seconds * 1e6)
    raise InvalidArgument(
        f"state '{name}': delay {delay!r:.100}: give seconds, a timedelta, or a str as "
        '"10 minutes"'
    )


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
