"""Blocks as read: verified views over their bytes.

BL1. Only bytes whose checksum, lengths, offsets and UTF-8 all agree are a block; whatever it
    returns lies within its buffer. `Block.opened` verifies the checksum, and the rest is verified
    when it is looked at: of one message alone, or of all.
BL2. A block never copies its buffer; what is handed out as `bytes` or by `to_arrow(copy=True)` does
    not refer to it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

from quire.checksum import checksum
from quire.errors import StoreCorrupt, StoreVersion
from quire.libraries import np, pa
from quire.limits import MESSAGE_OVERHEAD_BYTES
from quire.messages import streamed_message
from quire.messages.message import NO_ATTRIBUTES, Message
from quire.messages.payload_reader import ReadChunk, Stream, whole_payload

from .arrow import to_record_batch
from .format import (
    ABSENT_TIME,
    ALL_COLUMNS,
    CHECKSUM_BYTES,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    ROWS_VERSIONS,
    VERSION,
    Column,
    padded,
    section_count,
)
from .header_columns import Buffer, Headers
from .unverified_block import Unread, sections_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

_unpack_header = HEADER.unpack_from
_NO_HEADERS = Headers()

# What the objects of a block take: always, with header columns, and for each of their sections.
# Measured; a test compares them with what the interpreter allocates.
_OBJECT_BYTES = 776
_HEADERS_BYTES = 320
_SECTION_BYTES = 230


OfRows: TypeAlias = "Callable[[memoryview, int, int, int, int, str], Block]"
"""Makes a block of rows: of its view, columns, count, length, size of the rows, and where it is."""


class Block:
    """`count` messages; the payload of message `i` lies at `offsets[i]` to `offsets[i + 1]`."""

    __slots__ = (
        "checksum",
        "columns",
        "count",
        "headers",
        "length",
        "offsets",
        "payload",
        "unread",
    )

    checksum: int
    columns: int
    count: int
    length: int
    headers: Headers
    offsets: NDArray[np.int32]
    payload: memoryview
    unread: Unread | None  # its offsets and headers are there when they are asked for

    @classmethod
    def opened(cls, buffer: Buffer, location: str, of_rows: OfRows) -> Block:
        """The block at the beginning of the buffer; bytes beyond its length are ignored.

        Its checksum is verified; offsets and headers are when somebody looks at them (BL1).
        `of_rows` makes it where its messages are rows. Raises `StoreCorrupt` or `StoreVersion`,
        whose message names the location.
        """
        view = memoryview(buffer)
        if view.nbytes < HEADER_BYTES:
            raise StoreCorrupt(f"{location}: {view.nbytes} bytes are too few for a block")
        stored_checksum, magic, version, flags, columns, count, length, payload_bytes = (
            _unpack_header(view)
        )
        if magic != MAGIC:
            raise StoreCorrupt(f"{location}: there is no block here (magic {magic!r})")
        if not HEADER_BYTES <= length <= view.nbytes or length & 7:
            raise StoreCorrupt(
                f"{location}: the block claims {length} bytes, there are {view.nbytes} here"
            )
        if checksum(view[CHECKSUM_BYTES:length]) != stored_checksum:
            raise StoreCorrupt(f"{location}: the block's checksum does not match its bytes")
        if version != VERSION or flags or columns & ~ALL_COLUMNS:
            if version in ROWS_VERSIONS and not flags and not columns & ~ALL_COLUMNS:
                rows = of_rows(view, columns, count, length, payload_bytes, location)
                rows.checksum = stored_checksum
                return rows
            raise StoreVersion(
                f"{location}: the block has version {version}, flags {flags}, columns "
                f"{columns:#x}; this release cannot read it: use a newer one"
            )
        self = cls.__new__(StreamedBlock if columns & Column.STREAM else cls)
        self.checksum = stored_checksum
        self.columns = columns
        self.count = count
        self.length = length
        sections_at = sections_of(columns, count)
        payload_at = length - padded(payload_bytes)
        if not count or not sections_at <= payload_at:
            raise StoreCorrupt(f"{location}: the block's sections do not fit its {length} bytes")
        self.payload = view[payload_at : payload_at + payload_bytes]
        self.unread = Unread(view, columns, count, payload_at, location)
        if not columns and sections_at != payload_at:
            raise StoreCorrupt(f"{location}: the block's sections do not fill its {length} bytes")
        if columns & Column.STREAM:
            self.look()
            if payload_bytes:
                raise StoreCorrupt(f"{location}: a streamed message has a payload in its block")
        return self

    def look(self) -> None:
        """Verify offsets and headers, unless that was done. Raises StoreCorrupt."""
        unread = self.unread
        if unread is not None:
            self.offsets = unread.offsets(self.payload.nbytes)
            self.headers = unread.headers() if self.columns else _NO_HEADERS
            self.unread = None  # last: another thread may look at the same time

    def __getattr__(self, name: str) -> Any:
        """Offsets and headers, when they are asked for first. Raises StoreCorrupt."""
        unread = self.unread if name in ("offsets", "headers") else None
        if unread is not None and name == "offsets":
            self.offsets = unread.offsets(self.payload.nbytes)
        elif unread is not None:
            self.headers = unread.headers() if self.columns else _NO_HEADERS
        return object.__getattribute__(self, name)

    def headers_with(self, column: int) -> Headers:
        """The header columns, this one among them, which the block has. Raises StoreCorrupt.

        Where nobody has looked at the others, they are not verified for it, and may be missing.
        """
        unread = self.unread
        return self.headers if unread is None else unread.column(column)

    def may_say(self, word: bytes) -> bool:
        """Return True if the attributes of any message may have the word; nothing is verified for
        that.
        """
        unread = self.unread
        if unread is not None:
            return word in bytes(unread.view[: unread.payload_at])
        attributes = self.headers.attributes
        return attributes is not None and word in bytes(attributes.values.content())

    @property
    def is_packed(self) -> bool:
        """True if the messages carry ids and times of their own, as only the store gives them."""
        return bool(self.columns & (Column.ID | Column.TIME))

    @property
    def payload_bytes(self) -> int:
        return self.payload.nbytes

    @property
    def memory_bytes(self) -> int:
        """The memory that the block takes with its buffer, to within some 15 %."""
        size = self.length + _OBJECT_BYTES
        if self.columns:
            size += _HEADERS_BYTES + _SECTION_BYTES * section_count(self.columns)
        return size

    @property
    def charge_bytes(self) -> int:
        """The bytes that the messages are charged to their queue's capacity."""
        return self.charged_bytes(0, self.count)

    def charged_bytes(self, start: int, stop: int) -> int:
        """Return the bytes that the messages from `start` to `stop` are charged to their queue's
        capacity.
        """
        charged_bytes = int(self.offsets[stop] - self.offsets[start])
        charged_bytes += MESSAGE_OVERHEAD_BYTES * (stop - start)
        for text in self.headers.strings.values():
            charged_bytes += int(text.offsets[stop] - text.offsets[start])
        attributes = self.headers.attributes
        if attributes is not None:
            first, last = attributes.starts[start], attributes.starts[stop]
            for text in (attributes.keys, attributes.values):
                charged_bytes += int(text.offsets[last] - text.offsets[first])
        return charged_bytes

    def largest_charge(self) -> int:
        """Return the bytes that the largest message is charged to its queue's capacity; 0 for
        none.
        """
        charges = np.diff(self.offsets).astype(np.int64)
        for text in self.headers.strings.values():
            charges += np.diff(text.offsets)
        attributes = self.headers.attributes
        if attributes is not None:
            for text in (attributes.keys, attributes.values):
                charges += np.diff(text.offsets[attributes.starts])
        return int(charges.max()) + MESSAGE_OVERHEAD_BYTES if self.count else 0

    def ids(self, first_id: int, start: int = 0, stop: int | None = None) -> NDArray[np.int64]:
        """The ids of the messages from `start` to `stop`; a packed block has its own."""
        stop = self.count if stop is None else stop
        if self.columns & Column.ID:
            return self.headers_with(Column.ID).fixed[Column.ID][start:stop]
        return np.arange(first_id + start, first_id + stop, dtype=np.int64)

    def times(self, time_us: int, start: int = 0, stop: int | None = None) -> NDArray[np.int64]:
        """The times of the messages from `start` to `stop`; a packed block has its own."""
        stop = self.count if stop is None else stop
        if self.columns & Column.TIME:
            return self.headers_with(Column.TIME).fixed[Column.TIME][start:stop]
        return np.full(stop - start, time_us, np.int64)

    def payloads(self, start: int = 0, stop: int | None = None) -> list[bytes]:
        """The payloads of the messages from `start` to `stop`."""
        stop = self.count if stop is None else stop
        if stop - start == 1:
            return [self._payload(start)]
        bounds = self.offsets[start : stop + 1].tolist()
        first = bounds[0]
        region = bytes(self.payload[first : bounds[-1]])
        if first:
            bounds = [bound - first for bound in bounds]
        return [region[low:high] for low, high in pairwise(bounds)]

    def message(
        self,
        row: int,
        *,
        queue: str,
        first_id: int,
        time_us: int,
        delivery_count: int,
        failed_count: int | None = None,
    ) -> Message:
        """Message `row` of the block. Raises StoreCorrupt where it is not verified yet (BL1)."""
        unread = self.unread
        if unread is not None and unread.only_row in (-1, row):
            unread.only_row = row  # who asks for others has all
            payload, header = unread.row(row, self.payload.nbytes)
            found = header.get
            return Message(
                found(Column.ID, first_id + row),
                queue,
                payload,
                found(Column.PRIORITY, 0),
                found(Column.GROUP, 0),
                found(Column.TIME, time_us),
                found(Column.SENDER),
                found(Column.CORRELATION_ID),
                found(Column.REPLY_TO),
                found(Column.CONTENT_TYPE),
                _present_time(found(Column.EXPIRES_AT)),
                _present_time(found(Column.DELIVER_AT)),
                delivery_count,
                found(Column.ATTRIBUTES, NO_ATTRIBUTES),
                failed_count,
            )
        if not self.columns:
            return Message(
                first_id + row,
                queue,
                self._payload(row),
                time=time_us,
                delivery_count=delivery_count,
                failed_count=failed_count,
            )
        fixed = self.headers.fixed
        strings = self.headers.strings
        attributes = self.headers.attributes
        return Message(
            int(fixed[Column.ID][row]) if Column.ID in fixed else first_id + row,
            queue,
            self._payload(row),
            int(fixed[Column.PRIORITY][row]) if Column.PRIORITY in fixed else 0,
            int(fixed[Column.GROUP][row]) if Column.GROUP in fixed else 0,
            int(fixed[Column.TIME][row]) if Column.TIME in fixed else time_us,
            strings[Column.SENDER].get(row) if Column.SENDER in strings else None,
            strings[Column.CORRELATION_ID].get(row) if Column.CORRELATION_ID in strings else None,
            strings[Column.REPLY_TO].get(row) if Column.REPLY_TO in strings else None,
            strings[Column.CONTENT_TYPE].get(row) if Column.CONTENT_TYPE in strings else None,
            _time(fixed, Column.EXPIRES_AT, row),
            _time(fixed, Column.DELIVER_AT, row),
            delivery_count,
            NO_ATTRIBUTES if attributes is None else attributes.get(row),
            failed_count,
        )

    def to_arrow(
        self,
        start: int = 0,
        stop: int | None = None,
        *,
        queue: str,
        first_id: int,
        time_us: int,
        delivery_count: int | NDArray[np.int32],
        copy: bool = True,
    ) -> pa.RecordBatch:
        """The messages from `start` to `stop` as a batch of `MESSAGE_SCHEMA`.

        With `copy`, nothing of the batch refers to the block's buffer; without it, the payload
        does, and the buffer must stay as it is while the batch lives.
        """
        stop = self.count if stop is None else stop
        return to_record_batch(
            self.headers if not self.columns else self.headers.slice(start, stop),
            self.offsets[start : stop + 1],
            self.payload,
            ids=self.ids(first_id, start, stop),
            times=self.times(time_us, start, stop),
            delivery_count=delivery_count,
            queue=queue,
            copy=copy,
        )

    def _payload(self, row: int) -> bytes:
        if self.count == 1:
            return bytes(self.payload)
        return bytes(self.payload[int(self.offsets[row]) : int(self.offsets[row + 1])])


class StreamedBlock(Block):
    """The header of one streamed message, whose payload is elsewhere (`streamed_message`)."""

    __slots__ = ("read_chunk",)

    read_chunk: ReadChunk
    """Reads the payload; set by who has read the block."""

    @property
    def stream(self) -> Stream:
        """The place of the payload."""
        assert self.headers.stream is not None
        return self.headers.stream

    @classmethod
    def of(cls, header: Block, stream: Stream, read_chunk: ReadChunk) -> StreamedBlock:
        """A block of one message whose payload is the stream."""
        self = cls.__new__(cls)
        for name in Block.__slots__:
            setattr(self, name, getattr(header, name))
        self.columns, self.headers = header.columns | Column.STREAM, header.headers.slice(0, 1)
        self.headers.stream, self.read_chunk = stream, read_chunk
        return self

    def whole(self) -> Block:
        """The message with its payload in memory. Raises InvalidArgument above 1 GiB."""
        payload = memoryview(whole_payload(self.stream, self.read_chunk))
        block = Block.__new__(Block)
        block.checksum, block.columns = self.checksum, self.columns & ~Column.STREAM
        block.count, block.length = 1, self.length + len(payload)
        block.offsets = np.array([0, len(payload)], np.int32)
        block.payload, block.headers = payload, self.headers.slice(0, 1)
        block.unread = None
        return block

    def charged_bytes(self, start: int, stop: int) -> int:
        return super().charged_bytes(start, stop) + self.stream.size * (stop - start)

    def largest_charge(self) -> int:
        return super().largest_charge() + self.stream.size

    def payloads(self, start: int = 0, stop: int | None = None) -> list[bytes]:
        return self.whole().payloads(start, stop)

    def message(self, row: int, **delivery: Any) -> Message:
        header = super().message(row, **delivery)
        return streamed_message.StreamedMessage(header, self.stream, self.read_chunk)

    def to_arrow(self, start: int = 0, stop: int | None = None, **how: Any) -> pa.RecordBatch:
        return self.whole().to_arrow(start, stop, **how)


def _time(fixed: dict[int, NDArray[Any]], column: int, row: int) -> int | None:
    return _present_time(int(fixed[column][row])) if column in fixed else None


def _present_time(time_us: int | None) -> int | None:
    return None if time_us == ABSENT_TIME else time_us
