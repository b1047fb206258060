"""Reading leased pieces, in any process, without owning the store.

- Where the files of pieces are, `PieceFiles` knows: in a directory of this host, or elsewhere.
- R1: every block is verified, and must carry the checksum that its piece names: a place that was
  used again is an error, never wrong messages. So it does not matter which file a handle leads to.
- Memory is bounded by the rows of a batch and one block.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import NamedTuple, Protocol

from quire.batches.arrow_batch import slices_to_arrow
from quire.batches.delivered_slice import Delivered
from quire.block import Block, StreamedBlock
from quire.engine.layout import Layout, no_store
from quire.engine.pages.data_files import split_address
from quire.engine.records.checkpoint_file import Checkpoint, list_checkpoints, read_checkpoint
from quire.env import Env, File, OsEnv, ReadFile
from quire.errors import PositionLost, StoreCorrupt
from quire.journal import segment_path
from quire.libraries import pa
from quire.limits import BATCH_BYTES, BATCH_ROWS, CHECKPOINT_TRIES, LTDS_READERS
from quire.ltds import LtdsReader, path_of
from quire.reports.info import Piece
from quire.rows.open_block import verified_block
from quire.rows.row_part import StoredBlock


class PieceBlock(NamedTuple):
    """A block with messages of a piece: those of its rows from `start` to before `stop`."""

    start: int
    stop: int
    messages: int  # so many it has at least
    first: int  # the index of its first one in the piece's block or file
    path: str
    part: StoredBlock | None  # None: only the whole can be read
    whole: Callable[[], Block]
    """Read and verify it. Raises as `PieceReader.read`."""


class BlockFiles:
    """A store's files, opened to read, a few at a time. For one thread; close it at the end."""

    def __init__(self, env: Env, layout: Layout, segment_bytes: int) -> None:
        self._env = env
        self._layout = layout
        self._segment_bytes = segment_bytes
        self._open: OrderedDict[str, File] = OrderedDict()

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()

    def at(self, address: int, *, in_journal: bool) -> tuple[File, int]:
        """Return the file that an address names, and the offset. Raises FileNotFoundError."""
        if in_journal:
            number, offset = divmod(address, self._segment_bytes)
            return self._file(segment_path(self._layout.journal, number)), offset
        number, offset = split_address(address)
        return self._file(self._layout.data_file(number)), offset

    def _file(self, path: str) -> File:
        file = self._open.get(path)
        if file is None:
            file = self._open[path] = self._env.open_file(path, read_only=True)
            if len(self._open) > LTDS_READERS:
                self._open.popitem(last=False)[1].close()
        return file


class PieceFiles(Protocol):
    """The files that pieces are in: those of a directory, or of a store that is elsewhere."""

    path: str  # of the store, for messages

    def expect(self, queue: str, pieces: Sequence[Piece]) -> None:
        """These pieces of the queue are read next, in this order, until others are."""

    def place(self, piece: Piece) -> tuple[ReadFile, int]:
        """Return the file and the offset of a block. Raises FileNotFoundError."""

    def large(self, piece: Piece) -> LtdsReader:
        """Open the file of a large transaction. Raises StoreCorrupt where it is not there."""

    def missing(self, piece: Piece) -> str | None:
        """Return the path of a large transaction's file that is gone; None: it is there."""

    def close(self) -> None:
        """Close what is open."""


class DirectoryPieces:
    """The files of a store whose directory this host has."""

    def __init__(self, path: str, env: Env) -> None:
        self.path = path
        self._env = env
        self._layout = Layout(path)
        checkpoint = self._newest_checkpoint()
        self._store_id = checkpoint.store_id
        segment_bytes = int(checkpoint.document["segment_bytes"])
        self._files = BlockFiles(self._env, self._layout, segment_bytes)

    def expect(self, queue: str, pieces: Sequence[Piece]) -> None:
        """Do nothing: the machine reads ahead."""

    def place(self, piece: Piece) -> tuple[ReadFile, int]:
        return self._files.at(piece.address, in_journal=piece.kind == "journal")

    def large(self, piece: Piece) -> LtdsReader:
        return LtdsReader(self._env, self._layout.ltds, piece.address, self._store_id)

    def missing(self, piece: Piece) -> str | None:
        path = path_of(self._layout.ltds, piece.address)
        return None if self._env.exists(path) else path

    def close(self) -> None:
        self._files.close()

    def _newest_checkpoint(self) -> Checkpoint:
        for _ in range(CHECKPOINT_TRIES):
            with suppress(FileNotFoundError):  # the owner has made a newer one meanwhile
                newest = list_checkpoints(self._env, self._layout.checkpoints)
                if newest:
                    return read_checkpoint(self._env, self._layout.checkpoints, newest[-1])
        raise no_store(self._layout)


class PieceReader:
    """Reads pieces of one store. For one thread; close it at the end."""

    def __init__(self, store: str | PieceFiles, *, env: Env | None = None) -> None:
        """`store`: the path of its directory, whose files are read; or what has its files."""
        self._files: PieceFiles = (
            DirectoryPieces(store, env or OsEnv()) if isinstance(store, str) else store
        )

    def expect(self, queue: str, pieces: Sequence[Piece]) -> None:
        """These pieces of the queue are read next, in this order: what has files elsewhere asks for
        them together.
        """
        self._files.expect(queue, pieces)

    def read(self, piece: Piece, queue: str = "") -> Iterator[pa.RecordBatch]:
        """The piece's messages as batches of `quire.MESSAGE_SCHEMA`.

        Raises `PositionLost` when the lease has ended and the messages are gone, `StoreCorrupt` for
        damage, `InvalidArgument` for a streamed message of more than 1 GiB.
        """
        return self.read_all([piece], queue)

    def read_all(self, pieces: Iterable[Piece], queue: str = "") -> Iterator[pa.RecordBatch]:
        """All pieces' messages in order; in batches of up to `BATCH_ROWS`, small ones joined."""
        pieces = list(pieces)
        self.expect(queue, pieces)
        slices: list[Delivered] = []
        rows = size = 0
        for part in self._slices(pieces):
            count = part.stop - part.start
            length = int(part.block.offsets[part.stop] - part.block.offsets[part.start])
            if slices and (rows + count > BATCH_ROWS or size + length > BATCH_BYTES):
                yield slices_to_arrow(slices, queue=queue)
                slices, rows, size = [], 0, 0
            slices.append(part)
            rows += count
            size += length
        if slices:
            yield slices_to_arrow(slices, queue=queue)

    def close(self) -> None:
        self._files.close()

    def _slices(self, pieces: Iterable[Piece]) -> Iterator[Delivered]:
        for piece in pieces:
            for found in self.blocks(piece):
                block, first_id = found.whole(), piece.first_id + found.first
                if isinstance(block, StreamedBlock):  # whoever reads pieces makes batches of them
                    block = block.whole()
                yield Delivered(block, found.start, found.stop, first_id, piece.time_us, 1)

    def blocks(self, piece: Piece) -> Iterator[PieceBlock]:
        """Yield the blocks of the piece's messages, in order. Raises as `read`, also later."""
        if piece.kind != "ltds":
            start, stop = piece.start, piece.stop
            whole = partial(self._block, piece)
            yield PieceBlock(start, stop, stop, 0, "a block", self._part(piece), whole)
            return
        with self._large(piece):
            file = self._files.large(piece)
        with file:
            index = piece.start
            while index < piece.stop:
                number = file.locate(index)
                first, count = file.messages_of(number)
                stop = min(count, piece.stop - first)
                whole = partial(self._block_of_file, piece, file, number)
                part = file.part(number)
                yield PieceBlock(index - first, stop, count, first, file.path, part, whole)
                index = first + stop

    def _block_of_file(self, piece: Piece, file: LtdsReader, number: int) -> Block:
        with self._large(piece):
            return file.block_at(number)[0]

    @contextmanager
    def _large(self, piece: Piece) -> Iterator[None]:
        """While the piece's file is opened, or read. Raises PositionLost where it is gone."""
        try:
            yield
        except StoreCorrupt as error:
            path = self._files.missing(piece)
            if path is None:
                raise
            raise PositionLost(
                f"{path}: the file is not there any more: the lease may have ended; plan the read "
                "anew"
            ) from error

    def _part(self, piece: Piece) -> StoredBlock | None:
        with suppress(FileNotFoundError):  # which the whole block tells
            file, offset = self._files.place(piece)
            return StoredBlock(
                lambda at, size: file.read(offset + at, size), piece.length, piece.checksum
            )
        return None

    def _block(self, piece: Piece) -> Block:
        """A block that is in no file of its own, verified.

        Raises PositionLost; StoreCorrupt for bytes that the disk does not give.
        """
        where = f"{self._files.path}: {piece.kind} {piece.address:#x}"
        try:
            file, offset = self._files.place(piece)
            data = file.read_block(offset, piece.length)
        except FileNotFoundError as error:
            raise _lost(where, error) from error
        try:
            block = verified_block(data, where)
        except StoreCorrupt as error:
            raise _lost(where, error) from error
        if block.checksum != piece.checksum or block.count < piece.stop:
            raise PositionLost(f"{where}: the place was used again since the lease ended")
        return block


def _lost(where: str, error: Exception) -> PositionLost:
    return PositionLost(
        f"{where}: the messages are not there any more ({error}): the lease may have ended; plan "
        "the read anew, and run verify if it happens again"
    )
