"""Dead letters of rows that were due, put back: their timers are set again.

- The timer is at its old time again, so the step has it fire as any other, once. Where the row is
  not there any more, or has another timer, the letter is taken and nothing else is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from quire.definitions.row_schema import schema_of_words
from quire.errors import InvalidArgument
from quire.keyed.format import NEVER
from quire.libraries import pa, pc
from quire.messages.message import Message
from quire.messages.typed_message import row_of_payload
from quire.spark_graphs.graphs.failures.dead_letters import STATE, STEP, TIMER
from quire.spark_graphs.graphs.step_state import StepState
from quire.spark_graphs.limits import REPLAY_BYTES, REPLAY_ROWS_AT_ONCE

if TYPE_CHECKING:
    from quire.interface.store import Store
    from quire.interface.transaction import Transaction
    from quire.keyed import KeyedChanges

    from .step_runner import StepRunner

_ROWS: Final = f'"{STATE}" IS NOT NULL AND "{TIMER}" IS NOT NULL'
MESSAGES: Final = f'"{STATE}" IS NULL OR "{TIMER}" IS NULL'
"""The selector of letters of messages, where there are those of rows, too."""


class _DueLetter(Struct, frozen=True):
    """The row that a letter is of: its state, its key, and the time of its timer."""

    state: StepState
    key: pa.RecordBatch
    timer: int


class RowLetters(Struct, frozen=True):
    """The letters of rows of a step's states."""

    runner: StepRunner

    def take(self, txn: Transaction, dead: str, limit: int) -> list[Message]:
        """Take so many letters out of their queue; fewer where the rows are large, as a
        transaction changes so many bytes of a state.
        """
        found: list[Message] = []
        size = 0
        while len(found) < limit and size < REPLAY_BYTES:
            count = min(REPLAY_ROWS_AT_ONCE, limit - len(found))
            some = list(txn.get_many(dead, count, where=_ROWS))
            found += some
            size += sum(len(each.payload) for each in some)
            if len(some) < count:
                break
        return found

    def own(self, letters: Sequence[Message]) -> list[Message]:
        """Return those of this step, from which the row can be told (YRP2)."""
        return [each for each in letters if self._found_in(each) is not None]

    def put_back(self, letters: Sequence[Message], store: Store, txn: Transaction) -> None:
        """Set the timers of their rows. Raises StateConflict."""
        found = [each for each in map(self._found_in, letters) if each is not None]
        for state in dict.fromkeys(each.state for each in found):
            own = [each for each in found if each.state == state]
            with self.runner.memory.access.state_in(store, state).within(txn) as rows:
                _set_again(rows, own)
        self.runner.look_anew()

    def _found_in(self, letter: Message) -> _DueLetter | None:
        attributes, runner = letter.attributes, self.runner
        states = {each.stored: each for each in runner.timed}
        state = states.get(attributes.get(STATE, ""))
        if attributes.get(STEP) != f"{runner.graph}/{runner.step.name}" or state is None:
            return None
        fields = list(schema_of_words(state.schema))[: state.key_columns]
        try:
            timer, row = int(attributes[TIMER]), row_of_payload(letter.payload)
            columns = [row.column(each.name).cast(each.type) for each in fields]
        except (InvalidArgument, ValueError, KeyError, pa.ArrowException):
            return None
        if any(each.null_count for each in columns) or not -NEVER <= timer < NEVER:
            return None
        return _DueLetter(state, pa.RecordBatch.from_arrays(columns, list(state.key)), timer)


def _set_again(rows: KeyedChanges, letters: Sequence[_DueLetter]) -> None:
    """Set the timers of rows that have none; of two letters of one row that of the first."""
    keys = pa.Table.from_batches([each.key for each in reversed(letters)])
    timers = pa.array([each.timer for each in reversed(letters)], pa.int64())
    have_none = pc.is_null(rows.timers(keys))
    rows.set_timers(keys.filter(have_none), timers.filter(have_none))
