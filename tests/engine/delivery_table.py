"""What may become of a message for one subscription: states, events, and the one table of both.

The engine keeps these states in sets and heaps of positions, each with its rules in
`engine/queues`. `test_delivery_model` holds it to this table after each step of random histories,
and `docs/delivery.md` shows it.

- TR1: each position is in exactly one of the states of `State` at any time, and goes from one to
  another only as `TABLE` says.
- TR2: only what is AVAILABLE is taken to be delivered; or SCHEDULED, by who asks for that message.
- TR3: what is READ is never anything else again, unless its subscription is moved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache
from typing import Final


class State(Enum):
    """Where a position is."""

    UNSEEN = "nothing is known of its message's headers"
    WAITING = "it waits for those that its sender has numbered before it"
    SCHEDULED = "it is not due yet"
    AVAILABLE = "it may be taken, as soon as its group lets it"
    IN_FLIGHT = "a transaction has it"
    AHEAD = "a transaction has it that took it before it was due"
    LATE = "a transaction has it, and it has expired"
    REJECTED = "it has failed, and comes again later"
    SPENT = "it was delivered as often as it may be"
    EXPIRED = "its time is over, and nobody gets it any more"
    READ = "a commit has read it, or passed it"


class Event(Enum):
    """What happens to it."""

    LOOK = "its headers are looked at"
    DUE = "its time has come, or its turn in a sequence, or it has waited long enough"
    TAKE = "a transaction takes it"
    GIVE_BACK = "who has it gives it back, and it comes again at once, if ever"
    DELAY = "who has it gives it back, and it comes later"
    COME = "what was delayed comes again"
    EXPIRE = "its time is over"
    READ = "a commit reads it, or passes it"
    GO = "the maintenance moves it to the queue of dead letters, or drops it"
    ALTER = "the queue has other rules"
    MOVE = "the subscription is moved"
    OPEN = "the store is opened again"


_UNTOUCHED: Final = (State.UNSEEN, State.WAITING, State.SCHEDULED, State.AVAILABLE)
_HELD: Final = (State.IN_FLIGHT, State.AHEAD, State.LATE)
_ANEW: Final = (State.UNSEEN, State.AVAILABLE)
_ROWS: Final[Mapping[Event, Mapping[State, tuple[State, ...]]]] = {
    Event.LOOK: {
        State.UNSEEN: (State.AVAILABLE, State.SCHEDULED, State.WAITING, State.EXPIRED),
    },
    Event.DUE: {
        State.SCHEDULED: (State.AVAILABLE, State.WAITING),
        State.WAITING: (State.AVAILABLE,),
    },
    Event.TAKE: {
        State.AVAILABLE: (State.IN_FLIGHT, State.SPENT),
        State.SCHEDULED: (State.AHEAD,),
    },
    Event.GIVE_BACK: {
        State.IN_FLIGHT: (State.AVAILABLE, State.UNSEEN, State.SPENT),
        State.AHEAD: (State.SCHEDULED, State.AVAILABLE, State.WAITING, State.SPENT),
        State.LATE: (State.EXPIRED, State.SPENT),
    },
    Event.DELAY: {
        State.IN_FLIGHT: (State.REJECTED,),
        State.AHEAD: (State.REJECTED,),
    },
    Event.COME: {
        State.REJECTED: (*_UNTOUCHED, State.SPENT),
    },
    Event.EXPIRE: {
        **dict.fromkeys(_UNTOUCHED[1:], (State.EXPIRED,)),
        State.IN_FLIGHT: (State.LATE,),
        State.AHEAD: (State.LATE,),
        State.REJECTED: (State.EXPIRED, State.SPENT),
    },
    Event.READ: dict.fromkeys(State, (State.READ,)),
    Event.GO: dict.fromkeys((State.SPENT, State.EXPIRED), (State.READ,)),
    Event.ALTER: {
        **dict.fromkeys((*_UNTOUCHED, State.EXPIRED), _ANEW),
        State.AHEAD: (State.IN_FLIGHT,),
        State.LATE: (State.IN_FLIGHT,),
        State.SPENT: (*_ANEW, State.SCHEDULED, State.WAITING, State.EXPIRED),
    },
    Event.MOVE: dict.fromkeys(State, (*_ANEW, State.READ)),
    Event.OPEN: {
        **dict.fromkeys((*_UNTOUCHED, State.SPENT, State.EXPIRED), _ANEW),
        **dict.fromkeys(_HELD, (*_ANEW, State.IN_FLIGHT)),  # a prepared transaction has it
        State.REJECTED: (*_ANEW, State.REJECTED),
    },
}
TABLE: Final[Mapping[tuple[State, Event], tuple[State, ...]]] = {
    (state, event): _ROWS[event][state]
    for state in State
    for event in Event
    if state in _ROWS[event]
}


@cache
def reached(state: State, events: frozenset[Event]) -> set[State]:
    """Where a position may be, after any of the events, in any order and number."""
    found = {state}
    ahead = [state]
    while ahead:
        now = ahead.pop()
        for event in events:
            new = set(TABLE.get((now, event), ())) - found
            found |= new
            ahead += new
    return found


def lines() -> Iterator[str]:
    """The table for the documents: a row for each state and what happens to it."""
    yield "| state | | what happens | what it is then |"
    yield "|---|---|---|---|"
    for state in State:
        told = [f"`{state.name}`", state.value]
        for event in Event:
            after = ", ".join(f"`{each.name}`" for each in TABLE.get((state, event), ()))
            if after:
                yield f"| {' | '.join(told)} | {event.value} | {after} |"
                told = ["", ""]
