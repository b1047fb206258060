"""A network that is cut at any byte, that drops what goes one way, and that is slow.

A client and its server are on either side of a proxy (`tests/kit/tcp_proxy.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import count
from random import Random
from typing import Any, TypeVar

import pytest

import quire
from quire.engine import EmbeddedStore as Store
from quire.env import OsEnv
from quire.errors import ConnectionLost, OutcomeUnknown
from quire.interface.store import Store as Interface
from quire.remote.limits import HEARTBEAT_SECONDS, HEARTBEATS_IN_TIME
from quire.remote.ownership.shared_store import SharedStore
from tests.kit.limits import Limits
from tests.kit.network import certificates, listening
from tests.kit.tcp_proxy import CAN_SILENCE, OneWay, TcpProxy
from tests.kit.waiting import SECONDS, eventually

T = TypeVar("T")

DIFFERENCE = 200  # between the bytes of two sessions
BYTES = [6, pytest.param(0, marks=pytest.mark.long)]  # of each way; 0: all
secure_or_not = pytest.mark.parametrize("secure", [True, False], ids=["tls", "plain"])


@contextmanager
def proxied(
    owner: Store, *, secure: bool, heartbeat: float = HEARTBEAT_SECONDS
) -> Iterator[TcpProxy]:
    """A proxy before the port of a server."""
    assert isinstance(owner, SharedStore)
    owner.share(OsEnv()).expect_heartbeats(heartbeat)
    with listening(owner, certificates()[0] if secure else None) as entrance:
        port = int(entrance.urls[0].rpartition(":")[2])
        with closing(TcpProxy(port)) as proxy:
            yield proxy


def opened(proxy: TcpProxy, *, secure: bool, call_timeout: float = 20.0) -> Interface:
    """Open the store behind a proxy."""
    tls = certificates()[1] if secure else None
    return quire.open(proxy.url, tls=tls, call_timeout=call_timeout)


def again(call: Callable[[], T]) -> T:
    """Return its result; it is called again where it is certain that nothing took effect."""
    while True:
        try:
            return call()
        except ConnectionLost:
            pass


def move(txn: Any) -> bytes:
    """Move a message of `new` to two queues."""
    message = txn.get("new")
    txn.put("done", message.payload)
    txn.put("log", message.payload)
    return bytes(message.payload)


def take(txn: Any) -> bytes:
    """Take a message of `done`."""
    return bytes(txn.get("done").payload)


def run_session(store: Interface, number: int) -> None:
    """Put, move and take messages, and reconcile what is in doubt.

    It leaves each of `first`, `second` and `plain` once in `new`, `log` and nowhere else.
    """
    first, second, plain = (b"%s %d" % (word, number) for word in (b"first", b"second", b"plain"))
    ids = [payload.decode() for payload in (first, second)]
    again(lambda: store.put_many("new", [first], request_ids=ids[:1]))
    moved = quire.run_transaction(store, move, entry=("move", number))
    assert moved == first
    assert quire.run_transaction(store, take, entry=("take", number)) == first
    again(lambda: store.put_many("new", [first, second], request_ids=ids))  # the first is known
    try:
        again(lambda: store.put("new", plain))
    except OutcomeUnknown:
        eventually(lambda: not store.admin.transactions())
        if plain not in [message.payload for message in store.browse("new")]:
            store.put("new", plain)


def left_of(owner: Store, number: int) -> None:
    """Check what a session has left, and take it."""
    words = {name: sorted(owner.get_many(name).payloads()) for name in ("new", "done", "log")}
    first, second, plain = (b"%s %d" % (word, number) for word in (b"first", b"second", b"plain"))
    assert words == {"new": [plain, second], "done": [], "log": [first]}


@pytest.mark.promise(2)
@secure_or_not
@pytest.mark.parametrize("way", ["requests", "answers"])
@pytest.mark.parametrize("most", BYTES)
def test_a_cut_at_any_byte_loses_nothing_and_repeats_nothing(
    owner: Store, rng: Random, spread: int, secure: bool, way: str, most: int
) -> None:
    """From the first byte of the handshake to the last of the session: each message is there once.

    All connections end there; the store object, or the next try to open it, finds the server again.
    A long run over TLS, where most bytes are those of handshakes, takes one in ten of them, unless
    it has many rounds.
    """
    owner.create_queue("new", kind="work", dedup_count=100)
    owner.create_queue("done", kind="work")
    owner.create_queue("log", kind="work")
    numbers = count()
    with proxied(owner, secure=secure) as proxy:
        cut: OneWay = getattr(proxy, way)

        def play(cut_at: int | None) -> int:
            number, before = next(numbers), cut.carried
            cut.cut_at = None if cut_at is None else before + cut_at
            with again(lambda: opened(proxy, secure=secure)) as store:
                run_session(store, number)
            if cut.cut_at is not None:  # signatures differ in length
                assert cut_at is not None
                assert cut_at > size - DIFFERENCE, "it came to no cut"
            left_of(owner, number)
            return cut.carried - before

        size = play(None)
        points = range(1 + rng.randrange(spread), size, spread) if secure else range(1, size)
        for point in points if not most else sorted(rng.sample(range(1, size), most)):
            play(point)
        eventually(lambda: not owner.admin.transactions())


@pytest.mark.cases(2)
@pytest.mark.promise(2)
@secure_or_not
@pytest.mark.parametrize("way", ["requests", "answers"])
def test_calls_end_in_time_where_one_way_is_dropped(owner: Store, secure: bool, way: str) -> None:
    """Changes with OutcomeUnknown, steps with ConnectionLost; after it the store object goes on."""
    owner.create_queue("jobs", kind="work", dedup_count=100)
    with (
        proxied(owner, secure=secure) as proxy,
        opened(proxy, secure=secure, call_timeout=1.0) as store,
    ):
        store.put("jobs", b"first")
        txn = store.transaction()
        assert txn.get("jobs") is not None
        store.put("jobs", b"second")  # there is a connection for that, too
        proxy.drop(getattr(proxy, way))
        with pytest.raises(OutcomeUnknown):
            store.put("jobs", b"doubtful")
        with pytest.raises(ConnectionLost):
            txn.get("jobs")
        with pytest.raises(ConnectionLost):
            store.queues()
        with pytest.raises((OutcomeUnknown, ConnectionLost)):  # as there is a connection, or none
            store.put_many("jobs", [b"once"], request_ids=["once"])
        proxy.mend()
        store.put_many("jobs", [b"once"], request_ids=["once"])
        eventually(lambda: not owner.admin.transactions())
        found = sorted(map(bytes, owner.get_many("jobs").payloads()))
        if way == "answers":  # it took effect
            found.remove(b"doubtful")
        assert found == [b"first", b"once", b"second"]


@pytest.mark.skipif(not CAN_SILENCE, reason="only Linux drops packets of a socket")
def test_a_machine_that_is_gone_holds_its_messages_for_the_heartbeat_alone(
    owner: Store, limits: Limits
) -> None:
    """It acknowledges nothing any more: a transaction's message comes back, a get's wait ends."""
    limits(
        KEEP_ALIVE={
            "TCP_KEEPIDLE": 1,
            "TCP_KEEPINTVL": 1,
            "TCP_KEEPCNT": 1,
            "TCP_USER_TIMEOUT": 1000,
        }
    )
    owner.create_queue("jobs", kind="work")
    owner.put("jobs", b"held")
    with proxied(owner, secure=True) as proxy, ExitStack() as stack:
        store = stack.enter_context(opened(proxy, secure=True))
        txn = store.transaction()
        assert txn.get("jobs") is not None
        waiting = threading.Thread(target=lambda: store.get("jobs", SECONDS))
        waiting.start()
        stack.callback(waiting.join)
        eventually(lambda: owner.status()["sharing"]["waiting"])
        proxy.silence()
        eventually(lambda: not owner.admin.transactions())
        assert [bytes(each) for each in owner.get_many("jobs", timeout=SECONDS).payloads()] == [
            b"held"
        ]
        proxy.cut()
        owner.put("jobs", b"for the get that waits")


@secure_or_not
def test_a_half_open_connection_holds_its_messages_for_the_heartbeat_alone(
    owner: Store, secure: bool
) -> None:
    """The proxy keeps both ends open, and drops what clients send: their systems notice nothing."""
    owner.create_queue("jobs", kind="work")
    owner.put("jobs", b"held")
    with (
        proxied(owner, secure=secure, heartbeat=2.0) as proxy,
        opened(proxy, secure=secure) as store,
    ):
        txn = store.transaction()
        assert txn.get("jobs") is not None
        proxy.drop(proxy.requests)
        assert [bytes(each) for each in owner.get_many("jobs", timeout=SECONDS).payloads()] == [
            b"held"
        ]
        proxy.mend()
        with pytest.raises(ConnectionLost):
            txn.commit()


@secure_or_not
def test_a_client_that_does_other_work_keeps_its_connection(owner: Store, secure: bool) -> None:
    """It makes no call for longer than the heartbeat's time, and its transaction goes on (HB1)."""
    seconds = 1.5
    owner.create_queue("jobs", kind="work")
    owner.put("jobs", b"held")
    with (
        proxied(owner, secure=secure, heartbeat=seconds) as proxy,
        opened(proxy, secure=secure) as store,
    ):
        with store.transaction() as txn:
            assert txn.get("jobs") is not None
            turns = proxy.turns
            eventually(lambda: proxy.turns >= turns + HEARTBEATS_IN_TIME + 1)
        assert owner.queue("jobs").messages == 0


def test_who_waits_learns_that_its_server_is_gone(owner: Store) -> None:
    """What the server sends is dropped: the get goes on at the server that answers (HB2)."""
    owner.create_queue("jobs", kind="work")
    found: list[bytes] = []
    with (
        proxied(owner, secure=True, heartbeat=2.0) as proxy,
        opened(proxy, secure=True) as store,
    ):

        def wait() -> None:
            message = store.get("jobs", SECONDS)
            assert message is not None
            found.append(bytes(message.payload))

        waiting = threading.Thread(target=wait)
        waiting.start()
        eventually(lambda: owner.status()["sharing"]["waiting"])
        proxy.drop(proxy.answers)
        eventually(lambda: not owner.status()["sharing"]["waiting"])
        proxy.mend()
        owner.put("jobs", b"at last")
        waiting.join(SECONDS)
        assert found == [b"at last"]


@secure_or_not
def test_round_trips_over_a_slow_network(owner: Store, secure: bool) -> None:
    """A put takes one, a transaction of a get and two puts two, as the proxy counts them."""
    for name in ("new", "done", "log"):
        owner.create_queue(name, kind="work")
    with proxied(owner, secure=secure) as proxy, opened(proxy, secure=secure) as store:
        for _ in range(2):  # after it all queues are known, and there are connections
            store.put("new", b"message")
            quire.run_transaction(store, move)
        proxy.delay_seconds = 0.02
        turns: list[int] = []
        for call in (
            lambda: store.put("new", b"message"),
            lambda: store.put_many("new", [b"message"] * 3),
            lambda: quire.run_transaction(store, move),
        ):
            before = proxy.turns
            call()
            turns.append(proxy.turns - before)
        assert turns == [1, 1, 2]
