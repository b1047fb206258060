"""The chart of the README shows the results that there are."""

from __future__ import annotations

import re
from pathlib import Path

from bench import front_page
from tests.source_tree import ROOT


def test_the_chart_has_the_figures_of_the_results(tmp_path: Path) -> None:
    """Its words and figures are those of now; `python -m bench.front_page` draws it anew."""
    front_page.write(tmp_path / "chart.svg")
    words = [
        re.findall(r"<text [^>]*>([^<]*)</text>", path.read_text())
        for path in (front_page.PICTURE, tmp_path / "chart.svg")
    ]
    assert words[0] == words[1]
    shown = [f"{value:,.0f}" for panel in front_page.panels() for _, value in panel.bars]
    assert set(shown) <= set(words[0])


def test_the_chart_says_where_its_figures_stand() -> None:
    """Each panel names a section of the results, and the README the command that measures them."""
    readme = (ROOT / "README.md").read_text()
    (command,) = re.findall(r"`python -m bench ((?:\w+ ?)+)`", readme)
    assert set(command.split()) == {panel.section for panel in front_page.panels()}


def test_others_are_shown_where_they_are_better() -> None:
    """The chart is no choice of what is best for this project: in some panel another one leads."""
    leaders = set()
    for panel in front_page.panels():
        best = min if "less is better" in panel.unit else max
        leaders.add(best(panel.bars, key=lambda bar: bar[1])[0].startswith(front_page.OURS))
    assert leaders == {True, False}
