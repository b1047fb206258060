"""Messages on their way from the owner to a client.

A single message travels as its fields in the header and its payload as the body. Many travel as
blocks, into which slices of the store's blocks are packed, so that no message is handled by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from quire.arguments import Bytes, is_int
from quire.batches.delivered_messages import Messages
from quire.batches.delivered_slice import Delivered
from quire.batches.packing import BlockSlice, pack
from quire.block import StreamedBlock
from quire.errors import RemoteError
from quire.limits import CHUNK_BYTES
from quire.messages.message import Message
from quire.messages.payload_reader import ReadChunk, Stream
from quire.messages.streamed_message import StreamedMessage
from quire.messages.typed_message import TypedMessage, row_of_payload
from quire.remote.limits import ANSWER_BYTES, JOIN_BYTES
from quire.rows.open_block import verified_block

from .protocol import HEAD, MESSAGE, MESSAGE_HEAD, Frame, Header, field

Answer = tuple[Header, Sequence[Bytes]]

_FIELDS = (
    "id",
    "queue",
    "priority",
    "group",
    "time",
    "sender",
    "correlation_id",
    "reply_to",
    "content_type",
    "expires_at",
    "deliver_at",
    "delivery_count",
    "failed_count",
)


def short_message(message: Message, stream: int) -> bytes | Iterator[list[Bytes]] | None:
    """The frame of a message without other fields than all have; None for one that has them."""
    if (
        type(message) is StreamedMessage
        or message.priority
        or message.group
        or message.attributes
        or message.sender is not None
        or message.correlation_id is not None
        or message.reply_to is not None
        or message.content_type is not None
        or message.expires_at is not None
        or message.deliver_at is not None
        or message.failed_count != message.delivery_count - 1
        or message.__class__ is not Message
    ):
        return None
    payload = message.payload
    length = MESSAGE_HEAD.size - HEAD.size + len(payload)
    numbers = message.id, message.time, message.delivery_count
    head = MESSAGE_HEAD.pack(length, MESSAGE, stream, *numbers)
    if length <= JOIN_BYTES:
        return head + payload
    parts: list[Bytes] = [head, payload]
    return iter([parts])


def read_short_message(data: Bytes, queue: str) -> Message:
    """The message of such a frame. Raises RemoteError."""
    if len(data) < MESSAGE_HEAD.size:
        raise RemoteError("the owner's answer has no message that can be read")
    _, _, _, number, time, count = MESSAGE_HEAD.unpack_from(data)
    return Message(
        number, queue, bytes(memoryview(data)[MESSAGE_HEAD.size :]), time=time, delivery_count=count
    )


def message_answer(message: Message | None) -> Answer:
    """The answer that carries one message, or none."""
    if message is None:
        return {"message": None}, ()
    fields = {name: getattr(message, name) for name in _FIELDS}
    if message.attributes:
        fields["attributes"] = dict(message.attributes)
    if isinstance(message, StreamedMessage):
        return {"message": fields, "stream": message.stream}, (b"",)
    is_row = isinstance(message, TypedMessage)
    return {"message": fields, "row": is_row}, (message.payload,)


def read_message(frame: Frame, read_chunk: ReadChunk) -> Message | None:
    """The message of such an answer. `read_chunk`: reads its payload if it is streamed."""
    fields = frame.header.get("message")
    if fields is None:
        return None
    if not isinstance(fields, dict) or len(frame.bodies) != 1:
        raise RemoteError("the owner's answer has no message that can be read")
    payload = bytes(frame.bodies[0])
    if frame.header.get("row"):
        return TypedMessage(Message(payload=b"", **fields), row_of_payload(payload))
    message = Message(payload=payload, **fields)
    stream = frame.header.get("stream")
    return message if stream is None else StreamedMessage(message, stream_of(stream), read_chunk)


def stream_of(value: object) -> Stream:
    """Read a streamed message's payload description. Raises RemoteError."""
    if isinstance(value, list) and len(value) == 3 and all(map(is_int, value)):
        stream = Stream(*value)
        if 0 < stream.chunk_bytes <= min(CHUNK_BYTES, stream.size) and stream.file >= 0:
            return stream
    raise RemoteError(f"{value!r:.100} tells of no stream")


def messages_answers(messages: Messages) -> Iterator[Answer]:
    """Answers that together carry the messages, each of about `ANSWER_BYTES`."""
    answers = list(_groups(messages.slices))
    if not answers:
        nothing = {"queue": messages.queue, "delivery_count": 1, "schema": messages.schema}
        yield {**nothing, "more": False}, ()
    for number, group in enumerate(answers, 1):
        block = pack([BlockSlice(*part[:5]) for part in group])
        header: dict[str, object] = {
            "queue": messages.queue,
            "delivery_count": group[0].delivery_count,
            "failed_count": group[0].failed_count,
            "missing": group[0].missing,
            "more": number < len(answers),
        }
        if isinstance(group[0].block, StreamedBlock):
            header["stream"] = group[0].block.stream
        yield header, (block.data,)


def read_messages(frames: Sequence[Frame], read_chunk: ReadChunk) -> Messages:
    """The messages of such answers. `read_chunk`: reads the payloads of those that are streamed."""
    slices = []
    for frame in frames:
        count = field(frame.header, "delivery_count", int)
        failed = frame.header.get("failed_count")
        if failed is not None:
            failed = field(frame.header, "failed_count", int)
        missing = frame.header.get("missing")
        if missing is not None:
            missing = field(frame.header, "missing", int)
        for body in frame.bodies:
            block = verified_block(body, "messages from the owner")
            if (stream := frame.header.get("stream")) is not None:
                block = StreamedBlock.of(block, stream_of(stream), read_chunk)
            slices.append(Delivered(block, 0, block.count, 0, 0, count, failed, missing))
    schema = frames[-1].header.get("schema")
    if schema is not None:
        schema = field(frames[-1].header, "schema", str)
    return Messages(field(frames[-1].header, "queue", str), slices, schema)


def _groups(slices: Sequence[Delivered]) -> Iterator[list[Delivered]]:
    """Runs of slices that fit one answer and share their counts of deliveries."""
    group: list[Delivered] = []
    size = 0
    for part in _cut(slices):
        charge = part.block.charged_bytes(part.start, part.stop)
        is_alone = isinstance(part.block, StreamedBlock)
        if group and (is_alone or size + charge > ANSWER_BYTES or part[5:] != group[0][5:]):
            yield group
            group, size = [], 0
        group.append(part)
        size += charge
        if is_alone:
            yield group
            group, size = [], 0
    if group:
        yield group


def _cut(slices: Sequence[Delivered]) -> Iterator[Delivered]:
    """The slices, those above the size of an answer in halves, but for single messages."""
    waiting = list(reversed(slices))
    while waiting:
        part = waiting.pop()
        large = part.block.charged_bytes(part.start, part.stop) > ANSWER_BYTES
        if large and part.stop - part.start > 1:
            middle = (part.start + part.stop) // 2
            waiting.append(part._replace(start=middle))
            waiting.append(part._replace(stop=middle))
        else:
            yield part
