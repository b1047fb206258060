"""Parts about how messages are delivered: counts, failures, times, groups, sessions, schedules."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

from quire import RequestState, Retry, put_reply
from quire.batches.moved_messages import QUEUE
from quire.engine import EmbeddedStore as Store
from quire.errors import StoreFailed
from quire.interface.schedules import DUE
from quire.interface.sessions.session import Session
from quire.messages.message import Message
from tests.engine.crashing.parts import Part, Site, Step
from tests.engine.workload import ALL
from tests.kit.messages import take

MOST = 3
MINUTE = 60_000_000
# In the order in which a request goes through them.
STATES = [
    RequestState.NOT_PUT, RequestState.PENDING, RequestState.ANSWERED, RequestState.TAKEN,
]  # fmt: skip
REQUESTS = 4


class Deliveries(Part):
    """Even messages are read, after two tries; odd ones are poison, and end as dead letters.

    No failure forgets a delivery that was seen, or a message: each has one place.
    """

    def __init__(self) -> None:
        self.put: list[bytes] = []
        self.handed: Counter[bytes] = Counter()
        self.read: set[bytes] = set()
        self.reading: bytes | None = None  # its commit is under way

    def make(self, store: Store) -> None:
        counted: Any = {"max_deliveries": MOST, "dead_letter": "dead"}
        store.admin.create_queues([{"name": "dead"}, {"name": "tried", **counted}])

    def steps(self, site: Site) -> list[Step]:
        puts = [Step("put", partial(self._put, site, n)) for n in range(6)]
        return [*puts, *(Step("try", partial(self._try, site, n)) for n in range(12))]

    def _put(self, site: Site, number: int) -> None:
        site.store.put("tried", b"%d" % number)
        self.put.append(b"%d" % number)

    def _try(self, site: Site, number: int) -> bool:
        self.reading = None
        with site.store.transaction() as txn:
            message = txn.get("tried")
            if message is None:
                txn.rollback()
                return False
            payload = message.payload
            assert message.delivery_count >= self.handed[payload] + 1
            self.handed[payload] = message.delivery_count
            if int(payload) % 2 or message.delivery_count < 2:
                if number % 3:
                    txn.reject(message, "poison")
                txn.rollback()
                return True
            self.reading = payload
        self.read.add(payload)
        self.reading = None
        return True

    def check(self, site: Site) -> None:
        dead = [(m.payload, m.attributes["quire.deliveries"]) for m in site.store.browse("dead")]
        there = Counter([*site.store.browse("tried").payloads(), *(payload for payload, _ in dead)])
        for payload in self.put:
            maybe = {0, 1} if payload == self.reading else {int(payload not in self.read)}
            assert there[payload] in maybe, payload
        assert all(int(deliveries) == MOST for _, deliveries in dead)
        tries = 0
        while self._try(site, tries):
            tries += 1
            assert tries < 100
        site.maintain()
        assert site.store.browse("tried").payloads() == []
        assert max(self.handed.values(), default=0) <= MOST


class Times(Part):
    """Messages come and go, are due and expire; what has expired is kept as dead letters."""

    def __init__(self) -> None:
        self.put: list[bytes] = []
        self.read: set[bytes] = set()
        self.reading: bytes | None = None

    def make(self, store: Store) -> None:
        store.create_queue("expired", kind="work")
        kept: Any = {"timed": True, "keep_expired": True, "dead_letter": "expired"}
        store.create_queue("timed", kind="work", **kept)

    def steps(self, site: Site) -> list[Step]:
        steps = []
        for number in range(24):
            steps.append(Step("put with a time", partial(self._put, site, number)))
            if number % 4 == 3:
                steps.append(Step("get what is due", partial(self._get, site)))
        return steps

    def _put(self, site: Site, number: int) -> None:
        now, payload = site.env.now_us(), b"%d" % number
        times: dict[str, int] = {}
        if number % 3 == 0:
            times = {"deliver_at": now + 2_000_000}
        elif number % 3 == 1:
            times = {"expires_at": now + 1_500_000}
        site.store.put("timed", payload, **times)  # type: ignore[arg-type]
        self.put.append(payload)
        site.env.advance(1)

    def _get(self, site: Site) -> None:
        with site.store.transaction() as txn:
            message = txn.get("timed")
            self.reading = None if message is None else message.payload
        if self.reading is not None:
            self.read.add(self.reading)
        self.reading = None

    def check(self, site: Site) -> None:
        store = site.store
        site.env.advance(10)
        there = store.browse("timed").payloads() + store.browse("expired").payloads()
        for payload in self.put:
            maybe = {0, 1} if payload == self.reading else {int(payload not in self.read)}
            assert there.count(payload) in maybe, payload
        got = take(store, "timed")
        assert got == sorted(got, key=int)
        assert not [payload for payload in got if int(payload) % 3 == 1]
        site.maintain()
        assert store.queue("timed").messages == 0
        dead = store.browse("expired").payloads()
        assert not [payload for payload in dead if int(payload) % 3 != 1]
        assert sorted([*got, *dead]) == sorted(there)


class OrderedGroups(Part):
    """Two readers of three groups, of which one commits and one is rolled back."""

    def __init__(self) -> None:
        self.put: list[bytes] = []
        self.read: set[bytes] = set()
        self.unsure: set[bytes] = set()

    def make(self, store: Store) -> None:
        store.create_queue("grouped", kind="work", grouped=True)

    def steps(self, site: Site) -> list[Step]:
        steps = []
        for number in range(12):
            steps.append(Step("put to a group", partial(self._put, site, number)))
            if number % 3 == 2:
                steps.append(Step("read groups", partial(self._read, site)))
        return steps

    def _put(self, site: Site, number: int) -> None:
        payload = b"%02d" % number
        self.unsure.add(payload)
        site.store.put("grouped", payload, group_key="abc"[number % 3])
        self.unsure.discard(payload)
        self.put.append(payload)

    def _read(self, site: Site) -> None:
        first, second = site.store.transaction(), site.store.transaction()
        taken = set(first.get_many("grouped", 1).payloads())
        others = second.get_many("grouped").payloads()
        assert {int(p) % 3 for p in taken}.isdisjoint(int(p) % 3 for p in others)
        self.unsure |= taken
        first.commit()
        self.read |= taken
        self.unsure -= taken
        second.rollback()

    def check(self, site: Site) -> None:
        with site.store.transaction() as txn:
            got = [m.payload for _ in range(3) if (m := txn.get("grouped"))]
            held = {int(payload) % 3 for payload in got}
            others = take(site.store, "grouped")
            assert held.isdisjoint(int(payload) % 3 for payload in others)
            got += txn.get_many("grouped").payloads()
        for group in range(3):
            mine = [p for p in got + others if int(p) % 3 == group]
            assert mine == sorted(mine)
        there = set(got + others)
        assert len(there) == len(got) + len(others)
        assert there - self.unsure == set(self.put) - self.read - self.unsure


class Sessions(Part):
    """Requests of a session: each is where it was last seen, or one step on, and nothing twice."""

    def __init__(self) -> None:
        self.reached: dict[int, int] = {}  # by request, how far it is at least

    def make(self, store: Store) -> None:
        store.admin.create_queues([{"name": name} for name in ("requests", "executed", "taken")])

    def steps(self, site: Site) -> list[Step]:
        begin = Step("begin a request", lambda: self._at(self._session(site).begin(
            "requests", name_of(1)), 0), whole=False)  # fmt: skip
        submit = Step("submit a request", lambda: self._submit(site), whole=False)
        put = Step("put a request", lambda: self._put(site), whole=False)
        numbers = range(1, REQUESTS)
        serve = [Step("serve a request", partial(self._serve, site, n), False) for n in numbers]
        taken = [Step("take a reply", partial(self._take, site, n), False) for n in numbers]
        return [begin, submit, put, put, *serve, *taken, put]

    def _session(self, site: Site) -> Session:
        session: Session = site.kept.get("session") or site.store.session("till")
        site.kept["session"] = session
        return session

    def _at(self, number: int, state: int) -> None:
        self.reached[number] = state

    def _submit(self, site: Site) -> None:
        self._session(site).submit(1)
        self._at(1, 1)

    def _put(self, site: Site) -> None:
        number = len(self.reached) + 1
        assert self._session(site).put("requests", name_of(number)) == number
        self._at(number, 1)

    def _serve(self, site: Site, number: int) -> None:
        serve_request(site.store)
        self._at(number, 2)

    def _take(self, site: Site, number: int) -> None:
        take_reply(site.store, self._session(site), number)
        self._at(number, 3)

    def check(self, site: Site) -> None:
        store, session = site.store, self._session(site)
        unfinished = session.unfinished()
        done = {name: store.browse(name).payloads() for name in ("executed", "taken")}
        for number in range(1, 1 + REQUESTS):
            at = STATES.index(session.resolve(number))
            least = self.reached.get(number, 0)
            assert at in (least, least + 1)
            assert done["executed"].count(name_of(number)) == (at >= 2)
            assert done["taken"].count(b"done " + name_of(number)) == (at == 3)
            assert (number in unfinished) == (at in (1, 2) or (at == 0 and number in unfinished))
        finish(store, session)
        for number in range(1, 1 + REQUESTS):
            assert session.resolve(number) is RequestState.TAKEN
            assert store.browse("executed").payloads().count(name_of(number)) == 1
            assert store.browse("taken").payloads().count(b"done " + name_of(number)) == 1


def name_of(number: int) -> bytes:
    """Return the payload of a request; each second one is long enough to go to a page."""
    return b"%d" % number * (1 + number % 2 * 3000)


def serve_request(store: Store) -> bytes:
    """Execute the next request: its get, its effect and its reply are one transaction."""
    with store.transaction() as txn:
        request = txn.get("requests")
        assert request is not None
        put_reply(txn, request, b"done " + bytes(request.payload))
        txn.put("executed", request.payload)
    return bytes(request.payload)


def take_reply(store: Store, session: Session, number: int) -> None:
    """Take the reply, and do something with it, in one transaction."""
    with store.transaction() as txn:
        reply = session.take(number, txn=txn)
        assert reply is not None
        txn.put("taken", reply.payload)


def finish(store: Store, session: Session) -> None:
    """Do what a client does that has lost its memory: by what each request is."""
    known = set(session.unfinished())
    for number in range(1, 1 + REQUESTS):
        state = session.resolve(number)
        if state is RequestState.NOT_PUT:
            if number in known:
                session.submit(number)
            else:
                assert session.put("requests", name_of(number)) == number
            state = RequestState.PENDING
        if state is RequestState.PENDING:
            while serve_request(store) != name_of(number):
                pass
            state = session.resolve(number)
        if state is RequestState.ANSWERED:
            take_reply(store, session, number)


class Cron(Part):
    """A schedule of every minute: the message and the note of a due time are there, or neither."""

    def __init__(self) -> None:
        self.first = 0  # the minute in which it was made
        self.is_changing = False
        self.is_dropped = False
        self.got: list[int] = []
        self.getting: list[int] = []

    def make(self, store: Store) -> None:
        store.create_queue("scheduled", kind="work", dedup_count=3)

    def steps(self, site: Site) -> list[Step]:
        ring = Step("put what is due", lambda: self._ring(site))
        late = Step("put beside what is due", lambda: self._late(site))
        create = Step("create a schedule", lambda: self._create(site))
        return [create, ring, ring, ring, late, Step("drop a schedule", lambda: self._drop(site))]

    def _create(self, site: Site) -> None:
        site.env.advance((MINUTE - site.env.now_us() % MINUTE) / 1e6 + 1)
        self.is_changing = True
        site.store.cron.create("s", "scheduled", "* * * * *", missed="all", priority=3)
        self.first, self.is_changing = minute_of(site), False

    def _ring(self, site: Site) -> None:
        site.env.advance(60)
        site.maintain()
        with site.store.transaction() as txn:
            messages = txn.get_many("scheduled")
            self.getting = [int(m.attributes[DUE]) // MINUTE for m in messages]
        self.got += self.getting
        self.getting = []

    def _late(self, site: Site) -> None:
        site.env.advance(120)
        # Who commits does the maintenance's part.
        site.store.put("scheduled", b"beside", request_id="a")

    def _drop(self, site: Site) -> None:
        self.is_changing = True
        site.store.cron.drop("s")
        self.is_changing, self.is_dropped = False, True

    def check(self, site: Site) -> None:
        made = site.store.cron.list()
        if not self.is_changing:
            assert bool(made) == (self.first > 0 and not self.is_dropped)
        if made:
            site.env.advance(60)
            site.maintain()
        messages = site.store.browse("scheduled", max_messages=ALL)
        there = [int(m.attributes[DUE]) // MINUTE for m in messages if m.attributes]
        got = self.got
        if self.getting and self.getting[-1] not in there:
            got = got + self.getting
        everything = got + there
        if made and self.first:
            assert everything == list(range(self.first + 1, minute_of(site) + 1))
        else:
            assert everything == sorted(set(everything))
        if made:  # so that no part which lets much time pass has it put a lot
            site.store.cron.drop("s")


def minute_of(site: Site) -> int:
    """Return the present minute since the epoch."""
    return site.env.now_us() // MINUTE


LETTERS = 20


class Redriven(Part):
    """Dead letters go back by several transactions: each is in one of the two queues."""

    def __init__(self) -> None:
        self.is_over = False

    def make(self, store: Store) -> None:
        store.admin.create_queues(["redriven", "letters"])
        with store.transaction() as txn:
            for number in range(LETTERS):
                txn.put("letters", b"%d" % number, attributes={QUEUE: "redriven"})

    def steps(self, site: Site) -> list[Step]:
        return [Step("redrive", lambda: self._redrive(site))]

    def _redrive(self, site: Site) -> None:
        site.store.admin.redrive("letters", is_chosen)
        self.is_over = True

    def check(self, site: Site) -> None:
        back, left = site.numbers("redriven"), site.numbers("letters")
        assert sorted([*back, *left]) == list(range(LETTERS))
        assert all(number % 3 for number in back)
        if self.is_over:
            assert len(back) == sum(number % 3 != 0 for number in range(LETTERS))
        site.store.admin.redrive("letters", is_chosen)
        assert site.numbers("letters") == list(range(0, LETTERS, 3))
        for message in site.store.get_many("letters"):
            assert message.delivery_count == 1


def is_chosen(letter: Message) -> bool:
    """Return True for two of three."""
    return int(letter.payload) % 3 != 0


LATER_SECONDS = 300_000.0
RETRY: Retry = {"delay": LATER_SECONDS, "growth": "linear"}
FAILED = ("plain", "retried", "counted")


class Failures(Part):
    """A failure of each kind, and a number that is read: a wait and a sequence go on."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def make(self, store: Store) -> None:
        store.create_queue("failed", kind="work")
        store.create_queue("plain", kind="work")
        store.create_queue("retried", kind="work", retry=RETRY)
        store.create_queue(
            "counted", kind="work", retry=RETRY, max_deliveries=9, dead_letter="failed"
        )
        store.create_queue("numbered", kind="work", order={"sequence": "n", "wait": 60.0})
        for name in FAILED:
            store.put(name, b"m", correlation_id="g")
        store.put("numbered", b"1", sender="s", attributes={"n": "1"})

    def steps(self, site: Site) -> list[Step]:
        return [
            Step("reject with a delay", lambda: self._reject(site), whole=False),
            Step("fail with a retry", lambda: self._fail(site, "retried"), whole=False),
            Step("fail with a count", lambda: self._fail(site, "counted"), whole=False),
            Step("read a sequence", lambda: self._read(site), whole=False),
        ]

    def _reject(self, site: Site) -> None:
        with site.store.transaction() as txn:
            message = txn.get("plain")
            assert message is not None
            txn.reject(message, delay=LATER_SECONDS)
        check_written(site.store)
        self.done.append("plain")

    def _fail(self, site: Site, name: str) -> None:
        txn = site.store.transaction()
        assert txn.get(name) is not None
        txn.rollback()
        check_written(site.store)
        site.store.put("failed", b"durable with all before it")
        self.done.append(name)

    def _read(self, site: Site) -> None:
        with site.store.transaction() as txn:
            assert txn.get("numbered") is not None
        self.done.append("numbered")

    def check(self, site: Site) -> None:
        store = site.store
        for name in FAILED:
            later = [s.delayed for s in store.subscriptions(name)]
            assert later == [1] or name not in self.done
            with store.transaction() as txn:
                assert (txn.get(name) is None) == (later == [1])
                txn.commit()
        site.env.advance(LATER_SECONDS + 1)
        for name in FAILED:
            with store.transaction() as txn:
                message = txn.get(name)
                if message is not None:  # else it was had above
                    assert message.failed_count == 1
        store.put("numbered", b"2", sender="s", attributes={"n": "2"})
        told = store.get_many("numbered").payloads()
        assert told in (([b"2"],) if "numbered" in self.done else ([b"2"], [b"1", b"2"]))


def check_written(store: Store) -> None:
    """A rollback raises nothing where it could not be written; then it is not acknowledged."""
    if store._context.committer.failed:
        raise StoreFailed("nothing of it is acknowledged")


# Those that let much time pass when they look come last.
PARTS = (Deliveries, OrderedGroups, Sessions, Redriven, Times, Cron, Failures)
LIMITS: dict[str, float] = {"FINISHED_KEPT": 4, "FINISHED_AT_ONCE": 2, "REDRIVEN_AT_ONCE": 5}
