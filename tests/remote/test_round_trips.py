"""What goes to the owner for a request, and for a loop that waits: no more than there has to be."""

from __future__ import annotations

import threading
from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest

from quire import Workers
from quire.engine import EmbeddedStore
from quire.interface.store import Store
from quire.remote import JoinedStore
from quire.remote.wire.protocol import ADD, COMMIT, HEAD, STEP, TELL
from tests.kit.sent_bytes import watch_sends
from tests.kit.waiting import SECONDS, eventually

Sent = dict[int, list[list[int]]]  # by thread: for each time that it sent, the kinds of its frames


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """What clients of this process send."""
    found: Sent = defaultdict(list)

    def noted(data: bytes) -> None:
        kinds = []
        while data:
            kinds.append(data[4])
            data = data[HEAD.size + int.from_bytes(data[:4], "little") :]
        found[threading.get_ident()].append(kinds)

    watch_sends(monkeypatch, noted)
    return found


def test_a_request_is_three_round_trips(
    owner: EmbeddedStore, joined: JoinedStore, sent: Sent
) -> None:
    """Its put, the wait for its reply and the taking of that; what begins them goes with them."""
    owner.create_queue("asked")
    workers = Workers(owner)

    @workers.answer("asked")
    def answer(request: Any, txn: Any) -> bytes:
        return bytes(request.payload)

    thread = threading.Thread(target=workers.run)
    thread.start()
    try:
        joined.request("asked", b"x", SECONDS)  # which makes the queue for replies
        sent.clear()
        assert joined.request("asked", b"y", SECONDS).payload == b"y"
    finally:
        workers.stop()
        thread.join()
    assert sent[threading.get_ident()] == [[ADD, COMMIT], [TELL, STEP], [COMMIT]]


@pytest.mark.parametrize("form", ["owner", "joined"])
def test_a_loop_that_waits_begins_nothing_in_vain(
    owner: EmbeddedStore, joined: JoinedStore, form: str
) -> None:
    """But now and then, less often each time (LM7)."""
    owner.create_queue("q")
    store: Store = owner if form == "owner" else joined
    numbers: list[int] = []

    def waits() -> bool:
        arrived = owner._context.state.queue("q")._arrived
        return arrived is not None and bool(arrived._callbacks)

    def loop() -> None:
        with store.consume("q") as messages:
            for message in messages:
                numbers.append(messages.transaction.id)
                if message.payload == b"end":
                    break

    thread = threading.Thread(target=loop)
    thread.start()
    for count in range(1, 8):
        eventually(waits)
        owner.put("q", b"end" if count == 7 else b"m")
        eventually(lambda count=count: len(numbers) == count)  # type: ignore[misc]
    thread.join()
    steps = [after - before for before, after in pairwise(numbers)]
    assert steps == [1, 1, 2, 1, 1, 1]


def test_a_loop_that_has_ended_waits_no_more(owner: EmbeddedStore) -> None:
    """Though it would have waited for the next message before it looked."""
    owner.create_queue("q")
    messages = owner.consume("q", timeout=SECONDS)
    put = threading.Timer(0.05, owner.put, ["q", b"m"])
    put.start()
    assert next(messages).payload == b"m"
    put.join()
    messages.close()
    assert list(messages) == []


def test_a_loop_looks_at_once_where_there_is_more(owner: EmbeddedStore) -> None:
    """Who has waited takes all that has come, without another wait."""
    owner.create_queue("q")
    taken: list[bytes] = []
    with owner.consume("q", timeout=SECONDS) as messages:
        put = threading.Timer(0.05, owner.put_many, ["q", [b"%d" % n for n in range(100)]])
        put.start()
        for message in messages:
            taken.append(message.payload)
            if len(taken) == 100:
                break
        put.join()
        assert messages._waits_first == 0
    assert taken == [b"%d" % n for n in range(100)]
