"""Which locks threads took while they held which: by the names that docs/locks.md gives them.

A lock is named for the class and the attribute that it is made in: `Queue.lock`. Only locks that
the package makes while it is watched are seen, and only what waits: a try that does not is no
danger. A hand-over (a lock that one thread takes and another opens) is never held by anybody.
"""

from __future__ import annotations

import ast
import linecache
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from quire.env import interpreter
from tests.source_tree import ROOT, all_sources, nodes, parsed

__all__ = ["LockWatch", "locks_in_the_source", "place_of"]

MAKERS = ("Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore")
REAL = {getattr(threading, name): name for name in MAKERS}
REAL |= {interpreter.Lock: "Lock", interpreter.RLock: "RLock"}  # others than those in 3.14
PACKAGE = f"{ROOT}/quire/"
ASSIGNED = re.compile(r"(?:self\.)?(\w+)\s*(?::[^=]+)?=\s")


class LockWatch:
    """What was found: pairs of names, the one held and the one taken, with the first place."""

    def __init__(self, hand_overs: frozenset[str] = frozenset()) -> None:
        self.hand_overs = hand_overs
        self.taken: set[str] = set()
        self.pairs: dict[tuple[str, str], str] = {}
        self._own = threading.local()

    @contextmanager
    def watching(self) -> Iterator[LockWatch]:
        """Locks that the package makes inside are watched, also after it.

        A module that is loaded meanwhile has the makers of this watch, and gives them back as well:
        a later watch would not see its locks.
        """
        made = {real: self._maker(maker, real) for real, maker in REAL.items()}
        _replace(made)
        try:
            yield self
        finally:
            _replace({maker: real for real, maker in made.items()})

    def held(self) -> list[str]:
        """By the calling thread, the oldest first."""
        try:
            found: list[str] = self._own.held
        except AttributeError:
            found = self._own.held = []
        return found

    def note(self, name: str) -> None:
        """The calling thread will wait for the lock if another has it."""
        self.taken.add(name)
        for other in self.held():
            self.pairs.setdefault((other, name), place_of(sys._getframe(2)))

    def _maker(self, maker: str, real: Any) -> Any:
        def make(*arguments: Any, **options: Any) -> Any:
            frame = sys._getframe(1)
            own = maker != "Condition" or (not arguments and not options)
            if not own or not frame.f_code.co_filename.startswith(PACKAGE):
                return real(*arguments, **options)
            name = _name(frame)
            if maker == "Condition":
                return real(_Watched(threading.RLock(), name, self))
            return _Watched(real(*arguments, **options), name, self)

        return make


def _replace(makers: dict[Any, Any]) -> None:
    """Put each maker's other one in its place, wherever the package or `threading` has it."""
    others = {id(one): (one, other) for one, other in makers.items()}
    modules = [module for name, module in sys.modules.items() if name.startswith("quire.")]
    for names in map(vars, (threading, *modules)):
        for name, value in list(names.items()):
            one, other = others.get(id(value), (None, None))
            if one is not None:
                names[name] = other


class _Watched:
    """A lock that tells."""

    def __init__(self, lock: Any, name: str, watch: LockWatch) -> None:
        self._lock, self._name, self._watch = lock, name, watch

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if blocking or sys._getframe(1).f_code.co_qualname == "OwnLock.__enter__":  # waits after it
            self._watch.note(self._name)
        taken: bool = self._lock.acquire(blocking, timeout)
        if taken and self._name not in self._watch.hand_overs:
            self._watch.held().append(self._name)
        return taken

    def release(self) -> None:
        if self._name not in self._watch.hand_overs:
            self._watch.held().remove(self._name)
        self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def __getattr__(self, name: str) -> Any:
        if name in ("_release_save", "_acquire_restore"):
            raise AttributeError(name)  # a condition then uses acquire and release
        return getattr(self._lock, name)


def _name(frame: FrameType) -> str:
    owner = frame.f_code.co_qualname.rpartition(".")[0].rpartition(".")[2]
    prefix = owner or Path(frame.f_code.co_filename).stem
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    assigned = ASSIGNED.search(line)
    assert assigned is not None, f"a lock without a name: {line.strip()}"
    return f"{prefix}.{assigned[1]}"


def place_of(frame: FrameType | None) -> str:
    """The line of the package that a frame is at, or has come from."""
    while frame is not None and not frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    if frame is None:
        return "outside the package"
    return f"{frame.f_code.co_filename.removeprefix(PACKAGE)}:{frame.f_lineno}"


def locks_in_the_source() -> dict[str, str]:
    """All locks that the package makes, by name, with the module that does."""
    found = {}
    for path in all_sources():
        tree = parsed((ROOT / path).read_text())
        makers = {*MAKERS, "ClientCondition", "OwnLock", *_other_names(tree)}
        for owner in (tree, *nodes(tree, ast.ClassDef)):
            prefix = owner.name if isinstance(owner, ast.ClassDef) else path.stem
            for node in _own_statements(owner):
                if (attribute := _lock_made(node, makers)) is not None:
                    found[f"{prefix}.{attribute}"] = path.as_posix()
    return found


def _other_names(tree: ast.Module) -> Iterator[str]:
    """What a module calls `threading.Lock` and the like besides."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and _last_name(node.value) in MAKERS:
            yield _last_name(node.targets[0])


def _own_statements(owner: ast.AST) -> Iterator[ast.stmt]:
    """The statements of a module or a class, those of classes inside it left out."""
    for child in ast.iter_child_nodes(owner):
        if isinstance(child, ast.ClassDef):
            continue
        if isinstance(child, ast.stmt):
            yield child
        yield from _own_statements(child)


def _lock_made(node: ast.stmt, makers: set[str]) -> str | None:
    """The attribute or variable that this statement puts a new lock into."""
    if not isinstance(node, ast.Assign | ast.AnnAssign) or not isinstance(node.value, ast.Call):
        return None
    maker = _last_name(node.value.func)
    if maker not in makers or (maker == "Condition" and not _has_own_lock(node.value)):
        return None
    return _last_name(node.targets[0] if isinstance(node, ast.Assign) else node.target)


def _has_own_lock(condition: ast.Call) -> bool:
    """Return True if a condition is over a lock that is made for it."""
    return all(isinstance(given, ast.Call) for given in condition.args)


def _last_name(node: ast.expr) -> str:
    """`x` and `self.x` are x."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
