"""A store that this process owns, and that serves other processes while it is open."""

from __future__ import annotations

import weakref

from quire.engine import EmbeddedStore
from quire.env import Env
from quire.store import Status
from quire.uninterrupted import held

from .server import StoreServer


class SharedStore(EmbeddedStore):
    """An owned store with a server in the background, from `share` to `close`."""

    _server: StoreServer | None = None

    def share(self, env: Env) -> StoreServer:
        """Start the server, once."""
        if self._server is None:
            # The server keeps nobody from dropping the store.
            self._server = StoreServer(weakref.proxy(self), env, self.path)
            self._server.start_in_background()
        return self._server

    def status(self) -> Status:
        """Numbers on everything, with those of the sharing."""
        status = super().status()
        if self._server is not None:
            status["sharing"] = self._server.status()
        return status

    def close(self) -> None:
        """Let the clients go first: whoever finds the lock free finds no server in its way."""
        if self._server is not None:
            held(self._server.close)
        super().close()

    def _give_up(self) -> bool:
        if self._server is not None:
            self._server.close()
        return super()._give_up()
