"""The messages that a transaction has moved, of those that it has got.

- MM1: what was got once is moved once, and stays read with the commit: it is not given back. What
  several subscriptions gave is a message for each of them.
- A mark that is followed by a put which is refused is taken away again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from quire.engine.queues.subscription import Subscription
from quire.errors import InvalidArgument
from quire.libraries import np
from quire.messages.message import Message

from .taken_positions import GotPart


class MovedMarks:
    """Marks on the got messages that a transaction has moved. Covered by the transaction's lock."""

    def __init__(self) -> None:
        self._moved: dict[Subscription, set[int]] = {}
        self._latest: list[tuple[Subscription, int]] = []

    def mark(self, got: Sequence[GotPart], messages: Sequence[Message]) -> None:
        """These are moved. Raises InvalidArgument with nothing marked (MM1).

        `got`: of these messages' queues. One of a queue with another name is of one that was
        renamed.
        """
        queues = {part.queue.name for part in got}
        left = {(m.queue if m.queue in queues else "", m.id): m for m in messages}
        wanted = np.unique(np.array([m.id for m in messages], np.int64))
        found: list[tuple[Subscription, int]] = []
        moved: set[int] = set()
        for part in got:
            _, rows, _ = np.intersect1d(part.ids, wanted, return_indices=True)
            for row in rows.tolist():
                place, message_id = (part.subscription, part.position + row), int(part.ids[row])
                if self.has(*place):
                    moved.add(message_id)
                elif any(left.pop((name, message_id), None) for name in (part.queue.name, "")):
                    found.append(place)
        for message in left.values():
            raise _refused(message, is_moved=message.id in moved)
        for subscription, position in found:
            self._moved.setdefault(subscription, set()).add(position)
        self._latest = found

    def unmark(self) -> None:
        """Take back the marks of the latest `mark`."""
        for subscription, position in self._latest:
            self._moved[subscription].discard(position)
        self._latest = []

    def has(self, subscription: Subscription, position: int) -> bool:
        """Return True if the message is marked."""
        return position in self._moved.get(subscription, ())

    def check(self, subscription: Subscription, positions: Iterable[int]) -> None:
        """Raises InvalidArgument where one of them is not to be given back (MM1)."""
        moved = self._moved.get(subscription, set())
        if not moved.isdisjoint(positions):
            raise InvalidArgument(
                "a message that this transaction has moved cannot be given back by itself: it "
                "would be in both queues; roll all of it back, or reject before you move"
            )


def _refused(message: Message, *, is_moved: bool) -> InvalidArgument:
    which = f"message {message.id} of queue {message.queue!r}"
    if is_moved:
        return InvalidArgument(
            f"{which} is moved already by this transaction, once for each time that it was got: "
            "give each message once, and put copies where more are wanted"
        )
    return InvalidArgument(
        f"{which} is none that this transaction has got, and would stay where it is: get it first, "
        "or put a copy (with its payload, and what of its header is wanted)"
    )
