"""The watch: counts what the queues hold while the demo runs, for progress bars and the report."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from tqdm import tqdm

from demo import store
from demo.strikes.crew import Member
from demo.timeline import Timeline
from quire.errors import QuireError
from quire.remote import JoinedStore

__all__ = ["Counts", "DemoFailed", "Watch"]

Counts = dict[str, int]  # per queue, how many messages were ever put

TICK_SECONDS = 0.25
STALL_SECONDS = 180.0  # a loaded machine may need a minute to start Spark
BAR = "{desc:<12}{percentage:3.0f}% |{bar}| {n_fmt}/{total_fmt} [{elapsed}]"


class DemoFailed(Exception):
    """A process of the demo ended with an error, or nothing moves any more."""


class Watch:
    """Looks at the store a few times a second; one bar for each queue with its expected total."""

    def __init__(
        self, path: Path, members: list[Member], totals: Counts, timeline: Timeline
    ) -> None:
        self._path, self._members, self._timeline = path, members, timeline
        self._store: JoinedStore | None = None
        self._moved = time.monotonic()
        self._totals = totals
        self.counts: Counts = dict.fromkeys(totals, 0)
        self._bars = {
            name: tqdm(total=total, desc=name, unit=" msg", bar_format=BAR, disable=None)
            for name, total in totals.items()
        }

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for bar in self._bars.values():
            bar.close()
        self._leave()

    def until(self, condition: Callable[[Counts], bool]) -> None:
        """Watch until the condition holds; raises DemoFailed if that seems hopeless."""
        while not condition(self.counts):
            self._look()
            self._check()
            time.sleep(TICK_SECONDS)

    def share(self, queue: str) -> float:
        """Return how much of what is expected in a queue is there."""
        return self.counts[queue] / max(1, self._totals[queue])

    def say(self, text: str) -> None:
        """A line above the bars."""
        tqdm.write(text)

    def in_batch(self) -> bool:
        """Return True if a step has a batch that is planned and not committed: it holds a lease."""
        with suppress(QuireError):
            return self._store is not None and self._store.status()["leases"] > 0
        return False

    def owner(self) -> int:
        """The process that owns the store."""
        while self._store is None:
            self._look()
        process: int = self._store.owner_process_id
        return process

    def _leave(self) -> None:
        if self._store is not None:
            with suppress(QuireError):  # its owner may be dead already
                self._store.close()
            self._store = None

    def _look(self) -> None:
        try:
            if self._store is None:
                self._store = store.join(self._path)
            counts = {name: self._store.integration.positions(name)[1] for name in self.counts}
        except QuireError as error:
            self._timeline.add("lost", error=repr(error))
            self._leave()
            return
        if counts != self.counts:
            self._moved = time.monotonic()
        self.counts = counts
        self._timeline.add("counts", **counts)
        for name, bar in self._bars.items():
            bar.update(counts[name] - bar.n)

    def _check(self) -> None:
        for member in self._members:
            if member.status not in (None, 0):
                raise DemoFailed(f"{member.name} ended with status {member.status}: {member.log}")
        if time.monotonic() - self._moved > STALL_SECONDS:
            raise DemoFailed(f"nothing moved for {STALL_SECONDS:.0f} s: see {self._path.parent}")
