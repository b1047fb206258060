"""Parts about definitions and values: states, names, purges, overflow, orders, first times."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pyarrow as pa

from quire.engine import EmbeddedStore as Store
from quire.engine.records.key_values import KeyValues
from quire.engine.state.catalog import STATE
from quire.engine.state.durable_state import DurableState
from quire.errors import DiskFull, QueueFull
from tests.engine.crashing.parts import Part, Site, Step
from tests.engine.test_fold import folded
from tests.engine.workload import PATH, new_machine, open_store
from tests.kit.limits import limited

Act = Callable[[Store], object]
View = dict[str, Any]


@cache
def views_of(steps: tuple[Act, ...], view: Callable[[Store], View]) -> list[View]:
    """Return the views before the first step and after each, where nothing has failed."""
    with open_store(new_machine(0)) as store, limited(LIMITS):
        seen = [view(store)]
        for step in steps:
            step(store)
            seen.append(view(store))
    return seen


# States -------------------------------------------------------------------------------------------


def count(store: Store, key: str = "n") -> None:
    """Get a message, put another one, and count up."""
    with store.transaction() as txn:
        message = txn.get("in")
        assert message is not None
        seen = int(txn.get_value("step", key) or b"0")
        txn.set_value("step", key, b"%d" % (seen + len(message.payload)))
        txn.set_value("step", message.payload.decode(), None if key == "m" else b"seen")
        txn.put("out", message.payload)


def prepare(store: Store, xid: str) -> None:
    """Get and set values by a transaction that is prepared and not decided."""
    with store.transaction() as txn:
        txn.get("in")
        txn.set_value("prepared-values", xid, b"prepared")
        txn.set_value("step", "a", None)
        txn.prepare(xid)


def make_states(store: Store) -> None:
    """Make two queues."""
    store.admin.create_queues(["in", "out"])


def fill_states(store: Store) -> None:
    """Put messages into one of them."""
    with store.transaction() as txn:
        txn.put_many("in", [b"a", b"bb", b"ccc", b"dddd", b"e", b"f", b"g" * 3, b"h" * 9])


def view_states(store: Store) -> View:
    """Return the states, and the queues and prepared transactions that go with them."""
    names = [info.name for info in store.queues() if info.name in ("in", "out")]
    return {
        "state": {name: store.states.items(name) for name in store.states.names()},
        "queues": {name: store.browse(name).payloads() for name in names},
        "prepared": [info.xid for info in store.prepared.list()],
        "sums": store.status()["state"],
    }


STATE_STEPS: dict[str, Act] = {
    "make two queues": make_states,
    "fill one": fill_states,
    "count": count,
    "count and delete": lambda store: count(store, "m"),
    "prepare values": lambda store: prepare(store, "x1"),
    "count beside": count,
    "commit values": lambda store: store.prepared.commit("x1"),
    "prepare others": lambda store: prepare(store, "x2"),
    "roll values back": lambda store: store.prepared.rollback("x2"),
    "drop a state": lambda store: store.states.drop("prepared-values"),
    "count and delete again": lambda store: count(store, "m"),
}


def values_of(state: DurableState) -> View:
    """Return the states of a fold, but for the next number."""
    index = {name: getattr(state.values, name) for name in KeyValues.__slots__}
    del index["next_number"]  # which those that are gone had too
    prepared = {xid: list(record.sets) for xid, record in state.prepared.items()}
    return {"state": state.catalog[STATE], "prepared": prepared, **index}


class States(Part):
    """Values of states: acknowledged ones are there, with their messages, and every fold agrees."""

    def __init__(self) -> None:
        self.done = 0

    def steps(self, site: Site) -> list[Step]:
        return [Step(name, partial(self._do, site, act)) for name, act in STATE_STEPS.items()]

    def _do(self, site: Site, act: Act) -> None:
        act(site.store)
        self.done += 1

    def check(self, site: Site) -> None:
        expected = views_of(tuple(STATE_STEPS.values()), view_states)
        assert expected[-1]["state"] == {"step": {"dddd": b"seen", "m": b"3", "n": b"5"}}
        assert view_states(site.store) in expected[self.done : self.done + 2]
        assert values_of(folded(site.env, PATH)) == values_of(site.store._context.state.durable)


# Purges, renames, aliases, moves, the store's switch ----------------------------------------------

FIRST_NAMES = {"letters": "targets", "news": "topic"}
CHANGED = ("targets", "work", "topic", "kept", *FIRST_NAMES)


def move(store: Store, source: str, queue: str) -> None:
    """Move two messages, and put one more."""
    with store.transaction() as txn:
        txn.move(source, queue, 2)
        txn.put(queue, b"beside")


def fill_changed(store: Store) -> None:
    """Put messages, and read some for good."""
    store.subscribe("kept", "a")
    with store.transaction() as txn:
        for queue in ("work", "kept"):
            txn.put_many(queue, [b"%d" % number for number in range(7)])
    with store.transaction() as txn:
        txn.get_many("kept/a", 4)


def put_large(store: Store) -> None:
    """Put a large message, so that a file of a large transaction is the queue's."""
    store.subscribe("topic", "a")
    with store.transaction(large=True) as txn:
        txn.put_many("topic", [b"x" * 9000] * 2)


def make_changed(store: Store) -> None:
    """Make the queues, with one commit."""
    store.admin.create_queues(
        [
            {"name": "targets", "kind": "work"},
            {"name": "work", "kind": "work", "dead_letter": "targets", "max_deliveries": 3},
            {"name": "topic", "kind": "topic"},
            {"name": "kept", "kind": "topic", "keep_forever": True},
        ]
    )


CHANGES: dict[str, Act] = {
    "make queues": make_changed,
    "fill them": fill_changed,
    "put a file": put_large,
    "create an alias": lambda store: store.admin.create_alias("w", "work"),
    "rename": lambda store: store.admin.rename_queue("targets", "letters"),
    "move": lambda store: move(store, "w", "letters"),
    "rename a topic": lambda store: store.admin.rename_queue("topic", "news"),
    "alias the old name": lambda store: store.admin.create_alias("targets", "letters"),
    "purge a topic": lambda store: store.admin.purge("news"),
    "replace an alias": lambda store: store.admin.create_alias("w", "letters", replace=True),
    "switch off": lambda store: store.admin.switch(puts=False, gets=False),
    "purge": lambda store: store.admin.purge("work"),
    "drop an alias": lambda store: store.admin.drop_alias("targets"),
    "switch gets on": lambda store: store.admin.switch(gets=True),
    "switch on": lambda store: store.admin.switch(puts=True, gets=True),
    "rename back": lambda store: store.admin.rename_queue("letters", "targets"),
    "purge what is kept": lambda store: store.admin.purge("kept"),
}
IN_STEPS = {"fill them", "put a file", "purge a topic", "purge", "purge what is kept"}
SWITCHED = {"switch off", "purge", "drop an alias", "switch gets on"}  # nobody puts after these
NOT_WHOLE = {*IN_STEPS, *SWITCHED, "switch on"}  # nor can the disk be filled


def view_changed(store: Store) -> View:
    """Return the messages of the queues that change, aliases and the switch."""
    shown: View = {
        info.name: (store.browse(info.name).payloads(), info.dead_letter)
        for info in store.queues()
        if info.name in CHANGED
    }
    aliases = {alias: name for alias, name in store.admin.aliases().items() if name in CHANGED}
    return {**shown, "aliases": aliases, "switch": store.admin.switch()}


def is_between(found: View, before: View, later: View) -> bool:
    """Return True if a purge, which takes several commits, may have come so far."""
    if not found.keys() == before.keys() == later.keys():
        return False
    for name, now in found.items():
        if now == before[name]:
            continue
        if name in ("aliases", "switch") or later[name][0]:
            return False
        payloads, first = now[0], before[name][0]
        if payloads != first[len(first) - len(payloads) :]:
            return False
    return True


class Changes(Part):
    """Purges, renames, aliases, moves and the store's switch are whole, or not there."""

    def __init__(self) -> None:
        self.done = 0
        self.ids: dict[str, int] = {}  # of queues by their first names

    def steps(self, site: Site) -> list[Step]:
        return [
            Step(name, partial(self._do, site, act), name not in NOT_WHOLE, name in SWITCHED)
            for name, act in CHANGES.items()
        ]

    def _do(self, site: Site, act: Act) -> None:
        act(site.store)
        self.ids = self.ids or ids_of(site.store)
        self.done += 1

    def check(self, site: Site) -> None:
        store = site.store
        found, names = view_changed(store), list(CHANGES)
        expected = views_of(tuple(CHANGES.values()), view_changed)
        allowed = expected[self.done : self.done + 2]
        is_purge = self.done < len(names) and names[self.done].startswith("purge")
        assert found in allowed or (is_purge and is_between(found, *allowed)), found
        assert not self.ids or ids_of(store) == self.ids
        store.admin.switch(puts=True, gets=True)
        store.create_queue("more", kind="work")
        store.admin.create_alias("one-more", "more")
        store.put("one-more", b"m")
        assert store.admin.purge("more") == 1
        site.reopen()
        assert site.store.admin.aliases()["one-more"] == "more"


def ids_of(store: Store) -> dict[str, int]:
    """Return the ids of the queues that changed, which a new name does not change."""
    there = [info for info in store.queues() if info.name in CHANGED]
    return {FIRST_NAMES.get(info.name, info.name): info.id for info in there}


# Queues made together -----------------------------------------------------------------------------

TOGETHER: list[list[Any]] = [["c1", "c2", "c3"], [{"name": "c4", "kind": "work"}, "c5"]]


class Together(Part):
    """Queues that are made with one commit are there all, or none of them."""

    def __init__(self) -> None:
        self.made = 0

    def steps(self, site: Site) -> list[Step]:
        return [Step("make several", partial(self._make, site, names)) for names in TOGETHER]

    def _make(self, site: Site, names: list[Any]) -> None:
        site.store.admin.create_queues(names)
        self.made += len(names)

    def check(self, site: Site) -> None:
        names = [info.name for info in site.store.queues() if info.name[:1] == "c"]
        names = [name for name in names if name[1:].isdigit()]
        assert len(names) in (0, 3, 5)
        assert names == [f"c{number}" for number in range(1, len(names) + 1)]
        assert len(names) >= self.made
        listed = [item.body["name"] for item in site.store.admin.catalog("queue")]
        assert [name for name in listed if name in names] == names


# Overflow -----------------------------------------------------------------------------------------

KIB = b"x" * 1024
OLDEST: Any = {"kind": "topic", "max_messages": 4, "overflow": "drop_oldest"}
OVERFLOWING: list[dict[str, Any]] = [
    {"name": "o-dead", "kind": "work"},
    {"name": "o-grown", "kind": "work", "capacity": 8 << 10, "grow_to": 1 << 20},
    {"name": "o-news", **OLDEST},
    {"name": "o-nobody", "order": "priority", **OLDEST},
    {
        "name": "o-work", "kind": "work", "max_messages": 3, "overflow": "dead_letter",
        "dead_letter": "o-dead", "timed": True, "grouped": True,
    },
]  # fmt: skip
NAMES = [queue["name"] for queue in OVERFLOWING[1:]]
REFUSALS = (DiskFull, QueueFull)


class Overflow(Part):
    """Each message that was put is there, gave way and is counted, or is a dead letter."""

    def __init__(self) -> None:
        self.put: dict[str, int] = dict.fromkeys(NAMES, 0)

    def make(self, store: Store) -> None:
        store.admin.create_queues(OVERFLOWING)
        store.subscribe("o-news", "a")
        store.subscribe("o-news", "b")

    def steps(self, site: Site) -> list[Step]:
        return [step for turn in range(4) for step in self._turn(site, turn)]

    def _turn(self, site: Site, turn: int) -> list[Step]:
        # Nothing gives way, and no queue grows, where the disk has no room for that.
        several = [
            Step(f"put to {name}", partial(self._put, site, name, 1 + turn % 2), refusals=REFUSALS)
            for name in NAMES
        ]
        return [*several, Step("put to all", lambda: self._put_all(site), refusals=REFUSALS)]

    def _put(self, site: Site, name: str, messages: int) -> None:
        first = self.put[name]
        payloads = [b"%3d" % number + KIB for number in range(first, first + messages)]
        if messages > 1:
            site.store.put_many(name, payloads)
        else:
            site.store.put(name, payloads[0])
        self.put[name] += messages

    def _put_all(self, site: Site) -> None:
        with site.store.transaction() as txn:
            for name in NAMES:
                txn.put(name, b"%3d" % self.put[name] + KIB)
        for name in NAMES:
            self.put[name] += 1

    def check(self, site: Site) -> None:
        self._compare(site)
        for step in self._turn(site, 0):
            step.act()
        self._compare(site)

    def _compare(self, site: Site) -> None:
        for name in NAMES:
            info = site.store.queue(name)
            is_dead = name == "o-work"
            before = site.numbers("o-dead", 3) if is_dead else list(range(info.dropped))
            found = before + site.numbers(name, 3)
            assert found == list(range(len(found))), name
            assert 0 <= len(found) - self.put[name] <= 2, name  # what was not acknowledged
            assert info.max_messages is None or info.messages <= info.max_messages
            assert (info.dropped > 0) <= (info.overflow == "drop_oldest")
            self.put[name] = len(found)


# An order that is altered, and a first time -------------------------------------------------------

BY_NUMBER: Any = {"attribute": "due", "numeric": True}
BY_SEQUENCE: Any = {"sequence": "seq", "wait": 5.0, "most": 9}


class Altered(Part):
    """A queue's order is one or the other, whole, and what waits is in it."""

    def __init__(self) -> None:
        self.orders: list[Any] = ["commit"]

    def make(self, store: Store) -> None:
        store.create_queue("altered", kind="work", order="commit")
        for number in (2, 1):
            store.put("altered", b"%d" % number, sender="a", attributes={"seq": str(number)})

    def steps(self, site: Site) -> list[Step]:
        orders = (BY_SEQUENCE, BY_NUMBER)
        return [Step("alter the order", partial(self._alter, site, order)) for order in orders]

    def _alter(self, site: Site, order: Any) -> None:
        self.orders.append(order)
        with site.store.transaction() as txn:
            txn.get("altered")
            site.store.alter_queue("altered", order=order)
            txn.rollback()
        self.orders = [site.store.queue("altered").order]

    def check(self, site: Site) -> None:
        order = site.store.queue("altered").order
        assert order in self.orders
        with site.store.transaction() as txn:
            batch = txn.get_many("altered").payloads()
        assert sorted(batch) == [b"1", b"2"]
        assert batch == [b"1", b"2"] or "sequence" not in order


DUE_US = 4_000_000_000_000_000
COLUMNS = pa.table(
    {"payload": [b"m"] * 3, "deliver_at": pa.array([None, DUE_US, None], pa.timestamp("us", "UTC"))}
)
TIMED: dict[str, dict[str, Any]] = {
    "t-first": {}, "t-second": {}, "t-volatile": {"type": "volatile"},
    "t-typed": {"schema": "id bigint"}, "t-streams": {},
    "t-columns": {},
}  # fmt: skip


def put_first_times(store: Store) -> None:
    """Put the first message with a time among others, into two queues."""
    with store.transaction() as txn:
        txn.put("t-first", b"before")
        txn.put("t-first", b"m", deliver_at=DUE_US)
        txn.put("t-second", b"m", expires_at=DUE_US)
        txn.put("t-first", b"after")


FIRST_TIMES: dict[str, Act] = {
    "t-first": put_first_times,
    "t-volatile": lambda store: store.put("t-volatile", b"m", deliver_at=DUE_US),
    "t-typed": lambda store: store.put("t-typed", {"id": 1}, deliver_at=DUE_US),
    "t-columns": lambda store: store.put_many("t-columns", COLUMNS),
    "t-streams": lambda store: store.put_stream("t-streams", b"x" * 4097, delay=1e6),
}


class FirstTimes(Part):
    """The first put with a time makes its queue timed: it obeys every message that is there."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def make(self, store: Store) -> None:
        store.admin.create_queues([{"name": name, **more} for name, more in TIMED.items()])

    def steps(self, site: Site) -> list[Step]:
        # The definition stands though the put is refused.
        return [
            Step("put a first time", partial(self._put, site, name, put), whole=False)
            for name, put in FIRST_TIMES.items()
        ]

    def _put(self, site: Site, name: str, put: Act) -> None:
        put(site.store)
        self.done.append(name)

    def check(self, site: Site) -> None:
        store = site.store
        for name in TIMED:
            delayed = [m for m in store.browse(name) if m.deliver_at is not None]
            assert store.queue(name).timed or not delayed, name
            assert len(store.delayed.list(name)) == len(delayed)
            if name in self.done and name != "t-volatile":
                assert delayed, name
        for name, put in FIRST_TIMES.items():
            before = len(store.delayed.list(name))
            put(store)
            assert store.queue(name).timed is True
            assert len(store.delayed.list(name)) == before + 1


# The first may find the whole store stopped.
PARTS = (Changes, States, Together, Overflow, Altered, FirstTimes)
LIMITS: dict[str, float] = {"PURGED_AT_ONCE": 3, "CHUNK_BYTES": 4096}
