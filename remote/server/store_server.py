"""The owner's side of sharing: a server over any object with the methods of a store.

SV1. One thread waits for all connections, and answers what needs no waiting itself; commits
    that are there at once share one write, whichever streams and connections they come by. What
    takes long, or waits, is done by other threads (`ServerThreads`): an idle connection has none,
    and neither has a lone client's short request to be handed over. A get that waits for a message
    is put aside (`WaitingGets`), without a thread, and goes on in this one as soon as something may
    be there. The connections take turns: of each `REQUESTS_AT_ONCE` are begun, then the others'.
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
import os
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from quire.arguments import Bytes
from quire.calls.wake_up import Condition, Thread
from quire.env import ENDED, HANG_UP, READ, Env, after_fork, socket_events
from quire.env.interpreter import Lock
from quire.errors import ConnectionLost, QuireError, RemoteError, StoreClosed
from quire.libraries.late_modules import load_rest
from quire.remote.limits import (
    ACCEPT_PAUSE_SECONDS,
    DRAIN_LOOK_SECONDS,
    EVENTS_AT_ONCE,
    FINISH_SECONDS,
    HEARTBEAT_SECONDS,
    HEAVY_BYTES,
    LONG_JOINED_SECONDS,
    LOOK_SECONDS,
    MAX_CONNECTIONS,
    MAX_SILENCE_SECONDS,
    MAX_WAIT_SECONDS,
    MAX_WAITING,
    RECEIVE_BYTES,
    REQUESTS_AT_ONCE,
    WAKES_AT_ONCE,
)
from quire.remote.wire import protocol
from quire.remote.wire.protocol import COMMIT, PUT
from quire.remote.wire.sockets import accept, close, file_limit

from . import awaited_sources, open_streams, served_client, served_connection, waiting_gets
from .entrance import Entrance
from .server_threads import ServerThreads
from .signals import SignalFlag
from .undecided import Undecided

if TYPE_CHECKING:
    from quire.remote.wire.protocol import Header

    from .network_entrance import AdmitsUsers
    from .open_streams import OpenStreams
    from .served_client import Answers, PreparedDecisions, ServedClient, ServedStore
    from .served_connection import Rest, ServedConnection
    from .waiting_gets import GetOutcome, WaitingGet, WaitingGets

_log = logging.getLogger("quire.remote")
_GONE: Final = "the client is gone"
_CANCELLED: Final = "the client has cancelled it"
_CLOSING: Final = "the owner has closed the store: open it again"
_OWNERS: Final = ("quire.engine.", "quire.interface.", "quire.remote.server.", "quire.rows.")
_servers: Final[weakref.WeakSet[StoreServer]] = weakref.WeakSet()


Commits = list[tuple["ServedConnection", "ServedClient", Bytes]]
Events = list[tuple[int, int]]  # files, and the flags of each


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
        self._path = os.path.abspath(path)
        self._let_go = give_way
        self.epoch: Final = f"{env.random_u64():016x}"
        self.url: str | None = None
        self.failure: Exception | None = None  # why it could not start in the background
        self.is_closing = False  # no more requests are taken
        self._is_draining = False  # no more transactions are begun
        self._process_id = os.getpid()
        self._changed = Condition(Lock())
        self._connections: dict[int, ServedConnection] = {}
        self._max_connections = MAX_CONNECTIONS
        self._clients = 0
        self.own_helpers = set[int]()  # processes of this owner, which are not waited for
        self._left_at = time.monotonic()  # when the last client left
        self._heartbeat_seconds = HEARTBEAT_SECONDS
        self._looked_at = self._left_at  # for silent clients
        self._workers = ServerThreads(self._changed)
        self._unread: deque[ServedConnection] = deque()  # with requests that came and are not begun
        self._closed = False
        self._starter: threading.Thread | None = None
        self._undecided = Undecided(store)
        self._entering = Lock()
        self._entrance: Entrance | None = None
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._loader: threading.Thread | None = (
            None  # of what is late, once it has been here a while
        )
        self._waiters: set[ServedClient] = set()
        self._waiting_gets: WaitingGets | None = None  # from the first one on
        self._errands: deque[Callable[[], None]] = deque()  # for the server's own thread
        self._is_called = False  # it is woken for them, or about to look
        self._events = socket_events()
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
            self._entrance = Entrance(self._env, self._path, self.epoch, url)
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
            self._max_connections = min(MAX_CONNECTIONS, file_limit())
            if self._stop is None or self._call is None:
                self._stop, self._call = SignalFlag(), SignalFlag()
                self._events.register(self._stop.fileno(), READ)
                self._events.register(self._call.fileno(), READ)
                atexit.register(self.close)
            self._thread = Thread(target=self._run, name="quire-serve")
            try:
                self._thread.start()
            except BaseException:  # there is no thread to be had: nobody waits for it
                self._thread = None
                raise
        self.url = str(entrance.url)
        return self.url

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
                    _log.warning("%s cannot be joined by other processes: %s", self._path, error)
                self.failure = error
            else:
                self.failure = None
        self._end_silent()

    def expect_heartbeats(self, seconds: float) -> None:
        """Have clients at ports that come from now on give signs so often that none is missed."""
        self._heartbeat_seconds = seconds

    def _end_silent(self) -> None:
        """Cut off clients that have given no sign for too long (CL9)."""
        now = time.monotonic()
        seconds, self._looked_at = min(now - self._looked_at, MAX_SILENCE_SECONDS), now
        for connection in list(self._connections.values()):
            if connection.add_silence(seconds):
                _log.warning(
                    "a client of %s has given no sign for %.3g s, and is cut off",
                    self._path,
                    connection.silent_seconds,
                )
                connection.cut()

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
        self._end_waits(deadline)
        if thread is not None and self._stop is not None:
            self._stop.set()
            thread.join(FINISH_SECONDS)
            if self._loader is not None:
                self._loader.join(FINISH_SECONDS)
            if not thread.is_alive():
                self._end_left()
        close(listener)
        connections = list(self._connections.values())
        working = [each for each in connections if each.role is not protocol.Role.WATCH]
        self._end_all(working, deadline)
        self._end_all(connections, deadline)
        self._workers.stop()
        self._wait_until(lambda: self._workers.count == 0, deadline + FINISH_SECONDS)
        _servers.discard(self)
        self._close_events()
        entrance.close()

    def _end_waits(self, deadline: float) -> None:
        """Have requests that wait learn of the close, and those under way finish."""
        for client in [*self._waiters, *(get.requester for get in self._all_gets())]:
            client.interrupt(_CLOSING)
        self._wait_until(lambda: self._workers.busy == 0 and not self._waiting_gets, deadline)

    def _end_left(self) -> None:
        """Do what is left of the server's own thread, which has ended."""
        while self._run_errands():
            pass
        for get in self._all_gets():
            if get.requester.get is get:
                self._end(get.requester.connection)

    def _all_gets(self) -> list[WaitingGet]:
        """Return those that wait."""
        return [] if self._waiting_gets is None else self._waiting_gets.all()

    def _wait_until(self, condition: Callable[[], bool], deadline: float) -> None:
        self._changed.wait_until(condition, max(0.0, deadline - time.monotonic()))

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

    def drain(self, seconds: float) -> None:
        """Begin no more transactions, and let those that are open end, for so long at most."""
        self._is_draining = True
        until = time.monotonic() + seconds
        while self._has_open() and time.monotonic() < until:
            time.sleep(DRAIN_LOOK_SECONDS)

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
            "clients": self._clients,
            "connections": len(self._connections),
            "waiting": len(self._waiters) + len(self._all_gets()),
            "threads": 1 + self._workers.count,
            "error": None if self.failure is None else str(self.failure),
        }

    # Connections

    def _how_more(self) -> str:
        """Advise how to let more connections in, where open files are what bounds them."""
        if self._max_connections == MAX_CONNECTIONS:
            return ""
        return f"; process {os.getpid()}, the owner, could have more open files (ulimit -n)"

    def admit(
        self, connection: ServedConnection, hello: Header
    ) -> tuple[Header, OpenStreams[ServedClient]]:
        """A client says hello."""
        store: ServedStore = self._store
        undecided: PreparedDecisions = self._undecided
        if connection.access is not None:
            store = connection.access.admit(hello.get("token"), connection, store)
            undecided = store.decisions(undecided)  # type: ignore[attr-defined]
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
                    f"not in use{self._how_more()}"
                )
            connection.role = protocol.Role(hello["role"])
            connection.is_client = (
                connection.role is protocol.Role.WATCH
                and hello.get("process_id") not in self.own_helpers
            )
            self._clients += connection.is_client
        ready = partial(self._tell_ready, connection)
        context = served_client.StreamContext(
            connection,
            awaited_sources.AwaitedSources(store, ready),
            store,
            undecided,
            _client_name(hello),
            self,
            self._waiting_on,
            self.when_failed,
        )

        def make(streams: OpenStreams[ServedClient], is_call: bool) -> ServedClient:
            return served_client.ServedClient(streams, context, is_call)

        answer: dict[str, object] = {
            "op": "hello",
            "epoch": self.epoch,
            "path": self._path,
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
        connection = served_connection.ServedConnection(channel, self, self._scratch, access)
        self._connections[connection.fd] = connection
        self._events.register(channel, READ)
        return connection

    def _accept(self, listener: socket.socket) -> None:
        try:
            while True:
                self.adopt(accept(listener))
        except BlockingIOError:
            pass
        except OSError as error:
            if self._closed:
                return
            _log.warning("a process could not be let in to %s: %s", self._path, error)
            self._arm(listener.fileno(), 0)
            Thread(target=self._accept_again, name="quire-serve").start()

    def _accept_again(self) -> None:
        time.sleep(ACCEPT_PAUSE_SECONDS)
        if self._listener is not None:  # it may be another one than before
            self._arm(self._listener.fileno(), READ)

    # Requests, by the server's own thread (CL1, CL4)

    def _serve(
        self, connection: ServedConnection, event: int, commits: Commits, events: Events
    ) -> None:
        """Something came on a connection, one of those with events: begin its requests."""
        try:
            if connection.is_reading:
                frame = connection.receive()
                if frame is not None:
                    self._begin_requests(connection, frame, commits, events)
            elif connection.is_paused and event & ENDED:
                self._end(connection)
        except served_connection.Gone:
            self._end(connection)
        except Exception:  # noqa: BLE001 the others are served on
            self._cut_off(connection)

    def _serve_all_unread(self, commits: Commits, events: Events) -> None:
        """Go on with what has come on connections whose turn it is again."""
        for _ in range(min(len(self._unread), EVENTS_AT_ONCE)):
            self._serve_unread(self._unread.popleft(), commits, events)

    def _serve_unread(self, connection: ServedConnection, commits: Commits, events: Events) -> None:
        if connection.is_paused or connection.gone:
            return
        connection.is_reading = True
        try:
            frame = connection.next()
            if frame is not None:
                self._begin_requests(connection, frame, commits, events)
        except served_connection.Gone:
            self._end(connection)
        except Exception:  # noqa: BLE001 the others are served on
            self._cut_off(connection)

    def _begin_requests(
        self, connection: ServedConnection, frame: Bytes | None, commits: Commits, events: Events
    ) -> None:
        """Begin requests that came together, as many as this connection may in a turn."""
        streams, wire = connection.streams, connection.wire
        assert streams is not None
        busy, count, shares = connection.busy, 0, False
        while frame is not None:
            client = streams.client_of(frame)
            has_more = wire.rest or (connection.reads_ahead and connection.has_unread())
            kind = frame[4]
            is_put = kind == PUT
            if busy and self._keep(connection, client, frame):
                pass
            elif (not is_put or len(frame) > HEAVY_BYTES) and client.is_heavy(frame):
                self._hand_over(connection, client, served_connection.Rest(frame=frame))
            elif (is_put or kind == COMMIT) and client is not streams.own:
                if shares or has_more:  # until its turn has come others of the connection may end
                    shares = True
                    busy.add(client)
                commits.append((connection, client, frame))
            else:
                self._answer(connection, client, frame)
            if not has_more:
                return
            count += 1
            share = REQUESTS_AT_ONCE // (len(events) + len(self._unread) + 1)
            if count >= share or not connection.is_reading:
                if connection.is_reading:
                    connection.is_reading = False
                    self._unread.append(connection)
                return
            frame = connection.next()

    def _keep(self, connection: ServedConnection, client: ServedClient, frame: Bytes) -> bool:
        """Keep a request if one of its stream is under way; a CANCEL ends that one."""
        if frame[4] == protocol.CANCEL:
            stream = protocol.STREAM.unpack_from(frame)[0]
            for found in list(connection.busy):
                if found.stream == stream:
                    return self._cancel(connection, found, frame)
            return False
        if client not in connection.busy or not connection.keep(client, frame):
            return False
        self._pause_if_full(connection)
        return True

    def _cancel(self, connection: ServedConnection, client: ServedClient, frame: Bytes) -> bool:
        """End the request that is under way on a stream, then its transaction."""
        is_kept = connection.keep_cancel(client, frame)
        if is_kept and client.get is not None:
            self._take_up(client.get)
            self._finish(connection, client)
        elif is_kept:
            self._interrupt(client, _CANCELLED)
        return is_kept

    def _interrupt(self, client: ServedClient, reason: str) -> None:
        """End what a request of a stream waits for, by another thread, as that may take a while."""
        found = client.under_way()
        if found:
            self._workers.add(partial(served_client.end_transactions, found, reason))

    def _answer(self, connection: ServedConnection, client: ServedClient, frame: Bytes) -> None:
        """Answer a request, a commit perhaps while others do."""
        try:
            answer = client.answer(frame)
        except served_client.MustWait:
            self._hand_over(connection, client, served_connection.Rest(frame=frame))
            return
        if answer is not None or client in connection.busy:
            self._reply(connection, client, answer)

    def _reply(self, connection: ServedConnection, client: ServedClient, answer: Answers) -> None:
        """Send an answer, or leave that to others; what is kept of its stream is begun then."""
        try:
            if isinstance(answer, bytes):
                if not connection.send(answer):
                    self._leave_unsent(connection)
            elif answer is None:
                pass
            elif isinstance(answer, waiting_gets.WaitingGet):
                connection.busy.add(client)
                self._put_aside(client, answer)
                return
            else:
                self._hand_over(connection, client, served_connection.Rest(answer=answer))
                return
        except served_connection.Gone:
            self._end(connection)
        except Exception:  # noqa: BLE001 the others are served on
            self._cut_off(connection)
        if client in connection.busy:
            self._finish(connection, client)
        elif connection.streams is not None:
            connection.streams.release(client)

    def _finish(self, connection: ServedConnection, client: ServedClient) -> None:
        connection.finish(client)
        self._settle(connection)

    def _hand_over(self, connection: ServedConnection, client: ServedClient, rest: Rest) -> None:
        """Another thread does the rest of a request; its stream is busy until then."""
        connection.add_job(client, rest)
        self._settle(connection)
        self._pause_if_full(connection)

    def _leave_unsent(self, connection: ServedConnection) -> None:
        """Not all of the answers could be sent: another thread does that, or is at it."""
        if connection.needs_sender():
            self._workers.add(partial(self._send, connection))
        self._pause_if_full(connection)

    def _pause_if_full(self, connection: ServedConnection) -> None:
        """Read a connection no further until there is room (CL7)."""
        if connection.has_room() or connection.is_paused or connection.gone:
            return
        connection.is_reading, connection.is_paused = False, True
        self._arm(connection.fd, HANG_UP)
        if connection.has_room():  # looked at after that: who makes room may have missed it
            self._resume(connection)

    def _resume(self, connection: ServedConnection) -> None:
        """Read on, what has come first."""
        if connection.is_paused and connection.has_room() and not connection.gone:
            connection.is_paused = False
            self._arm(connection.fd, READ)
            self._unread.append(connection)

    # Requests, by other threads

    def _settle(self, connection: ServedConnection) -> None:
        """Go on with a connection after a change: begin jobs, read on, end it."""
        while (job := connection.next_job()) is not None:
            self._workers.add(partial(self._work, connection, *job))
        if connection.gone:
            self._close(connection)
        elif connection.is_paused and connection.has_room():
            self._post(partial(self._resume, connection))

    def _work(self, connection: ServedConnection, client: ServedClient, rest: Rest) -> None:
        """Do a job."""
        try:
            self._do_rest(connection, client, rest)
        except Exception:  # noqa: BLE001 the others are served on
            _log.exception("a client of %s is cut off", self._path)
            connection.cut()
            self._finish(connection, client)
        connection.finish_job(rest)
        self._send(connection)

    def _do_rest(self, connection: ServedConnection, client: ServedClient, rest: Rest) -> None:
        """Do the rest of a request, waiting as need be, and leave its answer to be sent."""
        answer: Answers = None
        if connection.gone or (client.is_cancelled and not _is_cancel(rest.frame)):
            pass  # nobody reads it
        elif rest.frame is not None:
            answer = client.answer(rest.frame)
        elif rest.get is not None:
            answer = client.try_again(rest.get)
        else:
            answer = rest.answer
        if isinstance(answer, waiting_gets.WaitingGet):
            if answer is rest.get:
                self._post(partial(self._note_tried, client, answer, again=True))
            else:
                self._post(partial(self._put_aside, client, answer))
            return
        more = None
        if isinstance(answer, bytes):
            connection.add_answer((answer,))
        elif answer is not None:
            first = next(answer, None)
            if first is not None:
                more = served_connection.LongAnswer(client, answer)
                connection.add_answer(first, more)
        if more is None:
            self._finish(connection, client)
        if rest.get is not None:
            self._post(partial(self._note_tried, client, rest.get, again=False))

    def _send(self, connection: ServedConnection) -> None:
        """Send what is unsent, as a thread that counts among those of the connection."""
        try:
            for client in connection.send_unsent():
                if client is not None:
                    connection.finish(client)
                self._settle(connection)
        except Exception:  # noqa: BLE001 the others are served on
            _log.exception("a client of %s is cut off", self._path)
            connection.cut()
        if connection.gone:
            self._post(partial(self._end, connection))
        self._settle(connection)
        connection.leave()
        if connection.gone:
            self._close(connection)

    # The end of connections

    def _cut_off(self, connection: ServedConnection) -> None:
        _log.exception("a client of %s is cut off", self._path)
        self._end(connection)

    def _end(self, connection: ServedConnection) -> None:
        """End a connection, by the server's own thread, or the one that closes it (SV2, CL8)."""
        if connection.closed:
            return
        if not connection.is_ended:
            with suppress(OSError, ValueError):
                self._events.unregister(connection.fd)
        for client in connection.end():
            client.close()
        for client in list(connection.busy):
            if client.get is not None:
                self._take_up(client.get)
                connection.finish(client)
            else:
                client.is_cancelled = True
                self._interrupt(client, _GONE)
        if connection.needs_sender():  # who ends the answers that nobody reads any more
            self._workers.add(partial(self._send, connection))
        self._settle(connection)

    def _close(self, connection: ServedConnection) -> None:
        """Let go of a connection that is gone, if nobody works on it any more. By any thread."""
        if not connection.close(partial(self._connections.pop, connection.fd, None)):
            return
        with self._changed:
            if connection.role is not None:
                self._clients -= connection.is_client
                self._left_at = time.monotonic()
        streams = connection.streams
        if streams is not None and streams.holds and not self.is_closing:
            self._store.let_go_of(streams)

    def _end_all(self, connections: list[ServedConnection], deadline: float) -> None:
        for connection in connections:
            connection.take_no_more()
        for connection in connections:
            if connection.busy or connection.threads:  # the time for that is over
                connection.cut()
            elif not connection.closed:
                self._answer_last(connection, deadline)
            self._end(connection)

    def _answer_last(self, connection: ServedConnection, deadline: float) -> None:
        """Answer what has come, until its end. All is refused by now, so nothing waits."""
        with suppress(served_connection.Gone):
            while not connection.gone and time.monotonic() < deadline:
                frame = connection.next() or connection.receive()
                if frame is not None:
                    assert connection.streams is not None
                    self._answer(connection, connection.streams.client_of(frame), frame)
                elif connection.is_read_to_its_end:
                    break
        self._wait_until(lambda: not connection.threads, deadline)

    def _tell_ready(self, connection: ServedConnection, source: str) -> None:
        """A client awaits the source; called by any thread, under a queue's lock."""
        self._post(partial(self._send_ready, connection, source.encode()))

    def _send_ready(self, connection: ServedConnection, source: bytes) -> None:
        """Tell a client that a source is ready (CL5)."""
        if connection.gone:
            return
        try:
            head = protocol.HEAD.pack(len(source), protocol.READY, protocol.CONNECTION)
            if not connection.send(head + source):
                self._leave_unsent(connection)
        except served_connection.Gone:
            self._end(connection)

    @contextmanager
    def _waiting_on(self, client: ServedClient) -> Iterator[None]:
        """A request of a stream waits for other clients: its end is to be noticed (SV2)."""
        if threading.current_thread() is self._thread:
            raise served_client.MustWait
        with self._changed:
            if len(self._waiters) >= MAX_WAITING:
                raise RemoteError(
                    f"{MAX_WAITING} requests wait in the owner of the store, as many as may: try "
                    "again, or wait less long"
                )
            self._waiters.add(client)
        connection = client.connection
        connection.begin_wait()
        try:
            self._settle(connection)
            if self.is_closing or client.is_cancelled:
                raise StoreClosed(_CLOSING if self.is_closing else _CANCELLED)
            yield
        finally:
            connection.end_wait()
            with self._changed:
                self._waiters.discard(client)

    def _arm(self, fd: int, events: int) -> None:
        """Be told of the next of these events."""
        with suppress(OSError, ValueError):  # it was closed meanwhile
            self._events.modify(fd, events)

    # Gets that wait (see `WaitingGets`), by the server's own thread

    def _await_get(
        self, source: str, callback: Callable[[], None], taker: object
    ) -> Callable[[], None] | None:
        return self._store.await_get(source, callback, taker)

    def _put_aside(self, client: ServedClient, get: WaitingGet) -> None:
        """Have a get wait until its source may have something (SV1)."""
        if client.connection.gone or client.is_cancelled:
            self._finish(client.connection, client)
            return
        get.requester, client.get = client, get
        try:
            if self._waiting_gets is None:
                self._waiting_gets = waiting_gets.WaitingGets(
                    self._await_get,
                    self._try_get,
                    self._end_get,
                    self._post,
                    self._env.monotonic,
                )
            self._waiting_gets.add(get)
        except RemoteError as error:
            client.get = None
            self._reply(client.connection, client, client.refuse_wait(get, error))
        else:
            if self.is_closing:  # looked at after that: `close` may have missed it
                client.interrupt(_CLOSING)

    def _take_up(self, get: WaitingGet) -> None:
        """Let a get wait no more."""
        get.requester.get = None
        self._leave(get)
        self._tell_closing()

    def _leave(self, get: WaitingGet) -> None:
        if self._waiting_gets is not None:
            self._waiting_gets.leave(get)

    def _try_get(self, get: WaitingGet) -> GetOutcome:
        """Try a get again; one that may take long by another thread."""
        client: ServedClient = get.requester
        client.get = None
        if get.is_heavy:
            self._hand_over(client.connection, client, served_connection.Rest(get=get))
            return waiting_gets.GetOutcome.ELSEWHERE
        answer = client.try_again(get)
        if answer is get:
            client.get = get
            return waiting_gets.GetOutcome.NOTHING
        self._leave(get)
        self._reply(client.connection, client, answer)
        return waiting_gets.GetOutcome.ANSWERED

    def _end_get(self, get: WaitingGet) -> None:
        """A get has waited in vain."""
        client: ServedClient = get.requester
        client.get = None
        self._reply(client.connection, client, client.end_wait(get))
        self._tell_closing()

    def _note_tried(self, client: ServedClient, get: WaitingGet, *, again: bool) -> None:
        """Another thread has tried a get; `again`: it has found nothing."""
        if again and (client.connection.gone or client.is_cancelled):
            self._finish(client.connection, client)
            again = False
        if again:  # else it may have another one by now
            client.get = get
        if self._waiting_gets is not None:
            self._waiting_gets.tried(get, is_answered=not again)
        self._tell_closing()

    def _tell_closing(self) -> None:
        if self.is_closing and not self._waiting_gets:
            with self._changed:
                self._changed.notify_all()

    def _post(self, errand: Callable[[], None]) -> None:
        """Have the server's own thread do something; called by any, under any lock."""
        self._errands.append(errand)
        if not self._is_called and threading.current_thread() is not self._thread:
            self._is_called = True
            call = self._call
            if call is not None:
                with suppress(OSError):  # it was closed meanwhile
                    call.set()

    def _run_errands(self) -> bool:
        """Do what was posted, and go on with gets that wait; True: there is more of them."""
        try:
            while self._errands:
                self._errands.popleft()()
            waiting = self._waiting_gets
            return waiting is not None and waiting.turn(WAKES_AT_ONCE)
        except Exception:  # noqa: BLE001 the others are served on
            _log.exception("a get that waits in %s could not go on", self._path)
            return True

    def _time_left(self, idle: float, has_more: bool) -> float:
        """Seconds, at most `idle`, until there is more to do for the gets that wait."""
        if has_more or self._waiting_gets is None:
            return 0.0
        return min(idle, max(0.0, self._waiting_gets.next_time()))

    # The server's own thread (SV1)

    def _notice(self, fd: int) -> bool:
        """Something is to be noticed that is no connection's; False: the end."""
        if self._stop is not None and fd == self._stop.fileno():
            return False
        if self._call is not None and fd == self._call.fileno():
            self._call.clear()
            self._is_called = False  # before it looks: who posts now calls again
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
        poll, connections, unread = self._events.poll, self._connections, self._unread
        goes_on, is_new, has_more = True, True, False
        while goes_on:
            commits: Commits = []
            idle = LONG_JOINED_SECONDS if is_new else MAX_WAIT_SECONDS
            left = self._time_left(idle, has_more) if has_more or self._waiting_gets else idle
            events = poll(left, EVENTS_AT_ONCE)
            if is_new and not events and left == idle:
                is_new = False
                self._loader = Thread(target=load_rest, args=(_OWNERS,))
                self._loader.start()
            if unread:
                self._serve_all_unread(commits, events)
            for fd, event in events:
                connection = connections.get(fd)
                if connection is not None:
                    self._serve(connection, event, commits, events)
                elif not self._notice(fd):
                    goes_on = False  # when what was read is answered
            if len(commits) == 1:
                self._answer(*commits[0])
            elif commits:
                self._store.together(partial(self._answer, *commit) for commit in commits)
            if unread or self._errands or self._waiting_gets:
                has_more = self._run_errands() or bool(unread or self._errands)
            elif has_more:
                has_more = False


def _is_cancel(frame: Bytes | None) -> bool:
    return frame is not None and frame[4] == protocol.CANCEL


def _client_name(hello: Header) -> str:
    """Whose transactions those of a connection are."""
    process_id = hello.get("process_id")
    who = f"process {process_id}" if type(process_id) is int else "a process"
    return f"{who} over the socket"


def _abandon_in_child(parent: int) -> None:
    for server in list(_servers):
        server.abandon()


after_fork(_abandon_in_child)
