"""The owner's side of sharing: a Flight server over any object with the methods of a store.

SV1. Each stream is served by one thread, and there are at most `MAX_STREAMS`.
SV2. When a client's stream ends, however it ends, what was open in it is rolled back at once.
SV3. `close` returns within bounded time, whatever the clients do: requests under way may finish,
    then all connections are cut.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from quire.env import Env
from quire.errors import ConnectionLost, InvalidArgument, QuireError, RemoteError, StoreClosed

from .address import (
    Address,
    choose_socket_path,
    remove_address,
    remove_socket,
    write_address,
)
from .failures import describe_error
from .fork_guard import check_flight, guard
from .limits import FINISH_SECONDS, MAX_STREAMS
from .protocol import Header, Role, decode_frame, encode_frame
from .session import ServedStore, Session
from .sockets import cut_connections
from .transport import (
    FlightServer,
    StreamContext,
    StreamDescriptor,
    StreamReader,
    StreamWriter,
)
from .undecided import Undecided

_log = logging.getLogger("quire.remote")
_ROLES: Final = tuple(role.value for role in Role)
Exchange = Callable[[StreamContext, StreamDescriptor, StreamReader, StreamWriter], None]
LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")


class StoreServer:
    """Serves a store to other processes until `close`."""

    def __init__(self, store: ServedStore, env: Env, path: str) -> None:
        self._store = store
        self._env = env
        self._path = os.path.abspath(path)
        self.epoch: Final = f"{env.random_u64():016x}"
        self.url: str | None = None
        self.failure: Exception | None = None  # why it could not start in the background
        self._process_id = os.getpid()
        self._changed = threading.Condition()
        self._streams = 0
        self._clients = 0
        self._left_at = time.monotonic()  # when the last client left
        self._requests = 0
        self._closing = False  # no more requests are taken
        self._closed = False
        self._starter: threading.Thread | None = None
        self._undecided = Undecided(store)
        self._flight: FlightServer | None = None
        self._listener: str | int = 0
        self._socket_path: str | None = None

    # Starting and closing

    def start(self, url: str | None = None) -> str:
        """Listen at the store's socket, or at `url`; the URL for clients."""
        check_flight()
        if url is None:
            self._socket_path = choose_socket_path(self._env, self._path)
            self._listener = self._socket_path
            url = f"grpc+unix://{self._socket_path}"
        else:
            _check_loopback(url)
        try:
            self._flight = _flight_server(url, self._exchange)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise RemoteError(f"cannot listen at {url}: {error}") from None
        guard(self)
        atexit.register(self.close)
        if self._socket_path is not None:
            os.chmod(self._socket_path, 0o600)
            write_address(self._env, self._path, Address(url, self.epoch, os.getpid()))
        else:
            self._listener = self._flight.port
            url = f"{url.rpartition(':')[0]}:{self._flight.port}"
        self.url = url
        return url

    def flight_objects(self) -> list[object]:
        """See `fork_guard`."""
        return [self._flight]

    def start_in_background(self) -> None:
        """Start in a thread of its own, so that opening a store need not wait for it."""
        check_flight()
        self._starter = threading.Thread(target=self._try_start, name="quire-serve", daemon=True)
        self._starter.start()

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
        """Stop listening and end all streams (SV3). Twice is once."""
        if self._process_id != os.getpid():  # a forked child has nothing to close
            return
        with self._changed:
            if self._closed:
                return
            self._closed = self._closing = True
        if self._starter is not None:
            self._starter.join()
        atexit.unregister(self.close)
        if self._flight is None:
            return
        if self._socket_path is not None:
            remove_address(self._env, self._path)
        with self._changed:
            self._changed.wait_for(lambda: self._requests == 0, FINISH_SECONDS)
        stopping = threading.Thread(target=self._flight.shutdown, name="quire-stop", daemon=True)
        stopping.start()
        deadline = time.monotonic() + FINISH_SECONDS
        while stopping.is_alive() and time.monotonic() < deadline:
            cut_connections(self._listener)
            stopping.join(0.02)
        remove_socket(self._env, self._socket_path)

    def wait_until_idle(self, linger: float | None, stop: threading.Event) -> None:
        """Return when no client has been connected for `linger` seconds, or `stop` is set."""
        if linger is None:
            stop.wait()
            return
        left = linger
        while not stop.wait(min(max(left, 0.02), 1.0)):
            with self._changed:
                left = linger - (0 if self._clients else time.monotonic() - self._left_at)
                if left <= 0:
                    self._closing = True  # whoever comes now is too late, and opens the store again
                    return

    def status(self) -> dict[str, object]:
        """For the store's `status`."""
        return {
            "url": self.url,
            "clients": self._clients,
            "streams": self._streams,
            "error": None if self.failure is None else str(self.failure),
        }

    def _try_start(self) -> None:
        try:
            self.start()
        except (QuireError, OSError) as error:
            self.failure = error
            _log.warning("%s cannot be joined by other processes: %s", self._path, error)

    # Streams

    def _exchange(
        self,
        context: StreamContext,
        descriptor: StreamDescriptor,
        reader: StreamReader,
        writer: StreamWriter,
    ) -> None:
        """Serve one stream."""
        try:
            hello = self._read_hello(descriptor)
            role = Role(hello["role"])
            with self._stream(is_client=role is Role.WATCH):
                writer.write_metadata(encode_frame(self._hello()))
                if role is Role.WATCH:
                    _read_to_end(reader)
                else:
                    self._serve(context, reader, writer, _client_name(hello))
        except QuireError as error:
            writer.write_metadata(encode_frame(describe_error(error)))
        except (pa.ArrowException, StopIteration):
            return  # the client is gone

    def _read_hello(self, descriptor: StreamDescriptor) -> Header:
        header = decode_frame(descriptor.command or b"").header
        if header.get("op") != "hello" or header.get("role") not in _ROLES:
            raise RemoteError("a stream begins with a hello of Quire's protocol")
        if header.get("epoch") not in (None, self.epoch):
            raise ConnectionLost("the store was opened again since: open it here again too")
        return header

    def _hello(self) -> Header:
        return {
            "op": "hello",
            "epoch": self.epoch,
            "path": self._path,
            "store_id": self._store.store_id,
            "process_id": os.getpid(),
        }

    def _serve(
        self, context: StreamContext, reader: StreamReader, writer: StreamWriter, client: str
    ) -> None:
        session = Session(
            self._store,
            self.epoch,
            self._undecided,
            client,
            context.is_cancelled,
            lambda: self._closing,
        )
        try:
            while True:
                data = memoryview(reader.read_chunk().app_metadata or b"")
                with self._request():
                    for answer in session.answers(data):
                        writer.write_metadata(answer)
        finally:
            session.close()

    @contextmanager
    def _stream(self, *, is_client: bool) -> Iterator[None]:
        with self._changed:
            if self._closing:
                raise ConnectionLost("the owner is closing the store: open it again")
            if self._streams >= MAX_STREAMS:
                raise RemoteError(
                    f"the owner of the store serves {self._streams} streams, as many as it may:"
                    " end transactions, or close store objects that are not in use"
                )
            self._streams += 1
            self._clients += is_client
        try:
            yield
        finally:
            with self._changed:
                self._streams -= 1
                self._clients -= is_client
                self._left_at = time.monotonic()

    @contextmanager
    def _request(self) -> Iterator[None]:
        with self._changed:
            self._requests += 1
        try:
            yield
        finally:
            with self._changed:
                self._requests -= 1
                self._changed.notify_all()


def _client_name(hello: Header) -> str:
    """Whose transactions those of a stream are; earlier releases did not tell it."""
    process_id = hello.get("process_id")
    who = f"process {process_id}" if type(process_id) is int else "a process"
    return f"{who} over the socket"


def _read_to_end(reader: StreamReader) -> None:
    while True:
        reader.read_chunk()


def _flight_server(url: str, exchange: Exchange) -> FlightServer:
    # Imported here: Flight starts threads, which a process that forks later must not have.
    from pyarrow import flight

    class Listener(flight.FlightServerBase):
        def do_exchange(
            self,
            context: StreamContext,
            descriptor: StreamDescriptor,
            reader: StreamReader,
            writer: StreamWriter,
        ) -> None:
            exchange(context, descriptor, reader, writer)

    return Listener(url)


def _check_loopback(url: str) -> None:
    scheme, _, rest = url.partition("://")
    if scheme != "grpc+tcp" or rest.rpartition(":")[0] not in LOOPBACK:
        raise InvalidArgument(
            f"cannot serve at {url}: give grpc+tcp://127.0.0.1:PORT; other machines are not let in"
        )
