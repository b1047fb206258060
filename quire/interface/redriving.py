"""Putting dead letters back, and moving all that is there: see `Admin.redrive`, `Admin.move`.

- The owner moves so many with a commit; here is said which, as `where` is a function of this
  process. So a letter is in one of the two queues, whenever one of the processes ends.
- It goes through the queue once, up to where that ended when the call began: what comes meanwhile
  stays, also what was put back and has died again.
- Of messages no more than `REDRIVEN_AT_ONCE` are in memory at a time.
- A selector or a template is asked in the owner, which looks on until it has found so many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias

from msgspec import Struct

from quire.arguments import (
    check_max_messages,
    check_message_id,
    check_name,
    check_source,
    split_source,
)
from quire.batches.delivered_messages import Messages
from quire.batches.moved_messages import QUEUE
from quire.callbacks import check_done, check_function
from quire.calls.call_table import change
from quire.errors import InvalidArgument, QuireError
from quire.limits import MAX_MESSAGE_ID, REDRIVEN_AT_ONCE
from quire.messages.message import Message
from quire.messages.message_id import MessageId
from quire.selectors.template import Template

from .integration import Integration
from .lookup import Where

LetterChoice: TypeAlias = Callable[[Message], bool] | Where
"""A choice of dead letters: a function of a message, or a condition of a get (`where`)."""
_GIVE: Final = "give a selector, a quire.Template, a message's id, or a function of a message"


class Chosen(Struct, frozen=True):
    """Some of the messages that were looked at."""

    ids: list[int]
    last: int  # of all of them, the last one's


class Redriven(Struct, frozen=True):
    """The result of a step: how many were put back, and where the next one begins."""

    moved: int
    position: int


class Redrives(Protocol):
    """A store, as far as it is needed here."""

    @property
    def integration(self) -> Integration:
        """The calls that return positions."""

    def browse(
        self, source: str, max_messages: int = 1000, *, start: int | None = None
    ) -> Messages:
        """Messages, which are not taken."""

    @change(needs="get source:source, put letters:to")
    def put_back(
        self,
        source: str,
        start: int,
        end: int,
        most: int,
        chosen: Chosen | None,
        to: str | None,
        where: Where | None = None,
        is_moved: bool = False,
    ) -> Redriven:
        """A step: at most so many of the first at [start, end), in one commit.

        `is_moved`: they keep all that they have, and are told where they come from.
        """


def check_chosen(chosen: object) -> Chosen | None:
    """Check the chosen messages of a step; also as the map that a client sends."""
    if isinstance(chosen, Mapping) and chosen.keys() == {"ids", "last"}:
        chosen = Chosen(chosen["ids"], chosen["last"])
    if chosen is None:
        return None
    if not isinstance(chosen, Chosen) or not isinstance(chosen.ids, list):
        raise InvalidArgument(f"chosen {chosen!r:.100}: give ids, and the last one")
    return Chosen([check_message_id(each) for each in chosen.ids], check_message_id(chosen.last))


def redrive(
    store: Redrives,
    queue: str,
    where: LetterChoice | None,
    max_messages: int | None,
    to: str | None,
    *,
    is_moved: bool = False,
) -> int:
    """All that match, or so many; how many were put back."""
    selector: Where | None = None
    chooses: Callable[[Message], bool] | None = None
    if isinstance(where, str | Template | int | MessageId):
        selector = where
    elif where is not None:
        chooses = check_function("where", where, _GIVE)
    left = None if max_messages is None else check_max_messages(max_messages)
    source, to = check_source(queue), None if to is None else check_name(to, "queue")
    count = 0
    try:
        position, end = store.integration.positions(split_source(source)[0])
        while True:
            most = REDRIVEN_AT_ONCE if left is None else min(left - count, REDRIVEN_AT_ONCE)
            chosen = None if chooses is None else _chosen(store, source, position, chooses, to)
            step = store.put_back(source, position, end, most, chosen, to, selector, is_moved)
            count += step.moved
            position = step.position
            if position >= end or count == left:
                return count
    except BaseException as error:
        _tell(error, count, "moved" if is_moved else "put back")
        raise


def target_of(message: Message, to: str | None) -> str | None:
    """The queue that it goes to; None: it is no dead letter, and stays."""
    return message.attributes.get(QUEUE) if to is None else to


def _chosen(
    store: Redrives,
    source: str,
    position: int,
    where: Callable[[Message], bool],
    to: str | None,
) -> Chosen:
    seen = store.browse(source, REDRIVEN_AT_ONCE, start=position)
    ids = [
        message.id
        for message in seen
        if target_of(message, to) is not None and _satisfies(where, message)
    ]
    return Chosen(ids, seen[-1].id if seen else MAX_MESSAGE_ID)


def _satisfies(where: Callable[[Message], bool], message: Message) -> bool:
    result: Any = where(message)
    check_done("where", where, result)
    return bool(result)


def _tell(error: BaseException, count: int, what: str) -> None:
    """How many were put back, or moved, before."""
    if not count:
        return
    note = f"{count} messages were {what} before, and stay so"
    if isinstance(error, QuireError) and len(error.args) == 1:
        error.args = (f"{error}; {note}",)
    else:
        error.add_note(note)
