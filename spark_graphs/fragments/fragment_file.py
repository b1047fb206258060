"""The fragments of one attempt of a task: blocks, files of one queue, and a file of many queues.

- A file's id is random and has the bit of a foreign writer: no attempt ever meets another's file.
YF2. A file that is named in a fragment is durable and never changed again.
YF3. Memory is bounded by FLUSH_BYTES for each queue and PENDING_BYTES for all of them.
YF4. A queue has a file of its own only for OWN_FILE_BYTES or more, or if no other queue needs one:
    however many queues there are, their files are few.
- The fragments of a queue, in their order, hold its messages in the order in which they came.
"""

from __future__ import annotations

from collections.abc import Mapping

from quire import ltds
from quire.block import BlockBuilder, runs_of_shares
from quire.env import Env
from quire.libraries import pa
from quire.limits import MAX_BLOCK_BYTES
from quire.rows.row_builder import RowBuilder
from quire.rows.row_input import Rows
from quire.spark_graphs.limits import (
    FLUSH_BYTES,
    INLINE_BYTES,
    INLINE_TASKS,
    LATER_INLINE_BYTES,
    OWN_FILE_BYTES,
    PENDING_BYTES,
    ROWS_FLUSH_BYTES,
)
from quire.spark_graphs.task_files.task_files import files_at

from .fragment import Fragment


class FragmentWriter:
    """Gathers a task's messages by queue. After an exception only `abort` is left to do."""

    def __init__(
        self,
        path: str,
        store_id: int,
        env: Env | None = None,
        codec: ltds.Compression = ltds.Compression.NONE,
        priorities: Mapping[str, int] | None = None,
        partition: int = 0,
    ) -> None:
        """`priorities`: what messages get that say none (`Integration.put_priorities`).

        `partition`: the task's number, by which its own message has much room or little.
        """
        self._files = files_at(path, env)
        self._store_id = store_id
        self._codec = codec
        self._priorities = priorities or {}
        self._inline_bytes = INLINE_BYTES if partition < INLINE_TASKS else LATER_INLINE_BYTES
        self._pending: dict[
            str, BlockBuilder | RowBuilder
        ] = {}  # in the order in which queues appeared
        self._held_bytes = 0  # Arrow memory that what is pending may refer to
        self._own: dict[str, ltds.LtdsWriter] = {}
        self._shared: ltds.LtdsWriter | None = None
        self._in_shared: list[Fragment] = []

    def add(self, messages: pa.RecordBatch, shares: Mapping[str, int]) -> None:
        """Add the messages of a batch: so many are the first queue's, so many the next one's, ...

        Its Arrow memory is referred to until they are written. One without messages adds none.
        """
        if not messages.num_rows:
            return
        defaults = [self._priorities.get(queue, 0) for queue in shares]
        runs = runs_of_shares(messages, list(shares.values()), defaults)
        for queue, run in zip(shares, runs, strict=True):
            builder = self._pending.get(queue)
            if not isinstance(builder, BlockBuilder):
                builder = self._pending[queue] = BlockBuilder()
            builder.add_run(run)
            if builder.charge_bytes >= FLUSH_BYTES:
                self._write(self._own_file(queue), builder)
        self._held_bytes += messages.nbytes
        if self._held_bytes >= PENDING_BYTES:
            self._write_pending()

    def add_rows(self, queue: str, rows: Rows) -> None:
        """Add rows that fit the queue's schema; their Arrow memory is referred to likewise."""
        builder = self._pending.get(queue)
        if not isinstance(builder, RowBuilder):
            builder = self._pending[queue] = RowBuilder()
        builder.add(rows)
        if builder.charge_bytes >= ROWS_FLUSH_BYTES:
            self._write(self._own_file(queue), builder)
        self._held_bytes += rows.batch.nbytes
        if self._held_bytes >= PENDING_BYTES:
            self._write_pending()

    def finish(self) -> list[Fragment]:
        """Make all messages durable or part of the fragments."""
        inline = self._take_inline()
        self._write_pending()
        fragments = self._in_shared
        if self._shared is not None:
            info = self._shared.finish(sync_name=False)
            queues = {fragment.queue for fragment in fragments}
            if len(queues) == 1:  # nobody shares it: the queue has it as a whole
                fragments = [_whole_file(queues.pop(), info)]
        fragments += [
            _whole_file(queue, file.finish(sync_name=False)) for queue, file in self._own.items()
        ]
        if fragments:
            self._files.sync_names()
        return fragments + inline

    def abort(self) -> None:
        """Remove what was written."""
        files = [*self._own.values(), *([] if self._shared is None else [self._shared])]
        for file in files:
            file.abort()
        # Those that were finished already are not the writers' to remove any more.
        self._files.remove([file.id for file in files])

    def _take_inline(self) -> list[Fragment]:
        """Take what goes into the task's message: small shares first. It is not pending then."""
        room, fragments = self._inline_bytes, []
        for queue, builder in sorted(self._pending.items(), key=lambda item: item[1].charge_bytes):
            if queue not in self._own and builder.charge_bytes <= room:
                room -= builder.charge_bytes
                blocks = self._pending.pop(queue).build(MAX_BLOCK_BYTES)
                fragments += [
                    Fragment(queue, b.count, block=bytes(b.data), charge_bytes=b.charge_bytes)
                    for b in blocks
                ]
        return fragments

    def _write_pending(self) -> None:
        """Everything that is pending goes to files (YF3, YF4)."""
        for queue, builder in self._pending.items():
            if queue in self._own or builder.charge_bytes >= OWN_FILE_BYTES:
                self._write(self._own_file(queue), builder)
            elif builder.count:
                self._write_shared(queue, builder)
        self._pending = {}
        self._held_bytes = 0

    def _write_shared(self, queue: str, builder: BlockBuilder | RowBuilder) -> None:
        if self._shared is None:
            self._shared = self._new_file(queue)
        first, count, charge = self._shared.block_count, builder.count, builder.charge_bytes
        self._write(self._shared, builder)
        blocks = first, self._shared.block_count
        self._in_shared.append(
            Fragment(queue, count, ltds_id=self._shared.id, blocks=blocks, charge_bytes=charge)
        )

    def _own_file(self, queue: str) -> ltds.LtdsWriter:
        if queue not in self._own:
            self._own[queue] = self._new_file(queue)
        return self._own[queue]

    def _new_file(self, queue: str) -> ltds.LtdsWriter:
        return self._files.new_fragment(queue, self._store_id, self._codec)

    def _write(self, file: ltds.LtdsWriter, builder: BlockBuilder | RowBuilder) -> None:
        if builder.count:
            file.add(builder)
            builder.clear()


def _whole_file(queue: str, info: ltds.LtdsInfo) -> Fragment:
    return Fragment(queue, info.count, ltds_id=info.id, charge_bytes=info.charge_bytes)
