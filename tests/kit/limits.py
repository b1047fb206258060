"""Limits with values that a test can reach."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol


class Limits(Protocol):
    """What the fixture `limits` is: `limits(CHUNK_BYTES=4096)` holds to the end of the test."""

    def __call__(self, **values: float | dict[str, int]) -> None: ...


def _holders(values: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """The names of the loaded modules of Quire that have one of these limits, and which."""
    for module in [m for name, m in sys.modules.items() if name.startswith("quire.")]:
        for name in values:
            if name in vars(module):
                yield vars(module), name


@contextmanager
def limited(values: dict[str, Any]) -> Iterator[None]:
    """All modules that use these limits have them so, those too that are loaded meanwhile."""
    before = [(module, name, module[name]) for module, name in _holders(values)]
    known = {name: value for _, name, value in before}
    assert known.keys() == values.keys(), "no module that is loaded has this limit"
    for module, name, _ in before:
        module[name] = values[name]
    try:
        yield
    finally:
        for module, name in _holders(values):
            module[name] = known[name]
        for module, name, value in before:
            module[name] = value
