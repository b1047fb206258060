"""The owner's side of an archive: what its shipper reports, and what it is to ship next."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final

import msgspec
from msgspec.structs import asdict

from quire.engine.checkpoints.checkpoint import Checkpointer
from quire.engine.checkpoints.store_files import Opened
from quire.engine.commits.definitions import Definitions
from quire.engine.state.catalog import ARCHIVE, ARCHIVE_NUMBER, CatalogChange
from quire.engine.transactions.context import Context
from quire.env import Env
from quire.env.memory_env import MemoryEnv
from quire.errors import InvalidArgument, ResourceExhausted
from quire.loggers import log_warning, logger
from quire.reports.info import ArchiveInfo, ShippingReport, ShippingState


def check_report(report: object) -> ShippingReport | None:
    """Check what a shipper reports, also as it comes over a connection."""
    if report is None:
        return None
    try:
        found = msgspec.convert(report, ShippingReport, from_attributes=True)
    except (ValueError, RecursionError) as error:  # msgspec's, too
        raise InvalidArgument(f"report {report!r:.100}: give a ShippingReport ({error})") from None
    if min(found.lsn, found.number, found.place, found.base_number, found.boundary_place) < 0:
        raise InvalidArgument(f"report {found!r:.100}: its numbers are from 0 on")
    return found


def absolute_url(url: str, env: Env) -> str:
    """Return the URL; of a path below the current directory, which each process has another of."""
    if url.startswith("/") or _SCHEME.match(url):
        return url
    return env.real_path(url)


_SCHEME: Final = re.compile("[A-Za-z][A-Za-z0-9+.-]*:")
_log: Final = logger("quire.archive")


class Shipping:
    """Sets a store's archive, and answers its shipper."""

    def __init__(
        self,
        opened: Opened,
        context: Context,
        definitions: Definitions,
        checkpointer: Checkpointer,
    ) -> None:
        self._opened = opened
        self._context = context
        self._definitions = definitions
        self._checkpointer = checkpointer
        self._unshipped = opened.places.unshipped

    def info(self) -> ArchiveInfo | None:
        """Return the archive of the catalog, if it is on."""
        entry = self._unshipped.entry
        return ArchiveInfo(**entry) if entry is not None and entry["url"] else None

    def set(self, url: str, limit: int, full: str, keep_seconds: float) -> ArchiveInfo:
        """Raises as `Admin.set_archive`."""
        if isinstance(self._opened.ownership.env.machine, MemoryEnv):
            raise InvalidArgument("a store in memory has no files to ship from: open one at a path")
        url = absolute_url(url, self._opened.ownership.env.machine)
        made: list[ArchiveInfo] = []

        def prepare() -> list[CatalogChange]:
            known = self._unshipped.entry
            history = self._context.env.random_u64() if known is None else known["history"]
            boundary = known["boundary_place"] if known is not None and known["url"] == url else 0
            info = ArchiveInfo(url, history, keep_seconds, limit, full, boundary)
            made.append(info)
            return [CatalogChange(ARCHIVE, ARCHIVE_NUMBER, asdict(info))]

        before = self._unshipped.position
        self._definitions.submit(prepare)
        if before is None or self._unshipped.position != before:
            with suppress(ResourceExhausted):  # an opening that finds none begins anew (US4)
                self._checkpointer.run()
        return made[-1]

    def stop(self, *, forget: bool) -> None:
        """Raises as `Admin.stop_archive`."""

        def prepare() -> list[CatalogChange]:
            known = self._unshipped.entry
            body = None if forget or known is None else {**known, "url": ""}
            return [CatalogChange(ARCHIVE, ARCHIVE_NUMBER, body)]

        known = self._unshipped.entry
        if known is not None and (forget or known["url"]):
            self._definitions.submit(prepare)

    def note_boundary(self, place: int) -> None:
        """Raises as `Integration.archive_boundary`."""

        def prepare() -> list[CatalogChange]:
            known = self._unshipped.entry
            if known is None or not known["url"]:
                raise InvalidArgument(
                    "the store has no archive: give it one by store.admin.set_archive"
                )
            body = {**known, "boundary_place": max(place, known["boundary_place"])}
            return [CatalogChange(ARCHIVE, ARCHIVE_NUMBER, body)]

        self._definitions.submit(prepare)

    def ship(self, reported: object) -> ShippingState:
        """Raises as `Integration.ship`."""
        journal, sequencer = self._context.journal, self._context.sequencer
        report = check_report(reported)
        self._unshipped.calls += 1
        if report is not None:
            if report.lsn > journal.end_lsn or report.number > sequencer.number:
                raise InvalidArgument(
                    f"a report of LSN {report.lsn:#x} and record {report.number}: the journal ends "
                    f"at {journal.end_lsn:#x} with record {sequencer.number}"
                )
            self._take_report(report)

        def look() -> ShippingState:
            journal.sync()
            self._unshipped.tell_end(journal.end_lsn)
            return self._state(journal.end_lsn, sequencer.number)

        return sequencer.exclusive(look)

    def _take_report(self, report: ShippingReport) -> None:
        before = self._unshipped.error
        lsn = self._unshipped.report(report)
        if lsn is None:
            return
        self._opened.places.let_go(lsn)
        self._context.state.limit_unshipped(self._context.journal.bytes_since(lsn))
        if report.error and report.error != before:
            log_warning(_log, "nothing is shipped to the archive now: %s", report.error)

    def _state(self, end_lsn: int, end_number: int) -> ShippingState:
        settings, unshipped = self._opened.settings, self._unshipped
        entry, position = unshipped.entry or {}, unshipped.position
        lsn, number, place = (end_lsn, end_number, 0) if position is None else position
        return ShippingState(
            url=entry.get("url", ""),
            history=entry.get("history", 0),
            keep_seconds=entry.get("keep_seconds", 0.0),
            store_id=self._opened.store_id,
            segment_bytes=settings["segment_bytes"],
            page_size=settings["page_size"],
            end_lsn=end_lsn,
            end_number=end_number,
            lsn=lsn,
            number=number,
            place=place,
            gap=unshipped.gap,
        )
