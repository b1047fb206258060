"""Checkpoint files: the state at one LSN, whole or not there. Layout: `format`.

- K1: a checkpoint counts once its file has its final name, durably; it is synced before it is
  renamed.
- K2: the newest checkpoint is the one that counts. It is never written again; older ones are
  removed.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quire.checksum import checksum
from quire.env import Env
from quire.errors import DiskFull, StoreCorrupt, StoreFailed, StoreVersion

from . import format

_SUFFIX = ".qck"
_NAME = re.compile(r"[0-9a-f]{16}\.qck")


class Numbers:
    """Collects runs of integers; each is named by its (offset, length) in the JSON."""

    def __init__(self) -> None:
        self._parts: list[NDArray[np.int64]] = []
        self.total = 0

    def add(self, rows: Iterable[Any]) -> list[int]:
        array = np.array(
            rows if isinstance(rows, np.ndarray) else list(rows), dtype=np.int64
        ).ravel()
        place = [self.total, len(array)]
        self._parts.append(array)
        self.total += len(array)
        return place

    def tobytes(self) -> bytes:
        return b"".join(part.astype("<i8").tobytes() for part in self._parts)


class Checkpoint(NamedTuple):
    """A checkpoint as read."""

    path: str
    store_id: int
    lsn: int
    document: dict[str, Any]
    numbers: NDArray[np.int64]

    def rows(self, place: list[int], width: int) -> list[Any]:
        """A run of numbers, in tuples of `width`; as plain numbers for 1."""
        offset, length = place
        if offset < 0 or length < 0 or length % width or offset + length > len(self.numbers):
            raise StoreCorrupt(f"{self.path}: contradictory numbers; restore the store from a copy")
        part = self.numbers[offset : offset + length]
        return part.tolist() if width == 1 else list(map(tuple, part.reshape(-1, width).tolist()))


def path_of(directory: str, lsn: int) -> str:
    return f"{directory}/{lsn:016x}{_SUFFIX}"


def list_checkpoints(env: Env, directory: str) -> list[int]:
    """The LSNs of the checkpoints with their final name, ascending."""
    return sorted(
        int(name[:16], 16) for name in env.list_directory(directory) if _NAME.fullmatch(name)
    )


def write_checkpoint(
    env: Env, directory: str, store_id: int, lsn: int, document: dict[str, Any], numbers: Numbers
) -> str:
    """Write a checkpoint (K1); its path.

    Raises DiskFull with nothing changed, StoreFailed or OSError when it may be there or not.
    """
    text = json.dumps(document, separators=(",", ":")).encode()
    text += b" " * (-len(text) & 7)
    body = text + numbers.tobytes()
    length = format.CHECKPOINT_HEADER.size + len(body)
    header = format.CHECKPOINT_HEADER.pack(
        0,
        format.CHECKPOINT_MAGIC,
        format.CHECKPOINT_VERSION,
        0,
        store_id,
        lsn,
        length,
        len(text),
        numbers.total,
    )
    data = bytearray(header + body)
    struct.pack_into("<Q", data, 0, checksum(memoryview(data)[8:]))
    path = path_of(directory, lsn)
    temporary = path + ".tmp"
    try:
        _write_file(env, temporary, data)
    except DiskFull:
        env.remove(temporary)
        raise
    try:
        env.rename(temporary, path)
        env.sync_directory(directory)
    except OSError as error:
        raise StoreFailed(
            f"{path}: it is not known whether it is durable ({error!r}); close the store and open "
            "it again to recover"
        ) from error
    return path


def _write_file(env: Env, path: str, data: bytearray) -> None:
    file = env.open_file(path, create=True)
    try:
        file.truncate(0)
        file.write(0, data)
        file.sync()
    finally:
        file.close()


def read_checkpoint(env: Env, directory: str, lsn: int) -> Checkpoint:
    """Read and verify. Raises `StoreCorrupt`, `StoreVersion`."""
    path = path_of(directory, lsn)
    file = env.open_file(path, read_only=True)
    try:
        data = file.read(0, file.size())
    finally:
        file.close()
    size = format.CHECKPOINT_HEADER.size
    if len(data) < size:
        raise StoreCorrupt(f"{path}: too short; restore the store from a copy")
    digest, magic, version, _, store_id, at, length, text_length, count = (
        format.CHECKPOINT_HEADER.unpack_from(data)
    )
    if magic != format.CHECKPOINT_MAGIC:
        raise StoreCorrupt(f"{path}: not a checkpoint; restore the store from a copy")
    if length != len(data) or checksum(data[8:]) != digest:
        raise StoreCorrupt(f"{path}: checksum differs; restore the store from a copy")
    if version not in format.CHECKPOINT_VERSIONS:
        raise StoreVersion(
            f"{path}: format version {version}, this release reads up to "
            f"{format.CHECKPOINT_VERSION}: use a newer release"
        )
    if at != lsn or size + text_length + 8 * count != length:
        raise StoreCorrupt(f"{path}: contradictory header; restore the store from a copy")
    document = json.loads(data[size : size + text_length])
    numbers = np.frombuffer(data, dtype="<i8", count=count, offset=size + text_length).astype(
        np.int64
    )
    return Checkpoint(path, store_id, lsn, document, numbers)


def remove_older(env: Env, directory: str, lsn: int) -> None:
    """Remove what came before the checkpoint, and what was never finished (K2)."""
    for name in env.list_directory(directory):
        if name.endswith(_SUFFIX + ".tmp") or (
            _NAME.fullmatch(name) and name < path_of("", lsn)[1:]
        ):
            env.remove(f"{directory}/{name}")
