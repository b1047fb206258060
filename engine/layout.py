"""The layout of a store's directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from quire.errors import InvalidArgument, StoreCorrupt, StoreNotFound

KNOWN_NAMES: Final = frozenset({"LOCK", "checkpoint", "journal", "data", "ltds", "run"})


class Layout:
    """The paths of one store."""

    def __init__(self, path: str) -> None:
        if not isinstance(path, str) or not path or "\0" in path:
            raise InvalidArgument(f"path {path!r}: give the path of a directory as a string")
        self.path = path.rstrip("/") or "/"
        self.parent = self.path.rpartition("/")[0] or ("/" if self.path[0] == "/" else ".")
        self.lock = f"{self.path}/LOCK"
        self.checkpoints = f"{self.path}/checkpoint"
        self.journal = f"{self.path}/journal"
        self.data = f"{self.path}/data"
        self.ltds = f"{self.path}/ltds"
        self.run = f"{self.path}/run"

    def data_file(self, number: int) -> str:
        return f"{self.data}/{number}.dat"


def no_store(layout: Layout) -> StoreNotFound:
    """The error for a path where no store is."""
    return StoreNotFound(
        f"there is no store at {layout.path}: correct the path, or make a store there (by "
        "quire.open, or `quire create-queue`)"
    )


@contextmanager
def naming_salvage(path: str) -> Iterator[None]:
    """Have the error of a damaged store say how to get at what is whole of it."""
    try:
        yield
    except StoreCorrupt as error:
        raise StoreCorrupt(
            f"{error}; without a copy, `quire salvage {path} NEW` makes a store of what is whole"
        ) from error
