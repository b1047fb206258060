"""docs/api.md from the docstrings of what users import; --check compares only."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import sys
import textwrap
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs" / "api.md"
MODULES = ("quire", "quire.codecs", "quire.aio", "quire.coordination")
FIRST = ("open", "connect", "serve", "dump", "Store", "Transaction", "Message", "Messages")
LINE = 88  # characters of a signature
HEAD = """# API reference

Generated from the docstrings by `make docs`; change it there. What is listed here is what programs
can rely on; names that begin with an underscore, and modules that are not listed, may change at any
time.

Sizes are in bytes and times in seconds, but moments are in microseconds since 1970, UTC (what calls
take besides: `Moment`, `Duration`). Every
error is in [the tree](#errors) below. A store has the same methods in the process that owns it and
in one that has joined it.
"""


def text() -> str:
    """The whole document."""
    parts = [HEAD]
    for name in MODULES:
        module = importlib.import_module(name)
        parts.append(f"## `{name}`\n\n{prose(module)}\n")
        parts += [section(name, value) for name, value in listed(module)]
        if name == "quire":
            parts.append(f"### Errors\n\n{errors()}\n")
    return "\n".join(parts)


def listed(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """What a module offers, but for exceptions: functions first, then what is used most."""
    names = [name for name in FIRST if name in module.__all__]
    names += sorted(set(module.__all__) - set(names), key=lambda name: (name.lower(), name))
    for name in names:
        value = getattr(module, name)
        if not (isinstance(value, type) and issubclass(value, Exception)):
            yield name, value


def errors() -> str:
    """The tree that the module of errors draws, and what stands below it."""
    tree = inspect.cleandoc(importlib.import_module("quire.errors").__doc__ or "")
    begin = tree.index("    QuireError")
    end = tree.index("\n\n", begin)
    return f"```text\n{textwrap.dedent(tree[begin:end])}\n```\n\n{tree[end:].strip()}"


def section(name: str, value: Any) -> str:
    """One function, class, module or constant."""
    heading = f"### `{name}`\n"
    if isinstance(value, type):
        return "\n".join([heading, *class_parts(value)])
    if isinstance(value, ModuleType):
        return "\n".join(
            [heading, f"A module: see [below](#{value.__name__.replace('.', '')}).", ""]
        )
    if isinstance(value, FunctionType):
        return "\n".join([heading, code(signature(name, value)), prose(value), ""])
    if typing.get_args(value):
        shown = f"{name} = {' | '.join(map(alternative, typing.get_args(value)))}"
    else:
        shown = str(value).strip()
    return "\n".join([heading, code(shown)])


def alternative(kind: Any) -> str:
    """One of the types that an alias stands for."""
    if typing.get_origin(kind) is typing.Literal:
        return f"Literal[{', '.join(map(json.dumps, typing.get_args(kind)))}]"
    return str(kind.__name__)


def class_parts(kind: type) -> Iterator[str]:
    """Its docstring, its fields with their comments, its properties and methods."""
    yield f"{prose(kind)}\n"
    fields = [line for base in reversed(own_bases(kind)) for line in field_lines(base)]
    if fields:
        yield code("\n".join(fields))
    for name, member in members(kind):
        if isinstance(member, property):
            getter = member.fget
            assert getter is not None
            returns = getter.__annotations__.get("return", "")
            shown = f"{name}: {returns}"
        else:
            shown = signature(name, member)
        yield f"#### `{kind.__name__}.{name}`\n\n{code(shown)}\n{prose(member)}\n"


def own_bases(kind: type) -> list[type]:
    """The class and those of its package that it comes from."""
    package = kind.__module__.partition(".")[0]
    return [base for base in kind.__mro__ if base.__module__.partition(".")[0] == package]


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties, in the order of the source."""
    seen: set[str] = set()
    for base in own_bases(kind):
        for name, member in vars(base).items():
            plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            if name in seen or name.startswith("_"):
                continue
            seen.add(name)
            if isinstance(plain, property | FunctionType):
                yield name, plain


def field_lines(kind: type) -> Iterator[str]:
    """The annotated public fields, as the source has them, with their comments."""
    source = textwrap.dedent(inspect.getsource(kind))
    lines = source.splitlines()
    (tree,) = ast.parse(source).body
    assert isinstance(tree, ast.ClassDef)
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and not ast.unparse(node.target).startswith("_"):
            assert node.end_lineno is not None
            yield textwrap.dedent("\n".join(lines[node.lineno - 1 : node.end_lineno]))


def signature(name: str, function: Callable[..., Any]) -> str:
    """As it would be written; over several lines where it is long."""
    found = inspect.signature(function)
    parameters = [each for each in found.parameters.values() if each.name not in ("self", "cls")]
    words = list(written(parameters))
    returns = f" -> {found.return_annotation}" if isinstance(found.return_annotation, str) else ""
    name = f"async {name}" if inspect.iscoroutinefunction(function) else name
    line = f"{name}({', '.join(words)}){returns}"
    if len(line) <= LINE:
        return line
    return "\n".join([f"{name}(", *(f"    {word}," for word in words), f"){returns}"])


def written(parameters: list[inspect.Parameter]) -> Iterator[str]:
    """Each parameter, and the lone star before those that go by name only."""
    named = False
    for each in parameters:
        kind = each.kind
        if kind is inspect.Parameter.KEYWORD_ONLY and not named:
            yield "*"
        named = named or kind in (each.KEYWORD_ONLY, each.VAR_POSITIONAL)
        stars = str(each)[: str(each).count("*")]
        annotation = f": {each.annotation}" if each.annotation is not each.empty else ""
        equals = " = " if annotation else "="
        value = "..." if each.default is ... else repr(each.default)
        default = "" if each.default is each.empty else f"{equals}{value}"
        yield f"{stars}{each.name}{annotation}{default}"


def prose(thing: Any) -> str:
    """A docstring."""
    return inspect.cleandoc(thing.__doc__ or "")


def code(source: str) -> str:
    """A block of code."""
    return f"```python\n{source}\n```\n"


def main() -> int:
    if "--check" in sys.argv:
        if not TARGET.exists() or TARGET.read_text() != text():
            print("docs/api.md differs from the docstrings: run `make docs`")
            return 1
        return 0
    TARGET.write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
