"""Reading a large transaction's file; any process may, with or without the engine."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from quire.block import HEADER_BYTES, Block, StreamedBlock
from quire.checksum import checksum
from quire.env import FileOpener, ReadFile, SeveralPlaces
from quire.errors import StoreCorrupt, StoreVersion
from quire.libraries import np
from quire.limits import CHUNK_BYTES, LTDS_WRITE_BYTES
from quire.messages.payload_reader import Stream
from quire.rows import row_part
from quire.rows.open_block import verified_block
from quire.rows.row_block import RowBlock, head_bytes, read_head

from .compression import codec_numbered, decompress
from .files import path_of
from .format import (
    CHECKSUM,
    CHECKSUM_BYTES,
    HEADER,
    HEADER_MAGIC,
    PAGE_BYTES,
    PLAIN_BYTES_PER_PAGE,
    TRAILER,
    TRAILER_MAGIC,
    VERSION,
    Compression,
    FileContent,
    entry_type,
    paged,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from quire.rows.row_part import StoredBlock


class LtdsReader:
    """A finished file, open. `count` messages in `block_count` blocks. For any number of threads.

    A block is read into memory of its own, verified, and then decompressed if `codec` says so. Not
    mapped: what was verified cannot change any more, an error of the disk is an OSError and not the
    process's end, and a file that is not in the page cache is read 3 times as fast (measured: 100
    bytes a message, 18 million a second instead of 4 to 8; from the cache 36 instead of 50).

    Raises `StoreCorrupt`, naming the file, if it is missing, unfinished or damaged.
    """

    def __init__(self, env: FileOpener, directory: str, ltds_id: int, store_id: int) -> None:
        self.id = ltds_id
        self.path = path_of(directory, ltds_id)
        self._store_id = store_id
        self.checksum = 0  # of the trailer
        try:
            self._file = env.open_file(self.path, read_only=True)
        except FileNotFoundError:
            raise missing(self.path) from None
        try:
            self._open()
        except BaseException:
            self._file.close()
            raise

    def checked(self, count: int, checksum: int = 0) -> LtdsReader:
        """Return the reader if the file is the one that a record names; else close it. Raises
        StoreCorrupt.

        `checksum`: of its trailer; 0: it is not known.
        """
        if self.count != count:
            text = f"holds {self.count} messages, its record says {count}"
        elif checksum not in (0, self.checksum):
            text = "is not the file that its record names: its trailer's checksum differs"
        else:
            return self
        self.close()
        raise StoreCorrupt(f"{self.path}: {text}")

    def close(self) -> None:
        """Close the file; blocks that were read stay valid."""
        self._file.close()

    def __enter__(self) -> LtdsReader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[tuple[Block, int]]:
        """Yield all blocks in order, each with the index of its first message."""
        return (self.block_at(number) for number in range(self.chunk_count, self.block_count))

    def block_at(self, number: int) -> tuple[Block, int]:
        """Block `number` and the index of its first message."""
        return self.parse(number, self.stored(number))

    def stored(self, number: int) -> memoryview:
        """Block `number` as it is in the file, in memory of its own, not verified."""
        if not 0 <= number < self.block_count:
            raise IndexError(f"block {number} of {self.block_count} in {self.path}")
        offset, _, length, *_ = self._entries[number].item()
        return memoryview(self._file.read_block(offset, length))

    def parse(
        self,
        number: int,
        stored: memoryview,
        parse: Callable[[memoryview, str], Block] = verified_block,
    ) -> tuple[Block, int]:
        """Return the verified block of the `stored` bytes and the index of its first message; the
        file may be closed.

        `parse`: by `open_block` some of it later. Raises StoreCorrupt.
        """
        offset, first_index, _, count, expected, plain_length, _ = self._entries[number].item()
        location = f"{self.path}: block {number} at {offset}"
        if not self._blocks_have_own:
            stored = self._plain(number, stored)
        block = parse(stored, location)
        if (block.count, block.length) != (count, plain_length) or (
            self._blocks_have_own and block.checksum != expected
        ):
            raise StoreCorrupt(f"{location} is not the one that the directory names")
        if self.content == FileContent.STREAM or isinstance(block, StreamedBlock):
            self._check_streamed(block, location)
        return block, first_index

    def chunk(self, stream: Stream, number: int) -> memoryview:
        """The bytes of a chunk of the streamed message, verified. Raises StoreCorrupt."""
        return self.parse_chunk(stream, number, self.stored(number))

    def parse_chunk(self, stream: Stream, number: int, stored: memoryview) -> memoryview:
        """The bytes of a chunk as `stored` gave them, verified; the file may be closed."""
        if not 0 <= number < self.chunk_count:
            raise StoreCorrupt(f"{self.path}: it has no chunk {number}")
        plain = self._plain(number, stored)
        if len(plain) != stream.length_of(number):
            raise StoreCorrupt(f"{self.path}: chunk {number} is not as long as its message says")
        return plain

    def plain_stream(self) -> PlainStream:
        """The payload of the streamed message as it lies in the file. Raises StoreCorrupt."""
        entries = self._entries[: self.chunk_count]
        places = PAGE_BYTES + np.arange(len(entries), dtype=np.uint64) * np.uint64(CHUNK_BYTES)
        if self.codec or not len(entries) or (entries["offset"] != places).any():
            raise StoreCorrupt(f"{self.path}: its chunks are not the plain bytes of a payload")
        return PlainStream(self._file)

    def _plain(self, number: int, stored: memoryview) -> memoryview:
        """Return the bytes of a block or chunk, verified by its entry's checksum and
        decompressed.
        """
        entry = self._entries[number]
        location = self._location(number)
        if checksum(stored) != int(entry["checksum"]):
            raise StoreCorrupt(f"{location}: the stored checksum does not match its bytes")
        return decompress(self.codec, stored, int(entry["plain_length"]), location)

    def _check_streamed(self, block: Block, location: str) -> None:
        """The message must be one whose payload are the file's chunks."""
        if (
            not isinstance(block, StreamedBlock)
            or block.stream.file != self.id
            or block.stream.chunks != self.chunk_count
            or block.stream.size != self.payload_bytes
        ):
            raise StoreCorrupt(f"{location} is not the streamed message of this file's chunks")
        block.read_chunk = self.chunk

    def contents(self, numbers: Sequence[int]) -> Iterator[memoryview]:
        """Yield the bytes of these blocks as they were before they were written: decompressed and
        verified.

        Those that follow each other are read together, LTDS_WRITE_BYTES at a time. That the bytes
        are the block that the directory names is seen by its checksum; they are not parsed.
        Raises StoreCorrupt.
        """
        offsets, lengths = self._entries["offset"].tolist(), self._entries["length"].tolist()
        index = 0
        while index < len(numbers):
            begin, stop = offsets[numbers[index]], index + 1
            end = begin + lengths[numbers[index]]
            while stop < len(numbers) and numbers[stop] == numbers[stop - 1] + 1:
                number = numbers[stop]
                if offsets[number] + lengths[number] - begin > LTDS_WRITE_BYTES:
                    break
                end = offsets[number] + lengths[number]
                stop += 1
            together = memoryview(self._file.read_block(begin, end - begin))
            for number in numbers[index:stop]:
                start = offsets[number] - begin
                yield self._content(number, together[start : start + lengths[number]])
            index = stop

    def _content(self, number: int, stored: memoryview) -> memoryview:
        if not self._blocks_have_own:
            return self._plain(number, stored)
        # The directory repeats the block's own, which is in its first bytes.
        expected = int(self._entries[number]["checksum"])
        own = stored[:CHECKSUM_BYTES] == CHECKSUM.pack(expected)
        if not own or checksum(stored[CHECKSUM_BYTES:]) != expected:
            raise StoreCorrupt(f"{self._location(number)} is not the one that the directory names")
        return stored

    def _location(self, number: int) -> str:
        return f"{self.path}: block {number} at {self._entries[number]['offset']}"

    def words_at(self, number: int) -> str | None:
        """The schema of the block's rows, in words; None: its messages are bytes.

        Raises StoreCorrupt.
        """
        part = self.part(number)
        if part is None:
            block, _ = self.block_at(number)
            return block.words if isinstance(block, RowBlock) else None
        head = part.head()
        if not head_bytes(head):
            return None
        return read_head(head, f"{self.path}: block {number}").words

    def messages_of(self, number: int) -> tuple[int, int]:
        """The index of the block's first message, and how many it has."""
        entry = self._entries[number]
        return int(entry["first_index"]), int(entry["count"])

    def part(self, number: int) -> StoredBlock | None:
        """The block as it is in the file, to be read in part; None: it is compressed, or short."""
        offset, _, length, _, stored_checksum, *_ = self._entries[number].tolist()
        if self.codec or length < HEADER_BYTES:
            return None
        return row_part.StoredBlock(
            lambda at, size: self._file.read(offset + at, size), length, stored_checksum
        )

    def locate(self, message_index: int) -> int:
        """The number of the block that holds the message."""
        if not 0 <= message_index < self.count:
            raise IndexError(f"message {message_index} of {self.count} in {self.path}")
        return bisect_right(self._first_indexes, message_index) - 1

    def _open(self) -> None:
        self.bytes = self._file.size()
        if self.bytes < 2 * PAGE_BYTES or self.bytes % PAGE_BYTES:
            raise StoreCorrupt(f"{self.path}: not finished ({self.bytes} bytes)")
        self.codec, self.content, _ = self._page("header", 0, HEADER_MAGIC, HEADER)
        codec, content, fields = self._page(
            "trailer", self.bytes - PAGE_BYTES, TRAILER_MAGIC, TRAILER
        )
        if (codec, content) != (self.codec, self.content):
            raise StoreCorrupt(f"{self.path}: header and trailer name different codecs or contents")
        # The checksum of an entry is its block's own, which covers the stored bytes.
        self._blocks_have_own = not (codec or content)
        (
            self.block_count,
            self.count,
            self.payload_bytes,
            self.charge_bytes,
            directory_offset,
            directory_checksum,
        ) = fields
        layout = entry_type()
        length = self.block_count * layout.itemsize
        if (
            directory_offset % PAGE_BYTES
            or directory_offset < PAGE_BYTES
            or paged(directory_offset + length) + PAGE_BYTES != self.bytes
        ):
            raise StoreCorrupt(f"{self.path}: the directory does not fit the file")
        directory = self._file.read(directory_offset, length)
        if len(directory) != length or checksum(directory) != directory_checksum:
            raise StoreCorrupt(f"{self.path}: the directory's checksum does not match its bytes")
        self._entries: NDArray[Any] = np.frombuffer(directory, layout)
        is_streamed = content == FileContent.STREAM
        self.chunk_count = self.block_count - 1 if is_streamed else 0
        check_entries(self._entries, self.count, directory_offset, self.path, self.chunk_count)
        # Of the blocks' first messages, ascending: a get of one message looks there each time.
        self._first_indexes: list[int] = self._entries["first_index"].tolist()

    def _page(
        self, name: str, offset: int, magic: bytes, layout: Any
    ) -> tuple[Compression, FileContent, tuple[int, ...]]:
        """Codec, content, and the page's fields after the store id; all before them is verified."""
        page = self._file.read(offset, PAGE_BYTES)
        if len(page) != PAGE_BYTES or page[CHECKSUM_BYTES : CHECKSUM_BYTES + 8] != magic:
            raise StoreCorrupt(f"{self.path}: not finished, or damaged: there is no {name}")
        stored_checksum, _, version, number, content, ltds_id, store_id, *fields = layout.unpack(
            page
        )
        if checksum(memoryview(page)[CHECKSUM_BYTES:]) != stored_checksum:
            raise StoreCorrupt(f"{self.path}: the {name}'s checksum does not match its bytes")
        if version != VERSION or content not in set(FileContent):
            raise StoreVersion(
                f"{self.path}: the {name} has version {version}, content {content}; this release "
                f"reads version {VERSION}, contents 0 to {max(FileContent)}: use a newer one"
            )
        codec = codec_numbered(number, self.path)
        if (ltds_id, store_id) != (self.id, self._store_id):
            raise StoreCorrupt(
                f"{self.path}: the {name} is of file {ltds_id:016x} in store {store_id:016x}"
            )
        self.checksum = stored_checksum
        return codec, FileContent(content), tuple(fields)


def missing(path: str) -> StoreCorrupt:
    """Return the error for a file that is not there."""
    return StoreCorrupt(f"{path}: the large transaction's file is missing")


class PlainStream:
    """The payload of a streamed message, read anywhere. What is read is not verified."""

    def __init__(self, file: ReadFile) -> None:
        self._file = file
        self._several = file if isinstance(file, SeveralPlaces) else None

    def read(self, offset: int, length: int) -> bytes:
        """Return so many bytes from there on; fewer where the file ends."""
        return self._file.read(PAGE_BYTES + offset, length)

    def expect_several(self, places: Sequence[tuple[int, int]]) -> None:
        """These places are about to be read."""
        if self._several is not None:
            self._several.expect_several([(PAGE_BYTES + at, length) for at, length in places])

    def read_several(self, places: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of each place, an offset and a length."""
        if self._several is not None:
            return self._several.read_several([(PAGE_BYTES + at, length) for at, length in places])
        read = self._file.read
        return [read(PAGE_BYTES + at, length) for at, length in places]


def check_entries(
    entries: NDArray[Any], count: int, end: int, path: str, chunk_count: int = 0
) -> None:
    """The blocks must follow each other in pages before `end` and hold `count` messages.

    The first `chunk_count` hold none: they are chunks of the only message.
    """
    offsets = entries["offset"].astype(np.uint64)
    ends = offsets + entries["length"]
    counts = entries["count"].astype(np.uint64)
    starts = np.concatenate([np.array([PAGE_BYTES], np.uint64), ends])
    firsts = np.concatenate([np.zeros(1, np.uint64), np.cumsum(counts)])
    if (
        (offsets % PAGE_BYTES).any()
        or (offsets < starts[:-1]).any()
        or (ends < offsets).any()
        or starts[-1] > end
        or (counts[chunk_count:] == 0).any()
        or (chunk_count and (count != 1 or counts[:chunk_count].any()))
        or (entries["first_index"] != firsts[:-1]).any()
        or firsts[-1] != count
    ):
        raise StoreCorrupt(f"{path}: the directory contradicts itself")
    _check_plain_lengths(entries, path)


def _check_plain_lengths(entries: NDArray[Any], path: str) -> None:
    """Check that a block's length after decompression is bounded by its pages on the disk."""
    stored, plain = entries["length"].astype(np.uint64), entries["plain_length"]
    pages = (stored + np.uint64(PAGE_BYTES - 1)) // np.uint64(PAGE_BYTES)
    compressed = plain != entries["length"]
    if (
        (plain < entries["length"]).any()
        or (compressed & (plain > pages * np.uint64(PLAIN_BYTES_PER_PAGE))).any()
        or entries["reserved"].any()
    ):
        raise StoreCorrupt(f"{path}: the directory's lengths contradict each other")
