"""Large transaction data structures: one transaction's messages for one queue in a file."""

from .compression import codec_named
from .files import (
    check_foreign,
    is_foreign,
    list_ids,
    modified_us,
    new_id,
    path_of,
    remove,
    with_writer,
    writer_number,
    writer_of,
)
from .format import PAGE_BYTES, Compression
from .reader import LtdsReader, missing
from .writer import LtdsInfo, LtdsWriter

__all__ = [
    "PAGE_BYTES",
    "Compression",
    "LtdsInfo",
    "LtdsReader",
    "LtdsWriter",
    "check_foreign",
    "codec_named",
    "is_foreign",
    "list_ids",
    "missing",
    "modified_us",
    "new_id",
    "path_of",
    "remove",
    "with_writer",
    "writer_number",
    "writer_of",
]
