"""A store's files, opened to read only, by position: for dumps, beside an owner or without one.

- No file is opened for writing, created or locked, and none is mapped that could get shorter.
- Whatever the files hold, only `UNREADABLE` errors are raised.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from typing import Final

from quire.arguments import Bytes
from quire.block import Block
from quire.engine.layout import Layout
from quire.engine.pages.data_file import HEADER_BYTES, check_header, sizes_in
from quire.engine.pages.data_files import split_address, split_page
from quire.engine.pages.record_page import unpack
from quire.engine.records import format
from quire.engine.records.block_ref import KIND_NAMES, BlockRef
from quire.engine.records.checkpoint_file import list_checkpoints
from quire.engine.records.commit_record import Part
from quire.engine.state.durable_state import PageEntry
from quire.env import Env, File
from quire.errors import PositionLost, QuireError, StoreCorrupt, StoreVersion
from quire.journal import (
    Directory,
    Geometry,
    SegmentReader,
    list_segments,
    read_at,
    segment_path,
)
from quire.limits import MAX_DATA_FILE_BYTES
from quire.ltds import LtdsReader
from quire.ltds import path_of as large_path
from quire.rows.open_block import verified_block

from .items import Finding, Place

UNREADABLE: Final = (QuireError, OSError, MemoryError, ValueError, OverflowError)
_DATA_NAME: Final = re.compile(r"(0|[1-9][0-9]{0,4})\.dat")


class DumpSource:
    """The files of a store, opened to read only. Close it at the end."""

    geometry: Geometry  # given as soon as it is known

    def __init__(self, env: Env, layout: Layout, *, is_lenient: bool = False) -> None:
        """`is_lenient`: headers of files need not be right; what is in them is verified anyway."""
        self.env = env
        self.layout = layout
        self.is_lenient = is_lenient
        self.header_faults: list[Finding] = []  # of the data files that were opened
        self._files: dict[int, File] = {}
        self._closing = ExitStack()
        self.close = self._closing.close

    @property
    def journal(self) -> Directory:
        """The journal's directory, for the functions that read it."""
        geometry, is_lenient = self.geometry, self.is_lenient
        return Directory(self.env, self.layout.journal, geometry, is_lenient=is_lenient)

    def relative(self, path: str) -> str:
        """Return the file's name as items have it."""
        return path.removeprefix(self.layout.path.rstrip("/") + "/")

    def place(self, ref: BlockRef | Part, record_lsn: int = 0) -> Place:
        """Return the place of a queue's record, or of a part of the COMMIT at `record_lsn`."""
        where = KIND_NAMES.get(ref.kind, f"kind {ref.kind}")
        if ref.kind == format.LTDS:
            return Place(where, f"ltds/{ref.address:016x}.ltds")
        if ref.kind == format.DATA:
            number, offset = split_address(ref.address)
            page = offset // self.geometry.page_size
            return Place(where, f"data/{number}.dat", None, offset, page, ref.length)
        lsn = ref.address + record_lsn
        return Place(where, self.journal_place(lsn)[0], lsn, bytes=ref.length)

    def journal_place(self, lsn: int) -> tuple[str, int]:
        """File and offset."""
        number, offset = divmod(lsn, self.geometry.segment_bytes)
        return self.relative(segment_path(self.layout.journal, number)), offset

    def unreadable(self, ref: BlockRef, error: Exception, lost: str) -> Finding:
        """Describe a record's messages that cannot be read."""
        place = self.place(ref)
        offset = place.offset if place.lsn is None else self.journal_place(place.lsn)[1]
        return Finding.of(place.file, offset, error, lost)

    def checkpoints(self) -> list[int]:
        """Their LSNs, ascending. Raises OSError."""
        return list_checkpoints(self.env, self.layout.checkpoints)

    def newest(self) -> int | None:
        """The LSN of the checkpoint that is the newest now."""
        with suppress(OSError):
            return max(self.checkpoints(), default=None)
        return None

    def segments(self) -> list[int]:
        """The numbers of the journal's segment files."""
        with suppress(OSError):
            return list_segments(self.env, self.layout.journal)
        return []

    def block(self, ref: BlockRef) -> Block:
        """A block of the journal or a data file, verified to be the one that the record names."""
        return self.verified(ref)[0]

    def verified(self, ref: BlockRef) -> tuple[Block, Bytes]:
        """Return such a block, and its bytes."""
        data: Bytes
        if ref.kind == format.DATA:
            number, offset = split_address(ref.address)
            data = self.data_file(number).read_block(offset, ref.length)
        elif self.is_lenient:
            number, offset = divmod(ref.address, self.geometry.segment_bytes)
            with closing(SegmentReader(self.journal, number)) as segment:
                data = segment.read(offset, ref.length)
        else:
            journal, segment_bytes = self.layout.journal, self.geometry.segment_bytes
            data = read_at(self.env, journal, segment_bytes, ref.address, ref.length)
        block = verified_block(data, self.place(ref).file)
        if block.checksum != ref.checksum or block.count != ref.count:
            raise PositionLost("another block is at this place")
        return block, data

    def large(self, ltds_id: int) -> LtdsReader:
        """A large transaction's file; the caller closes it."""
        return LtdsReader(self.env, self.layout.ltds, ltds_id, self.geometry.store_id)

    def large_bytes(self, ltds_id: int) -> closing[File]:
        """Return the file as bytes, whatever they are. Raises OSError."""
        path = large_path(self.layout.ltds, ltds_id)
        return closing(self.env.open_file(path, read_only=True))

    def page_place(self, page: int) -> tuple[str, int]:
        """The file of a page as directories number it, and its number there."""
        number, first = split_page(page, self.geometry.page_size)
        return f"data/{number}.dat", first

    def data_files(self) -> list[int]:
        """The numbers of the data files that there are."""
        with suppress(OSError):
            names = self.env.list_directory(self.layout.data)
            return sorted(int(m[1]) for name in names if (m := _DATA_NAME.fullmatch(name)))
        return []

    def data_pages(self, number: int) -> int:
        """Return how many pages the data file has; its header is checked."""
        return self.data_file(number).size() // self.geometry.page_size

    def search_record_pages(self, number: int) -> Iterator[tuple[int, PageEntry]]:
        """Yield a data file's valid record pages, each behind its queue's id; in use or not."""
        base = number * (MAX_DATA_FILE_BYTES // self.geometry.page_size)
        for page in range(base + 1, base + self.data_pages(number)):
            try:
                owner, refs = self.records(page)
            except QuireError:
                continue
            yield owner, PageEntry(refs[0].position, refs[-1].end, page, len(refs))

    def _passes(self, file: File, error: Exception) -> bool:
        """Return True if a data file is read although its header cannot be right."""
        if not self.is_lenient or isinstance(error, StoreVersion):
            return False
        try:
            store_id, _ = sizes_in(file.path, file.read(0, HEADER_BYTES))
        except StoreCorrupt:
            return True
        return store_id == self.geometry.store_id

    def records(self, page: int, queue_id: int | None = None) -> tuple[int, list[BlockRef]]:
        """The records of a page, behind their queue's id, which must be this, if any is given."""
        of = "" if queue_id is None else f" (records of queue #{queue_id})"
        file, first = self.page_place(page)
        size = self.geometry.page_size
        data = self.data_file(split_page(page, size)[0]).read(first * size, size)
        owner, records = unpack(data, queue_id, f"{file} page {first}{of}")
        return owner, list(records)

    def data_file(self, number: int) -> File:
        """Return the data file, open to read only; it is closed with this."""
        if number not in self._files:
            with ExitStack() as opening:
                file = self.env.open_file(self.layout.data_file(number), read_only=True)
                opening.callback(file.close)
                store_id, _, page_size = self.geometry
                try:
                    header = file.read(0, HEADER_BYTES)
                    check_header(file.path, header, page_size, store_id, number)
                except UNREADABLE as error:
                    if not self._passes(file, error):
                        raise
                    name = self.relative(file.path)
                    self.header_faults.append(Finding.of(name, 0, error, "nothing but its header"))
                self._closing.push(opening.pop_all())
            self._files[number] = file
        return self._files[number]
