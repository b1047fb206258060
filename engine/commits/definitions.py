"""Making, dropping and subscribing to queues: changes of the catalog, one record for each call.

- DE1: what is to be defined is checked when its place in the order is known, and then applied as it
  was checked: nobody defines anything meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from itertools import count
from typing import Any

from quire.arguments import NewQueue
from quire.engine.queues.queue import Queue
from quire.engine.queues.state import State
from quire.engine.records import format
from quire.engine.records.catalog import (
    QUEUE,
    STORE,
    STORE_NUMBER,
    SUBSCRIPTION,
    CatalogChange,
    pack,
)
from quire.engine.records.durable_state import (
    KEEPER,
    SHARED,
    TOPIC,
    WORK,
    DurableState,
    SubscriptionForm,
)
from quire.env import Env
from quire.errors import (
    DiskFull,
    InvalidArgument,
    QueueFull,
    QueueInUse,
    QueueNotFound,
    SubscriptionExists,
    SubscriptionNotFound,
)
from quire.journal import pack_record, padded_bytes
from quire.limits import MAX_CATALOG_ENTRY_BYTES, MAX_QUEUE_ENTRY_BYTES, TEMPORARY_IDS
from quire.order import by_code
from quire.order_code import order_named
from quire.properties import DEAD_LETTER, GIVING_WAY, Properties
from quire.queue_types import type_named
from quire.row_schema import check_grows

from .committer import Committer
from .names import check_letters, check_no_alias, check_no_dead_letters, named_itself, there_already
from .schedules import check_no_schedule


class Definition:
    """A change: so many changes of the catalog, which `prepare` returns, or raises to refuse.

    Those of numbers from `TEMPORARY_IDS` on are applied with the others, and are in no record.
    `undo` takes back what `prepare` did besides looking; `done`: what it did for as long as it is
    not applied. `entry_bytes`: what they take at most. `comes_first`: of its group.
    """

    durable = True

    __slots__ = (
        "_changes", "_done", "_most_bytes", "_prepare", "_state", "_temporary", "_undo", "applied",
        "comes_first", "record",
    )  # fmt: skip

    def __init__(
        self,
        state: State,
        most_bytes: int,
        entry_bytes: int,
        prepare: Callable[[], list[CatalogChange]],
        undo: Callable[[], None] = lambda: None,
        done: Callable[[], None] = lambda: None,
        *,
        comes_first: bool = False,
    ) -> None:
        self.comes_first = comes_first
        self._state = state
        self._most_bytes = most_bytes
        self._prepare = prepare
        self._undo = undo
        self._done = done
        self._changes: list[CatalogChange] = []
        self._temporary: list[CatalogChange] = []
        self.record = bytes(entry_bytes + MAX_CATALOG_ENTRY_BYTES)  # it takes less, once it is made
        self.applied = False

    @property
    def relieves(self) -> bool:
        """Where something goes by it."""
        return any(made.body is None for made in self._changes)

    def place(self) -> None:
        self.sort_out()
        record = pack_record(format.CATALOG, 0, pack(self._state.durable, self._changes))
        if padded_bytes(record) > self._most_bytes:
            raise InvalidArgument(
                f"{len(self._changes)} definitions take {len(record)} bytes in the journal, where "
                f"{self._most_bytes} is the most: define fewer at once"
            )
        self.record = record

    def sort_out(self) -> None:
        """Tell what is durable from what is not."""
        changes = self._prepare()
        self._changes = [made for made in changes if made.key < TEMPORARY_IDS]
        self._temporary = [made for made in changes if made.key >= TEMPORARY_IDS]
        if self._temporary:
            pack(self._state.temporary, self._temporary)  # raises where there are too many

    def withdraw(self) -> None:
        self._undo()

    def apply(self, address: int) -> None:
        with self._state.values.changing:
            self._state.define(self._changes, self._temporary)
        self._done()

    def apply_unrecorded(self) -> None:
        """All of it is temporary."""
        self.sort_out()
        self.apply(0)


class Definitions:
    """See the module. Thread-safe."""

    def __init__(
        self, env: Env, state: State, committer: Committer, most_bytes: int, *, in_memory: bool
    ) -> None:
        """`in_memory`: the whole store is, so only volatile queues may be made."""
        self._env = env
        self._state = state
        self._committer = committer
        self._most_bytes = most_bytes  # of a group in the journal
        self._one_at_a_time = threading.Lock()
        self._in_memory = in_memory

    def submit(
        self,
        entry_bytes: int,
        prepare: Callable[[], list[CatalogChange]],
        undo: Callable[[], None] = lambda: None,
        *,
        is_temporary: Callable[[], bool] = lambda: False,
    ) -> None:
        """Make what `prepare` returns durable. It is called when nobody else defines anything.

        `is_temporary`: whether no change is to be durable; asked while nobody defines.
        """
        sequencer = self._committer.sequencer
        with self._one_at_a_time:
            change = Definition(self._state, self._most_bytes, entry_bytes, prepare, undo)
            if is_temporary():
                sequencer.check()
                sequencer.exclusive(change.apply_unrecorded)
            else:
                sequencer.submit(change)
        self._committer.after_commit()

    def create(self, queues: Sequence[NewQueue]) -> None:
        """Make them all, each in the data file named; or raise QueueExists, and make none."""
        state = self._state
        volatile = {queue.name: _is_volatile(queue) for queue in queues}
        for name, is_volatile in volatile.items():
            if self._in_memory and not is_volatile:
                raise InvalidArgument(
                    f"queue {name!r}: a store in memory holds volatile queues only: give "
                    "type='volatile', or open the store with a path"
                )

        def prepare() -> list[CatalogChange]:
            numbers = _numbers(state)
            now, made = self._env.now_us(), {queue.name: queue.properties for queue in queues}
            names: set[str] = set()
            changes = []
            for queue in queues:
                if queue.name in state.names or queue.name in names:
                    raise there_already(state, queue.name)
                names.add(queue.name)
                _check_dead_letter(state, queue.name, queue.properties, made)
                number = numbers[queue.properties.persistent]
                built_in = number.subscription() if queue.kind == WORK else 0
                body = {**queue.to_dict(), "created_us": now, "subscription_id": built_in}
                if volatile[queue.name]:
                    body["volatile"] = True
                queue_id = number.queue()
                changes.append(CatalogChange(QUEUE, queue_id, body))
                _check_keeping(queue.name, queue.kind, queue.properties)
                if queue.properties.keeps:
                    changes.append(_keeper(queue_id, number.subscription()))
            return changes

        sizes = [_entry_bytes(queue.properties) for queue in queues]
        keepers = sum(queue.properties.keeps for queue in queues)
        self.submit(
            sum(sizes) + keepers * MAX_CATALOG_ENTRY_BYTES,
            prepare,
            is_temporary=lambda: not any(queue.properties.persistent for queue in queues),
        )

    def alter(self, name: str, changes: Mapping[str, Any]) -> Queue:
        """Change limits and properties of a queue. Raises as `Store.alter_queue`."""
        state = self._state
        altered: list[Queue] = []

        def prepare() -> list[CatalogChange]:
            queue = state.queue(name)
            config = queue.config
            properties = {k: v for k, v in changes.items() if k in Properties._fields}
            body = dict(state.described(queue).catalog[QUEUE][queue.queue_id].body)
            for field in Properties._fields:
                body.pop(field, None)
            body |= {k: v for k, v in changes.items() if k not in properties}
            altered_to = config.properties.altered(properties)
            target = state.names.get(altered_to.dead_letter or "")
            if target is queue:  # by its name or an alias
                raise InvalidArgument(
                    f"queue {queue.name!r}: another one must be its dead-letter queue"
                )
            _check_type_stays(queue.name, config.properties, altered_to)
            if altered_to.order != config.properties.order:
                _check_order(altered_to)
            check_grows(queue.name, config.properties.schema, altered_to.schema)
            _check_dead_letter(state, queue.name, altered_to, {})
            _check_keeping(queue.name, config.kind, altered_to)
            _check_requests(queue.name, altered_to, is_volatile=queue.is_volatile)
            body |= altered_to.to_body()
            altered.append(queue)
            made = [CatalogChange(QUEUE, queue.queue_id, body)]
            keeper = queue.keeper
            if altered_to.keeps and keeper is None:
                number = _numbers(state)[not queue.is_temporary].subscription()
                made.append(_keeper(queue.queue_id, number))
            elif keeper is not None and not altered_to.keeps:
                made.append(CatalogChange(SUBSCRIPTION, keeper.subscription_id, None))
            return made

        target = state.queue(name)
        keeper = target.keeper
        is_temporary = self._are_temporary([name])
        with nullcontext() if keeper is None else target.releases.leaving(keeper.subscription_id):
            self.submit(
                MAX_QUEUE_ENTRY_BYTES + MAX_CATALOG_ENTRY_BYTES, prepare, is_temporary=is_temporary
            )
        return altered[0]

    def drop(self, name: str) -> int:
        """Remove a queue; the id that it had. Raises as `Store.drop_queue`."""
        state = self._state
        state.queue(name).releases.check_records()
        marked: list[Queue] = []

        def prepare() -> list[CatalogChange]:
            queue = named_itself(state, name)
            check_no_dead_letters(state, name)
            check_no_alias(state, queue)
            check_no_schedule(state, queue)
            with queue.lock:
                _check_unused(queue)
                queue.mark_dropped(True)
            marked.append(queue)
            return [CatalogChange(QUEUE, queue.queue_id, None)]

        def undo() -> None:
            for queue in marked:
                with queue.lock:
                    queue.mark_dropped(False)

        is_temporary = self._are_temporary([name])
        self.submit(MAX_CATALOG_ENTRY_BYTES, prepare, undo, is_temporary=is_temporary)
        return marked[0].queue_id

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

        self.submit(MAX_CATALOG_ENTRY_BYTES, prepare)
        return switches

    def grow(self, queue: Queue, full: QueueFull) -> bool:
        """Enlarge a queue's capacity so that what was refused has room; whether it has, by that."""
        state = self._state

        def prepare() -> list[CatalogChange]:
            config = queue.config
            with queue.lock:
                missing, _ = queue.space.lack(full)
            most = config.properties.grow_to or 0
            if queue.dropped or not missing or config.capacity + missing > most:
                raise full
            body = dict(state.described(queue).catalog[QUEUE][queue.queue_id].body)
            wanted = max(config.capacity + missing, config.capacity * 2)
            return [CatalogChange(QUEUE, queue.queue_id, body | {"capacity": min(wanted, most)})]

        try:
            self.submit(MAX_QUEUE_ENTRY_BYTES, prepare, is_temporary=lambda: queue.is_temporary)
        except (QueueFull, DiskFull):
            return False
        return True

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
                own = dict(state.durable.catalog[QUEUE][queue.queue_id].body)
                own["dropped"] = own.get("dropped", 0) + released
                changes.append(CatalogChange(QUEUE, queue.queue_id, own))
            return changes

        with suppress(SubscriptionExists):
            self.submit(
                2 * MAX_CATALOG_ENTRY_BYTES + MAX_QUEUE_ENTRY_BYTES,
                prepare,
                is_temporary=lambda: queue.is_volatile,
            )
        return released

    def subscribe(
        self, starts: Mapping[tuple[str, str], str | int], form: SubscriptionForm
    ) -> list[int]:
        """Make subscriptions, by queue and name; where there is one already, it stays as it is.

        The numbers of those that were made.
        """
        state = self._state
        made: list[int] = []
        options = {k: v for k, v in form._asdict().items() if v != getattr(SHARED, k)}
        for (queue, subscription), start in starts.items():
            target = state.queue(queue)
            _check_topic(target)
            if start != "earliest" and subscription not in target.named:
                begin = target.end_position if start == "latest" else int(start)
                target.releases.check_beginning(begin)

        def prepare() -> list[CatalogChange]:
            numbers = _numbers(state)
            new: list[tuple[int, Queue, str]] = []
            for (queue, subscription), start in starts.items():
                found = state.queue(queue)
                _check_topic(found)
                if subscription in found.named:
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
                body |= options
                number = numbers[not found.is_temporary].subscription()
                changes.append(CatalogChange(SUBSCRIPTION, number, body))
            if not changes:
                raise SubscriptionExists("all of them are there already")
            made.extend(change.key for change in changes)
            return changes

        with suppress(SubscriptionExists):
            self.submit(
                len(starts) * MAX_CATALOG_ENTRY_BYTES,
                prepare,
                is_temporary=self._are_temporary([queue for queue, _ in starts]),
            )
        return made

    def unsubscribe(self, queue: str, subscription: str, number: int | None = None) -> None:
        """Remove a subscription. Raises as `Store.unsubscribe`.

        `number`: only that one, not another one of the name.
        """
        state = self._state
        target = state.queue(queue)

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
            is_temporary = self._are_temporary([queue])
            self.submit(MAX_CATALOG_ENTRY_BYTES, prepare, is_temporary=is_temporary)

    def _are_temporary(self, names: Iterable[str]) -> Callable[[], bool]:
        """What tells whether all of these are; who is not there any more is refused later."""
        queues = self._state.names
        return lambda: all(name in queues and queues[name].is_temporary for name in names)


class _Numbers:
    """The next numbers that a state gives."""

    def __init__(self, state: DurableState) -> None:
        self.queue = count(state.next_queue_id).__next__
        self.subscription = count(state.next_subscription_id).__next__


def _numbers(state: State) -> dict[bool, _Numbers]:
    """By whether what gets them is durable."""
    return {True: _Numbers(state.durable), False: _Numbers(state.temporary)}


def _is_volatile(queue: NewQueue) -> bool:
    """Whether its messages are to be in memory only. Raises InvalidArgument."""
    properties = queue.properties
    is_volatile = type_named(properties.type).is_volatile
    if not is_volatile and not properties.persistent:
        raise InvalidArgument(
            f"queue {queue.name!r}: its type {properties.type!r} keeps messages durably, so it is "
            "itself to be durable: leave persistent out, or give type='volatile'"
        )
    _check_requests(queue.name, properties, is_volatile=is_volatile)
    _check_order(properties)
    return is_volatile


def _check_order(properties: Properties) -> None:
    """Raises InvalidArgument where its code is not known."""
    order = properties.order
    if isinstance(order, str) and by_code(order):
        order_named(order)


def _check_requests(name: str, properties: Properties, *, is_volatile: bool) -> None:
    """Raises InvalidArgument."""
    if is_volatile and properties.most_requests:
        raise InvalidArgument(
            f"queue {name!r} is volatile: what was put to it would be forgotten with its request "
            "ids; leave dedup_count and dedup_seconds out, or give a durable type"
        )


def _check_type_stays(name: str, before: Properties, after: Properties) -> None:
    """Raises InvalidArgument."""
    for field in ("type", "persistent"):
        if getattr(before, field) != getattr(after, field):
            raise InvalidArgument(
                f"queue {name!r}: {field} is {getattr(before, field)!r}, as it was made: make "
                "another queue, and move the messages"
            )


def _check_dead_letter(
    state: State, name: str, properties: Properties, made: Mapping[str, Properties]
) -> None:
    """`made`: of the queues that are made with it. Raises InvalidArgument, QueueNotFound."""
    target = properties.dead_letter
    overflow = properties.overflow
    if overflow in GIVING_WAY and properties.keep_forever:
        raise InvalidArgument(
            f"queue {name!r} keeps everything for ever (keep_forever), so that nothing can give "
            f"way: overflow {overflow!r} is not for it"
        )
    if overflow == DEAD_LETTER and target is None:
        raise InvalidArgument(
            f"queue {name!r}: overflow 'dead_letter' needs dead_letter, the queue to which the "
            "oldest messages go then"
        )
    if properties.max_deliveries is not None and target is None:
        raise InvalidArgument(
            f"queue {name!r}: max_deliveries needs dead_letter, the queue to which messages go then"
        )
    if properties.keep_expired and target is None:
        raise InvalidArgument(
            f"queue {name!r}: keep_expired needs dead_letter, the queue to which messages go then"
        )
    if target == name:
        raise InvalidArgument(f"queue {name!r}: another one must be its dead-letter queue")
    if target is None:
        return
    there = state.names.get(target)
    theirs = made.get(target) if there is None else there.config.properties
    if theirs is None:
        raise QueueNotFound(
            f"dead_letter: there is no queue {target!r}: create it first, with "
            f"create_queue({target!r})"
        )
    if properties.persistent and not theirs.persistent:
        raise InvalidArgument(
            f"queue {name!r}: dead_letter {target!r} is gone after a restart (persistent=False): "
            "give one that stays"
        )
    check_letters(name, properties, theirs.schema)


def _check_keeping(name: str, kind: str, properties: Properties) -> None:
    if properties.keeps and kind != TOPIC:
        raise InvalidArgument(
            f"queue {name!r} is a work queue, from which a message goes when it is read: only a "
            "topic can keep it (keep_seconds, keep_bytes, keep_messages, keep_forever)"
        )


def _keeper(queue_id: int, subscription_id: int) -> CatalogChange:
    """The entry of what holds a topic's messages beyond its subscriptions."""
    body = {"queue_id": queue_id, "name": KEEPER, "start": 0, "keeper": True}
    return CatalogChange(SUBSCRIPTION, subscription_id, body)


def _entry_bytes(properties: Properties) -> int:
    """What the entry of a queue takes at most."""
    is_long = properties.text or properties.properties or properties.schema
    return MAX_QUEUE_ENTRY_BYTES if is_long else MAX_CATALOG_ENTRY_BYTES


def _check_unused(queue: Queue) -> None:
    """Raises QueueInUse; under the queue's lock."""
    name, space = queue.name, queue.space
    if space.open_transactions:
        raise QueueInUse(
            f"queue {name!r} has {space.open_transactions} open transactions: end them first "
            "(transactions() lists them)"
        )
    if space.pending_messages:
        raise QueueInUse(f"a put to queue {name!r} is under way: try again")
    if space.prepared:
        raise QueueInUse(
            f"queue {name!r} has {space.prepared} prepared transactions: decide them first "
            "(recover() lists them)"
        )
    in_flight = sum(s.delivered for s in queue.subscriptions.values())
    if in_flight:
        raise QueueInUse(
            f"{in_flight} messages of queue {name!r} are in flight: end the transactions that got "
            "them first, the prepared ones too (see recover())"
        )


def _check_topic(queue: Queue) -> None:
    if queue.config.kind != TOPIC:
        raise InvalidArgument(
            f"queue {queue.name!r} is a work queue, whose messages go to one reader each: read it "
            f"as {queue.name!r}"
        )
