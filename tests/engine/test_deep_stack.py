"""A call near the recursion limit is done, or was not begun: the store never fails by it (UI6).

Each is made deeper and deeper, by one level at a time, until nothing can be called any more. So it
once had a commit that was durable raise, and the store fail, where its record was to be applied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

import quire
from quire.errors import QuireError
from quire.interface.store import Store
from quire.interface.transaction import Transaction
from quire.limits import CALL_LEVELS
from tests.engine.deep_stack import deepest, depths, done

QUEUES = "work", "other", "pages"


class Deep:
    """Does each call at each depth, and keeps a book of what was done."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.there: list[bytes] = []  # in "work", as the calls said
        self.refused = self.made = 0
        self._last = 0
        for name in QUEUES:
            store.create_queue(name, kind="work")

    def new(self) -> bytes:
        self._last += 1
        return b"%d" % self._last

    def do(self, depth: int, call: Callable[[], object]) -> bool:
        """Whether the call was done; it holds nothing if not."""
        is_done = done(depth, call)
        self.made += is_done
        self.refused += not is_done
        assert not self.store.failed
        return is_done

    def begin(self) -> tuple[Transaction, bytes]:
        """A transaction that has put two messages and got one, which is "given"."""
        self.store.put("other", b"given")
        txn, payload = self.store.transaction(), self.new()
        txn.put("work", payload)
        txn.put("pages", b"x" * 100)
        assert txn.get("other") is not None
        return txn, payload

    def none_is_held(self, given: int) -> None:
        """Of "other", which so many messages were put to and not read."""
        while self.store.admin.transactions():  # an owner is to see its end
            pass
        assert self.store.queue("other").messages == given
        taken = self.store.get_many("other")
        assert len(taken) == given
        assert [info.reserving for info in self.store.queues()] == [0, 0, 0]

    # The calls

    def put(self, depth: int) -> None:
        payload = self.new()
        if self.do(depth, lambda: self.store.put("work", payload)):
            self.there.append(payload)

    def put_with_fields(self, depth: int) -> None:
        payload = self.new()
        if self.do(depth, lambda: self.store.put("work", payload, group=3, sender="s")):
            self.there.append(payload)

    def put_many(self, depth: int) -> None:
        payloads = [self.new() for _ in range(3)]
        if self.do(depth, lambda: self.store.put_many("work", payloads)):
            self.there += payloads

    def put_on_pages(self, depth: int) -> None:
        payload = self.new() + b"x" * 200_000
        if self.do(depth, lambda: self.store.put("work", payload)):
            self.there.append(payload)

    def put_in_a_transaction(self, depth: int) -> None:
        """Of several, each is put or it is not, and is committed if so."""
        with self.store.transaction() as txn:
            for _ in range(3):
                payload = self.new()
                if self.do(depth, lambda p=payload: txn.put("work", p)):  # type: ignore[misc]
                    self.there.append(payload)
            payloads = [self.new() for _ in range(3)]
            if self.do(depth, lambda: txn.put_many("work", payloads)):
                self.there += payloads
            assert txn.state == "open"

    def put_large(self, depth: int) -> None:
        payloads = [self.new() for _ in range(3)]
        with self.store.transaction(large=True) as txn:
            if self.do(depth, lambda: txn.put_many("work", payloads)):
                self.there += payloads

    def get(self, depth: int) -> None:
        """What was not given is got by the next one, in its order."""
        expected = [self.new() for _ in range(4)]
        self.store.put_many("other", expected)
        got: list[bytes] = []

        def take(one: bool) -> None:
            found = [txn.get("other")] if one else txn.get_many("other", 2)
            got.extend(bytes(message.payload) for message in found if message is not None)

        with self.store.transaction() as txn:
            for one in (True, False, True, True):
                self.do(depth, lambda one=one: take(one))  # type: ignore[misc]
            got += [bytes(payload) for payload in txn.get_many("other").payloads()]
        assert got == expected

    def commit(self, depth: int) -> None:
        txn, payload = self.begin()
        if self.do(depth, txn.commit):
            self.there.append(payload)
        else:
            assert txn.state == "open"
            txn.rollback()
        self.none_is_held(txn.state == "rolled back")

    def commit_on_pages(self, depth: int) -> None:
        txn, payload = self.begin()
        txn.put_many("pages", [b"x" * 100_000])
        txn.set_value("s", "k", payload)
        if self.do(depth, txn.commit):
            self.there.append(payload)
            assert self.store.states.get("s", "k") == payload
        else:
            assert txn.state == "open"
            txn.rollback()
        self.none_is_held(txn.state == "rolled back")

    def prepare(self, depth: int) -> None:
        txn, payload = self.begin()
        if not self.do(depth, lambda: txn.prepare("x")):
            assert txn.state == "open"
            assert self.store.prepared.list() == []
            txn.prepare("x")
        if not self.do(depth, txn.commit):
            assert txn.state == "prepared"
            txn.commit()
        self.there.append(payload)
        self.none_is_held(0)

    def roll_back(self, depth: int) -> None:
        txn, _ = self.begin()
        if not self.do(depth, txn.rollback):
            assert txn.state == "open"
            txn.rollback()
        self.none_is_held(1)

    def roll_back_puts(self, depth: int) -> None:
        txn = self.store.transaction()
        txn.put("work", b"never")
        if not self.do(depth, txn.rollback):
            assert txn.state == "open"
            txn.rollback()
        self.none_is_held(0)

    def with_block(self, depth: int) -> None:
        """All of it so deep: where it begins it ends, whatever comes out of it."""
        payload = self.new()
        self.store.put("other", b"given")

        def move() -> None:
            with self.store.transaction() as txn:
                txn.get("other")
                txn.put("work", payload)

        if self.do(depth, move):
            self.there.append(payload)
        self.none_is_held(payload not in self.there)

    def with_block_that_raises(self, depth: int) -> None:
        self.store.put("other", b"given")

        def move() -> None:
            with suppress(ZeroDivisionError), self.store.transaction() as txn:
                txn.get("other")
                txn.put("work", b"never")
                raise ZeroDivisionError

        self.do(depth, move)
        self.none_is_held(1)

    def get_alone(self, depth: int) -> None:
        self.store.put("other", b"given")
        self.none_is_held(not self.do(depth, lambda: self.store.get("other")))

    def define(self, depth: int) -> None:
        is_made = self.do(depth, lambda: self.store.create_queue("new", kind="topic"))
        if is_made and not self.do(depth, lambda: self.store.drop_queue("new")):
            self.store.drop_queue("new")
        assert len(self.store.queues()) == len(QUEUES)

    def checkpoint(self, depth: int) -> None:
        self.put(depth - 100)
        self.do(depth, self.store.admin.checkpoint)

    def purge(self, depth: int) -> None:
        self.store.put("pages", b"x" * 100)
        with suppress(QuireError):
            self.do(depth, lambda: self.store.admin.purge("pages"))

    def check(self) -> None:
        """Nothing is lost or doubled, nor is there what was refused."""
        assert self.refused
        assert self.made
        found = [bytes(message.payload) for message in self.store.browse("work", 1_000_000)]
        assert found == self.there


CALLS = [
    "put", "put_with_fields", "put_many", "put_on_pages", "put_in_a_transaction", "put_large",
    "get", "commit", "commit_on_pages", "prepare", "roll_back", "roll_back_puts", "with_block",
    "with_block_that_raises", "get_alone", "define", "checkpoint", "purge",
]  # fmt: skip


@pytest.fixture(params=["owner", "joined"])
def store(request: pytest.FixtureRequest, store_path: str) -> Iterator[Store]:
    """In the process that owns it, and as another has it."""
    with quire.open(store_path) as owner:
        if request.param == "owner":
            yield owner
        else:
            with quire.open(store_path) as joined:
                assert joined.role == "joined"
                yield joined
        assert not owner.failed
        assert owner.admin.verify().ok


@pytest.mark.cases(8)
@pytest.mark.promise(2)
@pytest.mark.parametrize("name", CALLS)
def test_promise_2_a_call_at_any_depth_is_done_or_not_begun(store: Store, name: str) -> None:
    """And says so; what it was done to goes on."""
    deep = Deep(store)
    for depth in depths():
        getattr(deep, name)(depth)
    deep.check()


@pytest.mark.cases(2)
@pytest.mark.parametrize("joins", [False, True])
def test_a_store_is_closed_at_any_depth_or_stays_open(store_path: str, *, joins: bool) -> None:
    """One that was not closed is as before."""
    with quire.open(store_path) as first:
        first.create_queue("work", kind="work")
        count = closed = 0
        for depth in depths():
            if not joins:
                first.close()
            store = quire.open(store_path)
            store.put("work", b"%d" % count)
            count += 1
            if done(depth, store.close):
                closed += 1
            else:
                store.put("work", b"%d" % count)
                count += 1
                store.close()
        assert 0 < closed < count
    with quire.open(store_path) as store:
        found = [bytes(message.payload) for message in store.browse("work", max_messages=1000)]
        assert found == [b"%d" % number for number in range(count)]
        assert store.admin.verify().ok


def test_calls_ask_for_the_room_that_they_say(store_path: str) -> None:
    """No more, so that what is far from the limit is never refused."""
    with quire.open(store_path, share=False) as store:
        store.create_queue("work", kind="work")
        assert done(deepest() - CALL_LEVELS - 10, lambda: store.put("work", b"x"))
        assert not done(deepest() - CALL_LEVELS + 10, lambda: store.put("work", b"x"))
