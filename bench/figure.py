"""Figures, and what a benchmark is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

__all__ = ["Benchmark", "Figure", "Setting", "at_least", "at_most", "exactly"]


class Target(NamedTuple):
    """What a figure should be. Missing it fails nothing: it is shown."""

    relation: str
    value: float

    def met(self, value: float) -> bool:
        relations = {"at most": value <= self.value, "at least": value >= self.value}
        return relations.get(self.relation, value == self.value)


def at_most(value: float) -> Target:
    """The figure should not exceed this."""
    return Target("at most", value)


def at_least(value: float) -> Target:
    """The figure should reach this."""
    return Target("at least", value)


def exactly(value: float) -> Target:
    """The figure should be this."""
    return Target("exactly", value)


@dataclass(frozen=True)
class Figure:
    """One measured value."""

    name: str
    value: float
    unit: str
    target: Target | None = None

    @property
    def met(self) -> bool | None:
        return None if self.target is None else self.target.met(self.value)


@dataclass(frozen=True)
class Setting:
    """Where a benchmark runs, and how."""

    folder: Path  # empty, on the file system to measure; removed afterwards
    quick: bool
    seed: int

    def scaled(self, full: int, quick: int) -> int:
        """A count: `full`, or `quick` for a quick look."""
        return quick if self.quick else full


Benchmark = Callable[[Setting], list[Figure]]
