"""Requests whose time is over (CH4): each ends at its own, and no thread is needed for that."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from random import Random

import pytest

import quire
from quire.arguments import Bytes
from quire.interface.store import Store
from quire.remote import JoinedStore
from quire.remote.client.channel import Channel, StreamEnded
from quire.remote.client.multiplexed_connection import MultiplexedConnection
from quire.remote.client.request_outcomes import OwnerEvent, RequestProgress
from quire.remote.client.stream_inbox import StreamInbox
from quire.remote.wire.protocol import (
    CANCEL,
    CONNECTION,
    GET,
    GET_HEAD,
    HEAD,
    NOTHING,
    NUMBER_FRAME,
    PING,
    PONG,
    PUT,
)
from tests.kit.actors import OPTIONS, actor
from tests.kit.children import child
from tests.kit.limits import Limits
from tests.kit.waiting import SECONDS, ends, eventually

from .scripted_owner import Putting, ScriptedOwner, answer_all, id_frame, number_of

SHORT = 0.05
LONG = 1000.0


def pinged(owner: ScriptedOwner, frame: Bytes) -> None:
    """Answer pings alone: this owner is at work."""
    if frame[4] == PING:
        owner.send(NUMBER_FRAME.pack(8, PONG, CONNECTION, NUMBER_FRAME.unpack(frame)[3]))
    elif frame[4] == CANCEL:
        owner.send(HEAD.pack(0, CANCEL, number_of(frame)))


def is_at_work(connection: MultiplexedConnection, inbox: StreamInbox) -> bool:
    """Return True if the owner answers, however busy the machine is."""
    return connection.answers(inbox, SECONDS)


def answers_soon(connection: MultiplexedConnection, inbox: StreamInbox) -> bool:
    """Return False if the owner answers nobody."""
    return connection.answers(inbox, SHORT)


def get_frames(stream: int) -> list[Bytes]:
    """Return a get that waits."""
    return [GET_HEAD.pack(GET_HEAD.size - HEAD.size + 1, GET, stream, LONG) + b"q"]


class Late(threading.Thread):
    """A thread whose put is not answered in time."""

    def __init__(self, connection: MultiplexedConnection, seconds: float) -> None:
        super().__init__(daemon=True)
        self.seconds = seconds
        self.took = 0.0
        self.error: StreamEnded | None = None
        self._channel = Channel(connection, call_timeout=seconds)
        self.start()

    def run(self) -> None:
        start = time.monotonic()
        try:
            self._channel.put(b"q", b"x")
        except StreamEnded as error:
            self.error = error
        self.took = time.monotonic() - start


def test_each_ends_when_its_time_is_over(silent: ScriptedOwner, rng: Random) -> None:
    """Many at once on one connection, in any order, and none before its time, whoever reads."""
    connection = silent.connect()
    found = [Late(connection, 0.02 + rng.random() / 4) for _ in range(40)]
    for each in found:
        each.join(SECONDS)
        assert each.error is not None
        assert each.error.event is OwnerEvent.LATE
        # A quarter of it is for the question if the owner is at work.
        assert each.took >= each.seconds * 3 / 4 - 0.001
    assert not connection._waiters


def test_who_has_less_time_ends_before_the_reader(silent: ScriptedOwner) -> None:
    """And the reader, who waits longer, reads on."""
    connection = silent.connect()
    reader = Putting(Channel(connection, call_timeout=LONG))
    (stream,) = silent.await_frames(PUT)
    for _ in range(10):
        short = Late(connection, SHORT)
        short.join(SECONDS)
        assert short.error is not None
        assert reader.is_alive()
    silent.send(id_frame(stream, 3))
    assert reader.end().found == 3


def test_an_answer_at_the_deadline_is_had_or_not(store_path: str, rng: Random) -> None:
    """Each request has one end: its answer, or LATE; the next one has its own answer."""
    delay = [0.0]

    def answer(owner: ScriptedOwner, frame: Bytes) -> None:
        time.sleep(delay[0])
        answer_all(owner, frame)

    with ScriptedOwner(store_path, answer) as owner:
        connection = owner.connect()
        outcomes = set[OwnerEvent | None]()
        rounds = 0
        while rounds < 100 or (len(outcomes) < 2 and rounds < 2000):
            rounds += 1
            delay[0] = 0.0075 * (0.8 + 0.4 * rng.random())
            channel = Channel(connection, call_timeout=0.01)  # it waits for three quarters of that
            event: OwnerEvent | None = None
            try:
                assert channel.put(b"q", b"x") == channel.stream
                channel.pause()
            except StreamEnded as error:
                event = error.event
                channel.close()
            outcomes.add(event)
            delay[0] = 0.0
            following = Channel(connection)
            assert following.put(b"q", b"y") == following.stream
            following.pause()
        assert outcomes == {None, OwnerEvent.LATE}
        eventually(lambda: not connection.left)
        assert not connection.streams


def test_no_thread_is_needed(silent: ScriptedOwner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for an end nor for the question if the owner is at work."""
    connection = silent.connect()

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    for _ in range(3):
        channel = Channel(connection, SHORT, answers_soon)
        with pytest.raises(StreamEnded) as caught:
            channel.exchange(get_frames)
        assert caught.value.event is OwnerEvent.LATE


def test_an_owner_at_work_is_waited_for(store_path: str) -> None:
    """Which it says by PONG on the same connection, as often as the time is over."""
    with ScriptedOwner(store_path, pinged) as owner:
        connection = owner.connect()
        channel = Channel(connection, 2 * SHORT, is_at_work)
        found: list[int] = []
        thread = threading.Thread(target=lambda: found.append(channel.exchange(get_frames)[4]))
        thread.start()
        eventually(lambda: owner.of_kind(PING).count(CONNECTION) >= 3)
        assert thread.is_alive()
        owner.send(HEAD.pack(0, NOTHING, 1))
        thread.join(SECONDS)
        assert found == [NOTHING]


def test_a_request_with_a_time_of_its_own_ends_though_the_owner_is_at_work(
    store_path: str, limits: Limits
) -> None:
    """Strictly, and its stream is cancelled."""
    limits(ANSWER_SECONDS=SHORT)
    with ScriptedOwner(store_path, pinged) as owner:
        channel = Channel(owner.connect(), 1.0, is_at_work)
        with pytest.raises(StreamEnded) as caught:
            channel.exchange(get_frames, SHORT)
        assert (caught.value.progress, caught.value.event) == (
            RequestProgress.SENT,
            OwnerEvent.LATE,
        )
        assert not owner.of_kind(PING)
        channel.close()
        assert owner.await_frames(CANCEL) == [1]


def test_an_owner_that_answers_no_ping_is_not_at_work(silent: ScriptedOwner) -> None:
    """One that is stopped: the request ends soon after its time."""
    channel = Channel(silent.connect(), 2 * SHORT, answers_soon)
    with pytest.raises(StreamEnded) as caught:
        channel.exchange(get_frames)
    assert caught.value.event is OwnerEvent.LATE
    assert len(silent.await_frames(PING)) == 1


def test_an_answer_that_comes_in_place_of_the_pong_is_had(store_path: str) -> None:
    """Whoever asks if the owner is at work looks at what comes meanwhile."""

    def answer(owner: ScriptedOwner, frame: Bytes) -> None:
        if frame[4] == PING:
            owner.send(HEAD.pack(0, NOTHING, 1))

    with ScriptedOwner(store_path, answer) as owner:
        channel = Channel(owner.connect(), 2 * SHORT, is_at_work)
        assert channel.exchange(get_frames)[4] == NOTHING


def test_parts_of_an_answer_give_more_time(silent: ScriptedOwner) -> None:
    """To its own stream, as long as they come: here for longer than the whole of its time."""
    connection, seconds = silent.connect(), 1.6
    putting = Putting(Channel(connection, call_timeout=seconds))
    silent.await_frames(PUT)
    frame = id_frame(1, 7)
    for byte in frame:
        silent.send(bytes([byte]))
        time.sleep(seconds / len(frame))
    assert putting.end().found == 7


FORKING = """
import os, sys, threading, time
import quire
from tests.kit.actors import OPTIONS
from tests.kit.waiting import eventually

store = quire.open(sys.argv[1], **OPTIONS)
found = []
reader = threading.Thread(target=lambda: found.append(store.get("q", timeout=100)))
reader.start()
shared = lambda: store.owner_session.connection._shared
eventually(lambda: shared() is not None and shared()._reading.locked())
print(store.role, flush=True)
for depth in range(2):
    process = os.fork()
    if process:
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 7
        break
    try:
        try:
            store.put("q", b"x")
            raise AssertionError("the parent's connection was used")
        except quire.StoreClosed as error:
            assert "was forked" in str(error)
        own = quire.open(sys.argv[1], **OPTIONS)
        assert own.put("other", b"%d" % depth) > 0
        assert own.get("empty", timeout=0.01) is None
        own.close()
    except BaseException:
        import traceback
        traceback.print_exc()
        os._exit(1)
else:
    os._exit(7)
if depth:
    os._exit(7)
store.put("q", b"for the reader")
reader.join(100)
assert found[0].payload == b"for the reader"
store.close()
print("done", flush=True)
"""


def test_a_fork_while_another_thread_reads(store_path: str) -> None:
    """CN3: the child has no reader and no socket of its parent's, whose thread reads on."""
    with actor(store_path) as owner:
        for name in ("q", "other", "empty"):
            owner.ask(f"store.create_queue({name!r}, kind='work')")
        with child(FORKING, store_path) as process:
            assert process.line() == "joined"
            assert process.line() == "done"
            assert process.wait() == 0
        assert owner.ask("store.queue('other').messages") == "2"


def test_a_store_that_is_dropped_while_it_waits_is_gone(store_path: str) -> None:
    """Nothing of the connection keeps the store object once its calls have ended."""
    with actor(store_path) as owner:
        owner.ask("store.create_queue('q', kind='work')")
        store: Store = quire.open(store_path, **OPTIONS)
        assert isinstance(store, JoinedStore)
        assert store.get("q", timeout=0.01) is None
        shared = store.owner_session.connection._shared
        assert shared is not None
        gone = weakref.ref(store.owner_session.connection), weakref.ref(shared)
        del shared
        store.close()
        del store
        gc.collect()
        assert [each() for each in gone] == [None, None]


def test_closing_a_store_ends_those_who_wait(store_path: str) -> None:
    """Whether they read or wait for the reader; the socket is closed when the last has left."""
    with actor(store_path) as owner:
        owner.ask("store.create_queue('q', kind='work')")
        store = quire.open(store_path, **OPTIONS)
        assert isinstance(store, JoinedStore)
        errors: list[BaseException] = []

        def wait() -> None:
            try:
                store.get("q", timeout=LONG)
            except quire.QuireError as error:
                errors.append(error)

        threads = [threading.Thread(target=wait, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        shared = None
        while shared is None:
            shared = store.owner_session.connection._shared
        eventually(lambda: len(shared._waiters) == 3)
        assert ends(store.close)
        for thread in threads:
            thread.join(SECONDS)
        assert {type(error) for error in errors} == {quire.StoreClosed}
        assert len(errors) == 4
        assert shared._socket.fileno() == -1
