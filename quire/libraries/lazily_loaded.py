"""Modules of libraries that are loaded at the first question (see `late_modules`).

- LD1: no field of a value that the selectors or the row filter make has a type of theirs: who asks
  what a class's fields are (`msgspec.structs.fields`, `msgspec.convert`) reads all annotations,
  which would load the library.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from .late_modules import stand_in

__all__ = ["is_arrow", "np", "pa", "pc"]

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    np = stand_in("numpy")
    pa = stand_in("pyarrow")
    pc = stand_in("pyarrow.compute")


def is_arrow(value: object) -> bool:
    """Return True if the value is data of PyArrow: an array, or a batch or table of several.

    Where nobody has imported PyArrow nothing is, and it is not loaded for that.
    """
    return "pyarrow" in sys.modules and isinstance(
        value, (pa.Array, pa.ChunkedArray, pa.RecordBatch, pa.Table)
    )
