"""Sizes, as callers give them: one rule for every call, command and option.

- SZ1: a size is an int of bytes, or a text of digits and a unit: "65536", "64k", "64 MiB", "1g".
  The units are powers of 1024, in either case.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

Size: TypeAlias = int | str
"""Bytes, or a text such as "64m" or "1g"."""

_SIZE: Final = re.compile(r"(\d{1,15})\s*([kmgt]?)(?:i?b)?", re.IGNORECASE | re.ASCII)


def bytes_of(value: object) -> object:
    """Return the bytes that a text means (SZ1); what is no such text is returned as it is."""
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        return value
    return int(found[1]) << 10 * " kmgt".index(found[2].lower() or " ")
