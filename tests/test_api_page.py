"""The API reference: all that is exported is on the page, as the source has it."""

from __future__ import annotations

import re
from typing import Protocol

import pytest

import quire
import quire.codecs
import quire.coordination
from scripts import write_api


class Base(Protocol):
    """What it is."""

    size_bytes: int  # of the whole
    _hidden: int

    def later(self, *parts: bytes, limit: int | None = None, **rest: str) -> list[int]:
        """Does it."""

    def _not_shown(self) -> None: ...

    @property
    def done(self) -> bool:
        """Whether it is."""


@pytest.mark.parametrize("module", [quire, quire.codecs, quire.coordination])
def test_all_that_is_exported_is_on_the_page(module: object) -> None:
    """Functions and classes with a section of their own, exceptions in the tree."""
    text = write_api.text()
    for name in module.__all__:  # type: ignore[attr-defined]
        value = getattr(module, name)
        if not (isinstance(value, type) and issubclass(value, Exception)):
            assert f"### `{name}`" in text
        elif module is quire and value is not quire.QuireError:
            assert re.search(rf"── {name}\b", text)


def told(name: str, text: str) -> str:
    """What the page says that a name is: behind its heading and form, or beside it in the tree."""
    section = re.search(rf"^### `{name}`$(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    if section is None:
        row = re.search(rf"── {name}\b(?: \(\w+\))?(.*)$", text, re.MULTILINE)
        return row[1].strip() if row else ""
    words = re.sub(r"^```.*?^```$", "", section[1], flags=re.MULTILINE | re.DOTALL)
    return words.strip().partition("\n")[0]


def test_each_public_name_is_found_by_what_it_is() -> None:
    """A line of words stands at each: who searches the page for them finds the name."""
    text = write_api.text()
    plain = {name for name in quire.__all__ if told(name, text).count(" ") < 2}
    kinds = {name: kind for name, kind in vars(quire.errors).items() if isinstance(kind, type)}
    branches = {
        name for name, kind in kinds.items() if kind.__subclasses__()
    }  # told by their leaves
    assert plain - branches == {"__version__"}


def test_a_name_without_a_word_is_noticed() -> None:
    """In a section, and in the tree."""
    text = "### `A`\n\n```\nclass A\n```\n\nWhat it is.\n\n### `B`\n\n```\nB\n```\n\n## End\n"
    tree = "├── C (E)  of that kind\n└── D\n"
    found = [told(name, text + tree) for name in "ABCD"]
    assert found == ["What it is.", "", "of that kind", ""]


def test_a_class_is_shown_as_the_source_has_it() -> None:
    """Fields with their comments, methods and properties; nothing that is private."""
    text = "\n".join(write_api.class_parts(Base))
    assert "size_bytes: int  # of the whole" in text
    assert "later(*parts: bytes, limit: int | None = None, **rest: str) -> list[int]" in text
    assert "done: bool\n```\n\nWhether it is." in text
    assert "hidden" not in text
    assert "not_shown" not in text


def test_names_that_go_by_keyword_follow_a_star() -> None:
    """And a long signature takes a line for each parameter."""

    def call(path: str, *, first: bool = True, second: str = "x" * 60) -> None: ...

    shown = write_api.signature("call", call).splitlines()
    assert shown[:4] == ["call(", "    path: str,", "    *,", "    first: bool = True,"]
    assert shown[-1] == ") -> None"
