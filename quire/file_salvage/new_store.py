"""The store that a salvage builds: what goes into it, and what of the damaged one it came from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from typing import Any, Final

from quire.archive.record_restoring import write_file
from quire.arguments import Bytes
from quire.block import Block
from quire.engine.built_beside import BuiltStore
from quire.engine.checkpoints.snapshot import image_document
from quire.engine.checkpoints.store_building import StoreBuilder
from quire.engine.inspection.verify import read_whole
from quire.engine.records import format
from quire.engine.records.block_ref import BlockRef
from quire.engine.records.checkpoint_file import Checkpoint, IntegerRuns, decode, encode
from quire.engine.state.catalog import ARCHIVE, QUEUE, queue_config
from quire.engine.state.durable_state import (
    LOST,
    WORK,
    CatalogEntry,
    DurableQueue,
    DurableState,
    QueueConfig,
)
from quire.limits import DEFAULT_CAPACITY_BYTES
from quire.ltds import LtdsReader, path_of
from quire.ltds.damaged import whole_length
from quire.ltds.files import remove

from .damaged_store import DamagedStore
from .limits import COPIED_BYTES, LOST_IDS, OPENINGS_PASSED

RECONSTRUCTED: Final = "salvaged-queue-{}"


class NewStore:
    """One store under construction. `close` it at the end."""

    def __init__(self, built: BuiltStore, damaged: DamagedStore) -> None:
        self.state: DurableState = damaged.history.state
        self.used: dict[int, int] = {}  # bytes charged, by queue
        self.known: dict[tuple[int, int], int] = {}  # (kind, address): checksum of what has records
        # Of files of large transactions without a directory: the offsets of blocks with records.
        self.placed_blocks: dict[int, set[int]] = {}
        self._store, self._env, self._damaged = built, built.env, damaged
        self._ltds: dict[int, str] = {}
        # It must not write into the archive of the store that it is of.
        self.state.catalog.pop(ARCHIVE, None)
        generation = damaged.generation + (OPENINGS_PASSED << 32)
        self.builder = StoreBuilder(*built, self._image(IntegerRuns()), generation)

    def close(self) -> None:
        self.builder.close()

    # Queues

    def define_lost(self, lost: DurableQueue, schema: str | None) -> DurableQueue:
        """Return a queue in the stead of one whose definition is lost."""
        name = self._free_name(RECONSTRUCTED.format(lost.queue_id))
        return self.define(lost.queue_id, name, schema)

    def define(self, queue_id: int | None, name: str, schema: str | None) -> DurableQueue:
        """Return a new work queue. `queue_id`: None: the next one that is free."""
        state = self.state
        if queue_id is None:
            queue_id = state.next_queue_id
        state.next_queue_id = max(state.next_queue_id, queue_id + 1)
        subscription_id = state.next_subscription_id
        state.next_subscription_id += 1
        body: dict[str, Any] = {
            "name": self._free_name(name), "kind": WORK, "capacity": DEFAULT_CAPACITY_BYTES,
            "max_messages": None, "created_us": self._env.now_us(),
            "subscription_id": subscription_id, "data_file": 0,
        }  # fmt: skip
        if schema is not None:
            body["schema"] = schema
        state.catalog[QUEUE][queue_id] = CatalogEntry(1, body)
        queue = DurableQueue(queue_config(queue_id, body), state.ltds)
        state.queues[queue_id] = queue
        state.names[queue.config.name] = queue
        self.builder.know_queue(queue_id)
        return queue

    def _free_name(self, name: str) -> str:
        known = self.state.names
        others = (f"{name}-{number}" for number in range(2, len(known) + 3))
        return next(each for each in (name, *others) if each not in known)

    def next_ids(self, count: int) -> int:
        """Return the first of so many ids that no message has."""
        first = self.state.next_id
        self.state.next_id += count
        return first

    def note_ids(self, end: int) -> None:
        """There are ids up to before this one."""
        self.state.next_id = max(self.state.next_id, end)

    # Messages

    def add_block(self, queue: DurableQueue, ref: BlockRef, data: Bytes) -> None:
        """Add a verified block, behind what the queue has."""
        self.builder.add_block(queue.queue_id, ref, data)
        self._charge(queue, ref)

    def add_file(self, queue: DurableQueue, ref: BlockRef) -> None:
        """Add a large transaction's file, which was copied."""
        self.builder.add_file(queue.queue_id, ref)
        self.hold_file(ref.address, queue.config.name)
        self._charge(queue, ref)

    def hold_file(self, ltds_id: int, name: str) -> None:
        """A file that was copied belongs to a queue."""
        self._ltds[ltds_id] = name

    def _charge(self, queue: DurableQueue, ref: BlockRef) -> None:
        released = ref.released_charge(queue.released.count(ref.position, ref.end))
        self.charge(queue.queue_id, ref.charge - released)

    def charge(self, queue_id: int, charge: int) -> None:
        """Count bytes against the capacity of a queue."""
        self.used[queue_id] = self.used.get(queue_id, 0) + charge

    def copy_file(self, ltds_id: int, count: int | None, checksum: int) -> LtdsReader:
        """Copy a large transaction's file, and return a reader of it: all of it is verified.

        `count` and `checksum`: as its record says; None: there is none. Raises as reading does
        where anything in it is damaged; then there is no copy.
        """
        env, ltds, source = self._env, self._store.layout.ltds, self._damaged.source
        try:
            write_file(self._store, ltds_id, self._pieces(ltds_id), lambda size: None)
            reader = LtdsReader(env, ltds, ltds_id, source.geometry.store_id)
            try:
                if count is not None:
                    reader.checked(count, checksum)
                for block, _ in reader:
                    read_whole(block)
            except BaseException:
                reader.close()
                raise
            return reader
        except BaseException:
            with suppress(FileNotFoundError):
                remove(env, ltds, ltds_id)
            raise

    def has_file(self, ltds_id: int) -> bool:
        """Return True if a record has that file already."""
        return ltds_id in self._ltds

    def _pieces(self, ltds_id: int) -> Iterator[bytes]:
        path = path_of(self._damaged.source.layout.ltds, ltds_id)
        store_id = self._damaged.source.geometry.store_id
        with closing(self._env.open_file(path, read_only=True)) as file:
            size = file.size()
            size = whole_length(file, size, ltds_id, store_id) or size
            for offset in range(0, size, COPIED_BYTES):
                yield file.read(offset, min(COPIED_BYTES, size - offset))

    # The end

    def finish(self, prepared: Iterable[str]) -> None:
        """Make all of it durable, but for the store's name."""
        state = self.state
        if not self._damaged.is_journal_whole:
            state.next_id += LOST_IDS
        state.ltds.clear()
        state.ltds.update(self._ltds)
        numbers = IntegerRuns()
        self.builder.finish(prepared, self._image(numbers))

    def _image(self, numbers: IntegerRuns) -> Checkpoint:
        damaged = self._damaged
        document = image_document(self.state, self.used, damaged.number, numbers)
        document |= damaged.settings
        store_id = damaged.source.geometry.store_id
        return decode(bytes(encode(store_id, 0, document, numbers)), "the state")


def is_lost(config: QueueConfig) -> bool:
    """Return True for a queue whose definition is lost."""
    return config.kind == LOST


def partial_ref(ref: BlockRef, block: Block, first: int) -> BlockRef:
    """Return the record of one block of a large transaction's file, from its message `first` on."""
    return BlockRef(
        ref.position + first, ref.first_id + first, ref.time_us, 0, block.charge_bytes,
        block.checksum, block.length, block.count, format.DATA,
    )  # fmt: skip
