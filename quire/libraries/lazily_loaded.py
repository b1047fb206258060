"""Modules of libraries that are loaded at the first question.

Each is a plain module that is filled then, so that every further question costs what it costs
elsewhere. Threads that ask at the same time wait for one import.

- LD1: no field of a value that the selectors or the row filter make has a type of theirs: who asks
  what a class's fields are (`msgspec.structs.fields`, `msgspec.convert`) reads all annotations,
  which would load the library.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .late_imports import load as load_late


def _lazily(name: str) -> ModuleType:
    """What stands for the module of that name."""
    stand_in = ModuleType(name)
    names = vars(stand_in)

    def load(attribute: str) -> Any:
        module = load_late(name)
        names.update((key, value) for key, value in vars(module).items() if key != "__getattr__")
        names["__getattr__"] = lambda later: getattr(module, later)  # what it has by then
        return getattr(module, attribute)

    names["__getattr__"] = load
    return stand_in


__all__ = ["is_arrow", "np", "pa", "pc"]

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    np = _lazily("numpy")
    pa = _lazily("pyarrow")
    pc = _lazily("pyarrow.compute")


def is_arrow(value: object) -> bool:
    """Whether it is data of PyArrow: an array, or a batch or table of several.

    Where nobody has imported PyArrow nothing is, and it is not loaded for that.
    """
    return "pyarrow" in sys.modules and isinstance(
        value, (pa.Array, pa.ChunkedArray, pa.RecordBatch, pa.Table)
    )
