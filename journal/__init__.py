"""The paged, checksummed, preallocated, append-only log. It knows nothing of what records mean."""

from __future__ import annotations

from .format import (
    GROUP_HEADER_BYTES,
    KIND_GENERATION,
    RECORD_ALIGNMENT,
    RECORD_HEADER,
    RECORD_HEADER_BYTES,
    Geometry,
    WholeRecord,
    pack_record,
    padded_bytes,
)
from .journal import Journal, JournalStatus
from .reader import read_at
from .recovery import Apply, Report
from .scan import Group, Record, RecoveryReport, Tail
from .segment import segment_path
from .verify import Finding, geometry_of, scan

__all__ = [
    "GROUP_HEADER_BYTES",
    "KIND_GENERATION",
    "RECORD_ALIGNMENT",
    "RECORD_HEADER",
    "RECORD_HEADER_BYTES",
    "Apply",
    "Finding",
    "Geometry",
    "Group",
    "Journal",
    "JournalStatus",
    "Record",
    "RecoveryReport",
    "Report",
    "Tail",
    "WholeRecord",
    "geometry_of",
    "pack_record",
    "padded_bytes",
    "read_at",
    "scan",
    "segment_path",
]
