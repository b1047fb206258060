"""Files that users have adopted: the check of one, all of it, before its messages are in a queue.

CF1. A user adopts a file that the server has written for this user, and no other one.
CF2. What is in it was seen before it is adopted: each of its blocks is whole, they are what its
    trailer says in all, and what its messages demand of other queues the user may demand (CK5).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from quire.block import StreamedBlock
from quire.block.format import Column
from quire.engine.commits.adoptions import FileCheck
from quire.errors import InvalidArgument
from quire.ltds import LtdsReader, writer_number
from quire.rows.row_block import RowBlock


def file_check(user: str, check_reply: Callable[[str | None], None]) -> FileCheck:
    """Return what a user's file is to be. `check_reply`: of a queue that replies are put to."""
    return FileCheck(writer_number(user), partial(_look_through, check_reply))


def _look_through(check_reply: Callable[[str | None], None], reader: LtdsReader) -> None:
    """Raises StoreCorrupt, InvalidArgument, and what the check does (CF2)."""
    charge = payload = 0
    replies: set[str | None] = set()
    schemas: set[str | None] = set()
    for block, _ in reader:
        if block.is_packed:
            raise InvalidArgument(f"{reader.path}: its messages have ids: put blocks without")
        schemas.add(block.words if isinstance(block, RowBlock) else None)
        charge += block.charge_bytes
        payload += block.payload_bytes
        if isinstance(block, StreamedBlock):
            payload += sum(
                len(reader.chunk(block.stream, number)) for number in range(reader.chunk_count)
            )
        if block.columns & Column.REPLY_TO:
            found = block.headers.strings[Column.REPLY_TO]
            replies |= {found.get(row) for row in range(block.count)}
    if (charge, payload) != (reader.charge_bytes, reader.payload_bytes):
        raise InvalidArgument(
            f"{reader.path}: its messages take {charge} bytes of their queue, with {payload} of "
            f"payloads, and not {reader.charge_bytes} and {reader.payload_bytes}: write it anew"
        )
    if len(schemas) > 1:
        raise InvalidArgument(f"{reader.path}: its rows are of several schemas: write a file each")
    for name in replies:
        check_reply(name)
