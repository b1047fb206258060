"""A fragment: a task's messages for a queue, or their place, for the commit of the sink.

A task's messages for a queue are in one of three places, by what they cost there:

| how many | where | what the commit does |
|---|---|---|
| few | a block in the task's own message | puts the block |
| enough for a file of the queue's alone | such a file | adopts it, whatever its size |
| between them | blocks of a file that all these queues of the task share | puts the blocks |
"""

from __future__ import annotations

from msgspec import Struct, field
from pyspark.sql.datasource import WriterCommitMessage


class Fragment(Struct, frozen=True):
    """One task's messages for one queue: an encoded block, or a file of the store's ltds directory.

    The file's id is drawn anew by every attempt of a task, so that no two attempts share a file.
    `blocks`: the messages are in these of the file's blocks, from the first to before the second,
    as queues share it; None: all that is in the file is this queue's.
    """

    queue: str
    messages: int
    block: bytes | None = None
    ltds_id: int | None = None
    blocks: tuple[int, int] | None = None
    charge_bytes: int = 0  # what the messages take of their queue's capacity

    @property
    def shared_id(self) -> int | None:
        """The file that its blocks are to be put from."""
        return None if self.blocks is None else self.ltds_id


class TaskMessage(Struct, WriterCommitMessage, frozen=True):
    """The fragments of one successful attempt, and for a stream its micro-batch."""

    fragments: list[Fragment]
    query_id: str | None = None
    run_id: str | None = None
    batch_id: int | None = None
    checkpoints: str | None = None  # where the session keeps them, if it says so
    contents: dict[str, int] = field(default_factory=dict)  # digests of the rows by queue
