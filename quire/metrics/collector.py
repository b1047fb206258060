"""A collector of prometheus-client: the metrics of a store, read from its status at each scrape.

- A scrape raises for nothing that the store says: `quire_up` is 0 then, and that is all.
- Nothing is kept between scrapes, and nothing of the store changes by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from quire.errors import InvalidArgument, QuireError
from quire.libraries.late_imports import importing
from quire.metrics.families import COUNTER, FAMILIES, HISTOGRAMS, HistogramFamily
from quire.metrics.folding import folded


class ReportsStatus(Protocol):
    """A store, as far as metrics are of it."""

    @property
    def role(self) -> str:
        """ "owner", or "joined"."""

    def status(self) -> dict[str, Any]:
        """Numbers on everything."""


class StoreCollector:
    """The metrics of one store, for a registry of prometheus-client. Made by `collector`."""

    def __init__(self, store: ReportsStatus) -> None:
        self._store = store
        with importing():
            from prometheus_client import core

        self._kinds = core

    def describe(self) -> Iterable[Any]:
        """Return nothing: a registry need not scrape the store when the collector is registered."""
        return ()

    def collect(self) -> Iterator[Any]:
        """Yield all metrics, as the store is now."""
        gauge = self._kinds.GaugeMetricFamily
        try:
            store = self._store
            status = {**store.status(), "is_owner": store.role == "owner"}
        except (QuireError, OSError):
            yield gauge("quire_up", _UP, value=0)
            return
        yield gauge("quire_up", _UP, value=1)
        yield from self._families(folded(status))

    def _families(self, status: Mapping[str, Any]) -> Iterator[Any]:
        kinds = self._kinds
        for family in FAMILIES:
            made = (
                kinds.CounterMetricFamily(family.name, family.help, labels=family.labels)
                if family.kind == COUNTER
                else kinds.GaugeMetricFamily(family.name, family.help, labels=family.labels)
            )
            for labels, number in family.read(status):
                made.add_metric(labels, number)
            if made.samples:
                yield made
        for histogram in HISTOGRAMS:
            counts = _at(status, histogram.counts)
            if counts:
                yield self._histogram(histogram, counts, float(_at(status, histogram.sum)))

    def _histogram(self, family: HistogramFamily, counts: list[int], total: float) -> Any:
        made = self._kinds.HistogramMetricFamily(family.name, family.help)
        buckets: list[tuple[str, float]] = []
        below = 0
        for number, count in enumerate(counts[:-1]):
            below += count
            if number >= family.first:
                buckets.append((f"{2**number * family.scale:.10g}", float(below)))
        buckets.append(("+Inf", float(below + counts[-1])))
        made.add_metric((), buckets, total)
        return made


_UP = "1 where the store has told its status at this scrape"


def _at(status: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """Return what is at the path; None: nothing is."""
    found: Any = status
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def collector(store: ReportsStatus) -> StoreCollector:
    """Return a collector for prometheus-client: `REGISTRY.register(collector(store))`.

    It asks the store for its status at each scrape: a store that is joined asks its owner then.
    The histograms of commits and syncs are there where the owner has the option `timings`. The
    names are in docs/operations.md. Raises InvalidArgument where prometheus-client is not
    installed, or for what is no store.
    """
    if not callable(getattr(store, "status", None)):
        raise InvalidArgument(f"store is {store!r:.100}: give an open store")
    try:
        return StoreCollector(store)
    except ImportError as error:
        raise InvalidArgument(
            f"metrics need prometheus-client ({error}): pip install 'quire-mq[metrics]'"
        ) from None
