"""The publisher: replays the flights into `departures`, each exactly once, whoever dies meanwhile.

Each transaction also records in the store's ledger how many flights are published with it. After
any failure the publisher asks the ledger, which cannot disagree with the queue, and goes on there.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import pyarrow as pa
from msgspec import Struct

from demo import flights, store
from demo.processes.cuts import Cut, plan
from demo.processes.finish import Finish
from demo.timeline import Timeline
from quire.errors import ConnectionLost, OutcomeUnknown
from quire.interface.store import Store

__all__ = ["KEY", "Publisher"]

KEY = "publisher"
PIECE = 500  # flights that are handed over at once; a large transaction takes many


class Publisher(Struct, frozen=True):
    """Publishes flights, cut by `cuts`, at the pace of all of them in `seconds`."""

    flights: pa.Table
    cuts: list[Cut]
    seconds: float
    finish: Finish
    timeline: Timeline

    def run(self, path: Path) -> None:
        """Publish what the ledger does not have yet."""
        while True:
            try:
                with store.join(path) as joined:
                    self._go_on(joined)
                return
            except (ConnectionLost, OutcomeUnknown) as error:
                self.timeline.add("lost", error=repr(error))

    def _go_on(self, joined: Store) -> None:
        done = joined.integration.ledger(KEY) or 0
        self.timeline.add("resume", flights=done)
        pace = self.seconds / len(self.flights)
        zero = time.monotonic() - done * pace
        for cut in self.cuts:
            if cut.start >= done:
                self._publish(joined, cut, zero, pace)

    def _publish(self, joined: Store, cut: Cut, zero: float, pace: float) -> None:
        with joined.transaction(large=cut.large) as transaction:
            for start in range(cut.start, cut.stop, PIECE):
                stop = min(start + PIECE, cut.stop)
                transaction.put_many("departures", self.flights[start:stop])
                if cut.large and start <= (cut.start + cut.stop) // 2 < stop:
                    self.timeline.add("half of large")
                if self.finish.wait(max(0.0, zero + stop * pace - time.monotonic())):
                    raise SystemExit("asked to finish before all flights were published")
            transaction.enter(KEY, cut.stop)
            begin = time.perf_counter()
            transaction.commit()
            took = time.perf_counter() - begin
        self.timeline.add("commit", messages=cut.stop - cut.start, seconds=took, large=cut.large)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m demo.processes.publisher", description=__doc__)
    parser.add_argument("folder", type=Path, help="the demo's folder")
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    arguments = parser.parse_args()
    table = flights.load(arguments.rows)
    timeline = Timeline(arguments.folder, "publisher")
    cuts = plan(len(table), arguments.seed)
    publisher = Publisher(table, cuts, arguments.seconds, Finish(), timeline)
    publisher.run(arguments.folder / "store")
    return 0


if __name__ == "__main__":
    sys.exit(main())
