"""Files with space for checkpoints of a full disk, beside the checkpoints.

- K8: there are three, each with space for a checkpoint. Where there is no other room, a checkpoint
  is written into one of them, which keeps all its space, and becomes a spare again when it is not
  the newest checkpoint any more. Meanwhile the second one is there for the next checkpoint, and the
  third one for an opening in between, which may have to write the newest one again (K6).
"""

from __future__ import annotations

from contextlib import closing
from typing import Final

from quire.env import Env

_NAMES: Final = ("0.spare", "1.spare", "2.spare")
SPARES: Final = len(_NAMES)


def spares(env: Env, directory: str) -> list[tuple[int, str]]:
    """(bytes of space, path) of those that there are, the smallest first."""
    paths = [f"{directory}/{name}" for name in _NAMES]
    return sorted((_size(env, path), path) for path in paths if env.exists(path))


def spare_bytes(env: Env, directory: str) -> int:
    """Return the bytes of each spare; 0 while one is missing."""
    there = spares(env, directory)
    return there[0][0] if len(there) == SPARES else 0


def next_spare_bytes(env: Env, directory: str) -> int:
    """Return what two of them have: the next checkpoint's, and an opening's after it (K8)."""
    there = spares(env, directory)
    return there[-2][0] if len(there) > 1 else 0


def keep_spares(env: Env, directory: str, size: int) -> None:
    """Have all of them with space for so many bytes. Raises DiskFull: they have what they had."""
    for name in _NAMES:
        path = f"{directory}/{name}"
        is_new = not env.exists(path)
        with closing(env.open_file(path, create=is_new)) as file:
            if file.size() < size:
                file.allocate(0, size)
                file.sync()
        if is_new:
            env.sync_directory(directory)


def cut_spares(env: Env, directory: str, size: int) -> None:
    """Give space beyond so many bytes back."""
    for there, path in spares(env, directory):
        if there > size:
            with closing(env.open_file(path)) as file:
                file.truncate(size)


def let_go(env: Env, directory: str, path: str) -> None:
    """A file that is no checkpoint any more: it becomes a spare if it has more space than one."""
    there = {f"{directory}/{name}": -1 for name in _NAMES}  # what is missing has least
    there |= {own: size for size, own in spares(env, directory)}
    least = min(there, key=there.__getitem__)
    if _size(env, path) > there[least]:
        env.rename(path, least)
        env.sync_directory(directory)
    else:
        env.remove(path)


def _size(env: Env, path: str) -> int:
    with closing(env.open_file(path, read_only=True)) as file:
        return file.size()
