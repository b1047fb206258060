"""Types that msgspec decodes to, made known to it by one thread at a time.

- DT1: msgspec (0.22.0) gathers the fields of a `Struct` when the class is first decoded to. Another
  thread that decodes to it meanwhile reads what is not gathered yet, and the process ends by
  SIGSEGV. So before a type is decoded to, all Structs in it are gathered under one lock. Forks wait
  for that, and no handler of a signal interrupts it, as for an import.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from quire.env.interpreter import RLock
from quire.libraries.late_imports import importing

T = TypeVar("T")

_gathering = RLock()
_gathered: set[object] = set()


def decodable(kind: type[T]) -> type[T]:
    """Return the type, once any thread may decode to it (DT1)."""
    if kind not in _gathered:
        with importing(), _gathering:
            msgspec.msgpack.Decoder(kind)
        _gathered.add(kind)
    return kind
