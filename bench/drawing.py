"""The look of plots: one style for all, drawn without a display."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.typing import HashableList

__all__ = ["COLOURS", "INK", "PALE", "TINTED", "bars", "drawing", "plain_numbers"]

# Told apart by the colour-blind too; neighbours differ in lightness.
COLOURS = ("#2f6db5", "#d99a1c", "#2a9d77", "#c8483e", "#7a5bb0", "#8a96a5")
TINTED = ("#2f6db5", "#a9c4e4", "#d99a1c", "#f0d49b")  # pairs: a colour and its tint
INK, PALE = "#27313d", "#8a96a5"

mpl.rcParams.update(
    {
        "font.family": "sans-serif",
        "font.size": 10,
        "axes.titlesize": 11,
        "axes.titlelocation": "left",
        "text.color": INK,
        "axes.edgecolor": "#d8dee6",
        "axes.labelcolor": INK,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "grid.color": "#edf0f4",
        "xtick.color": INK,
        "ytick.color": INK,
        "legend.frameon": False,
    }
)


def drawing(plots: int, title: str, *, height: float = 4.2) -> tuple[Figure, list[Axes]]:
    """A figure with so many plots, two in a row: its letters can be read on a page of 800 pixels.

    The last one has a row for itself where their number is odd. `height`: of a row, in inches.
    """
    rows: list[HashableList[int]] = [
        [number, min(number + 1, plots - 1)] for number in range(0, plots, 2)
    ]
    figure = Figure(figsize=(10.4, height * len(rows)), layout="constrained")
    axes = figure.subplot_mosaic(rows)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    return figure, [axes[number] for number in range(plots)]


def plain_numbers(axes: Axes, *, x: bool = False, y: bool = True) -> None:
    """Ticks as 10,000, not 1e4."""
    for axis in ([axes.xaxis] if x else []) + ([axes.yaxis] if y else []):
        axis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 10 else f"{value:g}")


def bars(
    axes: Axes,
    groups: Sequence[str],
    series: Mapping[str, Sequence[float]],
    colours: Sequence[str] = COLOURS,
) -> None:
    """A group of bars for each name, one bar for each series, with its value on top."""
    width = 0.8 / len(series)
    for number, (name, values) in enumerate(series.items()):
        at = [group + (number - (len(series) - 1) / 2) * width for group in range(len(groups))]
        drawn = axes.bar(at, values, width * 0.92, label=name, color=colours[number])
        texts = [f"{value:,.0f}" if value >= 100 else f"{value:.2g}" for value in values]
        axes.bar_label(drawn, texts, padding=2, fontsize=8, color=INK)
    axes.set_xticks(range(len(groups)), groups)
    axes.grid(visible=False, axis="x")
    axes.margins(y=0.14)
