"""Explanations of messages that are not delivered: a reason as a value, and in words.

- WD1: each reason has its words here, which say what to do, made of the fields of the explanation
  alone. So whoever may not see some of the fields gets words without them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct


class UndeliveredReason(StrEnum):
    """A reason why a message, or the next one of a queue or subscription, is not delivered."""

    READY = "ready"
    """Nothing stands against it: whoever gets has it next."""
    BEHIND = "behind"
    """It may be delivered, and others come before it (`behind`: the next one)."""
    SCHEDULED = "scheduled"
    """It is not due yet (`until_us`)."""
    RETRY = "retry"
    """It has failed, and comes again later (`until_us`)."""
    SEQUENCE = "sequence"
    """It waits for what its sender has numbered before it (`number`), up to `until_us`."""
    GROUP_IN_FLIGHT = "group in flight"
    """A message of its ordered group is in flight in a transaction."""
    GROUP_RETRY = "group waits for a retry"
    """A message of its ordered group (`behind`) has failed and comes again first (`until_us`)."""
    GROUP_MAX_IN_FLIGHT = "group has as many in flight as it may"
    """Its group has `limit` messages in flight."""
    GROUP_RATE = "group has started as many as it may"
    """Its group starts `limit` messages a second; the next one at `until_us`."""
    IN_FLIGHT = "in flight"
    """A transaction has got it, and has not ended."""
    HELD = "held"
    """A transaction keeps it from others (`hold=True`)."""
    PREPARED = "prepared"
    """A prepared transaction has got it, and nobody has decided that."""
    SPENT = "delivered too often"
    """It was delivered as often as it may be; it leaves for the dead-letter queue (`queue`)."""
    EXPIRED = "expired"
    """Its time is over; the store drops it, or moves it to the dead-letter queue (`queue`)."""
    UNWANTED = "unwanted"
    """The selector of the subscription (`where`) does not hold for it."""
    LEAVING = "leaving"
    """The store itself is moving or removing it."""
    READ = "read"
    """The subscription has read it, or has passed it by."""
    DEAD_LETTER = "dead letter"
    """It is in the dead-letter queue (`queue`) of this one."""
    NOT_THERE = "not there"
    """The queue keeps no message with this id."""
    NOT_LOOKED_AT = "not looked at"
    """It is one of `number` messages whose headers nobody has looked at since the store was opened;
    the next get does."""
    EMPTY = "empty"
    """Nothing is there to be delivered."""
    UNCOMMITTED = "uncommitted"
    """Nothing is there, but an open transaction has put something."""
    UNDECIDED = "undecided"
    """Nothing is there, but a prepared transaction has put something."""
    EXCLUSIVE = "exclusive"
    """The subscription has one reader at a time, and another transaction is that."""
    SEEKING = "seeking"
    """A transaction moves the subscription, and has not ended."""
    MAX_IN_FLIGHT = "as many in flight as may be"
    """`limit` messages of the queue are in flight."""
    RATE = "as many started as may be"
    """The queue starts `limit` messages a second; the next one at `until_us`."""
    QUEUE_STOPPED = "queue stopped"
    """Gets of the queue are stopped."""
    STORE_STOPPED = "store stopped"
    """Gets of the whole store are stopped."""
    QUEUE_UNUSABLE = "queue unusable"
    """Code of the queue is missing, or has failed (`detail`)."""
    STORE_FAILED = "store failed"
    """The store has failed, and commits nothing any more."""
    SHUTTING_DOWN = "shutting down"
    """The store is being shut down: no transaction is begun any more."""
    PUTS_STOPPED = "puts stopped"
    """Nothing can be put either: puts of the queue, or of the store, are stopped."""


class Explanation(Struct, frozen=True):
    """The reason why a message, or the next one, is not delivered. Times in microseconds.

    `str` of it is `text`. What is not known, or has nothing to do with the reason, is None.
    """

    source: str  # of which it was asked: "queue", or "queue/subscription"
    reason: UndeliveredReason
    id: int | None = None  # of the message
    position: int | None = None  # of the message in its queue
    state: str | None = None  # as the table of delivery names it: docs/delivery.md
    until_us: int | None = None  # when that ends by itself
    since_us: int | None = None  # since when
    transaction: int | None = None  # the open transaction that it waits for
    owner: str | None = None  # who began that
    xid: str | None = None  # the prepared transaction that it waits for
    behind: int | None = None  # the id of the message that it waits for
    number: int | None = None  # that is missing of its sender; or how many were not looked at
    limit: float | None = None  # that is reached
    queue: str | None = None  # the queue of dead letters
    where: str | None = None  # the selector of the subscription
    detail: str = ""  # what stands in the way, in the words of an error
    also: tuple[UndeliveredReason, ...] = ()  # what would stand against it besides

    @property
    def text(self) -> str:
        """Return the reason in words, and what to do."""
        first = _WORDS[self.reason](self)
        others = (f" Besides: {_WORDS[each](self)}" for each in self.also)
        return f"{_subject(self)} {first}{''.join(others)}"

    def __str__(self) -> str:
        return self.text


_OF_THE_SOURCE: Final = (
    UndeliveredReason.EMPTY,
    UndeliveredReason.UNCOMMITTED,
    UndeliveredReason.UNDECIDED,
)


def _subject(it: Explanation) -> str:
    if it.reason in _OF_THE_SOURCE:
        return f"{it.source}:"
    return f"{it.source}:" if it.id is None else f"{it.source}, message {it.id}:"


def moment_words(time_us: int | None) -> str:
    """Return a moment in UTC, to the second, as explanations name it."""
    if time_us is None:
        return "some time"
    return f"{datetime.fromtimestamp(time_us // 1_000_000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _holder(it: Explanation) -> str:
    """Return the words for the transaction that has something."""
    if it.xid is not None:
        return f"the prepared transaction {it.xid!r} (since {moment_words(it.since_us)})"
    if it.transaction is None:
        return "a transaction"
    since = moment_words(it.since_us)
    return f"transaction {it.transaction} of {it.owner} (since {since})"


def _end_it(it: Explanation) -> str:
    """Return the words for what to do about a transaction."""
    if it.xid is not None:
        return (
            f"Decide it: store.prepared.commit({it.xid!r}) or store.prepared.rollback({it.xid!r})."
        )
    if it.transaction is None:
        return (
            "Wait until that ends; store.admin.transactions() lists those that are open, "
            "store.prepared.list() those that are prepared."
        )
    return f"Wait until that ends, or end it: store.admin.abort({it.transaction})."


def _dead_letters(it: Explanation, otherwise: str) -> str:
    """Return the words for where it goes, and what stands in the way."""
    if it.queue is None:
        return otherwise
    why = f" What stands in the way now: {it.detail}." if it.detail else ""
    return (
        f"it goes to the dead-letter queue {it.queue!r} as soon as that takes it.{why} "
        f"See that {it.queue!r} has room and is not stopped for puts."
    )


def _group_of(it: Explanation) -> str:
    return "this message, another of its ordered group" if it.behind is None else (
        f"message {it.behind}, of the same ordered group,"
    )  # fmt: skip


def _waits_for_group(it: Explanation) -> str:
    return (
        f"its ordered group is in flight in {_holder(it)}, and nobody else gets a message of it "
        f"until then. {_end_it(it)}"
    )


def _queue(it: Explanation) -> str:
    return it.source.partition("/")[0]


def _count(number: float | None) -> str:
    return "so many" if number is None else f"{number:,.15g}"


def _rate_words(it: Explanation) -> str:
    return "" if it.limit is None else f" of {it.limit:g} a second"


_InWords = Callable[[Explanation], str]
_REASON: Final = UndeliveredReason
_WORDS: Final[Mapping[UndeliveredReason, _InWords]] = {
    _REASON.READY: lambda it: (
        "nothing stands against it: whoever gets from here next has it. If nobody gets it, see "
        "that a program reads this source."
    ),
    _REASON.BEHIND: lambda it: (
        f"it may be delivered, and others come before it in the queue's order: message {it.behind} "
        "is next. Wait, have more readers, or get it by its id."
    ),
    _REASON.SCHEDULED: lambda it: (
        f"it is not due before {moment_words(it.until_us)}. Wait, or give it another time with "
        f"store.delayed.reschedule, or take it away: store.delayed.cancel({it.source!r}, {it.id})."
    ),
    _REASON.RETRY: lambda it: (
        f"it has failed, and comes again at {moment_words(it.until_us)}. Wait; a queue's `retry`, "
        "or the delay of the rejection, says how long."
    ),
    _REASON.SEQUENCE: lambda it: (
        (
            "it waits for what its sender has put before it"
            if it.number is None
            else f"it waits for number {it.number} of its sender, which has not come"
        )
        + f", until {moment_words(it.until_us)} at the latest. Put what is missing, or wait; the "
        "queue's order says how long (`wait`)."
    ),
    _REASON.GROUP_IN_FLIGHT: _waits_for_group,
    _REASON.GROUP_RETRY: lambda it: (
        f"{_group_of(it)} has failed and comes again first, at {moment_words(it.until_us)}. Wait, "
        "or take that one away."
    ),
    _REASON.GROUP_MAX_IN_FLIGHT: lambda it: (
        f"its group has {_count(it.limit)} in flight, as many as it may (group_max_in_flight). "
        "Wait until one of them ends, or raise the limit with alter_queue."
    ),
    _REASON.GROUP_RATE: lambda it: (
        f"its group has started as many as its rate{_rate_words(it)} lets it (group_rate); the "
        f"next one may start at {moment_words(it.until_us)}. Wait, or raise the limit with "
        "alter_queue."
    ),
    _REASON.IN_FLIGHT: lambda it: f"it is in flight in {_holder(it)}. {_end_it(it)}",
    _REASON.HELD: lambda it: f"it is held (hold=True) by {_holder(it)}. {_end_it(it)}",
    _REASON.PREPARED: lambda it: (
        f"it is in flight in {_holder(it)}, which nobody has decided. {_end_it(it)}"
    ),
    _REASON.SPENT: lambda it: (
        "it was delivered as often as the queue lets it (max_deliveries); "
        + _dead_letters(
            it, "it stays hidden, as the queue has no dead_letter. Give it one with alter_queue."
        )
    ),
    _REASON.EXPIRED: lambda it: (
        f"its time was over at {moment_words(it.since_us)}, and nobody gets it any more; "
        + _dead_letters(
            it,
            "the store drops it by itself. To have such messages kept, alter_queue with "
            "keep_expired=True and a dead_letter.",
        )
    ),
    _REASON.UNWANTED: lambda it: (
        f"the subscription asks for messages where {it.where}, and that does not hold for it. "
        "Get it by another subscription, or make one with another selector."
    ),
    _REASON.LEAVING: lambda it: (
        "the store itself is moving or removing it, by a transaction of its own. Look again in a "
        "moment."
    ),
    _REASON.READ: lambda it: (
        "this subscription has read it, or begins behind it. To get it again as long as the queue "
        "keeps it, move the subscription there with seek."
    ),
    _REASON.DEAD_LETTER: lambda it: (
        f"it is not here, but in the dead-letter queue {it.queue!r} of this queue. Look at its "
        "attributes there, which say why, and put it back with store.admin.redrive."
    ),
    _REASON.NOT_THERE: lambda it: (
        "the queue keeps no message with this id: it was got, removed or has expired, it is of "
        "another queue, or was never committed."
        + (
            ""
            if it.queue is None
            else f" If it has failed too often it is in {it.queue!r} now, under another id."
        )
    ),
    _REASON.NOT_LOOKED_AT: lambda it: (
        f"nothing is known to stand against it, but {_count(it.number)} messages were not looked "
        "at since the store was opened, too many for a look as this. The next get looks at all of "
        "them: get once, and ask again."
    ),
    _REASON.EMPTY: lambda it: "nothing is there that could be delivered. Put something.",
    _REASON.UNCOMMITTED: lambda it: (
        f"nothing is there, but {_holder(it)} has put something and has not committed. Have it "
        "commit."
    ),
    _REASON.UNDECIDED: lambda it: (
        f"nothing is there, but {_holder(it)} has put something. {_end_it(it)}"
    ),
    _REASON.EXCLUSIVE: lambda it: (
        f"the subscription is exclusive, and {_holder(it)} has messages of it. {_end_it(it)}"
    ),
    _REASON.SEEKING: lambda it: (
        f"{_holder(it)} moves the subscription, of which nobody gets anything until then. "
        f"{_end_it(it)}"
    ),
    _REASON.MAX_IN_FLIGHT: lambda it: (
        f"{_count(it.limit)} messages of it are in flight, as many as may be (max_in_flight). Wait "
        "until one of them ends, or raise the limit with alter_queue."
    ),
    _REASON.RATE: lambda it: (
        f"as many have started as the rate{_rate_words(it)} lets start; the next one may at "
        f"{moment_words(it.until_us)}. Wait, or raise the limit with alter_queue."
    ),
    _REASON.QUEUE_STOPPED: lambda it: (
        f"gets of the queue are stopped. Let them in with alter_queue({_queue(it)!r}, gets=True)."
    ),
    _REASON.STORE_STOPPED: lambda it: (
        "gets of the whole store are stopped. Let them in with store.admin.switch(gets=True)."
    ),
    _REASON.QUEUE_UNUSABLE: lambda it: f"{it.detail}.",
    _REASON.STORE_FAILED: lambda it: (
        "the store has failed, and commits nothing any more. Close it and open it again, which "
        "recovers it."
    ),
    _REASON.SHUTTING_DOWN: lambda it: (
        "the store is being shut down, and no transaction is begun any more. Start it again."
    ),
    _REASON.PUTS_STOPPED: lambda it: (
        f"puts are stopped, too. Let them in with alter_queue({_queue(it)!r}, puts=True), or for "
        "the whole store with store.admin.switch(puts=True)."
    ),
}
