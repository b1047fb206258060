"""Imports while a program runs, which a fork waits for.

- LD2: a child that is forked while another thread imports a module waits for ever when it imports
  that module itself: the thread that has the module's lock is not there. Some of what Quire loads
  late takes a second, also in threads of its own. So no process is forked meanwhile, unless an
  import lasts longer than IMPORT_WAIT_SECONDS: it may wait for the thread that forks. The lock of
  `logging`, which imports take, is to be taken for the fork after this wait.
"""

from __future__ import annotations

import logging  # noqa: F401 - see LD2: of what a fork calls before it, the last registered is first
import threading
from contextlib import suppress
from importlib import import_module
from types import ModuleType

from .limits import IMPORT_WAIT_SECONDS


class _Importing:
    """Which threads import something now."""

    def __init__(self) -> None:
        self._changed = threading.Condition()  # its thread may come again: in a handler of a signal
        self._threads: dict[object, int] = {}

    def load(self, name: str) -> ModuleType:
        """The module of that name."""
        one = object()
        try:
            with self._changed:
                self._threads[one] = threading.get_ident()
            return import_module(name)
        finally:
            with self._changed:
                self._threads.pop(one, None)
                self._changed.notify_all()

    def before_fork(self) -> None:
        """Wait until no other thread imports anything, and let none begin."""
        own = threading.get_ident()
        self._changed.acquire()
        self._changed.wait_for(
            lambda: all(thread == own for thread in self._threads.values()), IMPORT_WAIT_SECONDS
        )

    def after_fork(self) -> None:
        """In the parent, whose `before_fork` an interrupt may have ended."""
        with suppress(RuntimeError):
            self._changed.release()


_importing = _Importing()


def load(name: str) -> ModuleType:
    """Import the module of that name, and have forks wait for it (LD2)."""
    return _importing.load(name)


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
