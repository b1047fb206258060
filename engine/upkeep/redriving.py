"""Putting dead letters back, and moving messages, some at a time (`quire.interface.redriving`).

- A letter is in one of the two queues: one commit takes it here and puts it there.
- Only what goes back is taken, by its position, and it is not delivered: what stays is not counted,
  hidden or held for a moment, whatever order its queue is read in. What others hold, what waits for
  its time or for a retry, and what no reader gets any more stays.
- RDP3: where the other queue has no room for all of them, as many go as it takes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from quire.batches.delivered_messages import Messages
from quire.batches.moved_messages import OWN_PREFIX, attributes_moved, put_again
from quire.definitions.row_schema import schema_of_words
from quire.engine.lookup.choice import choice_of
from quire.engine.queues.queue import Queue
from quire.engine.queues.subscription import Subscription
from quire.engine.reading.position_search import places_of
from quire.engine.transactions.context import Context
from quire.engine.transactions.transaction import EmbeddedTransaction
from quire.errors import QueueFull
from quire.interface.redriving import Chosen, Redriven, target_of
from quire.libraries import pa
from quire.limits import REDRIVEN_AT_ONCE
from quire.messages.message import GROUP_KEY, SETTABLE, Message
from quire.messages.message_types import KEPT_ATTRIBUTES
from quire.messages.streamed_message import StreamedMessage
from quire.messages.typed_message import content_of, row_of_payload

from .own_transaction import own_transaction, take_chosen

_KEPT: Final = KEPT_ATTRIBUTES | {GROUP_KEY}


class LetterStep(NamedTuple):
    """A step over the first messages at [start, end): so many letters at most, in one commit.

    `chosen`: which of them; None: all. `to` and `where`: as for `Admin.redrive`. `is_moved`: they
    keep all that they have.
    """

    source: str
    start: int
    end: int
    limit: int
    chosen: Chosen | None
    to: str | None
    where: object = None
    is_moved: bool = False


def put_back(context: Context, step: LetterStep) -> Redriven:
    """Put the letters of a step back."""
    source, start, end, limit, chosen, to, where, _ = step
    queue, subscription = context.state.source(source)
    if to is not None:
        context.state.queue(to)  # also where there is nothing to put back
    with queue.lock:
        queue.check_there(subscription)
    context.delivery.look(queue, subscription)
    parts = context.chooser.finder.browse(
        queue, subscription, choice_of(queue, where), start, REDRIVEN_AT_ONCE, end
    )
    seen = list(Messages(queue.name, parts, queue.schema))
    letters = [message for message in seen if target_of(message, to) is not None]
    if chosen is not None:
        ids = set(chosen.ids)
        letters = [message for message in letters if message.id in ids]
    count, moved = _what_fits(
        letters[:limit], lambda some: _move(context, queue, subscription, some, step)
    )
    if not seen and chosen is None:
        return Redriven(moved, end)
    if count < len(letters):
        last = letters[count - 1].id
    else:
        last = seen[-1].id if chosen is None else chosen.last
    [(position, is_there)] = places_of(context.delivery, queue, [last])
    return Redriven(moved, max(position + is_there, start + 1))


def _what_fits(letters: list[Message], move: Callable[[list[Message]], int]) -> tuple[int, int]:
    """Move as many of the first as there is room for (RDP3); return how many, and how many moved.

    Raises QueueFull where that is none.
    """
    count = len(letters)
    while count:
        try:
            return count, move(letters[:count])
        except QueueFull:
            if count == 1:
                raise
            count //= 2
    return 0, 0


def _move(
    context: Context,
    queue: Queue,
    subscription: Subscription,
    letters: list[Message],
    step: LetterStep,
) -> int:
    places = places_of(context.delivery, queue, [letter.id for letter in letters])
    there = {
        position: letter
        for letter, (position, is_there) in zip(letters, places, strict=True)
        if is_there
    }
    with own_transaction(context, "redrive") as txn:
        taken = txn.getting(take_chosen, queue, subscription, list(there))
        for position in taken:
            letter = there[position]
            attributes = _first(letter)
            if step.is_moved:
                failed = subscription.deliveries(position) - 1
                attributes = attributes_moved(letter, subscription.name, failed)
            _put(txn, str(target_of(letter, step.to)), letter, attributes)
        txn.commit()
    return len(taken)


def _first(letter: Message) -> dict[str, str]:
    """The attributes with which it was put first: without those that tell of its death."""
    return {
        name: value
        for name, value in letter.attributes.items()
        if name in _KEPT or not name.startswith(OWN_PREFIX)
    }


def _put(
    txn: EmbeddedTransaction, target: str, letter: Message, attributes: dict[str, str]
) -> None:
    fields = {name: getattr(letter, name) for name in SETTABLE}
    fields["attributes"] = attributes
    if isinstance(letter, StreamedMessage):
        put_again(txn, target, letter, fields)
        return
    content: Any = content_of(letter)
    schema_ddl = txn.schema_of(target)
    if schema_ddl is not None and isinstance(content, bytes):
        content = row_of_payload(content)
        fields["content_type"] = None
    if schema_ddl is not None:
        content = _without_more(content, schema_ddl)
    txn.put_moved(target, content, fields)


def _without_more(row: pa.RecordBatch, schema_ddl: str) -> pa.RecordBatch:
    """Without columns that the queue of dead letters has more, and that say nothing."""
    own = schema_of_words(schema_ddl).names
    kept = [name for name in row.schema.names if name in own or not row.column(name).null_count]
    return row.select(kept)
