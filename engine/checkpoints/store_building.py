"""A store that is built of a state and its blocks, as a restore does: of any number of data files.

- It is built in a directory that nobody takes for a store: whoever builds it gives that another
  name once `finish` has returned. Nothing here is undone: what is left of a failure is removed.
- Memory holds the records, packed, of a page for each queue, some blocks, and the document.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from quire.engine.layout import Layout
from quire.engine.options import FIXED, Options
from quire.engine.ownership import Ownership
from quire.engine.pages.block_places import Extent, Places
from quire.engine.pages.data_file import PageData
from quire.engine.pages.data_files import open_data_files
from quire.engine.pages.record_page import RecordPages
from quire.engine.records import format
from quire.engine.records.block_ref import BlockRef
from quire.engine.records.checkpoint_file import (
    Checkpoint,
    IntegerRuns,
    list_checkpoints,
    read_checkpoint,
    remove_older,
    write_checkpoint,
)
from quire.engine.state.catalog import QUEUE, queue_config
from quire.engine.state.durable_state import PageEntry
from quire.env import Env, FileLock
from quire.limits import MOVED_WRITE_BYTES

from .space_maps import read_spaces, spaces_document
from .store_files import create_files


class StoreBuilder:
    """Builds one store, under its lock. `close` it at the end."""

    def __init__(
        self, env: Env, layout: Layout, lock: FileLock, image: Checkpoint, generation: int
    ) -> None:
        """Make an empty store; `image` is the state that it is to have, but for its records.

        `generation`: the generations of its journal come after this one.

        Raises DiskFull, StoreFailed; KeyError, TypeError or ValueError for a contradictory image.
        """
        self._env = env
        self._layout = layout
        self._image = image
        self._settings = {name: int(image.document[name]) for name in (*FIXED, "created_us")}
        options = Options.of({name: self._settings[name] for name in FIXED})
        ownership = Ownership(env, layout, lock)
        create_files(ownership, layout, options, image.store_id, generation)
        [lsn] = list_checkpoints(env, layout.checkpoints)
        self._empty = read_checkpoint(env, layout.checkpoints, lsn)
        self._spaces = read_spaces(self._empty)
        with ExitStack() as opening:
            data = open_data_files(env, layout, options, image.store_id)
            opening.callback(data.close)
            self._places = Places(env, layout.ltds, data, self._spaces, {}, parallel=False)
            self._pages = RecordPages(data)
            files = self._settings["data_files"]
            self._file_of = {
                int(key): queue_config(int(key), body).data_file % files
                for name, key, _, body in image.document["catalog"]
                if name == QUEUE
            }
            opening.pop_all()
        self._waiting: dict[int, _WaitingBlocks] = {}  # by file
        self._records: dict[int, list[BlockRef]] = {}  # by queue, those of its next page
        self._directories: dict[int, array[int]] = {}

    def know_queue(self, queue_id: int, data_file: int = 0) -> None:
        """Take blocks of a queue that is not in the image, too, which `finish` gets anew."""
        self._file_of[queue_id] = data_file % self._settings["data_files"]

    def close(self) -> None:
        """Let go of the files."""
        self._places.data.close()

    def add_block(self, queue_id: int, ref: BlockRef, block: PageData) -> None:
        """Add the next record of a queue, with its block, which has been verified."""
        waiting = self._waiting.setdefault(self._file_of[queue_id], _WaitingBlocks())
        waiting.pieces.append(block)
        waiting.owners.append((queue_id, ref))
        waiting.size += len(block)
        if waiting.size >= MOVED_WRITE_BYTES:
            self._write(self._file_of[queue_id])

    def add_file(self, queue_id: int, ref: BlockRef) -> None:
        """Add the next record of a queue, whose messages are in a large transaction's file."""
        if self._file_of[queue_id] in self._waiting:
            self._write(self._file_of[queue_id])
        self._add(queue_id, ref)

    def place(self, blocks: Sequence[PageData]) -> list[int]:
        """Return the addresses of blocks of a prepared transaction, which are written at once."""
        if not blocks:
            return []
        extent = self._places.write(0, blocks)
        self._places.keep([extent])
        return [page * self._places.page_size for page in self._pages_of(extent, blocks)]

    def finish(self, prepared: Iterable[str], image: Checkpoint | None = None) -> None:
        """Make all of it durable, but for the store's name.

        `prepared`: the records of prepared transactions, as checkpoints hold them. `image`: the
        state, where the one at hand before was not all of it.
        """
        env, layout, empty = self._env, self._layout, self._empty
        image = self._image if image is None else image
        for file in list(self._waiting):
            self._write(file)
        for queue_id in list(self._records):
            self._seal(queue_id)
        self._places.sync(range(len(self._places.managers)))
        numbers = IntegerRuns()
        numbers.add(image.numbers)  # the document's own slices stay what they are
        document: dict[str, Any] = {
            **image.document,
            **self._settings,
            "restart_lsn": empty.document["restart_lsn"],
            "released": [],
            "queues": [self._described(entry, numbers) for entry in image.document["queues"]],
            **spaces_document(self._spaces, numbers),
        }
        held = list(prepared)
        if held:
            document["held"] = held
        directory, lsn = layout.checkpoints, empty.lsn
        write_checkpoint(env, directory, image.store_id, lsn, document, numbers)
        remove_older(env, directory, lsn)
        for directory in (layout.checkpoints, layout.journal, layout.data, layout.ltds):
            env.sync_directory(directory)
        env.sync_directory(layout.path)

    def _described(self, entry: Mapping[str, Any], numbers: IntegerRuns) -> dict[str, Any]:
        rows = self._directories.get(int(entry["queue_id"]), array("q"))
        return {**entry, "directory": numbers.add(rows)}

    def _write(self, file: int) -> None:
        """Write the blocks that wait for a file to pages, one after another."""
        waiting = self._waiting.pop(file)
        extent = self._places.write(file, waiting.pieces)
        self._places.keep([extent])
        pages = self._pages_of(extent, waiting.pieces)
        for (queue_id, ref), page in zip(waiting.owners, pages, strict=True):
            address = page * self._places.page_size
            self._add(queue_id, ref._replace(address=address, kind=format.DATA))

    def _pages_of(self, extent: Extent, pieces: Sequence[PageData]) -> list[int]:
        """Return the first page of each piece."""
        page, found = extent.first, []
        for piece in pieces:
            found.append(page)
            page += self._places.pages_for(len(piece))
        return found

    def _add(self, queue_id: int, ref: BlockRef) -> None:
        records = self._records.setdefault(queue_id, [])
        records.append(ref)
        if len(records) == self._pages.capacity:
            self._seal(queue_id)

    def _seal(self, queue_id: int) -> None:
        """Write a record page."""
        refs = self._records.pop(queue_id)
        extent = self._places.write(self._file_of[queue_id], [self._pages.pack(queue_id, refs)])
        self._places.keep([extent])
        entry = PageEntry(refs[0].position, refs[-1].end, extent.first, len(refs))
        self._directories.setdefault(queue_id, array("q")).extend(entry)


class _WaitingBlocks:
    """Blocks that wait to be written to one file."""

    def __init__(self) -> None:
        self.pieces: list[PageData] = []
        self.owners: list[tuple[int, BlockRef]] = []
        self.size = 0
