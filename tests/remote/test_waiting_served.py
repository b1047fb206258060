"""Gets that wait at an owner, over real connections: without a thread, woken one by one, ended."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.env import OsEnv
from quire.opening import open as open_store
from quire.remote import JoinedStore, StoreServer
from quire.remote.ownership.shared_store import SharedStore
from quire.remote.wire.protocol import COMMITTED, MESSAGE, NOTHING, STEP, Frame
from tests.kit.children import child, join
from tests.kit.limits import Limits
from tests.kit.programs import OWNER
from tests.kit.raw_stream import RawStream, call, commit, get
from tests.kit.waiting import SECONDS, eventually
from tests.remote.test_robustness import memory

LONG = 1000.0  # seconds that nobody waits


class Waiters:
    """Connections to an owner, each with a get that waits."""

    def __init__(self, owner: Store, url: str, stack: ExitStack) -> None:
        assert isinstance(owner, SharedStore)
        self.server: StoreServer = owner.share(OsEnv())
        self.owner = owner
        self._url = url
        self._stack = stack

    def stream(self) -> RawStream:
        """A connection."""
        return self._stack.enter_context(closing(RawStream(self._url)))

    def wait(self, request: bytes, stream: RawStream | None = None) -> RawStream:
        """One that waits at the owner by now."""
        before = self.waiting
        stream = stream or self.stream()
        stream.send(request)
        eventually(lambda: self.waiting == before + 1)
        return stream

    @property
    def waiting(self) -> int:
        """How many wait, as users see it."""
        return int(str(self.server.status()["waiting"]))

    @property
    def tries(self) -> int:
        """How often gets were tried that had waited."""
        gets = self.server._requests.waiting_gets
        return 0 if gets is None else gets.tries


@pytest.fixture
def waiters(owner: Store, joined: JoinedStore) -> Iterator[Waiters]:
    """An owner with a queue `work`."""
    owner.create_queue("work", kind="work")
    with ExitStack() as stack:
        yield Waiters(owner, joined.url, stack)


def get_many(source: str, seconds: float | None, **more: Any) -> bytes:
    """The call, in the first transaction of a connection."""
    arguments = {"source": source, "timeout": seconds, **more}
    return call({"op": "get_many", "arguments": arguments}, kind=STEP)


REQUESTS: dict[str, Callable[[str, float], bytes]] = {
    "get": lambda source, seconds: get(1, source, seconds),
    "get_many": get_many,
    "a get with a header": lambda source, seconds: call(
        {"op": "get", "arguments": {"source": source, "timeout": seconds}}, kind=STEP
    ),
}

every_request = pytest.mark.parametrize("request_of", REQUESTS.values(), ids=REQUESTS)


def has_message(frame: Frame) -> bool:
    """Whether an answer brings any."""
    assert "error" not in frame.header, frame.header
    return bool(frame.bodies and len(frame.bodies[0]))


def test_a_put_wakes_one_of_many(waiters: Waiters) -> None:
    """WG1: the one that came first; the others are not tried, and no thread is there for them."""
    threads = threading.active_count()
    streams = [waiters.wait(get(1, "work", LONG)) for _ in range(50)]
    assert threading.active_count() <= threads + 4  # workers that are kept, and one that loads
    for number, stream in enumerate(streams[:5]):
        waiters.owner.put("work", b"%d" % number)
        assert bytes(stream.next().bodies[0]).endswith(b"%d" % number)
        assert (waiters.waiting, waiters.tries) == (49 - number, number + 1)


def test_a_put_by_a_client_wakes_one(waiters: Waiters, joined: JoinedStore) -> None:
    """WG1: by the server's own thread, too; and so does what is rolled back."""
    first, second = (waiters.wait(get(1, "work", LONG)) for _ in range(2))
    joined.put("work", b"x")
    assert has_message(first.next())
    assert waiters.tries == 1
    first.close()
    assert has_message(second.next())
    assert waiters.tries == 2


@pytest.mark.parametrize("count", [200, pytest.param(2000, marks=pytest.mark.long)])
def test_many_wait_at_once(store_path: str, count: int, record_property: Any) -> None:
    """SV1: without a thread each, in little memory; a put is served to one of them."""
    with child(OWNER, store_path) as owner, ExitStack() as stack:
        assert owner.line() == "ready"
        store = stack.enter_context(join(store_path))
        store.create_queue("work", kind="work")
        streams = [stack.enter_context(closing(RawStream(store.url))) for _ in range(count)]
        for stream in streams:
            stream.ask(get(1, "work"))
        before = memory(owner.process.pid)
        for stream in streams:
            stream.send(get(1, "work", LONG))
        eventually(lambda: store.status()["sharing"]["waiting"] == count)
        assert store.status()["sharing"]["threads"] < 10
        each = (memory(owner.process.pid) - before) / count
        record_property("bytes of memory for a get that waits", each)
        print(f"{each:.0f} bytes of memory for each of {count} gets that wait")
        assert each < 8 << 10
        answers = select.poll()
        by_file = {stream.socket.fileno(): stream for stream in streams}
        for file in by_file:
            answers.register(file, select.POLLIN)
        for number in range(3):  # to whichever the owner has heard of first
            store.put("work", b"%d" % number)
            [(file, _)] = answers.poll(SECONDS * 1000)
            assert bytes(by_file[file].next().bodies[0]).endswith(b"%d" % number)
        eventually(lambda: store.status()["sharing"]["waiting"] == count - 3)


@every_request
def test_a_get_that_waits_is_answered(
    waiters: Waiters, request_of: Callable[[str, float], bytes]
) -> None:
    """By what comes; by nothing, when its time is over; the connection goes on after either."""
    stream = waiters.wait(request_of("work", LONG))
    waiters.owner.put("work", b"x")
    assert has_message(stream.next())
    eventually(lambda: waiters.waiting == 0)
    assert not has_message(stream.ask(request_of("work", 0.05)))
    stream.ask(commit(1, 0))
    assert waiters.owner.queue("work").messages == 0


def test_short_answers_stay_short(waiters: Waiters) -> None:
    """A GET is answered by MESSAGE and NOTHING, whether it waited or not."""
    stream = waiters.wait(get(1, "work", LONG))
    waiters.owner.put("work", b"x")
    assert stream.frame()[4] == MESSAGE
    stream.send(get(1, "work", 0.01))
    assert stream.frame()[4] == NOTHING


def test_a_pattern_is_waited_for(waiters: Waiters) -> None:
    """Also a queue that is made later is named by it."""
    stream = waiters.wait(get(1, "*", LONG))
    waiters.owner.create_queue("more", kind="work")
    waiters.owner.put("more", b"x")
    assert has_message(stream.next())


def expire(waiters: Waiters, number: int) -> None:
    """The maintenance finds that the transaction is open for too long."""
    context = waiters.owner._context
    transaction = context.registry.get(waiters.owner.admin.transactions()[number].id)
    assert transaction is not None
    transaction.deadline = 0.0
    context.registry.expire(context.env.monotonic())


ENDS: dict[str, tuple[Callable[[Waiters, int], object], str]] = {
    "abort": (
        lambda w, n: w.owner.admin.abort(w.owner.admin.transactions()[n].id),
        "TransactionAborted",
    ),
    "time-out": (expire, "TransactionTimeout"),
}


@every_request
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("end", ENDS)
def test_others_end_a_transaction(
    waiters: Waiters, request_of: Callable[[str, float], bytes], number: int, end: str
) -> None:
    """It is told so at once, wherever it stands in the line; the other one waits on."""
    streams = [waiters.wait(request_of("work", LONG)) for _ in range(2)]
    action, error = ENDS[end]
    action(waiters, number)
    answer = streams[number].next().header
    assert answer["error"]["type"] == error  # type: ignore[index]
    assert answer["state"] == "rolled back"
    eventually(lambda: waiters.waiting == 1)
    waiters.owner.put("work", b"x")
    assert has_message(streams[1 - number].next())


SOURCE_ENDS: dict[str, tuple[Callable[[Store], object], str]] = {
    "drop": (lambda store: store.drop_queue("topic"), "QueueNotFound"),
    "unsubscribe": (lambda store: store.unsubscribe("topic", "s"), "SubscriptionNotFound"),
    "stop": (lambda store: store.alter_queue("topic", gets=False), "QueueDisabled"),
    "switch": (lambda store: store.admin.switch(gets=False), "QueueDisabled"),
}


@every_request
@pytest.mark.parametrize("end", SOURCE_ENDS)
def test_the_source_goes(
    waiters: Waiters, request_of: Callable[[str, float], bytes], end: str
) -> None:
    """All that wait for it are told at once; their transactions stay open."""
    waiters.owner.create_queue("topic", kind="topic")
    waiters.owner.subscribe("topic", "s")
    streams = [waiters.wait(request_of("topic/s", LONG)) for _ in range(3)]
    action, error = SOURCE_ENDS[end]
    action(waiters.owner)
    for stream in streams:
        answer = stream.next().header
        assert answer["error"]["type"] == error  # type: ignore[index]
        assert answer["state"] == "open"
    eventually(lambda: waiters.waiting == 0)


@every_request
def test_the_owner_closes(waiters: Waiters, request_of: Callable[[str, float], bytes]) -> None:
    """SV3: all that wait are told, before their connections end."""
    streams = [waiters.wait(request_of("work", LONG)) for _ in range(3)]
    waiters.owner.close()
    for stream in streams:
        answer = stream.next().header
        assert answer["error"]["type"] == "StoreClosed"  # type: ignore[index]
        assert answer["state"] == "rolled back"


@every_request
def test_a_client_goes(waiters: Waiters, request_of: Callable[[str, float], bytes]) -> None:
    """SV2: its transaction ends at once, and the next one of the line gets what comes."""
    first, second = (waiters.wait(request_of("work", LONG)) for _ in range(2))
    first.close()
    eventually(lambda: len(waiters.owner.admin.transactions()) == 1)
    assert waiters.waiting == 1
    waiters.owner.put("work", b"x")
    assert has_message(second.next())
    assert waiters.tries == 1


@every_request
def test_a_client_goes_as_something_comes(
    waiters: Waiters, request_of: Callable[[str, float], bytes]
) -> None:
    """SS3: in whatever order: what it was given and did not get is there for the next one."""
    for number in range(30):
        stream = waiters.wait(request_of("work", LONG))
        if number % 2:
            stream.close()
        waiters.owner.put("work", b"%d" % number)
        stream.close()
        taken: list[bytes] = []

        def take(taken: list[bytes] = taken) -> bool:
            message = waiters.owner.get("work")
            taken.extend(() if message is None else (message.payload,))
            return bool(taken)

        eventually(take)
        assert taken == [b"%d" % number]
        eventually(lambda: waiters.waiting == 0)


def test_the_next_get_waits_before_the_first_is_noted(
    waiters: Waiters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection whose get another thread has answered may have the next one put aside first."""
    server, late = waiters.server, list[Callable[[], None]]()
    post = server._requests.post

    def post_late(errand: Callable[[], None]) -> None:
        is_note = getattr(errand, "func", None) == server._requests.note_tried
        (late.append if is_note else post)(errand)

    monkeypatch.setattr(server._requests, "post", post_late)
    stream = waiters.wait(get_many("work", LONG))
    waiters.owner.put("work", b"1")
    assert has_message(stream.next())
    eventually(lambda: late)
    stream.send(get(1, "work", LONG))
    eventually(lambda: waiters.waiting == 2)  # the first is not noted yet
    for errand in late:
        post(errand)
    eventually(lambda: waiters.waiting == 1)
    [second] = server._requests.all_gets()
    assert second.requester.get is second  # so the end of its client, and the close, find it
    stream.close()
    eventually(lambda: waiters.waiting == 0)
    assert waiters.owner.get("work") is not None


def test_requests_behind_a_get_that_waits(waiters: Waiters) -> None:
    """CL1: those of its stream are answered after it, as they came; another stream's at once."""
    stream = waiters.wait(get(1, "work", LONG) + commit(1, 0) + get(2, "work", 0.0))
    assert stream.frame()[4] == NOTHING
    waiters.owner.put("work", b"x")
    assert has_message(stream.next())
    assert stream.frame()[4] == COMMITTED
    assert waiters.owner.queue("work").messages == 0


def test_the_next_of_its_group_is_for_its_holder(waiters: Waiters) -> None:
    """WG3: one that has a message of the group gets the next one, though others came before."""
    waiters.owner.create_queue("grouped", kind="work", grouped=True)
    waiters.owner.put("grouped", b"1", group_key="g")
    holder = waiters.stream()
    assert has_message(holder.ask(get(1, "grouped")))
    other = waiters.wait(get(1, "grouped", LONG))
    waiters.wait(get(1, "grouped", LONG), holder)
    waiters.owner.put("grouped", b"2", group_key="g")
    assert bytes(holder.next().bodies[0]).endswith(b"2")
    holder.ask(commit(1, 0))
    assert waiters.waiting == 1
    waiters.owner.put("grouped", b"3", group_key="g")
    assert bytes(other.next().bodies[0]).endswith(b"3")


def test_an_exclusive_subscription_is_for_its_holder(waiters: Waiters) -> None:
    """WG3: likewise, until its holder's transaction ends."""
    waiters.owner.create_queue("topic", kind="topic")
    waiters.owner.subscribe("topic", "s", exclusive=True)
    waiters.owner.put("topic", b"1")
    holder = waiters.stream()
    assert has_message(holder.ask(get(1, "topic/s")))
    other = waiters.wait(get(1, "topic/s", LONG))
    waiters.wait(get(1, "topic/s", LONG), holder)
    waiters.owner.put("topic", b"2")
    assert bytes(holder.next().bodies[0]).endswith(b"2")
    waiters.owner.put("topic", b"3")
    holder.ask(commit(1, 0))
    assert bytes(other.next().bodies[0]).endswith(b"3")


def test_who_has_got_something_elsewhere_stands_in_line(waiters: Waiters) -> None:
    """WG3: only what may be for it alone is; so a put wakes one of those, too."""
    streams = [waiters.stream() for _ in range(5)]
    for stream in streams:
        waiters.owner.put("work", b"first")
        assert has_message(stream.ask(get(1, "work")))
    for stream in streams:
        waiters.wait(get(1, "work", LONG), stream)
    waiters.owner.put("work", b"x")
    assert has_message(streams[0].next())
    assert waiters.tries == 1


def test_turns_are_bounded(waiters: Waiters, limits: Limits) -> None:
    """WG5: whoever wakes many lets others come in between, and all are served."""
    limits(WAKES_AT_ONCE=2)
    streams = [waiters.wait(get(1, "work", LONG)) for _ in range(9)]
    with waiters.owner.transaction() as txn:
        txn.put_many("work", [b"%d" % n for n in range(9)])
    payloads = [bytes(stream.next().bodies[0])[-1:] for stream in streams]
    assert payloads == [b"%d" % n for n in range(9)]


def test_chosen_messages_wait_in_a_thread(waiters: Waiters) -> None:
    """Whichever comes next is waited for without one; a message that is chosen is not."""
    waiters.owner.create_queue("ranked", kind="work", order="priority")
    waiters.wait(get_many("work", LONG))
    assert not waiters.server._requests.waiters
    chosen = waiters.wait(get_many("ranked", LONG, where={"priority": 5}))
    assert len(waiters.server._requests.waiters) == 1
    waiters.owner.put("ranked", b"x")
    waiters.owner.put("ranked", b"y", priority=5)
    assert has_message(chosen.next())


def test_a_store_that_fails_lets_go(tmp_path: Path) -> None:
    """SV5: those that wait are told by the close that follows."""
    with open_store(str(tmp_path / "s")) as owner:
        assert isinstance(owner, SharedStore)
        server = owner.share(OsEnv())
        url = server.wait_started()
        owner.create_queue("work", kind="work")
        with ExitStack() as stack:
            waiters = Waiters(owner, url, stack)
            stream = waiters.wait(get(1, "work", LONG))
            owner.let_go_failed()
            assert stream.next().header["error"]["type"] == "StoreClosed"  # type: ignore[index]
