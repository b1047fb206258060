"""Names of a package, each imported from its module when somebody first asks for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .late_imports import load


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
