"""Files of large transactions that no commit points to.

- One that another process writes, by itself or through the owner, has a name that nobody else
  draws, and belongs to its writer until a transaction adopts it. While the owner reads, writes or
  removes it, none can.
- FF1: a file that is written for a user is there for no other one. To who names no writer all are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from quire.arguments import is_int
from quire.engine.transactions.context import Context
from quire.env import File
from quire.errors import InvalidArgument, PositionLost, QuireError, StoreError
from quire.limits import PLACES_BYTES
from quire.ltds import (
    PAGE_BYTES,
    is_foreign,
    list_ids,
    modified_us,
    path_of,
    remove,
    with_writer,
    writer_number,
    writer_of,
)


@contextmanager
def _kept_unadopted(context: Context, ltds_id: int) -> Iterator[None]:
    """A block in which no transaction adopts the file. Raises PositionLost if one has it."""
    context.adoptions.hold(ltds_id)
    try:
        yield
    finally:
        context.adoptions.let_go(ltds_id)


def check_part(offset: object, data: object) -> tuple[int, bytes]:
    """Return the offset and the bytes of a part. Raises InvalidArgument."""
    if not is_int(offset) or not 0 <= offset < 1 << 62:
        raise InvalidArgument(f"offset {offset!r:.100}: give where the part begins, from 0 on")
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise InvalidArgument(f"data {data!r:.100}: give bytes")
    if not 0 < len(data) <= PLACES_BYTES:
        raise InvalidArgument(f"a part of {len(data)} bytes: give 1 to {PLACES_BYTES} at a time")
    return offset, bytes(data)


def write_fragment(
    context: Context, ltds_id: int, offset: int, data: bytes, writer: str | None
) -> None:
    """Write a part of a file of another process, durably; `writer`: the user that it is for (FF1).

    Raises PositionLost for a file that is gone, or belongs to a transaction; DiskFull.
    """
    env, directory = context.env, context.ltds_directory
    path = path_of(directory, ltds_id)
    if writer is not None:
        if 0 < offset < PAGE_BYTES:
            raise InvalidArgument(f"offset {offset}: give 0, or one behind the file's first page")
        if not offset:
            data = with_writer(data, writer_number(writer))
    with _kept_unadopted(context, ltds_id), _opened(context, ltds_id, create=not offset) as file:
        if (offset or file.size()) and not _is_of(file, writer):
            raise gone(path)
        try:
            file.write(offset, data)
            file.sync()
            if not offset:
                env.sync_directory(directory)
        except OSError as error:
            if isinstance(error, QuireError):
                raise
            raise StoreError(f"{path} cannot be written ({error}): write it anew") from error


def read_fragment(
    context: Context, ltds_id: int, offset: int, length: int, writer: str | None
) -> tuple[int, bytes]:
    """Return the size of a file that no transaction has, and bytes of it (FF1).

    Raises PositionLost.
    """
    if length > PLACES_BYTES:
        raise InvalidArgument(f"{length} bytes: read {PLACES_BYTES} at most at a time")
    path = path_of(context.ltds_directory, ltds_id)
    with _opened(context, ltds_id, read_only=True) as file:
        if context.places.knows(ltds_id) or not _is_of(file, writer):
            raise gone(path)
        return file.size(), file.read(offset, length)


def remove_fragments(context: Context, ltds_ids: Iterable[int], writer: str | None) -> None:
    """Remove files of other processes, but for those that transactions have (FF1)."""
    for ltds_id in ltds_ids:
        _remove(context, ltds_id, writer)


@contextmanager
def _opened(
    context: Context, ltds_id: int, *, create: bool = False, read_only: bool = False
) -> Iterator[File]:
    """A block in which the file is open. Raises PositionLost where there is none."""
    path = path_of(context.ltds_directory, ltds_id)
    try:
        file = context.env.open_file(path, create=create, read_only=read_only)
    except FileNotFoundError:
        raise gone(path) from None
    try:
        yield file
    finally:
        file.close()


def _is_of(file: File, writer: str | None) -> bool:
    return writer is None or writer_of(file) == writer_number(writer)


def gone(path: str) -> PositionLost:
    """Return the error for a file that is not there, or not for this writer."""
    return PositionLost(
        f"{path}: the file is not there (any more), as one that nobody adopts is removed after a "
        "day: write it anew"
    )


def _remove(context: Context, ltds_id: int, writer: str | None = None) -> bool:
    """Remove a file; False if there is none of the writer, or a transaction has it."""
    try:
        with _kept_unadopted(context, ltds_id):
            if writer is not None:
                with _opened(context, ltds_id, read_only=True) as file:
                    if not _is_of(file, writer):
                        return False
            with context.sequencer.fail_stop("removing a file"):
                return remove(context.env, context.ltds_directory, ltds_id)
    except PositionLost:
        return False


def sweep_fragments(context: Context) -> int:
    """Remove files of other processes that no commit adopted within `fragment_age`; how many.

    A writer that is that late gets an error when it commits: its file is gone, nothing is half
    there. If a power failure brings the file back, it is as if it had not been removed yet.
    """
    env = context.env
    limit_us = env.now_us() - int(context.options.fragment_age * 1_000_000)
    removed = 0
    for ltds_id in list_ids(env, context.ltds_directory):
        if not is_foreign(ltds_id):
            continue
        try:
            if modified_us(env, context.ltds_directory, ltds_id) >= limit_us:
                continue
        except FileNotFoundError:
            continue
        removed += _remove(context, ltds_id)
    return removed


def discard_unfinished(context: Context) -> None:
    """Discard at opening the files of transactions that did not commit."""
    places = context.places
    for ltds_id in list_ids(context.env, context.ltds_directory):
        is_kept = is_foreign(ltds_id) or places.holds(ltds_id)
        if not is_kept and not places.unshipped.has_file(ltds_id):
            places.discarded.add(ltds_id)
