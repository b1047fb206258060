"""A stream to an owner on which a test writes what it likes."""

from __future__ import annotations

import contextlib
from typing import Any

import pyarrow as pa
from pyarrow import flight

from quire.remote.failures import raise_error
from quire.remote.protocol import Frame, decode_frame, encode_frame


class RawStream:
    """Opened with a correct hello, unless another `command` is given."""

    def __init__(self, url: str, command: bytes | None = None) -> None:
        self._client = flight.FlightClient(url)
        hello = encode_frame({"op": "hello", "role": "work"}) if command is None else command
        self._writer, self._reader = self._client.do_exchange(
            flight.FlightDescriptor.for_command(hello)
        )
        self.hello = self.next()

    def send(self, data: bytes) -> None:
        """Write a request, and wait for nothing."""
        self._writer.write_metadata(data)

    def next(self) -> Frame:
        """The next frame of an answer."""
        return decode_frame(self._reader.read_chunk().app_metadata)

    def ask(self, data: bytes) -> Frame:
        """The answer to a request."""
        self.send(data)
        return self.next()

    def request(self, op: str, *bodies: bytes, **header: Any) -> Frame:
        """The answer to a request in a transaction; raises what it reports."""
        header = {"op": op, "txn": 1, "epoch": self.hello.header["epoch"], **header}
        answer = self.ask(encode_frame(header, bodies))
        raise_error(answer.header)
        return answer

    def close(self) -> None:
        """End the stream."""
        self._reader.cancel()
        with contextlib.suppress(pa.ArrowException):
            self._writer.close()
        self._client.close()
