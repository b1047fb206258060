"""Files that other processes wrote, and the open transactions that adopt them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from typing import NamedTuple

from quire.engine.pages.block_places import Places
from quire.engine.queues.header_rules import requested_bits_of_many
from quire.env import Env
from quire.env.interpreter import Lock
from quire.errors import PositionLost
from quire.ltds import LtdsInfo, LtdsReader, missing, path_of, writer_of

from .queue_writes import QueueWrites


class FileCheck(NamedTuple):
    """The check of a file that is not to be trusted, for who adopts it."""

    writer: int  # to no other one it is there (`quire.ltds.writer_of`)
    look: Callable[[LtdsReader], None]
    """Raises what is wrong with its messages."""


class Adoptions:
    """The files that open transactions adopt, each by one of them. Thread-safe."""

    def __init__(self, env: Env, directory: str, store_id: int, places: Places) -> None:
        self._env = env
        self._directory = directory
        self._store_id = store_id
        self._places = places
        self._held: set[int] = set()
        self._lock = Lock()

    def inspect(self, ltds_id: int, check: FileCheck | None) -> tuple[LtdsInfo, str | None]:
        """Return the trailer of another process's file, and its rows' schema; None: bytes."""
        if check is not None and self._writer_of(ltds_id) != check.writer:
            raise missing(path_of(self._directory, ltds_id))
        with LtdsReader(self._env, self._directory, ltds_id, self._store_id) as reader:
            if check is not None:
                check.look(reader)
            info = LtdsInfo(
                ltds_id, reader.count, reader.bytes, reader.charge_bytes, reader.payload_bytes,
                reader.checksum,
            )  # fmt: skip
            first = reader.chunk_count  # whose bytes are of a payload
            return info, reader.words_at(first) if reader.block_count else None

    def _writer_of(self, ltds_id: int) -> int:
        try:
            file = self._env.open_file(path_of(self._directory, ltds_id), read_only=True)
        except FileNotFoundError:
            return 0
        with closing(file):
            return writer_of(file)

    def largest(self, ltds_id: int) -> int:
        """Return the largest charge of a message in the file."""
        with LtdsReader(self._env, self._directory, ltds_id, self._store_id) as reader:
            return max((block.largest_charge() for block, _ in reader), default=0)

    def bits(self, ltds_id: int, mask: int) -> int:
        """The bits, of those of the mask, of what any of its messages asks (see `header_rules`).

        Only blocks that have such columns are read for it, unless they are compressed.
        """
        bits = 0
        with LtdsReader(self._env, self._directory, ltds_id, self._store_id) as reader:
            for number in range(reader.chunk_count, reader.block_count):
                part = reader.part(number)
                if part is None or part.columns() & mask & ~bits:
                    bits |= requested_bits_of_many(reader.block_at(number)[0].headers, mask & ~bits)
        return bits

    def hold(self, ltds_id: int) -> None:
        """Only one transaction can adopt a file. Raises PositionLost."""
        with self._lock:
            if ltds_id in self._held or self._places.knows(ltds_id):
                raise PositionLost(
                    f"file {ltds_id:016x} belongs to a committed or open transaction already"
                )
            self._held.add(ltds_id)

    def let_go(self, ltds_id: int) -> None:
        """The file could not be adopted."""
        self._held.discard(ltds_id)

    def release(self, written: Iterable[QueueWrites]) -> None:
        """The transaction has ended: its files are the store's, or their writer's again."""
        for part in written:
            self._held -= part.adopted
