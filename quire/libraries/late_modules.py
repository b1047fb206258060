"""Modules that are imported when something of them is first used.

In the `__init__` of their package:

    __getattr__ = _late_modules(globals(), "redriving", "purging")

and wherever they are used, as ever:

    from quire.engine.upkeep import redriving

That gives a stand-in, a plain module which is filled when somebody asks it for something, so that
every further question costs what it costs elsewhere. Threads that ask at the same time wait for one
import, and forks for all of them (LD2). What is needed by a class at its making (its bases, its
decorators) would import the module at once: so only what functions use is late.

- What a commit uses under the engine's lock, and what recovers a store, is not late.
- A process that stays calls `load_rest` in a thread of its own soon after it has begun: so no
  later request waits for an import, and another release may be installed meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Final

from .late_imports import load

_declared: Final[list[str]] = []


def stand_in(name: str) -> ModuleType:
    """Return a stand-in for the module of that name, which is filled at its first use."""
    stands = ModuleType(name)
    names = vars(stands)

    def load_now(attribute: str) -> Any:
        module = load(name)
        names.update((key, value) for key, value in vars(module).items() if key != "__getattr__")
        names["__getattr__"] = lambda later: getattr(module, later)  # what it has by then
        return getattr(module, attribute)

    names["__getattr__"] = load_now
    return stands


def late_modules(names: dict[str, Any], *modules: str) -> Callable[[str], ModuleType]:
    """The `__getattr__` of a package: `names` are its `globals()`, the modules are some of it."""
    package = names["__name__"]
    _declared.extend(f"{package}.{module}" for module in modules)

    def find(name: str) -> ModuleType:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = names[name] = stand_in(f"{package}.{name}")
        return found

    return find


def names_of(names: dict[str, Any], modules: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package: `names` are its `globals()`, `modules` says where each is.

    A name that was asked for is the package's from then on, and costs what it costs elsewhere.
    """

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {names['__name__']!r} has no attribute {name!r}")
        value = names[name] = getattr(load(modules[name]), name)
        return value

    return find


def load_rest(packages: tuple[str, ...]) -> None:
    """Import what is still late below the packages."""
    for name in _declared:  # which may grow by what is imported
        if name.startswith(packages):
            load(name)
