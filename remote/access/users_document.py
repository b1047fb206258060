"""The document of users: who may reach a served store, and with which rights.

UD1. A document is checked as a whole. One that is wrong is refused with the place where it is
    wrong, and nothing of it is used.
UD2. A grant names rights, a kind of names, and a name, or the beginning of names with a `*` behind
    it. There is no other pattern, so that one grant can be seen to contain another.
UD3. No secret is in it: of a token there is the digest (TO1).
UD4. Limits are those of a user, of a role, or of all users. A user's own come before those of his
    roles, of which the highest holds, these before those of all users, and those before the
    table's (UL1).
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from enum import Enum
from typing import Annotated, Final, Literal, Self, TypeVar

import msgspec
from msgspec import Meta, Struct, field

from quire.definitions.properties import NAME
from quire.errors import InvalidArgument
from quire.remote.limits import MAX_GRANT_NAME, MAX_TOKENS_OF_USER

from .tokens import DIGEST, KEY_ID
from .use_limits import OF_USER, LimitValues, limits_with, most_generous, wrong_limits

ANY_KIND: Final = "*"
ROLE: Final = "role:"  # before the name of a role, where users are named too
ALL_USERS: Final = "*"  # whose limits are those of all users
_AT_BYTE: Final = re.compile(r"\(byte (\d+)\)")
T = TypeVar("T")


class Right(Enum):
    """The rights on names."""

    __hash__ = object.__hash__  # they are looked up with each call
    PUT = "put"  # messages, values
    GET = "get"  # take messages, move subscriptions, and what BROWSE allows
    BROWSE = "browse"  # look at messages, values and numbers
    MANAGE = "manage"  # make, alter and remove what has the name
    ADMIN = "admin"  # all of these, and what carries one name's content to another name


class NameKind(Enum):
    """The kinds of names that rights are on."""

    __hash__ = object.__hash__  # as those of rights
    QUEUE = "queue"
    ALIAS = "alias"
    STATE = "state"  # and keys of the ledger
    SESSION = "session"
    SCHEDULE = "schedule"
    LISTENER = "listener"
    GRAPH = "graph"
    STORE = "store"  # the store as a whole, whose name is "*"


_KINDS: Final = (*(kind.value for kind in NameKind), ANY_KIND)
_Digest = Annotated[str, Meta(pattern=f"^{DIGEST.pattern}$")]
_KeyId = Annotated[str, Meta(pattern=f"^{KEY_ID.pattern}$")]


class Grant(Struct, frozen=True, forbid_unknown_fields=True):
    """Rights on all names of a kind that the pattern names."""

    rights: tuple[Right, ...]
    kind: str  # that of a `NameKind`, or "*"
    names: str  # a name, or the beginning of names with a * behind it

    @classmethod
    def of(cls, rights: str, target: str) -> Self:
        """Return the grant of words: "put,get", "queue:orders.*". Raises InvalidArgument."""
        kind, _, names = target.partition(":")
        try:
            found = cls(tuple(Right(word) for word in rights.split(",")), kind, names or "*")
        except ValueError:
            raise InvalidArgument(f"{rights!r:.100}: {_rights()}") from None
        wrong = found.wrong()
        if wrong is not None:
            raise InvalidArgument(f"{target!r:.250}: {wrong}")
        return found

    @property
    def target(self) -> str:
        """Its kind and names, as words."""
        return f"{self.kind}:{self.names}"

    def wrong(self) -> str | None:
        """Return what is wrong with it, if anything is."""
        if not self.rights:
            return _rights()
        if self.kind not in _KINDS:
            return f"kind {self.kind!r:.50}: give one of {', '.join(_KINDS)}"
        if len(self.names) > MAX_GRANT_NAME:
            return "the pattern is too long: give a name, or the beginning of one with a * behind"
        beginning = self.names.removesuffix("*")
        if "*" in beginning or not self.names:
            return "give a name, or the beginning of names with one * behind it"
        if self.kind == NameKind.QUEUE.value and beginning and not NAME.fullmatch(beginning):
            return "no queue has such a name: use A-Z a-z 0-9 . _ -"
        return None


def _rights() -> str:
    return f"give some of {','.join(right.value for right in Right)}, with commas between them"


class TokenEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """A token of a user, as it is kept (UD3)."""

    key_id: _KeyId
    sha256: _Digest
    expires: dt.datetime | None = None  # with a time zone

    def has_expired(self, now_us: int) -> bool:
        """Return True if it is of no use any more."""
        return self.expires is not None and self.expires.timestamp() * 1e6 <= now_us


class UserEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """A user."""

    roles: tuple[str, ...] = ()
    grants: tuple[Grant, ...] = ()
    tokens: tuple[TokenEntry, ...] = ()
    certificates: tuple[str, ...] = ()  # names in certificates: a common name, or DNS:..., as in it
    locked: bool = False


class UsersDocument(Struct, frozen=True, forbid_unknown_fields=True):
    """All of it (UD1)."""

    version: Literal[1] = 1
    users: dict[str, UserEntry] = field(default_factory=dict)
    roles: dict[str, tuple[Grant, ...]] = field(default_factory=dict)
    # By the name of a user, of a role with `ROLE` before it, or `ALL_USERS`.
    limits: dict[str, dict[str, float | None]] = field(default_factory=dict)

    @classmethod
    def read(cls, data: bytes) -> Self:
        """Return the document that the bytes are. Raises InvalidArgument, with the place."""
        parts = _decoded(data, _UndecodedUsers, "", data)
        found = cls(
            parts.version,
            {n: _decoded(raw, UserEntry, f".users.{n}", data) for n, raw in parts.users.items()},
            {
                n: _decoded(r, tuple[Grant, ...], f".roles.{n}", data)
                for n, r in parts.roles.items()
            },
            {
                n: _decoded(r, dict[str, float | None], f".limits.{n}", data)
                for n, r in parts.limits.items()
            },
        )
        for place, wrong in found._faults():
            raise InvalidArgument(f"{wrong} - at `$.{place}`")
        return found

    def encode(self) -> bytes:
        """Return its bytes, which `read` takes. Raises InvalidArgument for what that would not."""
        data: bytes = msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"
        self.read(data)
        return data

    def grants_of(self, name: str) -> Iterator[Grant]:
        """Return all grants of a user, by roles too; of one that is locked, or not there, none."""
        user = self.users.get(name)
        if user is not None and not user.locked:
            yield from user.grants
            for role in user.roles:
                yield from self.roles[role]

    def limits_of(self, name: str) -> tuple[float, ...]:
        """Return a user's limits, one for each row of the table (UD4)."""
        user = self.users.get(name)
        of_roles = [self._limits_at(ROLE + role) for role in (() if user is None else user.roles)]
        found: tuple[float, ...] = OF_USER
        for values in (self._limits_at(ALL_USERS), most_generous(of_roles), self._limits_at(name)):
            found = limits_with(found, values)
        return found

    def _limits_at(self, name: str) -> LimitValues:
        return self.limits.get(name, {})

    def _faults(self) -> Iterator[tuple[str, str]]:
        """Find what is wrong beyond its types: places, and what is wrong there."""
        yield from self._wrong_limits()
        for role, grants in self.roles.items():
            yield from _wrong_name(f"roles.{role}", role)
            yield from _wrong_grants(f"roles.{role}", grants)
        key_ids = set[str]()
        certificates = set[str]()
        for name, user in self.users.items():
            place = f"users.{name}"
            yield from _wrong_name(place, name)
            yield from _wrong_grants(f"{place}.grants", user.grants)
            for n, role in enumerate(user.roles):
                if role not in self.roles:
                    yield f"{place}.roles[{n}]", f"there is no role {role!r:.100}"
            if len(user.tokens) > MAX_TOKENS_OF_USER:
                yield f"{place}.tokens", f"a user has at most {MAX_TOKENS_OF_USER} tokens at a time"
            for n, token in enumerate(user.tokens):
                if token.key_id in key_ids:
                    yield f"{place}.tokens[{n}]", "another token has this key id"
                if token.expires is not None and token.expires.tzinfo is None:
                    yield f"{place}.tokens[{n}].expires", "give a time with its time zone"
                key_ids.add(token.key_id)
            for n, certificate in enumerate(user.certificates):
                if not certificate or certificate in certificates:
                    yield f"{place}.certificates[{n}]", "give a name that no other user has"
                certificates.add(certificate)

    def _wrong_limits(self) -> Iterator[tuple[str, str]]:
        for name, limits in self.limits.items():
            is_role = name.startswith(ROLE) and name.removeprefix(ROLE) in self.roles
            if not (name == ALL_USERS or is_role or name in self.users):
                yield f"limits.{name}", "there is no such user or role"
            wrong = wrong_limits(limits)
            if wrong is not None:
                yield f"limits.{name}", wrong


class _UndecodedUsers(Struct, forbid_unknown_fields=True):
    """A document of which nothing by name is decoded yet, so that errors name them."""

    version: Literal[1]
    users: dict[str, msgspec.Raw] = field(default_factory=dict)
    roles: dict[str, msgspec.Raw] = field(default_factory=dict)
    limits: dict[str, msgspec.Raw] = field(default_factory=dict)


def _decoded(data: bytes | msgspec.Raw, kind: type[T], place: str, whole: bytes) -> T:
    """Decode a part. Raises InvalidArgument, with its place in the document."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        text = str(error)
        at = _AT_BYTE.search(text)
        if at is not None and not place:
            text = f"{text}, line {whole[: int(at[1])].count(10) + 1}"
        elif "`$" in text:
            text = text.replace("`$", f"`${place}", 1)
        elif place:
            text = f"{text} - at `${place}`"
        raise InvalidArgument(text) from None


def _wrong_name(place: str, name: str) -> Iterator[tuple[str, str]]:
    if NAME.fullmatch(name) is None:
        yield place, "a name has 1 to 200 of A-Z a-z 0-9 . _ - and does not begin with a dot"


def _wrong_grants(place: str, grants: tuple[Grant, ...]) -> Iterator[tuple[str, str]]:
    for n, grant in enumerate(grants):
        wrong = grant.wrong()
        if wrong is not None:
            yield f"{place}[{n}]", wrong
