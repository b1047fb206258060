"""The guarantees of the interpreter for threads, and what replaces them where it has none.

- GI1: with the GIL one thread at a time runs Python, and others come in only between two steps.
  Some parts rest on that and take no lock (docs/locks.md lists them). Each asks here when it is
  made, and takes a lock where there is no GIL: a free-threaded build, unless a library or
  PYTHON_GIL=1 has put the GIL back. A library that is loaded later can only put it back.
- GI2: without the GIL a call of one method of a dict, a list or a set is one step, and so is `list`
  of a dict, of its values or items, of a list or a set. `sum`, `min`, `tuple` and others go through
  theirs in many, and so does whatever copies a deque: what others may change meanwhile is copied
  first, and is no deque.
- GI3: a block of `with` that has a lock gives it back, whatever a handler of a signal raises, also
  right after the lock was taken. CPython 3.14 runs handlers there, before the block has begun: it
  makes a call of `__enter__`, and looks for signals after each call of what is built in. So its
  locks are taken by the step of a loop, after which it does not look, in a function of Python,
  from which it returns without a look. Other versions have the locks of `threading`. A handler may
  run as that function begins, before the lock is taken: older versions run none there.
- GI4: threads, sockets and waits are those of the interpreter, or nothing is opened. Libraries of
  greenlets put their own in the places of these (`gevent.monkey.patch_all()`,
  `eventlet.monkey_patch()`): a thread of Quire is then none, and a wait ends no more.
"""

from __future__ import annotations

import _thread
import itertools
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any, Final

from quire.errors import InvalidArgument

# Something of each part that is replaced as a whole, by the name of the option that leaves it.
_WAITED_BY: Final = {
    "thread": ("_thread", "start_new_thread"),
    "select": ("select", "select"),
    "socket": ("socket", "socket"),
    "queue": ("queue", "SimpleQueue"),
}
_PATCHES: Final = {
    "gevent": "gevent.monkey.patch_all(thread=False, select=False, socket=False, queue=False)",
    "eventlet": "eventlet.monkey_patch(thread=False, select=False, socket=False)",
}
_UNPROVEN: Final = (
    "this interpreter runs without the GIL, where Quire is not proven: it takes locks in place of "
    "what is known to rest on the GIL (docs/locks.md, 'Without the GIL'), but only a part of its "
    "tests was run so (docs/environments.md). Start Python with PYTHON_GIL=1, or -X gil=1"
)


if sys.version_info >= (3, 14):

    class Lock:
        """A lock that a block of `with` takes in one step (GI3)."""

        __slots__ = ("__exit__", "_turns", "acquire", "locked", "release")

        def __init__(self, lock: Any = None) -> None:
            lock = lock or _thread.allocate_lock()
            self.acquire, self.release, self.locked = lock.acquire, lock.release, lock.locked
            self.__exit__ = lock.__exit__
            self._turns = iter(lock.acquire, None)

        def __enter__(self) -> bool:
            for taken in self._turns:  # one turn, and there is no end
                return taken
            raise AssertionError

    class RLock(Lock):
        """The same, which its thread may take again."""

        __slots__ = ()

        def __init__(self) -> None:
            super().__init__(_thread.RLock())

else:
    Lock = threading.Lock
    RLock = threading.RLock


def has_gil() -> bool:
    """Return True if one thread at a time runs Python."""
    is_enabled = getattr(sys, "_is_gil_enabled", None)  # of Python 3.13 and newer
    return is_enabled is None or bool(is_enabled())


def check_unpatched() -> None:
    """Raise InvalidArgument where greenlets stand in for what Quire waits by (GI4)."""
    found = {
        name: str(getattr(getattr(sys.modules.get(module), attribute, None), "__module__", ""))
        for name, (module, attribute) in _WAITED_BY.items()
    }
    owners = {name: module.partition(".")[0] for name, module in found.items()}
    replaced = [name for name, owner in owners.items() if owner in _PATCHES]
    if replaced:
        owner = owners[replaced[0]]
        raise InvalidArgument(
            f"{owner} has replaced {' and '.join(replaced)} of Python in this process, by which "
            f"threads of Quire would wait for ever: call {_PATCHES[owner]}, or open the store in a "
            "process of its own"
        )


def warn_without_gil() -> None:
    """A RuntimeWarning where nobody has shown that threads do each other no harm."""
    if not has_gil():
        warnings.warn(_UNPROVEN, RuntimeWarning, stacklevel=2)


def numbers_from(first: int) -> Callable[[], int]:
    """Return a function that gives `first` and the numbers after it, each once, to any threads
    (GI1).
    """
    following = itertools.count(first).__next__
    if has_gil():
        return following
    one_at_a_time = Lock()

    def following_alone() -> int:
        with one_at_a_time:
            return following()

    return following_alone
