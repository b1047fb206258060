"""The condition that a selector or a template sets on messages, once it was read for a queue.

    condition("JMSPriority > 5 AND region = 'north'", None).rows(block, first_id=7, time_us=0)

- CN1: a message is chosen where the condition is true; where it is unknown it is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from quire.block import Block
from quire.definitions.row_schema import schema_of_words
from quire.libraries import np
from quire.limits import CHECKED_ONE_BY_ONE
from quire.messages.message import Message

from .analysis import FieldPlace, Reaches, equalities, may, needs_payload
from .block_columns import BlockColumns
from .selector_reading import read_selector
from .template import SelectorOrTemplate, Template, refused
from .template_reading import read_template
from .truths import Truth

if TYPE_CHECKING:
    from numpy.typing import NDArray


class MessageCondition:
    """A selector or a template, read for the messages of a queue. It is never changed.

    `needs_payload`: whether payloads are looked at. `equalities`: what every chosen message has,
    by its place: for ("attribute", "region") a text, for ("header", "priority") a number or a text,
    for ("column", "amount") a value as `row_filter` has it.
    """

    __slots__ = ("_truth", "equalities", "needs_payload")

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self.needs_payload = needs_payload(truth)
        self.equalities: Mapping[FieldPlace, Any] = MappingProxyType(equalities(truth))

    def rows(
        self, block: Block, *, first_id: int, time_us: int, start: int = 0, stop: int | None = None
    ) -> NDArray[np.bool_]:
        """Return which messages from `start` to `stop` of the block are chosen (CN1).

        `first_id` and `time_us`: those of the block's first message, and of its commit; what is
        packed has its own. Raises StoreCorrupt, as looking at the block does.
        """
        stop = block.count if stop is None else stop
        if stop - start <= CHECKED_ONE_BY_ONE:
            chosen = np.zeros(stop - start, np.bool_)
            for row in range(start, stop):
                message = block.message(
                    row, queue="", first_id=first_id, time_us=time_us, delivery_count=1
                )
                chosen[row - start] = self.chooses(message)
            return chosen
        true = self._truth.rows(BlockColumns(block, start, stop, first_id, time_us)).true
        return true if isinstance(true, np.ndarray) else np.full(stop - start, true)

    def chooses(self, message: Message) -> bool:
        """Return True if the message is chosen (CN1)."""
        return self._truth.of(message) is True

    def may(self, reaches: Reaches, count: int) -> bool:
        """Return True if any of a block's rows may be chosen, by how far its columns reach
        (TV3).
        """
        return may(self._truth, reaches, count)


def condition(
    where: SelectorOrTemplate, schema: str | None = None, *, is_volatile: bool = False
) -> MessageCondition:
    """Read a selector or a template for the messages of a queue.

    `schema`: the words of a typed queue's; None for queues of bytes. Raises InvalidSelector, of a
    selector with line and column, and InvalidArgument for what is neither.
    """
    if isinstance(where, str):
        return _of_selector(where, schema, is_volatile=is_volatile)
    if not isinstance(where, Template):
        raise refused(where)
    return MessageCondition(
        read_template(where, None if schema is None else schema_of_words(schema))
    )


@lru_cache(maxsize=256)
def _of_selector(text: str, schema: str | None, *, is_volatile: bool) -> MessageCondition:
    words = None if schema is None else schema_of_words(schema)
    return MessageCondition(read_selector(text, words, is_volatile=is_volatile))
