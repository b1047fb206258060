"""What becomes of streams in a process that was forked from one with an open store: nothing.

The threads behind Flight's objects are not there in the child, so that destroying such an object
would wait for ever. The child leaves them alone: each gets a reference that nobody gives back.

Nor can the child begin anew: a stream would not connect, a server's end would abort the process,
and the import of Flight, if the fork came in its midst, would wait for ever. So it is refused.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Iterable
from typing import Final, Protocol

from quire.errors import RemoteError


class Holder(Protocol):
    """Something that holds objects of Flight."""

    def flight_objects(self) -> Iterable[object]:
        """All of them."""


class _Flight:
    """Whether this process has used Flight, and the parent that had before it forked this one."""

    used = False
    parent = 0


_flight: Final = _Flight()
_holders: Final[weakref.WeakSet[Holder]] = weakref.WeakSet()


def check_flight() -> None:
    """Flight is about to be used. Raises RemoteError where it cannot, as a parent has used it."""
    if _flight.parent:
        raise RemoteError(
            f"this process was forked from process {_flight.parent}, which had shared or joined a "
            "store, and cannot do so itself: start processes anew "
            "(multiprocessing.set_start_method('spawn')); open(share=False) owns a store that "
            "nobody else has open"
        )
    _flight.used = True


def guard(holder: Holder) -> None:
    """Keep the holder's objects from being destroyed in a forked child."""
    _holders.add(holder)


def _keep_for_ever() -> None:
    for holder in list(_holders):
        for value in holder.flight_objects():
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
            for reference in weakref.getweakrefs(value):
                if isinstance(reference.__callback__, weakref.finalize):
                    reference.__callback__.detach()  # Flight shuts its servers down at exit
    if _flight.used:
        _flight.parent = os.getppid()


os.register_at_fork(after_in_child=_keep_for_ever)
