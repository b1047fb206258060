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

from quire.batches.delivered_messages import Messages
from quire.batches.delivered_slice import Delivered
from quire.block import Block
from quire.block.format import Column
from quire.definitions.row_schema import META
from quire.errors import NotAllowed
from quire.libraries import pa
from quire.messages.message import SETTABLE
from quire.rows.row_block import RowBlock

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
    return batch.set_column(place, _SENDER, _senders(user, batch.num_rows))


def block_as_user(user: str, queue: str, block: Block, *, is_moved: bool) -> pa.RecordBatch | None:
    """Return the messages of a block as `put_many` takes them, with the user as their sender.

    None: they have that sender already, and the block may be put as it is (VS1).
    """
    found: set[str | None] = {None}
    if block.columns & Column.SENDER:
        senders = block.headers.strings[Column.SENDER]
        found = {senders.get(row) for row in range(block.count)}
    _check_senders(user, queue, found)
    if None not in found:
        return None
    batch = Messages(queue, [Delivered(block, 0, block.count, 0, 0, 1)]).to_arrow()
    # A message that is put once more has a priority of 0 for good, another one its queue's.
    has_priority = is_moved or block.columns & Column.PRIORITY
    names = [name for name in SETTABLE if has_priority or name != "priority"]
    if not isinstance(block, RowBlock):
        return batch_as_user(user, queue, batch.select([*names, "payload"]))
    place = batch.schema.get_field_index(META)
    meta = pa.RecordBatch.from_struct_array(batch.column(place)).select(names)
    own = batch_as_user(user, queue, meta).to_struct_array()
    return batch.set_column(place, META, own)


def _check_senders(user: str, queue: str, senders: Iterable[str | None]) -> None:
    for sender in senders:
        check_sender(user, queue, sender)


def _senders(user: str, count: int) -> pa.Array:
    return pa.repeat(user, count)
