"""The one checksum of Quire: XXH3, 64 bits, seed 0, over any buffer.

It is the C function itself, so that a call costs no Python frame.
"""

from __future__ import annotations

from xxhash import xxh3_64_intdigest as checksum

__all__ = ["checksum"]
