"""Putting dead letters back: all that match, however many there are, and nothing else."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from quire import MessageOptions, aio
from quire.batches.moved_messages import QUEUE
from quire.engine import EmbeddedStore as Store
from quire.errors import (
    InvalidArgument,
    QueueDisabled,
    QueueFull,
    QueueNotFound,
    QuireError,
    SubscriptionNotFound,
)
from quire.limits import REDRIVEN_AT_ONCE
from quire.messages.message import Message
from quire.messages.streamed_message import StreamedMessage
from tests.behaviour.forms import AnyStore, Clock

MANY = 3 * REDRIVEN_AT_ONCE


@pytest.fixture
def dead(store: AnyStore) -> str:
    """A queue of letters, and where they come from."""
    store.admin.create_queues([{"name": name, "kind": "work"} for name in ("work", "dead")])
    return "dead"


def die(store: AnyStore, numbers: range, queue: str = "dead", target: str = "work") -> None:
    """Put what looks like dead letters."""
    with store.transaction() as txn:
        for number in numbers:
            attributes = {QUEUE: target}
            txn.put(queue, b"%d" % number, group=number % 3, attributes=attributes)


def payloads(store: AnyStore, queue: str) -> list[int]:
    """Of all that a queue has, looked at."""
    return list(map(int, store.browse(queue, max_messages=2 * MANY).payloads()))


def got(store: AnyStore, queue: str) -> list[int]:
    """All that a queue has, got: none of it was delivered before."""
    found: list[int] = []
    while some := store.get_many(queue, 1000):
        assert {message.delivery_count for message in some} == {1}
        found += map(int, some.payloads())
    return found


def test_all_go_back(store: AnyStore, dead: str) -> None:
    """All go back, however many."""
    die(store, range(MANY + 7))
    assert store.admin.redrive(dead) == MANY + 7
    assert got(store, "work") == list(range(MANY + 7))
    assert payloads(store, dead) == []
    assert store.admin.redrive(dead) == 0


def test_all_that_match_go_back(store: AnyStore, dead: str) -> None:
    """Wherever they are; the others were never delivered."""
    die(store, range(MANY))
    wanted = [*range(MANY - 100, MANY), 5]
    assert store.admin.redrive(dead, lambda letter: int(letter.payload) in wanted) == 101
    assert payloads(store, "work") == sorted(wanted)
    assert payloads(store, dead) == [n for n in range(MANY) if n not in wanted]
    assert store.admin.redrive(dead, lambda letter: False) == 0
    assert got(store, dead) == [n for n in range(MANY) if n not in wanted]


def test_so_many_are_moved_not_looked_at(store: AnyStore, dead: str) -> None:
    """`max_messages`, in the order of their commits."""
    die(store, range(MANY))
    odd = [n for n in range(MANY) if n % 2]
    assert store.admin.redrive(dead, lambda letter: int(letter.payload) % 2 == 1, 1200) == 1200
    assert payloads(store, "work") == odd[:1200]
    assert store.admin.redrive(dead, max_messages=3) == 3
    assert payloads(store, "work")[1200:] == [0, 2, 4]


def test_what_comes_meanwhile_stays(store: AnyStore, dead: str) -> None:
    """Also what was put back and is there again."""
    die(store, range(5))

    def where(letter: Message) -> bool:
        if letter.payload == b"0":
            die(store, range(5, 8))
        return True

    assert store.admin.redrive(dead, where) == 5
    assert payloads(store, dead) == [5, 6, 7]
    assert store.admin.redrive(dead, to=dead) == 3
    assert payloads(store, dead) == [5, 6, 7]


def test_what_others_hold_stays(store: AnyStore, dead: str) -> None:
    """Until they give it back; what they have read is gone, and nothing is doubled."""
    die(store, range(6))
    with store.transaction() as other:
        assert other.get_many(dead, 2).payloads() == [b"0", b"1"]
        assert store.admin.redrive(dead) == 4
        other.commit()
    assert store.admin.redrive(dead) == 0
    assert payloads(store, "work") == [2, 3, 4, 5]


def test_what_is_read_between_the_looks_is_not_put(store: AnyStore, dead: str) -> None:
    """`where` sees it, and then somebody takes it, or all that it has seen."""
    die(store, range(MANY))
    taken: list[bytes] = []

    def where(letter: Message) -> bool:
        if int(letter.payload) % REDRIVEN_AT_ONCE == REDRIVEN_AT_ONCE - 1:
            taken.extend(store.get_many(dead, 1000 if not taken else 1).payloads())
        return True

    assert store.admin.redrive(dead, where) == MANY - len(taken)
    back = payloads(store, "work")
    assert len(taken) > 1000
    assert sorted([*back, *map(int, taken)]) == list(range(MANY))
    assert payloads(store, dead) == []


@pytest.mark.cases(3)
@pytest.mark.parametrize(
    "options",
    [
        {"order": "priority"},
        {"grouped": True},
        {"order": {"attribute": "key"}},
        {"timed": True},
        {"type": "volatile"},
        {"max_deliveries": 3, "dead_letter": "deader"},
        {"retry": {"delay": 600.0}},
    ],
)
def test_whatever_the_order_of_the_letters(store: AnyStore, options: dict[str, Any]) -> None:
    """Those that match go, the others are where they were, with a delivery for none."""
    store.create_queue("deader", kind="work")
    store.create_queue("dead", kind="work", **options)
    store.create_queue("work", kind="work")
    with store.transaction() as txn:
        for number in range(20):
            letter = {QUEUE: "work", "key": f"{19 - number:02}"}
            header: MessageOptions = {"attributes": letter}
            if options.get("order") == "priority":
                header["priority"] = number % 3
            if "grouped" in options:
                header["group_key"] = str(number % 4)
            txn.put(
                "dead",
                b"%d" % number,
                **header,
            )
    with store.transaction() as txn:
        held = txn.get("dead")
        assert held is not None
        number = int(held.payload)
        assert store.admin.redrive("dead", lambda letter: int(letter.payload) < 10) == 10 - (
            number < 10
        )
        txn.unget()
        txn.rollback()
    back = payloads(store, "work")
    assert back == [n for n in range(10) if n != number]
    left = []
    while (message := store.get("dead")) is not None:
        assert message.failed_count == 0
        left.append(int(message.payload))
    assert sorted([*left, *back]) == list(range(20))


def test_what_is_not_due_and_what_waits_for_a_retry_stays(store: AnyStore, clock: Clock) -> None:
    """A get would not give it either."""
    store.create_queue("dead", kind="work", timed=True, retry={"delay": 60.0})
    store.create_queue("work", kind="work")
    store.put("dead", b"0", delay=100.0, attributes={QUEUE: "work"})
    die(store, range(1, 4))
    with store.transaction() as txn:
        message = txn.get("dead")
        assert message is not None
        txn.reject(message)
    assert store.admin.redrive("dead") == 2
    clock.forward(61.0)
    assert store.admin.redrive("dead") == 1
    clock.forward(61.0)
    assert store.admin.redrive("dead") == 1
    assert payloads(store, "work") == [2, 3, 1, 0]


def test_of_a_topic_one_subscription_s(store: AnyStore) -> None:
    """The others keep theirs."""
    store.create_queue("dead", kind="topic")
    store.create_queue("work", kind="work")
    for name in ("a", "b"):
        store.subscribe("dead", name)
    die(store, range(3))
    with pytest.raises(SubscriptionNotFound):
        store.admin.redrive("dead")
    assert store.admin.redrive("dead/a") == 3
    assert store.admin.redrive("dead/a") == 0
    assert got(store, "dead/b") == [0, 1, 2]


def test_a_full_queue_takes_what_it_can(store: AnyStore, dead: str) -> None:
    """The error tells how many went; the others stay, in one of the two queues each."""
    store.create_queue("small", kind="work", max_messages=REDRIVEN_AT_ONCE + 300)
    die(store, range(MANY), target="small")
    with pytest.raises(QueueFull, match="messages were put back before, and stay so") as caught:
        store.admin.redrive(dead)
    room = REDRIVEN_AT_ONCE + 300
    back = payloads(store, "small")
    assert str(caught.value).split("; ")[-1].startswith(f"{len(back)} ")
    assert back == list(range(len(back)))
    assert REDRIVEN_AT_ONCE < len(back) <= room
    assert payloads(store, dead) == list(range(len(back), MANY))
    with pytest.raises(QueueFull) as caught:
        store.admin.redrive(dead)
    assert "put back before" not in str(caught.value)
    assert payloads(store, "small") == back


def test_a_target_that_fails_part_way(store: AnyStore, dead: str) -> None:
    """What was put back before stays so, and the error tells it."""
    die(store, range(REDRIVEN_AT_ONCE))
    die(store, range(REDRIVEN_AT_ONCE, REDRIVEN_AT_ONCE + 2), target="nowhere")
    with pytest.raises(QueueNotFound, match=f"; {REDRIVEN_AT_ONCE} messages were put back before"):
        store.admin.redrive(dead)
    assert payloads(store, dead) == [REDRIVEN_AT_ONCE, REDRIVEN_AT_ONCE + 1]
    store.alter_queue("work", puts=False)
    with pytest.raises(QueueDisabled):
        store.admin.redrive(dead, to="work")
    store.alter_queue("work", puts=True)
    assert store.admin.redrive(dead, to="work") == 2


def test_a_function_that_raises(store: AnyStore, dead: str) -> None:
    """Ends it; what went before is told by a note, and nothing else has moved."""
    die(store, range(REDRIVEN_AT_ONCE + 5))

    def where(letter: Message) -> bool:
        return 1 // (REDRIVEN_AT_ONCE + 3 - int(letter.payload)) >= 0

    with pytest.raises(ZeroDivisionError) as caught:
        store.admin.redrive(dead, where)
    assert caught.value.__notes__ == [
        f"{REDRIVEN_AT_ONCE} messages were put back before, and stay so"
    ]
    assert payloads(store, "work") == list(range(REDRIVEN_AT_ONCE))
    assert len(payloads(store, dead)) == 5


def test_what_is_refused(store: AnyStore, dead: str) -> None:
    """With nothing moved."""
    die(store, range(3))

    async def later(letter: Message) -> bool:
        return True

    wrong: list[tuple[Any, ...]] = [
        (dead, 1.5),
        (dead, later),
        (dead, lambda letter: [later(letter)][0]),
        (dead, None, 0),
        (dead, None, 1.5),
        (dead, None, None, ""),
        ("",),
    ]
    for each in wrong:
        with pytest.raises(InvalidArgument):
            store.admin.redrive(*each)
    with pytest.raises(QueueNotFound):
        store.admin.redrive("nowhere")
    assert payloads(store, dead) == [0, 1, 2]


def test_several_at_the_same_time(store: AnyStore, dead: str) -> None:
    """Each letter goes back once, whoever has it."""
    die(store, range(MANY))
    counts: list[int] = []
    errors: list[QuireError] = []

    def work(remainder: int) -> None:
        try:
            counts.append(store.admin.redrive(dead, lambda m: int(m.payload) % 4 != remainder))
        except QuireError as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert sum(counts) == MANY
    assert sorted(payloads(store, "work")) == list(range(MANY))


def test_streamed_letters(store: AnyStore, dead: str) -> None:
    """Chunk by chunk, in the owner."""
    with store.transaction() as txn, txn.put_writer(dead, attributes={QUEUE: "work"}) as payload:
        for _ in range(20):
            payload.write(b"x" * 100_000)
    assert store.admin.redrive(dead, lambda letter: letter.size > 0) == 1
    with store.transaction() as txn:
        message = txn.get("work")
        assert isinstance(message, StreamedMessage)
        with message.open() as stream:
            assert sum(len(chunk) for chunk in iter(lambda: stream.read(1 << 20), b"")) == 2_000_000


def test_by_asyncio(owner: Store) -> None:
    """A task of asyncio redrives; the call is made in a thread."""
    owner.admin.create_queues([{"name": name, "kind": "work"} for name in ("work", "dead")])
    die(owner, range(1500))

    async def main() -> int:
        async with aio.open(owner.path) as store:
            found: int = await store.admin.redrive("dead", lambda letter: letter.payload != b"7")
            return found

    assert asyncio.run(main()) == 1499
