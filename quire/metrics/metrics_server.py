"""A small HTTP server for metrics and probes: /metrics, /healthz, /readyz.

- MS1. It is bounded, whoever comes: so many connections, each with a thread of its own; a request
  has so many bytes and comes within so many seconds, an answer is taken within so many. Where there
  are more connections the one that has waited longest with its request is cut off.
- MS2. One scrape is made at a time. Probes wait for no scrape, and for no other process (HP1).
- MS3. `close` returns within bounded time, whatever a scrape or a client does. In the child of a
  fork nothing of it is left (SO3).
- Nothing but these three pages is served, and nothing is changed by them. Whoever reaches the port
  may read the names of queues, subscriptions and users, and numbers; no message.
"""

from __future__ import annotations

import ssl
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self

from quire.calls.wake_up import Thread
from quire.env import OsEnv
from quire.env.interpreter import Lock
from quire.errors import InvalidArgument, QuireError, RemoteError, StoreClosed
from quire.libraries.late_imports import importing
from quire.loggers import logger
from quire.metrics.collector import ReportsStatus, collector
from quire.metrics.health import why_unhealthy, why_unready
from quire.metrics.limits import (
    ACCEPT_PAUSE,
    ANSWER_SECONDS,
    CONNECTIONS,
    END_SECONDS,
    LOOK_SECONDS,
    REQUEST_BYTES,
    REQUEST_SECONDS,
    SCRAPE_SECONDS,
)
from quire.remote.wire import tls_session
from quire.remote.wire.address import TCP, TcpPlace, place_of
from quire.remote.wire.sockets import accept, close, is_readable, listen, shut
from quire.tls import Tls

if TYPE_CHECKING:
    import socket

_log: Final = logger("quire.metrics")
_TEXT: Final = "text/plain; charset=utf-8"
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class _Visit:
    """A connection, and the thread that answers it."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.is_complete = False
        self.thread: threading.Thread | None = None


class MetricsServer:
    """Serves the metrics and the health of a store by HTTP, from its making to `close`.

    `with MetricsServer("127.0.0.1:9464", store):` is what `quire serve --metrics` does.
    """

    def __init__(
        self, address: str, store: ReportsStatus | None = None, *, tls: Tls | None = None
    ) -> None:
        """Listen at "host:port", on loopback where it is ":port"; port 0 is any that is free.

        `store`: None until `show`. `tls`: this server's certificate and key, and with `ca` the
        authority of clients. Raises InvalidArgument, RemoteError.
        """
        host = "127.0.0.1" if address.startswith(":") else ""
        try:
            place = place_of(TCP + host + address, tls or Tls())
        except InvalidArgument as error:
            wanted = "give HOST:PORT for the metrics, as 127.0.0.1:9464"
            raise InvalidArgument(f"{address!r:.200}: {wanted}") from error
        assert isinstance(place, TcpPlace)
        self._context = None if tls is None else tls_session.server_context(tls)
        self._store = store
        self._registry = _registry(self)
        self._scraping = Lock()
        self._visits: list[_Visit] = []
        self._is_closing = False
        self._env = OsEnv()
        try:
            self._listener = listen(place)
        except OSError as error:
            raise RemoteError(f"{address}: no metrics can be served there: {error}") from error
        self._listener.setblocking(False)
        port = self._listener.getsockname()[1]
        scheme = "http" if tls is None else "https"
        self.url: Final = f"{scheme}://{place.host}:{port}"
        self._thread = Thread(target=self._run, name="quire-metrics")
        self._thread.start()

    def show(self, store: ReportsStatus | None) -> None:
        """Serve this store from now on; None: none is open."""
        self._store = store

    @property
    def role(self) -> str:
        """The role of this process for the store."""
        return "joined" if self._store is None else self._store.role

    def status(self) -> dict[str, Any]:
        """The status of the store, as metrics are made of it.

        A process that waits for another one to end says only that: the owner says the rest.
        """
        store = self._store
        if store is None:
            raise StoreClosed("no store is open here")
        return store.status() if store.role == "owner" else {}

    def close(self) -> None:
        """Serve nothing any more (MS3). Twice is once."""
        if self._is_closing:
            return
        self._is_closing = True
        shut(self._listener)
        for visit in list(self._visits):
            shut(visit.connection)
        self._thread.join(END_SECONDS)
        close(self._listener)
        until = self._env.monotonic() + END_SECONDS
        for visit in list(self._visits):
            if visit.thread is not None:
                visit.thread.join(max(until - self._env.monotonic(), 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # The threads

    def _run(self) -> None:
        while not self._is_closing:
            # No fork, and no end of a socket, waits for the next client (SO3).
            if not is_readable(self._listener, LOOK_SECONDS):
                continue
            try:
                visit = _Visit(accept(self._listener))
            except OSError as error:
                if not (self._is_closing or isinstance(error, BlockingIOError)):  # no descriptor
                    _log.warning("metrics: no connection can be accepted: %s", error)
                    self._env.sleep(ACCEPT_PAUSE)
                continue
            self._make_place()
            if len(self._visits) >= CONNECTIONS:  # all are being answered
                close(visit.connection)
                continue
            self._visits.append(visit)
            visit.thread = Thread(
                target=lambda visit=visit: self._serve(visit), name="quire-scrape"
            )
            try:
                visit.thread.start()
            except RuntimeError:  # no more threads
                self._end(visit)

    def _make_place(self) -> None:
        """Cut off the oldest connection that has not asked yet, where there are too many (MS1)."""
        if len(self._visits) >= CONNECTIONS:
            silent = next((each for each in self._visits if not each.is_complete), None)
            if silent is not None:
                self._visits.remove(silent)
                shut(silent.connection)

    def _serve(self, visit: _Visit) -> None:
        try:
            with suppress(OSError, ValueError):  # the other side has gone, or was too slow
                if self._context is not None:
                    visit.connection.settimeout(REQUEST_SECONDS)
                    plain = visit.connection
                    visit.connection = self._context.wrap_socket(plain, server_side=True)
                answer = self._answer(self._request(visit))
                visit.connection.settimeout(ANSWER_SECONDS)
                visit.connection.sendall(answer)
                if isinstance(visit.connection, ssl.SSLSocket):
                    visit.connection.settimeout(1.0)
                    visit.connection.unwrap()
        finally:
            self._end(visit)

    def _end(self, visit: _Visit) -> None:
        with suppress(ValueError):  # it was cut off
            self._visits.remove(visit)
        close(visit.connection)

    def _request(self, visit: _Visit) -> bytes:
        """The first line of what is asked, once all of it has come; empty: it is no request."""
        until = self._env.monotonic() + REQUEST_SECONDS
        data = b""
        while b"\r\n\r\n" not in data and b"\n\n" not in data:
            visit.connection.settimeout(max(until - self._env.monotonic(), 0.001))
            more = visit.connection.recv(REQUEST_BYTES)
            data += more
            if not more or len(data) > REQUEST_BYTES:
                return b""
        visit.is_complete = True
        return data.split(b"\n", 1)[0].rstrip()

    def _answer(self, line: bytes) -> bytes:
        words = line.split()
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return _response(400, "this is no request of HTTP/1.1\n")
        method, path = words[0], words[1].partition(b"?")[0]
        if method not in (b"GET", b"HEAD"):
            return _response(405, "GET is all that there is\n")
        return _response(*self._page(path), is_head=method == b"HEAD")

    def _page(self, path: bytes) -> tuple[int, str, str]:
        """The status, text and type of a page."""
        if path == b"/metrics":
            return self._scrape()
        if path in (b"/healthz", b"/readyz"):
            try:
                why = (why_unhealthy if path == b"/healthz" else why_unready)(self._store)
            except (QuireError, ReferenceError) as error:  # it is being closed
                why = "" if path == b"/healthz" else str(error)
            return (503, f"{why}\n", _TEXT) if why else (200, "ok\n", _TEXT)
        return 404, "there are /metrics, /healthz and /readyz\n", _TEXT

    def _scrape(self) -> tuple[int, str, str]:
        """All metrics (MS2)."""
        with importing():
            from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

        if not self._scraping.acquire(timeout=SCRAPE_SECONDS):
            return 503, "another scrape is under way, and takes long\n", _TEXT
        try:
            return 200, generate_latest(self._registry).decode(), CONTENT_TYPE_PLAIN_0_0_4
        except Exception as error:  # noqa: BLE001 - it must not end the server: the log tells
            _log.warning("metrics: a scrape failed: %r", error)
            return 500, f"{type(error).__name__}\n", _TEXT
        finally:
            self._scraping.release()


def _registry(server: MetricsServer) -> Any:
    """The metrics of the store and of the process. Raises InvalidArgument."""
    own = collector(server)
    with importing():
        from prometheus_client import CollectorRegistry, ProcessCollector

    registry = CollectorRegistry(auto_describe=False)
    registry.register(own)
    ProcessCollector(registry=registry)
    return registry


def _response(status: int, text: str, content_type: str = _TEXT, *, is_head: bool = False) -> bytes:
    body = text.encode()
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    ).encode()
    return head if is_head else head + body
