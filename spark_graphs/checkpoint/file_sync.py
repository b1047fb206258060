"""Making files of Spark's durable, which Spark itself does not."""

from __future__ import annotations

from quire.env import Env


def sync_file(env: Env, path: str) -> None:
    """Make a file's content durable, if it is still there: Spark removes what it needs no more."""
    try:
        file = env.open_file(path)
    except FileNotFoundError:
        return
    try:
        file.sync()
    finally:
        file.close()


def sync_names(env: Env, directory: str) -> None:
    """Make the names in a directory durable, its own, and those of all directories above it."""
    env.sync_directory(directory)
    while directory != "/":
        directory = directory.rpartition("/")[0] or "/"
        try:
            env.sync_directory(directory)
        except PermissionError:
            return  # not ours to read, so none of our names is new in it
