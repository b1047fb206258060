"""A failure at any moment within the engine: memory that runs out, or a fault of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from tests.source_tree import ROOT

FOLDERS = tuple(
    f"{ROOT}/{name}/"
    for folder in (
        "engine",
        "journal",
        "ltds",
        "writebuffer",
        "quire/block",
        "quire/rows",
        "quire/batches",
    )
    for name in (folder, f"quire/{folder}")
)
# One in a finaliser Python only shows, with all that it raises on its way: that, and nothing else.
SHOWN = pytest.mark.filterwarnings(
    "ignore:(?s).*Error. a failure in .*:pytest.PytestUnraisableExceptionWarning"
)


class Failing:
    """Raises an error, once: as a function begins, or behind one that is built in.

    Not behind one that has taken a lock: nothing can fail between that and the `try` that gives
    the lock back.
    """

    def __init__(self, moment: int, error: type[Exception] = MemoryError) -> None:
        self._left = moment
        self._error = error
        self.raised = False
        self.where = ""

    @contextmanager
    def __call__(self) -> Iterator[None]:
        sys.setprofile(self._hear)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _hear(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_return" and getattr(argument, "__name__", "") == "acquire":
            return
        if event in ("call", "c_return") and frame.f_code.co_filename.startswith(FOLDERS):
            self._left -= 1
            if not self._left:
                self.raised = True
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                sys.setprofile(None)
                raise self._error(f"a failure in {frame.f_code.co_name}")
