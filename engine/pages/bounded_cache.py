"""Values by key in a bounded amount of memory.

- The bound is on what the values truly take: their bytes, their objects and their place here. The
  oldest go first.
- An empty cache holds no memory of a larger time.
- BC3: no lock is taken. CPython switches threads only within calls of Python functions and at the
  ends of calls and loops: a call of the dict, and a sum without a call in it, are one step each.
  Where there is no GIL a `GuardedCache` has a lock.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from quire.env.interpreter import Lock, has_gil

Key = TypeVar("Key")
Value = TypeVar("Value")


class BoundedCache(Generic[Key, Value]):
    """A cache of bounded size. Thread-safe; keys need no Python function to hash or compare (BC3).

    `size_of` tells the bytes that a value takes, `entry_bytes` is for its key and its place here.
    """

    __slots__ = ("_entry_bytes", "_limit_bytes", "_pop", "_set_default", "_size_of", "_values",
                 "get", "size_bytes")  # fmt: skip

    def __init__(self, limit_bytes: int, size_of: Callable[[Value], int], entry_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._entry_bytes = entry_bytes
        self._size_of = size_of
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self.size_bytes = 0
        self.get: Callable[[Key], Value | None] = self._values.get
        self._set_default: Callable[[Key, Value], Value] = self._values.setdefault
        self._pop: Callable[[Key, None], Value | None] = self._values.pop

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: Key) -> bool:
        return key in self._values

    def add(self, key: Key, value: Value) -> None:
        """Keep a value, unless there is one."""
        set_default, size_of = self._set_default, self._size_of
        size = size_of(value) + self._entry_bytes
        if set_default(key, value) is value:
            self.size_bytes += size
            if self.size_bytes > self._limit_bytes:
                self._make_room()

    def forget(self, key: Key) -> bool:
        """Let go of a value, if it is there; whether it was."""
        pop, size_of = self._pop, self._size_of
        value = pop(key, None)
        if value is None:
            return False
        size = size_of(value) + self._entry_bytes
        self.size_bytes -= size
        values = self._values
        if not values:
            values.clear()  # its table, too; in one step with the look (BC3)
        return True

    def list_keys(self) -> list[Key]:
        """Return the keys of all values, the oldest first."""
        return list(self._values)

    def clear(self) -> None:
        """Let go of everything."""
        for key in self.list_keys():
            self.forget(key)

    def _make_room(self) -> None:
        while self.size_bytes > self._limit_bytes:
            try:
                _, oldest = self._values.popitem(last=False)
            except KeyError:  # others have let go of all of it
                return
            size = self._size_of(oldest) + self._entry_bytes
            self.size_bytes -= size


class GuardedCache(BoundedCache[Key, Value]):
    """The same, for threads that run at the same time. `get` is one step of the dict anyhow."""

    __slots__ = ("_lock",)

    def __init__(self, limit_bytes: int, size_of: Callable[[Value], int], entry_bytes: int) -> None:
        super().__init__(limit_bytes, size_of, entry_bytes)
        self._lock = Lock()

    def add(self, key: Key, value: Value) -> None:
        with self._lock:
            super().add(key, value)

    def forget(self, key: Key) -> bool:
        with self._lock:
            return super().forget(key)

    def list_keys(self) -> list[Key]:
        with self._lock:
            return super().list_keys()


def bounded_cache(
    limit_bytes: int, size_of: Callable[[Value], int], entry_bytes: int
) -> BoundedCache[Key, Value]:
    """One that is right with this interpreter's threads (GI1 of `interpreter`)."""
    made = BoundedCache[Key, Value] if has_gil() else GuardedCache[Key, Value]
    return made(limit_bytes, size_of, entry_bytes)
