"""The files of large transactions in their directory: names, ids, writers, ages, removal.

A fragment is of no queue until a transaction adopts it: until then it is its writer's. The user for
whom a store's server has written it stands in its first page.
"""

from __future__ import annotations

from quire.arguments import is_int
from quire.checksum import checksum
from quire.env import Env, FileMaker, ReadFile
from quire.errors import InvalidArgument

from .format import (
    CHECKSUM,
    CHECKSUM_BYTES,
    FOREIGN_BIT,
    HEADER,
    HEADER_MAGIC,
    ID_DIGITS,
    PAGE_BYTES,
    SUFFIX,
)


def new_id(env: Env, *, foreign: bool = False) -> int:
    """A random id; `foreign` for a file that another process than the store's owner writes."""
    return env.random_u64() & (FOREIGN_BIT - 1) | (FOREIGN_BIT if foreign else 0)


def is_foreign(ltds_id: int) -> bool:
    """Return True if another process than the store's owner wrote the file."""
    return bool(ltds_id & FOREIGN_BIT)


def check_foreign(ltds_id: object) -> int:
    """The id itself, or `InvalidArgument` if it is none of another process's file."""
    if not is_int(ltds_id) or not 0 <= ltds_id < 1 << 63 or not is_foreign(ltds_id):
        raise InvalidArgument(
            f"{ltds_id!r:.100} is not the id of a file that another process has written: give "
            "the id of one"
        )
    return ltds_id


def path_of(directory: str, ltds_id: int) -> str:
    """The path of the file with this id."""
    if not 0 <= ltds_id < 1 << 63:
        raise InvalidArgument(f"the id of a large transaction must be of 63 bits, not {ltds_id}")
    return f"{directory}/{ltds_id:0{ID_DIGITS}x}{SUFFIX}"


def list_ids(env: Env, directory: str) -> list[int]:
    """The ids of all files in the directory, finished or not, in the order of their names."""
    ids = []
    for name in env.list_directory(directory):
        stem = name.removesuffix(SUFFIX)
        if name == stem or len(stem) != ID_DIGITS or set(stem) - set("0123456789abcdef"):
            continue
        if int(stem, 16) < 1 << 63:
            ids.append(int(stem, 16))
    return ids


def modified_us(env: Env, directory: str, ltds_id: int) -> int:
    """Return the time of the file's last write, in microseconds since the epoch."""
    return env.modified_us(path_of(directory, ltds_id))


def remove(env: FileMaker, directory: str, ltds_id: int) -> bool:
    """Remove the file; False if there is none. Durable after a sync of the directory."""
    try:
        env.remove(path_of(directory, ltds_id))
    except FileNotFoundError:
        return False
    return True


def seal(page: bytes) -> bytes:
    """Return the page with its checksum in its first bytes."""
    return CHECKSUM.pack(checksum(memoryview(page)[CHECKSUM_BYTES:])) + page[CHECKSUM_BYTES:]


def writer_number(name: str) -> int:
    """Return the number of a user; 0 is nobody's."""
    return checksum(name.encode()) or 1


def with_writer(data: bytes, number: int) -> bytes:
    """Return the first bytes of a file, as they are when that user writes them.

    Raises InvalidArgument for what is not a file's first page, and what follows it.
    """
    if len(data) < PAGE_BYTES or data[CHECKSUM_BYTES:][: len(HEADER_MAGIC)] != HEADER_MAGIC:
        raise InvalidArgument("the part at 0 is not the beginning of a file: give its first page")
    *fields, _ = HEADER.unpack(data[:PAGE_BYTES])
    return seal(HEADER.pack(*fields, number)) + data[PAGE_BYTES:]


def writer_of(file: ReadFile) -> int:
    """Return the number of the user who writes the file, or has written it; 0: none."""
    page = file.read(0, PAGE_BYTES)
    return 0 if len(page) < PAGE_BYTES else int(HEADER.unpack(page)[-1])
