"""What a commit puts on behalf of somebody else keeps nobody from anything, in every form.

That is reports of all kinds, replies, dead letters; their queue is full, stopped, typed or gone.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from quire.errors import InvalidArgument, QueueNotFound
from quire.interface.sessions.answering import answering
from tests.behaviour.forms import AnyStore, Clock
from tests.kit.behind_loop import BehindLoop
from tests.kit.waiting import eventually

CONDITIONS: dict[str, Callable[[AnyStore, str], object]] = {
    "gone": lambda store, name: store.drop_queue(name),
    "typed": lambda store, name: [store.drop_queue(name), store.create_queue(name, schema="n INT")],
    "stopped": lambda store, name: store.alter_queue(name, puts=False),
    "full": lambda store, name: [store.alter_queue(name, max_messages=1), store.put(name, b"x")],
}


def asked(event: str) -> dict[str, Any]:
    """Options of a message whose sender asks for a report to "told"."""
    return {"reply_to": "told", "correlation_id": "1", "attributes": {"quire.reports": event}}


def mend(store: AnyStore) -> None:
    """Have "told" take messages again."""
    with suppress(QueueNotFound):
        store.drop_queue("told")
    store.create_queue("told")


# For each kind: what is done before the queue refuses, and what happens then.


def arrive(store: AnyStore, clock: Clock) -> None:
    """A message that asks for it is put; it is there."""
    store.put("q", b"x", **asked("arrival"))
    store.put_many("q", [b"y"])
    assert store.get_many("q").payloads() == [b"x", b"y"]


def deliver(store: AnyStore, clock: Clock) -> None:
    """Such a message is got, by itself and with one behind it."""
    found = store.get("q")
    assert found is not None
    assert found.payload == b"first"
    with store.transaction() as txn:
        assert txn.get_many("q").payloads() == [b"first", b"second"]
    assert store.queue("q").messages == 0


def expire(store: AnyStore, clock: Clock) -> None:
    """Such a message expires; what is behind it is got."""
    clock.forward(20.0)
    found = store.get("q")
    assert found is not None
    assert found.payload == b"second"
    eventually(lambda: store.queue("q").messages == 0)


def fail(store: AnyStore, clock: Clock) -> None:
    """Such a message becomes a dead letter, what is behind it is got."""
    with store.transaction() as txn:
        message = txn.get("q")
        assert message is not None
        txn.reject(message, "bad")
    assert store.get_many("q").payloads() == [b"first", b"second"]
    eventually(lambda: store.queue("dead").messages == 1)
    assert store.get("dead") is not None


def give_way(store: AnyStore, clock: Clock) -> None:
    """Such a message has to make room for another one."""
    store.alter_queue("q", max_messages=3, overflow="drop_oldest")
    store.put("q", b"third")
    assert store.get_many("q").payloads() == [b"first", b"second", b"third"]


def answer(store: AnyStore, clock: Clock) -> None:
    """A request is answered: it is executed once, and its reply is dropped."""
    count = 0

    def function(request: Any, txn: Any) -> bytes:
        nonlocal count
        count += 1
        return b"done"

    while store.queue("q").messages:
        with store.transaction() as txn:
            request = txn.get("q")
            inner: Any = (store, txn)
            if isinstance(store, BehindLoop):  # as `AsyncWorkers` does
                inner = store._inner._inner, txn._inner._inner  # type: ignore[attr-defined]
            answering(inner[0], "q", function)(request, inner[1])
    assert count == 3


def of(event: str) -> Callable[[AnyStore], None]:
    """Put two messages that ask for a report of the event, and one that asks for none."""

    def put(store: AnyStore) -> None:
        expiry: dict[str, Any] = {"ttl": 10.0} if event == "expiry" else {}
        for _ in range(1 if event == "expiry" else 2):
            store.put("q", b"first", **asked(event), **expiry)
        store.put("q", b"second")

    return put


def requests(store: AnyStore) -> None:
    """Three of them, the last of which asks for no reply."""
    for number in range(3):
        store.put("q", b"x", reply_to="told" if number < 2 else None, correlation_id=str(number))


KINDS: dict[str, tuple[Callable[[AnyStore], None], Callable[[AnyStore, Clock], None]]] = {
    "arrival": (lambda store: None, arrive),
    "delivery": (of("delivery"), deliver),
    "expiry": (of("expiry"), expire),
    "exception": (of("exception"), fail),
    "overflow": (of("exception"), give_way),
    "reply": (requests, answer),
}


def make(store: AnyStore, kind: str) -> None:
    """The queues of a kind."""
    store.create_queue("dead", exist_ok=True)
    options = {"max_deliveries": 1, "dead_letter": "dead"} if kind == "exception" else {}
    store.create_queue("q", timed=True, **options)  # type: ignore[arg-type]


@pytest.mark.cases(3)
@pytest.mark.parametrize("kind", KINDS)
def test_what_its_queue_does_not_take_is_dropped(
    store: AnyStore, clock: Clock, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """The message is put, got, gone or answered at the first try, and the log tells the rest."""
    before, happens = KINDS[kind]
    for condition, refuse in CONDITIONS.items():
        caplog.clear()
        mend(store)
        make(store, kind)
        before(store)
        refuse(store, "told")
        happens(store, clock)
        assert "told" in caplog.text, condition
        assert ("dropped" in caplog.text) == (kind != "reply")
        assert ("is not answered" in caplog.text) == (kind == "reply")
        if condition != "gone":
            assert store.queue("told").messages == (condition == "full")
        store.drop_queue("q")
        assert store.admin.verify().ok


@pytest.mark.parametrize("condition", ["typed", "stopped", "full"])
def test_a_report_is_a_dead_letter_of_the_queue_that_refuses_it(
    store: AnyStore, condition: str
) -> None:
    """From which `redrive` puts it back as what it is."""
    store.create_queue("q")
    store.create_queue("letters")
    options: dict[str, Any] = {"max_deliveries": 3, "dead_letter": "letters"}
    if condition == "typed":
        store.create_queue("told", schema="n INT", **options)
    else:
        store.create_queue("told", **options)
        CONDITIONS[condition](store, "told")
    store.put("q", b"x", **asked("delivery"))
    assert store.get("q") is not None
    (letter,) = store.browse("letters")
    assert letter.attributes["quire.report"] == "delivery"
    assert letter.attributes["quire.queue"] == "told"
    assert "told" in letter.attributes["quire.reason"]
    if condition == "typed":
        return
    store.alter_queue("told", puts=True, max_messages=None)
    store.get_many("told")
    assert store.admin.redrive("letters") == 1
    (report,) = store.get_many("told")
    assert (report.payload, report.correlation_id) == (b"", "1")
    assert report.attributes["quire.type"] == "report"
    assert report.attributes["quire.report"] == "delivery"


@pytest.mark.parametrize("remedy", ["grow_to", "drop_oldest"])
def test_a_queue_for_reports_makes_room_as_it_says(store: AnyStore, remedy: str) -> None:
    """As for any put: nothing is dropped where it grows, else its oldest messages."""
    store.create_queue("q")
    if remedy == "grow_to":
        store.create_queue("told", capacity=8192, grow_to=1 << 20)
        store.put("told", b"x" * 7900)
    else:
        store.create_queue("told", max_messages=1, overflow="drop_oldest")
        store.put("told", b"x")
    store.put("q", b"x", **asked("arrival delivery"))
    assert store.get("q") is not None
    events = [each.attributes.get("quire.report") for each in store.get_many("told")]
    assert events == ([None, "arrival", "delivery"] if remedy == "grow_to" else ["delivery"])


@pytest.mark.parametrize("condition", ["stopped", "full"])
def test_dead_letters_that_their_queue_does_not_take_wait_beside_the_others(
    store: AnyStore, condition: str
) -> None:
    """Hidden; who gets goes on, and they go when the cause is mended."""
    store.create_queue("told")
    store.create_queue("q", max_deliveries=1, dead_letter="told")
    for number in range(3):
        store.put("q", b"%d" % number)
    CONDITIONS[condition](store, "told")
    with store.transaction() as txn:
        message = txn.get("q")
        assert message is not None
        txn.reject(message, "bad")
        txn.get("q")
        txn.rollback()
    assert store.get_many("q").payloads() == [b"2"]
    store.put("q", b"3")
    assert store.get_many("q").payloads() == [b"3"]
    store.alter_queue("told", puts=True, max_messages=None)
    store.get_many("told")
    eventually(lambda: store.queue("told").messages == 2)
    assert store.queue("q").messages == 0


def test_a_queue_of_dead_letters_is_neither_dropped_nor_typed(store: AnyStore) -> None:
    """It takes the messages of the queue that it is for."""
    store.create_queue("dead")
    store.create_queue("rows", schema="n INT")
    store.create_queue("q", max_deliveries=1, dead_letter="dead")
    with pytest.raises(InvalidArgument, match="other columns"):
        store.alter_queue("q", dead_letter="rows")
