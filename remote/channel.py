"""One stream to a store's owner: a request goes out, its answer comes back.

CH1. A channel whose stream failed, or whose answer was not waited for, is never used again.
CH2. Waiting for an answer can be interrupted by a signal (Ctrl-C), which breaks the channel.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence

import pyarrow as pa

from quire.arguments import Bytes
from quire.errors import RemoteError
from quire.info import TransactionState

from .failures import raise_error
from .fork_guard import guard
from .protocol import Frame, Header, decode_frame, encode_frame, state_of
from .transport import Chunk, FlightClient


class StreamEnded(Exception):
    """The stream to the owner ended. `sent` tells whether the request may have reached it."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent


class Channel:
    """A stream, used by one thread at a time."""

    def __init__(self, flight_client: FlightClient, hello: Header) -> None:
        """Open a stream with `hello`. Raises StreamEnded, or what the owner answers."""
        from pyarrow import flight

        self.broken = False
        self._in_request = threading.Lock()
        self.transaction_state: TransactionState | None = None  # as the latest answer said
        self._transactions = 0
        try:
            self._writer, self._reader = flight_client.do_exchange(
                flight.FlightDescriptor.for_command(encode_frame(hello))
            )
        except pa.ArrowException as error:
            raise StreamEnded(_reason(error), sent=False) from None
        guard(self)

    def flight_objects(self) -> list[object]:
        """See `fork_guard`."""
        return [self._writer, self._reader]

    def receive_hello(self) -> Frame:
        """The owner's answer to the hello. Raises StreamEnded, or what the owner answers."""
        frame = self._receive()
        try:
            raise_error(frame.header)
        except BaseException:
            self.close()
            raise
        return frame

    def next_transaction(self) -> int:
        """The number of a transaction that begins on this channel."""
        self._transactions += 1
        return self._transactions

    def request(
        self, header: Header, bodies: Sequence[Bytes] = (), *, may_block: bool = False
    ) -> list[Frame]:
        """Send a request and wait for all frames of its answer.

        Raises StreamEnded, or the error that the answer reports.
        """
        frame = encode_frame(header, bodies)
        with self._in_request:
            frames = self._exchange(frame, may_block)
        self.transaction_state = state_of(frames[-1].header)
        raise_error(frames[-1].header)
        return frames

    def _exchange(self, frame: bytes, may_block: bool) -> list[Frame]:
        if self.broken:
            raise StreamEnded("the stream was broken before", sent=False)
        self.broken = True  # until the answer is complete, whatever interrupts (CH1)
        try:
            self._writer.write_metadata(frame)
        except pa.ArrowException as error:
            raise StreamEnded(_reason(error), sent=True) from None
        frames = [self._receive(may_block=may_block)]
        while frames[-1].header.get("more") is True:
            frames.append(self._receive())
        self.broken = False
        return frames

    def wait_for_end(self) -> str:
        """Wait until the stream ends; why it did."""
        try:
            while True:
                self._reader.read_chunk()
        except (pa.ArrowException, StopIteration) as error:
            return _reason(error)

    def cancel(self) -> None:
        """End the stream at once; who waits for it is released."""
        self.broken = True
        with contextlib.suppress(pa.ArrowException):
            self._reader.cancel()

    def close(self) -> None:
        """End the stream. A request under way in another thread fails, and that one closes it."""
        self.cancel()
        if self._in_request.acquire(blocking=False):
            try:
                with contextlib.suppress(pa.ArrowException):
                    self._writer.close()
            finally:
                self._in_request.release()

    def _receive(self, *, may_block: bool = False) -> Frame:
        try:
            if may_block and threading.current_thread() is threading.main_thread():
                chunk = self._read_interruptibly()
            else:
                chunk = self._reader.read_chunk()
        except (pa.ArrowException, StopIteration) as error:
            raise StreamEnded(_reason(error), sent=True) from None
        try:
            return decode_frame(memoryview(chunk.app_metadata or b""))
        except RemoteError as error:  # whatever was asked may have been done
            raise StreamEnded(str(error), sent=True) from None

    def _read_interruptibly(self) -> Chunk:
        """Read in another thread: signals reach only a main thread that waits in Python (CH2)."""
        results: list[Chunk] = []
        failures: list[BaseException] = []
        done = threading.Event()

        def read() -> None:
            try:
                results.append(self._reader.read_chunk())
            except (pa.ArrowException, StopIteration) as error:
                failures.append(error)
            finally:
                done.set()

        threading.Thread(target=read, name="quire-wait", daemon=True).start()
        try:
            done.wait()
        except BaseException:
            self.cancel()
            done.wait(1)
            raise
        if failures:
            raise failures[0]
        return results[0]


def _reason(error: BaseException) -> str:
    text = str(error) or "the owner ended the stream"
    return text.partition(". gRPC client debug context")[0]
