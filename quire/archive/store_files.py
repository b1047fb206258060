"""The files of a store, read by another process than its owner: blocks, and large transactions.

- SF1: every block is verified, and must carry the checksum that its record names: should its place
  have been used again, that is an error and never another block.
- Memory holds a block, and a piece of a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

from quire.arguments import Bytes
from quire.engine.layout import Layout
from quire.engine.reading.direct_read import BlockFiles
from quire.env import Env
from quire.errors import StoreCorrupt
from quire.limits import CHUNK_BYTES
from quire.ltds import LtdsReader, path_of
from quire.rows.open_block import open_block


class StoreFileReader:
    """Reads blocks and files. For one thread; close it at the end."""

    def __init__(self, env: Env, layout: Layout, store_id: int, segment_bytes: int) -> None:
        self._env = env
        self._layout = layout
        self._store_id = store_id
        self.opened = BlockFiles(env, layout, segment_bytes)

    def close(self) -> None:
        """Close the files that are open."""
        self.opened.close()

    def block(
        self, address: int, known: tuple[int, int, int], *, in_journal: bool = False
    ) -> Bytes:
        """Return a block's bytes. `known`: its checksum, messages and bytes.

        Raises StoreCorrupt.
        """
        try:
            file, offset = self.opened.at(address, in_journal=in_journal)
        except FileNotFoundError as error:
            raise StoreCorrupt(f"{error.filename}: the file is missing; run verify") from None
        where = f"{file.path}, offset {offset}"
        data = file.read_block(offset, known[2])
        block = open_block(data, where)
        if (block.checksum, block.count, block.length) != known:
            raise StoreCorrupt(f"{where}: not the block that its record names; run verify")
        return data

    def trailer(self, ltds_id: int) -> int:
        """Return the checksum of the trailer of a large transaction's file. Raises StoreCorrupt."""
        with self._reader(ltds_id) as reader:
            return reader.checksum

    def file_bytes(self, ltds_id: int) -> int:
        """Return the size of a large transaction's file. Raises StoreCorrupt."""
        with self._reader(ltds_id) as reader:
            return reader.bytes

    def file(
        self, ltds_id: int, checksum: int = 0, between: Callable[[], None] = lambda: None
    ) -> Iterator[bytes]:
        """Yield the bytes of a large transaction's file; every block of it is verified before.

        `checksum`: of its trailer; 0: it is not known. `between` is called between reads. Raises
        StoreCorrupt.
        """
        with self._reader(ltds_id) as reader:
            if checksum not in (0, reader.checksum):
                raise StoreCorrupt(
                    f"{reader.path}: not the file that its record names: its trailer's checksum"
                    " differs; run verify"
                )
            for _ in reader.contents(range(reader.block_count)):
                between()
        path, offset = path_of(self._layout.ltds, ltds_id), 0
        with closing(self._env.open_file(path, read_only=True)) as file:
            while piece := file.read(offset, CHUNK_BYTES):
                yield piece
                offset += len(piece)
                between()

    def _reader(self, ltds_id: int) -> LtdsReader:
        return LtdsReader(self._env, self._layout.ltds, ltds_id, self._store_id)
