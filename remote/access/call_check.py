"""The check of a call: which rights it needs on which names, by its row, and if a user has them.

CK1. A row says what it needs as words: "manage alias:name, manage queue:queue" is a right, the way
    in which an argument names something (`_WAYS`), and that argument, for each. A row that says
    nothing (None), or words that are not known, are a TypeError when a server begins.
CK2. Nothing is looked for, begun or changed before all of that is allowed.
CK3. A queue that a user has no right on is to him as one that is not there: the same error with the
    same words. Every other refusal depends on names alone, and never on what is there.
CK4. An alias stands for its queue: the rights are those on the queue. Messages are put and got by
    the queue's own name then, so that nobody can give the alias to another queue in between.
CK5. What carries messages from one name to another, then or later, needs `get` on the first and
    `put` on the other: a dead letter queue, a move, a redrive. Who has messages put needs `put`
    there, as by a schedule; who has replies put needs `get` there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, Protocol

from quire.arguments import (
    check_name,
    check_ranges,
    check_reader_names,
    check_seconds,
    split_source,
)
from quire.calls.call_table import CallRow
from quire.definitions.source_pattern import is_pattern
from quire.errors import (
    InvalidArgument,
    NotAllowed,
    QueueNotFound,
    QuireError,
    TransactionNotFound,
)
from quire.limits import DEFAULT_LEASE_SECONDS
from quire.remote.limits import MAX_NOTED_NEEDS

from .granted_rights import GrantedRights, Need
from .state_names import is_by_key, name_of_state
from .users_document import NameKind, Right

_WHOLE_STORE: Final = "*"
_WATCHED: Final = re.compile(r"[@!]")
_WILD: Final = re.compile(r"[*#]")
CallValues = dict[str, Any]


class StoredNames(Protocol):
    """The names of a store."""

    def own_name(self, name: str) -> str | None:
        """Return the name of the queue that is called so, by an alias too; None: there is none."""

    def queue_of_schedule(self, name: str) -> str | None:
        """Return the name of the queue that a schedule puts to; None: there is no such schedule."""

    def has_begun(self, transaction_id: object) -> bool:
        """Return True if the user has begun this open transaction."""

    def has_verified_sender(self, name: str | None) -> bool:
        """Return True if the senders of the queue, or with None of any queue, are verified."""

    def checked_sender(self, queue: str, sender: object) -> str:
        """Return the user as the sender of a put that says this one, or none (VS1)."""

    @property
    def user_name(self) -> str:
        """The user's name."""

    def note_refusal(self, need: Need) -> None:
        """A right is missing."""


class CallCheck:
    """The check of calls of one user. What is allowed is noted, to be looked at again."""

    __slots__ = ("_puts", "allowed", "names", "rights")

    def __init__(self, rights: GrantedRights, names: StoredNames) -> None:
        self.rights = rights
        self.names = names
        self.allowed: set[Need] = set()
        self._puts: set[str] = set()  # queues with puts that were allowed

    def check_call(self, row: CallRow, arguments: Mapping[str, Any]) -> CallValues:
        """Return the arguments to call with. Raises NotAllowed, QueueNotFound, InvalidArgument."""
        checked = dict(arguments)
        for right, way, argument in needs_of(row):
            way(self, right, argument, checked)
        return checked

    def check_again(self, rights: GrantedRights) -> None:
        """See that all that was allowed is so by other rights. Raises NotAllowed."""
        self.rights = rights
        puts = (Need(Right.PUT, NameKind.QUEUE, queue) for queue in self._puts)
        for need in [*self.allowed, *puts]:
            self._require(need, not_allowed)

    def _require(self, need: Need, error: Callable[[Need], QuireError]) -> None:
        """Raise the error, and note that, where the right is missing."""
        if not self.rights.allows(need):
            self.names.note_refusal(need)
            raise error(need)
        if len(self.allowed) >= MAX_NOTED_NEEDS and need not in self.allowed:
            raise InvalidArgument(
                f"a transaction of a user has to do with at most {MAX_NOTED_NEEDS:,} names: commit"
                " it, and go on in another one"
            )
        self.allowed.add(need)

    # Names

    def need(self, right: Right | None, kind: NameKind, name: str) -> None:
        """Require a right on a name, or on all names that a pattern names."""
        self._require(Need(right, kind, name), not_allowed)

    def queue(self, right: Right | None, name: object) -> str:
        """Require a right on what a queue's name, or an alias, stands for (CK3, CK4)."""
        called = check_name(name, "queue")
        own = self.names.own_name(called)

        def error(need: Need) -> QuireError:
            is_seen = self.rights.sees(NameKind.QUEUE, need.name)
            return not_allowed(need._replace(name=called)) if is_seen else no_queue(called)

        self._require(Need(right, NameKind.QUEUE, called if own is None else own), error)
        if own is None:
            if not self.rights.allows(Need(Right.ADMIN, NameKind.STORE, _WHOLE_STORE)):
                raise no_queue(called)
            return called  # the store tells what was meant: this user sees all names
        return own

    def put(self, name: str) -> str:
        """Require `put` on a queue, as `queue` does; fast where it is known."""
        own = self.names.own_name(name)
        known = self.rights.puts
        if own is None or own not in known:
            is_there, own = own is not None, self.queue(Right.PUT, name)
            if is_there:
                known.add(own)
        self._puts.add(own)
        return own

    def sends_as_user(self, queue: str, *, is_moved: bool = False) -> bool:
        """Return True if the user is to be the sender of what he puts to a queue (VS1, VS2)."""
        if not self.names.has_verified_sender(queue):
            return False
        need = Need(Right.MANAGE, NameKind.QUEUE, queue)
        if not (is_moved and self.rights.allows(need)):
            return True
        self.allowed.add(need)
        return False

    def carry(self, source: object, target: object) -> None:
        """Require what messages of others need that the store carries to a queue (VS2).

        Without a target they go to any queue.
        """
        if target is None:
            to = None
        elif (to := self.names.own_name(_text(target))) is None:
            return
        own = self.names.own_name(_text(source).partition("/")[0])
        is_verified = own is not None and self.names.has_verified_sender(own)
        if not is_verified and self.names.has_verified_sender(to):
            self.need(Right.MANAGE, NameKind.QUEUE, "*" if to is None else to)

    def scheduled_sender(self, arguments: CallValues) -> None:
        """Have the user be the sender of what a schedule puts (VS3)."""
        queue = arguments.get("queue")
        if queue is None:
            queue = self.names.queue_of_schedule(_text(arguments.get("name")))
        own = None if queue is None else self.names.own_name(_text(queue))
        if own is not None and self.names.has_verified_sender(own):
            arguments["sender"] = self.names.checked_sender(own, arguments.get("sender"))

    def writer(self) -> str | None:
        """Return whom files are written for: the user, or nobody, who looks after the store."""
        is_admin = self.rights.allows(Need(Right.ADMIN, NameKind.STORE, _WHOLE_STORE))
        return None if is_admin else self.names.user_name

    def lasting(self, seconds: object) -> None:
        """Require that a lease is to end in time, as it keeps space; its user may renew it."""
        if seconds is None or self.writer() is None:
            return
        if check_seconds(seconds) > DEFAULT_LEASE_SECONDS:
            raise InvalidArgument(
                f"{seconds!r:.50} seconds: a user's lease lasts for {DEFAULT_LEASE_SECONDS:g} at "
                "most, renew it"
            )

    def new_queue(self, right: Right | None, name: object) -> None:
        """Require a right on a name that no queue need have."""
        if isinstance(name, str):
            self.need(right, NameKind.QUEUE, name)
        else:
            check_name(name, "queue")

    def reply_queue(self, right: Right | None, name: object) -> None:
        """Require a right on a name that replies are put to, if there is one (CK5)."""
        if name is not None:
            called = _text(name)  # perhaps no queue's: who answers finds that out
            own = self.names.own_name(called)
            self._require(
                Need(right, NameKind.QUEUE, called if own is None else own),
                lambda need: not_allowed(need._replace(name=called)),  # and not by its own name
            )

    def source(self, right: Right | None, source: object) -> str:
        """Require a right on a source's queue, or on all queues that a pattern may name."""
        if isinstance(source, str) and is_pattern(source):
            names = source.partition("/")[0]
            start = _WILD.search(names)
            fixed = names[: start.start()] if start is not None else names
            if start is not None and start[0] == "#":  # "orders.#" names "orders" too
                fixed = fixed.removesuffix(".")
            self.need(right, NameKind.QUEUE, f"{fixed}*")
            return source
        queue, subscription = split_source(source)
        own = self.queue(right, queue)
        return own if subscription is None else f"{own}/{subscription}"

    def state(self, right: Right | None, state: object, key: object = None) -> None:
        """Require a right on what a state, or a key of it, belongs to."""
        self.need(right, *name_of_state(_text(state), None if key is None else _text(key)))

    def schedule_queue(self, right: Right | None, schedule: object) -> None:
        """Require a right on the queue that a schedule puts to."""
        queue = self.names.queue_of_schedule(_text(schedule))
        if queue is not None:
            self._require(
                Need(right, NameKind.QUEUE, queue),
                lambda need: NotAllowed(
                    f"this needs the right {need.right and need.right.value} on the queue of"
                    f" schedule {schedule!r:.250}"
                ),
            )

    def transaction(self, right: Right | None, transaction_id: object) -> None:
        """Require a right on the store, but for a transaction that the user has begun."""
        if not self.names.has_begun(transaction_id):
            self._require(
                Need(right, NameKind.STORE, _WHOLE_STORE),
                lambda _: TransactionNotFound(
                    f"no transaction {transaction_id!r:.50} of this user is open: store.admin"
                    ".transactions() lists them"
                ),
            )

    def definitions(self, right: Right | None, definitions: Sequence[object]) -> None:
        """Require what making queues needs: on their names, and for dead letters (CK5)."""
        names = [each.get("name") if isinstance(each, Mapping) else each for each in definitions]
        for name in names:
            self.new_queue(right, name)
        for name, each in zip(names, definitions, strict=True):
            dead_letter = each.get("dead_letter") if isinstance(each, Mapping) else None
            if dead_letter is None:
                continue
            self.new_queue(Right.GET, name)
            if dead_letter in names and self.names.own_name(dead_letter) is None:
                self.new_queue(Right.PUT, dead_letter)  # it is made with it
            else:
                self.queue(Right.PUT, dead_letter)


def no_queue(name: str) -> QueueNotFound:
    """Return the error for a queue that is not there, or not for this user (CK3)."""
    return QueueNotFound(
        f"there is no queue {name!r:.250} that this user has a right on: queues() lists those"
    )


def not_allowed(need: Need) -> NotAllowed:
    """Return the error that names the right that is missing."""
    return NotAllowed(
        f"this needs {'' if need.right is None else 'the right '}{need}, which this user does not"
        " have: whoever keeps the server's users may grant it"
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidArgument(f"{value!r:.100}: give a name")
    return value


def _items(value: object) -> Iterable[Any]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidArgument(f"{value!r:.100}: give several names")
    return value


# The ways in which an argument names something. Each takes the check, the right, the name of the
# argument, and all arguments, of which it may put another value in the place of one.


def _queue(check: CallCheck, right: Right | None, name: str, arguments: CallValues) -> None:
    check.queue(right, arguments.get(name))


def _own_queue(check: CallCheck, right: Right | None, name: str, arguments: CallValues) -> None:
    arguments[name] = check.queue(right, arguments.get(name))


def _ranges(check: CallCheck, right: Right | None, name: str, arguments: CallValues) -> None:
    """Queues, each with two positions."""
    ranges = check_ranges(arguments.get(name))
    arguments[name] = [(check.queue(right, queue), start, end) for queue, start, end in ranges]


def _writer(check: CallCheck, right: Right | None, name: str, arguments: CallValues) -> None:
    """The user whose files are meant."""
    arguments[name] = check.writer()


def _lasting(check: CallCheck, right: Right | None, name: str, arguments: CallValues) -> None:
    check.lasting(arguments.get(name))


def _optional_queue(
    check: CallCheck, right: Right | None, name: str, arguments: CallValues
) -> None:
    if arguments.get(name) is not None:
        check.queue(right, arguments[name])


def _queues(check: CallCheck, right: Right | None, name: str, arguments: CallValues) -> None:
    if arguments.get(name) is not None:
        for each in _items(arguments[name]):
            check.queue(right, each)


def _new_queue(check: CallCheck, right: Right | None, name: str, arguments: CallValues) -> None:
    check.new_queue(right, arguments.get(name))


def _definitions(check: CallCheck, right: Right | None, name: str, arguments: CallValues) -> None:
    check.definitions(right, list(_items(arguments.get(name))))


def _dead_letter(check: CallCheck, right: Right | None, name: str, arguments: CallValues) -> None:
    """The queue of the argument gives its dead letters to another one, if that is named (CK5)."""
    if arguments.get("dead_letter") is not None:
        check.queue(Right.GET, arguments.get(name))
        check.queue(right, arguments["dead_letter"])


def _reply_to(check: CallCheck, right: Right | None, name: str, arguments: CallValues) -> None:
    check.reply_queue(right, arguments.get(name))


def _letters(check: CallCheck, right: Right | None, name: str, arguments: CallValues) -> None:
    """The target of letters; without it each goes where it came from, whichever queue that is."""
    if arguments.get(name) is None:
        check.need(right, NameKind.QUEUE, "*")
    else:
        check.queue(right, arguments[name])
    check.carry(arguments.get("source"), arguments.get(name))


def _source(check: CallCheck, right: Right | None, name: str, arguments: CallValues) -> None:
    arguments[name] = check.source(right, arguments.get(name))


def _watched(check: CallCheck, right: Right | None, name: str, arguments: CallValues) -> None:
    """A source, with a position behind it perhaps."""
    text = _text(arguments.get(name))
    end = _WATCHED.search(text)
    at = len(text) if end is None else end.start()
    arguments[name] = check.source(right, text[:at]) + text[at:]


def _sources(check: CallCheck, right: Right | None, name: str, arguments: CallValues) -> None:
    for each in _items(arguments.get(name)):
        check.source(right, each)


def _reader_names(check: CallCheck, right: Right | None, name: str, arguments: CallValues) -> None:
    """Sources; any other name of a reader is one that it has drawn, and nobody else knows."""
    for each in check_reader_names(arguments.get(name)):
        if "/" in each:
            check.source(right, each)


def _pairs(check: CallCheck, right: Right | None, name: str, arguments: CallValues) -> None:
    """Queues, each with a subscription."""
    for each in _items(arguments.get(name)):
        check.queue(right, next(iter(_items(each)), None))


def _state(check: CallCheck, right: Right | None, name: str, arguments: CallValues) -> None:
    state = arguments.get(name)
    if right is Right.BROWSE and "key" not in arguments and is_by_key(_text(state)):
        return  # the result shows what may be seen
    check.state(right, state, arguments.get("key"))


def _states(check: CallCheck, right: Right | None, name: str, arguments: CallValues) -> None:
    """Keys of the ledger, which count as states of these names."""
    for each in _items(arguments.get(name)):
        check.state(right, each)


def _alias(check: CallCheck, right: Right | None, name: str, arguments: CallValues) -> None:
    check.need(right, NameKind.ALIAS, _text(arguments.get(name)))


def _schedule(check: CallCheck, right: Right | None, name: str, arguments: CallValues) -> None:
    check.need(right, NameKind.SCHEDULE, _text(arguments.get(name)))


def _schedule_queue(
    check: CallCheck, right: Right | None, name: str, arguments: CallValues
) -> None:
    check.schedule_queue(right, arguments.get(name))


def _scheduled(check: CallCheck, right: Right | None, name: str, arguments: CallValues) -> None:
    check.scheduled_sender(arguments)


def _transaction(check: CallCheck, right: Right | None, name: str, arguments: CallValues) -> None:
    check.transaction(right, arguments.get(name))


def _store(check: CallCheck, right: Right | None, name: str, arguments: CallValues) -> None:
    check.need(right, NameKind.STORE, _WHOLE_STORE)


Way = Callable[[CallCheck, Right | None, str, CallValues], None]
_WAYS: Final[Mapping[str, Way]] = {
    "queue": _queue,
    "own_queue": _own_queue,
    "ranges": _ranges,
    "writer": _writer,
    "lasting": _lasting,
    "optional_queue": _optional_queue,
    "queues": _queues,
    "new_queue": _new_queue,
    "definitions": _definitions,
    "dead_letter_of": _dead_letter,
    "reply_to": _reply_to,
    "letters": _letters,
    "source": _source,
    "watched": _watched,
    "sources": _sources,
    "reader_names": _reader_names,
    "pairs": _pairs,
    "state": _state,
    "states": _states,
    "alias": _alias,
    "schedule": _schedule,
    "schedule_queue": _schedule_queue,
    "scheduled": _scheduled,
    "transaction": _transaction,
    "store": _store,
}


class RowNeed(NamedTuple):
    """A part of what a row needs (CK1)."""

    right: Right | None
    way: Way
    argument: str


def needs_of(row: CallRow) -> tuple[RowNeed, ...]:
    """Return what a row needs. Raises TypeError if it does not say so."""
    if row.facts.needs is None:
        raise TypeError(f"{row.op} does not say which rights it needs: see quire.calls.call_table")
    return _read_needs(row.facts.needs)


@cache
def _read_needs(words: str) -> tuple[RowNeed, ...]:
    try:
        return tuple(_read_need(part.strip()) for part in words.split(",") if part.strip())
    except (KeyError, ValueError):
        raise TypeError(f"{words!r} is not known as what a call needs") from None


def _read_need(words: str) -> RowNeed:
    right, target = words.split(" ")
    way, _, argument = target.partition(":")
    return RowNeed(None if right == "see" else Right(right), _WAYS[way], argument)
