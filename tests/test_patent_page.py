"""docs/patent.md names what exists: modules, options and tests; and it leaves no paragraph out."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.engine import EmbeddedTransaction as Transaction
from quire.engine.options import Options
from quire.errors import InvalidArgument
from tests.source_tree import ROOT

TEXT = (ROOT / "docs" / "patent.md").read_text()
FIGURES = [
    *("1A", "1B", "2A", "2B", "2C", "2D", "2E", "3A", "3B"),
    *("4", "5", "6", "7", "8A", "8B", "8C", "9A", "9B"),
]
CALLS: dict[str, Callable[..., Any]] = {
    "create_queue": Store.create_queue,
    "transaction": Store.transaction,
    "commit": Transaction.commit,
}


@cache
def functions(path: Path) -> set[str]:
    """The tests of a file."""
    body = ast.walk(ast.parse(path.read_text()))
    return {node.name for node in body if isinstance(node, ast.FunctionDef)}


def missing(text: str) -> list[str]:
    """What the text names and is not there."""
    errors = []
    for code in re.findall(r"`([^`]+)`", text):
        path, _, test = code.partition("::")
        if re.fullmatch(r"[\w/]+\.py", path):
            if not (ROOT / path).is_file():
                errors.append(f"{path}: no such file")
            elif test and test not in functions(ROOT / path):
                errors.append(f"{code}: no such test")
        elif "=" in code:
            errors += option_errors(code, text)
    return errors


def option_errors(code: str, text: str) -> list[str]:
    """An option is one of `open` with a value that it takes, or one of the call named behind it."""
    name, _, value = code.partition("=")
    if name in Options.__struct_fields__:
        if value:
            try:
                Options.of({name: ast.literal_eval(value)})
            except (InvalidArgument, ValueError, SyntaxError) as error:
                return [f"{code}: {error}"]
        return []
    owner = re.search(re.escape(f"`{code}`") + r"[^.;]*? of\s+`(\w+)`", text)
    call = CALLS.get(owner[1]) if owner is not None else None
    if call is None or name not in inspect.signature(call).parameters:
        return [f"{code}: no such option"]
    return []


def numbers(pattern: str, text: str) -> set[int]:
    """All numbers of the ranges "a-b" and single ones that the pattern finds."""
    found: set[int] = set()
    for first, last in re.findall(pattern, text):
        found.update(range(int(first), int(last or first) + 1))
    return found


def test_all_that_is_named_exists() -> None:
    """Modules, tests, and options with their values."""
    assert missing(TEXT) == []
    assert len(re.findall(r"`[\w/]+\.py::", TEXT)) > 40


def test_every_paragraph_figure_and_claim_has_its_place() -> None:
    """Paragraphs 29 to 80 in headings, all figures and claims in the tables."""
    headings = "\n".join(re.findall(r"^### .*$", TEXT, re.MULTILINE))
    assert numbers(r"\[(00\d\d)(?:-(00\d\d))?\]", headings) == set(range(29, 81))
    figures, claims = TEXT.split("\n## Figures\n")[1].split("\n## Claims\n")
    rows = re.findall(r"^\| ([^|]+) \|", figures, re.MULTILINE)
    assert sorted(", ".join(rows[1:]).split(", ")) == FIGURES
    rows = re.findall(r"^\| ([\d, ]+) \|", claims, re.MULTILINE)
    assert [int(n) for n in ", ".join(rows).split(", ")] == list(range(1, 25))


def test_every_alternative_is_on_the_page() -> None:
    """All strategies and choices; an option that is not mentioned would not be found."""
    for code in (
        *(f'strategy="{name}"' for name in (
            "lock-all", "reserve-at-open", "reserve-mode", "reserve-mode-counted")),
        'write_buffer="shared"', 'write_buffer="per-queue"',
        'when_full="spill"', 'when_full="large"', "large=True",
    ):  # fmt: skip
        assert f"`{code}`" in TEXT


@pytest.mark.parametrize(
    "text",
    [
        "`engine/nowhere.py`",
        "`tests/engine/test_life_in_the_buffer.py::test_that_is_gone`",
        '`strategy="optimistic"`',
        "`write_buffer_bites=1`",
        "`large=True` of `create_queue`",
    ],
)
def test_what_does_not_exist_is_found(text: str) -> None:
    """The check can fail."""
    assert len(missing(text)) == 1
