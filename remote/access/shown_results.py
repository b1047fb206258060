"""The part of a result that a user sees: names on which there is a right, and no others.

A row says what its result consists of (`Facts.shows`), by a name of `SHOWN`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from msgspec.structs import replace

from .call_check import CallValues
from .granted_rights import GrantedRights, Need
from .state_names import is_by_key, name_of_state
from .users_document import NameKind, Right


class UserInForce(Protocol):
    """A user, whose rights may change at any moment."""

    @property
    def name(self) -> str:
        """The user's name."""

    @property
    def rights(self) -> GrantedRights:
        """The rights of this moment."""

    def note_call(self, call: str, needs: Iterable[Need], outcome: str) -> None:
        """Have a call that changes something in the audit log."""

    def note_refusal(self, need: Need) -> None:
        """Have a refusal in the audit log."""


WHOLE_STORE: Final = Need(Right.ADMIN, NameKind.STORE, "*")
Show = Callable[[UserInForce, CallValues, Any], Any]


def _queues(user: UserInForce, arguments: CallValues, found: Any) -> Any:
    """Reports of queues that may be seen."""
    shown = [each for each in found if user.rights.sees(NameKind.QUEUE, each.name)]
    return [_queue(user, arguments, each) for each in shown]


def _queue(user: UserInForce, arguments: CallValues, found: Any) -> Any:
    """A report of a queue; a dead letter queue that may not be seen is not named."""
    if found.dead_letter is None or user.rights.sees(NameKind.QUEUE, found.dead_letter):
        return found
    return replace(found, dead_letter=None)


def _queue_names(user: UserInForce, arguments: CallValues, found: Any) -> Any:
    return [name for name in found if user.rights.sees(NameKind.QUEUE, name)]


def _by_queue(user: UserInForce, arguments: CallValues, found: Any) -> Any:
    return {name: each for name, each in found.items() if user.rights.sees(NameKind.QUEUE, name)}


def _aliases(user: UserInForce, arguments: CallValues, found: Any) -> Any:
    return {name: queue for name, queue in found.items() if user.rights.sees(NameKind.QUEUE, queue)}


def _schedules(user: UserInForce, arguments: CallValues, found: Any) -> Any:
    """Schedules that may be seen, of queues that may be seen."""
    return [
        each
        for each in found
        if user.rights.sees(NameKind.SCHEDULE, each.name)
        and user.rights.sees(NameKind.QUEUE, each.queue)
    ]


def _states(user: UserInForce, arguments: CallValues, found: Any) -> Any:
    return [name for name in found if user.rights.sees(*name_of_state(name))]


def _keys(user: UserInForce, arguments: CallValues, found: Any) -> Any:
    """The values of a state; of one whose keys are names of their own, those that may be seen."""
    state = arguments["name"]
    if not is_by_key(state):
        return found
    return {
        key: each for key, each in found.items() if user.rights.sees(*name_of_state(state, key))
    }


def owner_of_transaction(user: UserInForce, owner: str | None) -> str:
    """Return whose a transaction of a user is, for those who look at all of them."""
    return f"user {user.name}" if owner is None else f"user {user.name}: {owner}"


def _own_words(user: UserInForce, owner: str) -> str | None:
    """Return what the user called the owner of a transaction; None: it is not the user's."""
    begin, colon, words = owner.partition(": ")
    return words if colon and begin == owner_of_transaction(user, None) else None


def _transactions(user: UserInForce, arguments: CallValues, found: Any) -> Any:
    """Transactions of the user, in the user's words; all, for who may look after the store."""
    is_admin = user.rights.allows(WHOLE_STORE)
    all_words = [(each, _own_words(user, each.owner)) for each in found]
    return [
        each if words is None else replace(each, owner=words)
        for each, words in all_words
        if is_admin or words is not None
    ]


def _transaction(user: UserInForce, arguments: CallValues, found: Any) -> Any:
    """A transaction that the user may look at; one of the user's own in the user's words."""
    words = _own_words(user, found.owner)
    return found if words is None else replace(found, owner=words)


def _explanation(user: UserInForce, arguments: CallValues, found: Any) -> Any:
    """An explanation: transactions of others are not named, nor queues that may not be seen."""
    if found.queue is not None and not user.rights.sees(NameKind.QUEUE, found.queue):
        found = replace(found, queue=None, detail="")
        if found.reason == "dead letter":
            found = replace(found, reason=found.reason.NOT_THERE)
    words = None if found.owner is None else _own_words(user, found.owner)
    if words is not None:
        return replace(found, owner=words)
    if user.rights.allows(WHOLE_STORE):
        return found
    return replace(found, owner=None, transaction=None, xid=None)


def _status(user: UserInForce, arguments: CallValues, found: Any) -> Any:
    """All of it, for who may look after the store; the own use of limits, for others."""
    if user.rights.allows(WHOLE_STORE):
        return found
    users = found["sharing"]["limits"]["users"]
    own = {name: use for name, use in users.items() if name == user.name}
    return {"sharing": {"limits": {"users": own}}}


SHOWN: Final[Mapping[str, Show]] = {
    "queues": _queues,
    "queue": _queue,
    "queue_names": _queue_names,
    "by_queue": _by_queue,
    "aliases": _aliases,
    "schedules": _schedules,
    "states": _states,
    "status": _status,
    "keys": _keys,
    "transactions": _transactions,
    "transaction": _transaction,
    "explanation": _explanation,
}
