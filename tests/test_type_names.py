"""One word for one thing: a type's name stands once in all code but the tests."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

from tests.source_tree import CODE, ROOT, nodes, own_files, parsed

_CASE = re.compile(r"_?[A-Z]\w*[a-z]\w*")  # of a type: a constant has capitals alone
_SAME_TYPES = ("TYPE_CHECKING", "sys.version_info")
_MAKE_TYPES = {"NewType", "NamedTuple", "TypedDict"}


def type_names(source: str) -> Iterator[tuple[int, str]]:
    """Line and name of each class, wherever it stands, and of each of the module's other types.

    These are aliases (`Positions = dict[str, int]`) and what `NewType` and its like make. Type
    variables are none: they belong to the functions and classes that are generic by them.
    """
    tree = parsed(source)
    for kind in nodes(tree, ast.ClassDef):
        yield kind.lineno, kind.name
    for node in _of_module(tree):
        if isinstance(node, ast.Assign) and _is_type(node.value):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign) and "TypeAlias" in ast.unparse(node.annotation):
            targets = [node.target]
        else:
            continue
        for target in targets:
            if isinstance(target, ast.Name) and _CASE.fullmatch(target.id):
                yield node.lineno, target.id


def _of_module(tree: ast.Module) -> Iterator[ast.stmt]:
    """Its statements, those under an `if TYPE_CHECKING` and in a `try` too.

    What is said instead at run time, in the `else` of `if TYPE_CHECKING`, are the same types, and
    so is what another version of Python has in their place.
    """
    waiting = list(tree.body)
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.If) and ast.unparse(node.test).startswith(_SAME_TYPES):
            waiting += node.body
        elif isinstance(node, (ast.If, ast.Try)):
            waiting += [
                child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)
            ]


def _is_type(value: ast.expr) -> bool:
    """Whether an assignment of this names a type: a call does so for few functions only."""
    if isinstance(value, ast.Call):
        return ast.unparse(value.func).rpartition(".")[2] in _MAKE_TYPES
    return isinstance(value, (ast.Name, ast.Attribute, ast.Subscript, ast.BinOp))


def twice(sources: dict[str, str]) -> dict[str, list[str]]:
    """Where the names stand that more than one type has; `_Part` and `Part` are the same."""
    found: dict[str, list[str]] = defaultdict(list)
    for path, source in sources.items():
        for line, name in type_names(source):
            found[name.lstrip("_")].append(f"{path}:{line}")
    return {name: places for name, places in sorted(found.items()) if len(places) > 1}


def test_a_type_name_stands_once() -> None:
    """Nobody reads `Entry` and has to look which one it is."""
    sources = {str(path): (ROOT / path).read_text() for name in CODE for path in own_files(name)}
    assert twice(sources) == {}, "name each by what it is"


def test_a_name_that_stands_twice_is_found() -> None:
    """By each way to make a type, with an underscore or without, but not as a type variable."""
    ways = {
        "alias.py": "Entry = dict[str, int]\nENTRY = 3\nT = TypeVar('T')",
        "annotated.py": "Row: TypeAlias = tuple[int, int]\nT = TypeVar('T')",
        "checked.py": "if TYPE_CHECKING:\n    Row = int | None",
        "inside.py": "def make():\n    class _Entry: pass\n    Page = 1",
        "made.py": "Page = NewType('Page', int)\nLog = open('log')",
        "named.py": "Page = NamedTuple('Page', [('number', int)])\nLog = open('log')",
    }
    assert twice(ways) == {
        "Entry": ["alias.py:1", "inside.py:2"],
        "Page": ["made.py:1", "named.py:1"],
        "Row": ["annotated.py:1", "checked.py:2"],
    }
