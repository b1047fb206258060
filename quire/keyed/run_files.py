"""The runs of a keyed state in its store: messages of its queue, small ones and files.

KF1. A run that is not there any more, as a merge was faster, is `RunGone`: what the manifest says
     meanwhile is looked at anew. Where that still names the run it is damaged, and nothing else.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from quire.arguments import Bytes
from quire.block import EncodedBlock, encode_streamed
from quire.env import Env
from quire.env.interpreter import Lock
from quire.errors import StoreCorrupt
from quire.interface.transaction import Transaction
from quire.limits import CHUNK_BYTES, MESSAGE_OVERHEAD_BYTES
from quire.ltds import LtdsReader, LtdsWriter, new_id, remove
from quire.messages.message import Message
from quire.messages.message_fields import Fields
from quire.messages.payload_reader import Stream
from quire.selectors.template import Template

from .keyed_rows import KeyedRows
from .limits import CACHED_RUN_BYTES, MAX_RUNS, RUN_MESSAGE_BYTES
from .manifest import RunEntry
from .row_layout import RowLayout
from .run import KeyedRun
from .run_writer import RunInfo, RunWriter


class RunGone(Exception):
    """A run that the manifest named is not in the store any more, or damaged."""


class _InMemory:
    """The bytes of a run that is a message."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload

    def read(self, offset: int, length: int) -> bytes:
        return self._payload[offset : offset + length]


class RunStore(Protocol):
    """A store, as far as runs have to do with it."""

    @property
    def path(self) -> str:
        """Its directory."""

    @property
    def browse(self) -> Callable[..., Iterable[Message]]:
        """Looks at messages."""


class RunFiles:
    """Opens the runs of one keyed state, and keeps some open. Thread-safe."""

    def __init__(self, store: RunStore, store_id: int, queue: str, env: Env) -> None:
        self.queue: Final = queue
        self._store = store
        self._store_id = store_id
        self._env = env
        self._directory = ltds_directory(store.path)
        self._open: OrderedDict[int, KeyedRun] = OrderedDict()
        self._lock = Lock()

    def get(self, entry: RunEntry) -> KeyedRun:
        """Return an open run. Raises RunGone."""
        run = self._open.get(entry.id)
        if run is None:
            try:
                run = self._from_file(entry) if entry.file else self._from_message(entry)
            except StoreCorrupt as error:
                raise RunGone(str(error)) from error
        self.keep(entry, run)
        return run

    def keep(self, entry: RunEntry, run: KeyedRun) -> None:
        """Keep a run open, and let go of those that were not asked for lately."""
        with self._lock:
            self._open[entry.id] = run
            self._open.move_to_end(entry.id)
            size = sum(each.kept_bytes for each in self._open.values())
            while len(self._open) > 4 * MAX_RUNS or (
                size > CACHED_RUN_BYTES and len(self._open) > MAX_RUNS
            ):
                size -= self._open.popitem(last=False)[1].kept_bytes

    def remove(self, file: int) -> None:
        """Remove a file that nothing has named."""
        remove(self._env, self._directory, file)

    def new_run(self, layout: RowLayout, expected_bytes: int, expected_rows: int) -> RunPut:
        """Return the writer of a new run, of as many bytes and rows, or fewer."""
        run_id = self._env.random_u64()
        return RunPut(self, layout, run_id, expected_bytes, expected_rows)

    def new_file(self) -> LtdsWriter:
        """Return the writer of a new file, which no commit names yet."""
        file = new_id(self._env, foreign=True)
        return LtdsWriter(self._env, self._directory, self._store_id, file, streamed=True)

    def where(self, entry: RunEntry) -> str:
        """Return the place of a run, for errors."""
        place = f"{self.queue}: run {entry.name}"
        return f"{place} ({self._directory}/{entry.file:016x}.ltds)" if entry.file else place

    def message_id(self, entry: RunEntry) -> int:
        """Return the id of a run's message. Raises RunGone."""
        return self._message(entry).id

    def _message(self, entry: RunEntry) -> Message:
        for found in self._store.browse(self.queue, 1, where=Template(correlation_id=entry.name)):
            return found
        raise RunGone(
            f"{self.where(entry)}: its message is not there (somebody may have got it, or have "
            "purged or renamed the queue)"
        )

    def _from_message(self, entry: RunEntry) -> KeyedRun:
        return run_in_memory(self._message(entry).payload, entry.id, self.where(entry))

    def _from_file(self, entry: RunEntry) -> KeyedRun:
        reader = LtdsReader(self._env, self._directory, entry.file, self._store_id)
        try:
            run = KeyedRun(reader.plain_stream(), entry.size, entry.id, self.where(entry))
        except BaseException:
            reader.close()
            raise
        weakref.finalize(run, reader.close)  # other threads may still look into it
        return run


def ltds_directory(path: str) -> str:
    """Return where the store at the path keeps the files of large transactions, and of runs."""
    return f"{path}/ltds"


def run_in_memory(payload: bytes, run_id: int, where: str) -> KeyedRun:
    """Return a run of which all bytes are given. Raises StoreCorrupt."""
    run = KeyedRun(_InMemory(payload), len(payload), run_id, where)
    run.keep()
    return run


class RunPut:
    """Writes a run for a transaction: in memory while it is small, else to a file.

    The file is durable when `put` has named it in the transaction. One that no commit names is
    removed as those of Spark's tasks are (`fragment_age`).
    """

    def __init__(
        self,
        files: RunFiles,
        layout: RowLayout,
        run_id: int,
        expected_bytes: int,
        expected_rows: int,
    ) -> None:
        self._files = files
        self._id = run_id
        self._waiting = bytearray()
        self._file: LtdsWriter | None = None
        self._writer = RunWriter(self._write, layout, run_id, expected_bytes, expected_rows)

    def add(self, rows: KeyedRows) -> None:
        """See `RunWriter.add`."""
        self._writer.add(rows)

    def finish(self) -> RunInfo:
        """The run is complete."""
        info = self._writer.finish()
        if self._file is not None:
            self._end_file(self._file, info.bytes)
        return info

    def put(self, txn: Transaction, info: RunInfo, low: int, high: int) -> None:
        """Put the finished run, with the versions that are in it, and name it in the manifest."""
        file = 0 if self._file is None else self._file.id
        entry = RunEntry(info.id, low, high, file, info.rows, info.deleted, info.bytes)
        if self._file is None:
            payload = bytes(self._waiting)
            txn.put(self._files.queue, payload, correlation_id=entry.name)
            self._files.keep(entry, run_in_memory(payload, entry.id, self._files.where(entry)))
        else:
            txn.integration.adopt(self._files.queue, file)
        txn.set_value(self._files.queue, entry.key, entry.value())

    def abort(self) -> None:
        """Remove the file: nothing has named it."""
        if self._file is not None:
            self._file.abort()
            self._files.remove(self._file.id)

    def _write(self, data: Bytes) -> None:
        self._waiting += data
        if self._file is None and len(self._waiting) > RUN_MESSAGE_BYTES:
            self._file = self._files.new_file()
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
        fields = Fields(correlation_id=f"{self._id:016x}")
        header = encode_streamed(Stream(file.id, size, min(size, CHUNK_BYTES)), fields)
        charge = MESSAGE_OVERHEAD_BYTES + fields.extra_bytes
        file.append([EncodedBlock(header, 1, charge, 0)])
        file.finish()
