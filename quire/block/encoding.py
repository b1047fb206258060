"""Encoding: runs of messages to the bytes of blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from quire.definitions.properties import Granted
from quire.errors import InvalidArgument
from quire.libraries import np
from quire.limits import MAX_BLOCK_BYTES, MESSAGE_OVERHEAD_BYTES
from quire.messages.message_fields import Fields

from .block import Block
from .format import (
    ABSENT_TIME,
    COLUMN_NAMES,
    FIXED_COLUMNS,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    PADDING,
    STRING_COLUMNS,
    TABLE_ENTRY_BYTES,
    VERSION,
    Column,
    padded,
    section_count,
)
from .header_columns import Attributes, Buffer, Headers, Strings, join_headers, offsets_of
from .single_block import seal

if TYPE_CHECKING:
    from numpy.typing import NDArray


class EncodedBlock:
    """The bytes of a block, how many messages it holds and what they count against capacity."""

    __slots__ = ("charge_bytes", "count", "data", "payload_bytes")

    def __init__(
        self, data: bytes | bytearray, count: int, charge_bytes: int, payload_bytes: int
    ) -> None:
        self.data = data
        self.count = count
        self.charge_bytes = charge_bytes
        self.payload_bytes = payload_bytes


class MessageRun:
    """Messages in memory: lengths of the payloads, their bytes in pieces, and header columns.

    `pieces` is either one buffer per message (`region` False) or one buffer with all of them.
    `offsets`: those of the payloads as a block stores them, where they are known.
    """

    __slots__ = ("count", "headers", "lengths", "offsets", "pieces", "region")

    def __init__(
        self,
        lengths: NDArray[np.int64],
        pieces: Sequence[Buffer],
        headers: Headers,
        *,
        region: bool,
        offsets: Buffer | None = None,
    ) -> None:
        self.count = len(lengths)
        self.lengths = lengths
        self.pieces = pieces
        self.headers = headers
        self.region = region
        self.offsets = offsets

    @property
    def payload_bytes(self) -> int:
        return len(self.pieces[0]) if self.region else int(self.lengths.sum())

    @property
    def charge_bytes(self) -> int:
        """The bytes that its messages count against their queue's capacity."""
        own = self.payload_bytes + self.headers.charge_bytes()
        return own + MESSAGE_OVERHEAD_BYTES * self.count

    def split(self, counts: Sequence[int]) -> Iterator[MessageRun]:
        """Runs of so many of its messages, in their order; their payloads are in one buffer."""
        ends = offsets_of(self.lengths)
        offsets: list[int] = ends.tolist()
        lengths, headers = self.lengths, self.headers
        columns = headers.columns()
        content = memoryview(self.pieces[0])
        stored = memoryview(_stored_offsets(ends, counts))
        start = place = 0
        for count in counts:
            stop, next_place = start + count, place + 4 * (count + 1)
            own = headers.slice(start, stop).present() if columns else headers
            payloads = content[offsets[start] : offsets[stop]]
            known = stored[place:next_place]
            yield MessageRun(lengths[start:stop], [payloads], own, region=True, offsets=known)
            start, place = stop, next_place


def _stored_offsets(offsets: NDArray[np.int64], counts: Sequence[int]) -> bytes:
    """The payload offsets of blocks of so many messages, one after another, each from 0 on."""
    sizes = np.array(counts, np.int64)
    starts = offsets_of(sizes)[:-1]
    # The offset that ends one block begins the next one: it is there twice.
    rows = np.arange(int(sizes.sum()) + len(sizes)) - np.repeat(np.arange(len(sizes)), sizes + 1)
    return (offsets[rows] - np.repeat(offsets[starts], sizes + 1)).astype("<i4").tobytes()


def run_of_rows(payloads: Sequence[Buffer], fields: Sequence[Fields | None]) -> MessageRun:
    """A run of messages that were added one by one."""
    lengths = np.fromiter(map(len, payloads), np.int64, len(payloads))
    return MessageRun(lengths, payloads, headers_of_rows(fields), region=False)


_NO_FIELDS: Final = Fields()  # of a message that says nothing


def run_of_block(block: Block) -> MessageRun:
    """A run of the messages of a block."""
    lengths = np.diff(block.offsets).astype(np.int64)
    return MessageRun(lengths, [block.payload], block.headers, region=True)


def with_granted(run: MessageRun, granted: Granted) -> MessageRun:
    """The run, with what the queue grants to its messages."""
    headers = granted_headers(run.headers, run.count, granted)
    return MessageRun(run.lengths, run.pieces, headers, region=run.region)


def granted_headers(original: Headers, count: int, granted: Granted) -> Headers:
    """Headers with what the queue grants; if any has a priority, each has one, and be it 0."""
    headers = prioritised(original, count, granted.priority)
    if granted.latest is not None:
        own = headers.fixed.get(Column.EXPIRES_AT)
        if own is None:
            expires = np.full(count, granted.expires_at, np.int64)
        else:
            unsaid = own == ABSENT_TIME
            expires = np.minimum(own, granted.latest)
            expires[unsaid] = granted.expires_at
        headers.fixed[Column.EXPIRES_AT] = expires.astype("<i8")
    return headers


def prioritised(original: Headers, count: int, priority: int | NDArray[np.int64]) -> Headers:
    """Headers with this priority of each message, if they have none."""
    headers = copy(original)
    headers.fixed = dict(original.fixed)
    if Column.PRIORITY not in headers.fixed and np.any(priority):
        headers.fixed[Column.PRIORITY] = np.full(count, priority, "<u2")
    return headers


def with_no_priority(original: Headers, count: int) -> Headers:
    """Headers of messages that were put before: without a priority they have 0, for good."""
    headers = copy(original)
    headers.fixed = {Column.PRIORITY: np.zeros(count, "<u2"), **original.fixed}
    return headers


def headers_of_rows(fields: Sequence[Fields | None], default_priority: int = 0) -> Headers:
    """The header columns of messages that were added one by one.

    `default_priority`: of those that say none; without one they have no priorities if all are 0.
    """
    headers = Headers()
    present = Column.PRIORITY if default_priority else 0
    for row in fields:
        if row is not None:
            present |= row.columns
    count = len(fields)
    for column, (dtype, absent) in FIXED_COLUMNS.items():
        if present & column:
            numbers = map(attrgetter(COLUMN_NAMES[column]), (row or _NO_FIELDS for row in fields))
            if column == Column.PRIORITY:
                absent = default_priority
            headers.fixed[column] = np.fromiter(
                (absent if number is None else number for number in numbers), dtype, count
            )
    for column in STRING_COLUMNS:
        if present & column:
            name = COLUMN_NAMES[column]
            values = [None if row is None else getattr(row, name) for row in fields]
            headers.strings[column] = Strings.of(
                [None if value is None else value.encode() for value in values]
            )
    if present & Column.ATTRIBUTES:
        headers.attributes = Attributes.of(
            [
                []
                if row is None
                else [(key.encode(), value.encode()) for key, value in row.attributes.items()]
                for row in fields
            ]
        )
    return headers


def encode_runs(runs: Sequence[MessageRun], max_block_bytes: int) -> Iterator[EncodedBlock]:
    """The blocks of the runs' messages in order; none above the size but by a single message."""
    if len(runs) == 1 and runs[0].offsets is not None:
        block = _plain_block(runs[0], min(max_block_bytes, MAX_BLOCK_BYTES))
        if block is not None:
            yield block
            return
    if len(runs) == 1:
        lengths, headers = runs[0].lengths, runs[0].headers
    else:
        lengths = np.concatenate([run.lengths for run in runs])
        headers = join_headers([(run.headers, run.count) for run in runs])
    count = len(lengths)
    offsets = offsets_of(lengths)
    columns = headers.columns()
    charges = stored = offsets
    stored_end = int(offsets[-1]) + 4 * count
    if columns:
        charges = offsets_of(lengths + headers.charges(count))
        stored = offsets_of(lengths + headers.stored(count) + 4)
        stored_end = int(stored[-1])
    fixed_bytes = HEADER_BYTES + 24 + (TABLE_ENTRY_BYTES + 16) * section_count(columns)
    room_bytes = min(max_block_bytes, MAX_BLOCK_BYTES) - fixed_bytes
    if stored_end <= room_bytes:
        ends = [count]
    else:
        if not columns:
            stored = offsets + 4 * np.arange(count + 1)
        ends = split_ends(stored, room_bytes)
    start = 0
    for stop in ends:
        part = headers if not columns or stop - start == count else headers.slice(start, stop)
        payload_bytes = int(offsets[stop] - offsets[start])
        data = _assemble(
            part,
            columns,
            (offsets[start : stop + 1] - offsets[start]).astype("<i4").tobytes(),
            payload_bytes,
            _pieces(runs, offsets, start, stop),
        )
        charge_bytes = int(charges[stop] - charges[start]) + MESSAGE_OVERHEAD_BYTES * (stop - start)
        yield EncodedBlock(data, stop - start, charge_bytes, payload_bytes)
        start = stop


def _plain_block(run: MessageRun, max_bytes: int) -> EncodedBlock | None:
    """The run's one block, if it has no header columns and fits: one of many, its offsets known.

    Without numpy, as arrays of a few messages cost more than all the rest.
    """
    size = len(run.pieces[0])
    if run.offsets is None or run.headers.columns():
        return None
    if HEADER_BYTES + padded(len(run.offsets)) + padded(size) > max_bytes:
        return None
    data = _assemble(run.headers, 0, run.offsets, size, run.pieces)
    return EncodedBlock(data, run.count, size + MESSAGE_OVERHEAD_BYTES * run.count, size)


def split_ends(stored: NDArray[np.int64], room_bytes: int) -> list[int]:
    """Return the ends of blocks, so that each holds as many messages as fit, but at least one."""
    ends = []
    start, count = 0, len(stored) - 1
    while start < count:
        fitting = int(np.searchsorted(stored, stored[start] + room_bytes, side="right")) - 1
        start = max(fitting, start + 1)
        ends.append(start)
    return ends


def _pieces(
    runs: Sequence[MessageRun], offsets: NDArray[np.int64], start: int, stop: int
) -> list[Buffer]:
    """The payload bytes of the messages from `start` to `stop`, in order."""
    pieces: list[Buffer] = []
    first = 0
    for run in runs:
        low, high = max(start - first, 0), min(stop - first, run.count)
        if low < high:
            if not run.region:
                pieces.extend(run.pieces[low:high])
            elif high - low == run.count:
                pieces.append(run.pieces[0])
            else:
                begin, end = (int(offsets[first + i] - offsets[first]) for i in (low, high))
                pieces.append(memoryview(run.pieces[0])[begin:end])
        first += run.count
    return pieces


def _assemble(
    headers: Headers,
    columns: int,
    payload_offsets: Buffer,
    payload_bytes: int,
    payload_pieces: Sequence[Buffer],
) -> bytearray:
    count = len(payload_offsets) // 4 - 1
    parts: list[Buffer] = [b"", payload_offsets, PADDING[len(payload_offsets) & 7]]
    length = HEADER_BYTES + padded(len(payload_offsets)) + padded(payload_bytes)
    if columns:
        table = []
        for section in headers.sections():
            table.append(len(section))
            parts += (section, PADDING[len(section) & 7])
        length += TABLE_ENTRY_BYTES * len(table) + sum(map(padded, table))
        parts[0] = np.array(table, "<u8").tobytes()
    if length > MAX_BLOCK_BYTES:
        raise InvalidArgument(
            f"the messages make a block of {length} bytes; at most {MAX_BLOCK_BYTES} are possible: "
            "take fewer messages at a time"
        )
    head = HEADER.pack(0, MAGIC, VERSION, 0, columns, count, length, payload_bytes)
    return seal([head, *parts, *payload_pieces, PADDING[payload_bytes & 7]])
