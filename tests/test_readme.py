"""The README, and the first steps that it leads to, do what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.source_tree import ROOT

PROGRAMS = [
    ("README.md", "An example"),
    ("docs/start.md", "Queues, a topic and transactions"),
    ("docs/start.md", "asyncio"),
]


@pytest.mark.parametrize(("page", "section"), PROGRAMS)
def test_a_program_works_as_printed(tmp_path: Path, page: str, section: str) -> None:
    """The section's Python block, run in an empty folder, prints what the page says after it."""
    text = (ROOT / page).read_text()
    pattern = rf"^## {section}$.*?^```python\n(.*?)^```$(.*?)(?:^## |\Z)"
    block = re.search(pattern, text, re.MULTILINE | re.DOTALL)
    assert block is not None
    printed = re.search(r"It prints `([^`]*)`", block[2])
    assert printed is not None, "the page does not say what the program prints"
    result = subprocess.run(
        [sys.executable, "-c", block[1]], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.strip() == printed[1]


def test_every_program_is_run() -> None:
    """No Python block of these pages is left out of the list above."""
    for page in {page for page, _ in PROGRAMS}:
        listed = sum(name == page for name, _ in PROGRAMS)
        assert (ROOT / page).read_text().count("```python") == listed


def test_the_first_screen_tells_what_it_is_for() -> None:
    """Before its first section: the status, the picture, for whom, not for whom, and the limits."""
    text = (ROOT / "README.md").read_text()
    first = text[: text.index("\n## ")]
    assert len(first.splitlines()) <= 32
    places = [first.index(f"**{words}") for words in (
        "Status: alpha", "It is for**", "It is not for**", "Limits today:**")]  # fmt: skip
    assert places == sorted(places)
    assert "![" in first


def test_facts_about_others_have_a_source() -> None:
    """Each cell on another product that tells a measure or a guarantee links where it stands."""
    text = (ROOT / "README.md").read_text()
    rows = re.findall(r"^\| ([a-z][^|]+) \|[^|]*\|(.*)\|$", text, re.MULTILINE)
    assert len(rows) >= 7
    for what, cells in rows:
        for cell in cells.split("|"):
            if re.search(r"\d+ s|once|confirmed|replicated", cell):
                assert "](" in cell, f"{what}: {cell}"


def test_every_page_is_reached() -> None:
    """By a link of the README, but for the pages that others lead to."""
    text = (ROOT / "README.md").read_text()
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")}
    linked = set(re.findall(r"\]\(docs/([\w-]+)\.md", text))
    assert pages - linked == {"delivery", "index", "request-outcomes", "simulated-machine"}
