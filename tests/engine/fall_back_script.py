"""Transactions of every kind, drawn step by step: a script that knows nothing of limits."""

from __future__ import annotations

from random import Random
from typing import Any

Step = tuple[Any, ...]
SCHEMA = "id bigint not null, name string, amount double"
QUEUES: dict[str, dict[str, Any]] = {
    "work": {"kind": "work"},
    "other": {"kind": "work"},
    "topic": {"kind": "topic"},
    "ranked": {"kind": "work", "order": "priority"},
    "keyed": {"kind": "work", "order": {"attribute": "k"}},
    "grouped": {"kind": "work", "grouped": True},
    "timed": {"kind": "work", "timed": True, "max_ttl": 1e8},
    "typed": {"kind": "work", "schema": SCHEMA},
    "once": {"kind": "work", "dedup_count": 50},
    "counted": {"kind": "work", "max_deliveries": 3, "dead_letter": "other"},
    "memory": {"kind": "work", "type": "volatile"},
    "news": {"kind": "topic", "type": "volatile"},
    **{f"many{n}": {"kind": "work"} for n in range(6)},
}
SUBSCRIPTIONS = {"topic": ("a", "b"), "news": ("n",)}
SOURCES = [
    *(name for name in QUEUES if name not in SUBSCRIPTIONS),
    *(f"{queue}/{name}" for queue, names in SUBSCRIPTIONS.items() for name in names),
]
VOLATILE = [("memory",), ("news",), ("news/n",)]
NOT_PUT_TO_ALONE = ("typed", "once")
PLAIN = [name for name in QUEUES if name not in NOT_PUT_TO_ALONE]
KEPT = [name for name in PLAIN if name not in ("memory", "news")]
FOR_ALL = [name for name in QUEUES if name.startswith("many")]
SIZES = [0, 1, 20, 100, 100, 100, 300, 1000, 5000, 20_000, 60_000]
SLOTS = 3
TAILS = ("", "x" * 60, "x" * 900)  # of keys
ALL = 1_000_000


class Script:
    """Steps that are drawn, of so many transactions."""

    def __init__(self, rng: Random, transactions: int) -> None:
        self._rng = rng
        self._payloads = 0
        self._versions = 0
        self._xids = 0
        self.transactions = 0
        self.steps: list[Step] = []
        # Those whose commit may come before one that was begun earlier, where both go together.
        self._apart: set[int] = set()
        open_slots: set[int] = set()
        while self.transactions < transactions or open_slots:
            self._next(open_slots, transactions)

    def _next(self, open_slots: set[int], transactions: int) -> None:
        rng = self._rng
        roll = rng.random()
        if open_slots and (roll < 0.25 or self.transactions >= transactions):
            alike = open_slots - self._apart
            if len(alike) > 1 and rng.random() < 0.5:
                self.steps.append(("together", tuple(sorted(alike))))
                open_slots -= alike
            else:
                slot = rng.choice(sorted(open_slots))
                self.steps.append(self._end(slot))
                open_slots.discard(slot)
            return
        if roll < 0.33:
            self.steps.append(self._beside())
            return
        slot = rng.randrange(SLOTS)
        if slot not in open_slots:
            if self.transactions >= transactions:
                return
            open_slots.add(slot)
            self._apart.discard(slot)
            self.transactions += 1
            self.steps.append(("begin", slot, rng.random() < 0.08, rng.random() < 0.85))
            self._begin(slot, rng.random())
        for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
            step = self._within(slot)
            self.steps.append(step)
            if step[0] == "seek" or step[2:3] in VOLATILE:
                self._apart.add(slot)

    def _begin(self, slot: int, roll: float) -> None:
        """Some begin with a message for each of many queues, or with few and many keys."""
        rng = self._rng
        if roll < 0.1:
            for name in rng.sample(PLAIN, rng.randint(4, len(PLAIN))):
                self.steps.append(("put", slot, name, self._payload(), {}))
            self._apart.add(slot)
        elif roll < 0.2:
            for name in rng.sample(FOR_ALL, rng.randint(1, 3)):
                self.steps.append(("put", slot, name, b"%06d" % self.transactions, {}))
            self.steps.append(self._record(slot, rng.choice((12, 40))))

    def _payload(self) -> bytes:
        self._payloads += 1
        size = self._rng.choice(SIZES)
        return b"%06d" % self._payloads + bytes([self._payloads % 251]) * size

    def _fields(self, queue: str) -> dict[str, Any]:
        rng = self._rng
        found: dict[str, Any] = {}
        if queue == "ranked" or rng.random() < 0.1:
            found["priority"] = rng.randint(0, 5)
        if queue == "keyed" or rng.random() < 0.05:
            found["attributes"] = {"k": rng.choice("abcdef"), "x": "y" * rng.choice((0, 10, 500))}
        if queue == "grouped":
            found["group_key"] = rng.choice("pqr")
        if queue == "timed" and rng.random() < 0.4:
            found["delay"] = 3600 * rng.randint(1, 5)
        if rng.random() < 0.05:
            found["sender"] = "sender"
        return found

    def _row(self) -> dict[str, Any]:
        self._payloads += 1
        name = self._rng.choice((None, "n" * self._rng.choice((0, 3, 2000))))
        return {"id": self._payloads, "name": name, "amount": self._payloads / 2}

    def _within(self, slot: int) -> Step:
        rng = self._rng
        return rng.choice(
            (
                self._put, self._put, self._put, self._put_many, self._put_many, self._put_row,
                self._put_once, self._put_block, self._stream, self._get, self._get, self._get,
                self._get_many, self._get_many, self._record, self._state, self._seek,
                self._given_back,
            )
        )(slot)  # fmt: skip

    def _put(self, slot: int) -> Step:
        queue = self._rng.choice(PLAIN)
        return ("put", slot, queue, self._payload(), self._fields(queue))

    def _put_many(self, slot: int) -> Step:
        rng = self._rng
        queue = rng.choice(PLAIN)
        if rng.random() < 0.05:  # many small ones
            payloads = [b"%06d" % n for n in range(rng.choice((60, 250)))]
        else:
            payloads = [self._payload() for _ in range(rng.choice((0, 1, 2, 5, 12)))]
        form = rng.choice(("list", "array", "batch"))
        return ("put_many", slot, queue, form, payloads, rng.randint(0, 3))

    def _put_row(self, slot: int) -> Step:
        rng = self._rng
        form = rng.choice(("one", "rows", "batch"))
        rows = [self._row() for _ in range(1 if form == "one" else rng.choice((1, 3, 40)))]
        return ("put_row", slot, form, rows)

    def _put_once(self, slot: int) -> Step:
        rng = self._rng
        ids = [f"r{rng.randint(0, 90)}" for _ in range(rng.choice((1, 1, 1, 4, 30)))]
        ids = [request + "x" * rng.choice((0, 0, 150)) for request in ids]
        return ("put_once", slot, ids, [self._payload() for _ in ids])

    def _put_block(self, slot: int) -> Step:
        count = self._rng.choice((1, 3, 8))
        return ("put_block", slot, self._rng.choice(KEPT), [self._payload() for _ in range(count)])

    def _stream(self, slot: int) -> Step:
        rng = self._rng
        chunks = [self._payload() for _ in range(rng.choice((1, 2, 6)))]
        return ("stream", slot, rng.choice(PLAIN), chunks, rng.random() < 0.8)

    def _get(self, slot: int) -> Step:
        return ("get", slot, self._rng.choice(SOURCES), self._rng.choice((1, 1, 2, 5)))

    def _get_many(self, slot: int) -> Step:
        return ("get_many", slot, self._rng.choice(SOURCES), self._rng.choice((1, 3, 20, 500)))

    def _record(self, slot: int, many: int = 1) -> Step:
        rng = self._rng
        self._versions += 1
        repeated = rng.random() < 0.1
        keys = [
            f"k{rng.randint(0, 400)}" + "x" * rng.choice((0, 0, 60, 900))
            for _ in range(many * rng.choice((1, 1, 3, 12)))
        ]
        return ("record", slot, keys, self._versions - 5 if repeated else self._versions)

    def _state(self, slot: int) -> Step:
        rng = self._rng
        value = rng.choice((None, b"", b"v" * rng.choice((1, 100, 9000))))
        name, key = rng.choice("st"), f"key{rng.randint(0, 5)}"
        if rng.random() < 0.3:
            return ("get_value", slot, name, key)
        return ("set_value", slot, name, key, value)

    def _seek(self, slot: int) -> Step:
        rng = self._rng
        source = rng.choice(("topic/a", "topic/b", "topic/b", "news/n"))
        if rng.random() < 0.4:
            return ("read_to", slot, source, rng.randint(0, 6))
        return ("seek", slot, source, rng.choice(("earliest", "latest", 1, 5, 40)))

    def _given_back(self, slot: int) -> Step:
        return (self._rng.choice(("unget", "reject")), slot)

    def _end(self, slot: int) -> Step:
        rng = self._rng
        kind = rng.choice(("commit",) * 8 + ("rollback", "prepare", "prepare"))
        if kind == "prepare":
            self._xids += 1
            decision = rng.choice(
                ("commit", "rollback", "commit by xid", "rollback by xid", "late")
            )
            self.steps.append(("prepare", slot, f"x{self._xids}"))
            return ("decide", slot, f"x{self._xids}", decision)
        return (kind, slot)

    def _beside(self) -> Step:
        rng = self._rng
        self.transactions += 1
        kind = rng.choice(
            ("alone", "alone", "alone", "alone got", "checkpoint", "step", "look", "reopen",
             "advance", "decide all", "drain")
        )  # fmt: skip
        if kind == "alone":
            queue = rng.choice(PLAIN)
            return ("alone", queue, self._payload(), self._fields(queue), rng.random() < 0.8)
        if kind in ("alone got", "look", "drain"):
            return (kind, rng.choice(SOURCES))
        if kind == "reopen" and rng.random() < 0.6:
            return ("step",)
        return (kind,)
