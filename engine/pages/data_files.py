"""The data files of a store, and which of them an address names.

A data address is the file's number << 48 | the byte offset in that file. A page number, wherever it
stands by itself, is an address divided by the page size: it names its file in the same way, and
numbers of the first file are what they are without any other.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

from quire.checksum import checksum
from quire.engine.layout import Layout
from quire.engine.options import Options
from quire.env import Env
from quire.errors import StoreCorrupt
from quire.limits import MAX_DATA_FILE_BYTES, MAX_DATA_FILES

from .data_file import DataFile

_FILE_SHIFT: Final = MAX_DATA_FILE_BYTES.bit_length() - 1
_OFFSET_MASK: Final = MAX_DATA_FILE_BYTES - 1

assert MAX_DATA_FILE_BYTES == 1 << _FILE_SHIFT
assert MAX_DATA_FILES << _FILE_SHIFT <= 1 << 63


def split_address(address: int) -> tuple[int, int]:
    """(number of the file, byte offset in it)."""
    return address >> _FILE_SHIFT, address & _OFFSET_MASK


def split_page(page: int, page_size: int) -> tuple[int, int]:
    """(number of the file, number of the page in it)."""
    return divmod(page, MAX_DATA_FILE_BYTES // page_size)


def file_for(queue: str, files: int) -> int:
    """The data file of a queue that was not given one: by its name, the same on every machine."""
    return checksum(queue.encode()) % files


class DataFiles(tuple[DataFile, ...]):
    """The data files by number; read by address."""

    __slots__ = ()

    @property
    def page_size(self) -> int:
        return self[0].page_size

    @property
    def failed(self) -> bool:
        """True if a write, sync or change of size of any has failed (D4)."""
        return any(data.failed for data in self)

    def read(self, address: int, length: int) -> bytes | memoryview:
        """Read as `DataFile.read` does. Raises StoreCorrupt also for a file that there is not."""
        file, offset = split_address(address)
        return self.file(file).read(offset, length)

    def file(self, number: int) -> DataFile:
        """Raises StoreCorrupt for a number that no file has."""
        if number >= len(self):
            raise StoreCorrupt(
                f"there is no data file {number}: the store has {len(self)}; restore it from a copy"
            )
        return self[number]

    def where(self, address: int) -> str:
        """The place in words, for messages."""
        file, offset = split_address(address)
        path = self[file].path if file < len(self) else f"data file {file}, which there is not,"
        return f"{path} page {offset // self.page_size} (offset {offset})"

    def close(self) -> None:
        """Let go of all of them, even if one cannot be closed well."""
        with ExitStack() as closing:
            for data in self:
                closing.callback(data.close)


def open_data_files(
    env: Env, layout: Layout, options: Options, store_id: int, *, create: bool = False
) -> DataFiles:
    """Open a store's data files, or make them. Raises what `DataFile` raises."""
    with ExitStack() as opened:
        files = []
        for number in range(options.data_files):
            file = DataFile(
                env,
                layout.data_file(number),
                page_size=options.page_size,
                store_id=store_id,
                number=number,
                create=create,
                grow_bytes=options.grow_bytes,
            )
            opened.callback(file.close)
            files.append(file)
        opened.pop_all()
        return DataFiles(files)
