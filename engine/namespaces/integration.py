"""The handlers of connectors' calls at the owner of a store: see `quire.interface.integration`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from quire.arguments import (
    are_several,
    check_flag,
    check_keys,
    check_lease_id,
    check_name,
    check_names,
    check_owner,
    check_place,
    check_ranges,
    check_reader_names,
    check_seconds,
    check_span,
)
from quire.definitions.source_pattern import is_pattern
from quire.engine.checkpoints.store_files import Opened
from quire.engine.reading.lease import Leases
from quire.engine.reading.place_bytes import PlaceBytes
from quire.engine.transactions.context import Context
from quire.engine.upkeep import fragment_files
from quire.engine.upkeep.maintenance import Maintenance
from quire.errors import InvalidArgument, QueueNotFound
from quire.interface.awaited import PUT, REMOVAL, Awaited
from quire.libraries.late_imports import importing
from quire.ltds import check_foreign
from quire.moments import Duration
from quire.reports.info import Lease, ShippingReport, ShippingState, StateLease

if TYPE_CHECKING:
    from quire.engine.upkeep.shipping import Shipping


class IntegrationHandlers:
    """A handler for each row of `Integration`."""

    def __init__(
        self,
        opened: Opened,
        context: Context,
        leases: Leases,
        maintenance: Maintenance,
        shipping: Callable[[], Shipping],
    ) -> None:
        self._opened = opened
        self._context = context
        self._state = context.state
        self._leases = leases
        self._maintenance = maintenance
        self._shipping = shipping
        self._bytes = PlaceBytes(context.env, context.journal, context.places, leases)

    def positions(self, name: str) -> tuple[int, int]:
        queue = self._state.queue(name)
        with queue.lock:
            return queue.released.first_gap(0), queue.end_position

    def positions_many(self, names: Iterable[str]) -> dict[str, tuple[int, int]]:
        checked = check_names(names)
        found: dict[str, tuple[int, int]] = {}

        def look() -> None:
            for name in checked:
                found[name] = self.positions(name)

        self._context.sequencer.exclusive(look)
        return found

    def put_priorities(self) -> dict[str, int]:
        queues = self._state.by_name()
        found = {queue.name: queue.config.properties.put_priority for queue in queues}
        return {name: priority for name, priority in found.items() if priority}

    def when_ready(
        self, source: str, callback: Callable[[], None], taker: object = None
    ) -> Callable[[], None] | None:
        """Have it called once something may be there; what withdraws it, None: it is there.

        `taker`: a transaction's reads, where there may be something for it alone.
        """
        source, on, past, returns = Awaited.of(source)
        context, state = self._context, self._state
        context.registry.reap()  # what it gives back may be next
        if is_pattern(source):
            withdraw = context.turns.when_ready(source, callback, taker)
            if withdraw is not None and context.turns.await_due(source):
                self._maintenance.soon()
            return withdraw
        if on == PUT:
            return context.listening.when_put(state.queue(source), past, returns, callback)
        queue, subscription = state.source(source)
        if on == REMOVAL:
            return context.listening.when_removed(queue, subscription, past, callback)
        withdraw = queue.when_ready(subscription, callback, taker)
        if withdraw is not None and context.delivery.await_due(queue, subscription):
            self._maintenance.soon()
        return withdraw

    def ledger_many(self, keys: Iterable[str]) -> dict[str, int]:
        ledger = self._state.ledger
        return {key: ledger[key] for key in check_keys(keys) if key in ledger}

    def lease_many(
        self, ranges: Iterable[tuple[str, int, int]], seconds: Duration, gaps: bool
    ) -> list[Lease]:
        self._context.sequencer.sync()  # who reads the files may note durably what was there
        state = self._state
        found = [(state.queue(queue), start, end) for queue, start, end in check_ranges(ranges)]
        return self._leases.take(found, check_seconds(seconds), check_flag("gaps", gaps))

    def lease_state(self, seconds: Duration) -> StateLease:
        with importing():  # which few owners are asked for
            from quire.engine.inspection.leased_state import lease_state

        return lease_state(self._opened, self._context, self._leases, check_seconds(seconds))

    def lease_names(self, names: Iterable[str], seconds: Duration) -> int:
        checked, lasting = check_reader_names(names), check_seconds(seconds)
        layout = self._opened.layout
        self._context.env.make_directory(layout.run)
        return self._leases.take_names(f"{layout.run}/readers", checked, lasting)

    def renew_lease(self, lease_id: int, seconds: Duration) -> None:
        self._leases.renew(check_lease_id(lease_id), check_seconds(seconds))

    def end_lease(self, lease_id: int) -> None:
        self._leases.release(check_lease_id(lease_id))

    def read_places(self, queue: str, places: Iterable[tuple[str, int, int, int]]) -> list[bytes]:
        return self._bytes.read(self._leased_name(queue), places)

    def file_size(self, queue: str, ltds_id: int) -> int:
        return self._bytes.size(self._leased_name(queue), ltds_id)

    def _leased_name(self, queue: str) -> str:
        """Return the name that a lease has of a queue, which may be gone meanwhile."""
        try:
            return self._state.queue(check_name(queue, "queue")).name
        except QueueNotFound:
            return queue

    def write_fragment(
        self, queue: str, ltds_id: int, offset: int, data: bytes, writer: str | None
    ) -> None:
        check_name(queue, "queue")
        part = fragment_files.check_part(offset, data)
        fragment_files.write_fragment(
            self._context, check_foreign(ltds_id), *part, check_owner(writer)
        )

    def read_fragment(
        self, ltds_id: int, offset: int, length: int, writer: str | None
    ) -> tuple[int, bytes]:
        file = check_foreign(ltds_id)
        span = check_span(offset, length)
        return fragment_files.read_fragment(self._context, file, *span, check_owner(writer))

    def remove_fragments(self, ltds_ids: Iterable[int], writer: str | None) -> None:
        if not are_several(ltds_ids):
            raise InvalidArgument(f"ltds_ids {ltds_ids!r:.100}: give several ids")
        files = [check_foreign(each) for each in ltds_ids]
        fragment_files.remove_fragments(self._context, files, check_owner(writer))

    def ship(self, report: ShippingReport | None) -> ShippingState:
        return self._shipping().ship(report)

    def archive_boundary(self, place: int) -> None:
        self._shipping().note_boundary(check_place(place))
