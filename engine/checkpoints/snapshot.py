"""The durable state at one LSN, as a checkpoint holds it: taken between two commits, and loaded.

It is small whatever the backlog. Lists that only grow at their end are noted by their length, the
rest is copied.
"""

from __future__ import annotations

import struct
from binascii import a2b_base64, b2a_base64
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from msgspec import Struct, field

from quire.engine.layout import Layout
from quire.engine.live_state.engine_state import EngineState
from quire.engine.options import FIXED
from quire.engine.pages.free_space import FreeSpace
from quire.engine.pages.unshipped_places import UnshippedSnapshot
from quire.engine.queues.queue import Queue
from quire.engine.records import format
from quire.engine.records.block_ref import BlockRef, packed
from quire.engine.records.checkpoint_file import (
    Checkpoint,
    IntegerRuns,
    to_numbers,
    to_texts,
    write_checkpoint,
)
from quire.engine.records.packed_records import PackedRecords
from quire.engine.state.attempts import AttemptRow, Attempts
from quire.engine.state.catalog import (
    QUEUE,
    SUBSCRIPTION,
    add_queue,
    check_fields,
    index_catalog,
    queue_config,
    subscription_form,
    type_named,
)
from quire.engine.state.durable_state import (
    CatalogEntry,
    DurableQueue,
    DurableState,
    DurableSubscription,
    Effects,
    PageEntry,
)
from quire.engine.state.fold import Fold, prepared_in
from quire.engine.state.requests import Known, Requests
from quire.engine.state.sections.kinds import pack_prepared
from quire.env import Env
from quire.errors import StoreVersion
from quire.intervals import IntervalSet
from quire.ltds import is_foreign

from .space_maps import SpaceSnapshot, spaces_document, unshipped_document

# Of the durable state and of the document, by the same names.
_COUNTERS = ("next_id", "last_time_us", "next_queue_id", "next_subscription_id")

_TAIL_ROW = struct.Struct(f"<{format.RECORD_BYTES // 8}q")  # a record, as numbers

# What is described of a store, of a queue and of a subscription: see `format`. A name that is not
# here is a newer release's.
_STORE_NAMES: Final = frozenset({
    *_COUNTERS, *FIXED, "created_us", "restart_lsn", "number", "ledger", "released", "catalog",
    "ltds", "queues", "held", "spaces", "unshipped",
})  # fmt: skip
_QUEUE_NAMES: Final = frozenset({
    "queue_id", "end_position", "used", "released", "directory", "subscriptions", "tail",
    "requests",
})  # fmt: skip
_SUBSCRIPTION_NAMES: Final = frozenset({"subscription_id", "done", "attempts", "numbers"})


class QueueSnapshot(Struct):
    """One queue. What the checkpoint makes of its records is filled in while it is written."""

    queue: Queue
    tail: int
    end_position: int
    used: int
    released: IntervalSet
    subscriptions: list[SubscriptionRow]
    directory: list[PageEntry]
    requests: dict[str, Known] | None  # None: it keeps none
    tail_copy: PackedRecords | None = None  # where a checkpoint may be made meanwhile
    # Filled by the checkpoint:
    replaced: PageEntry | None = None
    entries: list[PageEntry] = field(default_factory=list)
    rewritten: dict[PageEntry, PageEntry] = field(default_factory=dict)
    moved: list[tuple[list[BlockRef], BlockRef]] = field(default_factory=list)
    kept: list[BlockRef] = field(default_factory=list)  # records that stay in the tail (L5)

    @classmethod
    def of(cls, queue: Queue, *, copies_tail: bool = False) -> QueueSnapshot:
        durable = queue.durable
        if queue.is_volatile:
            return cls._empty(queue)
        has_requests = bool(durable.config.properties.most_requests)
        with queue.lock:
            released = durable.released.copy()
            return cls(
                queue=queue,
                tail=len(durable.tail),
                end_position=durable.end_position,
                used=queue.space.used - queue.space.pending_bytes,
                released=released,
                subscriptions=[
                    SubscriptionRow.of(s, durable) for s in durable.subscriptions.values()
                ],
                directory=list(durable.directory),
                requests=durable.requests.copy_known() if has_requests else None,
                tail_copy=durable.tail.copy() if copies_tail else None,
            )

    @classmethod
    def _empty(cls, queue: Queue) -> QueueSnapshot:
        """Take of a volatile queue only that it is there, and its subscriptions."""
        durable = queue.durable
        subscriptions = [
            SubscriptionRow(
                s.subscription_id, None if s.done is durable.released else IntervalSet(), [], []
            )
            for s in durable.subscriptions.values()
        ]
        return cls(queue, 0, 0, 0, IntervalSet(), subscriptions, [], None)

    def keep_tail(self) -> None:
        """Keep all records that are in no record page in the tail, but for released ones (L5)."""
        copy = self.tail_copy
        tail = self.queue.records.tail.between(0, self.tail) if copy is None else iter(copy)
        self.kept = [ref for ref in tail if not self.released.covers(ref.position, ref.end)]

    @property
    def sealed_end(self) -> int:
        """The position behind the messages that are in record pages then."""
        return self.kept[0].position if self.kept else self.end_position

    def kept_segments(self, segment_bytes: int) -> set[int]:
        """The journal's segments that hold unread blocks of the records that stay in the tail."""
        return {
            ref.address // segment_bytes
            for ref in self.kept
            if ref.kind == format.INLINE and not self.released.covers(ref.position, ref.end)
        }

    def to_replace(self, capacity: int) -> PageEntry | None:
        """The last record page, if the checkpoint fills it up with the tail's first records."""
        last = self.directory[-1] if self.directory and self.tail else None
        return last if last is not None and last.records < capacity else None

    def document(self, numbers: IntegerRuns) -> dict[str, Any]:
        pages = [self.rewritten.get(page, page) for page in self.directory if page != self.replaced]
        document = {
            "queue_id": self.queue.queue_id,
            "end_position": self.end_position,
            "used": self.used,
            "released": numbers.add_runs(self.released.to_list()),
            "directory": numbers.add([*pages, *self.entries]),
            "subscriptions": [each.document(numbers) for each in self.subscriptions],
        }
        if self.kept:
            document["tail"] = numbers.add(_TAIL_ROW.iter_unpack(packed(self.kept)))
        if self.requests is not None:
            document["requests"] = _requests_document(self.requests, numbers)
        return document


def _requests_document(requests: dict[str, Known], numbers: IntegerRuns) -> dict[str, Any]:
    ids, rows = numbers.add(to_numbers(requests)), numbers.add(requests.values())
    return {"ids": ids, "rows": rows}


class SubscriptionRow(NamedTuple):
    """A subscription in a checkpoint."""

    subscription_id: int
    done: IntervalSet | None  # what it has read; None: what is released
    attempts: list[AttemptRow]  # what came of deliveries
    sequence_numbers: list[tuple[int, int]]  # what it has read of sequences

    @classmethod
    def of(cls, subscription: DurableSubscription, queue: DurableQueue) -> SubscriptionRow:
        done = None if subscription.done is queue.released else subscription.done.copy()
        sequence_numbers = list(subscription.numbers.items())
        return cls(
            subscription.subscription_id,
            done,
            subscription.attempts.rows_beside(subscription.done),
            sequence_numbers,
        )

    def document(self, numbers: IntegerRuns) -> dict[str, Any]:
        document: dict[str, Any] = {
            "subscription_id": self.subscription_id,
            "done": None if self.done is None else numbers.add_runs(self.done.to_list()),
        }
        if self.attempts:
            document["attempts"] = numbers.add(self.attempts)
        if self.sequence_numbers:
            document["numbers"] = numbers.add(self.sequence_numbers)
        return document


class Snapshot(Struct):
    """The whole store."""

    lsn: int
    restart_lsn: int
    durable: dict[str, Any]  # what the document says of the store as a whole
    catalog: dict[str, dict[int, CatalogEntry]]
    ltds: dict[int, str]
    prepared: list[bytes]  # records of prepared transactions
    spaces: list[SpaceSnapshot]  # of each data file
    retired: list[int]
    queues: list[QueueSnapshot]  # those that have anything to be moved or sealed
    volatile: list[QueueSnapshot]
    unshipped: UnshippedSnapshot | None = None  # None: the store has no archive

    @classmethod
    def of(
        cls,
        state: EngineState,
        lsn: int,
        restart_lsn: int,
        number: int,
        *,
        copies_tails: bool = False,
        unshipped: UnshippedSnapshot | None = None,
    ) -> Snapshot:
        """Called while nothing is committed (see `Sequencer.exclusive`)."""
        durable, places = state.durable, state.places
        released = places.released()
        if unshipped is not None and unshipped.lets_go:  # nobody else knows these after a crash
            released += filter(is_foreign, unshipped.files)
        queues = [
            QueueSnapshot.of(queue, copies_tail=copies_tails)
            for queue in state.queues.values()
            if not queue.is_temporary
        ]
        return cls(
            lsn=lsn,
            restart_lsn=restart_lsn,
            durable={
                **{name: getattr(durable, name) for name in _COUNTERS},
                "number": number,
                "ledger": dict(durable.ledger),
                "released": [f"{ltds_id:016x}" for ltds_id in released],
            },
            catalog={name: dict(entries) for name, entries in durable.catalog.items()},
            ltds=dict(durable.ltds),
            prepared=[pack_prepared(record) for record in durable.prepared.values()],
            spaces=[manager.space.snapshot() for manager in places.managers],
            retired=list(state.pages.retired),
            queues=[snapshot for snapshot in queues if not snapshot.queue.is_volatile],
            volatile=[snapshot for snapshot in queues if snapshot.queue.is_volatile],
            unshipped=unshipped,
        )

    def document(self, numbers: IntegerRuns) -> dict[str, Any]:
        texts = [b2a_base64(record, newline=False).decode() for record in self.prepared]
        prepared = {"held": texts} if texts else {}
        return prepared | {
            "restart_lsn": self.restart_lsn,
            **self.durable,
            "catalog": _catalog_rows(self.catalog),
            "ltds": _named_files(self.ltds),
            "queues": [queue.document(numbers) for queue in (*self.queues, *self.volatile)],
        }

    def write(
        self,
        env: Env,
        layout: Layout,
        store_id: int,
        settings: dict[str, int],
        spaces: list[FreeSpace],
    ) -> None:
        """The checkpoint's file, with these free pages. Raises as `write_checkpoint`."""
        numbers = IntegerRuns()
        document = settings | self.document(numbers) | spaces_document(spaces, numbers)
        if self.unshipped is not None:
            document |= unshipped_document(self.unshipped, spaces, settings["page_size"], numbers)
        write_checkpoint(env, layout.checkpoints, store_id, self.lsn, document, numbers)


def _catalog_rows(catalog: Mapping[str, Mapping[int, CatalogEntry]]) -> list[list[Any]]:
    return [
        [name, key, *entry] for name, entries in catalog.items() for key, entry in entries.items()
    ]


def _named_files(ltds: Mapping[int, str]) -> dict[str, str]:
    return {f"{ltds_id:016x}": queue for ltds_id, queue in ltds.items()}


def image_document(
    state: DurableState, used: Mapping[int, int], number: int, numbers: IntegerRuns
) -> dict[str, Any]:
    """Return a document of a state without its records, for who builds a store of it.

    `used`: the bytes that each queue's messages charge. `number`: of the state's latest record.
    """
    return {
        **{name: getattr(state, name) for name in _COUNTERS},
        "number": number,
        "ledger": state.ledger,
        "released": [],
        "catalog": _catalog_rows(state.catalog),
        "ltds": _named_files(state.ltds),
        "queues": [
            _image_of_queue(queue, used.get(queue.queue_id, 0), numbers)
            for queue in state.queues.values()
        ],
    }


def _image_of_queue(queue: DurableQueue, used: int, numbers: IntegerRuns) -> dict[str, Any]:
    subscriptions = [SubscriptionRow.of(each, queue) for each in queue.subscriptions.values()]
    document: dict[str, Any] = {
        "queue_id": queue.queue_id,
        "end_position": queue.end_position,
        "used": used,
        "released": numbers.add_runs(queue.released.to_list()),
        "directory": numbers.add([]),
        "subscriptions": [each.document(numbers) for each in subscriptions],
    }
    if queue.config.properties.most_requests:
        document["requests"] = _requests_document(queue.requests.copy_known(), numbers)
    return document


def load(checkpoint: Checkpoint, fold: Fold, effects: Effects) -> None:
    """Take the state of the checkpoint, into an empty one.

    Raises KeyError, TypeError, ValueError or StoreCorrupt where it contradicts itself.
    """
    document, state = checkpoint.document, fold.state
    _check_names(document, _STORE_NAMES, checkpoint.path)
    state.ledger |= {str(key): int(version) for key, version in document["ledger"].items()}
    state.ltds |= {int(name, 16): str(queue) for name, queue in document["ltds"].items()}
    for name, key, version, body in document["catalog"]:
        type_named(name, checkpoint.path)
        check_fields(name, body, checkpoint.path)
        state.catalog[name][int(key)] = CatalogEntry(int(version), body)
    for entry in document["queues"]:
        _load_queue(checkpoint, state, effects, entry)
    index_catalog(state, effects)
    if len(state.queues) != len(state.catalog[QUEUE]):
        raise ValueError("the catalog has other queues")
    for text in document.get("held", ()):
        record = prepared_in(memoryview(a2b_base64(text)), checkpoint.path)
        fold.prepare(record, checkpoint.path, counted=True)
    for counter in _COUNTERS:
        setattr(state, counter, int(document[counter]))


def _check_names(document: dict[str, Any], known: frozenset[str], where: str) -> None:
    """Raise StoreVersion for what only a newer release knows."""
    if not document.keys() <= known:
        unknown = ", ".join(sorted(map(repr, document.keys() - known)))
        raise StoreVersion(
            f"{where}: a checkpoint with {unknown}, which this release does not know: use a newer "
            "one"
        )


def tail_of(checkpoint: Checkpoint, entry: dict[str, Any]) -> PackedRecords:
    """Return the records of a queue that are in no record page (L5). `entry`: its description."""
    rows = checkpoint.rows(entry.get("tail", [0, 0]), format.RECORD_BYTES // 8)
    return PackedRecords.of(b"".join(_TAIL_ROW.pack(*row) for row in rows))


def _load_queue(
    checkpoint: Checkpoint, state: DurableState, effects: Effects, entry: dict[str, Any]
) -> None:
    _check_names(entry, _QUEUE_NAMES, checkpoint.path)
    queue_id = int(entry["queue_id"])
    config = queue_config(queue_id, state.catalog[QUEUE][queue_id].body)
    queue = DurableQueue(config, state.ltds)
    queue.end_position = int(entry["end_position"])
    for lo, hi in checkpoint.runs(entry["released"]):
        queue.released.add(lo, hi)
    queue.directory += [PageEntry(*row) for row in checkpoint.rows(entry["directory"], 4)]
    if "tail" in entry:
        queue.tail = tail_of(checkpoint, entry)
    if "requests" in entry:
        ids = to_texts(checkpoint.rows(entry["requests"]["ids"], 1))
        known = checkpoint.rows(entry["requests"]["rows"], 2)
        queue.requests = Requests(zip(ids, known, strict=True))
    for saved in entry["subscriptions"]:
        _check_names(saved, _SUBSCRIPTION_NAMES, checkpoint.path)
        subscription_id = int(saved["subscription_id"])
        if saved["done"] is None:
            subscription = queue.subscriptions[subscription_id]
        else:
            body = state.catalog[SUBSCRIPTION][subscription_id].body
            done = IntervalSet.from_list(checkpoint.runs(saved["done"]))
            form = subscription_form(body)
            subscription = queue.join(subscription_id, str(body["name"]), done, form)
        attempts = checkpoint.rows(saved.get("attempts", [0, 0]), 5)
        subscription.attempts = Attempts.beside(attempts, subscription.done)
        subscription.numbers.update(checkpoint.rows(saved.get("numbers", [0, 0]), 2))
    add_queue(state, effects, queue, int(entry["used"]))
