"""Imports while a program runs: a fork waits for them, and no signal's handler interrupts one."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tests.kit.waiting import SECONDS
from tests.source_tree import ROOT, all_sources, module_name, nodes, parsed, walk

# Who imports in functions otherwise, and why.
APART = {
    "pyspark_quire/__init__.py": "Spark's workers load the connector by it, each in its one thread",
}
# Who calls `import_module`, and why.
IMPORTERS = {
    "quire/__init__.py": "what the others import by is not there yet",
    "quire/libraries/late_imports.py": "what the others import by",
    "quire/calls/signal_safety.py": "a module of the interpreter, while it is imported itself",
    "quire/cli/commands/graphs.py": "a user's module, whose import may be interrupted as ever",
}


def late_imports_of(source: str) -> list[str]:
    """The imports within functions that are in no block of `with importing()`."""
    tree = parsed(source)
    waited_for = {
        inner
        for node in nodes(tree, ast.With)
        if any(ast.unparse(item.context_expr) == "importing()" for item in node.items)
        for inner in walk(node)
    }
    return [
        f"{node.lineno}: {ast.unparse(node)}"
        for function in nodes(tree, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
        for node in walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom) and node not in waited_for
    ]


def calls_of_import_module(source: str) -> list[int]:
    """The lines that import a module by its name."""
    return [
        node.lineno
        for node in nodes(parsed(source), ast.Call)
        if ast.unparse(node.func).rpartition(".")[2] in ("import_module", "__import__")
    ]


@pytest.mark.parametrize("path", all_sources(), ids=module_name)
def test_every_late_import_goes_through_one_place(path: Path) -> None:
    """A block of `importing`, a module that is late, or `load`."""
    source = (ROOT / path).read_text()
    if path.as_posix() not in APART:
        assert late_imports_of(source) == [], "import it in a block of `with importing()`"
    if path.as_posix() not in IMPORTERS:
        assert calls_of_import_module(source) == [], "import it by `late_imports.load`"


def test_the_look_for_late_imports_finds_each_kind() -> None:
    """The canary: the check above would notice."""
    assert late_imports_of("def f():\n    import lark\n")
    assert late_imports_of("class A:\n    async def f(self):\n        from lark import Lark\n")
    assert late_imports_of("def f():\n    with suppress(ImportError):\n        import lark\n")
    assert not late_imports_of("def f():\n    with importing():\n        import lark\n")
    assert calls_of_import_module("import importlib\nimportlib.import_module('lark')\n")
    assert calls_of_import_module("__import__('lark')\n")


# A process forks again and again while a thread uses something for the first time; each child uses
# it, too. What is used stands in {use}; each round begins with an interpreter of its own.
FORKING = """
import os, signal, sys, threading
import quire
store = quire.open(":memory:") if {opened} else None
if store is not None:
    store.create_queue("q")
    store.put("q", b"x", attributes={{"a": "b"}}, content_type="application/json")
def use():
    {use}
begun = threading.Event()
def run():
    begun.set()
    use()
thread = threading.Thread(target=run)
thread.start()
begun.wait()
statuses, children = [], []
while len(children) < 6:
    is_last = not thread.is_alive()
    pid = os.fork()
    if not pid:
        signal.alarm(60)
        {child}
        os._exit(0)
    children.append(pid)
    if is_last:
        break
thread.join()
for pid in children:
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print(sorted(set(statuses)), flush=True)
os._exit(0)
"""
USES = {
    "a selector": (
        True,
        "store.browse('q', max_messages=1, where=\"a = 'b'\")",
        "import lark; from quire.selectors.grammar import parse; parse(\"a = 'b'\")",
    ),
    "a public name": (False, "quire.Workers, quire.Session", "quire.Workers, quire.Session"),
    "a codec": (True, "store.browse('q', max_messages=1)[0].value", "import quire.codecs"),
    "a schedule": (
        True,
        "store.cron.create('s', 'q', b'x', cron='@daily', timezone='Europe/Zurich')",
        "import cronsim, zoneinfo",
    ),
}


@pytest.mark.cases(2)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
@pytest.mark.parametrize("what", USES)
def test_no_child_of_a_fork_during_a_first_use_hangs(what: str) -> None:
    """LD2: whatever another thread was importing; the child imports it, too."""
    opened, use, in_child = USES[what]
    code = FORKING.format(opened=opened, use=use, child=in_child)
    assert run_alone(code) == "[0]"


# At each moment that is given a child is forked, in which a signal's handler raises there.
FIRST_USE = """
import os, signal, sys, threading
import quire

class Alarm(BaseException):
    pass

def strike(number, frame):
    raise Alarm

def use():
    return quire.Workers

def at(moment):
    count = 0
    def hear(frame, event, argument):
        nonlocal count
        if event in ("call", "c_return"):
            count += 1
            if count == moment:
                signal.raise_signal(signal.SIGALRM)
    signal.signal(signal.SIGALRM, strike)
    sys.setprofile(hear)
    try:
        use()
    except Alarm:
        return count
    finally:
        sys.setprofile(None)
    return count

def forked(moment):
    pid = os.fork()
    if pid:
        return pid
    at(moment)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(60)
    other = threading.Thread(target=use)
    other.start()
    other.join(30)
    assert not other.is_alive(), moment
    assert use().__name__ == "Workers"
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    os._exit(7)

reader, writer = os.pipe()
if not os.fork():
    os.write(writer, b"%d" % at(0))
    os._exit(0)
count = int(os.read(reader, 20))
statuses = {os.waitstatus_to_exitcode(os.waitpid(forked(int(count * float(part))), 0)[1])
            for part in sys.argv[1:]}
print(sorted(statuses), count > 1000, flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_a_signal_in_the_first_use_of_a_public_name_locks_no_import(rng: Random) -> None:
    """LD3: from its first step on, before what holds signals back is there itself."""
    parts = sorted([0.002, 0.01, *(rng.random() for _ in range(2))])
    assert run_alone(FIRST_USE, *map(str, parts)) == "[7] True"


def run_alone(code: str, *arguments: str) -> str:
    """What an interpreter of its own prints, in which nothing of Quire is loaded."""
    ended = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()
