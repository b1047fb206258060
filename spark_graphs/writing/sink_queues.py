"""The queues that a write goes to: that they are there, and that they can ever hold the write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from quire.errors import QueueFull, QueueNotFound
from quire.limits import COMMIT_BYTES, OPEN_BYTES
from quire.reports.info import QueueInfo
from quire.spark_graphs import connection, position_range
from quire.spark_graphs.fragments.fragment import Fragment
from quire.spark_graphs.limits import QUEUES_KNOWN

if TYPE_CHECKING:
    from quire.interface.store import Store

Shares = Mapping[str, tuple[int, int]]
"""How many messages and bytes go to each queue."""

_durable: Final[set[tuple[int, str]]] = set()  # store and name of queues that are not volatile


def check(path: str, queues: Iterable[str]) -> None:
    """Refuse a write before any of it is done. Raises QueueNotFound with what to do."""
    names = list(queues)
    connection.call(path, lambda store: position_range.infos(store, names))


def check_durable(store: Store, queues: Iterable[str]) -> None:
    """Refuse a write to volatile queues, of those that this process has not looked at before.

    Raises QueueNotFound with what to do, InvalidArgument.
    """
    store_id = store.integration.store_id
    new = [queue for queue in queues if (store_id, queue) not in _durable]
    if new:
        position_range.infos(store, new)
        if len(_durable) > QUEUES_KNOWN:
            _durable.clear()
        _durable.update((store_id, queue) for queue in new)


def check_capacities(store: Store, shares: Shares) -> None:
    """Raise QueueFull if a queue could not hold what goes to it even if it were empty."""
    with suppress(QueueNotFound):  # the next attempt says so
        for info in store.queues(list(shares)):
            _check_capacity(info, *shares[info.name])


def without_room(store: Store, shares: Shares) -> tuple[str, ...]:
    """The queues that have no room now for what goes to them. Where one is gone: try, and see."""
    try:
        found = store.queues(list(shares))
    except QueueNotFound:
        return ()
    return tuple(
        info.name
        for info in found
        if info.used_bytes + shares[info.name][1] + OPEN_BYTES + COMMIT_BYTES > info.capacity_bytes
        or (
            info.max_messages is not None
            and info.messages + shares[info.name][0] > info.max_messages
        )
    )


def shares_of(fragments: Sequence[Fragment]) -> dict[str, tuple[int, int]]:
    """How many messages and bytes go to each queue."""
    shares: dict[str, tuple[int, int]] = {}
    for fragment in fragments:
        messages, size = shares.get(fragment.queue, (0, 0))
        shares[fragment.queue] = messages + fragment.messages, size + fragment.charge_bytes
    return shares


def _check_capacity(info: QueueInfo, messages: int, size: int) -> None:
    limits = []
    if info.max_messages is not None and messages > info.max_messages:
        limits.append(f"{info.max_messages} messages at most")
    if size + OPEN_BYTES + COMMIT_BYTES > info.capacity_bytes:
        limits.append(f"{info.capacity_bytes} bytes at most")
    if limits:
        error = QueueFull(
            f"queue '{info.name}' can never hold this batch of {messages} messages and {size} "
            f"bytes: it holds {' and '.join(limits)}, and a batch is one transaction. Write "
            "smaller batches (of a stream: limit its sources by maxMessagesPerTrigger or "
            "maxBytesPerTrigger and start it with a new checkpoint, since a planned batch keeps "
            "its size), or make the queue with more room"
        )
        error.queue = info.name
        raise error
