"""How text is made to fit into a box of a drawing, in whichever font its reader has."""

from __future__ import annotations

from typing import Final

from quire.limits import DRAWN_SMALLEST

_NARROW: Final = frozenset("iljI.,:;|!' ")
_SLIM: Final = frozenset("frt-_()/[]{}")
_WIDE: Final = frozenset("mwMW@%…")


def ems(text: str) -> float:
    """Return about how wide it is, in bold letters, in units of their size: DejaVu's are wide."""
    return sum(map(_ems_of, text))


def _ems_of(letter: str) -> float:
    if letter in _NARROW:
        return 0.4
    if letter in _SLIM:
        return 0.5
    if letter in _WIDE:
        return 1.11
    return 0.86 if letter.isupper() or letter > "\xff" else 0.72


def fitted(text: str, size: float, room: float) -> tuple[str, float]:
    """The text, and the size of its letters: smaller if need be, cut where they were too small."""
    smallest = size * DRAWN_SMALLEST
    wide = ems(text)
    if wide * smallest <= room:
        return text, min(size, room / wide) if wide else size
    kept, left = 0, room / smallest - ems("…")
    while left >= _ems_of(text[kept]):
        left -= _ems_of(text[kept])
        kept += 1
    return f"{text[:kept]}…", smallest


def count(number: int) -> str:
    """A number in few letters: 9,999, then 10.0k, 12.3M and so on."""
    if number < 10_000:
        return f"{number:,}"
    amount, units = float(number), "kMGT"
    unit = -1
    while unit < 0 or (amount >= 999.5 and unit < len(units) - 1):
        amount /= 1000
        unit += 1
    return f"{amount:.1f}{units[unit]}" if amount < 99.95 else f"{amount:.0f}{units[unit]}"
