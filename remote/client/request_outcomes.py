"""The outcome of a request that is not answered: the one table, which every client goes by.

A request of some kind (`Request`) has come so far (`RequestProgress`) when an event meets it
(`OwnerEvent`): its owner ends, refuses it or does not answer, or the client itself ends. `ROWS`
have the action of the client (`RequestAction`) for each of these cells, and `IMPOSSIBLE` the reason
where there is none. `tests/remote/test_request_outcomes.py` holds real owners and clients to each
cell, and `docs/request-outcomes.md` is drawn from them.

- Nothing is repeated that could take effect twice: a change that was sent, and may have been
  read, is repeated only where twice is as once, or where it is certain that it was not done.
- OU1: ConnectionLost is raised only where nothing of the call took effect, and nothing will. A call
  that was repeated has come as far as the furthest of its requests.
- OU2: nothing follows from what is not there yet as long as the owner is the one that the request
  was sent to, which its epoch tells: the request may be under way there.
- OU3: an owner that refuses a request is closing, and is asked for nothing else. So it is soon done
  with its clients.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Final

from quire.errors import ConnectionLost, OutcomeUnknown, QuireError, StoreClosed, StoreFailed

if TYPE_CHECKING:
    from quire.calls.call_table import Facts

# The errors of a request that has no answer, or was refused.
UNANSWERED: Final = (ConnectionLost, StoreClosed, OutcomeUnknown)


class Request(Enum):
    """A kind of request, or of a call that makes several."""

    LOOK = "a call that changes nothing: `queues`, `browse`, `status`, ..."
    LOOK_AT_OWNER = "a look at what one owner alone knows: `admin.transaction`"
    REPEATABLE = "a change that is the same twice as once: `alter_queue`, `subscribe`, ..."
    PUT_WITH_ID = "`put` and `put_many` with request ids"
    CREATE_QUEUE = "`create_queue` with `exist_ok=True`"
    CHANGE = "any other change: `put`, `drop_queue`, the commit of a `get` of the store, ..."
    CHANGE_AT_OWNER = "a change of what one owner alone knows: `admin.abort`, `admin.shutdown`"
    GET = "`get` and `get_many` of the store until their commit, also while they wait"
    BEGIN = "`transaction`, which asks nobody"
    STEP = "a step of an open transaction: `put`, `get`, also one that waits, ..."
    COMMIT = "`commit` of a transaction without ledger entries"
    COMMIT_WITH_ENTRIES = "`commit` of a transaction with ledger entries"
    ROLLBACK = "`rollback` of an open transaction"
    PREPARE = "`prepare`"
    DECISION = "`prepared.commit` and `prepared.rollback`: by the xid"
    OWN_DECISION = "`commit` and `rollback` of a prepared transaction: by the object"


class RequestProgress(Enum):
    """How far a request has come, the furthest last."""

    UNSENT = "not sent"
    UNREAD = "not sent whole, or not read whole by the owner, as Unix sockets of Linux tell"
    REFUSED = "refused by an owner that is closing"
    SENT = "sent whole, and maybe read"
    FAILED = "answered: it failed inside the owner, or its disk did, and its outcome is not known"


class OwnerEvent(Enum):
    """An event that meets a request."""

    NEXT_OWNER = "the owner has ended, and another process owns the store"
    OWN = "the owner has ended, and this process owns the store"
    SAME_OWNER = "the owner is there as before; if the connection was lost, there is another one"
    NO_OWNER = "the owner has ended, and nobody takes over in time"
    LAST_OWNER = "the owner has ended, and the store object goes to no other (`quire.connect`)"
    LATE = "the owner is there, and does not answer in time"
    CANCELLED = "nobody waits for the answer any more: a task was cancelled, a time-out is over"
    CLOSED = "the store object is closed"
    FORKED = "the process was forked, and this is the child"
    INTERRUPTED = "a signal's handler raises while the owner, or the next one, is awaited"


class RequestAction(Enum):
    """An action of a client."""

    REPEAT = "the request is made again, of the owner that there is now"
    LOOK_UP = "a look there tells: it was done, or it was not and never will be"
    LOOK_FOR = "a look there tells that it was done; if not it still may be: OutcomeUnknown"
    RETURN = "the call returns, as what it asks for has come about"
    CONNECTION_LOST = "ConnectionLost: nothing took effect"
    OUTCOME_UNKNOWN = "OutcomeUnknown: it may have taken effect"
    NOT_FOUND = "TransactionNotFound: that transaction has ended with its owner"
    STORE_CLOSED = "StoreClosed: nothing took effect"
    ANSWER = "the owner's answer is raised"
    INTERRUPT = "the handler's exception leaves the call; what was not sent took no effect"


RequestKinds = tuple[Request, ...]
Progresses = tuple[RequestProgress, ...]
Cell = tuple[Request, RequestProgress, OwnerEvent]


# The actions for requests of these kinds that have come this far, one for each column; None: see
# `IMPOSSIBLE`. (Plain tuples, as this is loaded by every process that joins.)
Row = tuple[RequestKinds, Progresses, tuple[RequestAction | None, ...]]
# The reason why there are no such cells.
Impossible = tuple[RequestKinds, Progresses, tuple[OwnerEvent, ...], str]

_COLUMNS: Final = (
    (OwnerEvent.NEXT_OWNER, OwnerEvent.OWN),
    (OwnerEvent.SAME_OWNER,),
    (OwnerEvent.NO_OWNER, OwnerEvent.CANCELLED),
    (OwnerEvent.LAST_OWNER,),
    (OwnerEvent.LATE,),
    (OwnerEvent.CLOSED,),
)

_ALL: Final = tuple(Request)
_ALL_BUT_BEGIN: Final = tuple(each for each in Request if each is not Request.BEGIN)
_AT_OWNER: Final = (Request.LOOK_AT_OWNER, Request.CHANGE_AT_OWNER)
_ENTRIES: Final = (Request.COMMIT_WITH_ENTRIES,)
_STEPS: Final = (Request.STEP, Request.COMMIT, *_ENTRIES, Request.PREPARE)
_ROLLBACK: Final = (Request.ROLLBACK,)
_BEGIN: Final = (Request.BEGIN,)
_DECISIONS: Final = (Request.DECISION, Request.OWN_DECISION)
_ANSWERED: Final = tuple(
    each
    for each in _ALL_BUT_BEGIN
    if each not in (Request.COMMIT_WITH_ENTRIES, Request.CREATE_QUEUE)
)
_CALLS: Final = tuple(e for e in Request if e not in (*_AT_OWNER, *_STEPS, *_ROLLBACK, *_BEGIN))

_UNSENT: Final = (RequestProgress.UNSENT,)
_UNDONE: Final = (RequestProgress.UNSENT, RequestProgress.UNREAD)
_REFUSED: Final = (RequestProgress.REFUSED,)
_NOT_DONE: Final = (*_UNDONE, *_REFUSED)
_FAILED: Final = (RequestProgress.FAILED,)
_SENT: Final = (RequestProgress.SENT,)

_CREATE: Final = (Request.CREATE_QUEUE,)
_TWICE: Final = (Request.REPEATABLE, Request.PUT_WITH_ID, *_CREATE)  # is as once
_ONCE: Final = (Request.CHANGE, Request.COMMIT)
_SHORT: Final = (*_AT_OWNER, *_DECISIONS, *_ROLLBACK, *_CREATE, Request.GET)

_AGAIN: Final = RequestAction.REPEAT
_UP: Final = RequestAction.LOOK_UP
_FOR: Final = RequestAction.LOOK_FOR
_DONE: Final = RequestAction.RETURN
_LOST: Final = RequestAction.CONNECTION_LOST
_MAYBE: Final = RequestAction.OUTCOME_UNKNOWN
_GONE: Final = RequestAction.NOT_FOUND
_SHUT: Final = RequestAction.STORE_CLOSED
_REPLY: Final = RequestAction.ANSWER

# fmt: off
ROWS: Final[tuple[Row, ...]] = (
    #   the owner:                          another same    nobody  last    late    closed
    (_CALLS,                       _UNDONE,  (_AGAIN, _AGAIN, _LOST,  _LOST,  _LOST,  _SHUT)),
    (_AT_OWNER,                    _UNDONE,  (_GONE,  _AGAIN, _LOST,  _LOST,  _LOST,  _SHUT)),
    (_BEGIN,                       _NOT_DONE, (_AGAIN, _AGAIN, _LOST,  _LOST,  None,   _SHUT)),
    (_STEPS,                       _UNDONE,  (_LOST,  _LOST,  _LOST,  _LOST,  _LOST,  _SHUT)),
    (_ROLLBACK,                    _UNDONE,  (_DONE,  _DONE,  _DONE,  _DONE,  _DONE,  _DONE)),

    (_CALLS,                       _REFUSED, (_AGAIN, _AGAIN, _LOST,  _REPLY, None,   _SHUT)),
    (_AT_OWNER,                    _REFUSED, (_GONE,  _AGAIN, _LOST,  _REPLY, None,   _SHUT)),
    (_STEPS,                       _REFUSED, (_LOST,  _LOST,  _LOST,  _REPLY, None,   None)),
    (_ROLLBACK,                    _REFUSED, (_DONE,  _DONE,  _DONE,  _REPLY, None,   None)),

    ((Request.LOOK, Request.GET),  _SENT,    (_AGAIN, _AGAIN, _LOST,  _LOST,  _LOST,  _SHUT)),
    ((Request.LOOK_AT_OWNER,),     _SENT,    (_GONE,  _AGAIN, _LOST,  _LOST,  _LOST,  _SHUT)),
    ((Request.STEP,),              _SENT,    (_LOST,  _LOST,  _LOST,  _LOST,  _LOST,  _SHUT)),
    (_ROLLBACK,                    _SENT,    (_DONE,  _DONE,  _DONE,  _DONE,  _DONE,  _DONE)),
    (_TWICE,                       _SENT,    (_AGAIN, _AGAIN, _MAYBE, _MAYBE, _MAYBE, _MAYBE)),
    ((Request.CHANGE_AT_OWNER,),   _SENT,    (_GONE,  _MAYBE, _MAYBE, _MAYBE, _MAYBE, _MAYBE)),
    (_ONCE,                        _SENT,    (_MAYBE, _MAYBE, _MAYBE, _MAYBE, _MAYBE, _MAYBE)),
    (_ENTRIES,                     _SENT,    (_UP,    _FOR,   _MAYBE, _MAYBE, _MAYBE, _MAYBE)),
    ((Request.PREPARE,),           _SENT,    (_UP,    _FOR,   _MAYBE, _MAYBE, _MAYBE, _MAYBE)),
    (_DECISIONS,                   _SENT,    (_UP,    _MAYBE, _MAYBE, _MAYBE, _MAYBE, _MAYBE)),

    (_ANSWERED,                    _FAILED,  (None,   _REPLY, None,   _REPLY, None,   None)),
    (_CREATE,                      _FAILED,  (None,   _AGAIN, None,   _AGAIN, None,   None)),
    (_ENTRIES,                     _FAILED,  (_UP,    _REPLY, _REPLY, _REPLY, None,   _REPLY)),
)
# fmt: on

_WITH_OWNER: Final = (
    RequestAction.REPEAT,
    RequestAction.LOOK_UP,
    RequestAction.LOOK_FOR,
    RequestAction.NOT_FOUND,
)
_OWN_END: Final = (OwnerEvent.LATE, OwnerEvent.CANCELLED, OwnerEvent.CLOSED, OwnerEvent.INTERRUPTED)
_CHILD: Final = (
    RequestProgress.UNREAD,
    RequestProgress.REFUSED,
    RequestProgress.SENT,
    RequestProgress.FAILED,
)

IMPOSSIBLE: Final[tuple[Impossible, ...]] = (
    (_BEGIN, _CHILD, tuple(OwnerEvent), "nobody is asked"),
    (_BEGIN, _UNSENT, (OwnerEvent.LATE,), "nobody is asked"),
    (_ROLLBACK, _UNSENT, (OwnerEvent.INTERRUPTED,), "nobody is awaited"),
    (
        _ALL_BUT_BEGIN,
        _CHILD,
        (OwnerEvent.FORKED,),
        "the one thread of a child is the one that has forked, which makes no request then",
    ),
    (_SHORT, (RequestProgress.UNREAD,), _OWN_END, "a short request is sent whole at once"),
    (
        _ALL_BUT_BEGIN,
        _REFUSED,
        (OwnerEvent.SAME_OWNER,),
        "an owner that is closing lets nobody in, and ends",
    ),
    (_ALL_BUT_BEGIN, (*_REFUSED, *_FAILED), (OwnerEvent.LATE,), "the owner has answered"),
    (
        (*_STEPS, *_ROLLBACK),
        _REFUSED,
        (OwnerEvent.CANCELLED, OwnerEvent.CLOSED, OwnerEvent.INTERRUPTED),
        "the owner has answered, and nobody is waited for",
    ),
    (
        (*_ANSWERED, *_CREATE),
        _FAILED,
        (
            OwnerEvent.NEXT_OWNER, OwnerEvent.OWN, OwnerEvent.NO_OWNER,
            OwnerEvent.CANCELLED, OwnerEvent.CLOSED, OwnerEvent.INTERRUPTED,
        ),
        "the owner has answered, and nobody is waited for",
    ),
)  # fmt: skip


@cache
def _actions() -> Mapping[Cell, RequestAction]:
    found: dict[Cell, RequestAction] = {}
    for requests, progress, actions in ROWS:
        for events, action in zip(_COLUMNS, actions, strict=True):
            if action is not None:
                found.update(dict.fromkeys(product(requests, progress, events), action))
    for request in Request:
        closed = found[request, RequestProgress.UNSENT, OwnerEvent.CLOSED]
        found[request, RequestProgress.UNSENT, OwnerEvent.FORKED] = closed
        for each in RequestProgress:
            found[request, each, OwnerEvent.INTERRUPTED] = RequestAction.INTERRUPT
    return found


def action_of(request: Request, progress: RequestProgress, event: OwnerEvent) -> RequestAction:
    """Return the action of the client."""
    return _actions()[request, progress, event]


def cells() -> Mapping[Cell, RequestAction | str]:
    """Return the action for each cell, or the reason why it cannot be."""
    found: dict[Cell, RequestAction | str] = dict(_actions())
    for requests, progress, events, reason in IMPOSSIBLE:
        found.update(dict.fromkeys(product(requests, progress, events), reason))
    return found


def progress_of(error: QuireError, *, is_usable: bool, goes_on: bool) -> RequestProgress:
    """Return how far a request has come that has ended in this error.

    `is_usable`: the store object is. `goes_on`: its owner, whose answer the error may be.
    """
    if isinstance(error, StoreClosed):
        return RequestProgress.REFUSED if is_usable else RequestProgress.UNSENT
    if isinstance(error, StoreFailed):
        return RequestProgress.FAILED
    if isinstance(error, OutcomeUnknown):
        return RequestProgress.FAILED if goes_on and not error.late else RequestProgress.SENT
    return (
        RequestProgress.UNSENT
    )  # or further: it makes no difference to what raises ConnectionLost


def further(first: RequestProgress, second: RequestProgress) -> RequestProgress:
    """Return how far a call has come that has made two requests, one after the other (OU1)."""
    return first if first is RequestProgress.SENT and second in _NOT_DONE else second


def waits_for_owner(request: Request, progress: RequestProgress) -> bool:
    """Return True if the action depends on the owner that there is after this one."""
    known = _actions()
    return any(
        known.get((request, progress, event)) in _WITH_OWNER
        for event in (OwnerEvent.NEXT_OWNER, OwnerEvent.SAME_OWNER)
    )


def request_of(facts: Facts) -> Request:
    """Return the kind of a call with these facts."""
    if facts.of_one_owner:
        return Request.CHANGE_AT_OWNER if facts.changes else Request.LOOK_AT_OWNER
    if facts.again:
        return Request.REPEATABLE if facts.changes else Request.LOOK
    return Request.CHANGE


# For the documents -------------------------------------------------------------------------------

_WORDS: Final = {
    RequestAction.REPEAT: "repeat",
    RequestAction.LOOK_UP: "look up",
    RequestAction.LOOK_FOR: "look for",
    RequestAction.RETURN: "return",
    RequestAction.CONNECTION_LOST: "`ConnectionLost`",
    RequestAction.OUTCOME_UNKNOWN: "`OutcomeUnknown`",
    RequestAction.NOT_FOUND: "`TransactionNotFound`",
    RequestAction.STORE_CLOSED: "`StoreClosed`",
    RequestAction.ANSWER: "answer",
    RequestAction.INTERRUPT: "interrupt",
    None: "",
}


def lines() -> Iterator[str]:
    """For the documents: the table, and before it the words of which it is made."""
    kinds = (("request", Request), ("progress", RequestProgress), ("event", OwnerEvent))
    for title, kind in kinds:
        yield f"| {title} | |\n|---|---|"
        for member in kind:
            yield f"| `{member.name}` | {member.value} |"
        yield ""
    yield "| action | |\n|---|---|"
    for action in RequestAction:
        yield f"| {_WORDS[action]} | {action.value} |"
    heads = (", ".join(f"`{event.name}`" for event in events) for events in _COLUMNS)
    yield "\n## The table\n"
    yield f"| request | progress | {' | '.join(heads)} |\n|---|---|{'---|' * len(_COLUMNS)}"
    for requests, progress, actions in ROWS:
        words = " | ".join(_WORDS[action] for action in actions)
        yield f"| {_names(requests)} | {_names(progress)} | {words} |"
    yield "\n## What cannot be\n"
    yield "| request | progress | event | as |\n|---|---|---|---|"
    for requests, progress, met, reason in IMPOSSIBLE:
        yield f"| {_names(requests)} | {_names(progress)} | {_names(met)} | {reason} |"


def _names(members: tuple[Enum, ...]) -> str:
    left = [f"`{each.name}`" for each in type(members[0]) if each not in members]
    if len(left) < 3:
        return f"all but {', '.join(left)}" if left else "all"
    return ", ".join(f"`{each.name}`" for each in members)
