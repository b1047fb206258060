"""How far the store's records were shipped to its archive.

- Before the first report of an opening the position is that of the newest checkpoint. Where this
  does not know it (the archive was set after it, perhaps anew), it is the journal's end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from quire.env.interpreter import Lock
from quire.reports.info import ShippingReport


class ShippedPosition(NamedTuple):
    """A place in the journal, and in the archive: everything before is shipped."""

    lsn: int
    number: int = 0  # of the latest record before
    place: int = 0  # a hint: no entry of the archive up to it is missing


class UnshippedPlaces:
    """The places that wait for the store's archive; none where there is no archive. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._end: Callable[[], ShippedPosition] | None = None  # of the journal, with number
        self.entry: Mapping[str, Any] | None = None  # of the catalog
        self.is_on = False
        self.position: ShippedPosition | None = None  # None: that is not known yet
        self.gap = False  # records before `position` were never shipped, and no base has them
        self.base_number = 0
        self.error = ""
        self.calls = 0  # of a shipper, since the opening

    def obey(self, entry: Mapping[str, Any] | None) -> None:
        """The catalog says so of the archive, live and in recovery."""
        before = "" if self.entry is None else self.entry["url"]
        url = "" if entry is None else entry["url"]
        with self._lock:
            self.entry = entry
            if url == before:
                return
            self.is_on = bool(url)
            self.position = None
            self._begin()

    def follow(self, end: Callable[[], ShippedPosition]) -> None:
        """Recovery is done: the journal's end is known from now on."""
        with self._lock:
            self._end = end
            if self.is_on and self.position is None:
                self._begin()

    def _begin(self) -> None:
        """Let go of all that is not known to be shipped: it never is."""
        self.gap, self.base_number, self.error = self.is_on, 0, ""
        if self.is_on and self._end is not None:
            self.position = self._end()

    def report(self, report: ShippingReport) -> None:
        """All before was shipped. A report of what was let go of meanwhile changes no position."""
        with self._lock:
            position, entry = self.position, self.entry
            if position is None or entry is None or report.url not in ("", entry["url"]):
                return
            if report.lsn >= position.lsn:
                place = max(position.place, report.place)
                self.position = position = ShippedPosition(report.lsn, report.number, place)
            self.base_number = max(self.base_number, report.base_number)
            if self.gap and self.base_number >= position.number:
                self.gap = False
            self.error = report.error
