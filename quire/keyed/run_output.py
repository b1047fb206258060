"""A new run on its way: in memory while it is small, else in a file that a commit may adopt.

- What `finish` has returned is durable, if it is a file. It is part of no state until a
  transaction names it, and its file is removed where none does.
- KO1: what the disk refuses, or fails with, is told in words, and leaves no file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from msgspec import Struct

from quire.arguments import Bytes
from quire.block import EncodedBlock, encode_streamed
from quire.errors import QuireError, StoreError
from quire.limits import CHUNK_BYTES, MESSAGE_OVERHEAD_BYTES
from quire.ltds import Compression, LtdsWriter
from quire.messages.message_fields import Fields
from quire.messages.payload_reader import Stream

from .format import LAST_HASH
from .fragment_files import FragmentFiles
from .keyed_rows import KeyedRows
from .limits import RUN_MESSAGE_BYTES
from .row_layout import RowLayout
from .run_writer import RunWriter


class WrittenRun(Struct, frozen=True):
    """A finished run that is part of no state yet. It is pickled, and adopted by any process."""

    id: int
    file: int  # the id of its file; 0: it is the payload
    first: int  # of the hashes that it is for
    last: int
    rows: int  # those that are deleted too
    deleted: int
    timers: int
    size: int  # in bytes
    payload: bytes = b""

    @property
    def name(self) -> str:
        """By which its message is found."""
        return run_name(self.id)


def run_name(run_id: int) -> str:
    """Return what the message of a run is found by."""
    return f"{run_id:016x}"


class RunOutput:
    """Writes a run. For one thread. After an exception only `abort` is left to do."""

    def __init__(
        self,
        files: FragmentFiles,
        queue: str,
        store_id: int,
        layout: RowLayout,
        run_id: int,
        expected_bytes: int,
        expected_rows: int,
        hashes: tuple[int, int] = (0, LAST_HASH),
        message_bytes: int | None = None,
    ) -> None:
        """`queue`: whose message it is to be. `hashes`: the first and the last that it is for.

        `message_bytes`: up to this it is no file; None: what is right for one run of a transaction.
        """
        self._files = files
        self._queue = queue
        self._store_id = store_id
        self._id = run_id
        self._hashes = hashes
        self._message_bytes = RUN_MESSAGE_BYTES if message_bytes is None else message_bytes
        self._waiting = bytearray()
        self._file: LtdsWriter | None = None
        self._writer = RunWriter(
            self._write, layout, run_id, expected_bytes, expected_rows, *hashes
        )

    def add(self, rows: KeyedRows) -> None:
        """See `RunWriter.add`. Raises DiskFull, StoreError."""
        with self._writing():
            self._writer.add(rows)

    def finish(self) -> WrittenRun:
        """The run is complete, and durable if it is a file. Raises DiskFull, StoreError."""
        with self._writing():
            info = self._writer.finish()
            counts = info.rows, info.deleted, info.timers, info.bytes
            if self._file is None:
                return WrittenRun(info.id, 0, *self._hashes, *counts, bytes(self._waiting))
            self._end_file(self._file, info.bytes)
            return WrittenRun(info.id, self._file.id, *self._hashes, *counts)

    def abort(self) -> None:
        """Remove the file: nothing has named it. One that cannot be removed is left to age."""
        if self._file is not None:
            with suppress(OSError, QuireError):
                self._file.abort()
            with suppress(OSError, QuireError):
                self._files.remove([self._file.id])

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A block that writes the file (KO1)."""
        try:
            yield
        except OSError as error:
            if isinstance(error, QuireError):
                raise
            file = 0 if self._file is None else self._file.id
            raise StoreError(
                f"a run of {self._queue} cannot be written to file {file:016x} ({error}): nothing "
                "of it counts; look after the disk, then repeat the operation"
            ) from error

    def _write(self, data: Bytes) -> None:
        self._waiting += data
        if self._file is None and len(self._waiting) > self._message_bytes:
            self._file = self._files.new_fragment(
                self._queue, self._store_id, Compression.NONE, streamed=True
            )
        if self._file is not None and len(self._waiting) >= CHUNK_BYTES:
            whole = len(self._waiting) // CHUNK_BYTES * CHUNK_BYTES
            view = memoryview(self._waiting)
            for start in range(0, whole, CHUNK_BYTES):
                self._file.append_chunk(view[start : start + CHUNK_BYTES])
            view.release()
            del self._waiting[:whole]

    def _end_file(self, file: LtdsWriter, size: int) -> None:
        if self._waiting:
            file.append_chunk(self._waiting)
            self._waiting.clear()
        fields = Fields(correlation_id=run_name(self._id))
        header = encode_streamed(Stream(file.id, size, min(size, CHUNK_BYTES)), fields)
        charge = MESSAGE_OVERHEAD_BYTES + fields.extra_bytes
        file.append([EncodedBlock(header, 1, charge, 0)])
        file.finish()
