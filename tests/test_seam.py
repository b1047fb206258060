"""The environment seam: one place touches the disk, the clock and chance; all else goes through it.

The check reads the syntax tree of each module. It resolves import aliases, so that
`from os import replace as r` is found too; it does not follow values, which reviews must.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.source_tree import ROOT, all_sources, module_name, parsed

# Calls that reach the disk, the clock or a source of randomness. `quire/env/` alone makes
# them.
BANNED_MODULES = frozenset(
    {
        "fcntl",
        "glob",
        "io",
        "mmap",
        "pathlib",
        "random",
        "secrets",
        "shutil",
        "subprocess",
        "tempfile",
        "time",
        "uuid",
    }
)
PURE_OS = frozenset(
    {
        "environ",
        "error",
        "fsdecode",
        "fsencode",
        "fspath",
        "getpid",
        "getuid",
        "name",
        "PathLike",
        "sep",
    }
)
PURE_PATH = frozenset(
    {
        "abspath",
        "basename",
        "commonpath",
        "dirname",
        "isabs",
        "join",
        "normpath",
        "realpath",
        "relpath",
        "split",
        "splitext",
    }
)
BANNED_ELSEWHERE = frozenset(
    {
        "datetime.date.today",
        "datetime.datetime.now",
        "datetime.datetime.today",
        "datetime.datetime.utcnow",
        "numpy.fromfile",
        "numpy.load",
        "numpy.memmap",
        "numpy.random",
        "numpy.save",
        "numpy.savez",
        "pyarrow.OSFile",
        "pyarrow.fs",
        "pyarrow.memory_map",
    }
)

# Outside the engine, time and processes are real, but the store's files are still the seam's.
WRITING_OS = frozenset(
    {
        "fdatasync",
        "fsync",
        "ftruncate",
        "link",
        "makedirs",
        "mkdir",
        "mkfifo",
        "open",
        "posix_fallocate",
        "pwrite",
        "pwritev",
        "rename",
        "renames",
        "replace",
        "rmdir",
        "symlink",
        "sync",
        "truncate",
        "write",
        "writev",
    }
)
WRITING_MODULES = frozenset({"shutil", "tempfile"})
WRITING_METHODS = frozenset({"write_bytes", "write_text", "touch"})


def is_the_seam(path: Path) -> bool:
    """`quire/env/seam.py`, its package, and its implementation on the real machine."""
    return path.match("quire/env/*.py") and (
        path.name in ("__init__.py", "seam.py") or path.name.startswith("os_")
    )


def is_outside_the_engine(path: Path) -> bool:
    """The command line, the test kit, and what talks to other processes."""
    return path.parts[0] == "pyspark_quire" or path.parts[1] in (
        "cli",
        "testing",
        "testing.py",
        "remote",
        "spark_graphs",
        "coordination",
    )


class CallFinder(ast.NodeVisitor):
    """Collects the dotted names that a module uses, with import aliases resolved."""

    def __init__(self, tree: ast.Module) -> None:
        self.aliases: dict[str, str] = {}
        self.used: list[tuple[int, str]] = []
        self.open_modes: list[tuple[int, str]] = []
        self.defined = {
            node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)
        }
        self.visit(tree)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            name = alias.name if alias.asname else alias.name.split(".")[0]
            self.aliases[alias.asname or name] = name
            self.used.append((node.lineno, alias.name))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            name = "." * node.level + f"{node.module}.{alias.name}"
            self.aliases[alias.asname or alias.name] = name
            self.used.append((node.lineno, name))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        name = self.dotted(node)
        if name is None:
            self.used.append((node.lineno, f"?.{node.attr}"))
            self.generic_visit(node)
        else:
            self.used.append((node.lineno, name))

    def generic_visit(self, node: ast.AST) -> None:
        """Look at what the node consists of, in half of the inherited one's time."""
        for name in node._fields:
            value = getattr(node, name, None)
            for child in value if isinstance(value, list) else (value,):
                if isinstance(child, ast.AST) and child._fields:
                    self.visit(child)

    def visit_Call(self, node: ast.Call) -> None:
        match node.func:
            case ast.Name(id="open") if "open" not in self.aliases | dict.fromkeys(self.defined):
                modes = [*node.args[1:2], *(k.value for k in node.keywords if k.arg == "mode")]
                constant = modes[0] if modes else ast.Constant("r")
                mode = constant.value if isinstance(constant, ast.Constant) else "w"
                self.open_modes.append((node.lineno, str(mode)))
        self.generic_visit(node)

    def dotted(self, node: ast.expr) -> str | None:
        """`a.b.c` with the alias of `a` resolved; None if it does not start with an import."""
        match node:
            case ast.Name(id=name):
                return self.aliases.get(name)
            case ast.Attribute(value=value, attr=attr):
                base = self.dotted(value)
                return None if base is None else f"{base}.{attr}"
        return None


def is_impure(name: str) -> bool:
    """Whether the engine may not use this dotted name."""
    top, _, rest = name.partition(".")
    if top in BANNED_MODULES or any(
        name == banned or name.startswith(banned + ".") for banned in BANNED_ELSEWHERE
    ):
        return True
    if top == "os" and rest and not rest.startswith("path"):
        return rest.split(".")[0] not in PURE_OS
    if name.startswith("os.path."):
        return name.split(".")[2] not in PURE_PATH
    return False


def is_write(name: str) -> bool:
    """Whether code outside the engine may not use this dotted name."""
    top, _, rest = name.partition(".")
    return (
        top in WRITING_MODULES
        or (top == "os" and rest in WRITING_OS)
        or name.rpartition(".")[2] in WRITING_METHODS
    )


def seam_breaches(source: str, *, outside: bool) -> list[tuple[int, str]]:
    """Line and name of each call that belongs into `quire/env/__init__.py`."""
    found = CallFinder(parsed(source))
    rule = is_write if outside else is_impure
    breaches = {(line, name) for line, name in found.used if rule(name)}
    breaches |= {
        (line, "open") for line, mode in found.open_modes if not outside or set(mode) & set("wax+")
    }
    return sorted(breaches)


# What has to be there before any module of Quire is imported, the seam included: forks wait for the
# first import of all. It reaches no disk, no clock and no chance.
BEFORE_THE_SEAM = {Path("quire/__init__.py"): frozenset({"os.register_at_fork"})}
SEAM_CHECKED = [path for path in all_sources() if not is_the_seam(path)]


@pytest.mark.parametrize("path", SEAM_CHECKED, ids=module_name)
def test_only_the_environment_touches_disk_clock_and_chance(path: Path) -> None:
    """All I/O, time and randomness of the engine goes through `quire/env/__init__.py`."""
    breaches = seam_breaches((ROOT / path).read_text(), outside=is_outside_the_engine(path))
    before = BEFORE_THE_SEAM.get(path, frozenset())
    breaches = [(line, name) for line, name in breaches if name not in before]
    assert breaches == [], f"{path} must call its Env for {breaches}"


@pytest.mark.parametrize(
    "source",
    [
        "import time\n",
        "import os as o\no.replace('a', 'b')\n",
        "from os import fsync\n",
        "import os.path\nos.path.exists('a')\n",
        "with open('a') as f: pass\n",
        "import numpy as np\nnp.random.default_rng()\n",
        "from datetime import datetime\ndatetime.now()\n",
        "def f():\n    import random\n",
    ],
)
def test_the_seam_check_finds_each_kind_of_breach(source: str) -> None:
    """Canary: the check above would notice."""
    assert seam_breaches(source, outside=False)


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.fsync(3)\n",
        "open('a', 'wb')\n",
        "from pathlib import Path\nPath('a').write_bytes(b'')\n",
        "import shutil\n",
    ],
)
def test_the_seam_check_finds_file_writes_outside_the_engine(source: str) -> None:
    """Canary: the looser rule would notice too."""
    assert seam_breaches(source, outside=True)


@pytest.mark.parametrize(
    ("source", "outside"),
    [
        ("import os, threading\nos.path.join('a', str(os.getpid()))\n", False),
        ("from .store import open\nopen('a')\n", False),
        ("def f(env):\n    env.rename('a', 'b')\n    env.sleep(1)\n", False),
        ("import time, subprocess\ntime.sleep(1)\nopen('/proc/self/stat')\n", True),
    ],
)
def test_the_seam_check_lets_pure_code_pass(source: str, outside: bool) -> None:
    """The check is not so wide that the engine could not be written."""
    assert seam_breaches(source, outside=outside) == []
