"""Looking into a keyed state: its manifest, and rows found by it.

- KY1: a look is at one moment, between two commits: its runs are those of one manifest, and each of
  them never changes. Where a merge has replaced one meanwhile the look begins anew.
- KY2: what is damaged is StoreCorrupt, which names the run; it is never taken for missing rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from quire.env import Env
from quire.errors import NotFound, QuireError, StateConflict, StoreCorrupt
from quire.interface.integration import Integration
from quire.interface.transaction import Transaction, TransactionSource
from quire.reports.info import QueueInfo

from .fragment_files import FragmentFiles
from .limits import LOOKS
from .manifest import PREFIX, KeyedManifest, RunEntry
from .put_run_files import PutRunFiles
from .row_layout import layout_by
from .row_lookup import RowLookup
from .run import KeyedRun
from .run_files import RunFiles, RunGone, RunStore

Found = TypeVar("Found")


class KeyedStore(TransactionSource[Transaction], RunStore, Protocol):
    """A store, as far as a keyed state has to do with it."""

    @property
    def states(self) -> Any:
        """The states that keep manifests."""

    @property
    def integration(self) -> Integration:
        """Leases, and the store's number."""

    @property
    def create_queue(self) -> Callable[..., QueueInfo]:
        """Makes a queue."""

    @property
    def queue(self) -> Callable[[str], QueueInfo]:
        """Tells of a queue."""

    def drop_queue(self, name: str) -> None:
        """Remove one."""


class KeyedReader:
    """Finds rows of one keyed state. Thread-safe."""

    def __init__(
        self, store: KeyedStore, name: str, env: Env, files: FragmentFiles | None = None
    ) -> None:
        self.name: Final = name
        self.values: Final = PREFIX + name
        self.env: Final = env
        self.files: Final = RunFiles(store, store.integration.store_id, PREFIX + name, env, files)
        self.put_run_files: Final = PutRunFiles(store.integration)
        self._store = store
        self._last: tuple[Mapping[str, bytes], KeyedManifest | None] = {}, None

    def manifest(self) -> KeyedManifest:
        """Return what is committed now. Raises NotFound."""
        values = self._store.states.items(self.values)
        last_values, last = self._last
        if last is not None and values == last_values:
            return last
        found = KeyedManifest.of(self.name, values)
        if found is None:
            raise NotFound(
                f"there is no keyed state {self.name!r}: open it with a key and a schema to make it"
            )
        self._last = values, found
        self.files.retain(found.runs)
        return found

    def look(
        self,
        manifest: KeyedManifest,
        use: Callable[[RowLookup], Found],
        own: Sequence[KeyedRun] = (),
        *,
        is_latest: bool = False,
    ) -> tuple[Found, KeyedManifest]:
        """Return what a lookup finds, and the manifest that it is by.

        That is another one where a merge was faster; with `is_latest` also where rows were changed
        meanwhile. `own`: runs that are newer than those of the manifest. Raises StateConflict,
        StoreCorrupt.
        """
        for _ in range(LOOKS):
            now_us = self.env.now_us()
            lookup = RowLookup(manifest, layout_by(manifest), self.files.get, now_us, own)
            try:
                return use(lookup), manifest
            except (RunGone, StoreCorrupt) as error:
                manifest = self._again(manifest, error, is_latest=is_latest)
        raise StateConflict(
            f"keyed state {self.name!r} was merged {LOOKS} times while it was read: begin again"
        )

    def opened(self, entries: Sequence[RunEntry]) -> list[KeyedRun]:
        """Return the runs, open. Raises RunGone."""
        return [self.files.get(entry) for entry in entries]

    def check_gone(self, runs: Sequence[RunEntry], error: Exception) -> KeyedManifest:
        """Return the manifest of now, of which not all the runs are any more: one was merged.

        Raises StoreCorrupt where they are: then the error, which a look at them met, is damage.
        """
        now = self.manifest()
        if not set(runs) <= set(now.runs):
            return now
        if isinstance(error, QuireError):
            raise error
        raise StoreCorrupt(
            f"keyed state {self.name!r}: {error}; restore the store from a backup, or drop the "
            "state, and fill it anew"
        ) from error

    def _again(
        self, manifest: KeyedManifest, error: Exception, *, is_latest: bool
    ) -> KeyedManifest:
        now = self.check_gone(manifest.runs, error)
        if not is_latest and now.version != manifest.version:
            raise StateConflict(
                f"keyed state {self.name!r} was changed by another transaction: roll back, and "
                "begin again"
            ) from error
        return now
