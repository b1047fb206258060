"""Shipped records are put behind those of a store that is being restored.

- RA1: they become the store's by recovery, so that there is one fold. Their blocks go to pages, and
  they go into the journal with the places of these; nothing is applied. After `APPENDED_BYTES`, and
  at the end, the store is let go of and opened again: recovery folds them and claims the pages, and
  a checkpoint follows. What is released goes then, so the disk holds so many bytes more at most.
- RA2: a record keeps its number: they come one after another, and whatever else is written has
  none. An opening here begins nothing: no schedule is run, and nothing expires.
- RA3: a block is verified, and is the one that its record names, before it is written.
- RA4: nothing is shipped from here, though the catalog may name an archive: nothing that is
  released waits for that.
- Nothing is undone: what is left of a failure is removed, as that of `store_building`.
- Memory holds the records and blocks of a group, and what recovery holds of those since the latest
  checkpoint.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from quire.engine.commits.sequencer import Sequencer
from quire.engine.layout import Layout
from quire.engine.options import Options
from quire.engine.records import format
from quire.engine.records.commit_record import Part
from quire.engine.records.local_tail import mark_of, placed, tail_bytes
from quire.engine.state.state_hash import hash_of, values_of
from quire.env import Env, FileLock
from quire.errors import StoreCorrupt
from quire.journal import RECORD_HEADER, RECORD_HEADER_BYTES, pack_record, padded_bytes
from quire.limits import APPENDED_BYTES, GROUP_BYTES, MOVED_WRITE_BYTES
from quire.rows.open_block import open_block

from .checkpoint import Checkpointer
from .store_files import Opened, OpenRequest, open_files

FetchFile = Callable[[int, int], int]
"""Called with the id of a large transaction's file, and the checksum of its trailer: puts the file
into the store's directory, durably but for its name, if it is not there. How many bytes it has."""


class RecordAppender:
    """Appends shipped records to one store, under its lock. `close` it at the end."""

    def __init__(self, env: Env, layout: Layout, lock: FileLock, fetch_file: FetchFile) -> None:
        """Open the store. Raises StoreCorrupt, DiskFull, StoreFailed."""
        self._env = env
        self._layout = layout
        self._lock = lock
        self._fetch_file = fetch_file
        self._waiting: list[_WaitingRecord] = []  # of the next group
        self._group_bytes = self._block_bytes = 0
        self._appended_bytes = 0  # since the opening
        self._opened: Opened | None = None
        self._open()

    def close(self) -> None:
        """Let go of the files, if that was not done before."""
        if self._opened is not None:
            opened, self._opened = self._opened, None
            opened.close()
            opened.ownership.let_go()

    @property
    def number(self) -> int:
        """The number of the latest record."""
        return self._number

    def state_hash(self) -> str:
        """Return the hash of the state, behind `finish` or before the first `append`."""
        return hash_of(values_of(self._now_open().state.durable))

    def append(self, record: bytes, attachment: bytes) -> None:
        """Append the next record: its header and shared part; and its blocks that were on pages.

        Raises StoreCorrupt for what contradicts itself (a part of it is found at `finish` only),
        DiskFull, and what `fetch_file` raises.
        """
        where = f"record {self._number + 1}"
        blocks, file_bytes = self._take_apart(record, attachment, where)
        size = padded_bytes(record) + tail_bytes(len(blocks))
        most = min(GROUP_BYTES, self._now_open().journal.max_group_bytes)
        if self._group_bytes + size > most or self._block_bytes >= MOVED_WRITE_BYTES:
            self._write()
        self._waiting.append(_WaitingRecord(record, blocks))
        self._group_bytes += size
        self._block_bytes += len(attachment)
        self._number += 1
        self._appended_bytes += size + len(attachment) + file_bytes
        if self._appended_bytes >= APPENDED_BYTES:
            self.finish()

    def finish(self) -> None:
        """Make all that was appended the store's, durably (RA1). Raises as `append`."""
        opened = self._now_open()
        if not self._appended_bytes:
            return
        self._write()
        opened.places.sync(range(len(opened.places.managers)))
        opened.places.sync_names()
        opened.journal.sync()
        expected = self._number
        self.close()
        self._open()
        if self._number != expected:
            raise StoreCorrupt(f"{self._layout.path}: record {expected} is not there any more")
        opened = self._now_open()
        Checkpointer(opened, Sequencer(opened.journal, self._number)).run()
        opened.places.sweep()

    def remove_entries(self, entry_type: str) -> None:
        """Remove the catalog's entries of a type, by a record of the store's own."""
        self.finish()
        keys = self._now_open().state.durable.catalog.get(entry_type, {})
        if keys:
            changes = [[entry_type, key, None] for key in keys]
            body = json.dumps(changes, separators=(",", ":")).encode()
            self.append(pack_record(format.CATALOG, 0, body), b"")
            self.finish()

    def _open(self) -> None:
        request = OpenRequest(Options.of({}), set(), create=False, background=False, owner="")
        self._opened = open_files(self._env, self._layout, self._lock, request)
        self._opened.state.archived(None)  # (RA4)
        self._number = self._opened.recovered.number
        self._appended_bytes = 0

    def _now_open(self) -> Opened:
        assert self._opened is not None, "it was closed"
        return self._opened

    def _take_apart(
        self, record: bytes, attachment: bytes, where: str
    ) -> tuple[list[_WaitingBlock], int]:
        """Return a record's blocks, verified (RA3); and the bytes of files that were fetched."""
        blocks, files, end = [], 0, 0
        for part in parts_of(record, where):
            if part.kind == format.LTDS:
                files += self._fetch_file(part.address, part.checksum)
            elif part.kind == format.DATA:
                if part.address != end:
                    raise StoreCorrupt(f"{where}: its blocks are not one after another")
                data = memoryview(attachment)[end : end + part.length]
                block = open_block(data, where)
                found = block.checksum, block.count, block.length
                if found != (part.checksum, part.count, part.length):
                    raise StoreCorrupt(f"{where}: its attachment has another block")
                blocks.append(_WaitingBlock(part.queue_id, data))
                end += (part.length + 7) & -8
        if end != len(attachment):
            raise StoreCorrupt(
                f"{where}: an attachment of {len(attachment)} bytes, and blocks of {end}"
            )
        return blocks, files

    def _write(self) -> None:
        """Write the records that wait as one group, and before them their blocks."""
        waiting, self._waiting = self._waiting, []
        self._group_bytes = self._block_bytes = 0
        if not waiting:
            return
        journal = self._now_open().journal
        places = self._place([block for each in waiting for block in each.blocks])
        mark = mark_of(journal.generation)
        group = [placed(each.record, [next(places) for _ in each.blocks], mark) for each in waiting]
        journal.write_group(group, durable=False)

    def _place(self, blocks: Sequence[_WaitingBlock]) -> Iterator[int]:
        """Write blocks to pages; the address of each."""
        opened = self._now_open()
        places, queues = opened.places, opened.state.queues
        by_file: dict[int, list[int]] = {}
        for number, block in enumerate(blocks):
            queue = queues.get(block.queue_id)  # None: it was made since the opening
            wish = block.queue_id if queue is None else queue.data_file
            by_file.setdefault(wish % len(places.managers), []).append(number)
        addresses = [0] * len(blocks)
        for file, numbers in by_file.items():
            extent = places.write(file, [blocks[number].data for number in numbers])
            places.keep([extent])
            page = extent.first
            for number in numbers:
                addresses[number] = page * places.page_size
                page += places.pages_for(len(blocks[number].data))
        return iter(addresses)


class _WaitingBlock(NamedTuple):
    """A block of a record that waits to be written."""

    queue_id: int
    data: memoryview


class _WaitingRecord(NamedTuple):
    """A record that waits to be written."""

    record: bytes
    blocks: list[_WaitingBlock]


def parts_of(record: bytes, where: str) -> Iterator[Part]:
    """Yield the parts of a shipped record. Raises StoreCorrupt."""
    try:
        length, kind, flags, _ = RECORD_HEADER.unpack_from(record)
        if length != len(record) or flags & format.TAIL:
            raise StoreCorrupt(f"{where}: not the shared part of a record")
        if kind != format.COMMIT:
            return
        _, _, count, *_ = format.COMMIT_HEADER.unpack_from(record, RECORD_HEADER_BYTES)
        offset = RECORD_HEADER_BYTES + format.COMMIT_HEADER.size
        for _ in range(count):
            yield Part(*format.PART.unpack_from(record, offset))
            offset += format.PART.size
    except struct.error as error:
        raise StoreCorrupt(f"{where}: unreadable ({error})") from error
