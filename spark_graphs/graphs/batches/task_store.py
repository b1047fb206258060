"""How a step's tasks reach the messages: by the files of their store, wherever that is.

- What a task reads was leased when the batch was planned; what it writes counts only by the
  fragments that it returns.
YTS2. What fails in reaching the store is told from what fails in a row: `StoreTrouble` in the text
    of the error, as Spark hands it on.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, field

from quire.errors import InvalidArgument, QuireError
from quire.libraries import pa
from quire.libraries.late_imports import importing
from quire.ltds import Compression
from quire.reports.info import Piece
from quire.spark_graphs.fragments.fragment import Fragment
from quire.spark_graphs.options import WriteOptions
from quire.spark_graphs.planning.byte_limit import mean_bytes
from quire.spark_graphs.reading.partition import QueuePiece, QuirePartition
from quire.spark_graphs.reading.task_reading import ReadPlan
from quire.spark_graphs.task_files.task_files import files_at
from quire.spark_graphs.writing.row_sink import Routes
from quire.spark_graphs.writing.sink_writer import Target, write_fragments

if TYPE_CHECKING:
    from quire.engine.reading.attribute_read import AttributePart

POINTERS = "fragments binary"
"""The columns of what a job of a step returns."""


class StoreTrouble(Exception):
    """A task could not reach the store, or not what was leased: no row is at fault."""


class RowRefused(Exception):
    """A row is no message."""


class TaskStore(Struct, frozen=True):
    """A store as the tasks of a step need it. It is pickled, and used in other processes."""

    path: str
    store_id: int
    priorities: Mapping[str, int] = field(default_factory=dict)  # see `Target`

    def read(self, part: QuirePartition, schema_ddl: str | None) -> Iterator[pa.RecordBatch]:
        """The messages of a part, in its order, in all columns that queues of this schema have."""
        return ReadPlan.whole(self.path, schema_ddl).read(part)

    def write(
        self, rows: Iterator[pa.RecordBatch], queue: str | None, routes: Routes | None
    ) -> list[Fragment]:
        """Make the rows fragments: of the queue, or each of that which its column `queue` names.

        `routes`: the schemas of the queues they may be for; None: they are messages of bytes.
        """
        options = WriteOptions(self.path, queue, None, None, 0.0, Compression.NONE)
        return write_fragments(rows, options, Target(self.store_id, self.priorities), routes)

    def find(
        self, queue: str, pieces: Sequence[QueuePiece], attribute: str
    ) -> Iterator[AttributePart]:
        """The messages that have the attribute, among those of leased pieces of the queue."""
        with importing():
            from quire.engine.reading.attribute_read import find_attribute  # most never need it

        files = files_at(self.path)
        with files.seen(), contextlib.closing(files.reader()) as reader:
            found = [each.piece for each in pieces]
            yield from find_attribute(reader, queue, found, attribute)

    def size_bytes(self, queue: str, piece: Piece) -> int | None:
        """About how many bytes the messages of a leased piece have; None: it cannot be told."""
        mean = mean_bytes(files_at(self.path), self.store_id, queue, piece)
        return None if mean is None else max(1, int(mean * (piece.stop - piece.start)))

    def check(self) -> None:
        """Raise StoreNotFound where this host does not see the store, or may not use it."""
        files_at(self.path).check()


class PartReader(Struct, frozen=True):
    """The function of the tasks that read: a row of theirs is the number of a part."""

    store: TaskStore
    parts: Sequence[QuirePartition]
    schema_ddl: str | None  # the schema of typed queues

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                with trouble():
                    yield from self.store.read(self.parts[number], self.schema_ddl)


class PartWriter(Struct, frozen=True):
    """The function of the tasks that write: rows in, one row that names their fragments out."""

    store: TaskStore
    queue: str | None
    allowed: frozenset[str]
    step: str
    routes: Routes | None  # as TaskStore.write takes them

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = pickle.dumps(self.fragments(batches))
        yield pa.RecordBatch.from_pydict({"fragments": [found]})

    def fragments(self, batches: Iterator[pa.RecordBatch]) -> list[Fragment]:
        """The rows as fragments. Raises RowRefused, StoreTrouble."""
        try:
            with trouble():
                return self.store.write(map(self._checked, batches), self.queue, self.routes)
        except InvalidArgument as error:
            raise RowRefused(str(error)) from error

    def _checked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.queue is None:
            for name in batch.column("queue").unique().to_pylist():
                if name is not None and name not in self.allowed:
                    raise InvalidArgument(
                        f"step '{self.step}' does not write queue {name}, or not with such "
                        f"columns; with them it writes {', '.join(sorted(self.allowed))}. The "
                        "column `queue` says where each row goes: set it, or return a dict of "
                        "DataFrames by queue"
                    )
        return batch


def fragments_of(rows: Sequence[Sequence[bytes]]) -> list[Fragment]:
    """Return the fragments of all tasks, in the order of the tasks, which is that of the rows."""
    return [fragment for row in rows for fragment in pickle.loads(row[0])]


@contextlib.contextmanager
def trouble() -> Iterator[None]:
    """Has errors of the store and of the system be StoreTrouble; those of rows stay (YTS2)."""
    try:
        yield
    except InvalidArgument:
        raise
    except (QuireError, OSError) as error:
        raise StoreTrouble(f"{type(error).__name__}: {error}") from error
