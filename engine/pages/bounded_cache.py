"""Values by key in a bounded amount of memory.

- The bound is on what the values truly take: their bytes, their objects and their place here. The
  oldest go first.
- An empty cache holds no memory of a larger time.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class BoundedCache(Generic[Key, Value]):
    """See the module. Thread-safe.

    `size_of` tells the bytes that a value takes, `entry_bytes` is for its key and its place here.
    """

    __slots__ = ("_entry_bytes", "_limit_bytes", "_lock", "_set_default", "_size_of", "_values",
                 "get", "size_bytes")  # fmt: skip

    def __init__(self, limit_bytes: int, size_of: Callable[[Value], int], entry_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._entry_bytes = entry_bytes
        self._size_of = size_of
        self._lock = threading.Lock()
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self.size_bytes = 0
        self.get: Callable[[Key], Value | None] = self._values.get
        self._set_default = self._values.setdefault

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: Key) -> bool:
        return key in self._values

    def add(self, key: Key, value: Value) -> None:
        """Keep a value, unless there is one."""
        set_default, size_of = self._set_default, self._size_of
        with self._lock:
            if set_default(key, value) is value:
                self.size_bytes = size = self.size_bytes + size_of(value) + self._entry_bytes
                if size > self._limit_bytes:
                    self._make_room()

    def forget(self, key: Key) -> None:
        """Let go of a value, if it is there."""
        with self._lock:
            value = self._values.pop(key, None)
            if value is not None:
                self.size_bytes -= self._size_of(value) + self._entry_bytes
                if not self._values:
                    self._values.clear()  # its table, too

    def list_keys(self) -> list[Key]:
        """Of all that is kept, the oldest first."""
        with self._lock:
            return list(self._values)

    def clear(self) -> None:
        """Let go of everything."""
        with self._lock:
            self._values.clear()
            self.size_bytes = 0

    def _make_room(self) -> None:
        while self.size_bytes > self._limit_bytes:
            _, oldest = self._values.popitem(last=False)
            self.size_bytes -= self._size_of(oldest) + self._entry_bytes
