"""Looking through a keyed state for what is missing or damaged: `KeyedState.verify`."""

from __future__ import annotations

from quire.errors import QuireError, StoreCorrupt

from .format import LAST_HASH
from .keyed_reader import KeyedReader
from .limits import WINDOW_BYTES
from .manifest import RunEntry
from .run import KeyedRun
from .run_files import RunGone


def findings_of(reader: KeyedReader) -> list[str]:
    """Return what is wrong with the runs of a state, each of which is read as a whole."""
    found: dict[RunEntry, str] = {}
    named = reader.manifest().runs
    for entry in named:
        try:
            reader.files.message_id(entry)
            _read(reader.files.open_anew(entry), entry)
        except (RunGone, QuireError) as error:
            where, text = reader.files.where(entry), str(error)
            found[entry] = text if where in text else f"{where}: {text}"
    now = reader.manifest().runs  # some were merged meanwhile
    texts = [text for entry, text in found.items() if entry in now]
    try:
        strays = _strays(reader)
    except StoreCorrupt as error:  # a file that a run is in is one that messages are read from
        return texts or [str(error)]
    return texts + [
        f"{reader.values}: message {message} is of no run: somebody else has put it there, or a "
        "merge has left it"
        for message in strays
    ]


def _strays(reader: KeyedReader) -> list[int]:
    """Return the messages that no run names, and that are there before and after that is seen."""
    before = reader.files.messages()
    names = {run.name for run in reader.manifest().runs}
    strays = [message for message, name in before if name not in names]
    after = {message for message, _ in reader.files.messages()} if strays else set()
    return [message for message in strays if message in after]


def _read(run: KeyedRun, entry: RunEntry) -> None:
    """Read all of a run. Raises StoreCorrupt."""
    windows = max(1, -(-entry.size // WINDOW_BYTES))
    step = -(-(LAST_HASH + 1) // windows)
    rows = deleted = 0
    for first in range(0, LAST_HASH + 1, step):
        part = run.between(first, min(first + step - 1, LAST_HASH))
        rows, deleted = rows + len(part.hashes), deleted + int(part.deleted.sum())
        if (part.hashes[1:] < part.hashes[:-1]).any():
            raise StoreCorrupt(f"{run.where}: its rows are not in order")
    timers = run.count_timers()
    if (rows, deleted, timers) != (run.rows, run.deleted, run.timers):
        raise StoreCorrupt(
            f"{run.where}: {rows} rows, {deleted} of them deleted, and {timers} timers, not as its "
            "trailer says"
        )
