"""The salvage of a damaged store, as programs call it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from quire.env import Env, check_env
from quire.libraries.late_imports import importing
from quire.opening import checked_path

if TYPE_CHECKING:
    from .report import SalvageReport


def salvage(
    damaged: str | os.PathLike[str], path: str | os.PathLike[str], *, env: Env | None = None
) -> SalvageReport:
    """Make a store at `path` of all that is whole of the damaged store; it says what is not.

    Nothing is changed in the damaged store, which nobody may have open. There must be nothing at
    the path, or an empty directory. The new store has the damaged one's id, and no archive.

    A queue whose definition is lost is a work queue of the name `salvaged-queue-` and its number.
    Messages whose queue is not known are in the queue `salvaged` (of rows: one for each schema).
    What cannot be proved to be read is delivered again. A prepared transaction that nobody has
    decided stays prepared if it is whole, and is rolled back else.

    Raises StoreNotFound, StoreLocked, StoreVersion for files of a newer release, StoreCorrupt where
    nothing says how large pages are, InvalidArgument, DiskFull, StoreFailed.
    """
    machine = check_env(env)
    with importing():
        from .store_salvage import salvage_store

    return salvage_store(machine, checked_path(damaged), checked_path(path))
