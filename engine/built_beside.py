"""A store that is built beside its path: there is nothing at the path until all of it is there.

It is built at `PATH<suffix><16 hex digits>`, under the lock of what is built, and renamed at the
end. What was broken off is removed by the next one who builds at that path.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from quire.env import Env, FileLock, check_file_system
from quire.env.look_env import LookEnv
from quire.errors import InvalidArgument, QuireError, StoreFailed, StoreLocked
from quire.reports.info import Report

from .checkpoints.store_files import errors_of_path
from .layout import Layout
from .store import EmbeddedStore


class BuiltStore(NamedTuple):
    """A store that is being built, and its lock."""

    env: Env
    layout: Layout
    lock: FileLock

    def verify(self) -> Report:
        """Recover it as an opening would, changing nothing, and read all of it."""
        env = LookEnv(self.env)
        store = EmbeddedStore.open(self.layout.path, env=env, create=False, background=False)
        try:
            return store.admin.verify()
        finally:
            store.abandon("the store that was built was verified")


@contextmanager
def built_beside(env: Env, target: Layout, suffix: str, verb: str) -> Iterator[BuiltStore]:
    """Give the store that is built in this block its path at the end; it is removed on an error.

    `verb`: what builds it, for errors. Raises InvalidArgument where something is at the path;
    StoreLocked where another one builds there; StoreFailed.
    """
    with errors_of_path(target):
        _make_free(env, target)
        _remove_leftovers(env, target, suffix, verb)
    check_file_system(env, target.parent, network=False)
    built = Layout(f"{target.path}{suffix}{env.random_u64():016x}")
    try:
        with errors_of_path(built):
            env.make_directory(built.path)
        lock = env.lock(built.lock, f"quire {verb}")
        try:
            yield BuiltStore(env, built, lock)
            with errors_of_path(target):
                _give_name(env, built, target)
        finally:
            lock.release()
    except BaseException:
        with suppress(QuireError, OSError):
            remove_tree(env, built.path)
        raise
    _sync_name(env, target, verb)


def _make_free(env: Env, target: Layout) -> None:
    """Remove the path, if it is an empty directory: found now, what forbids that costs no work."""
    if env.exists(target.path):
        with suppress(NotADirectoryError):
            if not env.list_directory(target.path):
                env.remove(target.path)
                return
        raise _taken(target)


def _taken(target: Layout) -> InvalidArgument:
    return InvalidArgument(
        f"{target.path} is there already: give a new path, or move what is there away"
    )


def _remove_leftovers(env: Env, target: Layout, suffix: str, verb: str) -> None:
    """Remove what builds at this path have left that were broken off."""
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


def _give_name(env: Env, built: Layout, target: Layout) -> None:
    try:
        env.rename(built.path, target.path)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise _taken(target) from None  # since the block began
        raise


def _sync_name(env: Env, target: Layout, verb: str) -> None:
    """Make the name of a built store durable. Raises StoreFailed."""
    try:
        env.sync_directory(target.parent)
    except OSError as error:
        raise StoreFailed(
            f"the store at {target.path} is whole, but it is not known whether its name is durable "
            f"({error!r}): remove it, and {verb} it once more"
        ) from error
