"""Errors as a user may see them: they name nothing on which the user has no right (CK3).

HN1. The words of an error that would tell of others are put in other words. Elsewhere a name in
    quotation marks of a queue or a schedule that the user does not see is left out.
HN2. What the user has said in the call is not left out: that would tell that there is such a thing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from quire.errors import (
    InvalidArgument,
    QueueExists,
    QueueInUse,
    QueueNotFound,
    QuireError,
    ScheduleNotFound,
)

from .call_check import StoredNames
from .shown_results import WHOLE_STORE, UserInForce
from .users_document import NameKind

_ALIAS: Final = " is an alias of "
_QUOTED: Final = re.compile(r"'([A-Za-z0-9_-][A-Za-z0-9._-]*)(?=['/])")
_LEFT_OUT: Final = "'(not shown)"


@contextmanager
def hiding(
    user: UserInForce, names: StoredNames, arguments: Mapping[str, Any] | None = None
) -> Iterator[None]:
    """Have errors name nothing that the user may not see (GS3).

    `arguments`: all that the user has said in the call; without them an InvalidArgument, which
    tells of what was said, stays as it is.
    """
    try:
        yield
    except QuireError as error:
        raise hidden(user, names, error, arguments) from None


def hidden(
    user: UserInForce,
    names: StoredNames,
    error: QuireError,
    arguments: Mapping[str, Any] | None = None,
) -> QuireError:
    """Return the error as the user may see it."""
    if user.rights.allows(WHOLE_STORE):
        return error
    if isinstance(error, QueueInUse):
        return QueueInUse(
            "the queue is in use: by a transaction, an alias, a schedule or a session, or as the"
            " dead_letter of another one; a user with admin on the store is told by which"
        )
    if isinstance(error, QueueExists):
        name, is_alias, _ = str(error).partition(_ALIAS)
        return QueueExists(f"{name} is an alias: use another name") if is_alias else error
    if isinstance(error, ScheduleNotFound):
        return ScheduleNotFound("there is no such schedule: store.cron.list() has those there are")
    if isinstance(error, QueueNotFound):
        return QueueNotFound(
            "there is no such queue that this user has a right on: it was just there"
        )
    if arguments is not None or not isinstance(error, InvalidArgument):
        own_texts = list(_texts(arguments or {}))
        _leave_out(user, names, error, own_texts)
    return error


def _leave_out(
    user: UserInForce, names: StoredNames, error: QuireError, own_texts: Iterable[str]
) -> None:
    """Leave names out of the words of an error, which keeps all else that it is (HN1, HN2)."""

    def shown(found: re.Match[str]) -> str:
        name = found[1]
        if any(name in text for text in own_texts) or not _is_hidden(user, names, name):
            return found[0]
        return _LEFT_OUT

    if error.args and isinstance(error.args[0], str):
        error.args = (_QUOTED.sub(shown, error.args[0]), *error.args[1:])


def _is_hidden(user: UserInForce, names: StoredNames, name: str) -> bool:
    own = names.own_name(name)
    if own is not None:
        return not user.rights.sees(NameKind.QUEUE, own)
    is_schedule = names.queue_of_schedule(name) is not None
    return is_schedule and not user.rights.sees(NameKind.SCHEDULE, name)


def _texts(value: object) -> Iterator[str]:
    """Yield all texts in a value as a client sends it."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _texts(key)
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)
