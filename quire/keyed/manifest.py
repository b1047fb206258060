"""The manifest of a keyed state: its definition and its runs, as values of a state.

- KM1: all of it is read at one moment (KV1 of `live_values`), and changed by commits only.
- KM2: a change of rows reads the version and sets the next one: of two that began from the same one
  commits the first, the other raises StateConflict. A merge leaves the version, and reads the
  values of the runs that it takes: it is refused only where another merge was faster.
- What was fired of timers (KT1) changes with the version, and is read with the runs.
- KM3: a run has the changes of some versions, one after another, in one range of hashes. Of two
  runs with a hash in common one has the newer versions, all of them. A version may have several
  runs, as tasks write them, each in a range of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from quire.errors import StoreCorrupt

from .timer_mark import FiredTimers, TimerMark, fired_after, fired_of

PREFIX: Final = "quire.keyed."
"""The prefix of the names of a keyed state's own queue and state."""
DEFINITION: Final = "definition"
VERSION: Final = "version"
FIRED: Final = "fired"
PUT_BYTES: Final = "put_bytes"
MERGED_BYTES: Final = "merged_bytes"
_RUN: Final = "run "


class KeyedDefinition(NamedTuple):
    """The properties of a keyed state that its opening gives."""

    schema: str  # in words
    key: int  # so many columns are the key, the first ones
    ttl_us: int | None  # of rows whose put says none; None: they do not expire

    def value(self) -> bytes:
        """As it is kept."""
        return json.dumps(self._asdict()).encode()


class RunEntry(NamedTuple):
    """A run that is part of the state."""

    id: int
    low: int  # the oldest version that is in it
    high: int  # the newest one
    file: int  # the id of its file; 0: it is a message
    rows: int
    deleted: int
    timers: int
    size: int  # of the whole run, in bytes
    first: int  # of the hashes that it is for: of others it may have rows that do not count
    last: int
    kept: (
        int  # the bytes of those that count; as `rows` and `deleted` an estimate, once some do not
    )

    @property
    def key(self) -> str:
        """The key of its value."""
        return f"{_RUN}{self.high:016x}.{self.first:016x}"

    @property
    def name(self) -> str:
        """By which its message is found."""
        return f"{self.id:016x}"

    def value(self) -> bytes:
        """As it is kept."""
        return json.dumps(self._asdict()).encode()

    def within(self, first: int, last: int) -> RunEntry:
        """Return the entry of a part of it."""
        whole, part = self.last - self.first + 1, last - first + 1
        rows, deleted, kept = (n * part // whole for n in (self.rows, self.deleted, self.kept))
        return self._replace(first=first, last=last, rows=rows, deleted=deleted, kept=kept)


class KeyedManifest(NamedTuple):
    """A keyed state between two commits."""

    definition: KeyedDefinition
    version: int
    runs: tuple[RunEntry, ...]  # the newest first, of one version the first hashes first
    fired: tuple[FiredTimers, ...]
    put_bytes: int  # of all runs that changes have written
    merged_bytes: int  # and merges

    @classmethod
    def of(cls, name: str, values: Mapping[str, bytes]) -> KeyedManifest | None:
        """Return what the values say; None: there is no such state. Raises StoreCorrupt."""
        if DEFINITION not in values:
            return None
        try:
            found = [_entry_of(value) for key, value in values.items() if key.startswith(_RUN)]
            runs = tuple(sorted(found, key=lambda run: (-run.high, run.first)))
            definition = KeyedDefinition(**json.loads(values[DEFINITION]))
            fired = tuple(FiredTimers(*each) for each in json.loads(values.get(FIRED, b"[]")))
            numbers = (version_of(values.get(key)) for key in (PUT_BYTES, MERGED_BYTES))
            manifest = cls(definition, version_of(values.get(VERSION)), runs, fired, *numbers)
        except (ValueError, TypeError) as error:
            raise StoreCorrupt(
                f"keyed state {name!r}: what the state {PREFIX + name!r} keeps of it is not "
                f"readable ({error!r}): restore the store from a backup, or drop the state"
            ) from error
        _check_order(name, runs)
        return manifest

    def fired_in(self, run: RunEntry) -> TimerMark:
        """Return how far a run has fired its timers."""
        return fired_of(self.fired, run.high)

    def fired_value(self, mark: TimerMark) -> bytes:
        """Return the value of what was fired once its runs fire all up to the mark."""
        oldest = min((run.high for run in self.runs), default=self.version)
        return json.dumps(fired_after(self.fired, self.version, mark, oldest)).encode()


@lru_cache(maxsize=4096)
def _entry_of(value: bytes) -> RunEntry:
    return RunEntry(**json.loads(value))


def _check_order(name: str, runs: Sequence[RunEntry]) -> None:
    """Raise StoreCorrupt where it is not told which of two runs is newer (KM3)."""
    for number, newer in enumerate(runs):
        for older in runs[number + 1 :]:
            if older.high < newer.low:
                break
            if older.first <= newer.last and newer.first <= older.last:
                raise StoreCorrupt(
                    f"keyed state {name!r}: runs {newer.name} and {older.name} both have version "
                    f"{older.high} of the same keys"
                )


def version_of(value: bytes | None) -> int:
    """Return the number that a value says; 0 before the first. Raises ValueError."""
    return 0 if value is None else int(value)
