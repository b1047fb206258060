"""Payloads of streamed messages between the owner and its clients, one chunk at a time.

- Neither side holds more than a chunk and its frame, however large a payload is.
- A client that ends, or is killed, while it puts one leaves nothing of it: the end of its
  connection rolls back its transaction.
- A chunk is read of its file by its number, without a transaction: the message that was got keeps
  it there. Once that is gone, PositionLost tells so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from quire.arguments import Bytes, check_flag, check_name, check_timeout, is_int
from quire.errors import InvalidArgument, QueueFull, RemoteError
from quire.messages.message_id import MessageId
from quire.messages.payload_reader import Stream
from quire.messages.payload_writer import Sink, check_size

from .delivered_messages import Answer, stream_of
from .protocol import Frame, Header, field
from .put_places import Placing

READ_CHUNK: Final = "read_chunk"
PUT_CHUNK: Final = "put_chunk"
PUT_WHOLE: Final = "put_whole"
FINISH: Final = "finish_stream"
ABANDON: Final = "abandon_stream"


class ServedSink(Sink, Protocol):
    """One whose waiting for room is said each time."""

    timeout: float | None


class PutsStreams(Protocol):
    """A transaction that can be served."""

    def begin_stream(
        self,
        queue: str,
        fields: Mapping[str, Any],
        size: int | None,
        timeout: float | None,
        *,
        is_moved: bool = False,
    ) -> ServedSink:
        """Begin to put one message."""


class Chunks(Protocol):
    """A store whose streamed messages can be read."""

    def chunk(self, stream: Stream, number: int) -> Bytes:
        """The bytes of a chunk."""


def answer_chunk(store: Chunks, header: Header) -> Answer:
    """The bytes of one chunk, for a client that reads it."""
    arguments = header.get("arguments")
    if not isinstance(arguments, dict) or arguments.keys() != {"stream", "number"}:
        raise RemoteError("a chunk is asked for by its stream and its number")
    number = arguments["number"]
    if not is_int(number) or number < 0:
        raise InvalidArgument(f"number {number!r:.100}: give that of a chunk, from 0")
    return {"result": None}, (store.chunk(stream_of(arguments["stream"]), number),)


def chunk_of(frames: Sequence[Frame], stream: Stream, number: int) -> Bytes:
    """Return the chunk that such an answer carries. Raises RemoteError."""
    bodies = frames[-1].bodies
    if len(bodies) != 1 or len(bodies[0]) != stream.length_of(number):
        raise RemoteError("the owner's answer has no chunk that can be read")
    return bodies[0]


class ServedStreams:
    """The messages that one client's transaction is putting as streams, at the owner."""

    def __init__(
        self, placing: Placing, waiting: Callable[[], AbstractContextManager[None]]
    ) -> None:
        """`waiting`: a block in which a request waits for other clients."""
        self._placing = placing
        self._waiting = waiting
        self._sinks: dict[int, tuple[str, ServedSink]] = {}

    def put(self, transaction: PutsStreams, frame: Frame, commit_timeout: float) -> Header:
        """The next chunk, or all, of a payload."""
        header = frame.header
        if len(frame.bodies) != 1:
            raise RemoteError("a chunk has one body")
        data = frame.bodies[0]
        number, is_whole = field(header, "stream", int), header.get("op") == PUT_WHOLE
        found = self._sinks.get(number)
        if found is None or is_whole:
            queue = check_name(header.get("queue"), "queue")
            fields = field(header, "fields", dict)
            size = check_size(header.get("size"))
            is_moved = check_flag("moved", header.get("moved", False))
            sink = transaction.begin_stream(queue, fields, size, 0.0, is_moved=is_moved)
            found = queue, sink
        queue, sink = found
        wait = header.get("wait")
        seconds = commit_timeout if wait is None else check_timeout(wait)
        if not is_whole:
            self._sinks[number] = found
            self._with_room(sink, lambda: sink.chunk(data), seconds)
            return {}
        payload = bytes(data)
        try:
            self._note(queue, self._with_room(sink, lambda: sink.whole(payload), seconds))
        except BaseException:
            sink.abandon()
            raise
        return {}

    def finish(self, frame: Frame) -> Header:
        """The payload is whole."""
        found = self._sinks.pop(field(frame.header, "stream", int), None)
        if found is None:
            raise RemoteError("no message is being put as a stream by this number")
        queue, sink = found
        try:
            self._note(queue, sink.finish())
        except BaseException:
            sink.abandon()
            raise
        return {}

    def abandon(self, frame: Frame) -> Header:
        """Nothing is put."""
        found = self._sinks.pop(field(frame.header, "stream", int), None)
        if found is not None:
            found[1].abandon()
        return {}

    def _note(self, queue: str, message_id: MessageId) -> None:
        self._placing.first.setdefault(queue, message_id)

    def _with_room(self, sink: ServedSink, put: Callable[[], Any], seconds: float) -> Any:
        """Put; while the queue has no room, wait for it, as long as the client does."""
        sink.timeout = 0.0
        try:
            return put()
        except QueueFull as full:
            if not (full.has_remedy and seconds):
                raise
        with self._waiting():
            sink.timeout = seconds
            return put()


class StreamClient(Protocol):
    """A client's transaction."""

    def ask_in_turn(
        self, op: str, arguments: Header, bodies: Sequence[Bytes], *, is_first: bool
    ) -> None:
        """Ask the owner for a step of a put, after all that was put before."""

    def put_at_owner(self, queue: str) -> MessageId:
        """The id of a message that the owner has put now."""

    def abandon_stream(self, queue: str, number: int) -> None:
        """The owner is to forget it, if the transaction is open."""


class RemoteSink:
    """One message that a client puts as a stream; the interface is that of `payload_writer`."""

    def __init__(
        self,
        transaction: StreamClient,
        number: int,
        queue: str,
        fields: Header,
        size: int | None,
        wait: float | None,
        is_moved: bool,
    ) -> None:
        self._transaction = transaction
        self._queue = queue
        self._first: Header = {
            "stream": number, "queue": queue, "fields": fields, "size": size, "wait": wait,
        }  # fmt: skip
        if is_moved:
            self._first["moved"] = True
        self._next: Header = {"stream": number, "wait": wait}
        self._number = number
        self._is_begun = self._ended = False

    def whole(self, payload: bytes) -> MessageId:
        self._transaction.ask_in_turn(PUT_WHOLE, self._first, [payload], is_first=True)
        return self._end()

    def chunk(self, data: Bytes) -> None:
        header = self._next if self._is_begun else self._first
        self._transaction.ask_in_turn(PUT_CHUNK, header, [data], is_first=not self._is_begun)
        self._is_begun = True

    def finish(self) -> MessageId:
        self._transaction.ask_in_turn(FINISH, self._next, [], is_first=False)
        return self._end()

    def abandon(self) -> None:
        if not self._ended:
            self._ended = True
            self._transaction.abandon_stream(self._queue, self._number)

    def _end(self) -> MessageId:
        self._ended = True
        return self._transaction.put_at_owner(self._queue)
