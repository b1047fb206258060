"""The words of the code: how docstrings begin, and identifiers that nobody would search for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.source_tree import CODE, ROOT, nodes, own_files, parsed

# A docstring begins with a verb or a noun, and says by itself what a thing is.
BAD_OPENING = re.compile(r"(?:What|Whether|Which|Who|Where|When|Why|That|Of)\b|See the module\b")
# Participles that stand for a thing: the thing has a noun.
# The kinds of nodes that bind a name.
BINDING: tuple[type[ast.AST], ...] = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.arg, ast.Name, ast.Attribute),
    *(ast.ExceptHandler, ast.alias),
)
BANNED_WORDS = frozenset({"asked", "given", "heard", "said", "told"})


def bad_docstrings(text: str) -> Iterator[tuple[int, str]]:
    """The lines and first lines of docstrings, also of attributes, that begin badly."""
    for node in nodes(parsed(text), ast.Expr):
        match node.value:
            case ast.Constant(value=str(words)) if BAD_OPENING.match(words.strip()):
                yield node.lineno, words.strip().splitlines()[0]


def bound_names(text: str) -> Iterator[tuple[int, str]]:
    """The lines and names of all that a module binds: functions, arguments, variables, fields."""
    for node in nodes(parsed(text), *BINDING):
        match node:
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
                | ast.arg(arg=name)
                | ast.Name(id=name, ctx=ast.Store())
                | ast.Attribute(attr=name, ctx=ast.Store())
                | ast.ExceptHandler(name=str(name))
                | ast.alias(asname=str(name))
            ):
                yield getattr(node, "lineno", 0), name


def banned_names(text: str) -> Iterator[tuple[int, str]]:
    """Those of the names that have a banned word."""
    for line, name in bound_names(text):
        words = re.sub("([a-z])([A-Z])", r"\1_\2", name).lower().split("_")
        if BANNED_WORDS.intersection(words):
            yield line, name


@pytest.mark.parametrize("folder", CODE)
def test_docstrings_begin_with_a_verb_or_a_noun(folder: str) -> None:
    """None begins with a relative clause, or sends its reader to the module."""
    found = [
        f"{path}:{line}: {words}"
        for path in own_files(folder)
        for line, words in bad_docstrings((ROOT / path).read_text())
    ]
    assert found == []


@pytest.mark.parametrize("folder", CODE)
def test_identifiers_are_nouns_and_verbs(folder: str) -> None:
    """No participle stands for a thing."""
    found = [
        f"{path}:{line}: {name}"
        for path in own_files(folder)
        for line, name in banned_names((ROOT / path).read_text())
    ]
    assert found == []


def test_each_folder_has_code() -> None:
    """A folder that was moved does not leave the list unseen."""
    assert [folder for folder in CODE if not own_files(folder)] == []


def test_bad_words_are_noticed() -> None:
    """In every place where a docstring or a name may stand; other words are let be."""
    text = (
        '"""Of a module."""\n'
        "class C:\n"
        '    """See the module."""\n'
        "    size: int\n"
        '    """What it takes."""\n'
        "    def f(self, asked, *, offered):\n"
        '        """Whether it is so."""\n'
        "        self.told_size = asked\n"
        "        for given in offered:\n"
        "            print(given)\n"
        "def g():\n"
        '    """Return True if it is so. Of no interest."""\n'
        "    return [said for said in ()]\n"
        "def h():\n"
        '    """Often."""\n'
        "class ToldOnce:\n"
        "    Foretold = 1\n"
    )
    assert [line for line, _ in bad_docstrings(text)] == [1, 3, 5, 7]
    assert sorted(name for _, name in banned_names(text)) == [
        "ToldOnce", "asked", "given", "said", "told_size",
    ]  # fmt: skip
