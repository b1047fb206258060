"""What becomes of streams in a process that was forked from one with an open store: nothing.

The threads behind Flight's objects are not there in the child, so that destroying such an object
would wait for ever. The child leaves them alone: each gets a reference that nobody gives back.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Iterable
from typing import Any, Final, Protocol


class Holder(Protocol):
    """Something that holds objects of Flight."""

    def flight_objects(self) -> Iterable[Any]:
        """All of them."""


_holders: Final[weakref.WeakSet[Holder]] = weakref.WeakSet()


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


os.register_at_fork(after_in_child=_keep_for_ever)
