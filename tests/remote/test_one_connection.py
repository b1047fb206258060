"""Many threads of a joined store share one connection (`MultiplexedConnection`)."""

from __future__ import annotations

import gc
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType

import pytest

import quire
from quire.errors import QuireError
from quire.interface.store import Store
from quire.remote.client.multiplexed_connection import MultiplexedConnection
from tests.kit.actors import OPTIONS, actor
from tests.kit.limits import Limits
from tests.kit.waiting import SECONDS, eventually

THREADS = 64


@pytest.fixture
def joined(store_path: str) -> Iterator[Store]:
    """A store with a queue `q`, whose owner is another process."""
    with actor(store_path) as owner:
        owner.ask("store.create_queue('q', kind='work')")
        with quire.open(store_path, **OPTIONS) as store:
            yield store


def in_threads(call: Callable[[int], object], count: int, seconds: float = SECONDS) -> bool:
    """Make the call in so many threads; return True if all have ended in time."""
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            call(number)
        except BaseException as error:  # noqa: BLE001 - looked at
            errors.append(error)

    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(count)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    assert not errors
    return not any(thread.is_alive() for thread in threads)


def moves(store: Store) -> Callable[[int], None]:
    """A thread's puts and gets, some of which wait."""

    def move(number: int) -> None:
        for _ in range(5):
            store.put("q", b"%d" % number)
            with store.transaction() as txn:
                assert txn.get("q", timeout=SECONDS) is not None

    return move


def test_all_threads_share_one_connection(joined: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """MC1: whatever of them waits, for a message or an answer."""
    made: list[MultiplexedConnection] = []
    real = MultiplexedConnection.__init__

    def noted(self: MultiplexedConnection, *args: object, **named: object) -> None:
        made.append(self)
        real(self, *args, **named)  # type: ignore[arg-type]

    joined.put("q", b"x")
    assert joined.get("q") is not None
    monkeypatch.setattr(MultiplexedConnection, "__init__", noted)
    assert in_threads(moves(joined), THREADS)
    assert made == []
    assert joined.queue("q").messages == 0


def test_a_handler_that_puts_while_its_thread_reads(joined: Store) -> None:
    """MC3: its answer comes, and so does that of the call which it has interrupted."""
    ids: list[int] = []

    def handler(number: int, frame: FrameType | None) -> None:
        ids.append(joined.put("q", b"x"))

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        message = joined.get("q", timeout=SECONDS)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert message is not None
    assert [message.id] == ids


def test_the_reader_s_time_is_over_first(joined: Store) -> None:
    """MC1: another one reads on."""
    found: list[object] = []
    first = threading.Thread(target=lambda: found.append(joined.get("q", timeout=0.2)))
    first.start()
    time.sleep(0.05)  # it has the role, mostly; the outcome is the same if not
    second = threading.Thread(target=lambda: found.append(joined.get("q", timeout=SECONDS)))
    second.start()
    first.join(SECONDS)
    assert found == [None]
    joined.put("q", b"x")
    second.join(SECONDS)
    assert not second.is_alive()
    assert found[1] is not None


class Stop(Exception):
    """What a handler raises."""


@pytest.mark.long
def test_what_leaves_the_reader_takes_nothing_of_others(joined: Store) -> None:
    """MC2, MC6: others' answers come, and no late one reaches another stream."""

    count, is_armed = 0, False

    def handler(number: int, frame: FrameType | None) -> None:
        nonlocal count
        if is_armed:  # another thread may have got the signal, and this one hears of it late
            count += 1
            raise Stop

    ended = threading.Event()
    errors: list[BaseException] = []

    def others() -> None:
        try:
            while not ended.is_set():
                assert joined.put("q", b"other") > 0
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=others) for _ in range(3)]
    for thread in threads:
        thread.start()
    gc.collect()  # finalisers of what other tests have dropped are not to be interrupted
    gc.disable()
    before = signal.signal(signal.SIGALRM, handler)
    try:
        for number in range(100):
            with suppress(Stop):
                try:
                    is_armed = True
                    signal.setitimer(signal.ITIMER_REAL, 0.0001 + number * 1e-5)
                    with joined.transaction() as txn:
                        assert txn.count("q") >= 0
                        txn.put("q", b"mine")
                finally:  # the handler may raise here, too
                    is_armed = False
                    signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)
        gc.enable()
        ended.set()
        for thread in threads:
            thread.join(SECONDS)
    assert count
    assert not errors
    eventually(lambda: not joined.admin.transactions())


def test_a_large_payload_while_others_put(joined: Store, limits: Limits) -> None:
    """MC4: frames are whole, though the system takes one part after another."""
    large = b"l" * (10 << 20)

    def put(number: int) -> None:
        if number == 0:
            joined.put("q", large)
        else:
            for _ in range(50):
                joined.put("q", b"s")

    assert in_threads(put, 3)
    payloads = sorted((m.payload for m in joined.get_many("q", 200)), key=len)
    assert [len(p) for p in payloads] == [1] * 100 + [10 << 20]


def test_the_end_of_the_owner_ends_all_who_wait(store_path: str) -> None:
    """Each raises, and none hangs."""
    with actor(store_path) as owner:
        owner.ask("store.create_queue('q', kind='work')")
        with quire.connect(quire.remote.read_address(quire.env.OsEnv(), store_path).url) as store:  # type: ignore[union-attr]
            raised: list[BaseException] = []

            def wait(number: int) -> None:
                with pytest.raises(QuireError) as caught:
                    store.get("q", timeout=SECONDS)
                raised.append(caught.value)

            thread = threading.Thread(target=lambda: in_threads(wait, 10))
            thread.start()
            time.sleep(0.3)
            owner.kill()
            thread.join(SECONDS)
            assert len(raised) == 10
