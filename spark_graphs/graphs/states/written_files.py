"""The files that were written for a batch, where it is not committed."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from quire.env import Env
from quire.errors import QuireError
from quire.spark_graphs.task_files.task_files import files_at

_log = logging.getLogger("quire.spark_graphs")


def remove_files(path: str, env: Env | None, files: Iterable[int | None]) -> None:
    """Remove files that no commit can have; those that cannot be removed are left to age."""
    try:
        files_at(path, env).remove([each for each in files if each is not None])
    except (OSError, QuireError) as error:
        _log.warning("files of a batch are left to age: %s", error)
