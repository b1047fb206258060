"""The one way of source, sink, graphs and backfills to the bytes of a store.

- Whoever reads leased pieces, writes fragments or removes them does so by `TaskFiles`, and nobody
    else knows where a store's files are.
- What is read carries the checksum that its piece or its directory names, wherever it came
    from: the reader verifies it, and no strategy has to be trusted.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from quire import ltds
from quire.env import Env
from quire.spark_graphs.connection import is_served

from .directory_files import DirectoryFiles
from .served_files import ServedFiles

if TYPE_CHECKING:
    from quire.engine import PieceReader


class TaskFiles(Protocol):
    """The files of one store, in any process. For one thread."""

    def reader(self) -> PieceReader:
        """Return what reads leased pieces; it is to be closed. Raises QuireError."""

    def seen(self) -> AbstractContextManager[None]:
        """A block in which files are used: what fails as this host cannot use them, it tells."""

    def check(self) -> None:
        """Raise StoreNotFound where this host cannot use the files."""

    def new_fragment(
        self, queue: str, store_id: int, codec: ltds.Compression, *, streamed: bool = False
    ) -> ltds.LtdsWriter:
        """Return the writer of a file with a name of its own, which a commit may adopt.

        `queue`: one that is to have messages of it. `streamed`: it is to have one streamed message.
        """

    def open_fragment(self, ltds_id: int, store_id: int) -> ltds.LtdsReader:
        """Open a finished file that no commit has adopted. Raises StoreCorrupt."""

    def open_large(self, queue: str, ltds_id: int, store_id: int) -> ltds.LtdsReader:
        """Open a file that is a queue's. Raises StoreCorrupt."""

    def sync_names(self) -> None:
        """Make the names of finished files durable."""

    def remove(self, ltds_ids: Iterable[int]) -> None:
        """Remove files that no transaction has adopted."""


def files_at(path: str, env: Env | None = None) -> TaskFiles:
    """Return the files of the store at the path, or behind the URL."""
    return ServedFiles(path, env) if is_served(path) else DirectoryFiles(path, env)
