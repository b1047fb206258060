"""Which attributes several threads set without a lock that all of them hold: Eraser's rule.

Source: Savage et al., "Eraser: a dynamic data race detector for multithreaded programs" (1997),
section 2. Whoever sets an attribute of an object is noted with the locks it holds. One thread makes
an object, and may give it to another one for good: only when a third time begins, whoever's, the
locks are looked at that all hold from then on. Where none is left, two threads may have set it at
the same time, and with `+=` one of the two is lost. What is handed from thread to thread more often
is found too, as nobody holds a lock of it: the caller knows of that.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.lock_watch import place_of

__all__ = ["WriteWatch"]


class WriteWatch:
    """What was found: `Class.attribute`, with the first place that had no lock left.

    `held`: the names of the locks of the calling thread.
    """

    def __init__(self, held: Callable[[], list[str]]) -> None:
        self.unlocked: dict[str, str] = {}
        self.shared: set[str] = set()  # what several threads have set, by the same rule
        self._held = held
        self._own = threading.Lock()
        self._written: dict[tuple[int, str], _Written] = {}

    @contextmanager
    def watching(self, packages: tuple[str, ...]) -> Iterator[WriteWatch]:
        """All classes of these packages, and what is below them."""
        classes = {
            each: each.__setattr__
            for name, module in list(sys.modules.items())
            if name.startswith(packages)
            for each in vars(module).values()
            if isinstance(each, type) and each.__module__ == name and not _is_a_value(each)
        }
        for each, real in classes.items():
            each.__setattr__ = self._noting(real)  # type: ignore[assignment, method-assign]
        try:
            yield self
        finally:
            for each in classes:
                del each.__setattr__

    def _noting(self, real: Any) -> Callable[[Any, str, Any], None]:
        def note_and_set(written: Any, name: str, value: Any) -> None:
            real(written, name, value)
            self._note(written, name)

        return note_and_set

    def _note(self, written: Any, name: str) -> None:
        thread, held = threading.get_ident(), set(self._held())
        with self._own:
            known = self._written.get((id(written), name))
            if known is None:
                self._written[id(written), name] = _Written(written, thread)
                return
            if known.common is None and (known.thread == thread or not known.is_given):
                known.is_given |= known.thread != thread
                known.thread = thread
                return
            known.common = held if known.common is None else known.common & held
        attribute = f"{type(written).__name__}.{name}"
        self.shared.add(attribute)
        if not known.common:
            self.unlocked.setdefault(attribute, place_of(sys._getframe(2)))


class _Written:
    """An attribute of an object, and who has set it."""

    def __init__(self, written: Any, thread: int) -> None:
        self.written = written  # kept, so that no other object has its number
        self.thread = thread
        self.is_given = False  # to that thread, by the one that made it
        self.common: set[str] | None = None  # what all hold, if several set it


def _is_a_value(each: type) -> bool:
    """Nobody sets an attribute of it after it was made; or its class tells in its own way."""
    return issubclass(each, tuple | BaseException) or "__setattr__" in vars(each)
