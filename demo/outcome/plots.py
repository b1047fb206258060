"""The report's plots, as SVG text to be put into a page."""

from __future__ import annotations

import io

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter
from numpy.typing import NDArray

from demo.timeline import TimelineEvent

__all__ = ["COLOURS", "latency", "throughput"]

COLOURS = {
    "departures": "#2f6db5",
    "enriched": "#2a9d77",
    "delays": "#d99a1c",
    "alerts": "#c8483e",
    "notices": "#7a5bb0",
}
INK, PALE = "#27313d", "#d8dee6"
WINDOW_SECONDS, MOST_WINDOWS = 2.0, 60  # of a rate: wider where a run is long
LABEL_POINTS, LABEL_SHARE = 15, 0.08  # of a strike's label: its height, and that of the plot's
EMPTY_SAMPLES = 8  # that are shown before the first message

mpl.rcParams.update(
    {
        "svg.fonttype": "none",  # the page's own font
        "font.family": "sans-serif",
        "font.size": 10,
        "text.color": INK,
        "axes.edgecolor": PALE,
        "axes.labelcolor": INK,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "grid.color": "#edf0f4",
        "xtick.color": INK,
        "ytick.color": INK,
    }
)


def throughput(events: list[TimelineEvent]) -> str:
    """Messages put per second, and in all, over time; the strikes marked."""
    samples = _samples(events)
    zero = samples[0].at
    counts = pd.DataFrame([event.details for event in samples])
    counts.index = pd.Index([event.at - zero for event in samples])
    figure = Figure(figsize=(10, 5.6), layout="constrained")
    rate, total = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    window = max(WINDOW_SECONDS, counts.index[-1] / MOST_WINDOWS)
    steps = np.arange(0.0, counts.index[-1] + window, window)
    for name in counts:
        at_steps = np.interp(steps, counts.index, counts[name])
        # A notice follows each alert at once: one of the two lines is dashed, so that both show.
        dashes = "--" if name == "notices" else "-"
        style = {"color": COLOURS[str(name)], "label": str(name), "linestyle": dashes}
        rate.step(steps, np.diff(at_steps, prepend=0) / window, linewidth=1.4, **style)
        total.plot(counts.index, counts[name], linewidth=1.8, **style)
    strikes = [event for event in events if event.what == "kill"]
    for axes, room in ((rate, 1.04 + LABEL_SHARE * len(strikes)), (total, 1.1)):
        axes.set_xlim(0, counts.index[-1])
        axes.set_ylim(0, room * axes.get_ylim()[1])
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    for row, event in enumerate(strikes):
        _strike(rate, total, event.at - zero, event.details["who"], row)
    rate.set_ylabel("messages per second")
    total.set_ylabel("messages in all")
    total.set_xlabel("seconds")
    figure.align_ylabels((rate, total))
    figure.legend(
        *rate.get_legend_handles_labels(), loc="outside upper left", ncols=5, frameon=False
    )
    return _svg(figure)


def _samples(events: list[TimelineEvent]) -> list[TimelineEvent]:
    """The counts over time, from a little before the first message."""
    samples = [event for event in events if event.what == "counts"]
    empty = sum(1 for event in samples if not any(event.details.values()))
    return samples[max(0, empty - EMPTY_SAMPLES) :]


def _strike(rate: Axes, total: Axes, at: float, who: str, row: int) -> None:
    """A line at that moment. Each label has a row of its own: two may come close together."""
    for axes in (rate, total):
        axes.axvline(at, color=INK, linewidth=1.2, linestyle=(0, (4, 3)))
    late = at > rate.get_xlim()[1] / 2
    words = rate.annotate(
        f"SIGKILL: {who}",
        (at, rate.get_ylim()[1]),
        xytext=(-5 if late else 5, -2 - LABEL_POINTS * row),
        textcoords="offset points",
        color=INK,
        ha="right" if late else "left",
        va="top",
        fontsize=9,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
    )
    words.set_in_layout(False)


def latency(events: list[TimelineEvent]) -> str:
    """Draw the times of the commits of the publisher and of the worker."""
    figure = Figure(figsize=(10, 3.0), layout="constrained")
    axes = figure.subplots()
    series = {
        "publisher: any number of flights and the ledger": ("publisher", COLOURS["departures"]),
        "worker: get from alerts, put to notices": ("worker", COLOURS["notices"]),
    }
    found: dict[str, tuple[NDArray[np.float64], str]] = {}
    for label, (who, colour) in series.items():
        taken = [e.details["seconds"] for e in events if e.what == "commit" and e.who == who]
        if taken:
            found[label] = (1e3 * np.array(taken), colour)
    if found:
        every = np.concatenate([times for times, _ in found.values()])
        bins = np.geomspace(every.min() * 0.9, every.max() * 1.1, 60)
        for label, (times, colour) in found.items():
            median, most = np.median(times), np.quantile(times, 0.99)
            label = f"{label}; median {median:.2f} ms, 99th percentile {most:.1f} ms"
            axes.hist(times, bins=bins.tolist(), color=colour, alpha=0.65, label=label)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("milliseconds from commit() to its return, over the owner's socket")
    axes.set_ylabel("commits")
    figure.legend(loc="outside upper left", frameon=False)
    return _svg(figure)


def _svg(figure: Figure) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    whole = text.getvalue()
    return whole[whole.index("<svg") :]
