"""Reading blocks wherever they are: verified, from memory of our own, a few of them cached.

- B1: a block is copied out of its file before it is verified, so that what is handed out cannot
  change any more, whatever becomes of its place (promise 10).
- B2: a block that does not carry the checksum its record names is `BlockMoved`: the caller looks
  the record up anew, and takes the same answer again for damage.
- B3: memory is bounded: `INLINE_CACHE_BYTES` of fresh blocks, `BLOCK_CACHE_BYTES` of verified ones,
  objects included, `LTDS_READERS` open files. A block that is released or moved leaves it at once.
  Blocks of one message are not kept: nobody takes a second message from them.
- B4: of a fresh message with nothing but a payload that is kept, as its put gave it: nothing is to
  be verified, and its block is made of it anew where it is asked for.
- Of a block that is handed out the checksum is verified, and its structure as it is looked at (BL1
  of `quire.block.block`). One with a right checksum and a wrong structure was written so.
"""

from __future__ import annotations

from collections.abc import Callable

from quire.arguments import Bytes
from quire.batches.delivered_slice import Delivered
from quire.block import Block, StreamedBlock, encode_one, payload_of_one
from quire.engine.pages.block_cache import BlockKey
from quire.engine.pages.block_places import Places
from quire.engine.queues.read_structure import Pointer
from quire.engine.records import format
from quire.engine.records.block_ref import KIND_NAMES, BlockRef, BlockRow
from quire.engine.records.commit_record import PAYLOAD_AT
from quire.env import Env
from quire.errors import PositionLost, StoreCorrupt
from quire.journal import Journal
from quire.limits import BLOCK_CACHE_BYTES, LTDS_READERS
from quire.ltds import LtdsReader
from quire.messages.payload_reader import Stream
from quire.rows.open_block import open_block, verified_block


class BlockMoved(Exception):
    """The block is not at the place that the record names (any more)."""


class BlockReader:
    """Reads blocks from the journal and the data files, with a cache. Thread-safe."""

    def __init__(self, env: Env, journal: Journal, places: Places, store_id: int) -> None:
        self._env = env
        self._journal = journal
        self._places = places
        self._store_id = store_id
        self._data, self._memory, cache = places.data, places.memory, places.cache
        self._ltds_lock, self._readers = cache.files_lock, cache.files
        self._fresh, self._blocks = cache.fresh, cache.blocks
        self._get_fresh = cache.fresh.get
        # A block just committed inside the journal, by its address there; or a payload (B4), at
        # `PAYLOAD_AT` more.
        self.remember: Callable[[int, bytes | bytearray], None] = cache.fresh.add

    # Reading

    def deliver(self, pointer: Pointer, delivery_count: int) -> list[Delivered]:
        """The messages that a pointer names. Raises `BlockMoved` or `StoreCorrupt`."""
        ref, start, stop = pointer
        if ref.kind != format.LTDS:
            return [
                Delivered(self.block(ref), start, stop, ref.first_id, ref.time_us, delivery_count)
            ]
        parts = []
        while start < stop:
            block, first = self._ltds_block(ref, start)
            end, first_id = min(stop, first + block.count), ref.first_id + first
            part = Delivered(
                block, start - first, end - first, first_id, ref.time_us, delivery_count
            )
            parts.append(part)
            start = end
        return parts

    def only_payload(self, row: BlockRow) -> bytes | None:
        """The payload of a block's only message, verified; None: it takes `deliver`.

        The block is in the journal or in memory.
        """
        if not row[8]:  # inline
            get_fresh = self._get_fresh
            payload = get_fresh(row[3] + PAYLOAD_AT)
            if payload is not None:
                return payload if type(payload) is bytes else bytes(payload)
        try:
            data = self.raw(BlockRef._make(row))
        except PositionLost:
            return None
        return payload_of_one(data, row[5])

    def block(self, ref: BlockRef) -> Block:
        """A block of the journal or the data file, verified (B1, B2)."""
        key = (ref.kind, ref.address, ref.checksum)
        cached = self._blocks.get(key)
        if cached is not None:
            return cached[0]
        block = self._verified(ref, open_block)[0]
        self._keep(key, block, 0)
        return block

    def read(self, ref: BlockRef) -> Block:
        """A block as it is in the files now, past the cache; verified."""
        return self._verified(ref)[0]

    def verified(self, ref: BlockRef) -> Bytes:
        """The block's bytes, a copy, verified. Raises `BlockMoved`."""
        return self._verified(ref)[1]

    def _verified(
        self, ref: BlockRef, parse: Callable[[Bytes, str], Block] = verified_block
    ) -> tuple[Block, Bytes]:
        where = self.where(ref)
        try:
            data = self.raw(ref)
            block = parse(data, where)
        except PositionLost as error:
            raise BlockMoved(where) from error
        except StoreCorrupt as error:
            raise BlockMoved(str(error)) from error
        if block.checksum != ref.checksum or block.count != ref.count:
            raise BlockMoved(f"{where}: another block is at this place")
        return block, data

    def raw(self, ref: BlockRef) -> Bytes:
        """The block's bytes, a copy or what nobody changes (of a volatile queue), not verified."""
        if ref.kind == format.INLINE:
            fresh = self._fresh.get(ref.address)
            if fresh is None and ref.count == 1:
                payload = self._fresh.get(ref.address + PAYLOAD_AT)
                fresh = None if payload is None else encode_one(bytes(payload))
            return fresh if fresh is not None else self._journal.read(ref.address, ref.length)
        if ref.kind == format.MEMORY:
            return self._memory.read(ref.address)
        return self._data.read(ref.address, ref.length)

    def ltds(self, ref: BlockRef) -> LtdsReader:
        """A large transaction's file, of the caller's own; past the cache."""
        return self._open(ref.address).checked(ref.count, ref.checksum)

    def _open(self, ltds_id: int) -> LtdsReader:
        return LtdsReader(self._env, self._places.ltds_directory, ltds_id, self._store_id)

    def where(self, ref: BlockRef) -> str:
        """The place in words, for messages."""
        if ref.kind == format.DATA:
            return self._data.where(ref.address)
        place = f"{KIND_NAMES[ref.kind]} {ref.address:#x}"
        return f"{place} in {self._journal.path_of(ref.address)}" if not ref.kind else place

    def _keep(self, key: BlockKey, block: Block, first: int) -> None:
        if block.count > 1 and block.length <= BLOCK_CACHE_BYTES // 4:
            self._blocks.add(key, (block, first))

    def _ltds_block(self, ref: BlockRef, index: int) -> tuple[Block, int]:
        """The block of a large transaction's file that holds the message, and its first index."""
        with self._ltds_lock:
            reader = self._file(ref.address, ref.count)
            number = reader.locate(index)
            key = (-1 - number, ref.address, 0)
            cached = self._blocks.get(key)
            if cached is not None:
                return cached
            stored = reader.stored(number)
        # Other threads need not wait for this, and may close the reader meanwhile.
        block, first = reader.parse(number, stored, open_block)
        if isinstance(block, StreamedBlock):
            block.read_chunk = self.chunk
        else:
            self._keep(key, block, first)
        return block, first

    def chunk(self, stream: Stream, number: int) -> Bytes:
        """A chunk of a streamed message, verified. Raises PositionLost, StoreCorrupt.

        Past the cache: who reads a payload reads each chunk once.
        """
        try:
            with self._ltds_lock:
                if not self._places.holds(stream.file):
                    raise StoreCorrupt("the file is released")
                reader = self._file(stream.file, 1)
                if not 0 <= number < reader.chunk_count:
                    raise StoreCorrupt(f"{reader.path}: it has no chunk {number}")
                stored = reader.stored(number)
            return reader.parse_chunk(stream, number, stored)
        except StoreCorrupt as error:
            if self._places.holds(stream.file):
                raise
            raise PositionLost(
                "the message is not there any more, and its payload with it: it was read for good, "
                "or its queue was dropped; read the payload while the transaction that has got the "
                "message is open"
            ) from error

    def _file(self, ltds_id: int, count: int) -> LtdsReader:
        """Called under the lock of the readers."""
        reader = self._readers.get(ltds_id)
        if reader is not None:
            self._readers.move_to_end(ltds_id)
            return reader
        reader = self._readers[ltds_id] = self._open(ltds_id).checked(count)
        if len(self._readers) > LTDS_READERS:
            self._readers.popitem(last=False)[1].close()
        return reader
