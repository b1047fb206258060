"""The demo's report, from events that did not happen."""

from __future__ import annotations

import html.parser
import re

import pandas as pd
import pytest

import quire
from demo.outcome import report
from demo.outcome.reconcile import CheckedCount
from demo.store import GRAPH as GRAPH_NAME
from demo.store import create_queues
from demo.timeline import TimelineEvent
from quire.graphs import GraphDefinition, StepDefinition, draw
from quire.graphs.definition import subscription_of
from quire.graphs.kept_graphs import save_graph

COUNTS = {"departures": 900, "enriched": 800, "delays": 300, "alerts": 50, "notices": 40}


def events() -> list[TimelineEvent]:
    """A short run with one strike."""
    samples = [
        TimelineEvent(
            1e9 + at, "demo", "counts", {name: at * count for name, count in COUNTS.items()}
        )
        for at in range(10)
    ]
    commits = [
        TimelineEvent(1e9 + at, "publisher", "commit", {"seconds": 1e-3 * at}) for at in (1, 2, 4)
    ]
    batches = [
        TimelineEvent(1e9 + at, "spark", "batches", {"step": step, "number": at, "seconds": 0.1})
        for at, step in ((1, "late"), (6, "warn"), (8, "late"))
    ]
    strike = TimelineEvent(1e9 + 5, "demo", "kill", {"who": "everything", "processes": 9})
    return [*samples, *commits, *batches, strike]


def lines(actual: int) -> list[CheckedCount]:
    """Figures, of which one may be wrong."""
    counted = [CheckedCount(name, "messages", count, count) for name, count in COUNTS.items()]
    return [
        *counted,
        CheckedCount("alerts", "messages left", 0, 0),
        CheckedCount("delays", "sum", 7, actual),
    ]


STEPS = (("enrich", "departures", "enriched"), ("late", "enriched", "delays"),
         ("warn", "enriched", "alerts"))  # fmt: skip


CARRIERS = pd.DataFrame({"expected": [3, 4], "actual": [3, 5]}, index=["AA", "<B>"])

GRAPH = GraphDefinition("g", (), (StepDefinition("late", "step", ("enriched",), ("delays",)),))
PICTURE = draw(GRAPH)


class Tags(html.parser.HTMLParser):
    """Collects elements, and checks that they are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.open: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "xlink:href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_flow_fits_into_a_narrow_page() -> None:
    """It is there as a whole and in two halves, of which each element has a name of its own."""
    steps = tuple(StepDefinition(name, "step", (read,), (put,)) for name, read, put in STEPS)
    with quire.open(":memory:") as opened:
        create_queues(opened)
        for name, read, _ in STEPS:
            opened.subscribe(read, subscription_of(GRAPH_NAME, name))
        save_graph(opened, GraphDefinition(GRAPH_NAME, (), steps))
        whole, *halves = re.findall(r"<svg.*?</svg>", report.flow(opened), re.DOTALL)
    names = re.findall(r'class="name"[^>]*>([^<]*)<', "".join(halves))
    assert sorted(names) == sorted([*re.findall(r'class="name"[^>]*>([^<]*)<', whole), "enriched"])
    assert len(halves) == 2
    own = re.findall(r' id="([^"]*)"', "".join([whole, *halves]))
    assert len(own) == len(set(own)) == 6
    for picture in (whole, *halves):
        assert set(re.findall(r"url\(#([^)]*)\)", picture)) <= set(own)
        assert int(re.findall(r'width="(\d+)"', picture)[0]) <= (
            1100 if picture in halves else 1750
        )


def test_the_page_stands_alone() -> None:
    """One page of well-formed HTML with three drawings, and nothing fetched from elsewhere."""
    tags = Tags()
    tags.feed(report.page(events(), lines(7), CARRIERS, PICTURE))
    assert not tags.open
    assert tags.seen.count("svg") == 3
    assert not {"script", "link", "img", "iframe"} & set(tags.seen)
    assert all(link.startswith("#") for link in tags.links)


@pytest.mark.cases(2)
@pytest.mark.parametrize(("actual", "words"), [(7, "all equal"), (8, "1 differ")])
def test_the_page_says_whether_all_figures_are_equal(actual: int, words: str) -> None:
    """A wrong figure stands at the top."""
    assert words in report.page(events(), lines(actual), CARRIERS, PICTURE)


def test_the_page_shows_strikes_counts_and_escapes_names() -> None:
    """What happened, how much of it, and no text of the data taken for markup."""
    page = report.page(events(), lines(7), CARRIERS, PICTURE)
    assert "SIGKILL: everything" in page
    assert "9 processes" in page
    assert ">900<" in page
    assert "&lt;B&gt;" in page


def test_batches_count_by_their_numbers() -> None:
    """Also those that were killed before they could be told of."""
    page = report.page(events(), lines(7), CARRIERS, PICTURE)
    assert "<b>19</b><span>commits, 16 by Spark<" in page
