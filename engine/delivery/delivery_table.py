"""The delivery states of a message for one subscription, the events, and the one table of both.

What is known of messages in another order than that of commits changes by this table alone (see
`whereabouts`); `docs/delivery.md` is drawn from it, and random histories hold every queue to it.

- Each position is in exactly one of the states at any time, and goes from one to another only as
  `RULES` say. Where all that is known is made anew (other rules, a subscription that is moved, a
  store that is opened) they say what it may be then.
- Only what is AVAILABLE is taken to be delivered; or SCHEDULED, by who asks for that message.
- What is READ is never anything else again, unless its subscription is moved.
- TR4: a change that the table does not know is refused, and nothing is changed (`Way`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final, NamedTuple

REFUSED: Final = 255


class DeliveryState(Enum):
    """The state of a position. Its number is the byte that stands for it."""

    UNSEEN = "nothing is known of its message's headers"
    WAITING = "it waits for those that its sender has numbered before it"
    SCHEDULED = "it is not due yet"
    AVAILABLE = "it may be taken, as soon as its group lets it"
    IN_FLIGHT = "a transaction has it"
    LATE = "a transaction has it, and it has expired"
    REJECTED = "it has failed, and comes again later"
    SPENT = "it was delivered as often as it may be"
    EXPIRED = "its time is over, and nobody gets it any more"
    UNWANTED = "the selector of its subscription does not match"
    READ = "a commit has read it, or passed it"

    @property
    def number(self) -> int:
        return _NUMBERS[self]


class Event(Enum):
    """An event in the delivery of a message."""

    LOOK = "its headers are looked at"
    DUE = "its time has come, or its turn in a sequence, or it has waited long enough"
    TAKE = "a transaction takes it"
    PICK = "a transaction takes it by its position or its id"
    GIVE_BACK = "its transaction gives it back, and not for later"
    DELAY = "its transaction gives it back for later"
    COME = "its delay is over"
    EXPIRE = "its time is over"
    READ = "a commit reads it, or passes it"
    GO = "the maintenance moves it to the queue of dead letters, drops it, or passes it by"
    ALTER = "the queue has other rules"
    MOVE = "the subscription is moved"
    OPEN = "the store is opened again"


_NUMBERS: Final = {state: number for number, state in enumerate(DeliveryState)}


class Rule(NamedTuple):
    """A row of the table: the states before the event, the states after it, and what that needs."""

    event: Event
    before: tuple[DeliveryState, ...]
    after: tuple[DeliveryState, ...]
    needs: str = ""


_UNTOUCHED: Final = (
    DeliveryState.UNSEEN,
    DeliveryState.WAITING,
    DeliveryState.SCHEDULED,
    DeliveryState.AVAILABLE,
)
_HELD: Final = (DeliveryState.IN_FLIGHT, DeliveryState.LATE)
_ANEW: Final = (DeliveryState.UNSEEN, DeliveryState.AVAILABLE)
_UNREAD: Final = (*_UNTOUCHED, DeliveryState.UNWANTED)
_PASSED_BY: Final = (DeliveryState.EXPIRED, DeliveryState.UNWANTED)
_OVER: Final = (DeliveryState.SPENT, DeliveryState.EXPIRED)
RULES: Final = (
    Rule(Event.LOOK, (DeliveryState.UNSEEN,), (DeliveryState.AVAILABLE,)),
    Rule(Event.LOOK, (DeliveryState.UNSEEN,), (DeliveryState.SCHEDULED,), "its time is to come"),
    Rule(Event.LOOK, (DeliveryState.UNSEEN,), (DeliveryState.WAITING,), "an order by sequences"),
    Rule(Event.LOOK, (DeliveryState.UNSEEN,), (DeliveryState.EXPIRED,), "its time is over"),
    Rule(
        Event.LOOK,
        (DeliveryState.UNSEEN,),
        (DeliveryState.UNWANTED,),
        "its selector does not hold",
    ),
    Rule(Event.DUE, (DeliveryState.SCHEDULED,), (DeliveryState.AVAILABLE,)),
    Rule(Event.DUE, (DeliveryState.SCHEDULED,), (DeliveryState.WAITING,), "an order by sequences"),
    Rule(Event.DUE, (DeliveryState.WAITING,), (DeliveryState.AVAILABLE,)),
    Rule(
        Event.TAKE,
        (DeliveryState.AVAILABLE,),
        (DeliveryState.IN_FLIGHT,),
        "its group is the taker's, or free, and limits let it start",
    ),
    Rule(Event.TAKE, (DeliveryState.AVAILABLE,), (DeliveryState.SPENT,), "it has no delivery left"),
    Rule(
        Event.TAKE,
        (DeliveryState.SCHEDULED,),
        (DeliveryState.IN_FLIGHT,),
        "that very message is asked for",
    ),
    Rule(
        Event.PICK,
        _UNREAD,
        (DeliveryState.IN_FLIGHT,),
        "nobody has it",
    ),
    Rule(Event.GIVE_BACK, (DeliveryState.IN_FLIGHT,), (DeliveryState.AVAILABLE,)),
    Rule(
        Event.GIVE_BACK,
        (DeliveryState.IN_FLIGHT,),
        (DeliveryState.UNSEEN,),
        "nothing was known of it",
    ),
    Rule(Event.GIVE_BACK, (DeliveryState.LATE,), (DeliveryState.EXPIRED,)),
    Rule(Event.GIVE_BACK, _HELD, (DeliveryState.SPENT,), "it has no delivery left"),
    Rule(Event.DELAY, _HELD, (DeliveryState.REJECTED,), "`retry`, or `reject` with a delay"),
    Rule(Event.COME, (DeliveryState.REJECTED,), (DeliveryState.AVAILABLE,)),
    Rule(Event.COME, (DeliveryState.REJECTED,), (DeliveryState.UNSEEN,), "nothing was known of it"),
    Rule(Event.COME, (DeliveryState.REJECTED,), (DeliveryState.SPENT,), "it has no delivery left"),
    Rule(Event.EXPIRE, (*_UNTOUCHED[1:], DeliveryState.REJECTED), (DeliveryState.EXPIRED,)),
    Rule(Event.EXPIRE, (DeliveryState.IN_FLIGHT,), (DeliveryState.LATE,)),
    Rule(Event.READ, tuple(DeliveryState), (DeliveryState.READ,)),
    Rule(Event.GO, (DeliveryState.SPENT,), _HELD, "until the commit that moves it"),
    Rule(Event.GO, (DeliveryState.EXPIRED,), (DeliveryState.LATE,), "until it is moved or dropped"),
    Rule(Event.GO, (DeliveryState.EXPIRED,), (DeliveryState.SPENT,), "refused, with none left"),
    Rule(Event.GO, (*_OVER, DeliveryState.UNWANTED), (DeliveryState.READ,)),
    Rule(Event.ALTER, (*_UNTOUCHED, *_PASSED_BY), _ANEW, "they say what is next"),
    Rule(Event.ALTER, _HELD[1:], (DeliveryState.IN_FLIGHT,), "the same"),
    Rule(Event.ALTER, (DeliveryState.SPENT,), _ANEW, "it has deliveries left"),
    Rule(Event.MOVE, tuple(DeliveryState), (*_ANEW, DeliveryState.READ)),
    Rule(
        Event.OPEN,
        (*_UNREAD, *_HELD, *_OVER, DeliveryState.REJECTED),
        _ANEW,
    ),
    Rule(Event.OPEN, _HELD, (DeliveryState.IN_FLIGHT,), "a prepared transaction has it"),
    Rule(
        Event.OPEN,
        (DeliveryState.REJECTED,),
        (DeliveryState.REJECTED,),
        "the record of its failure says so",
    ),
    Rule(
        Event.OPEN,
        (*_UNREAD, *_HELD, *_OVER, DeliveryState.REJECTED),
        (DeliveryState.SPENT,),
        "records say that it has no delivery left",
    ),
)


class Transition(NamedTuple):
    """A change by the table: for each byte that a position may have, what it is then."""

    event: Event
    after: int
    to: bytes  # a table as of `bytes.translate`; `REFUSED`: not from there (TR4)


def transitions(rules: Iterable[Rule]) -> dict[Event, dict[int, Transition]]:
    """By event, and by the number of the state that follows."""
    known = [(rule.event, rule.before, after) for rule in rules for after in rule.after]
    made: dict[Event, dict[int, Transition]] = {}
    for event in Event:
        made[event] = {}
        for after in DeliveryState:
            to = bytearray([REFUSED]) * 256
            for number in (
                b.number for e, before, a in known if (e, a) == (event, after) for b in before
            ):
                to[number] = after.number
            made[event][after.number] = Transition(event, after.number, bytes(to))
    return made


TRANSITIONS: Final = transitions(RULES)


_MANY: Final = (Event.PICK, Event.READ, Event.ALTER, Event.MOVE, Event.OPEN)


def lines() -> Iterator[str]:
    """For the documents: the states, what happens to what is in one, and in any of many."""
    yield "| state | |\n|---|---|"
    for state in DeliveryState:
        yield f"| `{state.name}` | {state.value} |"
    yield "\n## From one state to another\n"
    yield "| state | what happens | what it is then | if |\n|---|---|---|---|"
    for state in DeliveryState:
        name = f"`{state.name}`"
        for rule in _in_turn():
            if state in rule.before and rule.event not in _MANY:
                yield f"| {name} | {rule.event.value} | {_names(rule.after)} | {rule.needs} |"
                name = ""
    yield "\n## From many states\n"
    yield "| what happens | states | what it is then | if |\n|---|---|---|---|"
    for rule in _in_turn():
        if rule.event in _MANY:
            others = [state for state in DeliveryState if state not in rule.before]
            states = _names(rule.before)
            if len(others) < 3:
                states = f"all but {_names(others)}" if others else "all"
            yield f"| {rule.event.value} | {states} | {_names(rule.after)} | {rule.needs} |"


def _in_turn() -> list[Rule]:
    return [rule for event in Event for rule in RULES if rule.event is event]


def _names(states: Iterable[DeliveryState]) -> str:
    return ", ".join(f"`{each.name}`" for each in states)
