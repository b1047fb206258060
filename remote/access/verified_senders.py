"""Senders of the messages that users put to queues whose senders are verified (`verified_sender`).

VS1. A message that a user puts there has the user's name as its sender, whichever way it is put:
    the name is set where the put says none, and a put that says another one is refused, whole.
VS2. What carries messages there that others may have put (a move, a redrive, a message that is put
    once more) needs `manage` on the queue, by which the option could be turned off; but not where
    the store itself carries them from a queue whose senders are verified, too. Nobody adopts files
    there: what is in them is read by nobody before.
VS3. A schedule there is its user's: who makes it, and after a change who changed it.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy

from quire.arguments import Bytes
from quire.block import Block
from quire.block.encoding import encode_runs, run_of_block
from quire.block.format import Column
from quire.block.header_columns import Strings
from quire.errors import InvalidArgument, NotAllowed
from quire.libraries import np, pa
from quire.limits import MAX_BLOCK_BYTES
from quire.rows.row_block import RowBlock, encode_rows

_SENDER = "sender"


def check_sender(user: str, queue: str, sender: object) -> str:
    """Return the sender of a put that says this one, or none. Raises NotAllowed."""
    if sender is None or sender == user:
        return user
    raise NotAllowed(
        f"the senders of queue {queue!r} are verified: user {user} puts as {user!r}, and not as"
        f" {sender!r:.250}; leave sender out"
    )


def batch_as_user(user: str, queue: str, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return messages as `put_many` takes them, with the user as the sender of each (VS1)."""
    place = batch.schema.get_field_index(_SENDER)
    _check_senders(user, queue, batch.column(place).unique().to_pylist())
    return batch.set_column(place, _SENDER, pa.repeat(user, batch.num_rows))


def block_as_user(user: str, queue: str, block: Block) -> Bytes | None:
    """Return the block with the user as the sender of each of its messages (VS1).

    None: they have that sender already, and it may be put as it is.
    """
    found: set[str | None] = {None}
    if block.columns & Column.SENDER:
        senders = block.headers.strings[Column.SENDER]
        found = {senders.get(row) for row in range(block.count)}
    _check_senders(user, queue, found)
    if None not in found:
        return None
    headers = copy(block.headers)
    headers.strings = {**headers.strings, Column.SENDER: _same_strings(user, block.count)}
    if isinstance(block, RowBlock):
        charge = block.charge_bytes + len(user) * block.count
        return encode_rows(block.words, block.rows, headers, charge).data
    run = run_of_block(block)
    run.headers = headers
    blocks = list(encode_runs([run], MAX_BLOCK_BYTES))
    if len(blocks) > 1:
        raise InvalidArgument(
            f"{block.count} messages, with {user!r} as the sender of each, are more than a block"
            " holds: put fewer at a time"
        )
    return blocks[0].data


def _same_strings(text: str, count: int) -> Strings:
    data = text.encode()
    offsets = np.arange(0, len(data) * (count + 1), len(data), dtype=np.int32)
    return Strings(None, offsets, data * count)


def _check_senders(user: str, queue: str, senders: Iterable[str | None]) -> None:
    for sender in senders:
        check_sender(user, queue, sender)
