"""What a task of a sink hands to the commit: the messages for each queue, or where they are."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage


@dataclass(frozen=True)
class Fragment:
    """One task's messages for one queue: an encoded block, or a file of the store's ltds directory.

    The file's id is drawn anew by every attempt of a task, so that no two attempts share a file.
    """

    queue: str
    messages: int
    block: bytes | None = None
    ltds_id: int | None = None


@dataclass
class TaskMessage(WriterCommitMessage):
    """All fragments of one successful attempt, and for a stream whose micro-batch they are."""

    fragments: list[Fragment]
    query_id: str | None = None
    run_id: str | None = None
    batch_id: int | None = None
    checkpoints: str | None = None  # where the session keeps them, if it says so
