"""The paged, checksummed, preallocated, append-only log. It knows nothing of what records mean."""

from __future__ import annotations

from .format import (
    GROUP_HEADER_BYTES,
    KIND_GENERATION,
    RECORD_ALIGNMENT,
    RECORD_HEADER,
    RECORD_HEADER_BYTES,
    pack_record,
)
from .journal import Journal, JournalStatus
from .reader import read_at
from .scan import Group, Record, RecoveryReport, Tail

__all__ = [
    "GROUP_HEADER_BYTES",
    "KIND_GENERATION",
    "RECORD_ALIGNMENT",
    "RECORD_HEADER",
    "RECORD_HEADER_BYTES",
    "Group",
    "Journal",
    "JournalStatus",
    "Record",
    "RecoveryReport",
    "Tail",
    "pack_record",
    "read_at",
]
