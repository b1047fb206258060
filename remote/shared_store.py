"""A store that this process owns, and that serves other processes while it is open."""

from __future__ import annotations

import os
import weakref
from typing import Final

from quire.engine import Store
from quire.env import Env

from .server import StoreServer


class SharedStore(Store):
    """An owned store with a server in the background, from `share` to `close`."""

    _server: StoreServer | None = None

    def share(self, env: Env) -> StoreServer:
        """Start the server, once."""
        if self._server is None:
            self._server = StoreServer(self, env, self.path)
            self._server.start_in_background()
            _open_stores.add(self)
        return self._server

    def close(self) -> None:
        """Let the clients go first: whoever finds the lock free finds no server in its way."""
        if self._server is not None:
            self._server.close()
        super().close()


_open_stores: Final[weakref.WeakSet[SharedStore]] = weakref.WeakSet()


def _abandon_in_child() -> None:
    for store in list(_open_stores):
        store.abandon(
            f"this store object belongs to process {os.getppid()}, from which this one was forked:"
            " open the store here again"
        )


os.register_at_fork(after_in_child=_abandon_in_child)
