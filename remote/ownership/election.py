"""The election of a store's owner among the processes that have it open.

- The lock of the directory alone decides. Who gets it recovers the store before anybody can join,
  so that a successor has all that its predecessor acknowledged, and all that was prepared.
- EL2: who can neither own nor join has changed nothing, and may try again. A candidate writes
  nothing before it has the lock.
- The options of `open` hold when this process becomes the owner. What is fixed when a store is made
  is the store's: a successor does not insist on its own.

What may go wrong, and what becomes of it:

| what | becomes |
|---|---|
| the owner closes | it ends what is under way, refuses the rest, unlocks: a candidate owns |
| the owner is killed | the kernel frees its lock: a candidate owns and recovers |
| a candidate dies while it recovers | the same again: recovery can be repeated (promise 8) |
| all candidates try at once | one has the lock, the others join it as soon as it serves |
| a stale address | nobody answers, or an owner of another epoch, who refuses: not joined |
| only the connection is lost | the owner has the lock: it is joined again, in the same epoch |
| the store cannot be opened | each candidate has that error, and tries again now and then |
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from quire.engine.layout import Layout, naming_salvage
from quire.engine.options import Options, check_fixed
from quire.env import Env, check_file_system
from quire.errors import InvalidArgument, StoreLocked
from quire.libraries.late_imports import importing, load
from quire.limits import JOIN_POLL_SECONDS
from quire.remote.client import joining
from quire.remote.limits import LONG_JOINED_SECONDS, MAX_PREPARATION_SECONDS
from quire.remote.wire.address import read_address

if TYPE_CHECKING:
    from quire.remote.client.owner_session import OwnerSession

    from .shared_store import SharedStore


class Election:
    """One process' part in it. Thread-safe."""

    def __init__(
        self,
        env: Env,
        path: str,
        options: dict[str, Any],
        *,
        background: bool = True,
        owner: str = "",
    ) -> None:
        """`owner` describes this process to others. Raises InvalidArgument for unusable options."""
        known = Options.of(options)
        self._call_timeout = known.call_timeout
        self._network = known.network_file_system
        self.path: Final = path
        self._env = env
        self._options = {**options, "background": background}
        self._owner = owner

    def own(self, *, create: bool) -> SharedStore:
        """Own the store and serve it. Raises StoreLocked, and what opening it raises."""
        return self._own(self._options, create=create)

    def join_owner(self) -> OwnerSession | None:
        """A session with the owner, where one serves and holds the lock; else None.

        So who joins has not loaded the engine. Raises InvalidArgument as `own` and `join`.
        """
        if read_address(self._env, self.path) is not None:
            with suppress(OSError):  # which `own` tells
                if self._env.is_locked(Layout(self.path).lock):
                    check_file_system(self._env, self.path, network=self._network)
                    return self.join()
        return None

    def join(self) -> OwnerSession | None:
        """A session with the owner, if one can be reached.

        Raises InvalidArgument if the store was made with other options than are asked for.
        """
        joined = joining.begin_session(self._env, self.path, self._call_timeout)
        if joined is not None:
            try:
                check_fixed(self._options, joined.connection.fixed_options)
            except InvalidArgument:
                joined.close()
                raise
        return joined

    def forbidden(self) -> str | None:
        """Return the path that this process may not use on its way to the owner, if any."""
        return joining.forbidden(self._env, self.path)

    def succeed(self) -> SharedStore | OwnerSession | None:
        """Own the store, or join who does; None if neither can be done at this moment (EL2)."""
        try:
            return self._own(self._options, create=False)
        except StoreLocked:
            return joining.begin_session(self._env, self.path, self._call_timeout)

    @property
    def pause_seconds(self) -> float:
        """Seconds until the next try to own or join."""
        return JOIN_POLL_SECONDS

    @property
    def preparation_seconds(self) -> float:
        """Seconds from joining until `prepare`, drawn."""
        spread = MAX_PREPARATION_SECONDS - LONG_JOINED_SECONDS
        return LONG_JOINED_SECONDS + spread * self._env.random_u64() / (1 << 64)

    def prepare(self) -> None:
        """Import now whatever owning a store needs."""
        load("quire.remote.ownership.shared_store")

    def _own(self, options: dict[str, Any], *, create: bool) -> SharedStore:
        with importing():
            from .shared_store import SharedStore  # the engine

        with naming_salvage(self.path):
            store = SharedStore.open(
                self.path, env=self._env, create=create, owner=self._owner, **options
            )
        store.share(self._env)
        return store
