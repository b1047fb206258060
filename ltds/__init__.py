"""Large transaction data structures: one transaction's messages for one queue in a file."""

from .files import is_foreign, list_ids, modified_us, new_id, path_of, remove
from .reader import LtdsReader
from .writer import LtdsInfo, LtdsWriter

__all__ = [
    "LtdsInfo",
    "LtdsReader",
    "LtdsWriter",
    "is_foreign",
    "list_ids",
    "modified_us",
    "new_id",
    "path_of",
    "remove",
]
