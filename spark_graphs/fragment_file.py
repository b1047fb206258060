"""The fragments of one attempt of a task: small ones as blocks, the others as files of the store.

YF1. A file's id is random and has the bit of a foreign writer: no attempt ever meets another's
    file.
YF2. A file that is named in a fragment is durable and never changed again.
YF3. Memory is bounded by FLUSH_BYTES for each queue and PENDING_BYTES for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from quire import ltds
from quire.block import BlockBuilder
from quire.env import Env, OsEnv
from quire.limits import MAX_BLOCK_BYTES

from .fragment import Fragment
from .limits import FLUSH_BYTES, INLINE_BYTES, PENDING_BYTES


def directory_of(path: str) -> str:
    """Where the store at the path keeps the files of large transactions."""
    return f"{path}/ltds"


def remove(path: str, ltds_ids: Iterable[int], env: Env | None = None) -> None:
    """Remove files that no transaction has adopted."""
    env = env or OsEnv()
    for ltds_id in ltds_ids:
        ltds.remove(env, directory_of(path), ltds_id)


class FragmentWriter:
    """Gathers a task's messages by queue. After an exception only `abort` is left to do."""

    def __init__(
        self,
        path: str,
        store_id: int,
        env: Env | None = None,
        codec: ltds.Codec = ltds.Codec.NONE,
    ) -> None:
        self._path = path
        self._store_id = store_id
        self._codec = codec
        self._env = env or OsEnv()
        self._pending: dict[str, BlockBuilder] = {}  # in the order in which queues appeared
        self._files: dict[str, ltds.LtdsWriter] = {}

    def add(self, queue: str, batch: pa.RecordBatch) -> None:
        """Add messages; the Arrow memory is referred to until they are written."""
        builder = self._pending.setdefault(queue, BlockBuilder())
        builder.add_arrow(batch)
        if builder.charge_bytes >= FLUSH_BYTES:
            self._flush(queue)
        elif sum(each.charge_bytes for each in self._pending.values()) >= PENDING_BYTES:
            self._flush(max(self._pending, key=lambda name: self._pending[name].charge_bytes))

    def finish(self) -> list[Fragment]:
        """Make all messages durable or part of the fragments."""
        inline = self._inline_queues()
        fragments = []
        for queue, builder in self._pending.items():
            if queue in inline:
                blocks = builder.build(MAX_BLOCK_BYTES)
                fragments += [
                    Fragment(queue, b.count, block=bytes(b.data), charge_bytes=b.charge_bytes)
                    for b in blocks
                ]
                continue
            if builder.count:
                self._flush(queue)
            info = self._files[queue].finish(sync_name=False)
            fragments.append(
                Fragment(queue, info.count, ltds_id=info.id, charge_bytes=info.charge_bytes)
            )
        if self._files:
            self._env.sync_directory(directory_of(self._path))
        return fragments

    def abort(self) -> None:
        """Remove what was written."""
        for file in self._files.values():
            file.abort()
        # Those that were finished already are not the writers' to remove any more.
        remove(self._path, [file.id for file in self._files.values()], self._env)

    def _inline_queues(self) -> set[str]:
        """The queues whose messages go into the task's message: small ones first."""
        room, inline = INLINE_BYTES, set()
        for queue, builder in sorted(self._pending.items(), key=lambda item: item[1].charge_bytes):
            if queue not in self._files and builder.charge_bytes <= room:
                inline.add(queue)
                room -= builder.charge_bytes
        return inline

    def _flush(self, queue: str) -> None:
        if queue not in self._files:
            ltds_id = ltds.new_id(self._env, foreign=True)
            self._files[queue] = ltds.LtdsWriter(
                self._env, directory_of(self._path), self._store_id, ltds_id, self._codec
            )
        builder = self._pending[queue]
        self._files[queue].add(builder)
        builder.clear()
