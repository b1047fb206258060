"""Dead letters put back through the step that failed with them.

YRP1. A batch takes dead letters from their queue and puts what the function makes of them, in one
    transaction. What it fails with again is a dead letter again, by the same transaction.
YRP2. Dead letters of other steps, and what is none, stay where they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from quire.message import Message
from quire.row_schema import META, nulls
from quire.spark_graphs import connection
from quire.spark_graphs.limits import REPLAY_MESSAGES
from quire.spark_graphs.schema import META_COLUMNS
from quire.typed_message import TypedMessage, row_of_payload

from .inputs import Held, arrow_columns
from .letters import STEP, own_attributes, said_of
from .schemas import Schemas

if TYPE_CHECKING:
    from quire.store import Store

    from .runner import StepRunner


def replay(runner: StepRunner, dead: str, max_messages: int | None) -> int:
    """All that are there, or so many; how many they were."""
    queue = connection.call(runner.path, lambda store: store.queue(dead))
    left = queue.messages if max_messages is None else min(queue.messages, max_messages)
    to_look_at = queue.messages
    done = 0
    while left > 0 and to_look_at > 0:
        most = min(left, to_look_at, REPLAY_MESSAGES)
        with runner.turn:
            looked, found = connection.call(
                runner.path,
                lambda store, most=most: _some(store, runner, dead, most),  # type: ignore[misc]
            )
        done += found
        left -= found
        to_look_at -= looked
        if not looked:
            break
    return done


def _some(store: Store, runner: StepRunner, dead: str, most: int) -> tuple[int, int]:
    """How many letters were looked at, and how many of them were put back."""
    title = f"{runner.graph}/{runner.step.name}"
    with store.transaction(timeout=None) as txn:
        letters = list(txn.get_many(dead, most))
        own = [letter for letter in letters if letter.attributes.get(STEP) == title]
        strange = [letter for letter in letters if letter.attributes.get(STEP) != title]
        if own:
            runner.do_held(inputs_of(runner.step.inputs, own, runner.schemas), store, txn)
        for letter in strange:
            txn.reject(letter, "of another step")
    return len(letters), len(own)


def inputs_of(queues: Sequence[str], letters: Sequence[Message], schemas: Schemas) -> list[Held]:
    """The messages as they were, by the input that they come from."""
    by_queue: dict[str, list[Message]] = {queue: [] for queue in queues}
    for letter in letters:
        by_queue.get(said_of(letter.attributes)[0], by_queue[queues[0]]).append(letter)
    found = []
    for queue, own in by_queue.items():
        words = schemas.get(queue)
        schema = arrow_columns(words)
        if words is None:
            rows = pa.Table.from_pylist([_header(each, schema.names) for each in own], schema)
        else:
            rows = pa.Table.from_batches([_row(each, schema) for each in own], schema)
        found.append(Held(queue, rows, words))
    return found


def _header(letter: Message, names: Sequence[str]) -> dict[str, Any]:
    queue, position = said_of(letter.attributes)
    row = {name: getattr(letter, name, None) for name in names}
    row |= {"queue": queue, "position": position}
    row["attributes"] = list(own_attributes(letter.attributes).items())
    return row


def _row(letter: Message, schema: pa.Schema) -> pa.RecordBatch:
    """Of a typed queue, whose dead letters are rows or have them as Arrow streams."""
    header = _header(letter, list(META_COLUMNS))
    if isinstance(letter, TypedMessage):
        row = letter.row
    else:
        row = row_of_payload(letter.payload)
        header["content_type"] = None
    columns = []
    for field in schema:
        if field.name == META:
            columns.append(pa.array([header], field.type))
        elif field.name in row.schema.names:
            columns.append(row.column(field.name).cast(field.type))
        else:  # the queue has got it since
            columns.append(nulls(1, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
