"""The state of an open store: the durable one, and what stands beside its fold.

- The fold changes it, live and in recovery, in the journal's order (see `fold`). A second one
  changes what is in memory only, of which the journal tells nothing.
- Each queue is changed under its own lock; no two locks at a time.
- What a change sets free is handed to `Places`, which gives pages and files back.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Protocol

from quire.arguments import check_name, split_source
from quire.definitions.near_names import did_you_mean
from quire.definitions.order import by_sequence
from quire.definitions.row_schema import check_part
from quire.engine.delivery.steady_clock import clock_us
from quire.engine.pages.block_places import Places
from quire.engine.pages.record_page import RecordPages
from quire.engine.queues.prepared_transactions import PreparedTransactions
from quire.engine.queues.queue import ALL_ON, InFlightRange, Queue, Switches
from quire.engine.queues.releases import ReadRange
from quire.engine.queues.subscription import Subscription
from quire.engine.records.commit_record import LedgerEntry, Read
from quire.engine.state.catalog import (
    LAST_START_NUMBER,
    QUEUE,
    STORE,
    STORE_NUMBER,
    SUBSCRIPTION,
    CatalogChange,
)
from quire.engine.state.durable_state import DurableQueue, DurableState, RowsByQueue
from quire.engine.state.fold import Fold
from quire.engine.strategies import Strategy
from quire.env import Env
from quire.errors import AlreadyCommitted, QueueNotFound, StoreCorrupt
from quire.limits import TEMPORARY_IDS, VOLATILE_BITS, VOLATILE_IDS

from .live_values import StateValues


def first_of(opening: int) -> int:
    """The first of the positions, and of the ids, that an opening gives in volatile queues."""
    return (opening << VOLATILE_BITS) % VOLATILE_IDS


class PlacedMessages(Protocol):
    """A change that puts messages."""

    @property
    def groups(self) -> RowsByQueue: ...

    @property
    def applied(self) -> bool: ...


def _count_nothing() -> None:
    """Nothing is kept back."""


class ComingGrowth:
    """The growth of a checkpoint by changes on their way, counted before they are written (KB1 of
    `spare_space`).
    """

    __slots__ = ("bytes", "changes", "count_anew", "counted_id", "has_room_for")

    def __init__(self) -> None:
        self.counted_id = sys.maxsize  # messages up to this id are counted
        self.changes: list[PlacedMessages] = []  # those that put messages beyond it
        self.bytes = 0  # what all else takes
        self.count_anew: Callable[[], None] = _count_nothing
        self.has_room_for: Callable[[int], bool] = lambda growth: True

    def add(self, change: PlacedMessages) -> None:
        """Count a change that puts messages beyond what is counted, before it is written."""
        self.changes = [each for each in self.changes if not each.applied]
        self.changes.append(change)
        self.count_anew()

    def withdraw(self, change: PlacedMessages) -> None:
        """Count a change no more: it is not written."""
        self.changes = [each for each in self.changes if each is not change]


class EngineState:
    """The state of an open store: the durable one, and live queues beside its fold."""

    def __init__(
        self,
        env: Env,
        durable: DurableState,
        places: Places,
        pages: RecordPages,
        strategy: Strategy,
    ) -> None:
        """`durable`: nothing is in it yet."""
        self.strategy = strategy
        self.places = places
        self.pages = pages
        self._env = env
        self._sources: dict[str, tuple[Queue, Subscription]] = {}
        self.definitions = 0  # so many changes of the catalog were made here
        self._defined: dict[object, Callable[[], None]] = {}
        self.durable = durable
        self.fold = Fold(durable, self)
        self.queues: dict[int, Queue] = {}  # that stand beside those of the durable state
        self.names: dict[str, Queue] = {}  # aliases too
        self.ledger = durable.ledger
        self.values = StateValues(durable)
        self.prepared = prepared = PreparedTransactions(self.queues, places)
        self.held, self.ended, self.known_as = prepared.hold, prepared.end, prepared.known_as
        # What is in memory only: what is defined, but not durably, and the ids of messages of
        # volatile queues. Its queues are among the others.
        self.temporary = temporary = DurableState()
        temporary.queues, temporary.names = durable.queues, durable.names
        temporary.next_queue_id = temporary.next_subscription_id = TEMPORARY_IDS
        self.memory = Fold(temporary, self)
        self.volatile: dict[int, Queue] = {}  # queues of whose messages no record tells
        self.numbered: dict[int, Queue] = {}  # those in an order by sequence
        self.listened: dict[int, Queue] = {}  # those of which somebody hears what is read
        self.special: dict[int, Queue] = {}  # those of any of these
        self.ruled: set[Queue] = set()  # those from which messages go by themselves
        # Versions of commits that are placed and not yet applied, by what they hold.
        self.placed: dict[str | tuple[int, str], int] = {}
        self.switches = ALL_ON  # of the store as a whole
        # Given to changes that have their place in the order; the durable state has them then.
        self._next_id = 1
        self.last_time_us = 0
        self.coming = ComingGrowth()

    # Look-ups

    def queue(self, name: str, *, to_end: bool = False) -> Queue:
        """By name. Raises `QueueNotFound`, and `InvalidArgument` for what cannot be a name.

        `to_end`: whoever asks would take it away, and does not miss it.
        """
        found = self.names.get(name) if isinstance(name, str) else None
        if found is None:
            check_name(name, "queue")  # "queue/subscription", bytes, a list, ...
            advice = "queues() lists those that are there"
            if not to_end:
                advice = f"create it with create_queue({name!r})"
            near = did_you_mean(name, list(self.names))
            raise QueueNotFound(f"there is no queue {name!r}{near}: {advice}")
        return found

    def queue_of(self, name: str, words: str | None) -> Queue:
        """The queue, whose messages must be rows of this schema; None: bytes. Raises as `queue`."""
        found = self.queue(name)
        found.space.check_form(is_row=words is not None)
        if words is not None:
            check_part(found.name, words, found.schema or "")
        return found

    def codec_of(self, name: str) -> str | None:
        """By which values are encoded that are put into the queue of this name, if it is there."""
        queue = self.names.get(name) if isinstance(name, str) else None
        return None if queue is None else queue.config.properties.codec

    def source(self, source: str) -> tuple[Queue, Subscription]:
        """The queue and subscription that "queue" or "queue/subscription" names.

        Raises InvalidArgument for what names none, or many.
        """
        sources = self._sources  # another one, once names have changed
        known = sources.get(source) if isinstance(source, str) else None
        if known is None:
            queue_name, subscription_name = split_source(source)
            queue = self.queue(queue_name)
            known = queue, queue.subscription(subscription_name)
            sources[source] = known
        return known

    def browsed(self, source: str) -> tuple[Queue, Subscription | None]:
        """Return queue and subscription of "queue/subscription"; of "queue" queue and None."""
        name, subscription = split_source(source)
        queue = self.queue(name)
        return queue, None if subscription is None else queue.subscription(subscription)

    def by_name(self) -> list[Queue]:
        """All queues, in the order of their names."""
        return sorted([*self.queues.values()], key=lambda queue: queue.name)

    def take_ids(self, messages: int) -> tuple[int, int]:
        """The first of so many new ids, and the commit time; called in commit order only."""
        first, now_us = self._next_id, self._env.now_us
        self._next_id = first + messages
        now = now_us()
        if now > self.last_time_us:
            self.last_time_us = now
            return first, now
        return first, self.last_time_us

    def check_entries(self, entries: Sequence[LedgerEntry]) -> None:
        """Check that ledger entries may be committed next. Raises AlreadyCommitted, KeyHeld."""
        for entry in entries:
            if entry.queue_id:
                self._check_request(entry)
                continue
            last = max(self.ledger.get(entry.key, -1), self.placed.get(entry.key, -1))
            if entry.version <= last:
                raise AlreadyCommitted(
                    f"the ledger holds {entry.key!r} at version {last}: version {entry.version} "
                    "has been committed before; roll back, its effect is there"
                )
        self.prepared.check_entries(entries)

    def request(self, queue: Queue, request_id: str) -> int | None:
        """The id of the message that was put with it, if it is known."""
        oldest_us = queue.config.properties.oldest_request_us(self._env.now_us())
        return queue.durable.requests.find(request_id, oldest_us)

    def _check_request(self, entry: LedgerEntry) -> None:
        """A request id is committed once (RQ3)."""
        queue = self.queues.get(entry.queue_id)
        if queue is None:  # it was dropped: the commit is refused elsewhere
            return
        if entry.held_as in self.placed or self.request(queue, entry.key) is not None:
            raise AlreadyCommitted(
                f"request {entry.key!r} was put to queue {queue.name!r} by another transaction "
                "while this one was open: begin again, and the put tells the first one's id"
            )

    def at_hand(self, reads: Sequence[Read | InFlightRange]) -> bool:
        """Return True if no record page needs to be read to tell what is released, as usual."""
        queues = self.queues
        for read in reads:
            reader = queues.get(read[0])
            if reader is not None and not reader.records.at_hand(read[2], read[3]):
                return False
        return True

    def place_entries(self, entries: Sequence[LedgerEntry]) -> None:
        """Check the entries of a commit that takes its place in the order, and note them."""
        self.check_entries(entries)
        self.placed |= {entry.held_as: entry.version for entry in entries}

    def unplace_entries(self, entries: Sequence[LedgerEntry]) -> None:
        """It is applied, or withdrawn."""
        for entry in entries:
            self.placed.pop(entry.held_as, None)

    @contextmanager
    def releasing(self, reads: Sequence[Read | InFlightRange]) -> Iterator[None]:
        """While a change is made that reads these (Q4 of `releases`). Raises StoreCorrupt."""
        by_queue: dict[int, list[ReadRange]] = {}
        if not self.at_hand(reads):
            for read in reads:
                by_queue.setdefault(read[0], []).append(read[1:4])
        with ExitStack() as held:
            for queue_id, own in by_queue.items():
                reader = self.queues.get(queue_id)
                if reader is not None:
                    held.enter_context(reader.releases.reading(own))
            yield

    # Changes

    def define(
        self, changes: Sequence[CatalogChange], temporary: Sequence[CatalogChange] = ()
    ) -> None:
        """These changes of the catalog are durable, and those are to be temporary."""
        self.fold.define(changes, "the catalog")
        self.memory.define(temporary, "what is temporary")
        self._sources = {}
        for made in (*changes, *temporary):
            if made.type == QUEUE:
                self._note(made.key)
            elif made.type == SUBSCRIPTION and made.body is not None:
                self._note(int(made.body["queue_id"]))
            elif made.type == STORE:
                self._obey_switches()
        self.definitions += 1
        while self._defined:
            try:
                _, callback = self._defined.popitem()
            except KeyError:  # it was withdrawn in between
                break
            callback()

    def when_defined(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Have it called when the catalog is changed next, once; what withdraws it.

        Nobody waits for it, nor does it use the store.
        """
        key = object()
        self._defined[key] = callback

        def withdraw() -> None:
            self._defined.pop(key, None)

        return withdraw

    def _note(self, queue_id: int) -> None:
        """A queue was made, altered or dropped."""
        queue = self.queues.get(queue_id)
        if queue is None:
            self.volatile.pop(queue_id, None)
            self.numbered.pop(queue_id, None)
            self.listened.pop(queue_id, None)
        else:
            self._note_kinds(queue)
        self.collect_special()
        if queue is not None and queue.has_rules:
            self.ruled.add(queue)
        elif self.ruled:
            self.ruled = {q for q in self.ruled if q is not queue and not q.dropped}

    def collect_special(self) -> None:
        """Collect the queues of the three special kinds anew (between commits)."""
        self.special = self.volatile | self.numbered | self.listened

    def _note_kinds(self, queue: Queue) -> None:
        """Note a queue of a kind that gives commits more to do, or take note that it is none."""
        if queue.is_volatile:
            self.volatile[queue.queue_id] = queue
        if by_sequence(queue.config.properties.order):
            self.numbered[queue.queue_id] = queue
        else:
            self.numbered.pop(queue.queue_id, None)

    def _obey_switches(self) -> None:
        """The store was stopped or is not any more, for puts or for gets."""
        entry = self.durable.catalog.get(STORE, {}).get(STORE_NUMBER)
        body = {} if entry is None else entry.body
        puts, gets = bool(body.get("puts", True)), bool(body.get("gets", True))
        self._switch(Switches(puts, gets, self.switches.no_room))

    def refuse_puts(self, no_room: str) -> None:
        """Refuse puts as the disk is nearly full, or with "" let them go on; between two groups."""
        self._switch(self.switches._replace(no_room=no_room))

    def _switch(self, switches: Switches) -> None:
        if switches != self.switches:
            self.switches = switches
            for queue in list(self.queues.values()):
                queue.switch(switches)

    def described(self, queue: Queue) -> DurableState:
        """Return the state that has the queue's entry."""
        return self.temporary if queue.is_temporary else self.durable

    def resume(self, opening: int) -> None:
        """Recovery is done. `opening`: a number that no other opening of the store had.

        A volatile queue is empty, and begins at a position that it never had: one that somebody
        knows from before means no other message.
        """
        self._obey_switches()
        self._next_id, self.last_time_us = self.durable.next_id, self.durable.last_time_us
        self.temporary.next_id = VOLATILE_IDS + first_of(opening) + 1
        for queue in self.queues.values():
            self._note_kinds(queue)
        self.collect_special()
        for volatile in self.volatile.values():
            volatile.begin_at(first_of(opening))
        self.ruled = {q for q in self.queues.values() if q.has_rules}
        self.prepared.resume_reading(self._last_start_before(opening))

    def _last_start_before(self, opening: int) -> int:
        """Return when an owner before may have started something, by the monotonic clock (PK2)."""
        now_us = clock_us(self._env)
        entry = self.durable.catalog.get(STORE, {}).get(LAST_START_NUMBER)
        if entry is None or entry.body["opening"] != opening - 1:
            return now_us  # the one right before was killed, or told nothing
        return now_us - max(0, self._env.now_us() - int(entry.body["last_start_us"]))

    def last_start_us(self) -> int | None:
        """Return when something started last that counts for a rate, in microseconds since the
        epoch.

        0: nothing has; None: there is no rate.
        """
        paces = [
            each.pace
            for queue in list(self.queues.values())
            for each in queue.readers()
            if each.pace is not None and each.pace.has_rate
        ]
        if not paces:
            return None
        known = [pace.latest_us for pace in paces if pace.latest_us is not None]
        return self._env.now_us() - clock_us(self._env) + max(known) if known else 0

    # Beside the fold (see `Effects`)

    @property
    def defining(self) -> AbstractContextManager[Any]:
        return self.values.changing

    def made(self, queue: DurableQueue, used: int) -> None:
        made = Queue(queue, self.pages, self.places, self.strategy, self._env, used)
        self.queues[queue.queue_id] = made
        if self.switches != ALL_ON:
            made.switch(self.switches)

    def dropped(self, queue: DurableQueue) -> None:
        self.queues.pop(queue.queue_id).drop()

    def named(self, name: str, queue: DurableQueue | None) -> None:
        if queue is None:
            del self.names[name]
        else:
            self.names[name] = self.queues[queue.queue_id]

    def archived(self, body: Mapping[str, Any] | None) -> None:
        unshipped = self.places.unshipped
        did_wait = unshipped.puts_wait
        if unshipped.obey(body):
            self.places.let_go()
        if did_wait:
            self._obey_archive()

    def limit_unshipped(self, journal_bytes: int) -> bool:
        """Let puts wait, or go on, as the archive's limit says; True if it says to let go.

        `journal_bytes`: so much of the journal is not shipped.
        """
        unshipped = self.places.unshipped
        entry, puts_wait = unshipped.entry, ""
        if entry is None or not unshipped.is_on:
            return False
        is_over = unshipped.excess(journal_bytes, self.places.page_size) > 0
        if is_over and entry["full"] == "wait":
            puts_wait = (
                f"more than {entry['limit']} bytes wait to be shipped to the archive "
                f"{entry['url']}, and puts wait for that: see that its shipper runs and can reach "
                "it (status()['archive'] tells), set_archive with a higher limit or full='gap', or "
                "stop_archive"
            )
        if puts_wait != unshipped.puts_wait:
            unshipped.puts_wait = puts_wait
            self._obey_archive()
        return is_over and not puts_wait

    def _obey_archive(self) -> None:
        for queue in list(self.queues.values()):
            queue.obey_archive()

    def fault(self, where: str, text: str) -> None:
        raise StoreCorrupt(f"{where}: {text}")
