"""Names that a reader holds at the server of its store, from whatever host it reads.

YSN1. They are a lease, which a thread renews for as long as the process lives; so they are free
    NAMES_SECONDS after a process was killed. A server that was started anew is asked for them
    again, and who comes too late knows it by `held`.
- The server locks them as readers of its own machine do, so both keep each other away.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from quire.calls.wake_up import Thread, WakeUp
from quire.errors import PositionLost, QueueInUse, QuireError
from quire.spark_graphs import connection
from quire.spark_graphs.limits import NAMES_SECONDS


class ServedNames:
    """A lock of names at a server, until `release`."""

    in_place = True

    def __init__(self, path: str, names: Sequence[str]) -> None:
        """Raises QueueInUse for a name that is held by another reader."""
        self._path = path
        self._names = list(names)
        self._lease_id = self._take()
        self._held = True
        self._ended = WakeUp()
        Thread(target=self._run, name="quire-held-names").start()

    @property
    def held(self) -> bool:
        """True until `release`, or until another reader has got them (YSN1)."""
        return self._held

    def release(self) -> None:
        """Let go of them; twice is once."""
        if self._held:
            self._held = False
            self._ended.set()
            with suppress(QuireError):  # they are free soon in any case
                connection.store_at(self._path).integration.end_lease(self._lease_id)

    def _take(self) -> int:
        return connection.call(
            self._path, lambda store: store.integration.lease_names(self._names, NAMES_SECONDS)
        )

    def _run(self) -> None:
        while not self._ended.wait(NAMES_SECONDS / 3) and self._held:
            try:
                self._renew()
            except QueueInUse:
                self._held = False
            except QuireError:
                continue  # the server cannot be reached: it has them still, or is asked again

    def _renew(self) -> None:
        integration = connection.store_at(self._path).integration
        try:
            integration.renew_lease(self._lease_id, NAMES_SECONDS)
        except PositionLost:
            self._lease_id = self._take()
