"""Keeps leases from running out for as long as the process that planned with them lives."""

from __future__ import annotations

from functools import cache

from quire.calls.wake_up import Thread
from quire.env import OsEnv
from quire.env.interpreter import Lock
from quire.errors import QuireError
from quire.spark_graphs import connection
from quire.spark_graphs.limits import LEASE_SECONDS


@cache
def renewal_of(path: str, process: int) -> Renewal:
    """Return a process's renewal, which batches of graphs share.

    `process`: its id, as it may be forked."""
    return Renewal(path)


class Renewal:
    """Renews leases in a daemon thread. A failure shows in the tasks: they check what they read."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = Lock()
        self._lease_ids: list[int] = []
        Thread(target=self._run, name="quire-lease-renewal").start()

    def add(self, lease_id: int) -> None:
        with self._lock:
            self._lease_ids.append(lease_id)

    def remove(self, lease_id: int) -> None:
        """Give up one lease."""
        with self._lock:
            if lease_id in self._lease_ids:
                self._lease_ids.remove(lease_id)
        connection.call(self._path, lambda store: store.integration.end_lease(lease_id))

    def release(self) -> None:
        """Give up all leases. One that cannot be given up now runs out by itself."""
        with self._lock:
            lease_ids, self._lease_ids = self._lease_ids, []
        for lease_id in lease_ids:
            try:
                connection.store_at(self._path).integration.end_lease(lease_id)
            except QuireError:
                return

    def _run(self) -> None:
        while True:
            OsEnv().sleep(LEASE_SECONDS / 3)
            with self._lock:
                lease_ids = list(self._lease_ids)
            for lease_id in lease_ids:
                try:
                    connection.store_at(self._path).integration.renew_lease(lease_id, LEASE_SECONDS)
                except QuireError:
                    continue
