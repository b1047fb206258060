"""Access to a served store by users: who is let in, and what follows from a change of the file.

UA1. Who is let in is a user of the file, by a token of his, or by a certificate that an authority
    of the server has signed and that names him. Whoever is refused is told nothing of users: who
    they are, which tokens there are.
UA2. The file is looked at every `USERS_LOOK_SECONDS`. A change holds for all open connections then.
    Those of a user who is locked or removed are ended, with all that waits and is open on them, and
    those of a token or certificate that the user has no more.
UA3. A file that cannot be used leaves what was in force before; the log says what is wrong with it.
    A file that is gone is one of these.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

from quire.env import Env
from quire.env.interpreter import Lock
from quire.errors import InvalidArgument, NotAllowed
from quire.remote.limits import USERS_LOOK_SECONDS

from .audit_log import AuditLog
from .granted_rights import GrantedRights, Need
from .guarded_store import GuardedStore
from .refusals import Refusals
from .tokens import UserToken
from .users_document import TokenEntry, UsersDocument
from .users_file import UsersFile

_log = logging.getLogger("quire.remote")
_NO_RIGHTS: Final = GrantedRights(())
_REFUSED: Final = (
    "the server lets in no such user: give a token that is valid, as quire.open(..., token=...),"
    " QUIRE_TOKEN or ~/.config/quire/tokens, or a certificate of a user"
)


class AdmittedClient(Protocol):
    """The connection of a client that is to be let in."""

    def certificate_names(self) -> list[str]:
        """Return the names in a certificate that is trusted."""

    def address(self) -> str:
        """Return the host of the client."""

    def cut(self) -> None:
        """End the connection."""


class LimitListener(Protocol):
    """The accounts of users (see `UseAccounts`)."""

    def refresh(self) -> None:
        """Have the limits be those of this moment."""


class AdmittedUser:
    """A user as one connection has him: in force until that, or his admission, ends."""

    __slots__ = (
        "__weakref__", "_address", "_audit", "_cut", "certificate", "key_id", "name", "rights",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        client: AdmittedClient,
        audit: AuditLog | None,
        *,
        key_id: str | None = None,
        certificate: str | None = None,
    ) -> None:
        """`key_id`, `certificate`: by which he came."""
        self.name: Final = name
        self.rights = _NO_RIGHTS
        self.key_id: Final = key_id
        self.certificate: Final = certificate
        self._cut = client.cut
        self._address = client.address()
        self._audit = audit

    def note_call(self, call: str, needs: Iterable[Need], outcome: str) -> None:
        """Have a call that changes something in the audit log, if there is one."""
        if self._audit is not None:
            self._audit.note_call(self.name, self._address, call, needs, outcome)

    def note_refusal(self, need: Need) -> None:
        """Have a refusal in the audit log, if there is one."""
        if self._audit is not None:
            self._audit.note_refusal(self.name, self._address, str(need))

    def end(self) -> None:
        """Have no rights any more, and no connection."""
        self.rights = _NO_RIGHTS
        self._cut()


class UsersInForce:
    """The users of one state of the file."""

    def __init__(self, document: UsersDocument) -> None:
        self.document: Final = document
        self._rights: dict[str, GrantedRights] = {}  # of those that were asked for
        self._limits: dict[str, Sequence[float]] = {}

    def rights_of(self, name: str) -> GrantedRights:
        """Return the rights of a user; there are none for one that is locked, or not there."""
        found = self._rights.get(name)
        if found is None:
            found = self._rights[name] = GrantedRights(self.document.grants_of(name))
        return found

    def limits_of(self, name: str) -> Sequence[float]:
        """Return the limits of a user."""
        found = self._limits.get(name)
        if found is None:
            found = self._limits[name] = self.document.limits_of(name)
        return found

    def token(self, key_id: str) -> tuple[str | None, TokenEntry | None]:
        """Return a token and its user."""
        for name, user in self.document.users.items():
            for entry in user.tokens:
                if entry.key_id == key_id:
                    return name, entry
        return None, None

    def user_named(self, certificate_names: Iterable[str]) -> tuple[str, str] | None:
        """Return the user whom one of these names in a certificate stands for, and which."""
        for certificate in certificate_names:
            for name, user in self.document.users.items():
                if certificate in user.certificates:
                    return name, certificate
        return None


class UserAccess:
    """The users of one server. `look` is for one thread, the rest for any."""

    def __init__(self, env: Env, path: str, audit: str | None = None) -> None:
        """Read the file. Raises NotFound, InvalidArgument for one that cannot be used.

        `audit`: the file of the audit log.
        """
        self._env = env
        self._file: Final = UsersFile(env, path)
        self._version = self._file.version()
        self._users = UsersInForce(self._file.read_for_server())
        self._next_look = 0.0
        self._guard = Lock()  # of what follows
        self._admitted = weakref.WeakSet[AdmittedUser]()
        self._refusals: Final = Refusals()
        self._audit = None if audit is None else AuditLog(env, audit)
        self._listeners = weakref.WeakSet[LimitListener]()

    # Admission (UA1)

    def admit(self, token: object, client: AdmittedClient, store: Any) -> GuardedStore:
        """Return the store for whoever has this token, or certificate. Raises NotAllowed.

        `store`: a `ServedStore`.
        """
        try:
            return self._admit(token, client, store)
        except NotAllowed as error:
            address = client.address()
            self._refusals.note(address, self._env.monotonic(), str(error))
            if self._audit is not None:
                self._audit.note_refusal("", address, "admission")
            raise

    def pause_of(self, address: str) -> float:
        """Return the seconds that a client at the address waits for its handshake."""
        return self._refusals.pause_of(address)

    def limits_of(self, name: str) -> Sequence[float]:
        """Return the limits of a user at this moment."""
        return self._users.limits_of(name)

    def tell_changes(self, accounts: LimitListener) -> None:
        """Have accounts be told of changes of limits, as long as they are there."""
        with self._guard:
            self._listeners.add(accounts)

    def close(self) -> None:
        """Let go of the audit log."""
        if self._audit is not None:
            self._audit.close()

    def _admit(self, token: object, client: AdmittedClient, store: Any) -> GuardedStore:
        user = self._user_of(token, client)
        with self._guard:
            self._admitted.add(user)
        user.rights = self._users.rights_of(user.name)  # after that: no change is missed
        self._check_locked(user.name)
        return GuardedStore(store, user)

    def _user_of(self, token: object, client: AdmittedClient) -> AdmittedUser:
        if token is not None:
            name, key_id = self._user_by_token(token)
            return AdmittedUser(name, client, self._audit, key_id=key_id)
        found = self._users.user_named(client.certificate_names())
        if found is None:
            raise NotAllowed(_REFUSED)
        return AdmittedUser(found[0], client, self._audit, certificate=found[1])

    def _user_by_token(self, text: object) -> tuple[str, str]:
        """Return the user of a token and its key id (TO2)."""
        try:
            token = UserToken(text)
        except InvalidArgument:
            raise NotAllowed(_REFUSED) from None
        name, entry = self._users.token(token.key_id)
        fits = token.fits(None if entry is None else entry.sha256)
        if not fits or name is None or entry is None:
            raise NotAllowed(_REFUSED)
        if entry.has_expired(self._env.now_us()):
            raise NotAllowed(f"token {token.key_id} has expired: have `quire user token` make one")
        return name, token.key_id

    def _check_locked(self, name: str) -> None:
        user = self._users.document.users.get(name)
        if user is None or user.locked:
            raise NotAllowed(f"user {name} is locked: ask whoever keeps the server's users")

    # Changes (UA2)

    def seconds_to_look(self) -> float:
        """Return the seconds until the file is looked at again."""
        return max(0.0, self._next_look - self._env.monotonic())

    def look(self) -> None:
        """Look at the file if it is time to, and have changes of it hold."""
        if self._env.monotonic() < self._next_look:
            return
        now = self._env.monotonic()
        self._next_look = now + USERS_LOOK_SECONDS
        self._refusals.look(now)
        version = self._file.version()
        is_new = version != self._version
        self._version = version
        if is_new:
            self._read_again()
        with self._guard:
            admitted, listeners = list(self._admitted), list(self._listeners)
        for accounts in listeners if is_new else ():
            accounts.refresh()
        for user in admitted:
            if not self._is_welcome(user):
                user.end()
            elif is_new:
                user.rights = self._users.rights_of(user.name)

    def _read_again(self) -> None:
        try:
            self._users = UsersInForce(self._file.read_for_server())
        except Exception as error:  # noqa: BLE001 whatever it is, somebody has to look at the file
            _log.error("the users before stay in force: %s", error)
        else:
            _log.info("the users of %s are in force", self._file.path)

    def _is_welcome(self, user: AdmittedUser) -> bool:
        """Return True if this user would be let in again."""
        entry = self._users.document.users.get(user.name)
        if entry is None or entry.locked:
            return False
        if user.key_id is None:
            return user.certificate in entry.certificates
        now = self._env.now_us()
        return any(e.key_id == user.key_id and not e.has_expired(now) for e in entry.tokens)
