"""A store in words: its journal, its queues' records, its pages, as they are on disk.

Everything is read from the files alone, with an owner beside or without one, whatever their state:

- No byte is changed, no lock is taken, nothing is recovered.
- The base is the newest checkpoint that verifies, and the journal after it. Without any, the
  journal alone, and record pages that a search finds.
- DD3: nothing is shown that its checksum does not cover. What is damaged is a `Finding` with file,
  place and loss, and the dump goes on behind it. No content of a file raises, but for a checkpoint
  that a newer release wrote: StoreVersion.
- DD4: what an owner recycles while it is being read is told as that, not as damage.
- Memory depends on the journal since the checkpoint and on the queues' directories, not on the
  backlog.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import chain, islice
from typing import Final

from msgspec import Struct

from quire.arguments import check_first, check_limit
from quire.engine.layout import Layout, no_store
from quire.engine.records.prepared_record import PrepareRecord
from quire.env import Env
from quire.errors import InvalidArgument, QuireError, StoreFailed
from quire.journal import geometry_of
from quire.limits import DUMP_TRIES

from .history import History, QueueState, newest_history
from .items import Described, Finding, Item
from .log import record_item
from .owner import Owner
from .pages import Pages, list_files
from .records import ListedRecords, find_directories, list_messages
from .source import DumpSource

_OF_OPEN: Final = ("opened_us", "queues", "messages", "bytes", "in_flight")
_NONE: Final = "there is no checkpoint that can be read"
_LOST: Final = "what was read, and the order of what the journal does not tell"
_NO_CHECKPOINT: Final = Finding("checkpoint", None, True, _NONE, _LOST)
_UNFINISHED: Final = Finding(
    "checkpoint", None, False, f"{_NONE}: the creation of the store was not finished"
)


class Choices(Struct, frozen=True):
    """The lists to make. Nothing chosen: a summary of everything."""

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
            raise InvalidArgument("messages are those of a queue: give the queue too")


def dump_files(env: Env, path: str, choices: Choices) -> Iterator[Item]:
    """Yield the items of the files.

    Raises StoreNotFound, StoreFailed, StoreVersion, InvalidArgument, QueueNotFound.
    """
    layout = Layout(path)
    try:
        names = env.list_directory(layout.path)
    except (FileNotFoundError, NotADirectoryError):
        names = []
    except OSError as error:
        text = f"the store at {layout.path} cannot be read: {error}; run this as its user"
        raise StoreFailed(text) from error
    if not {"checkpoint", "journal", "data"} & set(names):
        raise no_store(layout)
    return _unique(_dump(env, layout, choices))


def _unique(items: Iterator[Item]) -> Iterator[Item]:
    """Each finding once, though several lists come by its place."""
    seen: set[Finding] = set()
    for item in items:
        if isinstance(item, Finding):
            if item in seen:
                continue
            seen.add(item)
        yield item


def _dump(env: Env, layout: Layout, choices: Choices) -> Iterator[Item]:
    with closing(DumpSource(env, layout)) as source:
        dump = _Dump(source, choices)
        yield from dump.history.findings
        if dump.history.checkpoint is None:
            try:
                source.geometry = geometry_of(env, layout.journal)
            except (QuireError, OSError) as error:
                lost = "everything: neither a checkpoint nor the journal can be read"
                yield Finding.of("journal", None, error, lost)
                return
        yield from dump.items()


class _Dump:
    """One dump of one store."""

    def __init__(self, source: DumpSource, choices: Choices) -> None:
        self._source = source
        self._choices = choices
        self._until_lsn = None if choices.owner is None else choices.owner.end_lsn
        self.history = newest_history(source, self._until_lsn)

    def items(self) -> Iterator[Item]:
        chosen = self._choices
        lists = chosen.queue is not None or chosen.pages
        if not (chosen.journal or chosen.checkpoint or lists):
            yield from self._summary()
        if chosen.checkpoint:
            yield from self._checkpoint()
        if chosen.journal:
            yield from self._limited(self._journal())
        if lists:
            yield from self._fold(anew=chosen.journal)
        if chosen.queue is not None:
            queue = self.history.queue(chosen.queue)
            yield from queue.items()
            yield from self._limited(self._as_it_was(self._queue(queue)))
            yield from self._open(queue.name)
        if chosen.pages:
            yield from self._limited(self._pages())
            yield from self._limited(list_files(self._source, self.history))

    def _limited(self, items: Iterator[Item]) -> Iterator[Item]:
        """The first so many that are no findings."""
        limit, count = self._choices.limit, 0
        for item in items:
            count += not isinstance(item, Finding)
            if limit is not None and count > limit:
                yield Finding("", None, False, f"there is more: only {limit} were asked for")
                return
            yield item

    # Lists

    def _journal(self) -> Iterator[Item]:
        for found in self.history.read():
            if isinstance(found, Finding):
                yield found
            elif found.record.address >= self._choices.start:
                yield record_item(self._source, found, self.history.name_of)

    def _queue(self, queue: QueueState) -> Iterator[Item]:
        chosen, source = self._choices, self._source
        records = ListedRecords(source, queue)
        for found in chain(
            records.in_order(chosen.start, chosen.owner),
            records.prepared(self.history.state.prepared.values()),
        ):
            if isinstance(found, Finding):
                yield found
                continue
            record, ref = found
            yield record
            if ref is not None:
                yield from list_messages(source, queue, ref, chosen.start, shown=chosen.messages)

    def _pages(self) -> Iterator[Item]:
        return self._as_it_was(Pages(self._source, self.history, self._choices.owner).items())

    def _open(self, queue: str | None = None) -> Iterator[Item]:
        """The open transactions, or those that write to a queue."""
        owner = self._choices.owner
        for transaction in () if owner is None else owner.transactions:
            if queue is None or queue in transaction["queues"]:
                fields = {"transaction": transaction["id"]} | {
                    name: transaction[name] for name in _OF_OPEN
                }
                yield Described("open", fields)

    def _checkpoint(self) -> Iterator[Item]:
        if self.history.checkpoint is None:
            yield _NO_CHECKPOINT
            return
        yield from self.history.checkpoint_item()
        for queue in self.history.queues.values():
            yield from queue.items()
        yield from _ledger(self.history.state.ledger, None)

    def _summary(self) -> Iterator[Item]:
        source = self._source
        store_id, segment_bytes, page_size = source.geometry
        sizes = {"page_size": page_size, "segment_bytes": segment_bytes}
        own = {"path": source.layout.path, "store_id": f"{store_id:016x}"}
        yield Described("store", own | sizes)
        yield from self.history.checkpoint_item()
        yield from self._fold()
        history = self.history
        yield history.journal
        for queue in history.queues.values():
            yield from queue.items()
            yield from _findings(self._as_it_was(self._queue(queue)))
        yield from (_prepared(record, history) for record in history.state.prepared.values())
        yield from self._open()
        yield from list_files(source, history)
        yield from _findings(self._pages())
        yield from _ledger(history.state.ledger, self._choices.limit)

    # Reading

    def _fold(self, *, anew: bool = False) -> Iterator[Item]:
        """The durable state; taken anew as long as an owner's checkpoints come in between."""
        for _ in range(DUMP_TRIES):
            if anew:
                self.history = newest_history(self._source, self._until_lsn)
            for _ in self.history.read():
                pass
            anew = self.history.is_outdated()
            if not anew:
                break
        history = self.history
        yield from history.findings
        if history.checkpoint is None:
            yield _NO_CHECKPOINT if history.queues or history.findings else _UNFINISHED
            yield from find_directories(self._source, history.by_id)

    def _as_it_was(self, items: Iterator[Item]) -> Iterator[Item]:
        """Turn damage that may have been moved or released since the reading into a note (DD4)."""
        text = "not at this place any more; the store went on meanwhile: dump it again, or verify"
        for item in items:
            if isinstance(item, Finding) and item.damage and self.history.went_on():
                yield Finding(item.file, item.offset, False, f"{item.lost}: {text}")
            else:
                yield item


def _findings(items: Iterator[Item]) -> Iterator[Item]:
    return (item for item in items if isinstance(item, Finding))


def _ledger(ledger: dict[str, int], limit: int | None) -> Iterator[Item]:
    for key, version in islice(ledger.items(), limit):
        yield Described("ledger", {"key": key, "version": version})


def _prepared(record: PrepareRecord, history: History) -> Described:
    """A transaction in doubt, as a summary has it."""
    queue_ids = sorted({part.queue_id for part in record.parts})
    fields = {
        "xid": record.xid,
        "prepared_us": record.prepared_us,
        "messages": sum(part.count for part in record.parts),
        "queues": [history.by_id(queue_id).title for queue_id in queue_ids],
        "taken": sum(read.end - read.start for read in record.reads[: record.taken]),
    }
    return Described("prepared", fields)
