"""The requests under way at an owner: begun by the server's thread, done by it or by others.

- What belongs to a connection is in its `ServedConnection` (CL1 to CL8), and the threads are those
    of `ServerThreads`; here is who does what of a request, when (SV1), and how its end finds it
    wherever it is (SV2).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from quire.arguments import Bytes
from quire.calls.wake_up import Condition
from quire.env import ENDED, HANG_UP, READ, Env
from quire.errors import LimitReached, RemoteError, StoreClosed
from quire.remote.access import use_limits
from quire.remote.limits import (
    HEAVY_BYTES,
    WAKES_AT_ONCE,
)
from quire.remote.wire import protocol

from . import served_connection, stream_context, waiting_gets
from .server_threads import ServerThreads
from .serving_turns import ServingTurns

if TYPE_CHECKING:
    from quire.env.seam import SocketEvents

    from .served_client import Answers, ServedClient
    from .served_connection import Rest, ServedConnection
    from .stream_context import ServedStore
    from .waiting_gets import GetOutcome, WaitingGet, WaitingGets

_log = logging.getLogger("quire.remote")
_GONE: Final = "the client is gone"
_CANCELLED: Final = "the client has cancelled it"
_CLOSING: Final = "the owner has closed the store: open it again"

Commits = list[tuple["ServedConnection", "ServedClient", Bytes]]


class RequestedServer(Protocol):
    """The server, as far as its requests have to do with it."""

    path: str
    is_closing: bool

    def wake(self) -> None:
        """Have the server's own thread look. By any thread."""

    def note_end(self, connection: ServedConnection) -> None:
        """A connection is there no more. By any thread."""


class RequestsUnderWay:
    """The requests of all connections of one server."""

    def __init__(
        self,
        store: ServedStore,
        env: Env,
        events: SocketEvents,
        connections: dict[int, ServedConnection],
        changed: Condition,
        server: RequestedServer,
    ) -> None:
        """`connections`: by the files of their sockets. `changed`: notified as requests end."""
        self._store = store
        self._env = env
        self._events = events
        self._connections = connections
        self._changed = changed
        self._server = server
        self.thread: threading.Thread | None = None  # the server's own, once it has started
        self.workers = ServerThreads(changed)
        self.turns: Final = ServingTurns()
        self.waiters: set[ServedClient] = set()
        self.waiting_gets: WaitingGets | None = None  # from the first one on
        self.errands: deque[Callable[[], None]] = deque()  # for the server's own thread
        self.is_called = False  # it is woken for them, or about to look

    def end_waits(self, deadline: float) -> None:
        """Have requests that wait learn of the close, and those under way finish."""
        for client in [*self.waiters, *(get.requester for get in self.all_gets())]:
            client.interrupt(_CLOSING)
        self.wait_until(lambda: self.workers.busy == 0 and not self.waiting_gets, deadline)

    def end_left(self) -> None:
        """Do what is left of the server's own thread, which has ended."""
        while self.run_errands():
            pass
        for get in self.all_gets():
            if get.requester.get is get:
                self.end(get.requester.connection)

    def all_gets(self) -> list[WaitingGet]:
        """Return those that wait."""
        return [] if self.waiting_gets is None else self.waiting_gets.all()

    # Requests, by the server's own thread (CL1, CL4)

    def note_event(self, connection: ServedConnection, event: int) -> None:
        """Something came on a connection, which stands in line for its turn then."""
        if connection.is_reading:
            self.turns.add(connection)
        elif connection.is_paused and event & ENDED:
            self.end(connection)

    def take_turn(self, commits: Commits) -> None:
        """Begin requests that came, but for commits: these are the caller's."""
        self.turns.take(partial(self.serve, commits))

    def serve(self, commits: Commits, connection: ServedConnection, share: int) -> int:
        """Begin requests of a connection, so many at most; return how many."""
        if connection.is_paused or connection.is_ended:
            return 0
        connection.is_reading = True
        try:
            if connection.gone:  # it was cut, perhaps while it stood in line
                raise served_connection.Gone
            frame = (connection.next() if connection.wire.rest else None) or connection.receive()
            if frame is not None:
                return self._begin_requests(connection, frame, commits, share)
        except served_connection.Gone:
            self.end(connection)
        except Exception:  # noqa: BLE001 the others are served on
            self._cut_off(connection)
        return 0

    def _begin_requests(
        self, connection: ServedConnection, frame: Bytes | None, commits: Commits, share: int
    ) -> int:
        """Begin requests that came together, so many at most; return how many."""
        streams, wire = connection.streams, connection.wire
        over_tls = connection.over_tls
        assert streams is not None
        busy, count, shares = connection.busy, 0, False
        while frame is not None:
            client = streams.client_of(frame)
            has_more = wire.rest or (over_tls is not None and over_tls.has_unread)
            kind = frame[4]
            if kind != protocol.PING:
                connection.has_request = True
            is_put = kind == protocol.PUT
            if busy and self._keep(connection, client, frame):
                pass
            elif (not is_put or len(frame) > HEAVY_BYTES) and client.is_heavy(frame):
                self._hand_over(connection, client, served_connection.Rest(frame=frame))
            elif (is_put or kind == protocol.COMMIT) and client is not streams.own:
                if shares or has_more:  # until its turn has come others of the connection may end
                    shares = True
                    busy.add(client)
                commits.append((connection, client, frame))
            else:
                self.answer(connection, client, frame)
            count += 1
            if not has_more:
                return count
            if count >= share or not connection.is_reading:
                if connection.is_reading:
                    self.turns.add(connection)
                return count
            frame = connection.next()
        return count

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
            self.workers.add(partial(stream_context.end_transactions, found, reason))

    def end_late(self, connection: ServedConnection) -> None:
        """End requests that take longer than their user may have them take (CL11)."""
        since = time.monotonic() - connection.account.limit(use_limits.CALL_SECONDS)
        for client in [each for each in list(connection.busy) if each.began < since]:
            found = client.under_way()
            if found and client.late is None:
                client.late = late = client.account.reached(use_limits.CALL_SECONDS)
                end = stream_context.end_transactions
                self.workers.add(partial(end, found, str(late), LimitReached))

    def answer(self, connection: ServedConnection, client: ServedClient, frame: Bytes) -> None:
        """Answer a request, a commit perhaps while others do."""
        try:
            answer = client.answer(frame)
        except stream_context.MustWait:
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
            self.end(connection)
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
            self.workers.add(partial(self._send, connection), connection.account)
        self._pause_if_full(connection)

    def _pause_if_full(self, connection: ServedConnection) -> None:
        """Read a connection no further until there is room (CL7)."""
        if connection.has_room() or connection.is_paused or connection.gone:
            return
        connection.is_reading, connection.is_paused = False, True
        self.arm(connection.fd, HANG_UP)
        if connection.has_room():  # looked at after that: who makes room may have missed it
            self._resume(connection)

    def _resume(self, connection: ServedConnection) -> None:
        """Read on, what has come first."""
        if connection.is_paused and connection.has_room() and not connection.gone:
            connection.is_paused = False
            self.arm(connection.fd, READ)
            self.turns.add(connection)

    # Requests, by other threads

    def _settle(self, connection: ServedConnection) -> None:
        """Go on with a connection after a change: begin jobs, read on, end it."""
        while (job := connection.next_job()) is not None:
            self.workers.add(partial(self._work, connection, *job), connection.account)
        if connection.gone:
            self._close(connection)
        elif connection.is_paused and connection.has_room():
            self.post(partial(self._resume, connection))

    def _work(self, connection: ServedConnection, client: ServedClient, rest: Rest) -> None:
        """Do a job."""
        try:
            try:
                self._do_rest(connection, client, rest)
            finally:
                client.end_answer()
        except Exception:  # noqa: BLE001 the others are served on
            _log.exception("a client of %s is cut off", self._server.path)
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
                self.post(partial(self.note_tried, client, answer, again=True))
            else:
                self.post(partial(self._put_aside, client, answer))
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
            self.post(partial(self.note_tried, client, rest.get, again=False))

    def _send(self, connection: ServedConnection) -> None:
        """Send what is unsent, as a thread that counts among those of the connection."""
        try:
            for client in connection.send_unsent():
                if client is not None:
                    connection.finish(client)
                self._settle(connection)
        except Exception:  # noqa: BLE001 the others are served on
            _log.exception("a client of %s is cut off", self._server.path)
            connection.cut()
        if connection.gone:
            self.post(partial(self.end, connection))
        self._settle(connection)
        connection.leave()
        if connection.gone:
            self._close(connection)

    # The end of connections

    def _cut_off(self, connection: ServedConnection) -> None:
        _log.exception("a client of %s is cut off", self._server.path)
        self.end(connection)

    def end(self, connection: ServedConnection) -> None:
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
            self.workers.add(partial(self._send, connection), connection.account)
        self._settle(connection)

    def _close(self, connection: ServedConnection) -> None:
        """Let go of a connection that is gone, if nobody works on it any more. By any thread."""
        if not connection.close(partial(self._connections.pop, connection.fd, None)):
            return
        self._server.note_end(connection)
        streams = connection.streams
        if streams is not None and streams.holds and not self._server.is_closing:
            self._store.let_go_of(streams)

    def end_all(self, connections: list[ServedConnection], deadline: float) -> None:
        for connection in connections:
            connection.take_no_more()
        for connection in connections:
            if connection.busy or connection.threads:  # the time for that is over
                connection.cut()
            elif not connection.closed:
                self._answer_last(connection, deadline)
            self.end(connection)

    def _answer_last(self, connection: ServedConnection, deadline: float) -> None:
        """Answer what has come, until its end. All is refused by now, so nothing waits."""
        with suppress(served_connection.Gone):
            while not connection.gone and time.monotonic() < deadline:
                frame = connection.next() or connection.receive()
                if frame is not None:
                    assert connection.streams is not None
                    self.answer(connection, connection.streams.client_of(frame), frame)
                elif connection.is_read_to_its_end:
                    break
        self.wait_until(lambda: not connection.threads, deadline)

    def tell_ready(self, connection: ServedConnection, source: str) -> None:
        """A client awaits the source; called by any thread, under a queue's lock."""
        self.post(partial(self._send_ready, connection, source.encode()))

    def _send_ready(self, connection: ServedConnection, source: bytes) -> None:
        """Tell a client that a source is ready (CL5)."""
        if connection.gone:
            return
        try:
            head = protocol.HEAD.pack(len(source), protocol.READY, protocol.CONNECTION)
            if not connection.send(head + source):
                self._leave_unsent(connection)
        except served_connection.Gone:
            self.end(connection)

    @contextmanager
    def waiting_on(self, client: ServedClient) -> Iterator[None]:
        """A request of a stream waits for other clients: its end is to be noticed (SV2)."""
        if threading.current_thread() is self.thread:
            raise stream_context.MustWait
        client.account.take(use_limits.WAITING_REQUESTS)
        with self._changed:
            self.waiters.add(client)
        connection = client.connection
        connection.begin_wait()
        self.workers.begin_wait(client.account)
        try:
            self._settle(connection)
            if self._server.is_closing or client.is_cancelled:
                raise StoreClosed(_CLOSING if self._server.is_closing else _CANCELLED)
            yield
        finally:
            self.workers.end_wait(client.account)
            connection.end_wait()
            with self._changed:
                self.waiters.discard(client)
            client.account.give_back(use_limits.WAITING_REQUESTS)

    def arm(self, fd: int, events: int) -> None:
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
        get.requester, client.get, client.began = client, get, time.monotonic()
        try:
            if self.waiting_gets is None:
                self.waiting_gets = waiting_gets.WaitingGets(
                    self._await_get,
                    self._try_get,
                    self._end_get,
                    self.post,
                    self._env.monotonic,
                )
            self.waiting_gets.add(get)
        except RemoteError as error:
            client.get = None
            self._reply(client.connection, client, client.refuse_wait(get, error))
        else:
            if self._server.is_closing:  # looked at after that: `close` may have missed it
                client.interrupt(_CLOSING)

    def _take_up(self, get: WaitingGet) -> None:
        """Let a get wait no more."""
        get.requester.get = None
        self._leave(get)
        self._tell_closing()

    def _leave(self, get: WaitingGet) -> None:
        if self.waiting_gets is not None:
            self.waiting_gets.leave(get)

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

    def note_tried(self, client: ServedClient, get: WaitingGet, *, again: bool) -> None:
        """Another thread has tried a get; `again`: it has found nothing."""
        if again and (client.connection.gone or client.is_cancelled):
            self._finish(client.connection, client)
            again = False
        if again:  # else it may have another one by now
            client.get = get
        if self.waiting_gets is not None:
            self.waiting_gets.tried(get, is_answered=not again)
        self._tell_closing()

    def _tell_closing(self) -> None:
        if self._server.is_closing and not self.waiting_gets:
            with self._changed:
                self._changed.notify_all()

    def post(self, errand: Callable[[], None]) -> None:
        """Have the server's own thread do something; called by any, under any lock."""
        self.errands.append(errand)
        if not self.is_called and threading.current_thread() is not self.thread:
            self.is_called = True
            self._server.wake()

    def run_errands(self) -> bool:
        """Do what was posted, and go on with gets that wait; True: there is more of them."""
        try:
            while self.errands:
                self.errands.popleft()()
            waiting = self.waiting_gets
            return waiting is not None and waiting.turn(WAKES_AT_ONCE)
        except Exception:  # noqa: BLE001 the others are served on
            _log.exception("a get that waits in %s could not go on", self._server.path)
            return True

    def time_left(self, idle: float, has_more: bool) -> float:
        """Seconds, at most `idle`, until there is more to do for the gets that wait."""
        if has_more or self.waiting_gets is None:
            return 0.0
        return min(idle, max(0.0, self.waiting_gets.next_time()))

    def wait_until(self, condition: Callable[[], bool], deadline: float) -> None:
        """Wait for that, as jobs end, until so late at most."""
        self._changed.wait_until(condition, max(0.0, deadline - time.monotonic()))


def _is_cancel(frame: Bytes | None) -> bool:
    return frame is not None and frame[4] == protocol.CANCEL
