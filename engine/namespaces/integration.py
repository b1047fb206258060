"""What connectors need of the store of this process: see `quire.interface.integration`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from quire.arguments import (
    check_flag,
    check_keys,
    check_lease_id,
    check_names,
    check_ranges,
    check_seconds,
    check_selector,
    check_switch,
)
from quire.callbacks import check_callback
from quire.calls.documented import documented_by
from quire.definitions.source_pattern import is_pattern
from quire.engine.opening import open_call
from quire.interface.awaited import PUT, REMOVAL, Awaited
from quire.interface.integration import Integration
from quire.interface.single_calls import IntegrationCalls
from quire.interface.starts import Start
from quire.limits import DEFAULT_LEASE_SECONDS
from quire.moments import Duration
from quire.reports.info import Lease, SubscriptionInfo

from .namespace import EmbeddedNamespace


def asked_form(
    exclusive: bool | None, durable: bool | None, where: str | None
) -> dict[str, bool | str]:
    """What is said of the form of subscriptions, checked."""
    given = {
        "exclusive": check_switch("exclusive", exclusive),
        "durable": check_switch("durable", durable),
        "where": None if where is None else check_selector(where),
    }
    return {name: value for name, value in given.items() if value is not None}


@documented_by(Integration)
class EmbeddedIntegration(EmbeddedNamespace, IntegrationCalls):
    """Of an `EmbeddedStore`."""

    @property
    def store_id(self) -> int:
        return self._of._store_id

    @open_call
    def positions(self, name: str) -> tuple[int, int]:
        queue = self._state().queue(name)
        with queue.lock:
            return queue.released.first_gap(0), queue.end_position

    @open_call
    def positions_many(self, names: Iterable[str]) -> dict[str, tuple[int, int]]:
        state = self._state()
        given = check_names(names)
        found: dict[str, tuple[int, int]] = {}

        def look() -> None:
            for name in given:
                queue = state.queue(name)
                with queue.lock:
                    found[name] = queue.released.first_gap(0), queue.end_position

        self._of._context.sequencer.exclusive(look)
        return found

    @open_call
    def put_priorities(self) -> dict[str, int]:
        queues = self._state().by_name()
        found = {queue.name: queue.config.properties.put_priority for queue in queues}
        return {name: priority for name, priority in found.items() if priority}

    @open_call
    def subscribe_many(
        self,
        subscription: str | None,
        starts: Mapping[str, Start],
        exclusive: bool | None = None,
        durable: bool | None = None,
        where: str | None = None,
    ) -> list[SubscriptionInfo]:
        holder, asked = self._of._temporary, asked_form(exclusive, durable, where)
        return holder.subscribe(holder, subscription, starts, asked)

    @open_call
    def when_ready(self, source: str, callback: Callable[[], None]) -> Callable[[], None]:
        callback = check_callback(callback)
        self._of._context.registry.reap()  # what it gives back may be next
        withdraw = self._when(Awaited.of(source), callback)
        if withdraw is not None and self._of._closed is None:
            return withdraw
        if withdraw is not None:  # the close may have missed it
            withdraw()
        callback()
        return lambda: None

    def _when(self, awaited: Awaited, callback: Callable[[], None]) -> Callable[[], None] | None:
        source, on, past, returns = awaited
        state, listening = self._state(), self._of._context.listening
        if is_pattern(source):
            return self._of._context.turns.when_ready(source, callback)
        if on == PUT:
            return listening.when_put(state.queue(source), past, returns, callback)
        queue, subscription = state.source(source)
        if on == REMOVAL:
            return listening.when_removed(queue, subscription, past, callback)
        withdraw = queue.when_ready(subscription, callback)
        if withdraw is not None and self._of._context.delivery.await_start(queue, subscription):
            self._of._maintenance.soon()
        return withdraw

    @open_call
    def ledger_many(self, keys: Iterable[str]) -> dict[str, int]:
        ledger = self._state().ledger
        return {key: ledger[key] for key in check_keys(keys) if key in ledger}

    @open_call
    def lease_many(
        self,
        ranges: Iterable[tuple[str, int, int]],
        seconds: Duration = DEFAULT_LEASE_SECONDS,
        gaps: bool = False,
    ) -> list[Lease]:
        state = self._state()
        self._of._context.sequencer.sync()  # who reads the files may note durably what was there
        found = [(state.queue(queue), start, end) for queue, start, end in check_ranges(ranges)]
        return self._of._leases.take(found, check_seconds(seconds), check_flag("gaps", gaps))

    @open_call
    def renew_lease(self, lease_id: int, seconds: Duration = DEFAULT_LEASE_SECONDS) -> None:
        self._of._leases.renew(check_lease_id(lease_id), check_seconds(seconds))

    @open_call
    def end_lease(self, lease_id: int) -> None:
        self._of._leases.release(check_lease_id(lease_id))
