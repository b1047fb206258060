"""The owner's side of sharing: a server over any object with the methods of a store.

SV1. One thread waits for all connections, and answers what needs no waiting itself; commits
    that are there at once share one write, whichever streams and connections they come by. What
    takes long, or waits, is done by other threads (`ServerThreads`): an idle connection has none,
    and neither has a lone client's short request to be handed over. A get that waits for a message
    is put aside (`WaitingGets`), without a thread, and goes on in this one as soon as something may
    be there. Users take turns, and so do the connections of each (TU1, TU2).
SV2. When a client's connection ends, however it ends, what was open in it is rolled back at once,
    also while a request of it waits.
SV3. `close` returns within bounded time, whatever the clients do: requests under way may finish,
    those that wait are told, what has come is refused. On a Unix socket of Linux nothing more can
    be sent then, and who tries knows that it was not: so an orderly end leaves no outcome unknown.
    Elsewhere what is sent in that moment has an unknown outcome (UNIX_SOCKETS_REFUSE). Clients
    learn of it, by the end of their watch, when all of that is answered.
SV4. In the child of a fork nothing of the parent's server goes on: its sockets are closed there,
    and are the parent's alone, so that clients see the parent's end.
- A second after its start, as soon as nobody asks anything, it loads what is still late: a command
    has ended by then, and no client of a process that stays waits for an import.
SV5. Where the store has failed and a client is there, nothing more is taken, and the store is let
    go of, so that a client may recover it.
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from quire.calls.wake_up import Condition, Thread
from quire.env import READ, Env, after_fork, socket_events
from quire.env.interpreter import Lock
from quire.errors import ConnectionLost, QuireError, RemoteError, StoreClosed
from quire.libraries.late_modules import load_rest
from quire.remote.access import use_account, use_limits
from quire.remote.limits import (
    ACCEPT_PAUSE_SECONDS,
    DRAIN_LOOK_SECONDS,
    FINISH_SECONDS,
    HEARTBEAT_SECONDS,
    LONG_JOINED_SECONDS,
    LOOK_SECONDS,
    MAX_CONNECTIONS,
    MAX_SILENCE_SECONDS,
    MAX_WAIT_SECONDS,
    POLLED_AT_ONCE,
    RECEIVE_BYTES,
    REQUESTS_AT_ONCE,
)
from quire.remote.wire import protocol
from quire.remote.wire.sockets import accept, close, file_limit

from . import (
    awaited_sources,
    open_streams,
    served_client,
    served_connection,
    stream_context,
    undecided,
)
from .entrance import Entrance
from .requests_under_way import Commits, RequestsUnderWay
from .signals import SignalFlag

if TYPE_CHECKING:
    from quire.remote.access.use_account import UseAccounts
    from quire.remote.wire.protocol import Header

    from .network_entrance import AdmitsUsers
    from .open_streams import OpenStreams
    from .served_client import ServedClient
    from .served_connection import ServedConnection
    from .stream_context import PreparedDecisions, ServedStore

_log = logging.getLogger("quire.remote")
_OWNERS: Final = ("quire.engine.", "quire.interface.", "quire.remote.server.", "quire.rows.")
_servers: Final[weakref.WeakSet[StoreServer]] = weakref.WeakSet()


class StoreServer:
    """Serves a store to other processes until `close`."""

    def __init__(
        self,
        store: ServedStore,
        env: Env,
        path: str,
        give_way: Callable[[], None] = lambda: None,
    ) -> None:
        """`give_way`: the store has failed, and is to be let go of for others (SV5)."""
        self._store = store
        self._env = env
        self.path = os.path.abspath(path)
        self._let_go = give_way
        self.epoch: Final = f"{env.random_u64():016x}"
        self.url: str | None = None
        self.failure: Exception | None = None  # why it could not start in the background
        self.is_closing = False  # no more requests are taken
        self._is_draining = False  # no more transactions are begun
        self._process_id = os.getpid()
        self._changed = Condition(Lock())
        self._connections: dict[int, ServedConnection] = {}
        self._max_connections = MAX_CONNECTIONS  # as the system has files for
        self._accounts: list[UseAccounts] = []  # the first one, once there is a client
        self._clients = 0
        self.own_helpers = set[int]()  # processes of this owner, which are not waited for
        self._left_at = time.monotonic()  # when the last client left
        self._heartbeat_seconds = HEARTBEAT_SECONDS
        self._looked_at = self._left_at  # for silent clients
        self._closed = False
        self._starter: threading.Thread | None = None
        self._undecided: undecided.Undecided | None = None  # from the first client on
        self._entering = Lock()
        self._entrance: Entrance | None = None
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._loader: threading.Thread | None = (
            None  # of what is late, once it has been here a while
        )
        self._events = socket_events()
        self._requests = RequestsUnderWay(
            store, env, self._events, self._connections, self._changed, self
        )
        self._scratch = memoryview(bytearray(RECEIVE_BYTES))  # its own thread receives into it
        self._stop: SignalFlag | None = None
        self._call: SignalFlag | None = None
        _servers.add(self)

    # Starting and closing

    def start(self, url: str | None = None) -> str:
        """Listen at the store's socket, or at `url`; the URL for clients."""
        with self._entering:
            return self._let_in(url)

    def _let_in(self, url: str | None = None) -> str:
        """Make what is not there, or not any more (EN1)."""
        if self._entrance is None:
            self._entrance = Entrance(self._env, self.path, self.epoch, url)
        entrance = self._entrance
        if not entrance.is_open:
            before, self._listener = self._listener, entrance.open()
            self._events.register(self._listener.fileno(), READ)
            if before is not None:
                self._events.unregister(before.fileno())
                close(before)
        if not entrance.is_announced:
            entrance.announce()
        if self._thread is None:
            self._max_connections = file_limit()
            if self._stop is None or self._call is None:
                self._stop, self._call = SignalFlag(), SignalFlag()
                self._events.register(self._stop.fileno(), READ)
                self._events.register(self._call.fileno(), READ)
                atexit.register(self.close)
            self._requests.thread = self._thread = Thread(target=self._run, name="quire-serve")
            try:
                self._thread.start()
            except BaseException:  # there is no thread to be had: nobody waits for it
                self._thread = None
                raise
        self.url = str(entrance.url)
        return self.url

    @property
    def accounts(self) -> UseAccounts:
        """The use of each user and of all clients, and its limits."""
        if not self._accounts:
            self._accounts.append(use_account.UseAccounts(self._env.monotonic))
        return self._accounts[0]  # also where two threads have made one

    def start_in_background(self) -> None:
        """Start in a thread of its own, so that opening a store need not wait for it."""
        starter = Thread(target=self.look, name="quire-serve")
        starter.start()
        self._starter = starter  # now that it can be waited for: `close` may come at any moment

    def look(self) -> None:
        """See that clients can come in (EN1); why not, `failure` tells, and the next look tries."""
        with self._entering:
            if self.is_closing:
                return
            try:
                self._let_in()
            except (QuireError, OSError, RuntimeError) as error:  # the last: no more threads
                if str(error) != str(self.failure):
                    _log.warning("%s cannot be joined by other processes: %s", self.path, error)
                self.failure = error
            else:
                self.failure = None
        self._end_late()

    def expect_heartbeats(self, seconds: float) -> None:
        """Have clients at ports that come from now on give signs so often that none is missed."""
        self._heartbeat_seconds = seconds

    def _end_late(self) -> None:
        """Cut off clients that gave no sign, or asked nothing, for too long; end long requests."""
        now = time.monotonic()
        seconds, self._looked_at = min(now - self._looked_at, MAX_SILENCE_SECONDS), now
        for connection in list(self._connections.values()):
            if connection.add_silence(seconds):
                _log.warning(
                    "a client of %s has given no sign for %.3g s, and is cut off",
                    self.path,
                    connection.silent_seconds,
                )
                connection.cut()
            elif connection.add_idle(seconds):
                error = connection.account.reached(use_limits.IDLE_SECONDS)
                _log.warning("a client of %s is cut off: %s", self.path, error)
                connection.cut()
            elif connection.busy and connection.account.limit(use_limits.CALL_SECONDS) < math.inf:
                self._requests.post(partial(self._requests.end_late, connection))

    def let_in(self, channel: socket.socket, access: AdmitsUsers | None) -> ServedConnection | None:
        """Serve a connection of another machine; None: no more of them. By any thread."""
        with self._entering:
            return None if self.is_closing else self.adopt(channel, access)

    def wait_started(self) -> str:
        """The URL for clients, once there is one. Raises what kept the server from starting."""
        if self._starter is not None:
            self._starter.join()
        if self.failure is not None:
            raise self.failure
        if self.url is None:
            raise StoreClosed("the store is not shared")
        return self.url

    def close(self) -> None:
        """Stop listening and end all connections (SV3). Twice is once."""
        if self._process_id != os.getpid():  # a forked child has nothing to close
            return
        with self._changed:
            if self._closed:
                return
            self._closed = self.is_closing = True
        if self._starter is not None:
            self._starter.join()
        atexit.unregister(self.close)
        with self._entering:
            entrance, listener, thread = self._entrance, self._listener, self._thread
            if entrance is None or listener is None:
                for connection in self._connections.values():
                    connection.abandon()
                self._close_events()
                return
            entrance.withdraw()
        deadline = time.monotonic() + FINISH_SECONDS
        self._requests.end_waits(deadline)
        if thread is not None and self._stop is not None:
            self._stop.set()
            thread.join(FINISH_SECONDS)
            if self._loader is not None:
                self._loader.join(FINISH_SECONDS)
            if not thread.is_alive():
                self._requests.end_left()
        close(listener)
        connections = list(self._connections.values())
        working = [each for each in connections if each.role is not protocol.Role.WATCH]
        self._requests.end_all(working, deadline)
        self._requests.end_all(connections, deadline)
        self._requests.workers.stop()
        self._requests.wait_until(
            lambda: self._requests.workers.count == 0, deadline + FINISH_SECONDS
        )
        _servers.discard(self)
        self._close_events()
        entrance.close()

    def abandon(self) -> None:
        """Close the sockets in the child of a fork (SV4), so that its own children have none."""
        _servers.discard(self)
        for connection in self._connections.values():
            connection.abandon()
        if self._listener is not None:
            self._listener.close()
        self._close_events()

    def _close_events(self) -> None:
        """Once: their numbers may be somebody else's files then."""
        self._events.close()
        flags, self._stop, self._call = (self._stop, self._call), None, None
        for flag in flags:
            if flag is not None:
                flag.close()

    def wait_until_idle(self, linger: float | None, stop: SignalFlag) -> None:
        """Return when no client has been connected for `linger` seconds, or `stop` is set.

        Also when the store has failed: who comes then opens it anew, and recovers.
        """
        if linger is None:
            while not (stop.wait(LOOK_SECONDS) or self._store.failed):
                pass
            return
        left = linger
        while not stop.wait(min(max(left, 0.02), 1.0)):
            with self._changed:
                left = linger - (0 if self._clients else time.monotonic() - self._left_at)
                if left <= 0 or self._store.failed:
                    self.is_closing = True  # whoever comes now is too late, and opens it again
                    return

    def drain(self, seconds: float, is_over: Callable[[], bool] = lambda: False) -> None:
        """Begin no more transactions, and let those that are open end, for so long at most.

        `is_over`: whether that is to end sooner.
        """
        self._is_draining = True
        until = time.monotonic() + seconds
        while self._has_open() and time.monotonic() < until and not is_over():
            time.sleep(DRAIN_LOOK_SECONDS)

    @property
    def is_draining(self) -> bool:
        """Return True if no more transactions are begun, or nobody is let in any more."""
        return self._is_draining or self.is_closing

    def _has_open(self) -> bool:
        """Return True if a client has a transaction open; none is begun from here on."""
        found = [each.streams for each in list(self._connections.values())]
        all_streams = [streams for streams in found if streams is not None]
        for streams in all_streams:
            streams.begin_no_more()
        return any(streams.has_open for streams in all_streams)

    def status(self) -> dict[str, object]:
        """For the store's `status`."""
        return {
            "process_id": self._process_id,
            "url": self.url,
            "draining": self._is_draining,
            "clients": self._clients,
            "connections": len(self._connections),
            "waiting": len(self._requests.waiters) + len(self._requests.all_gets()),
            "threads": 1 + self._requests.workers.count,
            "error": None if self.failure is None else str(self.failure),
            "limits": self.accounts.report(),
        }

    # Connections

    def admit(
        self, connection: ServedConnection, hello: Header
    ) -> tuple[Header, OpenStreams[ServedClient]]:
        """A client says hello."""
        try:
            return self._admit(connection, hello)
        except ReferenceError:  # the owner has dropped the store object, and is yet to close it
            raise ConnectionLost("the owner is closing the store: open it again") from None

    def _admit(
        self, connection: ServedConnection, hello: Header
    ) -> tuple[Header, OpenStreams[ServedClient]]:
        store: ServedStore = self._store
        if self._undecided is None:
            self._undecided = undecided.Undecided(store)
        decisions: PreparedDecisions = self._undecided
        account, access = self.accounts.in_all, connection.access
        if access is not None:
            guarded = access.admit(hello.get("token"), connection, store)
            store, decisions = guarded, guarded.decisions(decisions)
            access.tell_changes(self.accounts)
            account = self.accounts.of(guarded.user_name, access.limits_of)
        if hello.get("epoch") not in (None, self.epoch):
            raise ConnectionLost("the store was opened again since: open it here again too")
        with self._changed:
            if self._store.failed:
                self._give_way()
            if self.is_closing:
                raise ConnectionLost("the owner is closing the store: open it again")
            if len(self._connections) > self._max_connections:
                raise RemoteError(
                    f"the owner of the store has as many connections as it may, "
                    f"{self._max_connections}: end transactions, or close store objects that are "
                    f"not in use; process {os.getpid()}, the owner, could have more open files "
                    "(ulimit -n)"
                )
            account.take(use_limits.CONNECTIONS)
            connection.account, connection.is_counted = account, True
            connection.role = protocol.Role(hello["role"])
            connection.is_client = (
                connection.role is protocol.Role.WATCH
                and hello.get("process_id") not in self.own_helpers
            )
            self._clients += connection.is_client
        ready = partial(self._requests.tell_ready, connection)
        context = stream_context.StreamContext(
            connection,
            account,
            awaited_sources.AwaitedSources(store, ready),
            store,
            decisions,
            _client_name(hello),
            self,
            self._requests.waiting_on,
            self.when_failed,
        )

        def make(streams: OpenStreams[ServedClient], is_call: bool) -> ServedClient:
            return served_client.ServedClient(streams, context, is_call)

        answer: dict[str, object] = {
            "op": "hello",
            "epoch": self.epoch,
            "path": self.path,
            "store_id": self._store.integration.store_id,
            "process_id": os.getpid(),
            "fixed": self._store.fixed_options,
        }
        if hello.get("heartbeats") is True:
            connection.heartbeat_seconds = self._heartbeat_seconds
            answer["heartbeat_seconds"] = self._heartbeat_seconds
        streams = open_streams.OpenStreams(make, context.awaited)
        if self._is_draining:
            streams.begin_no_more()
        return answer, streams

    def when_failed(self) -> None:
        """Give way if the store has failed (SV5); called by any thread."""
        if self._clients and self._store.failed:
            self._give_way()

    def _give_way(self) -> None:
        self.is_closing = True
        self._let_go()

    def adopt(self, channel: socket.socket, access: AdmitsUsers | None = None) -> ServedConnection:
        """Serve a connection from now on; by any thread until `close`. `access`: to users alone."""
        connection = served_connection.ServedConnection(
            channel, self, self._scratch, self.accounts.in_all, access
        )
        self._connections[connection.fd] = connection
        self._events.register(channel, READ)
        return connection

    def note_end(self, connection: ServedConnection) -> None:
        """A connection is there no more."""
        if connection.is_counted:
            connection.account.give_back(use_limits.CONNECTIONS)
        with self._changed:
            if connection.role is not None:
                self._clients -= connection.is_client
                self._left_at = time.monotonic()

    def wake(self) -> None:
        """Have the server's own thread look."""
        call = self._call
        if call is not None:
            with suppress(OSError):  # it was closed meanwhile
                call.set()

    def _accept(self, listener: socket.socket) -> None:
        try:
            while True:
                self.adopt(accept(listener))
        except BlockingIOError:
            pass
        except OSError as error:
            if self._closed:
                return
            _log.warning("a process could not be let in to %s: %s", self.path, error)
            self._requests.arm(listener.fileno(), 0)
            Thread(target=self._accept_again, name="quire-serve").start()

    def _accept_again(self) -> None:
        time.sleep(ACCEPT_PAUSE_SECONDS)
        if self._listener is not None:  # it may be another one than before
            self._requests.arm(self._listener.fileno(), READ)

    # The server's own thread (SV1)

    def _notice(self, fd: int) -> bool:
        """Something is to be noticed that is no connection's; False: the end."""
        if self._stop is not None and fd == self._stop.fileno():
            return False
        if self._call is not None and fd == self._call.fileno():
            self._call.clear()
            self._requests.is_called = False  # before it looks: who posts now calls again
        elif self._listener is not None and fd == self._listener.fileno():
            self._accept(self._listener)
        else:
            self._forget(fd)
        return True

    def _forget(self, fd: int) -> None:
        """Wait no more for a file that nobody knows: its event would come again and again."""
        with self._entering:  # so that nobody is let in with this number meanwhile
            known = (self._listener, self._stop, self._call)
            if fd not in self._connections and all(
                each is None or each.fileno() != fd for each in known
            ):
                with suppress(OSError, ValueError):  # it was closed, which says the same
                    self._events.unregister(fd)

    def _run(self) -> None:
        poll, connections, requests = self._events.poll, self._connections, self._requests
        turns = requests.turns
        goes_on, is_new, has_more = True, True, False
        while goes_on:
            commits: Commits = []
            idle = LONG_JOINED_SECONDS if is_new else MAX_WAIT_SECONDS
            left = requests.time_left(idle, has_more) if has_more or requests.waiting_gets else idle
            events = poll(left, POLLED_AT_ONCE)
            if is_new and not events and left == idle:
                is_new = False
                self._loader = Thread(target=load_rest, args=(_OWNERS,))
                self._loader.start()
            is_alone = len(events) == 1 and not turns
            for fd, event in events:
                connection = connections.get(fd)
                if connection is not None:
                    if is_alone and connection.is_reading:  # a tenth less for its put
                        requests.serve(commits, connection, REQUESTS_AT_ONCE)
                    else:
                        requests.note_event(connection, event)
                elif not self._notice(fd):
                    goes_on = False  # when what was read is answered
            if turns and not is_alone:
                requests.take_turn(commits)
            if len(commits) == 1:
                requests.answer(*commits[0])
            elif commits:
                self._store.together(partial(requests.answer, *commit) for commit in commits)
            if turns or requests.errands or requests.waiting_gets:
                has_more = requests.run_errands() or bool(turns or requests.errands)
            elif has_more:
                has_more = False


def _client_name(hello: Header) -> str:
    """Whose transactions those of a connection are."""
    process_id = hello.get("process_id")
    who = f"process {process_id}" if type(process_id) is int else "a process"
    return f"{who} over the socket"


def _abandon_in_child(parent: int) -> None:
    for server in list(_servers):
        server.abandon()


after_fork(_abandon_in_child)
