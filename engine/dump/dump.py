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

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice

from quire.arguments import check_first, check_limit
from quire.dump_items import (
    INDIRECT,
    Finding,
    Item,
    LedgerEntry,
    OpenItem,
    QueueItem,
    StoreItem,
    SubscriptionItem,
)
from quire.engine.layout import Layout, no_store
from quire.env import Env
from quire.errors import InvalidArgument, QuireError, StoreFailed
from quire.journal import Geometry, geometry_of
from quire.limits import DUMP_TRIES

from .history import History
from .journal_items import Names, journal_record
from .log import Log
from .messages import list_messages
from .pages import list_files, list_pages
from .queue_state import QueueState
from .records import (
    Listed,
    check_large_file,
    find_directories,
    list_sealed,
    list_tail,
    prepared_records,
)
from .saved import Saved, newest_lsn, newest_saved
from .source import Source
from .told import Owner, list_in_order


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
    _check_store(env, layout)
    return _unique(_dump(env, layout, choices))


def _unique(items: Iterable[Item]) -> Iterator[Item]:
    """Each finding once, though several lists come by its place."""
    told: set[Finding] = set()
    for item in items:
        if isinstance(item, Finding):
            if item in told:
                continue
            told.add(item)
        yield item


def _check_store(env: Env, layout: Layout) -> None:
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


def _dump(env: Env, layout: Layout, choices: Choices) -> Iterator[Item]:
    saved, findings = newest_saved(env, layout)
    geometry: Geometry | None = None if saved is None else saved.geometry
    yield from findings
    if geometry is None:
        try:
            geometry = geometry_of(env, layout.journal)
        except (QuireError, OSError) as error:
            lost = "everything: neither a checkpoint nor the journal can be read"
            yield Finding.of("journal", None, error, lost)
            return
    source = Source(env, layout, geometry)
    try:
        yield from _Dump(source, saved, choices).items()
    finally:
        source.close()


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
            yield from _queue_items(queue)
            yield from self._limited(self._queue(queue, history))
            yield from self._open(queue.name)
        if chosen.pages:
            yield from self._limited(self._pages(history))
            yield from self._limited(list_files(self._source, history))

    def _limited(self, items: Iterator[Item]) -> Iterator[Item]:
        """The first so many that are no findings."""
        limit = self._choices.limit
        count = 0
        for item in items:
            if not isinstance(item, Finding):
                if count == limit:
                    yield Finding("", None, False, f"there is more: only {limit} were asked for")
                    return
                count += 1
            yield item

    # Lists

    def _journal(self) -> Iterator[Item]:
        names = Names(self._saved)
        for found in self._new_log().read(self._choices.start):
            if isinstance(found, Finding):
                yield found
            else:
                names.learn(found)
                yield journal_record(self._source, names, found)

    def _queue(self, queue: QueueState, history: History) -> Iterator[Item]:
        chosen = self._choices
        for found in chain(
            list_sealed(self._source, queue, chosen.start),
            self._unsealed(queue),
            prepared_records(self._source, queue, history.state.prepared.values()),
        ):
            if isinstance(found, Finding):
                yield self._unless_moved(found)
                continue
            record, ref = found
            yield record
            if ref is None:
                continue
            if record.name == INDIRECT and record.released < record.messages:
                finding = check_large_file(self._source, ref)
                if finding is not None:
                    yield self._unless_moved(finding)
                    continue
            if chosen.messages:
                yield from list_messages(self._source, queue, ref, chosen.start, self._moved_on)

    def _unsealed(self, queue: QueueState) -> Iterator[Listed | Finding]:
        """As the journal has it, or in the order that the owner tells."""
        source, start, owner = self._source, self._choices.start, self._choices.owner
        if owner is None:
            return list_tail(source, queue, queue.tail_from(start))
        return list_in_order(source, queue, owner, start)

    def _pages(self, history: History) -> Iterator[Item]:
        for item in list_pages(self._source, self._saved, history, self._choices.owner):
            yield self._unless_moved(item) if isinstance(item, Finding) else item

    def _open(self, queue: str | None = None) -> Iterator[Item]:
        """The open transactions, or those that write to a queue."""
        owner = self._choices.owner
        for told in () if owner is None else owner.transactions:
            if queue is None or queue in told["queues"]:
                yield OpenItem(
                    told["id"], told["opened_us"], tuple(told["queues"]), told["messages"],
                    told["bytes"], told["in_flight"],
                )  # fmt: skip

    def _checkpoint(self) -> Iterator[Item]:
        saved = self._saved
        if saved is None:
            yield self._no_checkpoint()
            return
        yield saved.item
        for queue in saved.state.queues.values():
            yield from _queue_items(queue)
        for key, version in saved.state.ledger.items():
            yield LedgerEntry(key, version)

    def _summary(self) -> Iterator[Item]:
        source = self._source
        store_id, segment_bytes, page_size = source.geometry
        yield StoreItem(source.layout.path, f"{store_id:016x}", page_size, segment_bytes)
        if self._saved is not None:
            yield self._saved.item
        history = yield from self._fold()
        if history.journal is not None:
            yield history.journal
        for queue in history.state.queues.values():
            yield from _queue_items(queue)
            yield from _findings(self._queue(queue, history))
        yield from (history.prepared_item(xid) for xid in history.state.prepared)
        yield from self._open()
        yield from list_files(source, history)
        yield from _findings(self._pages(history))
        for key, version in islice(history.state.ledger.items(), self._choices.limit):
            yield LedgerEntry(key, version)

    # Reading

    def _new_log(self) -> Log:
        owner = self._choices.owner
        return Log(self._source, self._saved, None if owner is None else owner.end_lsn)

    def _fold(self) -> Generator[Item, None, History]:
        """The durable state; taken anew as long as an owner's checkpoints come in between."""
        tries = DUMP_TRIES
        while True:
            self._log = self._new_log()
            history = History(self._source, self._saved)
            history.read(self._log)
            now, _ = newest_saved(self._source.env, self._source.layout)
            tries -= 1
            same = self._saved is None or now is None or now.item.lsn == self._saved.item.lsn
            if same or not tries:
                break
            self._saved = now
        yield from history.findings
        if self._saved is None:
            yield self._no_checkpoint(history)
            yield from find_directories(self._source, history.by_id)
        return history

    def _moved_on(self) -> bool:
        """Whether the store has changed since it was read (DD4)."""
        saved = self._saved
        if (
            saved is not None
            and newest_lsn(self._source.env, self._source.layout) != saved.item.lsn
        ):
            return True
        return self._log.goes_on()

    def _unless_moved(self, finding: Finding) -> Finding:
        if not finding.damage or not self._moved_on():
            return finding
        text = f"{finding.lost}: not there any more; the store went on meanwhile, dump it again"
        return Finding(finding.file, finding.offset, False, text)

    def _no_checkpoint(self, history: History | None = None) -> Finding:
        """Damage, unless the store is one whose creation was not finished."""
        is_new = history is not None and not history.state.queues and not history.findings
        lost = "" if is_new else "what was read, and the order of what the journal does not tell"
        text = "there is no checkpoint that can be read"
        if is_new:
            text += ": the creation of the store was not finished"
        return Finding("checkpoint", None, not is_new, text, lost)


def _findings(items: Iterable[Item]) -> Iterator[Item]:
    return (item for item in items if isinstance(item, Finding))


def _queue_items(queue: QueueState) -> Iterator[Item]:
    config, end = queue.config, queue.end_position
    item = QueueItem(
        queue.queue_id, queue.name, None, None, None, None, end, queue.released.total,
        len(queue.directory), queue.certain,
    )  # fmt: skip
    if config is not None:
        item = replace(
            item, kind=config.kind, capacity=config.capacity, max_messages=config.max_messages,
            created_us=config.created_us, data_file=config.data_file,
            request_ids=len(queue.durable.requests),
        )  # fmt: skip
    yield item
    for subscription in queue.durable.subscriptions.values():
        done = subscription.done
        yield SubscriptionItem(
            queue.queue_id, queue.name, subscription.subscription_id, subscription.name,
            done.first_gap(0), done.total, max(end - done.total, 0),
        )  # fmt: skip
