"""The durable state in memory: a fold over a checkpoint and the journal's records.

- F1: the same functions change the state live and in recovery, in journal order.
- F2: each queue is changed under its own lock; no two locks at a time.
- F3: what a change sets free is handed to `Places`, which gives pages and files back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from quire.arguments import check_name, split_source
from quire.env import Env
from quire.errors import AlreadyCommitted, QueueNotFound, StoreCorrupt

from . import format
from .commit_record import CommitRecord, Entry, Part, Read
from .places import Places
from .prepared import Prepared, PreparedTransactions
from .prepared_record import DecisionRecord
from .queue import Queue, QueueConfig, Reading
from .record_page import RecordPages
from .strategies import Strategy
from .subscription import Subscription

QueueParts = list[tuple[Queue, list[Part]]]


class State:
    """See the module."""

    def __init__(self, env: Env, places: Places, pages: RecordPages, strategy: Strategy) -> None:
        self.strategy = strategy
        self._env = env
        self._sources: dict[str, tuple[Queue, Subscription]] = {}
        self.places = places
        self.pages = pages
        self.queues: dict[int, Queue] = {}
        self.prepared = PreparedTransactions(self.queues, places)
        self.names: dict[str, Queue] = {}
        self.ledger: dict[str, int] = {}
        self.placed: dict[str, int] = {}  # versions of commits that are placed and not yet applied
        self.next_id = 1
        self.last_time_us = 0
        self.next_queue_id = 1
        self.next_subscription_id = 1

    # Look-ups

    def queue(self, name: str) -> Queue:
        """By name. Raises `QueueNotFound`, and `InvalidArgument` for what cannot be a name."""
        try:
            return self.names[name]
        except (KeyError, TypeError):
            check_name(name, "queue")  # "queue/subscription", bytes, a list, ...
            raise QueueNotFound(
                f"there is no queue {name!r}: create it with create_queue({name!r})"
            ) from None

    def source(self, source: str) -> tuple[Queue, Subscription]:
        """The queue and subscription that "queue" or "queue/subscription" names."""
        known = self._sources.get(source) if isinstance(source, str) else None
        if known is None or known[0].dropped or known[1].removed:
            queue_name, subscription_name = split_source(source)
            queue = self.queue(queue_name)
            known = self._sources[source] = queue, queue.subscription(subscription_name)
        return known

    def take_ids(self, messages: int) -> tuple[int, int]:
        """The first of so many new ids, and the commit time; called in commit order only."""
        first = self.next_id
        self.next_id = first + messages
        now = self._env.now_us()
        if now > self.last_time_us:
            self.last_time_us = now
        return first, self.last_time_us

    def check_entries(self, entries: Sequence[Entry]) -> None:
        """Whether ledger entries may be committed next. Raises AlreadyCommitted, KeyHeld."""
        for entry in entries:
            last = max(self.ledger.get(entry.key, -1), self.placed.get(entry.key, -1))
            if entry.version <= last:
                raise AlreadyCommitted(
                    f"the ledger holds {entry.key!r} at version {last}: version {entry.version} "
                    "has been committed before; roll back, its effect is there"
                )
        self.prepared.check_entries(entries)

    def at_hand(self, reads: Sequence[Read]) -> bool:
        """Whether no record page needs to be read to tell what is released, as usual."""
        queues = self.queues
        for queue_id, _, start, end in reads:
            reader = queues.get(queue_id)
            if reader is not None and not reader.records.at_hand(start, end):
                return False
        return True

    @contextmanager
    def releasing(self, reads: Sequence[Read]) -> Iterator[None]:
        """While a change is made that reads these (Q4 of `queue`). Raises StoreCorrupt."""
        by_queue: dict[int, list[Reading]] = {}
        if not self.at_hand(reads):
            for queue_id, subscription_id, start, end in reads:
                by_queue.setdefault(queue_id, []).append((subscription_id, start, end))
        with ExitStack() as held:
            for queue_id, own in by_queue.items():
                reader = self.queues.get(queue_id)
                if reader is not None:
                    held.enter_context(reader.releasing(own))
            yield

    # Commits

    def apply_commit(
        self,
        groups: QueueParts,
        reads: Sequence[Read],
        entries: Sequence[Entry],
        first_id: int,
        time_us: int,
        address: int,
        live: bool,
        transaction_id: int = 0,
        prepared: bool = False,
    ) -> None:
        """A transaction's journal record is durable at the address.

        `live`: its messages and places are accounted as those of an open transaction until now.
        `prepared`: as those of a prepared one. `transaction_id`: by which the queues' logs know it.
        """
        for queue, parts in groups:
            with queue.lock:
                position = start = queue.end_position
                messages = charge = 0
                for part in parts:
                    place = part.address + address if part.kind == format.INLINE else part.address
                    count = part.count
                    queue.append(
                        (
                            position, first_id, time_us, place, part.charge, part.checksum,
                            part.length, count, part.kind,
                        )
                    )  # fmt: skip
                    position += count
                    first_id += count
                    messages += count
                    charge += part.charge
                if prepared:
                    queue.space.commit_prepared(charge, messages)
                elif live:
                    queue.space.commit(charge, messages)
                else:
                    queue.space.recovered(charge, messages)
                if transaction_id:
                    queue.log.commit(transaction_id, start, position)
                queue.wake()
            for part in parts:
                if part.kind != format.INLINE and not prepared:
                    self.places.commit(part, queue.name, live)
        self.apply_reads(reads)
        for entry in entries:
            self.ledger[entry.key] = entry.version
            self.placed.pop(entry.key, None)

    def apply_reads(self, reads: Sequence[Read]) -> None:
        """A committed transaction has read these."""
        for read in reads:
            reader = self.queues.get(read.queue_id)
            if reader is None:
                continue
            with reader.lock:
                freed = reader.acknowledge(read.subscription_id, read.start, read.end)
            if freed:
                self.places.free(freed)

    def recover_commit(self, record: CommitRecord, address: int) -> None:
        """Fold a COMMIT record of the journal."""
        groups: QueueParts = []
        messages = 0
        for part in record.parts:
            queue = self.queues.get(part.queue_id)
            if queue is None:
                raise StoreCorrupt(
                    f"the commit at LSN {address:#x} names queue {part.queue_id}, unknown"
                )
            if not groups or groups[-1][0] is not queue:
                groups.append((queue, []))
            groups[-1][1].append(part)
            messages += part.count
        self.apply_commit(
            groups,
            record.reads,
            record.entries,
            record.first_id,
            record.time_us,
            address,
            live=False,
        )
        self.next_id = max(self.next_id, record.first_id + messages)
        self.last_time_us = max(self.last_time_us, record.time_us)

    def commit_prepared(self, prepared: Prepared, first_id: int, time_us: int) -> None:
        """The decision to commit is durable: the transaction's messages are the queues' now."""
        record = prepared.record
        self.apply_commit(
            prepared.groups, record.reads, record.entries, first_id, time_us, 0,
            live=False, transaction_id=prepared.transaction_id, prepared=True,
        )  # fmt: skip
        self.prepared.committed(prepared, first_id)

    def recover_decision(self, kind: int, record: DecisionRecord, where: str) -> None:
        """Fold a COMMIT_PREPARED or ROLLBACK_PREPARED record of the journal."""
        prepared = self.prepared.recover_decision(record.xid, record.messages, where)
        if kind == format.ROLLBACK_PREPARED:
            self.prepared.roll_back(prepared)
            return
        self.commit_prepared(prepared, record.first_id, record.time_us)
        self.next_id = max(self.next_id, record.first_id + record.messages)
        self.last_time_us = max(self.last_time_us, record.time_us)

    # Queues and subscriptions

    def create_queue(self, body: dict[str, Any]) -> None:
        config = QueueConfig(
            queue_id=body["queue_id"],
            name=body["name"],
            kind=body["kind"],
            capacity=body["capacity"],
            max_messages=body["max_messages"],
            created_us=body["created_us"],
            subscription_id=body["subscription_id"],
            data_file=body.get("data_file", 0),  # once there was no more than one
        )
        if not 0 <= config.data_file < len(self.places.managers):
            raise ValueError(f"queue {config.name!r} is in data file {config.data_file}")
        queue = Queue(config, self.pages, self.strategy)
        self.queues[config.queue_id] = queue
        self.names[config.name] = queue
        self.next_queue_id = max(self.next_queue_id, config.queue_id + 1)
        self.next_subscription_id = max(self.next_subscription_id, config.subscription_id + 1)

    def drop_queue(self, body: dict[str, Any]) -> None:
        self._sources.clear()
        queue = self.queues.pop(body["queue_id"])
        del self.names[queue.name]
        with queue.lock:
            queue.dropped = True
            kept = [ref for ref in queue.records if queue.unreleased(ref)]
            self.pages.retired += [entry.page for entry in queue.records.directory]
            queue.wake_all()
        self.places.free(kept)

    def subscribe(self, body: dict[str, Any]) -> None:
        queue = self.queues[body["queue_id"]]
        with queue.lock:
            done = queue.start_of(body["start"])
            queue.add_subscription(body["subscription_id"], body["name"], done)
            freed = queue.release_read()
        self.places.free(freed)
        self.next_subscription_id = max(self.next_subscription_id, body["subscription_id"] + 1)

    def unsubscribe(self, body: dict[str, Any]) -> None:
        self._sources.clear()
        queue = self.queues[body["queue_id"]]
        with queue.lock:
            freed = queue.remove_subscription(body["subscription_id"])
            queue.wake()
        self.places.free(freed)
