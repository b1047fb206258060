"""Checkpoint files: the state at one LSN, whole or not there. Layout: `format`.

- K1: a checkpoint counts once its file has its final name, durably; it is synced before it is
  renamed.
- K2: the newest checkpoint is the one that counts; older ones are removed, or become spares (K8).
- K6: nothing is built on a checkpoint whose name may not last. If the directory's sync failed, or
  its process was killed before it, the name is shown until the power fails, and may be gone then,
  whatever was synced later; the older checkpoint counts again, or the earlier one of the same LSN.
  So before the name is given, a file beside it says that it is uncertain, and goes only once the
  name is durable. Where it, or an older checkpoint, is found, the newest one is written again,
  byte for byte, to another file that takes the name (`settle`), before any page that it frees is
  used, anything older is removed, and the journal below it is released. Until the new file's name
  is durable the old one stays what it is, so that this can be broken off and repeated.
"""

from __future__ import annotations

import json
import re
import struct
from array import array
from collections.abc import Iterable
from contextlib import closing, suppress
from itertools import chain
from typing import Any, NamedTuple

from quire.checksum import checksum
from quire.env import Env
from quire.errors import ResourceExhausted, StoreCorrupt, StoreFailed, StoreVersion

from . import format
from .checkpoint_spares import let_go, spares
from .packed_runs import Runs, little_endian, pack_bits, unpack_bits

_SUFFIX = ".qck"
_UNFINISHED_SUFFIX = ".qck.tmp"
_UNCERTAIN = (
    "uncertain" + _UNFINISHED_SUFFIX
)  # beside a checkpoint whose name may not be durable (K6)
_NAME = re.compile(r"[0-9a-f]{16}\.qck")


class IntegerRuns:
    """Collects runs of integers; each is named by its (offset, length) in the JSON."""

    def __init__(self) -> None:
        self._numbers = array("q")

    @property
    def total(self) -> int:
        """How many there are."""
        return len(self._numbers)

    def add(self, rows: Iterable[Iterable[int]] | array[int]) -> list[int]:
        """Rows of numbers, or an array of them; where they are."""
        start = self.total
        self._numbers.extend(rows if isinstance(rows, array) else chain.from_iterable(rows))
        return [start, self.total - start]

    def add_bits(self, runs: Runs) -> list[int] | None:
        """Runs as bits, where they are, and how many; None if that takes more than their bounds."""
        bits = pack_bits(runs)
        return None if bits is None else [*self.add(bits), len(runs)]

    def add_runs(self, runs: Runs) -> list[int]:
        """Runs as their bounds, or as bits if that takes less."""
        return self.add_bits(runs) or self.add(runs)

    def tobytes(self) -> bytes:
        return little_endian(self._numbers).tobytes()


def to_numbers(texts: Iterable[str]) -> array[int]:
    """Printable texts as numbers, a byte more than their UTF-8 for each."""
    data = "".join(f"{text}\n" for text in texts).encode()
    return little_endian(array("q", data + bytes(-len(data) & 7)))


def to_texts(numbers: list[int]) -> list[str]:
    """Texts of the numbers that `to_numbers` made. Raises ValueError for any others."""
    data = little_endian(array("q", numbers)).tobytes().rstrip(b"\0").decode()
    return data.split("\n")[:-1]


class Checkpoint(NamedTuple):
    """A checkpoint as read."""

    path: str
    store_id: int
    lsn: int
    document: dict[str, Any]
    numbers: array[int]
    data: bytes  # the whole file, as it was verified

    def rows(self, place: list[int], width: int) -> list[Any]:
        """A run of numbers, in tuples of `width`; as plain numbers for 1."""
        offset, length = place
        if offset < 0 or length < 0 or length % width or offset + length > len(self.numbers):
            raise StoreCorrupt(f"{self.path}: contradictory numbers; restore the store from a copy")
        if not length:
            return []
        part = self.numbers[offset : offset + length]
        return part.tolist() if width == 1 else list(zip(*[iter(part)] * width, strict=True))

    def runs(self, place: list[int]) -> list[tuple[int, int]]:
        """Runs, as `IntegerRuns.add_runs` has added them. Raises ValueError, StoreCorrupt."""
        if len(place) == 2:  # not as bits
            return self.rows(place, 2)
        offset, length, count = place
        return unpack_bits(self.rows([offset, length], 1), count)


def path_of(directory: str, lsn: int) -> str:
    return f"{directory}/{lsn:016x}{_SUFFIX}"


def list_checkpoints(env: Env, directory: str) -> list[int]:
    """The LSNs of the checkpoints with their final name, ascending."""
    return sorted(
        int(name[:16], 16) for name in env.list_directory(directory) if _NAME.fullmatch(name)
    )


def write_checkpoint(
    env: Env,
    directory: str,
    store_id: int,
    lsn: int,
    document: dict[str, Any],
    numbers: IntegerRuns,
) -> str:
    """Write a checkpoint (K1); its path.

    One of an LSN that has one takes that one's place, and so no spare, which would be lost.

    Raises DiskFull with nothing changed, StoreFailed or OSError when it may be there or not.
    """
    data, path = encode(store_id, lsn, document, numbers), path_of(directory, lsn)
    return _put(env, directory, path, data, may_take_spare=not env.exists(path))


def encode(store_id: int, lsn: int, document: dict[str, Any], numbers: IntegerRuns) -> bytearray:
    """Return the bytes of a checkpoint's file."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
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
    return data


def settle(env: Env, directory: str, checkpoint: Checkpoint) -> None:
    """Make certain that the newest checkpoint, as it was read, lasts (K6). Raises as writing does.

    Nothing is done where nothing says that it is uncertain: then its name was durable.
    """
    name = checkpoint.path.rpartition("/")[2]
    if any(_is_leftover(other, name) for other in env.list_directory(directory)):
        _put(env, directory, checkpoint.path, checkpoint.data)


def _put(
    env: Env, directory: str, path: str, data: bytes | bytearray, *, may_take_spare: bool = True
) -> str:
    """Give a new file its final name, durably (K1, K6); the path."""
    temporary = path + ".tmp"
    try:
        _write_file(env, temporary, data)
    except ResourceExhausted:
        if env.exists(temporary):
            env.remove(temporary)  # refused too: the checkpoint is
        if not (may_take_spare and _write_into_spare(env, directory, temporary, bytearray(data))):
            raise
    try:
        env.open_file(f"{directory}/{_UNCERTAIN}", create=True).close()
        env.rename(temporary, path)
        env.sync_directory(directory)
    except ResourceExhausted:  # which a sync never raises (E9)
        with suppress(ResourceExhausted):  # the next checkpoint lets go of it
            let_go(env, directory, temporary)
        raise
    except OSError as error:
        raise StoreFailed(
            f"{path}: it is not known whether it is durable ({error!r}); close the store and open "
            "it again to recover"
        ) from error
    return path


def _write_file(env: Env, path: str, data: bytes | bytearray) -> None:
    with closing(env.open_file(path, create=True)) as file:
        file.truncate(0)  # what an earlier opening did not finish may be longer
        file.allocate(0, len(data))
        file.write(0, data)
        file.sync()


def _write_into_spare(env: Env, directory: str, path: str, data: bytearray) -> bool:
    """Into a file that is longer, and stays so (K8); False if there is none."""
    there = spares(env, directory)
    if not there or there[-1][0] < len(data):
        return False
    env.rename(there[-1][1], path)
    try:
        with closing(env.open_file(path)) as file:
            file.write(0, data)
            file.sync()
    except ResourceExhausted:
        env.rename(path, there[-1][1])
        raise
    return True


def read_checkpoint(env: Env, directory: str, lsn: int) -> Checkpoint:
    """Read and verify. Raises `StoreCorrupt`, `StoreVersion`."""
    path = path_of(directory, lsn)
    with closing(env.open_file(path, read_only=True)) as file:
        checkpoint = decode(file.read(0, file.size()), path)
    if checkpoint.lsn != lsn:
        raise StoreCorrupt(f"{path}: contradictory header; restore the store from a copy")
    return checkpoint


def decode(data: bytes, path: str) -> Checkpoint:
    """Verify the bytes of a checkpoint's file. Raises `StoreCorrupt`, `StoreVersion`.

    `path`: where they are from, for messages.
    """
    size = format.CHECKPOINT_HEADER.size
    if len(data) < size:
        raise StoreCorrupt(f"{path}: too short; restore the store from a copy")
    digest, magic, version, _, store_id, lsn, length, text_length, count = (
        format.CHECKPOINT_HEADER.unpack_from(data)
    )
    if magic != format.CHECKPOINT_MAGIC:
        raise StoreCorrupt(f"{path}: not a checkpoint; restore the store from a copy")
    data = data[:length]  # the rest is kept back for the next one
    if length != len(data) or checksum(data[8:]) != digest:
        raise StoreCorrupt(f"{path}: checksum differs; restore the store from a copy")
    if version != format.CHECKPOINT_VERSION:
        raise StoreVersion(
            f"{path}: format version {version}, this release reads "
            f"{format.CHECKPOINT_VERSION}: use a newer release"
        )
    if size + text_length + 8 * count != length:
        raise StoreCorrupt(f"{path}: contradictory header; restore the store from a copy")
    document = json.loads(data[size : size + text_length])
    numbers = little_endian(array("q", data[size + text_length :]))
    return Checkpoint(path, store_id, lsn, document, numbers, data)


def remove_older(env: Env, directory: str, lsn: int) -> None:
    """Let go of what came before the checkpoint, and of what was never finished (K2).

    The checkpoint's name is durable by now: so goes the file that says otherwise (K6).
    """
    for other in env.list_directory(directory):
        if other == _UNCERTAIN:
            env.remove(f"{directory}/{other}")
        elif _is_leftover(other, path_of("", lsn)[1:]):
            let_go(env, directory, f"{directory}/{other}")


def _is_leftover(other: str, name: str) -> bool:
    """Return True if a file beside the checkpoint of this name is an older or an unfinished one."""
    return other.endswith(_UNFINISHED_SUFFIX) or (bool(_NAME.fullmatch(other)) and other < name)
