"""How large a keyed state is, and what was written for it."""

from __future__ import annotations

from msgspec import Struct


class KeyedStatus(Struct, frozen=True):
    """A keyed state between two commits."""

    name: str
    version: int
    """The number of the last change of rows."""
    rows: int
    """Rows that there are at most: those of each run, about. A key that several runs have counts
    in each of them, until they are merged, and so does what is expired."""
    size_bytes: int
    """Bytes of its runs, of those rows."""
    runs: int
    depth: int
    """Runs that the look for one key goes through at most."""
    put_bytes: int
    """Bytes of all runs that changes have written so far."""
    merged_bytes: int
    """Bytes of all runs that merges have written so far."""

    @property
    def write_amplification(self) -> float:
        """How often what was put has been written, on average."""
        return (self.put_bytes + self.merged_bytes) / max(1, self.put_bytes)
