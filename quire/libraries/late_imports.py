"""Imports while a program runs, which a fork waits for.

- LD2: a child that is forked while another thread imports a module waits for ever when it imports
  that module itself: the thread that has the module's lock is not there. Some of what Quire loads
  late takes a second, also in threads of its own. So no process is forked meanwhile, unless an
  import lasts longer than IMPORT_WAIT_SECONDS: it may wait for the thread that forks. The lock of
  `logging`, which imports take, is to be taken for the fork after this wait.
- LD3: no handler of a signal interrupts an import, once there is somebody who holds them back
  (`quire.calls.uninterrupted`): one that raises within Python's own machinery leaves the module's
  lock taken, and every other thread that imports it waits for ever. Nor does what is kept here take
  a lock: it is changed in one step each.
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
    """Which threads import something now, and which are about to fork."""

    def __init__(self) -> None:
        self._threads: dict[object, int] = {}  # of each import
        self._forks: list[int] = []  # threads, once for each fork

    def load(self, name: str) -> ModuleType:
        """The module of that name."""
        own, one = get_ident(), object()
        is_within = own in list(self._threads.values())  # another import, which a fork waits for
        try:
            while True:
                self._threads[one] = own  # first: who forks looks the other way round
                if is_within or all(each == own for each in list(self._forks)):
                    return import_module(name)
                del self._threads[one]
                _pause()
        finally:
            self._threads.pop(one, None)

    def before_fork(self) -> None:
        """Wait until no other thread imports anything, and let none begin."""
        own = get_ident()
        self._forks.append(own)
        for _ in range(round(IMPORT_WAIT_SECONDS / IMPORT_POLL_SECONDS)):
            if all(each == own for each in list(self._threads.values())):
                return
            _pause()

    def after_fork(self) -> None:
        """In the parent, whose `before_fork` an interrupt may have ended."""
        with suppress(ValueError):
            self._forks.remove(get_ident())


def _pause() -> None:
    """Of its own, and so with no lock that others take."""
    with suppress(Empty):
        SimpleQueue[None]().get(timeout=IMPORT_POLL_SECONDS)


def _at_once(action: Callable[[str], ModuleType], name: str) -> ModuleType:
    return action(name)


_held: Callable[[Callable[[str], ModuleType], str], ModuleType] = _at_once
_importing = _Importing()


def hold_signals_by(held: Callable[[Callable[[str], ModuleType], str], ModuleType]) -> None:
    """From now on it calls what imports a module, while handlers wait (LD3)."""
    global _held  # noqa: PLW0603 - said once, by who is above this
    _held = held


def load(name: str) -> ModuleType:
    """Import the module of that name, and have forks wait for it (LD2).

    Raises ResourceExhausted where the system has no file or no memory for that.
    """
    with refusing(name, "load the module"):
        return _held(_importing.load, name)


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
