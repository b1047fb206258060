"""What listeners were told over all of their processes, held against what was committed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.kit.violation import Violation

__all__ = ["Told", "reconcile", "told_in"]


@dataclass
class Told:
    """What a listener was told, over all of its processes."""

    ids: set[int] = field(default_factory=set)
    missed: int = 0


def told_in(log: Path, names: Iterable[str]) -> dict[str, Told]:
    """By listener; the last line of a process that was killed may be a part of one.

    A line is a name, a number of messages that were missed, and ids.
    """
    found = {name: Told() for name in names}
    for line in log.read_text().splitlines(keepends=True):
        name, *numbers = line.split() or [""]
        if line.endswith("\n") and name in found and numbers:
            found[name].missed += int(numbers[0])
            found[name].ids |= {int(each) for each in numbers[1:]}
    return found


def reconcile(told: Told, committed: set[int], others: set[int]) -> None:
    """All that fits was told, or is among what was missed; nothing that was never committed.

    `others`: what is committed and does not fit. Raises Violation.
    """
    if told.ids - committed:
        raise Violation(f"told and not committed, or not fitting: {told.ids - committed}")
    lost = len(committed - told.ids) - told.missed
    if lost > 0:
        raise Violation(f"{lost} of {len(committed)} were neither told nor counted as missed")
    if not committed - told.ids and told.missed > len(committed | others):
        raise Violation(f"{told.missed} are said to be missed, of {len(committed | others)}")
