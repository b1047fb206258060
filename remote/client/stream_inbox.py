"""A stream of a connection to the owner: what has come for its caller, and how it ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from quire.arguments import Bytes
from quire.calls.errand import current

from . import waits
from .request_outcomes import OwnerEvent, RequestProgress

NOBODY_WAITS: Final = "nobody waits for an answer any more"
RequestFrames = Callable[[int], Sequence[Bytes]]
"""A request: by the number of its stream, its frames in parts."""


class StreamEnded(Exception):
    """A stream has ended, alone or with its connection, while a request was under way, or before.

    `progress`: how far the request has come. `event`: LATE or CANCELLED, where the owner may be
    there all the same (CH4, CH5); None: it has ended the connection.
    """

    def __init__(
        self, reason: str, progress: RequestProgress, event: OwnerEvent | None = None
    ) -> None:
        super().__init__(reason)
        self.progress = progress
        self.event = event


class InvalidRequest(Exception):
    """A request has no frames, for this error: nothing of it is sent."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class StreamInbox:
    """The frames that have come for a stream, and its caller, who waits for them."""

    __slots__ = (
        "error",
        "frames",
        "has_news",
        "is_released",
        "is_sent",
        "is_withdrawn",
        "left_by",
        "number",
        "wake_up",
    )

    def __init__(self) -> None:
        self.number: int | None = None  # of the stream, once it has begun
        self.frames: deque[Bytes] = deque()
        self.wake_up = waits.ClientWakeUp()
        self.has_news = False  # of what is here; who waits looks, and clears it before that
        self.is_sent = True  # the latest request, whole
        self.is_withdrawn = False  # what is left of it in the queue is not sent any more
        self.is_released = False  # nobody waits for the answer
        self.left_by: object = None  # the one who does not wait for its end (MC8)
        self.error: OSError | None = None  # why the request cannot be sent

    def wake(self) -> None:
        """Have the caller look."""
        self.has_news = True
        self.wake_up.set()


def cancellation() -> OwnerEvent | None:
    """Return CANCELLED if nobody waits for this thread's call any more (CH5)."""
    errand = current()
    return OwnerEvent.CANCELLED if errand is not None and errand.withdrawn else None


def reason_of(error: BaseException) -> str:
    """Return the words for the end of a connection."""
    return "the owner ended the connection" if isinstance(error, EOFError) else str(error)
