"""The reference is built from docstrings in Markdown, and tells what is missing from it."""

from __future__ import annotations

import html
import re
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from sphinx.application import Sphinx

from tests.source_tree import ROOT

PACKAGE = '''"""A package; see `{name}.other`, and `{name}.other.Thing.later`."""

from {name}.other import LIMIT, Thing

__all__ = ["LIMIT", "Thing"]
'''
OTHER = '''"""Another module."""

from typing import Any

LIMIT = 3
"""How many there are, *at most*."""


class Thing:
    """What it is.

    | to | see |
    |---|---|
    | one | `two` |
    """

    size_bytes: int  # of the **whole**
    _hidden: int

    def later(self, *parts: bytes, limit: int | None = None, **rest: str) -> list[int]:
        """Does it."""

    def _not_shown(self) -> None: ...

    @property
    def done(self) -> bool:
        """Whether it is."""
'''


class Site:
    """A package of two modules, and a page on some of them."""

    def __init__(self, root: Path, name: str) -> None:
        self.root = root
        self.name = name
        (root / name).mkdir()
        self.write("__init__", PACKAGE)
        self.write("other", OTHER)

    def write(self, module: str, text: str) -> None:
        """The source of a module."""
        (self.root / self.name / f"{module}.py").write_text(text.replace("{name}", self.name))

    def build(self, *modules: str) -> tuple[str, str]:
        """The page on these modules, and the warnings."""
        pages = [f"```{{eval-rst}}\n.. automodule:: {module}\n```\n" for module in modules]
        (self.root / "index.md").write_text("# Index\n\n" + "\n".join(pages))
        settings = {
            "root_doc": "index",
            "include_patterns": ["index.md"],
            "exclude_patterns": [],
        }
        out, warnings = self.root / "build", StringIO()
        app = Sphinx(
            self.root, ROOT / "docs", out, out / "doctrees", "html",
            confoverrides=settings, status=None, warning=warnings, freshenv=True,
        )  # fmt: skip
        app.build()
        return (out / "index.html").read_text(), warnings.getvalue()


def plain(page: str) -> str:
    """The words of a page, one space between them."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


@pytest.fixture
def site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Site]:
    """A package under a name of its own: modules stay imported."""
    name = f"package_of_{request.node.name}"
    monkeypatch.syspath_prepend(tmp_path)
    yield Site(tmp_path, name)
    for module in (name, f"{name}.other"):
        del sys.modules[module]


@pytest.mark.cases(3)
def test_docstrings_are_markdown_and_comments_describe_fields(site: Site) -> None:
    """Tables and code of a docstring, a field's comment, a value's text where it is imported."""
    page, warnings = site.build(site.name, f"{site.name}.other")
    assert not warnings
    assert "<td><p>one</p></td>" in page
    assert '<code class="docutils literal notranslate"><span class="pre">two</span></code>' in page
    assert "of the <strong>whole</strong>" in page
    assert "How many there are, <em>at most</em>." in page
    assert "Whether it is." in page
    assert "later ( * parts : bytes , limit : int | None = None , ** rest : str )" in plain(page)
    assert "hidden" not in page
    assert "not_shown" not in page


def test_what_has_no_docstring_is_told(site: Site) -> None:
    """A class, a method, a property and a value; a field may be plain by its name."""
    text = OTHER.replace('        """Does it."""\n', "        return []\n")
    text = text.replace('        """Whether it is."""\n', "        return True\n")
    text = text.replace('"""How many there are, *at most*."""\n', "")
    text = text.replace("  # of the **whole**", "")
    site.write("other", text)
    _, warnings = site.build(site.name, f"{site.name}.other")
    told = set(re.findall(rf"{site.name}\.(\S+) has no docstring", warnings))
    assert told >= {"LIMIT", "Thing.later", "Thing.done"}
    assert "size_bytes" not in warnings


def test_what_has_no_entry_is_told(site: Site) -> None:
    """A module that a docstring names and that has no page, and a module that `__all__` offers."""
    site.write("__init__", PACKAGE.replace('"LIMIT"', '"LIMIT", "other"'))
    page, warnings = site.build(site.name)
    assert "Thing" in page
    assert f"{site.name} names {site.name}.other in its docstring, and it has no page" in warnings
    assert f"{site.name}.other is not in the reference" in warnings
