"""A store that this process owns, and that serves other processes while it is open.

- Where the store fails (promise 11), its owner gives way as soon as another process has joined it,
  or would: it refuses what comes, and lets go of the lock without writing. Who takes over recovers.
  As long as nobody is there, reads go on.
- Its store object stays failed, and never takes part in an election again: where every process sees
  the same broken disk, each of them owns the store once at most.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from quire.calls.signal_safety import defer_signals
from quire.calls.wake_up import Thread
from quire.engine import EmbeddedStore
from quire.env import Env
from quire.interface.store import Status
from quire.libraries.late_imports import importing
from quire.remote.server.store_server import StoreServer

if TYPE_CHECKING:
    from quire.remote.server.stream_context import ServedStore

    from .shipper_process import ShipperProcess


class SharedStore(EmbeddedStore):
    """An owned store with a server in the background, from `share` to `close`."""

    _server: StoreServer | None = None
    _shipper: ShipperProcess | None = None  # once the store has an archive
    _gives_way = False

    def share(self, env: Env) -> StoreServer:
        """Start the server, once."""
        if self._server is None:
            # The server keeps nobody from dropping the store.
            me = weakref.proxy(self)
            self._server = StoreServer(me, env, self.path, lambda: me.give_way())  # noqa: PLW0108 - a bound method would hold it
            self._maintenance.when_failed = self._server.when_failed

            def look() -> None:
                with suppress(ReferenceError):  # it is being dropped
                    me._look()

            self._maintenance.when_in_place = look
            self._server.start_in_background()
        return self._server

    def on_shutdown(self, callback: Callable[[float], None] | None) -> None:
        """Let clients with the right to it shut the store down: it is given the grace (EO1)."""
        self._context.registry.on_shutdown = callback

    def note_drain(self) -> None:
        """No more transactions of clients are begun from now on: who asks why is told so."""
        self._context.registry.is_draining = True

    def _look(self) -> None:
        """See that clients can come in, and that the shipper runs if there is an archive."""
        server, unshipped = self._server, self._opened.places.unshipped
        if server is None:
            return
        server.look()
        if self._shipper is None and unshipped.is_on and self._maintenance.has_thread:
            with importing():
                from .shipper_process import ShipperProcess

            self._shipper = ShipperProcess(
                self._env,
                self.path,
                lambda: unshipped.is_on,
                lambda: unshipped.calls,
                server.own_helpers,
            )
        if self._shipper is not None:
            self._shipper.look()

    def give_way(self) -> None:
        """The store has failed, and another process would recover it: let go of it, once."""
        if not self._gives_way:
            self._gives_way = True
            # In a thread of its own: this may be one that the end of the store waits for.
            Thread(target=self.let_go_failed, name="quire-let-go").start()

    def let_go_failed(self) -> None:
        """Let go of a store that has failed, its clients first."""
        if self._shipper is not None:
            self._shipper.close(seconds=0.0)
        if self._server is not None:
            self._server.close()
        super().let_go_failed()

    def status(self) -> Status:
        """Numbers on everything, with those of the sharing."""
        status = super().status()
        if self._server is not None:
            status["sharing"] = self._server.status()
        if self._shipper is not None and "archive" in status:
            status["archive"]["process_id"] = self._shipper.process_id
        return status

    @property
    def unready(self) -> str:
        """The reason why others cannot work with the store as ever: also that it is ending."""
        why = super().unready
        if not why and self._server is not None and self._server.is_draining:
            return "no more transactions are begun, as this owner is about to end"
        return why

    def close(self) -> None:
        """Let the clients go first: whoever finds the lock free finds no server in its way.

        Of these the shipper goes first, once it has shipped what there is (SP3).
        """
        if self._shipper is not None and self._closed is None:
            defer_signals(self._shipper.close)
        if self._server is not None:
            defer_signals(self._server.close)
        super().close()
        if self._shipper is not None:  # one that was started meanwhile
            self._shipper.close(seconds=0.0)

    def _give_up(self) -> bool:
        if self._shipper is not None:
            self._shipper.close(seconds=0.0)
        if self._server is not None:
            self._server.close()
        return super()._give_up()


if TYPE_CHECKING:  # the server has it by a proxy, of which nothing is checked
    _served: type[ServedStore] = EmbeddedStore
