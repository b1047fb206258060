"""The request ids of a queue's puts, by which a put that is repeated is known.

- RQ1: an id is known from the commit of its put on, whatever becomes of the message, until its
  window ends: so many other ids came after it, or so many seconds have passed.
- RQ2: it changes with journal records only, by what stands in them and in the queue's properties:
  the fold is the same on every machine.
- RQ3: an id is committed once within its window. Who finds it gets the first message's id; of two
  open transactions that put it the second one's commit is refused (see `State.place_entries`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from quire.definitions.properties import Properties
from quire.limits import CHECKPOINT_REQUEST_BYTES, MAX_REQUESTS

Known = tuple[int, int]  # of a request id: its message's id, its commit time


class Requests:
    """The request ids of a queue's puts. The oldest come first."""

    __slots__ = ("_known", "checkpoint_bytes")

    def __init__(self, known: Iterable[tuple[str, Known]] = ()) -> None:
        self._known: OrderedDict[str, Known] = OrderedDict()
        self.checkpoint_bytes = 0  # that they take there, at most
        for request_id, of_it in known:
            self._add(request_id, of_it)

    def __len__(self) -> int:
        return len(self._known)

    def find(self, request_id: str, oldest_us: int) -> int | None:
        """The id of the message that was put with it, unless it was committed before that time."""
        found = self._known.get(request_id)
        return found[0] if found is not None and found[1] >= oldest_us else None

    def commit(
        self, request_id: str, message_id: int, time_us: int, properties: Properties
    ) -> None:
        """A message was put with the id (RQ1)."""
        self._trim(MAX_REQUESTS, properties.oldest_request_us(time_us))
        if request_id in self._known:  # the clock was set back, and it is not known any more
            self._forget(request_id)
        self._add(request_id, (message_id, time_us))
        self._trim(properties.most_requests, 0)

    def alter(self, properties: Properties) -> None:
        """The queue keeps another number of them."""
        self._trim(properties.most_requests, 0)

    def copy_known(self) -> dict[str, Known]:
        """All of them, the oldest first."""
        return dict(self._known)

    def _trim(self, most: int, oldest_us: int) -> None:
        """Forget the oldest: those above a number, and those from before a time."""
        known = self._known
        while known and (len(known) > most or next(iter(known.values()))[1] < oldest_us):
            self._forget(next(iter(known)))

    def _add(self, request_id: str, known: Known) -> None:
        self._known[request_id] = known
        self.checkpoint_bytes += _checkpoint_bytes(request_id)

    def _forget(self, request_id: str) -> None:
        del self._known[request_id]
        self.checkpoint_bytes -= _checkpoint_bytes(request_id)


def _checkpoint_bytes(request_id: str) -> int:
    return CHECKPOINT_REQUEST_BYTES + len(request_id.encode())
