"""The shape of the repository: the links, and what each package exports."""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import os
import pydoc
import re
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.source_tree import (
    COMPONENTS,
    FOLDERS,
    PACKAGES,
    ROOT,
    module_name,
    nodes,
    own_files,
    parsed,
    source_files,
)

# Links -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("component", COMPONENTS)
def test_component_is_a_relative_link_from_the_package(component: str) -> None:
    """Each component is at the top, and the package holds a relative link to it."""
    link = ROOT / "quire" / component
    assert link.is_symlink(), f"{link} is no link: clone with core.symlinks=true"
    assert os.readlink(link) == f"../{component}"
    assert (ROOT / component / "__init__.py").is_file()


def test_git_holds_the_links_as_links() -> None:
    """Git's tree has mode 120000 for each link, so that a clone gets links too."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listing = subprocess.run(
        ["git", "ls-files", "-s", "quire"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    links = {line.split("\t")[1] for line in listing.splitlines() if line.startswith("120000 ")}
    assert links == {f"quire/{component}" for component in COMPONENTS}


@pytest.mark.parametrize("package", [*PACKAGES, *(f"quire/{name}" for name in COMPONENTS)])
def test_package_says_that_it_is_typed(package: str) -> None:
    """Every package carries py.typed."""
    assert (ROOT / package / "py.typed").is_file()


# Imports and names -------------------------------------------------------------------------------


def imported_names(tree: ast.Module) -> set[str]:
    """The public names that a module's top level takes from elsewhere in Quire."""
    return {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module != "__future__"
        for alias in node.names
        if node.level or (node.module or "").split(".")[0] == "quire"
        if not (alias.asname or alias.name).startswith("_")
    }


def is_re_export(node: ast.stmt) -> bool:
    """An import, a dunder assignment, a docstring, hooks of a lazy import, or a refusal."""
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant(value=str())):
            return True
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name.startswith("__")
        case ast.FunctionDef(name=name):
            return name in ("__getattr__", "__dir__")
        case ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.If(body=[ast.Raise()], orelse=[]):
            return True
    return False


INITS = [path for path in source_files("quire") if path.name == "__init__.py"]


@pytest.mark.parametrize("path", INITS, ids=module_name)
def test_init_re_exports_and_nothing_more(path: Path) -> None:
    """An `__init__` has imports and `__all__`, and `__all__` names all that it imports."""
    tree = parsed((ROOT / path).read_text())
    extra = [node.lineno for node in tree.body if not is_re_export(node)]
    assert extra == [], f"{path} does more than re-export in lines {extra}"

    module = importlib.import_module(module_name(path))
    exported = getattr(module, "__all__", None)
    assert exported is not None, f"{path} has no __all__"
    assert len(exported) == len(set(exported))
    assert imported_names(tree) <= set(exported)
    assert [name for name in exported if not hasattr(module, name)] == []


PUBLIC = (
    "quire",
    "quire.aio",
    "quire.codecs",
    "quire.coordination",
    "quire.remote",
    "quire.testing",
)


@pytest.mark.parametrize("package", PUBLIC)
def test_public_help_sends_nobody_to_the_module(package: str) -> None:
    """What is exported says for itself what it is."""
    module = importlib.import_module(package)
    sent = [
        name
        for name in module.__all__
        if callable(getattr(module, name))
        and "see the module" in pydoc.plain(pydoc.render_doc(getattr(module, name))).lower()
    ]
    assert sent == []


# Tests -------------------------------------------------------------------------------------------


def twice(things: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Where each thing stands that stands in several places."""
    places: dict[str, list[str]] = {}
    for thing, place in things:
        places.setdefault(thing, []).append(place)
    return {thing: where for thing, where in places.items() if len(where) > 1}


Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
KINDS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def code_of(definition: Definition) -> str:
    """The code of a function or a class, without docstrings; empty if its body is one line."""
    node = copy.deepcopy(definition)
    for each in ast.walk(node):
        if isinstance(each, KINDS) and ast.get_docstring(each) is not None:
            each.body = each.body[1:] or [ast.Pass()]
    lines = ast.unparse(ast.Module(node.body, [])).splitlines()
    return ast.unparse(node) if len(lines) > 1 else ""


def helpers_twice(texts: Iterable[tuple[str, str]]) -> list[list[str]]:
    """Where a module's functions and classes stand that stand in several: modules and places.

    Two of the same code have the same name, so others are not looked at.
    """
    by_name: dict[str, list[tuple[Definition, str]]] = {}
    for text, place in texts:
        for node in parsed(text).body:
            if isinstance(node, KINDS):
                by_name.setdefault(node.name, []).append((node, f"{place}: {node.name}"))
    several = (each for found in by_name.values() for each in same_length(found))
    return [*twice((code, place) for node, place in several if (code := code_of(node))).values()]


def same_length(found: list[tuple[Definition, str]]) -> list[tuple[Definition, str]]:
    """Return those whose body has as many statements as that of another: others differ."""
    lengths = [len(node.body) - (ast.get_docstring(node) is not None) for node, _ in found]
    return [each for each, length in zip(found, lengths, strict=True) if lengths.count(length) > 1]


def test_no_file_of_the_tests_has_the_name_of_another() -> None:
    """A name is enough to find one; those aside that pytest and Python give a meaning to."""
    files = [path for path in own_files("tests") if path.name not in ("conftest.py", "__init__.py")]
    assert twice((path.name, str(path)) for path in files) == {}


def test_no_helper_stands_twice() -> None:
    """What two files of the tests need is in tests/kit, or beside them."""
    texts = (((ROOT / path).read_text(), str(path)) for path in own_files("tests"))
    assert helpers_twice(texts) == []


def test_a_helper_that_stands_twice_is_noticed() -> None:
    """Whatever its docstring says; short ones are let be."""
    long = 'def f(x: int) -> int:\n    """{}"""\n    y = x + 1\n    return y\n'
    short = "def g() -> int:\n    return 1\n"
    other = "def f(x: int) -> int:\n    y = x + 2\n    return y\n"
    texts = [long.format("One.") + short, short + long.format("Another."), other]
    assert helpers_twice((text, str(n)) for n, text in enumerate(texts)) == [["0: f", "1: f"]]


# Labels of invariants ----------------------------------------------------------------------------

# "- D1: ...", "S1. ..." or "J1  ..." at the beginning of a line of a module's docstring.
DEFINED = re.compile(r"^(?:- |\* )?([A-Z]{1,3}[1-9][0-9]?)(?:[:.] |  )", re.MULTILINE)
# "(J3)", "(J1, J2)", "(rule S1)", "[E2]", "(D3 of `dump`)", "(see `discarded`, DI5)".
QUOTED = re.compile(r"[(\[]([^()\[\]]*)[)\]]")
LABEL = re.compile(r"(?<![\w.\"'/<#%*-])[A-Z]{1,3}[1-9][0-9]?(?![\w\"'%-])")
ANY_LABEL = re.compile(r"\b[A-Z]{1,3}[1-9][0-9]?\b")
# "S1 to S3": all between them are quoted.
FROM_TO = re.compile(r"\b([A-Z]{1,3})([1-9][0-9]?) to \1([1-9][0-9]?)\b")
FIGURES = ("test_patent_commits.py", "test_patent_figures.py")  # T1, T2, ... are transactions there


@cache
def docstring_of(text: str) -> str:
    """The docstring of a module, as it stands there."""
    return ast.get_docstring(parsed(text), clean=False) or ""


def defined_labels(text: str) -> list[str]:
    """Those that a module's docstring states."""
    return DEFINED.findall(inspect.cleandoc(docstring_of(text)))


def all_files(suffix: str) -> list[Path]:
    """Of the repository, links left out."""
    pages = [Path(name) for name in os.listdir(ROOT) if name.endswith(suffix)]
    return pages + [path for folder in (*FOLDERS, "docs") for path in own_files(folder, suffix)]


def test_labels_are_unique() -> None:
    """An invariant's label is stated by one module of the whole repository."""
    stated: dict[str, list[str]] = {}
    for path in all_files(".py"):
        for label in defined_labels((ROOT / path).read_text()):
            stated.setdefault(label, []).append(str(path))
    assert len(stated) > 200
    assert {label: paths for label, paths in stated.items() if len(paths) > 1} == {}


def test_quoted_labels_are_stated() -> None:
    """What code, tests and pages quote in brackets is there: nobody renamed it away."""
    stated = {
        label for path in all_files(".py") for label in defined_labels((ROOT / path).read_text())
    }
    missing = [
        f"{path}: {label}"
        for suffix in (".py", ".md")
        for path in all_files(suffix)
        if path.name not in FIGURES
        for quoted in QUOTED.findall((ROOT / path).read_text())
        for label in LABEL.findall(quoted)
        if label not in stated
    ]
    assert missing == []


def quoted_outside(text: str) -> set[str]:
    """Labels in a file, but for those that its docstring states."""
    docstring = docstring_of(text)
    found = set(ANY_LABEL.findall(docstring)).difference(defined_labels(text))
    found |= set(ANY_LABEL.findall(text.replace(docstring, "", 1)))
    for letters, first, last in FROM_TO.findall(text):
        found |= {f"{letters}{number}" for number in range(int(first), int(last) + 1)}
    return found


def test_stated_labels_are_quoted() -> None:
    """A label is for those who quote it: each is quoted outside the docstring that states it."""
    texts = {path: (ROOT / path).read_text() for path in all_files(".py")}
    quoted = set().union(*map(quoted_outside, texts.values()))
    unquoted = [
        f"{path}: {label}"
        for path, text in texts.items()
        for label in defined_labels(text)
        if label not in quoted
    ]
    assert unquoted == []


def test_labels_are_found() -> None:
    """In the forms that modules and tests give them; no other words are taken for them."""
    text = '"""What.\n\n- D1: one\n  D2: no\nS2. two\nJ13  three, see K4\nUTF-8. A4 pages\n"""'
    assert defined_labels(text) == ["D1", "S2", "J13"]
    outside = quoted_outside(f"{text}\nx = 1  # S2, and J1 to J3\n")
    assert outside == {"A4", "D2", "J1", "J2", "J3", "K4", "S2"}
    quoted = (
        "as (J3), [E2, C2], (rule S1) and (see `discarded`, DI5) say, not CC0, 'F1' or (SHA256)"
    )
    found = [label for part in QUOTED.findall(quoted) for label in LABEL.findall(part)]
    assert found == ["J3", "E2", "C2", "S1", "DI5"]


# Limits ------------------------------------------------------------------------------------------

# Numbers at the top of modules that bound nothing: of formats, of other systems, and measured.
NO_LIMITS = {
        "CHECKPOINT_LSN",  # where a dump says that a checkpoint holds a record
    "VERSION", "HEADER_BYTES", "HEADER_PAGES", "FORMAT_ID", "PROTOCOL_VERSION", "ADDRESS_VERSION",
    "CONNECTION", "LOWEST_VERSION",
    "EARLIEST", "LATEST", "DIRECT_ALIGNMENT", "FALLOC_FL_KEEP_SIZE", "FALLOC_FL_PUNCH_HOLE",
    "MAX_PART_BYTES", "MAX_FORMAT_ID", "LOCKED_EXIT_STATUS",
    "SECTOR_BYTES", "PAGE_BYTES", "START_US", "STEP_US", "ADOPTED_BYTES", "_OBJECT_BYTES",
    "_HEADERS_BYTES", "_SECTION_BYTES", "_PLAIN_BYTES", "_ENTRY_BYTES", "_FRESH_ENTRY_BYTES",
    "_BLOCK_ENTRY_BYTES", "_NUMBER_BITS", "_FILE_SHIFT", "_OFFSET_MASK", "_MAGIC_COLUMN",
    "_LAST_NUMBER", "STORE_NUMBER", "ARCHIVE_NUMBER", "UNKNOWN", "_FIRST_OFFSET", "NONE", "BY_RULE",
    "NO_SEQUENCE", "PAYLOAD_AT", "REFUSED", "_NOTHING", "_UNSENT", "_MESSAGE", "_TEXT", "_SPAN",
    "LAST_START_NUMBER", "_INT", "_PRESENT", "_FACTOR", "_ID", "_MIX", "_HALF", "_BITS",
    "DIRECT_FLAGS", "READ", "WRITE", "ENDED", "HANG_UP", "_MAKES", "_TAKES_MORE", "_MASK",
    "_DIGEST_MASK", "_NO_QUERY", "FIRST_NUMBER", "STREAMS", "_OWN_RIGHTS", "KNOWN_SECONDS",
}  # fmt: skip


def is_number(node: ast.expr | None) -> bool:
    """Whether the expression reckons with a number."""
    match node:
        case ast.Constant(value=value):
            return isinstance(value, int | float) and not isinstance(value, bool)
        case ast.BinOp(left=left, right=right):
            return is_number(left) or is_number(right)
        case ast.UnaryOp(operand=operand):
            return is_number(operand)
    return False


def numbers(text: str) -> Iterator[str]:
    """The names of a module that stand for numbers."""
    for node in parsed(text).body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=value)
            ) if name.isupper() and is_number(value):
                yield name


@pytest.mark.parametrize("folder", [*PACKAGES, *COMPONENTS])
def test_limits_stand_in_limits_files(folder: str) -> None:
    """Each with its reason and its relations to others: elsewhere is no number that bounds."""
    elsewhere = [
        f"{path}: {name}"
        for path in own_files(folder)
        if path.name not in ("limits.py", "format.py")
        for name in numbers((ROOT / path).read_text())
        if name not in NO_LIMITS
    ]
    assert elsewhere == []


def test_a_limit_elsewhere_is_noticed() -> None:
    """In any of the forms that numbers have."""
    text = "A = 1\nB: Final = 4 << 20\nC = -1.5\nD = (1 << 3) - X\nE = 'x'\nF = True\ng = 1\n"
    assert list(numbers(text)) == ["A", "B", "C", "D"]


# Size --------------------------------------------------------------------------------------------

MOST_LINES = 70  # of a function; longer ones are several


def functions(text: str) -> Iterator[tuple[str, int]]:
    """The names of all functions of a module, and how many lines each has."""
    tree = parsed(text)
    both: list[ast.FunctionDef | ast.AsyncFunctionDef] = [*nodes(tree, ast.FunctionDef)]
    for node in (*both, *nodes(tree, ast.AsyncFunctionDef)):
        assert node.end_lineno is not None
        yield node.name, node.end_lineno - node.lineno + 1


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_function_is_long(folder: str) -> None:
    """Of the package and of what stands around it."""
    long = [
        f"{path}: {name} has {lines} lines"
        for path in own_files(folder)
        for name, lines in functions((ROOT / path).read_text())
        if lines > MOST_LINES
    ]
    assert long == []


def test_a_long_function_is_noticed() -> None:
    """One line too many."""
    for extra, found in ((0, []), (1, ["f"])):
        text = "class C:\n    def f(self) -> None:\n" + "        pass\n" * (MOST_LINES - 1 + extra)
        assert [name for name, lines in functions(text) if lines > MOST_LINES] == found
