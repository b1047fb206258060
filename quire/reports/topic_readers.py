"""The warning about a topic that nobody reads, for whoever puts to it.

- NR1: it is said at a put, in the process that puts, before anything is done: once for each queue
  and store object, never in a commit, and never of what the store puts by itself.
- NR2: it is not said of a topic that says how much of what nobody reads it keeps (`keep_...`), or
  has the oldest messages give way (`overflow="drop_oldest"`).
"""

from __future__ import annotations

import sys
import threading
import warnings
from types import FrameType
from typing import Any, Final, NamedTuple

from quire.errors import NobodyReads

from .info import QueueInfo


def is_unread(queue: QueueInfo) -> bool:
    """Return True if nobody reads the topic, and nothing makes its messages give way (NR2)."""
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


class ProgramLine(NamedTuple):
    """A line of a program that uses Quire, as a warning names it."""

    filename: str
    number: int
    names: dict[str, Any]  # of its module


class _Behalf(threading.local):
    line: ProgramLine | None = None


BEHALF: Final = _Behalf()
"""For whose line this thread makes a call, where that is another thread's."""


def line_of_program() -> ProgramLine | None:
    """The innermost line on this thread's stack that is neither Quire's nor asyncio's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_passed(str(frame.f_globals.get("__name__", ""))):
        frame = frame.f_back
    if frame is None:
        return None
    return ProgramLine(frame.f_code.co_filename, frame.f_lineno, frame.f_globals)


def tell_unread(queue: str) -> None:
    """Warn of the line that puts; in a thread of `quire.aio` that of the task."""
    text = (
        f"nobody reads the topic {queue!r}: it has no subscription, keeps what is put, and refuses "
        f"more once it is full; subscribe first (store.subscribe({queue!r}, NAME)), or say what "
        "goes then: overflow='drop_oldest', or keep_messages, keep_bytes or keep_seconds"
    )
    line = BEHALF.line or line_of_program()
    if line is None:
        warnings.warn(text, NobodyReads, stacklevel=2)
        return
    warnings.warn_explicit(
        text,
        NobodyReads,
        line.filename,
        line.number,
        module=line.names.get("__name__"),
        registry=line.names.setdefault("__warningregistry__", {}),
    )


def _is_passed(module: str) -> bool:
    return module.partition(".")[0] in ("quire", "asyncio")
