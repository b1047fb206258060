"""Draws from the seed: the forms, cases and workloads of which a run has some.

DR1  Over as many consecutive turns as there are choices, each choice is drawn once, whatever the
     name. The turn of `make test` is the number of commits (`scripts/commit_seed.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar
from zlib import crc32

from scripts.commit_seed import PER_TURN

Choice = TypeVar("Choice")


def hashed(name: str) -> int:
    """Return a number of the name that is the same in every process."""
    return crc32(name.encode())


def turn(seed: int) -> int:
    """Return the turn of a seed."""
    return seed // PER_TURN


def drawn(choices: Sequence[Choice], seed: int, name: str) -> Choice:
    """Return the choice of this seed for what has this name: a test, or a workload."""
    return choices[(hashed(name) + turn(seed)) % len(choices)]


def share(names: Sequence[str], parts: int, seed: int, name: str) -> set[str]:
    """Return the names that are in this seed's part, of so many: one at least, if there are any.

    All of them are drawn over as many consecutive turns as there are parts. Who is with whom is
    by chance, so that of names that differ in several words each word is in most parts.
    """
    order = sorted(names, key=lambda each: (hashed(each), each))
    parts = min(parts, len(order))
    return set(order[drawn(range(parts), seed, name) :: parts]) if parts else set()
