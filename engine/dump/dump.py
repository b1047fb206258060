"""A store in words: its journal, its queues' records, its pages, as they are on disk.

Everything is read from the files alone, with an owner beside or without one, whatever their state:

- DD1: no byte is changed, no lock is taken, nothing is recovered.
- DD2: the base is the newest checkpoint that verifies, and the journal after it. Without any, the
  journal alone, and record pages that a search finds.
- DD3: nothing is shown that its checksum does not cover. What is damaged is a `Finding` with file,
  place and loss, and the dump goes on behind it. No content of a file raises, but for a checkpoint
  that a newer release wrote: StoreVersion.
- DD4: what an owner recycles while it is being read is told as that, not as damage.
- DD5: memory depends on the journal since the checkpoint and on the queues' directories, not on the
  backlog.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

from quire.arguments import check_first, check_limit
from quire.dump_items import INDIRECT, Described, Finding, Item
from quire.engine.layout import Layout, no_store
from quire.engine.records.prepared_record import PrepareRecord
from quire.env import Env
from quire.errors import InvalidArgument, QuireError, StoreFailed
from quire.journal import geometry_of
from quire.limits import DUMP_TRIES

from .history import History
from .log import Log, Names
from .messages import list_messages
from .pages import list_files, list_pages
from .queue_state import QueueState
from .records import check_large_file, find_directories, list_sealed, prepared_records
from .saved import Saved, newest_lsn, newest_saved
from .source import Source
from .told import Owner, list_in_order

_OF_OPEN: Final = ("opened_us", "queues", "messages", "bytes", "in_flight")


@dataclass(frozen=True, slots=True)
class Choices:
    """What to list. Nothing chosen: a summary of everything."""

    journal: bool = False
    queue: str | None = None
    messages: bool = False  # of the queue
    pages: bool = False
    checkpoint: bool = False
    limit: int | None = None  # of each list
    start: int = 0  # an LSN for the journal, a position for the queue
    owner: Owner | None = None  # what it says, where there is one

    def __post_init__(self) -> None:
        if self.limit is not None:
            check_limit(self.limit)
        check_first(self.start)
        if self.messages and self.queue is None:
            raise InvalidArgument("messages are those of a queue: name one")


def dump_files(env: Env, path: str, choices: Choices) -> Iterator[Item]:
    """What the files say.

    Raises StoreNotFound, StoreFailed, StoreVersion, InvalidArgument, QueueNotFound.
    """
    layout = Layout(path)
    try:
        names = env.list_directory(layout.path)
    except (FileNotFoundError, NotADirectoryError):
        names = []
    except OSError as error:
        raise StoreFailed(
            f"the store at {layout.path} cannot be read: {error}; run this as its user"
        ) from error
    if not {"checkpoint", "journal", "data"} & set(names):
        raise no_store(layout)
    return _unique(_dump(env, layout, choices))


def _unique(items: Iterator[Item]) -> Iterator[Item]:
    """Each finding once, though several lists come by its place."""
    told: set[Finding] = set()
    for item in items:
        if not isinstance(item, Finding):
            yield item
        elif item not in told:
            told.add(item)
            yield item


def _dump(env: Env, layout: Layout, choices: Choices) -> Iterator[Item]:
    saved, findings = newest_saved(env, layout)
    yield from findings
    try:
        geometry = geometry_of(env, layout.journal) if saved is None else saved.geometry
    except (QuireError, OSError) as error:
        lost = "everything: neither a checkpoint nor the journal can be read"
        yield Finding.of("journal", None, error, lost)
        return
    with closing(Source(env, layout, geometry)) as source:
        yield from _Dump(source, saved, choices).items()


class _Dump:
    """One dump of one store."""

    def __init__(self, source: Source, saved: Saved | None, choices: Choices) -> None:
        self._source = source
        self._saved = saved
        self._choices = choices
        self._log = self._new_log()

    def items(self) -> Iterator[Item]:
        chosen = self._choices
        if not (chosen.journal or chosen.queue is not None or chosen.pages or chosen.checkpoint):
            yield from self._summary()
            return
        if chosen.checkpoint:
            yield from self._checkpoint()
        if chosen.journal:
            yield from self._limited(self._journal())
        if chosen.queue is None and not chosen.pages:
            return
        history = yield from self._fold()
        if chosen.queue is not None:
            queue = history.queue(chosen.queue)
            yield from queue.items()
            yield from self._limited(self._as_it_was(self._queue(queue, history)))
            yield from self._open(queue.name)
        if chosen.pages:
            yield from self._limited(self._as_it_was(self._pages(history)))
            yield from self._limited(list_files(self._source, history))

    def _limited(self, items: Iterator[Item]) -> Iterator[Item]:
        """The first so many that are no findings."""
        limit, count = self._choices.limit, 0
        for item in items:
            if not isinstance(item, Finding):
                if count == limit:
                    yield Finding("", None, False, f"there is more: only {limit} were asked for")
                    return
                count += 1
            yield item

    # Lists

    def _journal(self) -> Iterator[Item]:
        names = Names(self._source, self._saved)
        for found in self._new_log().read(self._choices.start):
            yield found if isinstance(found, Finding) else names.record(found)

    def _queue(self, queue: QueueState, history: History) -> Iterator[Item]:
        chosen, source = self._choices, self._source
        for found in chain(
            list_sealed(source, queue, chosen.start),
            list_in_order(source, queue, chosen.owner, chosen.start),
            prepared_records(source, queue, history.state.prepared.values()),
        ):
            if isinstance(found, Finding):
                yield found
                continue
            record, ref = found
            yield record
            if ref is None:
                continue
            if record.name == INDIRECT and record.released < record.messages:
                finding = check_large_file(source, ref)
                if finding is not None:
                    yield finding
                    continue
            if chosen.messages:
                yield from list_messages(source, queue, ref, chosen.start)

    def _pages(self, history: History) -> Iterator[Item]:
        return list_pages(self._source, self._saved, history, self._choices.owner)

    def _open(self, queue: str | None = None) -> Iterator[Item]:
        """The open transactions, or those that write to a queue."""
        owner = self._choices.owner
        for told in () if owner is None else owner.transactions:
            if queue is None or queue in told["queues"]:
                said = {"transaction": told["id"]} | {name: told[name] for name in _OF_OPEN}
                yield Described("open", said)

    def _checkpoint(self) -> Iterator[Item]:
        saved = self._saved
        if saved is None:
            yield self._no_checkpoint()
            return
        yield saved.item
        for queue in saved.beside.queues.values():
            yield from queue.items()
        yield from _ledger(saved.state.ledger, None)

    def _summary(self) -> Iterator[Item]:
        source = self._source
        store_id, segment_bytes, page_size = source.geometry
        sizes = {"page_size": page_size, "segment_bytes": segment_bytes}
        own = {"path": source.layout.path, "store_id": f"{store_id:016x}"}
        yield Described("store", own | sizes)
        if self._saved is not None:
            yield self._saved.item
        history = yield from self._fold()
        yield history.journal
        for queue in history.queues.values():
            yield from queue.items()
            yield from _findings(self._as_it_was(self._queue(queue, history)))
        yield from (_prepared(record, history) for record in history.state.prepared.values())
        yield from self._open()
        yield from list_files(source, history)
        yield from _findings(self._as_it_was(self._pages(history)))
        yield from _ledger(history.state.ledger, self._choices.limit)

    # Reading

    def _new_log(self) -> Log:
        owner = self._choices.owner
        return Log(self._source, self._saved, None if owner is None else owner.end_lsn)

    def _fold(self) -> Generator[Item, None, History]:
        """The durable state; taken anew as long as an owner's checkpoints come in between."""
        history = History(self._source, self._saved, self._log)
        for _ in range(DUMP_TRIES):
            now, _ = newest_saved(self._source.env, self._source.layout)
            if self._saved is None or now is None or now.lsn == self._saved.lsn:
                break
            self._saved, self._log = now, self._new_log()
            history = History(self._source, self._saved, self._log)
        yield from history.findings
        if self._saved is None:
            yield self._no_checkpoint(history)
            yield from find_directories(self._source, history.by_id)
        return history

    def _moved_on(self) -> bool:
        saved, source = self._saved, self._source
        is_newer = saved is not None and newest_lsn(source.env, source.layout) != saved.lsn
        return is_newer or self._log.goes_on()

    def _as_it_was(self, items: Iterator[Item]) -> Iterator[Item]:
        """What is damaged now may have been moved or released since the store was read (DD4)."""
        text = "not at this place any more; the store went on meanwhile: dump it again, or verify"
        for item in items:
            if isinstance(item, Finding) and item.damage and self._moved_on():
                yield Finding(item.file, item.offset, False, f"{item.lost}: {text}")
            else:
                yield item

    def _no_checkpoint(self, history: History | None = None) -> Finding:
        """Damage, unless the store is one whose creation was not finished."""
        text = "there is no checkpoint that can be read"
        if history is not None and not history.queues and not history.findings:
            text += ": the creation of the store was not finished"
            return Finding("checkpoint", None, False, text)
        lost = "what was read, and the order of what the journal does not tell"
        return Finding("checkpoint", None, True, text, lost)


def _findings(items: Iterator[Item]) -> Iterator[Item]:
    return (item for item in items if isinstance(item, Finding))


def _ledger(ledger: dict[str, int], limit: int | None) -> Iterator[Item]:
    for key, version in islice(ledger.items(), limit):
        yield Described("ledger", {"key": key, "version": version})


def _prepared(record: PrepareRecord, history: History) -> Described:
    """A transaction in doubt, as a summary has it."""
    said = {
        "xid": record.xid,
        "prepared_us": record.prepared_us,
        "messages": sum(part.count for part in record.parts),
        "queues": [history.title(i) for i in sorted({part.queue_id for part in record.parts})],
        "taken": sum(read.end - read.start for read in record.reads[: record.taken]),
    }
    return Described("prepared", said)
