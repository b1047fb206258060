"""The owner's side of sharing: a server over any object with the methods of a store.

SV1. One thread waits for all connections, and answers what needs no waiting itself; commits
    of several clients that are there at once share one write. What takes long, or waits, is done
    by other threads, `MAX_WORKERS` at most: an idle connection has none, and neither has a lone
    client's short request to be handed over. A get that waits for a message is put aside
    (`WaitingGets`), without a thread, and goes on in this one as soon as something may be there.
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
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from quire.arguments import Bytes
from quire.calls.wake_up import Condition, Thread
from quire.env import ENDED, HANG_UP, READ, WRITE, Env, after_fork, socket_events
from quire.env.interpreter import Lock
from quire.errors import ConnectionLost, QuireError, RemoteError, StoreClosed
from quire.libraries.late_modules import load_rest
from quire.remote.limits import (
    ACCEPT_PAUSE_SECONDS,
    EVENTS_AT_ONCE,
    FINISH_SECONDS,
    IDLE_WORKERS,
    LONG_JOINED_SECONDS,
    LOOK_SECONDS,
    MAX_CONNECTIONS,
    MAX_WAIT_SECONDS,
    MAX_WAITING,
    MAX_WORKERS,
    RECEIVE_BYTES,
    WAKES_AT_ONCE,
)
from quire.remote.wire import protocol
from quire.remote.wire.sockets import accept, close, file_limit

from . import awaited_sources, open_streams, served_client, served_connection, waiting_gets
from .entrance import Entrance
from .signals import SignalFlag
from .undecided import Undecided

if TYPE_CHECKING:
    from quire.remote.wire.protocol import Header

    from .network_entrance import NetworkEntrance
    from .open_streams import OpenStreams
    from .served_client import Answers, ServedClient, ServedStore
    from .served_connection import Rest, ServedConnection
    from .waiting_gets import GetOutcome, WaitingGet, WaitingGets

_log = logging.getLogger("quire.remote")
_CLOSING: Final = "the owner has closed the store: open it again"
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
        self._path = os.path.abspath(path)
        self._let_go = give_way
        self.epoch: Final = f"{env.random_u64():016x}"
        self.url: str | None = None
        self.failure: Exception | None = None  # why it could not start in the background
        self.is_closing = False  # no more requests are taken
        self._process_id = os.getpid()
        self._changed = Condition(Lock())
        self._connections: dict[int, ServedConnection] = {}
        self._max_connections = MAX_CONNECTIONS
        self._clients = 0
        self.own_helpers = set[int]()  # processes of this owner, which are not waited for
        self._left_at = time.monotonic()  # when the last client left
        self._workers = self._busy = 0
        self._jobs: SimpleQueue[tuple[ServedConnection, Rest] | None] = SimpleQueue()
        self._closed = False
        self._starter: threading.Thread | None = None
        self._undecided = Undecided(store)
        self._entering = Lock()
        self._entrance: Entrance | None = None
        self._network: NetworkEntrance | None = None
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._loader: threading.Thread | None = (
            None  # of what is late, once it has been here a while
        )
        self._waiters: set[ServedConnection] = set()
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

    def listen(self, network: NetworkEntrance) -> None:
        """Let clients in over the network, too. Raises RemoteError."""
        with self._entering:
            if not self.is_closing:
                self._network = network
                network.let_in(self.adopt)

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
                self._close_events()
                return
            entrance.withdraw()
            if self._network is not None:
                self._network.close()
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
        for _ in range(self._workers):
            self._jobs.put(None)
        self._wait_until(lambda: self._workers == 0, deadline + FINISH_SECONDS)
        _servers.discard(self)
        self._close_events()
        entrance.close()

    def _end_waits(self, deadline: float) -> None:
        """Have requests that wait learn of the close, and those under way finish."""
        for connection in [*self._waiters, *(get.requester for get in self._all_gets())]:
            self._interrupt(connection, _CLOSING)
        self._wait_until(lambda: self._busy == 0 and not self._waiting_gets, deadline)

    def _end_left(self) -> None:
        """Do what is left of the server's own thread, which has ended."""
        while self._run_errands():
            pass
        for get in self._all_gets():
            if get.requester.get is get:
                self._end(get.requester)

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
        if self._network is not None:
            self._network.abandon()
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

    def status(self) -> dict[str, object]:
        """For the store's `status`."""
        return {
            "process_id": self._process_id,
            "url": self.url,
            "clients": self._clients,
            "connections": len(self._connections),
            "waiting": len(self._waiters) + len(self._all_gets()),
            "threads": 1 + self._workers,
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
        awaited = awaited_sources.AwaitedSources(self._store, ready)
        name = _client_name(hello)

        def make(streams: OpenStreams[ServedClient]) -> ServedClient:
            return served_client.ServedClient(
                streams,
                awaited,
                self._store,
                self._undecided,
                name,
                self,
                lambda: self._waiting_on(connection),
                self.when_failed,
            )

        answer = {
            "op": "hello",
            "epoch": self.epoch,
            "path": self._path,
            "store_id": self._store.integration.store_id,
            "process_id": os.getpid(),
            "fixed": self._store.fixed_options,
        }
        return answer, open_streams.OpenStreams(make, awaited)

    def when_failed(self) -> None:
        """Give way if the store has failed (SV5); called by any thread."""
        if self._clients and self._store.failed:
            self._give_way()

    def _give_way(self) -> None:
        self.is_closing = True
        self._let_go()

    def adopt(self, channel: socket.socket) -> ServedConnection:
        """Serve a connection from now on; by any thread until `close`."""
        connection = served_connection.ServedConnection(channel, self, self._scratch)
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

    def _serve(self, connection: ServedConnection, event: int) -> Bytes | None:
        """Something came on a connection, or it ended; a commit that is to be done."""
        if connection.is_elsewhere:
            if event & ENDED:
                connection.gone = True
                if connection.get is not None:
                    self._end(connection)
                else:
                    self._interrupt(connection, "the client is gone")
            else:
                self._listen_to_end(connection)
            return None
        try:
            left = connection.send_news() or connection.serve()
        except served_connection.Gone:
            self._end(connection)
            return None
        except Exception:  # noqa: BLE001 the others are served on
            self._cut_off(connection)
            return None
        if event & WRITE:
            self._listen_to(connection)
        if left is None or type(left) is bytes:  # as nearly always
            return left
        return self._leave_to_others(connection, left)

    def _leave_to_others(
        self, connection: ServedConnection, left: Rest | WaitingGet | Bytes | None
    ) -> Bytes | None:
        """Hand over what is left to do, or put it aside; a commit that is to be done."""
        if isinstance(left, served_connection.Rest):
            self._hand_over(connection, left)
        elif isinstance(left, waiting_gets.WaitingGet):
            connection.is_elsewhere = True
            self._arm(connection.fd, HANG_UP)
            self._put_aside(connection, left)
        else:
            return left
        return None

    def _commit(self, connection: ServedConnection, frame: Bytes) -> None:
        """Answer a request that commits, perhaps while others do."""
        self._go_on(connection, partial(connection.answer, frame), is_waiting=False)

    def _go_on(
        self,
        connection: ServedConnection,
        action: Callable[[], Rest | WaitingGet | None],
        *,
        is_waiting: bool,
    ) -> None:
        """Answer a request by the server's own thread, then those that came with it.

        `is_waiting`: nothing was read until now.
        """
        try:
            left = action() or connection.next()
        except served_connection.Gone:
            self._end(connection)
        except Exception:  # noqa: BLE001 the others are served on
            self._cut_off(connection)
        else:
            if left is not None:
                self._leave_to_others(connection, left)
            elif is_waiting:
                connection.is_elsewhere = False
                self._listen_to(connection)

    def _cut_off(self, connection: ServedConnection) -> None:
        _log.exception("a client of %s is cut off", self._path)
        self._end(connection)

    def _tell_ready(self, connection: ServedConnection, source: str) -> None:
        """A client awaits the source; called by any thread, under a queue's lock."""
        connection.add_news(source)
        self._arm(connection.fd, READ | WRITE)

    def _listen_to(self, connection: ServedConnection) -> None:
        """Be told of what comes, and of when news can be sent."""
        self._arm(connection.fd, READ)
        if connection.has_news:  # looked at after that: who adds some now arms it, too
            self._arm(connection.fd, READ | WRITE)

    def _listen_to_end(self, connection: ServedConnection) -> None:
        """Be told of nothing but the end, for as long as another thread works on it."""
        self._arm(connection.fd, HANG_UP)
        if not connection.is_elsewhere:  # that thread is done, and may have armed it before
            self._listen_to(connection)

    def _end(self, connection: ServedConnection) -> None:
        """End a connection, by the thread that works on it (SV2)."""
        if connection.closed:
            return
        if connection.get is not None:
            self._take_up(connection.get)
        with suppress(OSError, ValueError):
            self._events.unregister(connection.fd)
        with self._changed:
            self._connections.pop(connection.fd, None)
            if connection.role is not None:
                self._clients -= connection.is_client
                self._left_at = time.monotonic()
        connection.close()

    def _end_all(self, connections: list[ServedConnection], deadline: float) -> None:
        for connection in connections:
            connection.take_no_more()
        for connection in connections:
            if connection.is_elsewhere:  # the time for that is over
                connection.cut()
            elif not connection.closed:
                connection.finish(deadline)
                self._end(connection)

    def _interrupt(self, connection: ServedConnection, reason: str) -> None:
        if connection.client is not None:
            connection.client.interrupt(reason)

    @contextmanager
    def _waiting_on(self, connection: ServedConnection) -> Iterator[None]:
        """A request of the connection waits for other clients: its end is to be noticed (SV2)."""
        if threading.current_thread() is self._thread:
            raise served_client.MustWait
        with self._changed:
            if len(self._waiters) >= MAX_WAITING:
                raise RemoteError(
                    f"{MAX_WAITING} requests wait in the owner of the store, as many as may: try "
                    "again, or wait less long"
                )
            self._waiters.add(connection)
        try:
            self._arm(connection.fd, HANG_UP)
            if self.is_closing:
                raise StoreClosed(_CLOSING)
            yield
        finally:
            with self._changed:
                self._waiters.discard(connection)

    def _arm(self, fd: int, events: int) -> None:
        """Be told of the next of these events."""
        with suppress(OSError, ValueError):  # it was closed meanwhile
            self._events.modify(fd, events)

    # Gets that wait (see `WaitingGets`), by the server's own thread

    def _await_get(
        self, source: str, callback: Callable[[], None], taker: object
    ) -> Callable[[], None] | None:
        return self._store.await_get(source, callback, taker)

    def _put_aside(self, connection: ServedConnection, get: WaitingGet) -> None:
        """Have a get wait until its source may have something (SV1)."""
        if connection.gone:
            self._end(connection)
            return
        connection.get = get
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
            connection.get = None
            refused = error
        else:
            if self.is_closing:  # looked at after that: `close` may have missed it
                self._interrupt(connection, _CLOSING)
            return
        self._answer_get(connection, lambda client: client.refuse_wait(get, refused))

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
        connection: ServedConnection = get.requester
        connection.get = None
        if get.is_heavy:
            self._hand_over(connection, served_connection.Rest(get=get))
            return waiting_gets.GetOutcome.ELSEWHERE
        assert connection.client is not None
        answer = connection.client.try_again(get)
        if answer is get:
            connection.get = get
            return waiting_gets.GetOutcome.NOTHING
        self._leave(get)
        self._go_on(connection, lambda: connection.reply(answer), is_waiting=True)
        return waiting_gets.GetOutcome.ANSWERED

    def _end_get(self, get: WaitingGet) -> None:
        """A get has waited in vain."""
        get.requester.get = None
        self._answer_get(get.requester, lambda client: client.end_wait(get))
        self._tell_closing()

    def _answer_get(
        self, connection: ServedConnection, answer: Callable[[ServedClient], Answers]
    ) -> None:
        client = connection.client
        assert client is not None
        self._go_on(connection, lambda: connection.reply(answer(client)), is_waiting=True)

    def _note_tried(self, connection: ServedConnection, get: WaitingGet, *, again: bool) -> None:
        """Another thread has tried a get; `again`: it has found nothing."""
        if again and connection.gone:
            self._end(connection)
            again = False
        if again:  # else it may have another one by now
            connection.get = get
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

    # Threads (SV1)

    def _run(self) -> None:
        """The server's own thread."""
        poll, connections = self._events.poll, self._connections
        goes_on, is_new, has_more = True, True, False
        while goes_on:
            commits: list[tuple[ServedConnection, Bytes]] = []
            idle = LONG_JOINED_SECONDS if is_new else MAX_WAIT_SECONDS
            left = self._time_left(idle, has_more) if has_more or self._waiting_gets else idle
            events = poll(left, EVENTS_AT_ONCE)
            if is_new and not events and left == idle:
                is_new = False
                self._loader = Thread(target=load_rest, args=(_OWNERS,))
                self._loader.start()
            for fd, event in events:
                connection = connections.get(fd)
                if connection is not None:
                    frame = self._serve(connection, event)
                    if frame is not None:
                        commits.append((connection, frame))
                elif self._stop is not None and fd == self._stop.fileno():
                    goes_on = False  # when what was read is answered
                elif self._call is not None and fd == self._call.fileno():
                    self._call.clear()
                    self._is_called = False  # before it looks: who posts now calls again
                elif self._listener is not None:
                    self._accept(self._listener)
            if len(commits) == 1:
                self._commit(*commits[0])
            elif commits:
                self._store.together(partial(self._commit, *commit) for commit in commits)
            has_more = bool(self._errands or self._waiting_gets) and self._run_errands()

    def _hand_over(self, connection: ServedConnection, rest: Rest) -> None:
        """Another thread does the rest; until then nothing is read, but the end is noticed."""
        connection.is_elsewhere = True
        self._arm(connection.fd, HANG_UP)
        with self._changed:
            self._busy += 1
            if self._busy > self._workers and self._workers < MAX_WORKERS:
                self._workers += 1
                Thread(target=self._work, name="quire-serve").start()
        self._jobs.put((connection, rest))

    def _work(self) -> None:
        """Another thread."""
        is_needed = True
        while is_needed and (job := self._jobs.get()) is not None:
            connection, rest = job
            del job
            get = None
            try:
                get = connection.go_on(rest)
            except served_connection.Gone:
                self._end(connection)
            except Exception:  # noqa: BLE001 the others are served on
                self._cut_off(connection)
            else:
                if get is None:
                    connection.is_elsewhere = False
                    self._listen_to(connection)
            if rest.get is not None:
                again = get is rest.get
                self._post(partial(self._note_tried, connection, rest.get, again=again))
            if get is not None and get is not rest.get:
                self._post(partial(self._put_aside, connection, get))
            del rest
            with self._changed:
                self._busy -= 1
                is_needed = self._workers - self._busy <= IDLE_WORKERS
                self._workers -= not is_needed
                self._changed.notify_all()
        if is_needed:
            with self._changed:
                self._workers -= 1
                self._changed.notify_all()


def _client_name(hello: Header) -> str:
    """Whose transactions those of a connection are."""
    process_id = hello.get("process_id")
    who = f"process {process_id}" if type(process_id) is int else "a process"
    return f"{who} over the socket"


def _abandon_in_child(parent: int) -> None:
    for server in list(_servers):
        server.abandon()


after_fork(_abandon_in_child)
