"""Changes of the document of users, each a function of the document before that returns the next.

UC1. A change that would change nothing, as it names what is not there, raises; none is half made.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from quire.errors import AlreadyExists, InvalidArgument, NotFound
from quire.remote.limits import MAX_TOKENS_OF_USER

from .tokens import UserToken
from .use_limits import LimitValues, check_limits
from .users_document import ALL_USERS, ROLE, Grant, Right, TokenEntry, UserEntry, UsersDocument


def user_of(document: UsersDocument, name: str) -> UserEntry:
    """Return a user. Raises NotFound."""
    found = document.users.get(name)
    if found is None:
        raise NotFound(f"there is no user {name!r:.250}: `quire user ls` lists them")
    return found


def _with_user(document: UsersDocument, name: str, user: UserEntry) -> UsersDocument:
    return replace(document, users={**document.users, name: user})


def add_user(
    document: UsersDocument, name: str, roles: Iterable[str], certificates: Iterable[str]
) -> UsersDocument:
    """Have a user be there, who has no rights beside those of the roles."""
    if name in document.users:
        raise AlreadyExists(f"there is a user {name!r:.250} already")
    user = UserEntry(roles=tuple(roles), certificates=tuple(certificates))
    return _with_user(document, name, user)


def remove_user(document: UsersDocument, name: str) -> UsersDocument:
    """Remove a user."""
    user_of(document, name)
    limits = _without(document.limits, name)
    return replace(document, users=_without(document.users, name), limits=limits)


def lock_user(document: UsersDocument, name: str, *, locked: bool) -> UsersDocument:
    """Let a user in no more, or again."""
    return _with_user(document, name, replace(user_of(document, name), locked=locked))


def grant(document: UsersDocument, name: str, grants: Iterable[Grant]) -> UsersDocument:
    """Give rights to a user, or to a role, which is made if it is not there."""
    before = _grants_of(document, name)
    after = list(before)
    for each in grants:
        after = _added(after, each)
    return _with_grants(document, name, tuple(after))


def revoke(document: UsersDocument, name: str, grants: Iterable[Grant]) -> UsersDocument:
    """Take rights from a user, or from a role. Raises NotFound for one that is not granted so."""
    after = list(_grants_of(document, name, must_exist=True))
    for each in grants:
        at = [n for n, old in enumerate(after) if old.target == each.target]
        had = {right for n in at for right in after[n].rights}
        missing = [right.value for right in each.rights if right not in had]
        if missing:
            raise NotFound(
                f"{name} has no grant of {','.join(missing)} on {each.target}: `quire user ls`"
                " shows what is granted"
            )
        for n in at:
            left = tuple(right for right in after[n].rights if right not in each.rights)
            after[n] = replace(after[n], rights=left)
        after = [old for old in after if old.rights]
    return _with_grants(document, name, tuple(after))


def give_role(document: UsersDocument, name: str, role: str) -> UsersDocument:
    """Give a user a role."""
    user = user_of(document, name)
    if role in user.roles:
        return document
    return _with_user(document, name, replace(user, roles=(*user.roles, role)))


def take_role(document: UsersDocument, name: str, role: str) -> UsersDocument:
    """Take a role from a user. Raises NotFound where the user does not have it."""
    user = user_of(document, name)
    if role not in user.roles:
        raise NotFound(f"user {name} does not have the role {role!r:.250}")
    roles = tuple(each for each in user.roles if each != role)
    return _with_user(document, name, replace(user, roles=roles))


def remove_role(document: UsersDocument, role: str) -> UsersDocument:
    """Remove a role, which no user has any more."""
    if role not in document.roles:
        raise NotFound(
            f"there is no role {role!r:.250}: `quire user ls` shows those that there are"
        )
    having = [name for name, user in document.users.items() if role in user.roles]
    if having:
        raise InvalidArgument(f"{', '.join(having)} have the role {role}: take it from them first")
    limits = _without(document.limits, ROLE + role)
    return replace(document, roles=_without(document.roles, role), limits=limits)


def limit(
    document: UsersDocument, name: str, values: LimitValues, defaults: Iterable[str] = ()
) -> UsersDocument:
    """Set limits of a user, of a role, or of all users; those of `defaults` are set no more.

    Raises NotFound, InvalidArgument.
    """
    check_limits({**dict.fromkeys(defaults), **values})
    if name.startswith(ROLE):
        _grants_of(document, name, must_exist=True)
    elif name != ALL_USERS:
        user_of(document, name)
    left = dict(document.limits.get(name, {}))
    for each in defaults:
        left.pop(each, None)
    left |= values
    others = _without(document.limits, name)
    return replace(document, limits={**others, name: left} if left else others)


def add_token(
    document: UsersDocument,
    name: str,
    token: UserToken,
    now_us: int,
    expires: dt.datetime | None,
) -> UsersDocument:
    """Give a user one more token; one that has expired gives way. Raises InvalidArgument."""
    user = user_of(document, name)
    valid = tuple(entry for entry in user.tokens if not entry.has_expired(now_us))
    if len(valid) >= MAX_TOKENS_OF_USER:
        raise InvalidArgument(
            f"user {name} has {MAX_TOKENS_OF_USER} tokens, {' and '.join(e.key_id for e in valid)}:"
            " end one with `quire user token --revoke KEY_ID`, then make another one"
        )
    entry = TokenEntry(token.key_id, token.digest(), expires)
    return _with_user(document, name, replace(user, tokens=(*valid, entry)))


def remove_token(document: UsersDocument, name: str, key_id: str) -> UsersDocument:
    """Let nobody in by a token any more."""
    user = user_of(document, name)
    left = tuple(entry for entry in user.tokens if entry.key_id != key_id)
    if len(left) == len(user.tokens):
        raise NotFound(f"user {name} has no token of the key id {key_id!r:.50}")
    return _with_user(document, name, replace(user, tokens=left))


def _grants_of(
    document: UsersDocument, name: str, *, must_exist: bool = False
) -> tuple[Grant, ...]:
    if not name.startswith(ROLE):
        return user_of(document, name).grants
    role = name.removeprefix(ROLE)
    if must_exist and role not in document.roles:
        raise NotFound(
            f"there is no role {role!r:.250}: `quire user ls` shows those that there are"
        )
    return document.roles.get(role, ())


def _with_grants(document: UsersDocument, name: str, grants: tuple[Grant, ...]) -> UsersDocument:
    if name.startswith(ROLE):
        return replace(document, roles={**document.roles, name.removeprefix(ROLE): grants})
    return _with_user(document, name, replace(user_of(document, name), grants=grants))


def _added(grants: list[Grant], more: Grant) -> list[Grant]:
    """Return the grants with one more, which joins one for the same names."""
    for n, old in enumerate(grants):
        if old.target == more.target:
            rights = {*old.rights, *more.rights}
            joined = replace(old, rights=tuple(right for right in Right if right in rights))
            return [*grants[:n], joined, *grants[n + 1 :]]
    return [*grants, more]


def _without(mapping: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {each: value for each, value in mapping.items() if each != name}
