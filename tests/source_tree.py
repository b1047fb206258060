"""The modules of a release, as the tests of the repository's shape see them."""

from __future__ import annotations

import ast
import gc
import os
from functools import cache
from pathlib import Path
from typing import TypeVar, cast

Node = TypeVar("Node", bound=ast.AST)

ROOT = Path(__file__).resolve().parents[1]
COMPONENTS = ("engine", "journal", "writebuffer", "ltds", "remote", "spark_graphs", "coordination")
PACKAGES = ("quire", "pyspark_quire")
AROUND = ("bench", "demo", "examples", "scripts")  # what stands around a release
CODE = (*PACKAGES, *COMPONENTS, *AROUND)  # of all Python code but the tests
FOLDERS = (*CODE, "tests")


def source_files(package: str) -> list[Path]:
    """All modules of a top-level package as paths below the root, through the links."""
    found = []
    for folder, folders, names in os.walk(ROOT / package, followlinks=True):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        found += [Path(folder, name) for name in sorted(names) if name.endswith(".py")]
    return [path.relative_to(ROOT) for path in found]


def own_files(folder: str, suffix: str = ".py") -> list[Path]:
    """The files of a top-level folder, links left out, as paths below the root."""
    found = []
    for place, folders, names in os.walk(ROOT / folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        found += [Path(place, name) for name in sorted(names) if name.endswith(suffix)]
    return [path.relative_to(ROOT) for path in found]


def all_sources() -> list[Path]:
    """All modules that a release holds."""
    return [path for package in PACKAGES for path in source_files(package)]


def module_name(path: Path) -> str:
    """quire/journal/page.py is quire.journal.page."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def parsed(text: str) -> ast.Module:
    """The tree of a module, which nobody changes: many tests look at all of them.

    It stays for good: garbage collection need not look at its many objects again and again.
    """
    gc.disable()
    try:
        return ast.parse(text)
    finally:
        gc.freeze()
        gc.enable()


def walk(tree: ast.AST) -> list[ast.AST]:
    """The tree's nodes in the order of `ast.walk`, found in a third of its time."""
    found = [tree]
    for node in found:  # which grows meanwhile
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                found += [each for each in value if isinstance(each, ast.AST)]
            elif isinstance(value, ast.AST):
                found.append(value)
    return found


@cache
def _nodes_by_kind(tree: ast.Module) -> dict[type[ast.AST], list[ast.AST]]:
    found: dict[type[ast.AST], list[ast.AST]] = {}
    for node in walk(tree):
        found.setdefault(type(node), []).append(node)
    return found


def nodes(tree: ast.Module, *kinds: type[Node]) -> list[Node]:
    """The tree's nodes of these kinds, kind after kind: it is walked once for all tests."""
    by_kind = _nodes_by_kind(tree)
    return [cast("Node", node) for kind in kinds for node in by_kind.get(kind, ())]
