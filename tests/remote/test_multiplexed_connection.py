"""The connection that streams share, against an owner whose answers a test makes."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count

import pytest

from quire.arguments import Bytes
from quire.calls.signal_safety import as_call
from quire.calls.wake_up import WakeUp
from quire.errors import InvalidArgument
from quire.remote.client import waits
from quire.remote.client.channel import Channel, StreamEnded
from quire.remote.client.multiplexed_connection import MultiplexedConnection
from quire.remote.client.request_outcomes import OwnerEvent, RequestProgress
from quire.remote.client.stream_inbox import StreamInbox
from quire.remote.wire.protocol import (
    CALL,
    CANCEL,
    HEAD,
    ID,
    PUT,
    PUT_HEAD,
    RESULT,
    encode_call,
)
from tests.kit.moments import Alarm, at_moment, moments_of
from tests.kit.waiting import SECONDS, eventually

from .scripted_owner import Putting, ScriptedOwner, answer_all, id_frame, number_of

SHORT = 0.05  # within which nothing is to happen
LARGE = b"l" * (4 << 20)  # more than a socket takes at once


def put_frame(stream: int, payload: bytes = b"x") -> bytes:
    """Return a put into the queue `q`."""
    return PUT_HEAD.pack(3 + len(payload), PUT, stream, 1) + b"q" + payload


@pytest.fixture
def answering(store_path: str) -> Iterator[ScriptedOwner]:
    """An owner that answers at once."""
    with ScriptedOwner(store_path, answer_all) as owner:
        yield owner


def progress_of(putting: Putting) -> RequestProgress:
    """Return how far a put has come whose stream has ended."""
    error = putting.end().error
    assert isinstance(error, StreamEnded)
    return error.progress


# Numbers (MC4)


def test_numbers_rise_in_the_order_of_sending(answering: ScriptedOwner) -> None:
    """MC4: a stream that begins while another one's first frame is being made comes after it."""
    connection = answering.connect()
    is_making, others = threading.Event(), list[Putting]()

    def slow(stream: int) -> Sequence[Bytes]:
        is_making.set()
        time.sleep(SHORT)
        return [put_frame(stream)]

    def make() -> None:
        Channel(connection).exchange(slow)

    first = threading.Thread(target=make)
    first.start()
    assert is_making.wait(SECONDS)
    others += [Putting(Channel(connection)) for _ in range(8)]
    first.join(SECONDS)
    for other in others:
        assert other.end().found
    streams = answering.of_kind(PUT)
    assert len(streams) == 9
    assert streams == sorted(set(streams))


def test_numbers_of_many_threads_rise(answering: ScriptedOwner) -> None:
    """MC4: whichever of them sends for the others."""
    connection = answering.connect()

    def run() -> None:
        channel = Channel(connection)
        for _ in range(100):
            number = channel.put(b"q", b"x")
            assert number > 0
            channel.pause()

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    streams = answering.of_kind(PUT)
    assert len(streams) == 800
    assert streams == sorted(set(streams))
    assert not connection.streams


def test_a_request_that_cannot_be_made_leaves_its_channel(answering: ScriptedOwner) -> None:
    """Nothing of it is sent, and the next one is answered."""
    connection = answering.connect()
    channel = Channel(connection)

    def refused(stream: int) -> Sequence[Bytes]:
        raise InvalidArgument("a test")

    with pytest.raises(InvalidArgument):
        channel.exchange(refused)
    assert not channel.broken
    assert channel.put(b"q", b"x") > 0
    assert len(answering.frames) == 1


# Late frames and CANCEL (MC6, MC8)


def late_channel(owner: ScriptedOwner, connection: MultiplexedConnection) -> Channel:
    """Return a channel whose put was not waited for, with its number there."""
    channel = Channel(connection, call_timeout=4 * SHORT)
    with pytest.raises(StreamEnded) as caught:
        channel.put(b"q", b"late")
    assert (caught.value.progress, caught.value.event) == (RequestProgress.SENT, OwnerEvent.LATE)
    eventually(lambda: channel.stream in owner.of_kind(PUT))
    return channel


@pytest.mark.parametrize("step", [1, 7, 100])
@pytest.mark.parametrize("before", [True, False])
def test_a_late_answer_meets_no_other_stream(
    silent: ScriptedOwner, step: int, before: bool
) -> None:
    """MC6: whether its end comes before the next request or while that waits, in whatever parts."""
    connection = silent.connect()
    late = late_channel(silent, connection)
    answers = id_frame(late.stream, 111) + b"".join(
        encode_call(RESULT, late.stream, {"more": True})
    )
    number = late.stream
    late.close()
    assert silent.await_frames(CANCEL) == [number]
    cancelled = HEAD.pack(0, CANCEL, number)
    if before:
        silent.send(answers + cancelled)
        putting = Putting(Channel(connection))
        (_, stream) = silent.await_frames(PUT, 2)
        data = id_frame(stream, 222)
    else:
        putting = Putting(Channel(connection))  # of another thread, which waits for nothing
        (_, stream) = silent.await_frames(PUT, 2)
        data = answers + cancelled + id_frame(stream, 222)
    for at in range(0, len(data), step):
        silent.send(data[at : at + step])
    assert putting.end().found == 222
    assert list(connection.streams) == [stream]


def test_what_is_cancelled_is_told_once(silent: ScriptedOwner) -> None:
    """MC6: by the number of its stream, after what was sent; and not where it has ended."""
    connection = silent.connect()
    late = late_channel(silent, connection)
    late.close()
    late.close()
    done = Putting(Channel(connection))
    (_, stream) = silent.await_frames(PUT, 2)
    silent.send(id_frame(stream, 5))
    assert done.end().found == 5
    done.channel.pause()
    done.channel.close()
    Putting(Channel(connection))
    silent.await_frames(PUT, 3)
    assert [(frame[4], number_of(frame)) for frame in silent.frames] == [
        (PUT, 1), (CANCEL, 1), (PUT, 2), (PUT, 3),
    ]  # fmt: skip


def test_a_thread_waits_for_the_end_of_what_it_has_left(silent: ScriptedOwner) -> None:
    """MC8: and no other thread does."""
    connection = silent.connect()
    ended, sent = threading.Event(), list[int]()

    def leave_and_put() -> None:
        late_channel(silent, connection).close()
        ended.set()
        sent.append(Channel(connection).put(b"q", b"next"))

    thread = threading.Thread(target=leave_and_put, daemon=True)
    thread.start()
    assert ended.wait(SECONDS)
    other = Putting(Channel(connection))
    (_, stream) = silent.await_frames(PUT, 2)
    silent.send(id_frame(stream, 5))
    assert other.end().found == 5
    time.sleep(SHORT)
    assert silent.of_kind(PUT) == [1, 2]
    silent.send(id_frame(1, 4) + HEAD.pack(0, CANCEL, 1))
    (_, _, stream) = silent.await_frames(PUT, 3)
    silent.send(id_frame(stream, 6))
    thread.join(SECONDS)
    assert sent == [6]


def test_waiting_for_what_was_left_has_an_end(silent: ScriptedOwner) -> None:
    """MC8: the time of the request; nothing of it is sent, and its channel can be used."""
    connection = silent.connect()
    late_channel(silent, connection).close()
    channel = Channel(connection, call_timeout=SHORT)
    with pytest.raises(StreamEnded) as caught:
        channel.put(b"q", b"never")
    assert (caught.value.progress, caught.value.event) == (RequestProgress.UNSENT, OwnerEvent.LATE)
    silent.send(HEAD.pack(0, CANCEL, 1))
    answer = threading.Thread(
        target=lambda: silent.send(id_frame(silent.await_frames(PUT, 2)[1], 7))
    )
    answer.start()
    channel = Channel(connection)
    assert channel.put(b"q", b"x") == 7
    answer.join()
    assert len(silent.of_kind(PUT)) == 2


# How far a request has come when the connection ends


def test_what_was_not_read_is_told_of_the_last_request_alone(silent: ScriptedOwner) -> None:
    """CH3: of one that was sent before it may be read, as far as anybody knows."""
    connection = silent.connect()
    Putting(Channel(connection), b"read")
    silent.await_frames(PUT)
    silent.pause()
    first = Putting(Channel(connection), b"first")
    eventually(lambda: unread(silent) == len(put_frame(1, b"first")))
    second = Putting(Channel(connection), b"second")
    eventually(lambda: unread(silent) == len(put_frame(1, b"first") + put_frame(1, b"second")))
    silent.close()
    assert progress_of(first) is RequestProgress.SENT
    assert progress_of(second) is RequestProgress.UNREAD


def unread(owner: ScriptedOwner) -> int:
    """Return how many bytes of a client an owner has not read."""
    try:
        return len(owner.socket.recv(1 << 16, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except BlockingIOError:
        return 0


def test_a_frame_that_follows_leaves_no_certainty(silent: ScriptedOwner) -> None:
    """CH3: what was not read then may be that frame alone."""
    connection = silent.connect()
    Putting(Channel(connection), b"read")
    silent.await_frames(PUT)
    silent.pause()
    putting = Putting(Channel(connection), b"last")
    eventually(lambda: unread(silent) == len(put_frame(1, b"last")))
    connection.sender.send_unanswered([HEAD.pack(0, CANCEL, 9)])
    silent.close()
    assert progress_of(putting) is RequestProgress.SENT


def test_what_was_read_counts_as_sent(silent: ScriptedOwner) -> None:
    """CH3: for each stream that waits."""
    connection = silent.connect()
    puttings = [Putting(Channel(connection)) for _ in range(5)]
    silent.await_frames(PUT, 5)
    silent.close()
    assert {progress_of(each) for each in puttings} == {RequestProgress.SENT}


def test_what_is_not_sent_whole_was_not_done(silent: ScriptedOwner) -> None:
    """CH3: one of which a part is sent, and those that wait behind it."""
    connection = silent.connect()
    read = Putting(Channel(connection), b"read")
    silent.await_frames(PUT)
    silent.pause()
    half = Putting(Channel(connection), LARGE)
    eventually(lambda: connection.sender.is_begun)
    behind = Putting(Channel(connection))
    eventually(lambda: len(connection.sender.queue) == 2)
    silent.close()
    assert progress_of(half) is RequestProgress.UNREAD
    assert progress_of(behind) is RequestProgress.UNREAD
    assert progress_of(read) is RequestProgress.SENT


# Short sends (MC4, MC5)


def test_frames_are_whole_however_little_is_taken_at_once(silent: ScriptedOwner) -> None:
    """MC4: large and small ones, of many threads; each is answered."""
    connection = silent.connect()
    connection._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    silent.pause()
    payloads = [b"%d" % n * (1, 50_000)[n % 2] for n in range(20)]
    puttings = [Putting(Channel(connection), payload) for payload in payloads]
    time.sleep(SHORT)
    silent.reads.set()
    streams = silent.await_frames(PUT, 20)
    assert streams == sorted(set(streams))
    found = {frame[PUT_HEAD.size + 1 :]: number_of(frame) for frame in silent.frames}
    assert found.keys() == set(payloads)
    for stream in reversed(streams):
        silent.send(id_frame(stream, stream))
    for putting, payload in zip(puttings, payloads, strict=True):
        assert putting.end().found == found[payload]


def test_a_frame_that_is_begun_is_completed_where_others_are_under_way(
    silent: ScriptedOwner,
) -> None:
    """MC5: though its caller has left: it counts as sent, and the others go on."""
    connection = silent.connect()
    other = Putting(Channel(connection), b"read")
    silent.await_frames(PUT)
    silent.pause()
    half = Putting(Channel(connection, call_timeout=10 * SHORT), LARGE)
    assert progress_of(half) is RequestProgress.SENT
    half.channel.close()
    silent.reads.set()
    (_, stream) = silent.await_frames(PUT, 2)
    assert silent.await_frames(CANCEL) == [stream]
    silent.send(id_frame(1, 3))
    assert other.end().found == 3


def test_a_frame_that_is_begun_ends_a_connection_that_has_no_other(silent: ScriptedOwner) -> None:
    """MC5: nothing of it is done, and no other request goes there."""
    connection = silent.connect()
    silent.pause()
    time.sleep(SHORT)
    half = Putting(Channel(connection, call_timeout=10 * SHORT), LARGE)
    assert progress_of(half) is RequestProgress.UNREAD
    assert connection.is_over


def test_what_is_not_begun_is_taken_back(silent: ScriptedOwner) -> None:
    """MC5: the owner never sees it."""
    connection = silent.connect()
    Putting(Channel(connection), b"read")
    silent.await_frames(PUT)
    silent.pause()
    half = Putting(Channel(connection), LARGE)
    eventually(lambda: connection.sender.is_begun)
    behind = Putting(Channel(connection, call_timeout=2 * SHORT), b"never")
    assert progress_of(behind) is RequestProgress.UNREAD
    silent.reads.set()
    (_, stream) = silent.await_frames(PUT, 2)
    silent.send(id_frame(stream, 9))
    assert half.end().found == 9
    assert Putting(Channel(connection), b"last").is_alive()
    silent.await_frames(PUT, 3)
    assert [frame[-5:] for frame in silent.frames if frame[4] == PUT][-1].endswith(b"last")
    assert not any(frame.endswith(b"never") for frame in silent.frames)


# The reading role (MC1 to MC3)


def test_an_interrupt_of_the_reader_takes_nothing_of_others(store_path: str) -> None:
    """MC1, MC2: at every moment of its call: others' answers come, and its own meets nobody."""
    answered = count(1)
    held: list[bytes] = []

    def answer(owner: ScriptedOwner, frame: Bytes) -> None:
        """Answer others once the reader has asked, some of it in two parts."""
        number, kind = number_of(frame), frame[4]
        if kind == CANCEL:
            owner.send(HEAD.pack(0, CANCEL, number))
        elif bytes(frame).endswith(b"other"):
            held.append(id_frame(number, number))
        else:
            data = b"".join(held) + id_frame(number, number)
            held.clear()
            cut = next(answered) % len(data)
            owner.send(data[:cut])
            owner.send(data[cut:])

    with ScriptedOwner(store_path, answer) as owner:
        connection = owner.connect()

        def call() -> None:
            channel = Channel(connection)
            try:
                assert channel.put(b"q", b"mine") == channel.stream
                channel.pause()
            finally:
                channel.close()

        def round_of(moment: int) -> bool:
            others = [Putting(Channel(connection), b"other") for _ in range(2)]
            eventually(lambda: len(held) == 2)
            is_raised = at_moment(lambda: as_quire_does(call), moment)
            call()  # whose answer brings those of the others, if none has yet
            for other in others:
                assert other.end().found == other.channel.stream
                other.channel.pause()
            return is_raised

        moments = moments_of(lambda: as_quire_does(call))
        assert moments > 10
        assert sum(round_of(moment) for moment in range(1, moments + 1))
        eventually(lambda: not connection.left)
        assert not connection.streams
        assert not connection._waiters
        assert not connection._reading.locked()
        assert not connection.sender.lock.locked()


def as_quire_does(call: Callable[[], None]) -> None:
    """Make it as a whole call, in which handlers run in waits alone."""
    as_call(call)


def test_the_role_is_handed_over_when_its_holder_leaves(silent: ScriptedOwner) -> None:
    """MC1: whose time is over, though those who wait have no end of theirs."""
    connection = silent.connect()
    reader = Putting(Channel(connection, call_timeout=3 * SHORT))
    silent.await_frames(PUT)
    others = [Putting(Channel(connection)) for _ in range(3)]
    streams = silent.await_frames(PUT, 4)
    assert progress_of(reader) is RequestProgress.SENT
    for stream in reversed(streams[1:]):
        silent.send(id_frame(stream, stream))
    assert sorted(other.end().found or 0 for other in others) == streams[1:]


def test_canary_a_role_that_is_not_handed_over(
    silent: ScriptedOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MC1: those who wait would wait on though their answers are there."""
    monkeypatch.setattr(MultiplexedConnection, "_hand_over", lambda _: None)
    connection = silent.connect()
    reader = Putting(Channel(connection, call_timeout=20 * SHORT))
    silent.await_frames(PUT)
    other = Putting(Channel(connection))  # which waits before the reader's time is over
    (_, stream) = silent.await_frames(PUT, 2)
    reader.end()
    silent.send(id_frame(stream, stream))
    other.join(4 * SHORT)
    assert other.is_alive()


def test_who_is_woken_as_the_reader_leaves_hands_the_role_on(silent: ScriptedOwner) -> None:
    """MC1: many threads leave and come at any moment, and none hangs."""
    connection = silent.connect()
    ended = threading.Event()
    counts = [0] * 6

    def run(number: int) -> None:
        while not ended.is_set():
            channel = Channel(connection, call_timeout=0.001 * (1 + number))
            with pytest.raises(StreamEnded):
                channel.put(b"q", b"x")
            channel.close()
            counts[number] += 1

    def answer() -> None:
        done = 0
        while not ended.is_set():
            frames = silent.frames[done:]
            done += len(frames)
            for frame in frames:
                if frame[4] == CANCEL:
                    silent.send(HEAD.pack(0, CANCEL, number_of(frame)))
            time.sleep(0.0005)

    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(6)]
    threads.append(threading.Thread(target=answer, daemon=True))
    for thread in threads:
        thread.start()
    eventually(lambda: min(counts) >= 20)
    waiting = Putting(Channel(connection), b"answered")
    eventually(lambda: any(f.endswith(b"answered") for f in silent.frames))
    silent.send(id_frame(next(number_of(f) for f in silent.frames if f.endswith(b"answered")), 1))
    assert waiting.end().found == 1
    ended.set()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive()


def test_a_handler_s_call_within_the_reader_s_takes_its_frames(silent: ScriptedOwner) -> None:
    """MC3: in the reader's own thread; the answer of each is its own, whichever comes first."""
    connection = silent.connect()
    inner = StreamInbox()
    found: list[int] = []

    def in_handler() -> None:
        if len(found) == 0:
            found.append(Channel(connection).put(b"q", b"inner"))

    def run() -> None:
        """As a handler that comes in the wait does."""
        real = waits.poll_for

        def poll_for(poller: waits.WaitedSocket, seconds: float) -> list[tuple[int, int]]:
            waits.poll_for = real
            in_handler()
            return real(poller, seconds)

        waits.poll_for = poll_for
        try:
            found.append(Channel(connection).put(b"q", b"outer"))
        finally:
            waits.poll_for = real

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    outer, within = silent.await_frames(PUT, 2)
    silent.send(id_frame(outer, 1) + id_frame(within, 2))
    thread.join(SECONDS)
    assert found == [2, 1]
    assert inner.number is None
    assert not connection._reading.locked()
    assert not connection._outer


def test_what_the_owner_sends_to_nobody_is_dropped(answering: ScriptedOwner) -> None:
    """MC6: numbers that were never given, kinds that are not known, pings of nobody."""
    connection = answering.connect()
    assert Channel(connection).put(b"q", b"x") == 1
    answering.send(id_frame(77, 1) + HEAD.pack(0, 99, 5) + HEAD.pack(0, ID, 0))
    answering.send(b"".join(encode_call(CALL, 1 << 31, {})))
    assert Channel(connection).put(b"q", b"x") == 2


def test_an_interrupt_leaves_no_wait_behind(silent: ScriptedOwner) -> None:
    """MC1: what is raised out of the wait of one who does not read leaves the reader alone."""
    connection = silent.connect()
    reader = Putting(Channel(connection))
    silent.await_frames(PUT)

    def wait() -> None:
        Channel(connection).put(b"q", b"mine")

    timer = threading.Timer(SHORT, lambda: None)
    timer.start()
    is_raised = raised_in_wait(wait)
    timer.join()
    assert is_raised
    assert list(connection._waiters) == []
    silent.send(id_frame(1, 9))
    assert reader.end().found == 9


def raised_in_wait(call: Callable[[], None]) -> bool:
    """Return True if what a wait for another thread raises leaves the call."""
    real = waits.wait_for

    def wait_for(wake_up: WakeUp, seconds: float) -> None:
        raise Alarm

    waits.wait_for = wait_for
    try:
        call()
    except Alarm:
        return True
    finally:
        waits.wait_for = real
    return False
