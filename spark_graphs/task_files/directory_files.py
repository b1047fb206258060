"""The files of a store whose directory this host sees: tasks use them without its owner.

On a cluster the tasks run on other hosts than the owner, and the store has to be there under the
same path, on a file system that all of them share.
"""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from quire import ltds
from quire.env import Env, OsEnv
from quire.errors import QuireError, StoreNotFound
from quire.libraries.late_imports import importing

if TYPE_CHECKING:
    from quire.engine import PieceReader


def directory_of(path: str) -> str:
    """Return where the store at the path keeps the files of large transactions."""
    return f"{path}/ltds"


class DirectoryFiles:
    """The files of a directory."""

    def __init__(self, path: str, env: Env | None = None) -> None:
        self._path = path
        self._directory = directory_of(path)
        self._env = env or OsEnv()

    def reader(self) -> PieceReader:
        with importing():
            from quire.engine import PieceReader  # heavy, and planners and sinks never come here

        return PieceReader(self._path, env=self._env)

    @contextlib.contextmanager
    def seen(self) -> Iterator[None]:
        """Raise StoreNotFound for what fails because this host does not have the store's files."""
        try:
            yield
        except (QuireError, OSError) as error:
            visible = self._env.exists(self._directory)
            if visible and not isinstance(error, PermissionError):
                raise
            raise _unseen(self._path, "may not use" if visible else "does not see") from error

    def check(self) -> None:
        if not self._env.exists(self._directory):
            raise _unseen(self._path, "does not see")

    def new_fragment(
        self, queue: str, store_id: int, codec: ltds.Compression, *, streamed: bool = False
    ) -> ltds.LtdsWriter:
        fragment_id = ltds.new_id(self._env, foreign=True)
        return ltds.LtdsWriter(
            self._env, self._directory, store_id, fragment_id, codec, streamed=streamed
        )

    def open_fragment(self, ltds_id: int, store_id: int) -> ltds.LtdsReader:
        return ltds.LtdsReader(self._env, self._directory, ltds_id, store_id)

    def open_large(self, queue: str, ltds_id: int, store_id: int) -> ltds.LtdsReader:
        return self.open_fragment(ltds_id, store_id)

    def sync_names(self) -> None:
        self._env.sync_directory(self._directory)

    def remove(self, ltds_ids: Iterable[int]) -> None:
        for ltds_id in ltds_ids:
            ltds.remove(self._env, self._directory, ltds_id)


def _unseen(path: str, what: str) -> StoreNotFound:
    return StoreNotFound(
        f"the executor on host '{platform.node()}' {what} the files of the store {path}, which "
        "tasks read and write themselves: put the store on a file system that every executor "
        "has under this path and may read and write, or run Spark on the store's host alone "
        "(master local[*])"
    )
