"""Runs of a set of integers in a checkpoint, as bits where that takes less than their bounds.

As bits stand: the bounds of the first run and of the last one, and a bit for each integer in
between. So a set of integers in a span of so many takes an eighth of a byte for each, however many
runs it is in.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Sequence
from typing import Final, TypeAlias

from quire.intervals import IntervalSet
from quire.limits import RUNS_BITS_BYTES, RUNS_BOUNDS, RUNS_WORD_BITS

Runs: TypeAlias = Sequence[tuple[int, int]]
"""Half-open, ascending, and none touches another."""

_ONES: Final = re.compile("1+")


def little_endian(numbers: array[int]) -> array[int]:
    """Return the numbers as they stand in files; the reverse is the same."""
    if sys.byteorder == "little":
        return numbers
    turned = numbers[:]
    turned.byteswap()
    return turned


def pack_bits(runs: Runs) -> array[int] | None:
    """Return the numbers of the runs as bits; None where their bounds are fewer numbers."""
    if len(runs) <= RUNS_BOUNDS // 2:
        return None
    (start, base), (end, last) = runs[0], runs[-1]
    words = -(-(end - base) // RUNS_WORD_BITS)
    if RUNS_BOUNDS + words >= 2 * len(runs):
        return None
    parts: list[str] = []
    behind = end
    for lo, hi in reversed(runs[1:-1]):  # as the digits of a number stand, the highest first
        parts += "0" * (behind - hi), "1" * (hi - lo)
        behind = lo
    bits = int("".join(parts) + "0" * (behind - base), 2)
    return array("q", (start, base, end, last)) + little_endian(
        array("q", bits.to_bytes(8 * words, "little"))
    )


def most_bytes(done: IntervalSet, end: int) -> tuple[int, bool]:
    """Return the most that the runs take, now and whatever of [0, end) is added to them.

    See `bound_of`.
    """
    return bound_of(len(done), end - done.total, end - done.first_gap(0))


def bound_of(runs: int, absent: int, span: int) -> tuple[int, bool]:
    """Return the most that so many runs take, now and later; True if each integer makes it steep.

    As bounds they take 16 bytes each. Of runs that leave out `absent` integers there are at most
    `absent` and one. Who adds a run makes that one more, and takes at least one integer from
    `absent`: so `runs + absent` never grows, and 8 bytes for each of these and one are enough for
    ever. As bits they take an eighth of a byte for each integer behind the first run, of which
    there are `span`, never more. What is written is what is less.

    An integer more that is absent makes the first bound 8 bytes more, and the second an eighth:
    where the first is less, it is steep.
    """
    as_bounds = 8 * (runs + absent + 1)
    as_bits = RUNS_BITS_BYTES + (span >> 3)
    return (as_bounds, True) if as_bounds < as_bits else (as_bits, False)


def unpack_bits(numbers: Sequence[int], count: int) -> list[tuple[int, int]]:
    """Return the runs of what `pack_bits` made. Raises ValueError for what it did not make."""
    start, base, end, last = numbers[:RUNS_BOUNDS]
    words = numbers[RUNS_BOUNDS:]
    if not start < base < end < last or len(words) != -(-(end - base) // RUNS_WORD_BITS):
        raise ValueError("a set as bits contradicts itself")
    bits = int.from_bytes(little_endian(array("q", words)).tobytes(), "little")
    digits = format(bits, "b")[::-1]
    inner = [(base + found.start(), base + found.end()) for found in _ONES.finditer(digits)]
    runs = [(start, base), *inner, (end, last)]
    if len(runs) != count or (inner and not base < inner[0][0] <= inner[-1][1] < end):
        raise ValueError("a set as bits contradicts itself")
    return runs
