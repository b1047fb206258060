"""The paged, checksummed, preallocated, append-only log. It knows nothing of what records mean."""

from __future__ import annotations

from .format import (
    GENERATION_BODY,
    GROUP_HEADER_BYTES,
    KIND_GENERATION,
    RECORD_HEADER,
    RECORD_HEADER_BYTES,
    Geometry,
    Record,
    WholeRecord,
    pack_record,
    padded_bytes,
)
from .journal import Hooks, Journal
from .reader import read_at
from .recovery import Apply, ReportDropped
from .scan import Chain, Group, RecoveryReport, Tail
from .segment import Directory, SegmentReader, list_segments, segment_path
from .verify import JournalFinding, geometry_of, scan

__all__ = [
    "GENERATION_BODY",
    "GROUP_HEADER_BYTES",
    "KIND_GENERATION",
    "RECORD_HEADER",
    "RECORD_HEADER_BYTES",
    "Apply",
    "Chain",
    "Directory",
    "Geometry",
    "Group",
    "Hooks",
    "Journal",
    "JournalFinding",
    "Record",
    "RecoveryReport",
    "ReportDropped",
    "SegmentReader",
    "Tail",
    "WholeRecord",
    "geometry_of",
    "list_segments",
    "pack_record",
    "padded_bytes",
    "read_at",
    "scan",
    "segment_path",
]
