"""The recipes of the pages for users are programs that print what their page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.source_tree import ROOT

PAGES = ("handling", "order", "times", "payloads", "queues", "listening", "sessions")
TEXTS = {page: (ROOT / "docs" / f"{page}.md").read_text() for page in PAGES}
CONFORMANCE = (ROOT / "docs" / "conformance.md").read_text()
# A program, and what it prints: words in backquotes, a line each, up to the end of the sentence.
RECIPE = re.compile(
    r"^```python\n(.*?)^```\n\nIt prints ((?:`[^`]*`(?:,\s)?)+)\.", re.MULTILINE | re.DOTALL
)
RECIPES = [(page, *recipe) for page, text in TEXTS.items() for recipe in RECIPE.findall(text)]


@pytest.mark.parametrize("page", PAGES)
def test_every_program_is_a_recipe(page: str) -> None:
    """None lacks what it prints."""
    found = [name for name, _, _ in RECIPES if name == page]
    assert len(found) == TEXTS[page].count("```python") >= 3


@pytest.mark.parametrize("page", PAGES)
def test_a_page_begins_with_its_first_recipe(page: str) -> None:
    """Its reader meets a program before any table."""
    lines = TEXTS[page].splitlines()
    before = lines[: lines.index("```python")]
    assert len(before) <= 20
    assert not any(line.startswith("|") for line in before)


# Each program in a process of its own, in a folder of its own; what they import is there already.
# Some at a time: they wait for the disk, and some for a moment to come.
RUNNER = """
import os, runpy, sys
import quire.aio, quire.codecs, quire.engine, quire.remote

running = {}

def end_one():
    process, status = os.wait()
    with open(os.path.join(running.pop(process), "status"), "w") as file:
        file.write(str(os.waitstatus_to_exitcode(status)))

for folder in sys.argv[1:]:
    if len(running) == 4:
        end_one()
    process = os.fork()
    if process == 0:
        os.chdir(folder)
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(name, os.O_CREAT | os.O_WRONLY), number)
        runpy.run_path("program.py", run_name="__main__")
        sys.exit()
    running[process] = folder
while running:
    end_one()
"""


@pytest.fixture(scope="module")
def folders(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[int, Path]:
    """Of the recipes of this run, each with what came of it."""
    made = {}
    for item in request.session.items:
        if isinstance(item, pytest.Function) and "folders" in item.fixturenames:
            number = item.callspec.params["number"]
            assert isinstance(number, int)
            made[number] = folder = tmp_path_factory.mktemp("recipe")
            (folder / "program.py").write_text(RECIPES[number][1])
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    subprocess.run(
        [sys.executable, "-c", RUNNER, *map(str, made.values())],
        env={**os.environ, "PYTHONPATH": path},
        check=True,
    )
    return made


@pytest.mark.cases(6)
@pytest.mark.parametrize(
    "number", range(len(RECIPES)), ids=[f"{page}-{n}" for n, (page, _, _) in enumerate(RECIPES)]
)
def test_a_recipe_prints_what_the_page_says(folders: dict[int, Path], number: int) -> None:
    """A recipe, run in an empty folder, prints what the page says and nothing else."""
    folder, (_, _, printed) = folders[number], RECIPES[number]
    assert ((folder / "status").read_text(), (folder / "err").read_text()) == ("0", "")
    said = (folder / "out").read_text().splitlines()
    assert said == re.findall(r"`([^`]*)`", printed)


def test_every_test_of_the_conformance_page_is_there() -> None:
    """In the file that it is linked to (which the checker of links holds, too)."""
    named = re.findall(r"\[`(test_\w+)`\]\(\.\./([\w/.]+)\)", CONFORMANCE)
    assert len(named) >= 13
    missing = [name for name, path in named if f"def {name}(" not in (ROOT / path).read_text()]
    assert missing == []
