"""A store that is built beside its path: there is nothing at the path until all of it is there.

It is built at `PATH<suffix><16 hex digits>`, under the lock of what is built, and renamed at the
end. What was broken off is removed by the next one who builds at that path.
"""

from __future__ import annotations

import errno
import re
from contextlib import suppress

from quire.engine.layout import Layout
from quire.env import Env
from quire.errors import InvalidArgument, StoreFailed, StoreLocked


def make_free(env: Env, target: Layout) -> None:
    """Remove the path, if it is an empty directory: found now, what forbids that costs no work."""
    if env.exists(target.path):
        with suppress(NotADirectoryError):
            if not env.list_directory(target.path):
                env.remove(target.path)
                return
        raise InvalidArgument(
            f"{target.path} is there already: give a new path, or move what is there away"
        )


def remove_leftovers(env: Env, target: Layout, suffix: str, verb: str) -> None:
    """Remove what builds at this path have left that were broken off.

    `verb`: what they do, for the error. Raises StoreLocked where one of them goes on.
    """
    left_name = re.compile(re.escape(target.path.rpartition("/")[2] + suffix) + "[0-9a-f]{16}")
    for name in env.list_directory(target.parent):
        if left_name.fullmatch(name):
            left = Layout(f"{target.parent.rstrip('/')}/{name}")
            if env.is_locked(left.lock):
                raise StoreLocked(
                    f"another {verb} to {target.path} is under way, in {left.path}: wait for it"
                )
            remove_tree(env, left.path)


def remove_tree(env: Env, path: str) -> None:
    """Remove a directory, if it is there, and all that is in it; symbolic links as such."""
    try:
        env.remove(path)
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        for name in env.list_directory(path):
            remove_tree(env, f"{path}/{name}")
        env.remove(path)


def sync_name(env: Env, target: Layout, verb: str) -> None:
    """Make the name of a built store durable. Raises StoreFailed."""
    try:
        env.sync_directory(target.parent)
    except OSError as error:
        raise StoreFailed(
            f"the store at {target.path} is whole, but it is not known whether its name is durable "
            f"({error!r}): remove it, and {verb} it once more"
        ) from error
