"""Dead letters put back through the step that failed with them.

- A batch takes dead letters from their queue and puts what the function makes of them, in one
  transaction. What it fails with again is a dead letter again, by the same transaction. Letters of
  rows that were due have transactions of their own (row_letters.py).
YRP2. Dead letters of other steps, and what is none, stay where they are.
- Each batch has a number, in the ledger under `graph/<graph>/<step>/replay`. Where the owner is
  lost at a commit, it tells whether the batch took effect: so each counts once, and no more are put
  back than were asked for.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from quire.batches.moved_messages import QUEUE
from quire.definitions.row_schema import META, nulls
from quire.errors import InvalidArgument, StateConflict
from quire.libraries import pa
from quire.messages.message import Message
from quire.messages.typed_message import TypedMessage, row_of_payload
from quire.spark_graphs import connection
from quire.spark_graphs.graphs.batches.batch_inputs import LoadedMessages, arrow_columns
from quire.spark_graphs.graphs.failures.dead_letters import (
    POSITION,
    STEP,
    origin_of,
    own_attributes,
)
from quire.spark_graphs.graphs.schemas import Schemas
from quire.spark_graphs.limits import (
    CONFLICTS_BEFORE_TELLING,
    POSITION_DIGITS,
    REPLAY_MESSAGES,
)
from quire.spark_graphs.schema import META_COLUMNS

from .row_letters import MESSAGES, RowLetters
from .step_commit import ledger_key

if TYPE_CHECKING:
    from quire.interface.store import Store
    from quire.interface.transaction import Transaction

    from .step_runner import StepRunner


def replay(runner: StepRunner, dead: str, max_messages: int | None) -> int:
    """Put all letters back, or so many; return how many they were."""
    queue = connection.call(runner.path, lambda store: store.queue(dead))
    kinds: list[_MessageLetters | RowLetters] = [_MessageLetters(runner)]
    if runner.timed:
        kinds = [_MessageLetters(runner, MESSAGES), RowLetters(runner)]
    left = limit = queue.messages if max_messages is None else min(queue.messages, max_messages)
    for kind in kinds:
        to_look_at = queue.messages
        while left > 0 and to_look_at > 0:
            batch = _DeadLetterBatch(runner, dead, min(left, to_look_at, REPLAY_MESSAGES), kind)
            looked, found = _done(batch)
            left -= found
            to_look_at -= looked
            if not looked:
                break
    return limit - left


class _MessageLetters(Struct, frozen=True):
    """The letters of a step's messages."""

    runner: StepRunner
    where: str | None = None

    def take(self, txn: Transaction, dead: str, limit: int) -> list[Message]:
        """Take so many letters out of their queue."""
        return list(txn.get_many(dead, limit, where=self.where))

    def own(self, letters: Sequence[Message]) -> list[Message]:
        """Return those of this step, from which the message can be had (YRP2)."""
        runner, now = self.runner, self.runner.letters.schemas_now()
        title, queues = f"{runner.graph}/{runner.step.name}", runner.step.inputs
        return [each for each in letters if is_letter_of(each, title, queues, runner.schemas, now)]

    def put_back(self, letters: Sequence[Message], store: Store, txn: Transaction) -> None:
        """Put them through the step's function."""
        runner, now = self.runner, self.runner.letters.schemas_now()
        inputs = inputs_of(runner.step.inputs, letters, runner.schemas, now)
        runner.replay_messages(inputs, store, txn)


class _DeadLetterBatch(Struct):
    """Dead letters that are put back by one transaction."""

    runner: StepRunner
    dead: str
    limit: int
    kind: _MessageLetters | RowLetters
    _number: int | None = None  # that it was tried under, when its outcome may be unknown
    _found: tuple[int, int] = 0, 0

    def put_back(self, store: Store) -> tuple[int, int]:
        """Return how many letters were looked at, and how many put back; may be tried again."""
        step, graph = self.runner.step, self.runner.graph
        key = ledger_key(graph, f"{step.name}/replay")
        last = store.integration.ledger(key)
        if self._number is not None and last is not None and last >= self._number:
            return self._found
        with store.transaction(timeout=None) as txn:
            letters = self.kind.take(txn, self.dead, self.limit)
            own = self.kind.own(letters)
            ids = {each.id for each in own}
            for letter in letters:
                if letter.id not in ids:
                    txn.reject(letter, f"no dead letter of step {graph}/{step.name}")
            self._found = len(letters), len(own)
            if own:
                self.kind.put_back(own, store, txn)
                self._number = 0 if last is None else last + 1
                txn.enter(key, self._number)
        return self._found


def _done(batch: _DeadLetterBatch) -> tuple[int, int]:
    """Have a batch put back, again where somebody else has changed a state meanwhile.

    Raises StateConflict where that goes on.
    """
    runner = batch.runner
    for tries in itertools.count(1):
        try:
            with runner.turn:
                return connection.call(runner.path, batch.put_back)
        except StateConflict as conflict:
            if tries >= CONFLICTS_BEFORE_TELLING:
                raise StateConflict(
                    f"{conflict}. That was so {tries} times in a row: have who else changes the "
                    "state pause between the changes, and put the dead letters back again"
                ) from conflict
    raise AssertionError


def is_letter_of(
    letter: Message, title: str, queues: Sequence[str], schemas: Schemas, now: Schemas
) -> bool:
    """Return True if it is a dead letter of the step, from which the message can be had (YRP2)."""
    attributes = letter.attributes
    position = attributes.get(POSITION, "0")
    if attributes.get(STEP) != title or QUEUE not in attributes:
        return False
    if not (position.isascii() and position.isdecimal() and len(position) <= POSITION_DIGITS):
        return False
    queue = attributes[QUEUE] if attributes[QUEUE] in queues else queues[0]
    schema_ddl = schemas.get(queue)
    if schema_ddl is not None:
        try:
            _row(letter, arrow_columns(now.get(queue, schema_ddl)))
        except (InvalidArgument, pa.ArrowException):
            return False
    return True


def inputs_of(
    queues: Sequence[str], letters: Sequence[Message], schemas: Schemas, now: Schemas
) -> list[LoadedMessages]:
    """The messages as they were, by the input that they come from.

    `schemas`: of typed queues when the graph was started; `now`: as they are, which is what the
    messages keep.
    """
    by_queue: dict[str, list[Message]] = {queue: [] for queue in queues}
    for letter in letters:
        by_queue.get(origin_of(letter.attributes)[0], by_queue[queues[0]]).append(letter)
    found = []
    for queue, own in by_queue.items():
        schema_ddl = schemas.get(queue)
        schema = arrow_columns(now.get(queue, schema_ddl))
        if schema_ddl is None:
            rows = pa.Table.from_pylist([_header(each, schema.names) for each in own], schema)
        else:
            rows = pa.Table.from_batches([_row(each, schema) for each in own], schema)
        found.append(LoadedMessages(queue, rows, schema_ddl))
    return found


def _header(letter: Message, names: Sequence[str]) -> dict[str, Any]:
    queue, position = origin_of(letter.attributes)
    row = {name: getattr(letter, name, None) for name in names}
    row |= {"queue": queue, "position": position}
    row["attributes"] = list(own_attributes(letter.attributes).items())
    return row


def _row(letter: Message, schema: pa.Schema) -> pa.RecordBatch:
    """Return the row of a typed queue's letter, which is a row or has it as an Arrow stream."""
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
