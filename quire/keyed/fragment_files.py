"""The files of runs, wherever their store is: what writes, opens and removes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from quire.env import Env
from quire.ltds import Compression, LtdsReader, LtdsWriter, new_id, remove


class FragmentFiles(Protocol):
    """The files of one store, of a host that has its directory, or of one that asks its server.

    A file counts once a commit has adopted it; one that none adopts is removed by `remove`, or
    after a day by the store.
    """

    def new_fragment(
        self, queue: str, store_id: int, codec: Compression, *, streamed: bool = False
    ) -> LtdsWriter:
        """Return the writer of a file with a name of its own, which a commit may adopt.

        `queue`: whose message it is to be. `streamed`: it is to have one streamed message, as a run
        is.
        """

    def open_large(self, queue: str, ltds_id: int, store_id: int) -> LtdsReader:
        """Open a file that a commit has adopted. Raises StoreCorrupt where there is none."""

    def remove(self, ltds_ids: Iterable[int]) -> None:
        """Remove files that no transaction has adopted."""


class SeenFragments:
    """The files of a directory that this process sees."""

    def __init__(self, env: Env, directory: str) -> None:
        self._env = env
        self._directory = directory

    def new_fragment(
        self, queue: str, store_id: int, codec: Compression, *, streamed: bool = False
    ) -> LtdsWriter:
        file = new_id(self._env, foreign=True)
        return LtdsWriter(self._env, self._directory, store_id, file, codec, streamed=streamed)

    def open_large(self, queue: str, ltds_id: int, store_id: int) -> LtdsReader:
        return LtdsReader(self._env, self._directory, ltds_id, store_id)

    def remove(self, ltds_ids: Iterable[int]) -> None:
        for ltds_id in ltds_ids:
            remove(self._env, self._directory, ltds_id)
