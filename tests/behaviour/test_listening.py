"""Hearing of messages that are put, or that leave: who is told what, after which commit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from quire import Notice, Template
from quire.engine import EmbeddedStore as Store
from quire.errors import (
    InvalidArgument,
    InvalidSelector,
    PositionLost,
    QueueNotFound,
    StateConflict,
    StoreClosed,
    SubscriptionNotFound,
)
from quire.interface.listening import remove_place
from quire.limits import LISTENED_SECONDS
from tests.behaviour.forms import WITH_CALLBACKS, AnyStore, Clock
from tests.kit.limits import Limits
from tests.kit.waiting import SECONDS, eventually

with_callbacks = pytest.mark.parametrize("store", WITH_CALLBACKS, indirect=True)


def told(listener: Any, count: int) -> list[int]:
    """So many ids, of as many notices as it takes; none was missed."""
    ids: list[int] = []
    while len(ids) < count:
        notice = next_of(listener)
        assert notice is not None, ids
        assert notice.missed == 0
        ids += notice.ids
    return ids


def next_of(listener: Any) -> Notice:
    """The next notice, which comes."""
    found = listener.get(SECONDS)
    assert isinstance(found, Notice)
    return found


def silent(listener: Any) -> bool:
    """Whether there is nothing to tell."""
    return listener.get(0) is None


class SequenceProgress:
    """A callback, and what it was told."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []
        self._told = threading.Condition()

    def __call__(self, notice: Notice) -> None:
        with self._told:
            self.notices.append(notice)
            self._told.notify_all()

    @property
    def ids(self) -> list[int]:
        """All of them."""
        return [each for notice in self.notices for each in notice.ids]

    def wait(self, count: int) -> list[int]:
        """Until so many ids were told, of which none was missed."""
        with self._told:
            assert self._told.wait_for(lambda: len(self.ids) >= count, SECONDS), self.notices
        assert all(notice.missed == 0 for notice in self.notices)
        return self.ids


# What is told, and when


def test_it_is_told_after_the_commit_and_never_before(store: AnyStore, work: str) -> None:
    """Not while the transaction is open, nor when it was rolled back; the ids of all of it."""
    with store.listeners.add(work) as listener:
        assert silent(listener)
        with store.transaction() as txn:
            made = [txn.put(work, b"1"), txn.put(work, b"2")]
            assert silent(listener)
        assert next_of(listener).ids == [int(each) for each in made]
        with store.transaction() as txn:
            txn.put(work, b"3")
            txn.rollback()
        assert silent(listener)
        notice = next_of(store.listeners.add(work))
    expected = Notice("work", "put", 2, [int(each) for each in made], [0, 0], more=True)
    assert replace(notice, created_us=0, mark="") == expected
    assert notice.created_us == store.queue(work).created_us


def test_it_reserves_nothing(store: AnyStore, owner: Store, work: str) -> None:
    """What was told may be somebody else's by then; a listener may get it by its id."""
    listener = store.listeners.add(work)
    first, second = store.put(work, b"1"), store.put(work, b"2")
    assert told(listener, 2) == [first, second]
    assert owner.get(work).id == first  # type: ignore[union-attr]
    assert store.get(work, id=first) is None
    assert store.get(work, id=second) is not None


def test_a_prepared_transaction_is_told_when_it_is_decided(store: AnyStore, work: str) -> None:
    """And one that is rolled back never; of what it reads the same holds."""
    before = store.put(work, b"0")
    puts, removals = (
        store.listeners.add(work, backlog=False),
        store.listeners.add(work, on="removal"),
    )
    for xid in ("a", "b"):
        txn = store.transaction()
        assert txn.get(work) is not None
        txn.put(work, b"1")
        txn.prepare(xid)
        assert silent(puts)
        assert silent(removals)
        if xid == "a":
            store.prepared.rollback(xid)
            came(puts, "returned", [before])
        else:
            store.prepared.commit(xid)
    assert len(told(puts, 1)) == 1
    assert told(removals, 1) == [before]


@pytest.mark.parametrize("listens_for", [0, 1, 2, 65535])
def test_groups(store: AnyStore, work: str, listens_for: int) -> None:
    """Who listens for group 0 hears all, a message of group 0 is told to all, else they are equal.

    Of the backlog and of what follows, of puts and of removals.
    """
    groups = [0, 1, 2, 65535, 1, 0]

    def put() -> list[int]:
        return [store.put(work, b"m", group=group) for group in groups]

    fits = [n for n, group in enumerate(groups) if not listens_for or group in (0, listens_for)]
    backlog = put()
    listener = store.listeners.add(work, group=listens_for)
    left = store.listeners.add(work, group=listens_for, on="removal")
    later = put()
    expected = [ids[n] for ids in (backlog, later) for n in fits]
    assert told(listener, len(expected)) == expected
    assert silent(listener)
    assert len(store.get_many(work)) == 2 * len(groups)
    notice = next_of(left)
    assert notice.ids == expected
    assert notice.groups == 2 * [groups[n] for n in fits]


@pytest.mark.parametrize(
    ("where", "fits"),
    [
        ("colour = 'red'", [1, 3]),
        ("colour = 'red' AND JMSCorrelationID = 'c3'", [3]),
        (Template(attributes={"colour": "blue"}), [0, 2, 4]),
        ("payload LIKE '4'", [4]),
    ],
    ids=str,
)
def test_a_condition(store: AnyStore, work: str, where: str | Template, fits: list[int]) -> None:
    """A selector or a template: of the backlog, of what follows, and of what leaves."""

    def put() -> list[int]:
        return [
            store.put(
                work,
                b"%d" % n,
                correlation_id=f"c{n}",
                attributes={"colour": "red" if n % 2 else "blue"},
            )
            for n in range(5)
        ]

    backlog = put()
    listener = store.listeners.add(work, where=where)
    left = store.listeners.add(work, where=where, on="removal")
    later = put()
    expected = [ids[n] for ids in (backlog, later) for n in fits]
    assert told(listener, len(expected)) == expected
    assert silent(listener)
    store.get_many(work)
    assert told(left, len(expected)) == expected


def test_the_backlog_goes_to_the_new_one_alone(store: AnyStore, work: str) -> None:
    """What is in the queue still; who wants none begins with what comes."""
    ids = [store.put(work, b"%d" % n) for n in range(4)]
    old = store.listeners.add(work)
    assert told(old, 4) == ids
    store.get(work)
    assert told(store.listeners.add(work), 3) == ids[1:]
    without = store.listeners.add(work, backlog=False)
    assert silent(without)
    assert silent(old)
    later = store.put(work, b"5")
    assert told(old, 1) == told(without, 1) == [later]


def test_the_backlog_has_no_gap_and_no_doubling(store: AnyStore, owner: Store, work: str) -> None:
    """While puts go on, of several threads: many new listeners, each is told each id once."""
    made: list[int] = []

    def put() -> None:
        made.extend(owner.put(work, b"%d" % n) for n in range(150))

    putters = [threading.Thread(target=put) for _ in range(2)]
    for putter in putters:
        putter.start()
    listeners = [store.listeners.add(work, max_ids=7) for _ in range(5)]
    found = [told(listener, 300) for listener in listeners]
    for putter in putters:
        putter.join()
    assert all(each == sorted(made) for each in found)
    assert all(silent(listener) for listener in listeners)


def test_what_readers_were_faster_with_is_told(store: AnyStore, owner: Store, work: str) -> None:
    """A reader that waits at the queue has each message before the listener looks: it is told."""
    listener = store.listeners.add(work, group=1)
    removals = store.listeners.add(work, group=1, on="removal")
    expected = []
    for n in range(20):
        made = owner.put(work, b"%d" % n, group=n % 3)
        expected += [made] if n % 3 != 2 else []
        assert owner.get(work) is not None
    assert told(listener, len(expected)) == expected
    assert told(removals, len(expected)) == expected
    assert silent(listener)


def test_notices_join_ids_and_drop_none(store: AnyStore, work: str) -> None:
    """What several commits put is one notice; what is more than it may hold comes in the next."""
    listener = store.listeners.add(work, max_ids=10)
    ids = [store.put(work, b"%d" % n) for n in range(4)]
    ids += store.put_many(work, [b"m"] * 21)
    notices = [next_of(listener) for _ in range(3)]
    assert [each.ids for each in notices] == [ids[:10], ids[10:20], ids[20:]]
    assert [each.more for each in notices] == [True, True, False]
    assert silent(listener)


def test_a_slow_listener_is_told_that_it_missed(
    store: AnyStore, owner: Store, work: str, limits: Limits
) -> None:
    """What is kept for it is bounded; what it did not hear in time is a number, and it goes on."""
    limits(RECENT_REMOVALS_KEPT=8)
    listener = store.listeners.add(work)
    removals = store.listeners.add(work, on="removal")
    ids = [owner.put(work, b"%d" % n) for n in range(30)]
    for _ in range(20):
        owner.get(work)
    notice = next_of(listener)
    assert (notice.missed, notice.ids) == (12, ids[12:])
    notice = next_of(removals)
    assert (notice.missed, notice.ids) == (12, ids[12:20])
    ids.append(owner.put(work, b"more"))
    assert told(listener, 1) == ids[-1:]


def test_what_is_kept_is_bounded_by_bytes(
    store: AnyStore, owner: Store, work: str, limits: Limits
) -> None:
    """Of large messages fewer are kept; the last one always."""
    limits(RECENT_REMOVALS_BYTES=50_000)
    listener = store.listeners.add(work)
    ids = [owner.put(work, bytes(20_000)) for _ in range(6)]
    owner.get_many(work, 3)
    for _ in range(3):
        owner.get(work)
    notice = next_of(listener)
    assert notice.missed == 4
    assert notice.ids == ids[4:]
    last = owner.put(work, bytes(90_000))
    owner.get(work)
    assert told(listener, 1) == [last]


def test_nobody_listens_for_long(store: AnyStore, owner: Store, work: str, clock: Clock) -> None:
    """What readers take is looked at for listeners only as long as these ask; then it is missed."""
    queue: Any = owner._context.state.queue(work)

    def is_looked_at() -> bool:
        return queue.recent_removals is not None

    assert not is_looked_at()
    listener = store.listeners.add(work)
    assert is_looked_at()
    assert not queue.subscription(None).is_plain
    clock.forward(LISTENED_SECONDS + 1)
    eventually(lambda: not is_looked_at())
    assert queue.subscription(None).is_plain
    assert not owner._context.state.special
    owner.put(work, b"1")
    owner.get(work)
    assert next_of(listener).missed == 1


# What becomes available after its put


def came(listener: Any, on: str, ids: list[int]) -> None:
    """These are told so, and nothing else is."""
    notice = next_of(listener)
    assert (notice.on, notice.ids, notice.missed) == (on, ids, 0)
    assert silent(listener)


def test_what_is_delayed_is_told_when_it_is_due(store: AnyStore, work: str, clock: Clock) -> None:
    """And not at its put: to who has looked before, to who has not, and to who begins later."""
    early, late = store.listeners.add(work), store.listeners.add(work)
    made = store.put(work, b"1", delay=30.0)
    plain = store.put(work, b"2")
    came(early, "put", [plain])
    begun = store.listeners.add(work, backlog=False)
    assert silent(begun)
    clock.forward(31.0)
    came(early, "due", [made])
    came(late, "put", [made, plain])
    came(begun, "due", [made])
    came(store.listeners.add(work), "put", [made, plain])
    assert store.get(work, id=made) is not None


def test_a_delayed_message_wakes_a_callback(store: AnyStore, work: str) -> None:
    """The documented recipe: each id that is told can be got, and nothing is left."""
    got: list[bytes] = []

    def take(notice: Notice) -> None:
        for each in notice.ids:
            message = store.get(work, id=each)
            if message is not None:
                got.append(message.payload)

    store.listeners.add(work, take)
    store.put(work, b"later", delay=0.05)
    store.put(work, b"now")
    eventually(lambda: sorted(got) == [b"later", b"now"])


@pytest.mark.parametrize("way", ["rollback", "reject", "unget", "hold", "prepared"])
def test_what_is_given_back_is_told_again(store: AnyStore, work: str, way: str) -> None:
    """When it can be got again, and not before."""
    made = store.put(work, b"1")
    listener = store.listeners.add(work)
    came(listener, "put", [made])
    txn = store.transaction()
    message = None
    if way == "hold":
        assert len(txn.read_many(work, hold=True)) == 1
    else:
        message = txn.get(work)
        assert message is not None
    assert silent(listener)
    if way == "reject" and message is not None:
        txn.reject(message)
    elif way == "unget":
        txn.unget()
    elif way == "prepared":
        txn.prepare("x")
        store.prepared.rollback("x")
    else:
        txn.rollback()
    came(listener, "returned", [made])
    if way in ("reject", "unget"):
        txn.rollback()
    assert silent(listener)


def test_what_was_rejected_with_a_delay_is_told_when_it_is_over(
    store: AnyStore, clock: Clock
) -> None:
    """By `reject`, and by the queue's `retry`."""
    store.create_queue("q", retry={"delay": 30.0})
    made = store.put("q", b"1")
    listener = store.listeners.add("q")
    came(listener, "put", [made])
    for is_rejected in (True, False):
        with store.transaction() as txn:
            message = txn.get("q")
            assert message is not None
            if is_rejected:
                txn.reject(message, delay=20.0)
            else:
                txn.rollback()
        assert silent(listener)
        clock.forward(60.0)
        came(listener, "returned", [made])


def test_what_comes_back_is_told_to_whom_it_fits(store: AnyStore, work: str) -> None:
    """By its group, and by the condition; with as many ids as are asked for."""
    ids = [store.put(work, b"m", group=n % 3, attributes={"n": str(n)}) for n in range(9)]
    group = store.listeners.add(work, group=1, max_ids=2)
    where = store.listeners.add(work, where="n > 6")
    assert told(group, 6) == [each for n, each in enumerate(ids) if n % 3 != 2]
    assert told(where, 2) == ids[7:]
    with store.transaction() as txn:
        assert len(txn.get_many(work)) == 9
        txn.rollback()
    assert told(group, 6) == [each for n, each in enumerate(ids) if n % 3 != 2]
    came(where, "returned", ids[7:])


def test_nothing_is_told_while_gets_are_stopped(store: AnyStore, work: str) -> None:
    """It is when they go on."""
    listener = store.listeners.add(work)
    store.alter_queue(work, gets=False)
    made = store.put(work, b"1")
    assert silent(listener)
    store.alter_queue(work, gets=True)
    came(listener, "put", [made])


def test_a_name_is_told_what_was_due_meanwhile(
    store: AnyStore, owner: Store, work: str, clock: Clock
) -> None:
    """Also where nobody has listened for a while: each delayed message once."""
    ids = [store.put(work, b"%d" % n, delay=10.0 * (n + 1)) for n in range(3)]
    first = store.listeners.add(work, name="me")
    assert silent(first)
    clock.forward(11.0)
    came(first, "due", ids[:1])
    first.close()
    owner._context.listening._end(owner._context.state.queue(work))  # as after a minute
    clock.forward(10.0)
    again = store.listeners.add(work, name="me")
    came(again, "due", ids[1:2])
    clock.forward(10.0)
    came(again, "due", ids[2:])


# Removals


def test_removals_of_a_work_queue(store: AnyStore, work: str) -> None:
    """What readers committed, in the order of their commits; not what they gave back."""
    ids = [store.put(work, b"%d" % n) for n in range(5)]
    listener = store.listeners.add(work, on="removal")
    first = store.transaction()
    assert len(first.get_many(work, 2)) == 2
    with store.transaction() as txn:
        assert txn.get(work) is not None
    assert told(listener, 1) == [ids[2]]
    first.commit()
    assert told(listener, 2) == ids[:2]
    with store.transaction() as txn:
        txn.get_many(work)
        txn.rollback()
    assert silent(listener)


def test_removals_of_a_subscription(store: AnyStore) -> None:
    """Each subscription of a topic has its own."""
    store.create_queue("news", kind="topic")
    for name in ("a", "b"):
        store.subscribe("news", name)
    listeners = {name: store.listeners.add(f"news/{name}", on="removal") for name in ("a", "b")}
    ids = [store.put("news", b"%d" % n) for n in range(3)]
    store.get_many("news/a", 2)
    assert told(listeners["a"], 2) == ids[:2]
    assert silent(listeners["b"])
    store.get_many("news/b", 3)
    assert told(listeners["b"], 3) == ids
    with store.transaction() as txn:
        txn.read_to("news/a", 3)
    assert told(listeners["a"], 1) == ids[2:]
    with store.transaction() as txn:
        txn.read_to("news/b", 2)  # which it has read
    assert silent(listeners["b"])


def test_removals_of_a_subscription_with_a_selector(store: AnyStore, owner: Store) -> None:
    """What it does not ask for has not left it, be it passed by before or between what was got."""
    store.create_queue("t", kind="topic")
    store.subscribe("t", "all")
    store.subscribe("t", "red", where="colour = 'red'")
    red = store.listeners.add("t/red", on="removal")
    late = store.listeners.add("t/red", on="removal", where="n > 3")
    ids = [
        store.put("t", b"m", attributes={"colour": "red" if n % 2 else "blue", "n": str(n)})
        for n in range(6)
    ]
    eventually(lambda: [each.pending for each in owner.subscriptions("t")] == [6, 3])
    assert silent(red)
    assert [each.id for each in store.get_many("t/red", 2)] == ids[1:4:2]
    assert told(red, 2) == ids[1:4:2]
    assert silent(late)
    assert store.get("t/red", id=ids[5]) is not None
    assert store.get_many("t/all").payloads() == [b"m"] * 6
    assert told(red, 1) == told(late, 1) == ids[5:]
    assert silent(red)


def test_a_subscription_that_was_moved_back(store: AnyStore) -> None:
    """What it reads again leaves it again, and is told again."""
    store.create_queue("news", kind="topic", keep_forever=True)
    store.subscribe("news", "a")
    listener = store.listeners.add("news/a", on="removal")
    ids = [store.put("news", b"%d" % n) for n in range(3)]
    store.get_many("news/a")
    assert told(listener, 3) == ids
    with store.transaction() as txn:
        txn.seek("news/a", 1)
    assert silent(listener)
    store.get_many("news/a")
    assert told(listener, 2) == ids[1:]
    ids = [store.put("news", b"%d" % n) for n in range(3)]
    with store.transaction() as txn:
        txn.seek("news/a", "latest")  # what it passes so nobody looks at
    assert next_of(listener).missed == 3


def test_what_expires_has_left(store: AnyStore, clock: Clock) -> None:
    """What expires has left as what a reader got has."""
    store.create_queue("q", ttl=5.0)
    listener = store.listeners.add("q", on="removal")
    made = store.put("q", b"1")
    clock.forward(6.0)
    assert told(listener, 1) == [made]


@pytest.mark.parametrize(
    "options", [{"type": "volatile"}, {"order": "priority"}, {"retry": {"delay": 1.0}}], ids=str
)
def test_kinds_of_queues(store: AnyStore, options: dict[str, Any]) -> None:
    """Whatever the order is in which a queue delivers, puts are told in the order of commits."""
    store.create_queue("q", **options)
    priority: dict[str, Any] = {"priority": 1} if "order" in options else {}
    ids = [store.put("q", b"0"), store.put("q", b"1", **priority)]
    puts, removals = store.listeners.add("q"), store.listeners.add("q", on="removal")
    assert told(puts, 2) == ids
    got = [store.get("q").id for _ in ids]  # type: ignore[union-attr]
    assert told(removals, 2) == got
    assert got == (ids[::-1] if priority else ids)
    ids = [store.put("q", b"2")]
    store.get("q")
    assert told(puts, 1) == told(removals, 1) == ids


# Loops and callbacks


def test_a_loop_ends_when_it_is_closed(store: AnyStore, work: str) -> None:
    """By another thread, while it waits; what it was told is whole."""
    listener = store.listeners.add(work)
    heard: list[int] = []

    def listen() -> None:
        for notice in listener:
            heard.extend(notice.ids)

    thread = threading.Thread(target=listen)
    thread.start()
    made = store.put(work, b"1")
    eventually(lambda: heard == [made])
    listener.close()
    listener.close()
    thread.join(SECONDS)
    assert not thread.is_alive()
    assert listener.closed


def test_a_callback_is_called(store: AnyStore, owner: Store, work: str) -> None:
    """In one thread of the store object, one after another for all of its listeners."""
    threads: set[str] = set()
    backlog = store.put(work, b"0")
    first, second = SequenceProgress(), SequenceProgress()

    def call(notice: Notice) -> None:
        threads.add(threading.current_thread().name)
        second(notice)

    one = store.listeners.add(work, first)
    two = store.listeners.add(work, call, backlog=False)
    ids = [owner.put(work, b"%d" % n) for n in range(50)]
    assert first.wait(51) == [backlog, *ids]
    assert second.wait(50) == ids
    assert threads == {"quire-listen"}
    one.close()
    two.close()
    with pytest.raises(InvalidArgument, match="calls back"):
        one.get(0)


def test_a_callback_may_use_the_store(store: AnyStore, work: str) -> None:
    """It gets what it was told of, puts, listens, and closes its own listener."""
    done, answers = threading.Event(), SequenceProgress()
    other = store.create_queue("other").name

    def take(notice: Notice) -> None:
        for each in notice.ids:
            message = store.get(work, id=each)
            assert message is not None
            store.put(other, message.payload)
        if store.queue(other).messages == 3:
            store.listeners.add(other, answers)
            listener.close()
            done.set()

    listener = store.listeners.add(work, take)
    for n in range(3):
        store.put(work, b"%d" % n)
    assert done.wait(SECONDS)
    assert len(answers.wait(3)) == 3
    store.put(work, b"nobody hears")
    assert store.queue(work).messages == 1
    assert listener.closed
    assert listener.error is None


def test_a_callback_that_raises(
    store: AnyStore, work: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has it; it is called again for what comes, and others are called."""
    heard, wrong = SequenceProgress(), SequenceProgress()

    def fail(notice: Notice) -> None:
        wrong(notice)
        raise KeyError("in a callback")

    failing, other = store.listeners.add(work, fail), store.listeners.add(work, heard)
    ids = []
    for n in range(3):
        ids.append(store.put(work, b"%d" % n))
        assert heard.wait(n + 1) == ids
        assert wrong.wait(n + 1) == ids
    assert "in a callback" in caplog.text
    assert not failing.closed
    failing.close()
    other.close()


def test_listeners_end_with_their_queue(
    store: AnyStore, work: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A loop by the error, a callback with a line in the log."""
    loop, heard = store.listeners.add(work), SequenceProgress()
    calling = store.listeners.add(work, heard)
    store.drop_queue(work)
    with pytest.raises(QueueNotFound):
        loop.get(SECONDS)
    eventually(lambda: calling.closed)
    assert isinstance(calling.error, QueueNotFound)
    assert "has ended" in caplog.text


def test_another_queue_of_the_name(store: AnyStore, work: str) -> None:
    """A place of a queue that was dropped is not taken for one of the next."""
    listener = store.listeners.add(work)
    store.put(work, b"1")
    assert len(told(listener, 1)) == 1
    store.drop_queue(work)
    store.create_queue(work)
    with pytest.raises(PositionLost, match="listen anew"):
        listener.get(0)


@pytest.mark.parametrize("on", ["put", "removal"])
@pytest.mark.parametrize("name", [None, "me"])
def test_a_place_is_of_one_queue(store: AnyStore, work: str, on: Any, name: str | None) -> None:
    """A queue that has its name later is another one, however many messages it has had."""
    listener = store.listeners.add(work, on=on, name=name)
    for n in range(3):
        store.put(work, b"%d" % n)
        store.get(work)
    assert len(told(listener, 3)) == 3
    before = store.queue(work).created_us
    place = store.listeners.poll_notices(work, on=on)
    store.drop_queue(work)
    store.create_queue(work)
    assert store.queue(work).created_us > before
    ids = [store.put(work, b"%d" % n) for n in range(5)]
    assert len(store.get_many(work)) == 5
    with pytest.raises(PositionLost, match="listen anew"):
        listener.get(SECONDS)
    with pytest.raises(PositionLost, match="listen anew"):
        store.listeners.poll_notices(work, place.position, on=on, created_us=place.created_us)
    assert store.listeners.poll_notices(work, 3, on="put").position == 5
    ids += [store.put(work, b"after")]
    if on == "put":
        assert told(store.listeners.add(work, name=name), 1) == ids[-1:]


@with_callbacks
def test_listeners_end_with_their_store(store: AnyStore, work: str) -> None:
    """The thread of the callbacks too; a loop says so."""
    loop, heard = store.listeners.add(work), SequenceProgress()
    calling = store.listeners.add(work, heard)
    failures: list[Exception] = []

    def listen() -> None:
        try:
            loop.get()
        except StoreClosed as error:
            failures.append(error)

    thread = threading.Thread(target=listen)
    thread.start()
    store.close()
    thread.join(SECONDS)
    assert len(failures) == 1
    eventually(lambda: calling.closed)
    eventually(lambda: all(t.name != "quire-listen" for t in threading.enumerate()))
    assert calling.error is None
    with pytest.raises(StoreClosed):
        store.listeners.add(work, heard)


# Under a name


def test_a_name_goes_on(store: AnyStore, work: str) -> None:
    """Where it was done with a notice; the last one, which it was not done with, is told again."""
    ids = [store.put(work, b"%d" % n) for n in range(3)]
    listener = store.listeners.add(work, name="me", max_ids=2)
    assert next_of(listener).ids == ids[:2]
    assert next_of(listener).ids == ids[2:]
    listener.close()
    again = store.listeners.add(work, name="me")
    assert told(again, 1) == ids[2:]
    assert silent(again)
    again.close()
    later = store.put(work, b"later")
    [info] = store.listeners.list()
    assert (info.name, info.source, info.on, info.position) == ("me", work, "put", 3)
    assert told(store.listeners.add(work, name="me"), 1) == [later]
    assert store.listeners.remove("me")
    assert not store.listeners.remove("me")
    assert store.listeners.list() == []


@pytest.mark.parametrize("on", ["put", "removal"])
def test_what_came_meanwhile(store: AnyStore, owner: Store, work: str, on: Any) -> None:
    """Is told as far as it is known, and else how much was missed."""
    store.listeners.add(work, name="me", on=on).close()
    owner._context.listening._end(owner._context.state.queue(work))  # as after a minute
    ids = [owner.put(work, b"%d" % n) for n in range(5)]
    owner.get_many(work, 2)
    listener = store.listeners.add(work, name="me", on=on)
    owner.get(work)
    notice = next_of(listener)
    assert (notice.missed, notice.ids) == (2, ids[2:] if on == "put" else ids[2:3])


def test_a_callback_under_a_name(store: AnyStore, work: str) -> None:
    """What it has returned from is done with, also where it has closed its listener."""
    ids = [store.put(work, b"%d" % n) for n in range(2)]
    heard = SequenceProgress()

    def once(notice: Notice) -> None:
        heard(notice)
        listener.close()

    ready = threading.Event()

    def begin(notice: Notice) -> None:
        ready.wait(SECONDS)
        once(notice)

    listener = store.listeners.add(work, begin, name="me")
    ready.set()
    assert heard.wait(2) == ids
    eventually(lambda: store.listeners.list()[0].position == 2)
    assert silent(store.listeners.add(work, name="me"))


def test_a_callback_under_a_name_that_raises(
    store: AnyStore, work: str, limits: Limits, caplog: pytest.LogCaptureFixture
) -> None:
    """It is called with the same notice again; its place moves when it has returned."""
    limits(NOTICE_RETRY_SECONDS=0.01)
    ids = [store.put(work, b"%d" % n) for n in range(3)]
    other = SequenceProgress()
    calls: list[list[int]] = []

    def fail_twice(notice: Notice) -> None:
        calls.append(notice.ids)
        if len(calls) < 3:
            assert store.listeners.list()[0].position == 0
            raise KeyError("in a callback")

    listener = store.listeners.add(work, fail_twice, name="me", max_ids=2)
    store.listeners.add(work, other)
    eventually(lambda: calls == [ids[:2], ids[:2], ids[:2], ids[2:]])
    eventually(lambda: store.listeners.list()[0].position == 3)
    assert other.wait(3) == ids
    assert "in a callback" in caplog.text
    assert not listener.closed
    listener.close()


def test_a_callback_under_a_name_that_raises_always(
    store: AnyStore, work: str, limits: Limits, caplog: pytest.LogCaptureFixture
) -> None:
    """After some calls the listener ends with the error; its place stays, so nothing is lost."""
    limits(NOTICE_RETRY_SECONDS=0.001, NOTICE_ATTEMPTS=4)
    made = store.put(work, b"1")
    calls: list[list[int]] = []

    def fail(notice: Notice) -> None:
        calls.append(notice.ids)
        raise KeyError("in a callback")

    listener = store.listeners.add(work, fail, name="me")
    eventually(lambda: listener.closed)
    assert calls == [[made]] * 4
    assert isinstance(listener.error, KeyError)
    assert "has ended" in caplog.text
    assert told(store.listeners.add(work, name="me"), 1) == [made]


def test_one_listens_under_a_name(store: AnyStore, work: str) -> None:
    """Who comes later goes on, and the other one is told so; as when it is removed."""
    first = store.listeners.add(work, name="me")
    second = store.listeners.add(work, name="me")
    made = store.put(work, b"1")
    assert told(second, 1) == [made]
    assert told(first, 1) == [made]  # each is told at least once
    with pytest.raises(StateConflict, match="'me'"):
        first.get(0)
    assert silent(second)
    store.listeners.remove("me")
    store.put(work, b"2")
    assert len(told(second, 1)) == 1
    with pytest.raises(StateConflict):
        second.get(0)


class NotedMeanwhile:
    """A store in which a listener notes its place once, as a transaction has read that."""

    def __init__(self, store: AnyStore, listener: Any) -> None:
        self.store = store
        self.listener = listener
        self.reads = 0

    @contextmanager
    def transaction(self) -> Iterator[NotedMeanwhile]:
        with self.store.transaction() as self.txn:
            yield self

    def get_value(self, name: str, key: str) -> bytes | None:
        self.reads += 1
        value = self.txn.get_value(name, key)
        if self.reads == 1:
            assert silent(self.listener)  # what it was told before is done with
        return value

    def set_value(self, name: str, key: str, value: bytes | None) -> None:
        self.txn.set_value(name, key, value)


def test_a_removal_goes_through_beside_who_listens(store: AnyStore, work: str) -> None:
    """A place that is noted at the same moment makes it begin again, and is gone with it."""
    listener = store.listeners.add(work, name="me")
    store.put(work, b"1")
    told(listener, 1)
    beside: Any = NotedMeanwhile(store, listener)
    assert remove_place(beside, "me")
    assert beside.reads == 2
    assert store.listeners.list() == []


def test_a_name_of_something_else(store: AnyStore, work: str) -> None:
    """Is refused; of another queue of the same name it begins anew."""
    store.put(work, b"1")
    other = store.create_queue("other").name
    assert len(told(store.listeners.add(work, name="me", group=3, where="a = 'b'"), 0)) == 0
    wrong: list[Callable[[], object]] = [
        lambda: store.listeners.add(other, name="me", group=3, where="a = 'b'"),
        lambda: store.listeners.add(work, name="me", where="a = 'b'"),
        lambda: store.listeners.add(work, name="me", group=3),
        lambda: store.listeners.add(work, name="me", group=3, on="removal", where="a = 'b'"),
    ]
    for asked in wrong:
        with pytest.raises(InvalidArgument, match="remove"):
            asked()
    listener = store.listeners.add(work, name="you")
    told(listener, 1)
    assert silent(listener)
    store.drop_queue(work)
    store.create_queue(work)
    made = store.put(work, b"2")
    assert told(store.listeners.add(work, name="you"), 1) == [made]


# What is refused


WRONG_FUNCTIONS: list[Any] = [lambda: None, lambda notice, more: None]
WRONG: dict[str, tuple[type[Exception], Callable[[AnyStore], object]]] = {
    "a queue that is not there": (QueueNotFound, lambda s: s.listeners.add("nowhere")),
    "no source": (InvalidArgument, lambda s: s.listeners.add("a/b/c")),
    "a subscription's puts": (InvalidArgument, lambda s: s.listeners.add("news/a")),
    "a topic's removals": (
        SubscriptionNotFound,
        lambda s: s.listeners.add("news", on="removal"),
    ),
    "on": (InvalidArgument, lambda s: s.listeners.add("work", on="get")),  # type: ignore[arg-type]
    "a group": (InvalidArgument, lambda s: s.listeners.add("work", group=65536)),
    "a group that is none": (InvalidArgument, lambda s: s.listeners.add("work", group="a")),  # type: ignore[arg-type]
    "a selector": (InvalidSelector, lambda s: s.listeners.add("work", where="a = ")),
    "an id": (InvalidArgument, lambda s: s.listeners.add("work", where=5)),  # type: ignore[arg-type]
    "no condition": (InvalidArgument, lambda s: s.listeners.add("work", where=[])),  # type: ignore[arg-type]
    "a callback": (InvalidArgument, lambda s: s.listeners.add("work", 5)),  # type: ignore[arg-type]
    "a callback without a notice": (
        InvalidArgument,
        lambda s: s.listeners.add("work", WRONG_FUNCTIONS[0]),
    ),
    "a callback of two": (InvalidArgument, lambda s: s.listeners.add("work", WRONG_FUNCTIONS[1])),
    "a name": (InvalidArgument, lambda s: s.listeners.add("work", name="a/b")),
    "max_ids": (InvalidArgument, lambda s: s.listeners.add("work", max_ids=0)),
    "more ids": (InvalidArgument, lambda s: s.listeners.add("work", max_ids=1001)),
    "backlog": (InvalidArgument, lambda s: s.listeners.add("work", backlog=1)),  # type: ignore[arg-type]
    "a position": (InvalidArgument, lambda s: s.listeners.poll_notices("work", -1)),
    "an end": (InvalidArgument, lambda s: s.listeners.poll_notices("work", 0, until=-1)),
    "a position to come": (PositionLost, lambda s: s.listeners.poll_notices("work", 5)),
    "a name to remove": (InvalidArgument, lambda s: s.listeners.remove("")),
}


@pytest.mark.cases(3)
@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_refused(store: AnyStore, work: str, wrong: str) -> None:
    """With one of Quire's errors, and nothing listens."""
    store.create_queue("news", kind="topic")
    store.subscribe("news", "a")
    error, call = WRONG[wrong]

    def made() -> None:
        found = call(store)
        if hasattr(found, "__await__"):  # for asyncio it is awaited
            raise AssertionError(found)

    with pytest.raises(error):
        made()
    assert store.listeners.list() == []
