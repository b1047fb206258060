"""The test whether a task sees the store's files, which it then uses without the owner.

On a cluster the tasks run on other hosts than the owner, and the store has to be there under the
same path, on a file system that all of them share.
"""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Iterator

from quire.env import OsEnv
from quire.errors import QuireError, StoreNotFound

from .fragment_file import directory_of


@contextlib.contextmanager
def seen(path: str) -> Iterator[None]:
    """Raise StoreNotFound for what fails because this host does not have the store's files."""
    try:
        yield
    except (QuireError, OSError) as error:
        visible = OsEnv().exists(directory_of(path))
        if visible and not isinstance(error, PermissionError):
            raise
        raise _unseen(path, "may not use" if visible else "does not see") from error


def check(path: str) -> None:
    """Raise StoreNotFound where this host does not have the store's files."""
    if not OsEnv().exists(directory_of(path)):
        raise _unseen(path, "does not see")


def _unseen(path: str, what: str) -> StoreNotFound:
    return StoreNotFound(
        f"the executor on host '{platform.node()}' {what} the files of the store {path}, which "
        "tasks read and write themselves: put the store on a file system that every executor "
        "has under this path and may read and write, or run Spark on the store's host alone "
        "(master local[*])"
    )
