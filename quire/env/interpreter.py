"""What the interpreter does for threads, and what stands in for it where it does not.

- GI1: with the GIL one thread at a time runs Python, and others come in only between two steps.
  Some parts rest on that and take no lock (docs/locks.md lists them). Each asks here when it is
  made, and takes a lock where there is no GIL: a free-threaded build, unless a library or
  PYTHON_GIL=1 has put the GIL back. A library that is loaded later can only put it back.
- GI2: without the GIL a call of one method of a dict, a list or a set is one step, and so is `list`
  of a dict, of its values or items, of a list or a set. `sum`, `min`, `tuple` and others go through
  theirs in many, and so does whatever copies a deque: what others may change meanwhile is copied
  first, and is no deque.
"""

from __future__ import annotations

import itertools
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Final

_UNPROVEN: Final = (
    "this interpreter runs without the GIL, where Quire is not proven: it takes locks in place of "
    "what is known to rest on the GIL (docs/locks.md, 'Without the GIL'), but only a part of its "
    "tests was run so (docs/environments.md). Start Python with PYTHON_GIL=1, or -X gil=1"
)


def has_gil() -> bool:
    """Whether one thread at a time runs Python, as things are."""
    told = getattr(sys, "_is_gil_enabled", None)  # of Python 3.13 and newer
    return told is None or bool(told())


def warn_without_gil() -> None:
    """A RuntimeWarning where nobody has shown that threads do each other no harm."""
    if not has_gil():
        warnings.warn(_UNPROVEN, RuntimeWarning, stacklevel=2)


def numbers_from(first: int) -> Callable[[], int]:
    """What gives `first` and the numbers after it, each once, to whichever threads (GI1)."""
    following = itertools.count(first).__next__
    if has_gil():
        return following
    one_at_a_time = threading.Lock()

    def following_alone() -> int:
        with one_at_a_time:
            return following()

    return following_alone
