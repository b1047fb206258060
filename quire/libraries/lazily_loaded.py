"""Modules of libraries that are loaded at the first question (see `late_modules`).

- LD1: no field of a dataclass has a type of theirs: to see whether it is a ClassVar, Python 3.15
  looks up what its annotation begins with, which would load the library with the class.
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
    """Whether it is data of PyArrow: an array, or a batch or table of several.

    Where nobody has imported PyArrow nothing is, and it is not loaded for that.
    """
    return "pyarrow" in sys.modules and isinstance(
        value, (pa.Array, pa.ChunkedArray, pa.RecordBatch, pa.Table)
    )
