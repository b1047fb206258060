"""Rows: the messages of typed queues, as blocks of columns."""

from quire.libraries.late_modules import late_modules as _late_modules

__getattr__ = _late_modules(
    globals(),
    "column_reach",
    "column_sums",
    "row_builder",
    "row_bytes",
    "row_check",
    "row_input",
    "row_part",
)

__all__: list[str] = []
