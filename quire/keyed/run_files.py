"""The runs of a keyed state in its store: messages of its queue, small ones and files.

KF1. A run that is not there any more, as a merge was faster, is `RunGone`: what the manifest says
     meanwhile is looked at anew. Where that still names the run it is damaged, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Protocol

from quire.env import Env
from quire.errors import StoreCorrupt
from quire.interface.transaction import Transaction
from quire.messages.message import Message
from quire.selectors.template import Template

from .format import LAST_HASH
from .fragment_files import FragmentFiles, SeenFragments
from .limits import MOST_MESSAGES
from .manifest import RunEntry
from .open_runs import OpenRuns, run_in_memory, run_of_file
from .row_layout import RowLayout
from .run import KeyedRun
from .run_output import RunOutput, WrittenRun


class RunGone(Exception):
    """A run that the manifest named is not in the store any more, or damaged."""


class RunStore(Protocol):
    """A store, as far as runs have to do with it."""

    @property
    def path(self) -> str:
        """Its directory."""

    @property
    def browse(self) -> Callable[..., Iterable[Message]]:
        """Looks at messages."""


class RunFiles:
    """Opens the runs of one keyed state, and keeps some open. Thread-safe."""

    def __init__(
        self,
        store: RunStore,
        store_id: int,
        queue: str,
        env: Env,
        files: FragmentFiles | None = None,
    ) -> None:
        """`files`: the way to the store's files, where it is not its directory."""
        self.queue: Final = queue
        self._store = store
        self._store_id = store_id
        self._env = env
        self._directory = ltds_directory(store.path)
        self._files = files or SeenFragments(env, self._directory)
        self._open = OpenRuns()

    def get(self, entry: RunEntry) -> KeyedRun:
        """Return an open run. Raises RunGone."""
        run = self._open.get(entry.id)
        if run is None:
            try:
                run = self.open_anew(entry)
            except StoreCorrupt as error:
                raise RunGone(str(error)) from error
            self._open.keep(entry.id, run)
        return run

    def retain(self, runs: Iterable[RunEntry]) -> None:
        """Let go of all open runs but these."""
        self._open.retain({run.id for run in runs})

    def open_anew(self, entry: RunEntry) -> KeyedRun:
        """Return a run that nobody else has. Raises RunGone, StoreCorrupt."""
        return self._from_file(entry) if entry.file else self._from_message(entry)

    def new_run(
        self,
        layout: RowLayout,
        expected_bytes: int,
        expected_rows: int,
        hashes: tuple[int, int] = (0, LAST_HASH),
    ) -> RunOutput:
        """Return the writer of a new run, of as many bytes and rows, or fewer."""
        return RunOutput(
            self._files, self.queue, self._store_id, layout, self._env.random_u64(), expected_bytes,
            expected_rows, hashes,
        )  # fmt: skip

    def put(self, txn: Transaction, run: WrittenRun, low: int, high: int) -> None:
        """Put a run, with the versions that are in it, and name it in the manifest."""
        entry = RunEntry(
            run.id, low, high, run.file, run.rows, run.deleted, run.timers, run.size, run.first,
            run.last, run.size,
        )  # fmt: skip
        if run.file:
            txn.integration.adopt(self.queue, run.file)
        else:
            txn.put(self.queue, run.payload, correlation_id=entry.name)
            self._open.keep(run.id, run_in_memory(run.payload, run.id, self.where(entry)))
        txn.set_value(self.queue, entry.key, entry.value())

    def where(self, entry: RunEntry) -> str:
        """Return the place of a run, for errors."""
        return place_of_run(self.queue, self._directory, entry)

    def message_id(self, entry: RunEntry) -> int:
        """Return the id of a run's message. Raises RunGone."""
        return self._message(entry).id

    def payloads(self, runs: Iterable[RunEntry]) -> dict[int, bytes]:
        """Return the bytes of those that are no files, by their ids. Raises RunGone."""
        return {run.id: self._payload(run) for run in runs if not run.file}

    def _payload(self, entry: RunEntry) -> bytes:
        run = self._open.get(entry.id)
        return self._message(entry).payload if run is None else bytes(run.whole())

    def messages(self) -> list[tuple[int, str | None]]:
        """Return the id of each message there is, and which run it is."""
        found = self._store.browse(self.queue, MOST_MESSAGES)
        return [(message.id, message.correlation_id) for message in found]

    def _message(self, entry: RunEntry) -> Message:
        for found in self._store.browse(self.queue, 1, where=Template(correlation_id=entry.name)):
            return found
        raise RunGone(
            f"{self.where(entry)}: its message is not there (somebody may have got it, or have "
            "purged or renamed the queue)"
        )

    def _from_message(self, entry: RunEntry) -> KeyedRun:
        return run_in_memory(self._message(entry).payload, entry.id, self.where(entry))

    def _from_file(self, entry: RunEntry) -> KeyedRun:
        reader = self._files.open_large(self.queue, entry.file, self._store_id)
        return run_of_file(reader, entry, self.where(entry))


def place_of_run(queue: str, directory: str, entry: RunEntry) -> str:
    """Return where a run is, for errors."""
    place = f"{queue}: run {entry.name}"
    return f"{place} ({directory}/{entry.file:016x}.ltds)" if entry.file else place


def ltds_directory(path: str) -> str:
    """Return where the store at the path keeps the files of large transactions, and of runs."""
    return f"{path}/ltds"
