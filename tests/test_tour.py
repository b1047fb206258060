"""The tour shows what its two transactions leave in the journal."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import quire
from tests.source_tree import ROOT

TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6} UTC")


def test_the_dump_says_what_the_page_shows(tmp_path: Path) -> None:
    """The records of both commits stand on the page as they are dumped, but for their times."""
    page = (ROOT / "docs" / "tour.md").read_text()
    programs = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    with quire.open(str(tmp_path / "shop.quire")) as store:
        store.create_queue("orders", kind="work")
        store.create_queue("events", kind="topic")
        store.subscribe("events", "audit")
        for program in programs:
            exec(program, {"store": store})
    dumped = subprocess.run(
        [sys.executable, "-m", "quire", "dump", "shop.quire", "--journal"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    shown = re.findall(r"^```\n(LSN .*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(programs) == len(shown) == 2
    for records in shown:
        assert TIME.sub("now", records) in TIME.sub("now", dumped)
