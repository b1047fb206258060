"""What Python has on Linux and not on macOS, as the types that mypy brings along say."""

from __future__ import annotations

import ast
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

# The modules in which what there is depends on the system.
SYSTEM_MODULES = (
    "errno", "fcntl", "mmap", "os", "resource", "select", "signal", "socket", "time",
)  # fmt: skip


@cache
def only_on_linux(module: str) -> frozenset[str]:
    """The public names of the module that a program cannot use on macOS."""
    mypy = find_spec("mypy")
    assert mypy is not None
    assert mypy.origin is not None
    stubs = Path(mypy.origin).parent / "typeshed" / "stdlib"
    files = [stubs / f"{module}.pyi", stubs / module / "__init__.pyi"]
    body = ast.parse(next(file for file in files if file.exists()).read_text()).body
    return frozenset(_names(body, "linux") - _names(body, "darwin"))


def _names(body: list[ast.stmt], platform: str) -> set[str]:
    found: set[str] = set()
    for node in body:
        match node:
            case ast.If(test=test, body=then, orelse=other):
                found |= _names(then if _holds(test, platform) else other, platform)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]) if name != "__all__":
                found.add(name)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                found |= {alias.asname or alias.name for alias in names}
    return found


def _holds(test: ast.expr, platform: str) -> bool:
    """Whether a condition on the system and the release of Python holds."""
    code = compile(ast.Expression(test), "stub", "eval")
    return bool(eval(code, {"sys": _System(platform)}))


class _System:
    def __init__(self, platform: str) -> None:
        self.platform = platform
        self.version_info = sys.version_info
