"""What is said of a topic that nobody reads, to whoever puts to it.

- NR1: it is said at a put, in the process that puts, before anything is done: once for each queue
  and store object, never in a commit, and never of what the store puts by itself.
- NR2: it is not said of a topic that says how much of what nobody reads it keeps (`keep_...`), or
  has the oldest messages give way (`overflow="drop_oldest"`).
"""

from __future__ import annotations

import sys
import warnings
from types import FrameType

from quire.errors import NobodyReads

from .info import QueueInfo


def is_unread(queue: QueueInfo) -> bool:
    """Whether nobody reads what is put there, and nothing makes it give way (NR2)."""
    return (
        queue.kind == "topic"
        and not queue.subscriptions
        and queue.overflow != "drop_oldest"
        and not queue.keep_forever
        and queue.keep_latest is None
        and queue.keep_seconds is None
        and queue.keep_bytes is None
        and queue.keep_messages is None
    )


def tell_unread(queue: str) -> None:
    """Warn of the line that puts, as far as it is in this thread."""
    warnings.warn(
        f"nobody reads the topic {queue!r}: it has no subscription, keeps what is put, and refuses "
        f"more once it is full; subscribe first (store.subscribe({queue!r}, NAME)), or say what "
        "goes then: overflow='drop_oldest', or keep_messages, keep_bytes or keep_seconds",
        NobodyReads,
        stacklevel=_levels(),
    )


def _levels() -> int:
    """How far up the first function is that is none of Quire's, from `tell_unread`."""
    levels = 1
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_own(str(frame.f_globals.get("__name__", ""))):
        levels += 1
        frame = frame.f_back
    return levels if frame is not None else 2


def _is_own(module: str) -> bool:
    return module == "quire" or module.startswith("quire.")
