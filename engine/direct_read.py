"""Reading leased pieces from a store's files, in any process, without owning the store.

- R1: every block is verified, and must carry the checksum that the piece names: a place that was
  used again is an error, never wrong messages.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from quire.block import Block
from quire.env import Env, File, OsEnv
from quire.errors import PositionLost, StoreCorrupt, StoreNotFound
from quire.journal import read_at
from quire.ltds import LtdsReader

from .checkpoint_file import list_checkpoints, read_checkpoint
from .info import Piece
from .layout import Layout


class PieceReader:
    """Reads pieces of one store. For one thread; close it at the end."""

    def __init__(self, path: str, *, env: Env | None = None) -> None:
        self._env = env if env is not None else OsEnv()
        self._layout = Layout(path)
        newest = list_checkpoints(self._env, self._layout.checkpoints)
        if not newest:
            raise StoreNotFound(f"there is no store at {path}")
        checkpoint = read_checkpoint(self._env, self._layout.checkpoints, newest[-1])
        self._store_id = checkpoint.store_id
        self._segment_bytes = int(checkpoint.document["segment_bytes"])
        self._data: File | None = None

    def read(self, piece: Piece, queue: str = "") -> Iterator[pa.RecordBatch]:
        """The piece's messages as batches of `quire.MESSAGE_SCHEMA`.

        Raises `PositionLost` when the lease has ended and the messages are gone, `StoreCorrupt` for
        damage.
        """
        if piece.kind == "ltds":
            yield from self._read_ltds(piece, queue)
            return
        block = self._block(piece)
        yield block.to_arrow(
            piece.start,
            piece.stop,
            queue=queue,
            first_id=piece.first_id,
            time_us=piece.time_us,
            delivery_count=1,
            copy=False,
        )

    def close(self) -> None:
        if self._data is not None:
            self._data.close()
            self._data = None

    def _block(self, piece: Piece) -> Block:
        where = f"{piece.kind} {piece.address:#x}"
        if piece.kind == "journal":
            data = read_at(
                self._env, self._layout.journal, self._segment_bytes, piece.address, piece.length
            )
        else:
            if self._data is None:
                self._data = self._env.open_file(self._layout.data_file(0), read_only=True)
            data = self._data.read(piece.address, piece.length)
        try:
            block = Block.parse(data, where)
        except StoreCorrupt as error:
            raise PositionLost(
                f"{error}; the lease may have ended and the place been used again: plan the read "
                "anew"
            ) from error
        if block.checksum != piece.checksum or block.count < piece.stop:
            raise PositionLost(f"{where}: the place was used again since the lease ended")
        return block

    def _read_ltds(self, piece: Piece, queue: str) -> Iterator[pa.RecordBatch]:
        reader = LtdsReader(self._env, self._layout.ltds, piece.address, self._store_id)
        try:
            start = piece.start
            while start < piece.stop:
                block, first = reader.block_at(reader.locate(start))
                stop = min(piece.stop, first + block.count)
                yield block.to_arrow(
                    start - first,
                    stop - first,
                    queue=queue,
                    first_id=piece.first_id + first,
                    time_us=piece.time_us,
                    delivery_count=1,
                )
                start = stop
        finally:
            reader.close()
