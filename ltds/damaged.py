"""Reading a damaged file of a large transaction: the blocks that are whole.

- LX1: a block is yielded only if it has the checksum that an entry of the directory names, and is a
  block of as many messages as that says. So the directory need not be right as a whole.
- LX2: the index of a block's first message is told only where all counts add up to the file's.
- The directory is where the trailer says, or, without one, on a page whose first entry is that of
  the first block. The trailer may be anywhere, as in a file that is longer than it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from quire.block import HEADER_BYTES, Block, StreamedBlock
from quire.checksum import checksum
from quire.env import ReadFile
from quire.errors import QuireError, StoreCorrupt
from quire.libraries import np
from quire.rows.open_block import verified_block

from .compression import codec_numbered, decompress
from .format import (
    CHECKSUM,
    CHECKSUM_BYTES,
    HEADER,
    HEADER_MAGIC,
    PAGE_BYTES,
    TRAILER,
    TRAILER_MAGIC,
    VERSION,
    Compression,
    FileContent,
    entry_type,
)

_FIRST_ENTRY = PAGE_BYTES.to_bytes(8, "little") + bytes(8)  # where the first block's begins


class WholeBlock(NamedTuple):
    """A block of a damaged file, decompressed."""

    offset: int  # in the file
    first: int | None  # the index of its first message; None: it is not known
    block: Block
    data: memoryview


def whole_length(file: ReadFile, size: int, ltds_id: int, store_id: int) -> int | None:
    """Return where a file ends that has more behind its trailer; None: there is no trailer."""
    fields = _trailer(file, size, ltds_id, store_id)
    return None if fields is None else fields[0] + PAGE_BYTES


def whole_blocks(
    file: ReadFile, size: int, ltds_id: int, store_id: int, count: int
) -> Iterator[WholeBlock]:
    """Yield the blocks that are whole, in order, as far as the directory can be read (LX1, LX2).

    `count`: the messages of the file. There are none of a streamed message.
    """
    found = _directory(file, size, ltds_id, store_id)
    if found is None:
        return
    codec, entries = found
    counts = entries["count"].tolist()
    is_known = sum(counts) == count and all(counts)
    first = 0
    for index in range(len(entries)):
        whole = _block(file, size, codec, entries[index].item())
        if whole is not None:
            yield whole._replace(first=first if is_known else None)
        first += counts[index]


def _block(file: ReadFile, size: int, codec: Compression, entry: Any) -> WholeBlock | None:
    offset, _, length, count, expected, plain_length, _ = entry
    if offset % PAGE_BYTES or not 0 < length <= size - offset:
        return None
    if not codec and length != plain_length:
        return None
    stored = memoryview(file.read_block(offset, length))
    has_own = length >= HEADER_BYTES and stored[:CHECKSUM_BYTES] == CHECKSUM.pack(expected)
    covered = stored[CHECKSUM_BYTES:] if has_own else stored
    if checksum(covered) != expected:
        return None
    try:
        data = decompress(codec, stored, plain_length, f"block at {offset}")
        block = verified_block(data, f"block at {offset}")
    except (QuireError, ValueError, OverflowError):
        return None
    if block.count != count or isinstance(block, StreamedBlock):
        return None
    return WholeBlock(offset, None, block, data[: block.length])


def _directory(
    file: ReadFile, size: int, ltds_id: int, store_id: int
) -> tuple[Compression, Any] | None:
    """Return the codec, and the entries as they are."""
    layout = entry_type()
    trailer = _trailer(file, size, ltds_id, store_id)
    if trailer is not None:
        end, codec, content, blocks, offset = trailer
    else:
        header = _page(file, 0, HEADER_MAGIC, HEADER, ltds_id, store_id)
        codec, content = (0, 0) if header is None else header[:2]
        blocks, offset, end = -1, _search_directory(file, size), size
    if content != FileContent.MESSAGES or not PAGE_BYTES <= offset < end:
        return None
    most = (end - offset) // layout.itemsize
    length = (most if blocks < 0 else min(blocks, most)) * layout.itemsize
    data = file.read(offset, length)
    entries = np.frombuffer(data[: len(data) // layout.itemsize * layout.itemsize], layout)
    if blocks < 0:  # it ends with zeros, or where the trailer was
        follows = entries["first_index"] == np.cumsum(entries["count"]) - entries["count"]
        ends = np.flatnonzero(~follows | (entries["count"] == 0))
        entries = entries[: ends[0]] if len(ends) else entries
    try:
        return codec_numbered(codec, f"{ltds_id:016x}"), entries
    except StoreCorrupt:
        return None


def _search_directory(file: ReadFile, size: int) -> int:
    """Return the last page that begins as a directory does; 0: there is none."""
    for offset in range((size - 1) // PAGE_BYTES * PAGE_BYTES, 0, -PAGE_BYTES):
        if file.read(offset, len(_FIRST_ENTRY)) == _FIRST_ENTRY:
            return offset
    return 0


def _trailer(
    file: ReadFile, size: int, ltds_id: int, store_id: int
) -> tuple[int, int, int, int, int] | None:
    """Return the place of the trailer, codec, content, count of blocks, place of the directory."""
    for offset in range((size - PAGE_BYTES) // PAGE_BYTES * PAGE_BYTES, 0, -PAGE_BYTES):
        fields = _page(file, offset, TRAILER_MAGIC, TRAILER, ltds_id, store_id)
        if fields is not None:
            codec, content, blocks, _, _, _, directory, _ = fields
            return offset, codec, content, blocks, directory
    return None


def _page(
    file: ReadFile, offset: int, magic: bytes, layout: Any, ltds_id: int, store_id: int
) -> tuple[int, ...] | None:
    """Return codec, content, and what is behind the store's id; None: it is another page."""
    page = file.read(offset, PAGE_BYTES)
    if len(page) != PAGE_BYTES or page[CHECKSUM_BYTES : CHECKSUM_BYTES + 8] != magic:
        return None
    stored, _, version, codec, content, its_id, its_store, *fields = layout.unpack(page)
    own = (version, its_id, its_store) == (VERSION, ltds_id, store_id)
    if not own or checksum(memoryview(page)[CHECKSUM_BYTES:]) != stored:
        return None
    return (codec, content, *fields)
