"""The rule for when an archive needs a new base, without I/O."""

from __future__ import annotations

from msgspec import Struct

from .limits import BASE_SECONDS, MIN_BASE_ENTRY_BYTES


class ArchiveWeight(Struct, frozen=True):
    """An archive as far as the rule needs it."""

    base_number: int = 0  # of the newest base; with `base_us` 0: there is none
    base_us: int = 0  # when it was made
    base_bytes: int = 0  # of all its objects
    entry_bytes: int = 0  # of entries, blobs and files shipped since it
    end_number: int = 0  # of the latest record that was shipped
    gap_number: int = 0  # a base is needed that has this record: those before it were not shipped


def reason_for_base(weight: ArchiveWeight, now_us: int) -> str:
    """Return why a base is due, in words; empty: none is.

    A restore reads the newest base and the entries since, so these are bounded by the base's own
    size, and by a day. As long as nothing was committed since the newest base none is due.
    """
    if not weight.base_us:
        return "there is none"
    if weight.gap_number > weight.base_number:
        return f"records before {weight.gap_number} were not shipped"
    if weight.end_number <= weight.base_number:
        return ""
    if weight.entry_bytes >= max(weight.base_bytes, MIN_BASE_ENTRY_BYTES):
        return "the records since the newest one weigh as much as it"
    if now_us - weight.base_us >= round(BASE_SECONDS * 1e6):
        return "the newest one is a day old"
    return ""
