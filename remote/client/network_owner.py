"""The owner of a store behind one of several addresses, which is found again when it is lost.

- The addresses are tried in turn, from the one after the latest. Each round in which nobody
    answers is followed by a pause, twice as long each time, a part of which is random: so many
    clients that lost one server do not come back to it at once.
"""

from __future__ import annotations

from quire.env import Env
from quire.errors import CertificateRefused, ConnectionLost, LimitReached, QuireError
from quire.limits import JOIN_POLL_SECONDS
from quire.remote.access.tokens import UserToken
from quire.remote.limits import MAX_RECONNECT_SECONDS, MAX_WAIT_SECONDS
from quire.remote.wire.address import urls_of
from quire.tls import Tls

from .owner_session import OwnerSession


class NetworkOwner:
    """The way of one store object to whichever owner answers. Used by one thread at a time."""

    def __init__(
        self,
        env: Env,
        url: str,
        tls: Tls | None,
        call_timeout: float,
        token: UserToken | None = None,
    ) -> None:
        self.path = url  # of the owner, as that has it, once it is known
        self._env = env
        self._urls = urls_of(url)
        self._tls = tls
        self._token = token
        self._call_timeout = call_timeout
        self._pause = JOIN_POLL_SECONDS
        self._store_id: int | None = None  # once it is known

    def join(self) -> OwnerSession:
        """Begin a session with the owner at the first address that answers.

        Raises ConnectionLost where none does, or what the first one that does refuses with.
        """
        refusals: list[QuireError] = []
        for _ in self._urls:
            url = self._urls.pop(0)
            self._urls.append(url)
            try:
                session = OwnerSession(
                    url, call_timeout=self._call_timeout, tls=self._tls, token=self._token
                )
            except ConnectionLost as error:
                refusals.append(error)
            except CertificateRefused as error:
                refusals.insert(0, CertificateRefused(f"{url}: {error}"))
            else:
                if self._store_id in (None, session.store_id):
                    self._store_id, self.path = session.store_id, session.path
                    self._pause = JOIN_POLL_SECONDS
                    return session
                session.close()
                refusals.append(ConnectionLost(f"{url} is another store than before"))
        if isinstance(refusals[0], CertificateRefused) or len(refusals) == 1:
            raise refusals[0]
        raise ConnectionLost("; ".join(map(str, refusals)))

    def succeed(self) -> OwnerSession | None:
        """Join the next owner; None if nobody answers at this moment, or lets one more in.

        Raises CertificateRefused.
        """
        try:
            return self.join()
        except (ConnectionLost, LimitReached):
            return None

    @property
    def pause_seconds(self) -> float:
        """Seconds until the next try; a random part of twice as many as before."""
        self._pause = min(2 * self._pause, MAX_RECONNECT_SECONDS)
        return self._pause * (0.5 + self._env.random_u64() / (1 << 65))

    @property
    def preparation_seconds(self) -> float:
        """Seconds from joining until `prepare`: it is never needed."""
        return MAX_WAIT_SECONDS

    def prepare(self) -> None:
        """Nothing is to be loaded: this process owns no store of another machine."""
