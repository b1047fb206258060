"""Dead letters of steps: messages that a step fails with, with the reason, in a queue of their own.

YDL1. A dead letter is the message as it was, with attributes that say which step has failed with
    it, where it was, and how. Where there is no room beside its own, the stack trace is left out,
    and then all of them.
- It is put by the commit that counts the message as read: it is in one of the two queues.
- That of a due row has the row, as an Arrow stream, the name of its state and the time of its
  timer. It is put by the commit with which the timer has fired, and the row stays.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from msgspec import Struct

from quire.batches.moved_messages import OWN_PREFIX, QUEUE, SUBSCRIPTION, TIME
from quire.definitions.row_schema import META, schema_of_words
from quire.libraries import pa
from quire.limits import MAX_ATTRIBUTES, MAX_ATTRIBUTES_BYTES
from quire.messages.message import SETTABLE
from quire.messages.message_schema import MESSAGE_SCHEMA
from quire.messages.message_types import REASON
from quire.messages.typed_message import ARROW_STREAM, row_payload
from quire.spark_graphs.limits import DEAD_REASON_BYTES, DEAD_TRACE_BYTES

STEP: Final = "quire.step"
"""The graph and the step, as "orders/parse"."""
POSITION: Final = "quire.position"
NUMBER: Final = "quire.batch"
TRACE: Final = "quire.trace"
STATE: Final = "quire.state"
"""The state, by its name in the store, of a row that was due."""
TIMER: Final = "quire.timer"
"""The time of its timer, in microseconds since 1970."""

Letter: TypeAlias = "pa.RecordBatch | dict[str, Any]"
"""A row of bytes, or a batch of one in columns of its own."""

_SCHEMA: Final = pa.schema([MESSAGE_SCHEMA.field(name) for name in (*SETTABLE, "payload")])
_META_TYPE: Final = pa.struct([MESSAGE_SCHEMA.field(name) for name in SETTABLE])
_UNSET: Final = ("expires_at", "deliver_at")  # times of the queue that it is out of


class RowFailure(Struct, frozen=True):
    """How a step has failed with a row."""

    step: str
    number: int  # of the batch
    reason: str
    trace: str
    now_us: int

    def attributes(
        self, own: Mapping[str, str], origin: Mapping[str, str]
    ) -> list[tuple[str, str]]:
        """Return a dead letter's attributes, those of its own and where it comes from (YDL1)."""
        described = {
            **origin,
            STEP: self.step,
            NUMBER: str(self.number),
            REASON: _start(self.reason, DEAD_REASON_BYTES),
            TIME: str(self.now_us),
        }
        trace = {TRACE: _end(self.trace, DEAD_TRACE_BYTES)}
        return list(_fitting(dict(own), described, trace).items())


def letter(
    message: pa.RecordBatch,
    failure: RowFailure,
    subscription: str,
    dead_schema_ddl: str | None = None,
) -> Letter:
    """The message of a batch of one row, in all columns of its input, as a dead letter (YDL1).

    `dead_schema_ddl`: the schema of the queue for dead letters, if it has the columns of the input;
    None: it has bytes. A column that the input has got since, and it has not, is left out where it
    is null; else the letter is refused when it is put.
    """
    is_typed = META in message.schema.names
    row = (message.column(META) if is_typed else message).to_pylist()[0]
    own = dict(row["attributes"] or ())
    origin = {
        QUEUE: row["queue"],
        SUBSCRIPTION: subscription,
        POSITION: str(row["position"]),
    }
    row = {name: row.get(name) for name in _SCHEMA.names} | dict.fromkeys(_UNSET)
    row["attributes"] = failure.attributes(own, origin)
    if is_typed:
        columns = message.select([name for name in message.schema.names if name != META])
        if dead_schema_ddl is not None:
            del row["payload"]
            there = schema_of_words(dead_schema_ddl).names
            names = columns.schema.names
            columns = columns.select(
                [each for each in names if each in there or not columns.column(each).null_count]
            )
            return columns.append_column(META, pa.array([row], _META_TYPE))
        row |= {"payload": row_payload(columns), "content_type": ARROW_STREAM}
    return row


def due_letter(row: pa.RecordBatch, failure: RowFailure, state: str, timer: int) -> Letter:
    """Return the dead letter of a row of a state that was due."""
    return dict.fromkeys(_SCHEMA.names) | {
        "attributes": failure.attributes({}, {STATE: state, TIMER: str(timer)}),
        "payload": row_payload(row),
        "content_type": ARROW_STREAM,
    }


def together(letters: Iterable[Letter]) -> list[pa.RecordBatch]:
    """The letters in batches: one for each run of letters with the same columns."""
    found = []
    for schema, some in itertools.groupby(letters, key=lambda each: getattr(each, "schema", None)):
        each = list(some)
        if schema is None:
            found.append(pa.RecordBatch.from_pylist(each, schema=_SCHEMA))
        else:
            found += pa.Table.from_batches(each).combine_chunks().to_batches()
    return found


def origin_of(attributes: Mapping[str, str]) -> tuple[str, int]:
    """The queue and the position that a dead letter comes from."""
    return attributes[QUEUE], int(attributes.get(POSITION, "0"))


def own_attributes(attributes: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes that the message had."""
    return {key: text for key, text in attributes.items() if not key.startswith(OWN_PREFIX)}


def _fitting(own: dict[str, str], origin: dict[str, str], more: dict[str, str]) -> dict[str, str]:
    for both in ({**own, **origin, **more}, {**own, **origin}):
        size = sum(len(text.encode()) for pair in both.items() for text in pair)
        if len(both) <= MAX_ATTRIBUTES and size <= MAX_ATTRIBUTES_BYTES:
            return both
    return own


def _start(text: str, size: int) -> str:
    return text.encode(errors="replace")[:size].decode(errors="ignore")


def _end(text: str, size: int) -> str:
    return text.encode(errors="replace")[-size:].decode(errors="ignore")
