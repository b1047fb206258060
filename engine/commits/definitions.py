"""Making, dropping and subscribing to queues: changes of the catalog, one record for each call.

- What is to be defined is checked when its place in the order is known, and then applied as it was
  checked: nobody defines anything meanwhile.
- A name means one queue. A queue's name and an alias are refused where the other is there, and what
  is renamed has no name in between that somebody else could take.
- An alias is of the queue, not of its name: it follows when the queue is renamed. The property
  `dead_letter` of other queues is a name, and is changed by the same record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from itertools import count
from typing import Any

from msgspec import Struct

from quire.arguments import NewQueue, check_kind
from quire.definitions.order import by_sequence
from quire.definitions.properties import Properties
from quire.definitions.queue_types import type_named
from quire.definitions.row_schema import check_grows
from quire.engine.live_state.engine_state import EngineState
from quire.engine.queues.queue import Queue
from quire.engine.records.format import CATALOG
from quire.engine.records.packed_runs import most_bytes
from quire.engine.state.catalog import (
    ALIAS,
    ARCHIVE,
    LAST_START_NUMBER,
    QUEUE,
    STATE,
    STORE,
    STORE_NUMBER,
    SUBSCRIPTION,
    CatalogChange,
    pack,
)
from quire.engine.state.durable_state import KEEPER, SHARED, WORK, DurableQueue, DurableState
from quire.env import Env
from quire.env.interpreter import Lock
from quire.errors import (
    InvalidArgument,
    QueueFull,
    QueueInUse,
    QueueNotFound,
    ResourceExhausted,
    SubscriptionExists,
    SubscriptionNotFound,
)
from quire.journal import pack_record, padded_bytes
from quire.limits import (
    CHECKPOINT_ARCHIVE_BYTES,
    CHECKPOINT_ENTRY_BYTES,
    CHECKPOINT_INTERVAL_BYTES,
    SEQUENCE_SENDERS,
    STATE_DROP_BYTES,
    TEMPORARY_IDS,
)

from . import definition_checks
from .committer import Committer


def _nothing() -> None:
    """Nothing is to be done."""


class Definition(Struct, eq=False):
    """A change: so many changes of the catalog, which `prepare` returns, or raises to refuse.

    Those of numbers from `TEMPORARY_IDS` on are applied with the others, and are in no record.
    """

    state: EngineState
    most_bytes: int  # of a group in the journal
    prepare: Callable[[], list[CatalogChange]]
    undo: Callable[[], None] = _nothing  # takes back what `prepare` did besides looking
    done: Callable[[], None] = _nothing  # what it did for as long as it is not applied
    changes: Sequence[CatalogChange] = ()
    applied: bool = False
    record: bytes = b""
    growth: int = 0  # so many bytes it makes each checkpoint larger besides its entries
    durable = comes_first = True

    def __post_init__(self) -> None:
        self.record = bytes(self.most_bytes)  # only `prepare` tells how long: so a whole group

    @property
    def relieves(self) -> bool:
        """Return True if a definition is removed, or an archive stopped."""
        return any(
            made.body is None or (made.type == ARCHIVE and not made.body["url"])
            for made in self.changes
        )

    def place(self) -> None:
        self.changes = self.prepare()
        recorded, temporary = self._recorded_and_temporary()
        pack(self.state.temporary, temporary)  # raises where there are too many
        body = pack(self.state.durable, recorded)
        self.record = pack_record(CATALOG, 0, body)
        if padded_bytes(self.record) > self.most_bytes:
            raise InvalidArgument(
                f"{len(recorded)} definitions take {len(self.record)} bytes in the journal, where "
                f"{self.most_bytes} is the most: define fewer at once"
            )
        self.growth = sum(_growth_by(self.state, made) for made in recorded)
        if self.growth:
            self.state.coming.bytes += self.growth
            self.state.coming.count_anew()

    def withdraw(self) -> None:
        self._count_no_more()
        self.undo()

    def _count_no_more(self) -> None:
        """Its growth is not to come any more: it has come, or does not come."""
        growth, self.growth = self.growth, 0
        self.state.coming.bytes -= growth

    def _recorded_and_temporary(self) -> tuple[list[CatalogChange], list[CatalogChange]]:
        """Return the changes to record, and the temporary ones."""
        recorded = [made for made in self.changes if made.key < TEMPORARY_IDS]
        return recorded, [made for made in self.changes if made.key >= TEMPORARY_IDS]

    def apply(self, address: int) -> None:
        self.state.define(*self._recorded_and_temporary())
        self._count_no_more()
        self.done()

    def apply_unrecorded(self) -> None:
        """All of it is temporary."""
        self.place()
        self.apply(0)


def _growth_by(state: EngineState, made: CatalogChange) -> int:
    """Return how much larger each checkpoint may be, as what a queue has can be read anew by it.

    That is so with a new subscription, and where senders' numbers are heard from now on; also
    where released pages are to wait for an archive, and each data file has a second map.
    """
    if made.body is None or made.type not in (QUEUE, SUBSCRIPTION, ARCHIVE):
        return 0
    if made.type == ARCHIVE:
        if not made.body["url"] or state.places.unshipped.is_on:
            return 0
        maps = [each.space.most_map_bytes for each in state.places.managers]
        return CHECKPOINT_ARCHIVE_BYTES + sum(maps) + CHECKPOINT_ENTRY_BYTES * len(maps)
    queue_id = made.key if made.type == QUEUE else int(made.body["queue_id"])
    queue = state.durable.queues.get(queue_id)
    if queue is None:
        return 0
    senders = min(queue.end_position - queue.released.total, SEQUENCE_SENDERS)
    growth = senders * CHECKPOINT_INTERVAL_BYTES if _by_sequence(queue, made) else 0
    if made.type == SUBSCRIPTION:
        growth += most_bytes(queue.released, queue.end_position)[0]
    return growth


def _by_sequence(queue: DurableQueue, made: CatalogChange) -> bool:
    order = (made.body or {}).get("order") if made.type == QUEUE else queue.config.properties.order
    return by_sequence(order)


class Definitions:
    """Makes, drops and subscribes to queues. Thread-safe."""

    def __init__(self, env: Env, state: EngineState, committer: Committer, most_bytes: int) -> None:
        self._env = env
        self._state = state
        self._committer = committer
        self._most_bytes = most_bytes  # of a group in the journal
        self._one_at_a_time = Lock()
        self._latest_us: int | None = None  # when a queue was made at last

    def submit(
        self,
        prepare: Callable[[], list[CatalogChange]],
        undo: Callable[[], None] = _nothing,
        *,
        is_temporary: Callable[[], bool] = lambda: False,
    ) -> Sequence[CatalogChange]:
        """Make what `prepare` returns durable. It is called when nobody else defines anything.

        `is_temporary`: whether no change is to be durable; asked while nobody defines.
        """
        sequencer = self._committer.sequencer
        with self._one_at_a_time:
            change = Definition(self._state, self._most_bytes, prepare, undo)
            if is_temporary():
                sequencer.check()
                sequencer.exclusive(change.apply_unrecorded)
            else:
                sequencer.submit(change)
        self._committer.after_commit()
        return change.changes

    def create(self, queues: Sequence[NewQueue]) -> None:
        """Make them all, each in the data file named; or raise QueueExists, and make none."""
        state = self._state

        def prepare() -> list[CatalogChange]:
            numbers = _numbers(state)
            now, made = self._creation_us(), {queue.name: queue.properties for queue in queues}
            names: set[str] = set()
            changes = []
            for queue in queues:
                properties = definition_checks.with_times(queue.name, queue.kind, queue.properties)
                queue = queue._replace(properties=properties)
                if queue.name in state.names or queue.name in names:
                    raise definition_checks.there_already(state, queue.name, made=True)
                names.add(queue.name)
                is_volatile = self._is_volatile(queue)
                definition_checks.check_queue(state, queue, made, is_volatile=is_volatile)
                number = numbers[properties.persistent]
                built_in = number.subscription() if queue.kind == WORK else 0
                body = {**queue.to_dict(), "created_us": now, "subscription_id": built_in}
                if is_volatile:
                    body["volatile"] = True
                queue_id = number.queue()
                changes.append(CatalogChange(QUEUE, queue_id, body))
                if properties.keeps:
                    changes.append(_keeper(queue_id, number.subscription()))
            return changes

        self.submit(
            prepare, is_temporary=lambda: not any(queue.properties.persistent for queue in queues)
        )

    def _creation_us(self) -> int:
        """The time for queues that are made now, later than that of any queue before.

        By it a position is told from one in an older queue of the same name, also where the clock
        was set back or stands still.
        """
        latest_us = self._latest_us
        if latest_us is None:
            made = [queue.config.created_us for queue in list(self._state.queues.values())]
            latest_us = max(made, default=0)
        self._latest_us = max(self._env.now_us(), latest_us + 1)
        return self._latest_us

    def _is_volatile(self, queue: NewQueue) -> bool:
        """Return True if its messages are to be in memory only. Raises InvalidArgument."""
        properties = queue.properties
        is_volatile = type_named(properties.type).is_volatile
        if not is_volatile and not properties.persistent:
            raise InvalidArgument(
                f"queue {queue.name!r}: its type {properties.type!r} keeps messages durably, so it "
                "is itself to be durable: leave persistent out, or give type='volatile'"
            )
        return is_volatile

    def alter(self, name: str, changes: Mapping[str, Any]) -> Queue:
        """Change limits and properties of a queue. Raises as `Store.alter_queue`."""
        state = self._state

        def prepare() -> list[CatalogChange]:
            queue = state.queue(name)
            before = queue.config.properties
            properties = {k: v for k, v in changes.items() if k in Properties._fields}
            after = before._replace(**properties)
            if not {"timed", "ttl", "max_ttl"}.isdisjoint(properties):
                after = definition_checks.with_times(queue.name, queue.config.kind, after)
            if state.names.get(after.dead_letter or "") is queue:  # by its name or an alias
                raise definition_checks.feeds_itself(queue.name)
            for field in ("type", "persistent"):
                if getattr(before, field) != getattr(after, field):
                    raise InvalidArgument(
                        f"queue {queue.name!r}: {field} is {getattr(before, field)!r}, as it was "
                        "made: make another queue, and move the messages"
                    )
            if after.verified_sender and not before.verified_sender:
                definition_checks.check_verifiable(state, queue)
            check_grows(queue.name, before.schema, after.schema)
            capacity = changes.get("capacity", queue.config.capacity)
            kind = check_kind(queue.config.kind)
            definition_checks.check_queue(
                state, NewQueue(queue.name, kind, capacity, properties=after),
                is_volatile=queue.is_volatile, before=before,
            )  # fmt: skip
            body = definition_checks.entry_of(state, queue)
            for field in Properties._fields:
                body.pop(field, None)
            body |= {k: v for k, v in changes.items() if k not in properties} | after.to_body()
            made = [CatalogChange(QUEUE, queue.queue_id, body)]
            keeper = queue.keeper
            if after.keeps and keeper is None:
                number = _numbers(state)[not queue.is_temporary].subscription()
                made.append(_keeper(queue.queue_id, number))
            elif keeper is not None and not after.keeps:
                made.append(CatalogChange(SUBSCRIPTION, keeper.subscription_id, None))
            return made

        target = state.queue(name)
        keeper = target.keeper
        is_temporary = self._are_temporary([name])
        with nullcontext() if keeper is None else target.releases.leaving(keeper.subscription_id):
            altered = self.submit(prepare, is_temporary=is_temporary)
        return state.queues[altered[0].key]

    def drop(self, name: str) -> int:
        """Remove a queue; the id that it had. Raises as `Store.drop_queue`."""
        state = self._state
        target = state.queue(name, to_end=True)
        target.releases.check_records()

        def prepare() -> list[CatalogChange]:
            nonlocal target
            target = definition_checks.named_itself(state, name)
            definition_checks.check_no_dead_letters(state, name)
            definition_checks.check_unnamed(state, target)
            definition_checks.check_no_replies(state, name)
            with target.lock:
                definition_checks.check_unused(target)
                target.mark_dropped(True)
            return [CatalogChange(QUEUE, target.queue_id, None)]

        def undo() -> None:
            with target.lock:
                target.mark_dropped(False)

        self.submit(prepare, undo, is_temporary=self._are_temporary([name]))
        return target.queue_id

    def switch(self, changes: Mapping[str, bool]) -> Mapping[str, bool]:
        """Stop the store as a whole for puts or gets, or let them in again; how it is then."""
        catalog = self._state.durable.catalog
        switches: dict[str, bool] = {}

        def prepare() -> list[CatalogChange]:
            entry = catalog.get(STORE, {}).get(STORE_NUMBER)
            known = {} if entry is None else entry.body
            switches.update({"puts": True, "gets": True, **known, **changes})
            is_on = all(switches.values())
            return [CatalogChange(STORE, STORE_NUMBER, None if is_on else dict(switches))]

        self.submit(prepare)
        return switches

    def tell_last_start(self, opening: int, last_start_us: int) -> None:
        """For the next opening: when something started that has a rate (PK2)."""
        body = {"opening": opening, "last_start_us": last_start_us}
        self.submit(lambda: [CatalogChange(STORE, LAST_START_NUMBER, body)])

    def grow(self, queue: Queue, full: QueueFull) -> bool:
        """Enlarge a queue's capacity so that what was refused has room; whether it has, by that."""

        def prepare() -> list[CatalogChange]:
            config = queue.config
            with queue.lock:
                missing, _ = queue.space.lack(full)
            most = config.properties.grow_to or 0
            if queue.dropped or not missing or config.capacity + missing > most:
                raise full
            wanted = max(config.capacity + missing, config.capacity * 2)
            return [definition_checks.altered(self._state, queue, capacity=min(wanted, most))]

        with suppress(QueueFull, ResourceExhausted):
            self.submit(prepare, is_temporary=lambda: queue.is_temporary)
            return True
        return False

    def obey_times(self, queue: Queue) -> None:
        """Make a queue timed of which nobody said whether it is (OB2); the put looks again then.

        Raises DiskFull, StoreFailed.
        """
        unsaid = QueueFull(f"queue {queue.name!r} was altered meanwhile")

        def prepare() -> list[CatalogChange]:
            if queue.dropped or queue.config.properties.timed is not None:
                raise unsaid
            return [definition_checks.altered(self._state, queue, timed=True)]

        with suppress(QueueFull):
            self.submit(prepare, is_temporary=lambda: queue.is_temporary)

    def release(self, queue: Queue, start: int, end: int, *, dropped: bool = False) -> int:
        """Let go of what a topic without subscriptions holds at [start, end); how many they were.

        One that has a subscription is left as it is; nothing is recorded of a volatile one.
        `dropped`: they are counted as such. Raises QueueNotFound, StoreCorrupt.
        """
        state = self._state
        released = 0
        queue.releases.check_beginning(end)

        def prepare() -> list[CatalogChange]:
            nonlocal released
            if queue.dropped:
                raise QueueNotFound(f"queue {queue.name!r} was dropped")
            if queue.subscriptions:
                raise SubscriptionExists(f"queue {queue.name!r} has a subscription now")
            released = sum(hi - lo for lo, hi in queue.released.gaps(start, end))
            number = _numbers(state)[not queue.is_volatile].subscription()
            body = {"queue_id": queue.queue_id, "name": "released", "start": end}
            # One that begins behind them and is gone at once: nobody is to read them.
            changes = [
                CatalogChange(SUBSCRIPTION, number, body),
                CatalogChange(SUBSCRIPTION, number, None),
            ]
            if dropped:
                total = definition_checks.entry_of(state, queue).get("dropped", 0) + released
                changes.append(definition_checks.altered(state, queue, dropped=total))
            return changes

        with suppress(SubscriptionExists):
            self.submit(prepare, is_temporary=lambda: queue.is_volatile)
        return released

    def subscribe(
        self, starts: Mapping[tuple[str, str], str | int], form: Mapping[str, bool | str]
    ) -> list[int]:
        """Make subscriptions, by queue and name; where there is one already, it stays as it is.

        `form`: the options of their form. Returns the numbers of those that were made. Raises
        SubscriptionExists where one that is there has another form.
        """
        state = self._state
        options = {k: v for k, v in form.items() if v != getattr(SHARED, k)}
        all_there = SubscriptionExists("all of them are there already")
        for (queue, subscription), start in starts.items():
            target = definition_checks.topic_named(state, queue)
            definition_checks.check_where(target, form.get("where"))
            if start != "earliest" and subscription not in target.named:
                begin = target.end_position if start == "latest" else int(start)
                target.releases.check_beginning(begin)

        def prepare() -> list[CatalogChange]:
            numbers = _numbers(state)
            new: list[tuple[int, Queue, str]] = []
            for (queue, subscription), start in starts.items():
                found = definition_checks.topic_named(state, queue)
                if subscription in found.named:
                    definition_checks.check_form(queue, found.named[subscription], form)
                    continue
                position = int({"earliest": 0, "latest": found.end_position}.get(str(start), start))
                if position > found.end_position:
                    raise InvalidArgument(
                        f"start {start!r}: queue {queue!r} ends at position {found.end_position}"
                    )
                new.append((position, found, subscription))
            changes: list[CatalogChange] = []
            # The first of a queue lets go of what is before it: so who begins earlier comes first.
            for position, found, subscription in sorted(new, key=lambda each: each[0]):
                body = {"queue_id": found.queue_id, "name": subscription, "start": position}
                number = numbers[not found.is_temporary].subscription()
                changes.append(CatalogChange(SUBSCRIPTION, number, body | options))
            if not changes:
                raise all_there
            return changes

        is_temporary = self._are_temporary([queue for queue, _ in starts])
        try:
            return [made.key for made in self.submit(prepare, is_temporary=is_temporary)]
        except SubscriptionExists as error:
            if error is not all_there:
                raise
            return []

    def unsubscribe(self, queue: str, subscription: str, number: int | None = None) -> None:
        """Remove a subscription. Raises as `Store.unsubscribe`.

        `number`: only that one, not another one of the name.
        """
        state = self._state
        target = state.queue(queue, to_end=True)

        def prepare() -> list[CatalogChange]:
            subscription_id = state.queue(queue).subscription(subscription).subscription_id
            if number not in (None, subscription_id):
                raise SubscriptionNotFound(f"subscription {number} is not there any more")
            xid = state.prepared.reader_of(subscription_id)
            if xid is not None:
                raise QueueInUse(
                    f"the prepared transaction {xid!r} has got messages of "
                    f"{queue}/{subscription}: decide it first"
                )
            return [CatalogChange(SUBSCRIPTION, subscription_id, None)]

        with target.releases.leaving(target.subscription(subscription).subscription_id):
            self.submit(prepare, is_temporary=self._are_temporary([queue]))

    def rename(self, old: str, new: str) -> Queue:
        """Give a queue another name. Raises as `Admin.rename_queue`."""
        state = self._state

        def prepare() -> list[CatalogChange]:
            queue = definition_checks.named_itself(state, old)
            if new in state.names:
                raise definition_checks.there_already(state, new)
            feeding = definition_checks.feeding(state, old)
            altered = [
                definition_checks.altered(state, other, dead_letter=new) for other in feeding
            ]
            return [definition_checks.altered(state, queue, name=new), *altered]

        def is_temporary() -> bool:
            """Those whose dead letters go to a temporary queue are temporary, too."""
            return old in state.names and state.names[old].is_temporary

        return state.queues[self.submit(prepare, is_temporary=is_temporary)[0].key]

    def create_alias(self, name: str, queue: str, replace: bool) -> None:
        """Give a queue one more name. Raises as `Admin.create_alias`."""
        state = self._state

        def prepare() -> list[CatalogChange]:
            target = state.queue(queue)
            definition_checks.check_stays(target, "an alias")
            number = state.durable.next_queue_id
            if name in state.names:
                known = definition_checks.entry_named(state, ALIAS, name)
                if known is None or not replace:
                    raise definition_checks.there_already(state, name)
                number = known[0]
            for other in definition_checks.feeding(state, name):
                if other is target:
                    raise InvalidArgument(
                        f"alias {name!r} is where the dead letters of {target.name!r} go: another "
                        "queue must take them"
                    )
                definition_checks.check_letters(other.name, other.config.properties, target.schema)
            return [CatalogChange(ALIAS, number, {"name": name, "queue_id": target.queue_id})]

        self.submit(prepare)

    def drop_alias(self, name: str) -> None:
        """Take an alias away. Raises as `Admin.drop_alias`."""
        state = self._state

        def prepare() -> list[CatalogChange]:
            state.queue(name, to_end=True)
            known = definition_checks.entry_named(state, ALIAS, name)
            if known is None:
                raise InvalidArgument(
                    f"{name!r} is the name of a queue, not an alias: "
                    "store.admin.rename_queue and drop_queue are for queues"
                )
            definition_checks.check_no_dead_letters(state, name)
            return [CatalogChange(ALIAS, known[0], None)]

        self.submit(prepare)

    def aliases(self) -> dict[str, str]:
        """The aliases in the order of their names, each with its queue's name."""
        state = self._state
        bodies = [entry.body for _, entry in definition_checks.entries_by_name(state, ALIAS)]
        pairs = [(str(body["name"]), state.queues.get(body["queue_id"])) for body in bodies]
        return {name: queue.name for name, queue in pairs if queue is not None}

    def drop_state(self, name: str) -> int:
        """All keys of a name of a state go; how many they were.

        With one commit, where they fit one record. Raises KeyHeld, DiskFull, StoreFailed.
        """
        dropped = 0
        with suppress(_NothingLeft):
            while True:
                dropped += self._drop_keys(name)
        self._committer.after_commit()
        return dropped

    def _drop_keys(self, name: str) -> int:
        """As many as fit half a group."""
        values = self._state.values
        most = max(1, self._most_bytes // 2 // STATE_DROP_BYTES)
        marks: list[tuple[str, str, bool]] = []

        def prepare() -> list[CatalogChange]:
            definition_checks.check_no_session(self._state, name)
            keys = values.keys(name)[:most]
            if not keys:
                raise _NothingLeft
            values.check({}, [(name, key) for key in keys])
            marks.extend((name, key, False) for key in keys)
            return [CatalogChange(STATE, number, None) for number in values.place(marks, marks)]

        def unplace() -> None:
            values.unplace(marks, marks)

        # Nobody sets one of them in between: it comes first of its group.
        self._committer.sequencer.submit(
            Definition(self._state, self._most_bytes, prepare, unplace, unplace)
        )
        return len(marks)

    def _are_temporary(self, names: Iterable[str]) -> Callable[[], bool]:
        """Return a check that all of these are temporary; a missing one is refused later."""
        queues = self._state.names
        return lambda: all(name in queues and queues[name].is_temporary for name in names)


class _NothingLeft(Exception):
    """There is no such key any more."""


class _NextNumbers:
    """The next numbers that a state gives."""

    def __init__(self, state: DurableState) -> None:
        self.queue = count(state.next_queue_id).__next__
        self.subscription = count(state.next_subscription_id).__next__


def _numbers(state: EngineState) -> dict[bool, _NextNumbers]:
    """By whether what gets them is durable."""
    return {True: _NextNumbers(state.durable), False: _NextNumbers(state.temporary)}


def _keeper(queue_id: int, subscription_id: int) -> CatalogChange:
    """The entry of what holds a topic's messages beyond its subscriptions."""
    body = {"queue_id": queue_id, "name": KEEPER, "start": 0, "keeper": True}
    return CatalogChange(SUBSCRIPTION, subscription_id, body)
