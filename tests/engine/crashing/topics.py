"""Parts about topics and what is found: moves, keys, conditions, listeners, retention, clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from random import Random
from typing import Any

from quire import Notice, Template
from quire.engine import EmbeddedStore as Store
from quire.interface.transaction import Transaction
from quire.limits import CLAIM_SECONDS
from tests.engine.crashing.parts import Part, Site, Step
from tests.engine.workload import new_machine, open_store

RED = "colour = 'red'"
Move = tuple[str, int]


def plan(seed: int, length: int) -> list[Move]:
    """Return puts, gets and moves."""
    rng = Random(seed)
    kinds = ["put"] * 4 + ["get"] * 3 + ["seek"] * 3
    return [("put", 3), *((rng.choice(kinds), rng.randrange(1, 9)) for _ in range(length))]


PLAN = plan(1, 22)


class Moves(Part):
    """A subscription is moved: each move is there with all else of its transaction, or not."""

    def __init__(self) -> None:
        self.done = 0

    def make(self, store: Store) -> None:
        store.create_queue("moved", kind="topic", keep_forever=True)
        store.subscribe("moved", "a")

    def steps(self, site: Site) -> list[Step]:
        return [
            Step(move[0], partial(self._do, site, number, move)) for number, move in enumerate(PLAN)
        ]

    def _do(self, site: Site, number: int, move: Move) -> None:
        kind, count = move
        end = len(after(PLAN[:number])[0])
        with site.store.transaction() as txn:
            if kind == "put":
                txn.put_many("moved", [b"%d" % end] * count)
            elif kind == "get":
                txn.get_many("moved/a", count)
            else:
                if count % 2:  # what it has got besides is where it goes to
                    txn.get("moved/a")
                txn.seek("moved/a", min(count, end))
            txn.enter("move", number)
        self.done = number + 1

    def check(self, site: Site) -> None:
        store = site.store
        last = store.integration.ledger("move")
        count = 0 if last is None else last + 1
        assert self.done <= count <= self.done + 1
        messages, unread = after(PLAN[:count])
        left = [messages[position] for position in unread]
        assert store.integration.positions("moved") == (0, len(messages))
        assert store.browse("moved/a").payloads() == left
        assert store.subscriptions("moved")[0].pending == len(unread)
        with store.transaction() as txn:
            assert txn.get_many("moved/a").payloads() == left
        with store.transaction() as txn:
            txn.seek("moved/a", 0)
        assert store.browse("moved/a").payloads() == messages


def after(moves: list[Move]) -> tuple[list[bytes], list[int]]:
    """Return the messages of the topic and what is unread of them, by position."""
    messages: list[bytes] = []
    unread: list[int] = []
    for kind, number in moves:
        if kind == "put":
            unread += range(len(messages), len(messages) + number)
            messages += [b"%d" % len(messages)] * number
        elif kind == "get":
            del unread[:number]
        else:
            unread = list(range(min(number, len(messages)), len(messages)))
    return messages, unread


class Kept(Part):
    """Topics of which little is kept: nothing goes that is to be kept, and the rest does."""

    def __init__(self) -> None:
        self.put = 0

    def make(self, store: Store) -> None:
        store.create_queue("kept", kind="topic", keep_messages=4)
        store.create_queue("lone", kind="topic", keep_bytes=1000, keep_seconds=100.0)
        store.subscribe("kept", "a")

    def steps(self, site: Site) -> list[Step]:
        steps = []
        for number in range(16):
            steps.append(Step("put what is kept", partial(self._put, site, number)))
            steps.append(Step("put for nobody", partial(site_put, site, "lone", number)))
            if number % 6 == 5:
                steps.append(Step("read what is kept", partial(site_get, site, "kept/a", 5)))
        return steps

    def _put(self, site: Site, number: int) -> None:
        site_put(site, "kept", number)
        self.put += 1

    def check(self, site: Site) -> None:
        store = site.store
        end = store.integration.positions("kept")[1]
        assert self.put <= end <= self.put + 1
        unread = site.numbers("kept/a")
        assert unread == list(range(end - len(unread), end))
        site.maintain()
        assert site.numbers("kept") == list(range(max(min(end - 4, end - len(unread)), 0), end))
        assert store.queue("lone").used_bytes <= 1000
        assert len(store.browse("lone")) >= min(4, store.integration.positions("lone")[1])
        site.env.advance(101)
        site.maintain()
        assert store.queue("lone").messages == 0


def site_put(site: Site, queue: str, number: int) -> None:
    """Put a number."""
    site.store.put(queue, b"%d" % number)


def site_get(site: Site, source: str, count: int) -> None:
    """Get some messages and commit."""
    with site.store.transaction() as txn:
        txn.get_many(source, count)


class Clients(Part):
    """Subscriptions that end with their clients end whatever happens, and take nothing."""

    def __init__(self) -> None:
        self.put = 0

    def make(self, store: Store) -> None:
        store.create_queue("visited", kind="topic")
        store.subscribe("visited", "stays")

    def steps(self, site: Site) -> list[Step]:
        return [Step("a client", partial(self._visit, site, n), whole=False) for n in range(4)]

    def _visit(self, site: Site, number: int) -> None:
        store, client = site.store, f"client {number}"
        store.subscribe_for(client, "goes", {"visited": "earliest"}, False, False)
        site_put(site, "visited", number)
        self.put += 1
        site_get(site, "visited/goes", 1)
        store.let_go_of(client)

    def check(self, site: Site) -> None:
        store = site.store
        assert {info.name for info in store.subscriptions("visited")} <= {"goes", "stays"}
        site.env.advance(CLAIM_SECONDS + 1)
        store.put("visited", b"1000")
        (info,) = store.subscriptions("visited")
        numbers = site.numbers("visited/stays")
        assert numbers[:-1] == list(range(len(numbers) - 1))
        assert self.put < len(numbers) <= self.put + 2
        assert store.queue("visited").messages == info.pending == len(numbers)


class Latest(Part):
    """A topic that keeps the latest of each key, some of them in flight when superseded."""

    def __init__(self) -> None:
        self.put: list[int] = []
        self.got: list[int] = []

    def make(self, store: Store) -> None:
        store.create_queue("latest", kind="topic", keep_latest="key")
        store.subscribe("latest", "all")

    def steps(self, site: Site) -> list[Step]:
        return [
            *(Step("put with a key", partial(self._put, site, n), False) for n in range(4)),
            Step("supersede in flight", lambda: self._supersede(site), whole=False),
            Step("put with a key", partial(self._put, site, 7)),
        ]

    def _put(self, site: Site, number: int) -> None:
        site.store.put("latest", b"%d" % number, attributes={"key": "abc"[number % 3]})
        self.put.append(number)
        site.maintain()

    def _supersede(self, site: Site) -> None:
        txn = site.store.transaction()
        got = txn.get("latest/all")
        assert got is not None
        for number in range(4, 7):
            self._put(site, number)
        txn.commit()
        self.got.append(int(got.payload))

    def check(self, site: Site) -> None:
        store = site.store
        site.maintain()
        store.subscribe("latest", "late")
        found = [int(each) for each in store.get_many("latest/late").payloads()]
        more = [*self.put, len(self.put)]
        assert found in (latest_of(self.put), latest_of(more))
        own = [int(each) for each in store.get_many("latest/all").payloads()]
        # Once read, never again; what is unread is there, if it is a key's latest.
        read = [n for n in found if n not in own]
        assert own == [n for n in found if n not in read]
        assert len(read) <= 1 + len(self.got)
        assert not set(own) & set(self.got)
        site.maintain()
        assert store.queue("latest").messages == len(found)


def latest_of(numbers: list[int]) -> list[int]:
    """Return the latest of each key, in commit order."""
    return sorted({n % 3: n for n in numbers}.values())


class Selected(Part):
    """A subscription with a selector: what it asks for comes in order, what it does not never."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.put: list[int] = []
        self.got = False

    def make(self, store: Store) -> None:
        store.create_queue("selected", kind="topic")

    def steps(self, site: Site) -> list[Step]:
        return [
            Step("subscribe with a selector", lambda: self._subscribe(site, "red", RED)),
            Step("subscribe", lambda: self._subscribe(site, "all", None)),
            *(Step("put what is selected", partial(self._put, site, n), False) for n in range(6)),
            Step("get what is selected", lambda: self._get(site)),
        ]

    def _subscribe(self, site: Site, name: str, where: str | None) -> None:
        site.store.subscribe("selected", name, where=where)
        self.made.append(name)

    def _put(self, site: Site, number: int) -> None:
        colour = "red" if number % 3 else "blue"
        site.store.put("selected", b"%d" % number, attributes={"colour": colour})
        self.put.append(number)
        site.maintain()

    def _get(self, site: Site) -> None:
        got = site.store.get("selected/red")
        assert got is not None
        assert got.payload == b"1"
        self.got = True

    def check(self, site: Site) -> None:
        store = site.store
        names = {each.name: each.where for each in store.subscriptions("selected")}
        assert names in ({"red": RED, "all": None}, {"red": RED}, {})
        assert set(self.made) <= names.keys()
        if len(names) < 2:
            return
        found = [int(each) for each in store.get_many("selected/red").payloads()]
        everything = [int(each) for each in store.get_many("selected/all").payloads()]
        assert everything in (self.put, [*self.put, len(self.put)])
        chosen = [n for n in everything if n % 3]
        assert found in ([chosen[1:]] if self.got else [chosen, chosen[1:]])
        site.maintain()
        assert store.queue("selected").messages == 0


# What is found, removed and held ------------------------------------------------------------------

FOUND = ("found", "asked", "out")


def make_found(store: Store) -> None:
    """Make all queues, with one commit."""
    store.admin.create_queues(
        [
            {"name": "found", "kind": "work", "indexed": ["colour"]},
            {"name": "asked", "kind": "topic"},
            {"name": "out", "kind": "work"},
        ]
    )


def fill_found(store: Store) -> None:
    """Put red ones and blue ones, by turns, some of which go to the data file."""
    with store.transaction() as txn:
        for n in range(8):
            pairs = {"colour": "blue" if n % 2 else "red", "n": str(n)}
            for name in ("found", "asked"):
                txn.put(name, b"%d" % n * (1 + n % 3 * 2000), attributes=pairs)


def key_of(store: Store, source: str, n: int) -> int:
    """Return the id of a message by its number."""
    with store.transaction() as txn:
        [described] = txn.describe(source, where=f"n = '{n}'")
    return described.id


def take_by_id(store: Store) -> None:
    """Take one out of the midst; its payload goes on."""
    key = key_of(store, "found", 3)
    with store.transaction() as txn:
        found = txn.get("found", id=key)
        assert found is not None
        txn.put("out", found.payload[:1])


def remove(txn: Transaction, store: Store, n: int) -> None:
    """Remove one of the queue by its id, and one of the subscription."""
    assert txn.remove("found", key_of(store, "found", n))
    assert txn.remove("asked/red", key_of(store, "asked/red", n))


def remove_two(store: Store) -> None:
    """Remove with a transaction that also puts."""
    with store.transaction() as txn:
        remove(txn, store, 4)
        txn.put("out", b"removed")


def prepare_a_removal(store: Store) -> None:
    """Remove what stays until that is decided."""
    with store.transaction() as txn:
        remove(txn, store, 6)
        assert txn.get("found", where=RED) is not None
        txn.prepare("removal")


def remove_and_regret(store: Store) -> None:
    """Remove and roll back: nothing of it has happened."""
    with store.transaction() as txn:
        remove(txn, store, 2)
        txn.rollback()


def hold(store: Store) -> None:
    """Hold two: they stay, and are not delivered once more."""
    key = key_of(store, "found", 5)
    with store.transaction() as txn:
        assert txn.read("found", id=key, hold=True) is not None
        assert txn.read("found", where=RED, hold=True) is not None
        txn.put("out", b"held")


def take_by_condition(store: Store) -> None:
    """Take by an index, and by a selector of a subscription with one."""
    with store.transaction() as txn:
        blue = txn.get("found", where=Template(attributes={"colour": "blue"}))
        assert blue is not None
        assert txn.get("asked/red", where="n >= 2") is not None
        txn.put("out", b"blue")


def view_found(store: Store) -> dict[str, Any]:
    """Return what is there and may be got, what of it was delivered, and what is selected."""
    store._maintenance.step()  # what it does not ask for is read by then, if it was not
    there = [info.name for info in store.queues() if info.name in FOUND]
    names = [name for name in there if name != "asked"]
    queues: dict[str, Any] = {name: store.browse(name).payloads() for name in names}
    if "asked" in there:
        queues["asked"] = store.queue("asked").messages
        for each in store.subscriptions("asked"):
            queues[each.name] = each.where, each.pending, store.browse("asked/red").payloads()
    for name in names:
        with store.transaction() as txn:
            got = txn.get_many(name)
            queues[name] += [(each.payload[:1], each.delivery_count) for each in got]
            txn.rollback()
    return {"prepared": [info.xid for info in store.prepared.list()], **queues}


FINDING: dict[str, Callable[[Store], object]] = {
    "make an index": make_found,
    "subscribe with a selector": lambda store: store.subscribe("asked", "red", where=RED),
    "put what is indexed": fill_found,
    "take by id": take_by_id,
    "remove": remove_two,
    "hold": hold,
    "prepare a removal": prepare_a_removal,
    "remove and roll back": remove_and_regret,
    "commit a removal": lambda store: store.prepared.commit("removal"),
    "take by a condition": take_by_condition,
    "hold again": hold,
}


@cache
def found_views() -> list[dict[str, Any]]:
    """Return the views before the first step and after each, where nothing has failed."""
    seen = []
    for number in range(len(FINDING) + 1):  # anew, as a look counts as a delivery
        with open_store(new_machine(0)) as store:
            for step in list(FINDING.values())[:number]:
                step(store)
            seen.append(view_found(store))
    assert seen[-1]["found"][3:] == [(b"2", 1), (b"5", 1), (b"7", 1)]
    return seen


class Found(Part):
    """Removed, taken and held by id and by conditions: each step is whole, or not there."""

    def __init__(self) -> None:
        self.done = 0

    def steps(self, site: Site) -> list[Step]:
        return [Step(name, partial(self._do, site, act)) for name, act in FINDING.items()]

    def _do(self, site: Site, act: Callable[[Store], object]) -> None:
        act(site.store)
        self.done += 1

    def check(self, site: Site) -> None:
        assert view_found(site.store) in found_views()[self.done : self.done + 2]


LISTENERS: dict[str, dict[str, Any]] = {
    "puts": {"source": "watched", "where": RED},
    "removals": {"source": "watched", "on": "removal"},
}


class Listeners(Part):
    """Named listeners: each notice is of a commit, and after a failure they go on where they were.

    A message that stays in its queue is never missed. A removal is, if nobody has listened since
    the store was opened: only then does its owner begin to keep what leaves. `missed` counts it.
    """

    def __init__(self) -> None:
        self.put: list[int] = []
        self.is_registered = False
        self.is_watched = False  # by a listener, since the store was opened
        self.notified: dict[str, list[int]] = {"puts": [], "removals": []}
        self.missed = 0

    def make(self, store: Store) -> None:
        store.create_queue("watched", indexed=["colour"])

    def steps(self, site: Site) -> list[Step]:
        put, listen = partial(self._put, site), partial(self._listen, site)
        return [
            Step("register listeners", lambda: self._register(site), whole=False),
            Step("put for listeners", partial(put, 0)),
            Step("listen", listen),
            Step("remove and listen", lambda: self._remove(site), whole=False),
            Step("put for listeners", partial(put, 1)),
            Step("listen", listen),
        ]

    def reopened(self) -> None:
        self.is_watched = False

    def _register(self, site: Site) -> None:
        for name, options in LISTENERS.items():
            site.store.listeners.add(name=name, **options).close()
        self.is_watched = True

    def _put(self, site: Site, number: int) -> None:
        with site.store.transaction() as txn:
            puts = [
                txn.put("watched", b"%d" % number, attributes={"colour": colour})
                for colour in ("red", "blue")
            ]
        self.put += map(int, puts)
        self.is_registered = True  # as this is synced, what was before is

    def _listen(self, site: Site, missed: int = 0) -> None:
        before = self.missed
        for name, options in LISTENERS.items():
            for notice in notices(site.store, name=name, **options):
                self.notified[name] += notice.ids
                self.missed += notice.missed or 0
                assert not notice.missed or name == "removals"
        self.is_watched = True
        assert self.missed == before + missed

    def _remove(self, site: Site) -> None:
        with site.store.transaction() as txn:
            assert txn.remove("watched", self.put[1])
        self._listen(site, missed=0 if self.is_watched else 1)

    def check(self, site: Site) -> None:
        store = site.store
        left = list(store.browse("watched"))
        ids = [each.id for each in left]
        reds = [each.id for each in left if each.attributes["colour"] == "red"]
        gone = set(self.put) - set(ids)
        assert gone <= {*self.put[1:2]}
        assert set(self.notified["puts"]) <= {*ids, *self.put}
        names = {each.name for each in store.listeners.list()}
        assert self.is_registered <= (names == LISTENERS.keys())
        found = list(notices(store, name="puts", **LISTENERS["puts"]))
        again = [each for notice in found for each in notice.ids]
        assert set(reds) - set(self.notified["puts"]) <= set(again) <= set(reds)
        assert len(set(again)) == len(again)
        assert sum(notice.missed or 0 for notice in found) <= len(gone)
        found = list(notices(store, name="removals", **LISTENERS["removals"]))
        assert not any(notice.ids for notice in found)  # the owner that knew them is gone
        missed = sum(notice.missed or 0 for notice in found)
        assert missed <= len(gone)
        if "removals" in names and not self.notified["removals"] and not self.missed:
            assert missed == len(gone)
        with store.listeners.add("watched") as listener:
            backlog = listener.get(0)
            assert ([] if backlog is None else backlog.ids) == ids
            late = store.put("watched", b"late", attributes={"colour": "red"})
            following = listener.get(0)
            assert following is not None
            assert following.ids == [late]


def notices(store: Store, **options: Any) -> Iterator[Notice]:
    """Yield what a listener has by now, whose place is kept when the next one is looked for."""
    with store.listeners.add(**options) as listener:
        while (notice := listener.get(0)) is not None:
            assert notice.missed is not None
            yield notice


# Those that let much time pass when they look come last.
PARTS = (Moves, Latest, Selected, Found, Listeners, Kept, Clients)
LIMITS: dict[str, float] = {"LATE_INDEXED": 0}
