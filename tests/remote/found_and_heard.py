"""Processes that find, hear and ask by selectors in one store until they are killed.

A worker's transaction puts events and orders, takes orders by the ids that its own listener was
told, by a template and by a selector, holds and removes some, and takes what two subscriptions with
selectors ask for. It puts a receipt that lists all of that, and a key into the ledger. So the
receipts tell of every transaction whether it took effect, with all of its parts, and the logs what
its process was told of it. Listeners with names write down what they are told before they are done
with it.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import quire
import quire.aio
from quire.errors import (
    ConnectionLost,
    Deadlock,
    LockTimeout,
    OutcomeUnknown,
    TransactionError,
)
from tests.kit.violation import Violation, check

from .told import reconcile, told_in

__all__ = ["LISTENERS", "OPTIONS", "StoreContents", "audit", "create", "hear", "look", "work"]

OPTIONS: dict[str, Any] = {"segment_bytes": 4 << 20, "checkpoint_bytes": 1 << 20}
COLOURS = ("red", "blue")
ASKED = {"red": "colour = 'red'", "large": "size > 5"}
"""The subscriptions of "events", by what they ask for."""

LISTENERS: dict[str, dict[str, Any]] = {
    "events": {"source": "events"},
    "reds": {"source": "events", "where": ASKED["red"]},
    "orders": {"source": "orders", "group": 1},
    "gone": {"source": "orders", "on": "removal"},
    "red": {"source": "events/red", "on": "removal"},
    "large": {"source": "events/large", "on": "removal", "where": ASKED["red"]},
}
"""Those with a name."""


def create(path: str) -> None:
    """Make the store, its queues, and listeners' places at their beginning."""
    with quire.open(path, **OPTIONS) as store:
        store.create_queue("orders", indexed=["customer"])
        for name in ("events", "receipts"):
            store.create_queue(name, kind="topic")
            store.subscribe(name, "audit")
        for name, where in ASKED.items():
            store.subscribe("events", name, where=where)
        for name, asked in LISTENERS.items():
            store.listeners.add(name=name, **asked).close()


# A worker -----------------------------------------------------------------------------------------


class FindingWorker:
    """One process' part."""

    def __init__(self, path: str, log: str, name: str, seed: str) -> None:
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._name = name
        self._rng = random.Random(f"{seed}:{name}")
        self._store: Any = quire.open(path, **OPTIONS)
        self._heard: deque[int] = deque(maxlen=200)
        self._store.listeners.add("orders", self._hear, backlog=False)
        self.role = self._store.role

    def _hear(self, notice: quire.Notice) -> None:
        self._heard.extend(notice.ids)
        self._note("heard", *notice.ids)

    def run(self) -> None:
        """Until it is killed."""
        number = 0
        while True:
            time.sleep(self._rng.random() * 0.006)
            number += 1
            name = f"{self._name}.{number}"
            self._note("begins", name)
            try:
                outcome = self._transact(name, number)
            except (ConnectionLost, Deadlock):
                outcome = "refused"
            except OutcomeUnknown:
                outcome = "doubt"
            self._note(outcome, name)

    def _transact(self, name: str, number: int) -> str:
        rng, listed = self._rng, Receipt(name)
        with self._store.transaction() as txn:
            self._put(txn, listed)
            for _ in range(rng.randint(0, 2)):
                self._find(txn, listed)
            for subscription in ASKED:
                if rng.random() < 0.5:
                    got = txn.get_many(f"events/{subscription}", rng.randint(1, 4))
                    listed.read[subscription] = [each.id for each in got]
            txn.put("receipts", json.dumps(vars(listed)).encode())
            txn.enter(self._name, number)
            how = rng.random()
            if how < 0.1:
                txn.rollback()
                return "refused"
            if how < 0.15 and not listed.holds:
                txn.prepare(name)
                txn.commit()
        return "done"

    def _put(self, txn: Any, listed: Receipt) -> None:
        rng = self._rng
        for _ in range(rng.randint(0, 3)):
            text = f"{listed.name} {listed.events}"
            pairs = {"colour": rng.choice(COLOURS), "size": str(rng.randint(0, 9))}
            txn.put("events", text.encode(), attributes=pairs)
            listed.events += 1
        for _ in range(rng.randint(0, 3)):
            text = f"{listed.name} {listed.orders}"
            pairs = {"customer": f"c{rng.randint(0, 3)}"}
            txn.put("orders", text.encode(), group=rng.randint(0, 2), attributes=pairs)
            listed.orders += 1

    def _find(self, txn: Any, listed: Receipt) -> None:
        """Take, hold or remove an order."""
        rng, customer = self._rng, f"c{self._rng.randint(0, 3)}"
        asked: list[dict[str, Any]] = [
            {"where": quire.Template(attributes={"customer": customer})},
            {"where": f"customer = '{customer}' AND JMSPriority >= 0"},
        ]
        if self._heard:
            key = rng.choice(self._heard)
            asked += [{"id": key}] * 4
        find = rng.choice(asked)
        try:
            if "id" in find and rng.random() < 0.3:
                listed.holds = rng.random() < 0.5 or listed.holds
                seen = txn.read("orders", id=find["id"], hold=listed.holds)
                if seen is None or rng.random() < 0.3:
                    return
                if txn.remove("orders", find["id"], timeout=0.05):
                    listed.take(seen)
                return
            found = txn.get("orders", timeout=rng.choice((0, 0.05)), **find)
        except LockTimeout:
            return  # the transaction goes on
        except TransactionError as error:
            if "itself" not in str(error):
                raise
            return  # this one has the message already, and goes on, too
        if found is not None:
            right = found.id == find["id"] if "id" in find else self._is_of(found, customer)
            if not right:
                self._note("wrong", found.id)
            listed.take(found)

    def _is_of(self, found: quire.Message, customer: str) -> bool:
        return found.attributes == {"customer": customer}

    def _note(self, what: str, *more: object) -> None:
        os.write(self._log, " ".join([what, *map(str, more)]).encode() + b"\n")


@dataclass
class Receipt:
    """What a transaction did."""

    name: str
    events: int = 0  # that it has put
    orders: int = 0
    holds: bool = False  # an order from others, and so it cannot be prepared
    taken: list[tuple[int, int, str]] = field(default_factory=list)  # id, group, text
    read: dict[str, list[int]] = field(default_factory=dict)  # by subscription

    def take(self, order: quire.Message) -> None:
        """It has taken this one."""
        self.taken.append((order.id, order.group, order.payload.decode()))


def work(path: str, log: str, name: str, seed: str) -> None:
    """The program of a worker."""
    worker = FindingWorker(path, log, name, seed)
    print(worker.role, flush=True)
    worker.run()


# Who listens under names --------------------------------------------------------------------------


def hear(path: str, log: str) -> None:
    """The program of the process that listens: by functions, by a loop, in asyncio."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def tell(name: str, notice: quire.Notice) -> None:
        os.write(file, " ".join(map(str, [name, notice.missed, *notice.ids])).encode() + b"\n")

    def loop(name: str) -> None:
        for notice in store.listeners.add(name=name, **LISTENERS[name]):
            tell(name, notice)

    async def run() -> None:
        async def listen(name: str) -> None:
            async for notice in await both.listeners.add(name=name, **LISTENERS[name]):
                tell(name, notice)

        async with quire.aio.open(path, **OPTIONS) as both:
            await asyncio.gather(listen("reds"), listen("large"))

    store = quire.open(path, **OPTIONS)
    for name in ("events", "red"):
        store.listeners.add(
            callback=lambda notice, own=name: tell(own, notice),  # type: ignore[misc]
            name=name,
            **LISTENERS[name],
        )
    for name in ("orders", "gone"):
        threading.Thread(target=loop, args=(name,)).start()
    print(store.role, flush=True)
    asyncio.run(run())


# The reconciliation -------------------------------------------------------------------------------


@dataclass
class StoreContents:
    """What a store holds at the end; messages by id."""

    receipts: list[Receipt] = field(default_factory=list)
    events: dict[int, tuple[str, dict[str, str]]] = field(default_factory=dict)  # text, attributes
    orders: dict[int, tuple[int, str]] = field(default_factory=dict)  # group, text; left
    unread: dict[str, list[int]] = field(default_factory=dict)  # by subscription


def look(store: Any) -> StoreContents:
    """Take all that is there."""
    found = StoreContents()
    for each in _drained(store, "receipts/audit"):
        found.receipts.append(Receipt(**json.loads(each.payload)))
    for each in _drained(store, "events/audit"):
        check(each.id not in found.events, f"event {each.id} is there twice")
        found.events[each.id] = each.payload.decode(), dict(each.attributes)
    for name in ASKED:
        found.unread[name] = [each.id for each in _drained(store, f"events/{name}")]
    for each in _drained(store, "orders"):
        found.orders[each.id] = each.group, each.payload.decode()
    return found


def _drained(store: Any, source: str) -> Iterator[Any]:
    while True:
        with store.transaction() as txn:
            messages = list(txn.get_many(source, 10_000))
        if not messages:
            return
        yield from messages


def audit(found: StoreContents, logs: Path) -> Counter[str]:
    """Hold what is there against what was said; how many transactions ended how. Or Violation."""
    outcomes, heard = _read(logs)
    made = {receipt.name: receipt for receipt in found.receipts}
    check(len(made) == len(found.receipts), "two receipts of one transaction")
    check(made.keys() <= outcomes.keys(), "a receipt is nobody's")
    for name, outcome in outcomes.items():
        check(name in made or outcome != "done", f"{name} was acknowledged, and is not there")
        check(name not in made or outcome != "refused", f"{name} was refused, and is there")
        check(outcome != "doubt", f"{name} is in doubt despite the ledger")
    put = {f"{each.name} {n}" for each in made.values() for n in range(each.events)}
    check(Counter(text for text, _ in found.events.values()) == Counter(put), "events: not as put")
    read = {name: [i for each in made.values() for i in each.read.get(name, [])] for name in ASKED}
    for name in ASKED:
        asked = {key for key, (_, pairs) in found.events.items() if _asks(name, pairs)}
        check(Counter(read[name] + found.unread[name]) == Counter(asked), f"{name}: lost or twice")
    taken = [order for each in made.values() for order in each.taken]
    orders = {key: (group, text) for key, group, text in taken}
    check(len(orders) == len(taken), "an order was taken twice")
    check(not orders.keys() & found.orders.keys(), "an order was taken, and is there")
    orders.update(found.orders)
    put = {f"{each.name} {n}" for each in made.values() for n in range(each.orders)}
    check(Counter(text for _, text in orders.values()) == Counter(put), "orders: not as put")
    check(heard <= orders.keys(), f"heard, and never committed: {heard - orders.keys()}")
    told = told_in(logs / "told", LISTENERS)
    reds = {key for key, (_, pairs) in found.events.items() if _asks("red", pairs)}
    fits = {key for key, (group, _) in orders.items() if group in (0, 1)}
    red, large = set(read["red"]), set(read["large"])
    for name, committed, every in (
        ("events", set(found.events), set(found.events)),
        ("reds", reds, set(found.events)),
        ("orders", fits, set(orders)),
        ("gone", {key for key, _, _ in taken}, set(orders)),
        ("red", red, set(found.events)),
        ("large", large & reds, set(found.events)),
    ):
        try:
            reconcile(told[name], committed, every - committed)
        except Violation as error:
            raise Violation(f"listener {name}: {error}") from None
    for name in ("events", "reds"):
        check(not told[name].missed, f"{name}: missed, of a topic that keeps all")
    return Counter(outcomes.values()) + Counter({"told": sum(len(t.ids) for t in told.values())})


def _asks(name: str, pairs: dict[str, str]) -> bool:
    return pairs["colour"] == "red" if name == "red" else int(pairs["size"]) > 5


def _read(logs: Path) -> tuple[dict[str, str], set[int]]:
    """How each transaction ended for its worker, and what workers heard."""
    outcomes: dict[str, str] = {}
    heard: set[int] = set()
    for path in logs.glob("w*"):
        for line in path.read_text().split("\n")[:-1]:
            what, *more = line.split(" ")
            check(what != "wrong", f"{path.name} got message {more}, for which it did not ask")
            if what == "heard":
                heard.update(map(int, more))
            else:
                outcomes[more[0]] = "killed" if what == "begins" else what
    return outcomes, heard
