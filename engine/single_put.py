"""A durable put of one plain message: the shortest way through the commit protocol.

The same rules, record and order as `Manager.commit`, without a transaction object and without
lists: one message needs no write buffer, and its space is taken under one hold of its queue's lock.
"""

from __future__ import annotations

from quire.block import encode_one
from quire.errors import QueueNotFound
from quire.limits import COMMIT_BYTES, MESSAGE_OVERHEAD_BYTES, OPEN_BYTES

from .manager import Manager
from .one_block import OneBlock

_CONTROL_BYTES = OPEN_BYTES + COMMIT_BYTES


class SinglePut:
    """Callable: (queue name, payload) -> message id."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self.limit_bytes = manager.committer.inline_limit - 1024

    def __call__(self, name: str, payload: bytes) -> int:
        manager = self._manager
        queue = manager.state.queue(name)
        charge = len(payload) + MESSAGE_OVERHEAD_BYTES
        block = encode_one(payload)
        space = queue.space
        with queue.admission:
            if queue.dropped:
                raise QueueNotFound(f"there is no queue {name!r}: it was just dropped")
            space.whole(charge)
        change = OneBlock(
            manager.state, manager.reader, 0, queue, block, charge + _CONTROL_BYTES, 1
        )
        try:
            manager.sequencer.submit(change)
        except BaseException:
            if change.applied:
                raise  # an interrupt: the message stands
            with queue.lock:
                space.unreserve()
                space.abandon(charge, 1)
            raise
        manager.committer.after_commit()
        return change.first_id
