"""Imports while a program runs, which a fork waits for.

- LD2: a child that is forked while another thread imports a module waits for ever when it imports
  that module itself: the thread that has the module's lock is not there. Some of what Quire loads
  late takes a second, also in threads of its own. So no process is forked meanwhile, unless an
  import lasts longer than IMPORT_WAIT_SECONDS: it may wait for the thread that forks. The lock of
  `logging`, which imports take, is to be taken for the fork after this wait.
- LD3: no handler of a signal interrupts an import, once there is somebody who holds them back
  (`quire.calls.signal_safety`; `quire/__init__.py` does so while it loads that): one that raises
  within Python's own machinery leaves the module's lock taken, and every other thread that imports
  it waits for ever. Nor does what is kept here take a lock: it is changed in one step each.
"""

from __future__ import annotations

import logging  # noqa: F401 - see LD2: of what a fork calls before it, the last registered is first
from _thread import get_ident
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from queue import Empty, SimpleQueue
from types import ModuleType

from quire.errors import refusing

from .limits import IMPORT_POLL_SECONDS, IMPORT_WAIT_SECONDS


class _Importing:
    """The threads that import something now, and those that are about to fork."""

    def __init__(self) -> None:
        self._threads: dict[object, int] = {}  # of each import
        self._forks: list[int] = []  # threads, once for each fork

    def begin(self) -> object:
        """This thread begins to import, which it ends by what is returned."""
        own, key = get_ident(), object()
        is_within = own in list(self._threads.values())  # another import, which a fork waits for
        while True:
            self._threads[key] = own  # first: who forks looks the other way round
            if is_within or all(each == own for each in list(self._forks)):
                return key
            del self._threads[key]
            _pause()

    def end(self, key: object) -> None:
        """End an import."""
        self._threads.pop(key, None)

    def before_fork(self) -> None:
        """Wait until no other thread imports anything, and let none begin."""
        own = get_ident()
        self._forks.append(own)
        for _ in range(round(IMPORT_WAIT_SECONDS / IMPORT_POLL_SECONDS)):
            if all(each == own for each in list(self._threads.values())):
                return
            _pause()

    def after_fork(self) -> None:
        """Let imports begin again in the parent, whose `before_fork` an interrupt may have
        ended.
        """
        with suppress(ValueError):
            self._forks.remove(get_ident())


def _pause() -> None:
    """Pause on a queue of its own, and so with no lock that others take."""
    with suppress(Empty):
        SimpleQueue[None]().get(timeout=IMPORT_POLL_SECONDS)


def _hold_nothing() -> bool:
    return False


def _let_go_of_nothing() -> None:
    """Do nothing: nothing was held."""


_hold: Callable[[], bool] = _hold_nothing
_let_go: Callable[[], None] = _let_go_of_nothing
_importing = _Importing()


def hold_signals_by(hold: Callable[[], bool], let_go: Callable[[], None]) -> None:
    """Call these before and after each import from now on, so that handlers wait (LD3)."""
    global _hold, _let_go
    _hold, _let_go = hold, let_go


class importing:  # noqa: N801 - a block of `with`, as `suppress` is
    """A block whose imports no handler of a signal interrupts, and forks wait for (LD2, LD3).

        with importing():
            from quire.remote import stop_on_signals

    Each time the block is entered it takes a few microseconds; what is used more often is a module
    that is late (`late_modules`).
    """

    __slots__ = ("_is_held", "_key")

    def __enter__(self) -> None:
        self._is_held = _hold()
        try:
            self._key = _importing.begin()
        except BaseException:
            self._let_go()
            raise

    def __exit__(self, *error: object) -> None:
        _importing.end(self._key)
        self._let_go()

    def _let_go(self) -> None:
        if self._is_held:
            _let_go()


def load(name: str) -> ModuleType:
    """Import the module of that name, and have forks wait for it (LD2).

    Raises ResourceExhausted where the system has no file or no memory for that.
    """
    with importing(), refusing(name, "load the module"):
        return import_module(name)


def before_fork() -> None:
    """Wait for other threads' imports; `quire.env` has each fork call this, and the next two."""
    _importing.before_fork()


def after_fork_in_parent() -> None:
    """Let others go on."""
    _importing.after_fork()


def after_fork_in_child() -> None:
    """Begin anew: no thread but this one is there."""
    global _importing  # noqa: PLW0603 - a lock cannot be made anew in place
    _importing = _Importing()
