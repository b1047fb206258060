"""Figures, tables and plots, and what a benchmark is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

__all__ = [
    "Benchmark",
    "BenchmarkSetting",
    "Figure",
    "Plot",
    "Result",
    "Table",
    "at_least",
    "at_most",
    "exactly",
]


class FigureTarget(NamedTuple):
    """The target of a figure. Missing it fails nothing: it is shown."""

    relation: str
    value: float

    def met(self, value: float) -> bool:
        relations = {"at most": value <= self.value, "at least": value >= self.value}
        return relations.get(self.relation, value == self.value)


def at_most(value: float) -> FigureTarget:
    """The figure should not exceed this."""
    return FigureTarget("at most", value)


def at_least(value: float) -> FigureTarget:
    """The figure should reach this."""
    return FigureTarget("at least", value)


def exactly(value: float) -> FigureTarget:
    """The figure should be this."""
    return FigureTarget("exactly", value)


class Figure(Struct, frozen=True):
    """A measured value."""

    name: str
    value: float
    unit: str
    target: FigureTarget | None = None

    @property
    def met(self) -> bool | None:
        return None if self.target is None else self.target.met(self.value)


class Table(Struct, frozen=True):
    """Measured values side by side. A cell is a number, or words; units stand in the columns."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[float | str]]
    note: str = ""  # where figures come from that were not measured here


class Plot(Struct, frozen=True):
    """A drawing, saved as `<name>.png`."""

    name: str
    caption: str
    drawing: Drawing


class BenchmarkSetting(Struct, frozen=True):
    """The setting of a benchmark: where it runs, and how."""

    folder: Path  # empty, on the file system to measure; removed afterwards
    quick: bool
    seed: int
    before: Path | None = None  # another checkout, to be measured beside this one
    sync: bool = True  # False: no benchmark waits for the disk

    def scaled(self, full: int, quick: int) -> int:
        """A count: `full`, or `quick` for a quick look."""
        return quick if self.quick else full


Result = Figure | Table | Plot
Benchmark = Callable[[BenchmarkSetting], Sequence[Result]]
