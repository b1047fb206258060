"""A store's files in words, whatever their state."""

from __future__ import annotations

from .dump import Choices, dump_files
from .items import Finding, Item, as_json
from .told import Owner
from .words import in_words

__all__ = [
    "Choices",
    "Finding",
    "Item",
    "Owner",
    "as_json",
    "dump_files",
    "in_words",
]
