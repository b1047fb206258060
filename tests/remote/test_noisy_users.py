"""A user on many connections, with many requests, whom the others do not notice: counted."""

from __future__ import annotations

import random
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest

from quire.calls.wake_up import Condition
from quire.engine import EmbeddedStore as Store
from quire.env.interpreter import Lock
from quire.remote.access.use_account import UseAccount, UseAccounts
from quire.remote.access.use_limits import OF_USER
from quire.remote.limits import MAX_WORKERS, REQUESTS_AT_ONCE, WORKERS_OF_USER
from quire.remote.server.served_client import ServedClient
from quire.remote.server.served_connection import ServedConnection
from quire.remote.server.server_threads import ServerThreads
from quire.remote.server.serving_turns import ServingTurns
from quire.remote.wire.protocol import CALL, GREETING, HEAD, ID, PUT, RESULT
from tests.kit.raw_stream import RawStream, call, good_hello
from tests.kit.users import Users, serving_users
from tests.kit.waiting import SECONDS, eventually


@pytest.fixture
def users(tmp_path: Path) -> Users:
    """A file with anna, who is noisy, and bert, who is not."""
    users = Users(tmp_path)
    for name in ("anna", "bert"):
        users.grant(name, "put,get queue:*")
        users.limit(name, connections=300)
    return users


@pytest.fixture
def url(owner: Store, users: Users) -> Iterator[str]:
    """The port at which they are let in."""
    owner.create_queue("work", kind="work")
    with serving_users(owner, users) as found:
        yield found


def put(number: int) -> bytes:
    """A PUT."""
    return HEAD.pack(2 + 4 + 1, PUT, number) + b"\4\0workx"


def connected(url: str, users: Users, name: str) -> RawStream:
    """Open a connection as a user."""
    stream = RawStream(url, good_hello(token=users.tokens[name].text))
    stream.words(GREETING.size)
    stream.next()
    return stream


def between_requests(
    url: str, users: Users, monkeypatch: pytest.MonkeyPatch, rng: random.Random, connections: int
) -> list[int]:
    """How many requests of anna are begun between each two of bert.

    Hers are there before the first is begun; his next one is there as his last one is begun.
    """
    others, may = [0], threading.Event()
    whole = ServedClient.answer
    with ExitStack() as stack:
        quiet = stack.enter_context(closing(connected(url, users, "bert")))
        noisy = [
            stack.enter_context(closing(connected(url, users, "anna"))) for _ in range(connections)
        ]

        def noted(client: ServedClient, data: bytes) -> object:
            assert may.wait(SECONDS)
            if client.account.name == "bert":
                others.append(0)
                with suppress(OSError):  # the test has ended
                    quiet.send(put(len(others)))
            else:
                others[-1] += 1
            return whole(client, data)

        monkeypatch.setattr(ServedClient, "answer", noted)
        counts = [rng.randrange(5, 60) for _ in noisy]
        for stream, count in zip(noisy, counts, strict=True):
            stream.send(b"".join(put(number) for number in range(1, count + 1)))
        quiet.send(put(1))
        may.set()
        eventually(lambda: sum(others) == sum(counts))
        monkeypatch.setattr(ServedClient, "answer", whole)
    return others


@pytest.mark.fuzz
@pytest.mark.parametrize("connections", [1, 20, 100])
def test_a_user_is_served_between_those_of_another(
    url: str,
    users: Users,
    monkeypatch: pytest.MonkeyPatch,
    rng: random.Random,
    connections: int,
) -> None:
    """TU1: at most twice `REQUESTS_AT_ONCE`, on however many connections these come."""
    others = between_requests(url, users, monkeypatch, rng, connections)
    assert max(others) <= 2 * REQUESTS_AT_ONCE


@pytest.mark.fuzz
def test_canary_of_turns_by_users(
    url: str, users: Users, monkeypatch: pytest.MonkeyPatch, rng: random.Random
) -> None:
    """The canary: where connections take turns, who has many of them keeps others waiting."""

    def add(turns: ServingTurns, connection: ServedConnection) -> None:
        connection.is_reading = False
        lines: OrderedDict[Any, Any] = turns._lines
        lines.setdefault(connection, deque()).append(connection)

    monkeypatch.setattr(ServingTurns, "add", add)
    assert max(between_requests(url, users, monkeypatch, rng, 200)) > 2 * REQUESTS_AT_ONCE


# Turns, by themselves


class LinedConnection:
    """A connection with requests that are there."""

    def __init__(self, account: UseAccount, requests: int) -> None:
        self.account = account
        self.requests = requests
        self.is_reading = True


@pytest.mark.fuzz
def test_turns_of_drawn_users_and_connections(rng: random.Random) -> None:
    """TU1, TU2: in each turn every user has a share, and every connection comes to its end."""
    accounts = UseAccounts(lambda: 0.0)
    found = [accounts.of(f"user{n}", lambda _: OF_USER) for n in range(rng.randrange(1, 90))]
    turns = ServingTurns()
    left: list[LinedConnection] = []
    for account in found:
        for _ in range(rng.choice([1, 1, 3, 40])):
            left.append(LinedConnection(account, rng.randrange(1, 30)))
            turns.add(left[-1])  # type: ignore[arg-type]
    served: dict[str | None, int] = {}

    def serve(connection: Any, share: int) -> int:
        assert share > 0
        count: int = min(share, connection.requests)
        connection.requests -= count
        served[connection.account.name] = served.get(connection.account.name, 0) + count
        if connection.requests:
            turns.add(connection)
        return count

    while turns:
        served.clear()
        waiting = {each.account.name for each in left if each.requests}
        turns.take(serve)
        assert served.keys() == waiting
        share = max(1, REQUESTS_AT_ONCE // len(waiting))
        assert max(served.values()) <= share
        for account in found:
            mine = [each.requests for each in left if each.account is account]
            assert served.get(account.name, share) >= 1 or not any(mine)
    assert not any(each.requests for each in left)


# Long requests


def test_a_user_s_long_requests_leave_threads_to_others() -> None:
    """ST1: with more jobs than there are threads, one of another user is done at once."""
    accounts = UseAccounts(lambda: 0.0)
    noisy, quiet = (accounts.of(name, lambda _: OF_USER) for name in ("anna", "bert"))
    threads = ServerThreads(Condition(Lock()))
    may, guard, at_work, most = threading.Event(), threading.Lock(), [0], [0]

    def work() -> None:
        with guard:
            at_work[0] += 1
            most[0] = max(most[0], at_work[0])
        assert may.wait(SECONDS)
        with guard:
            at_work[0] -= 1

    for _ in range(MAX_WORKERS + 50):
        threads.add(work, noisy)
    for _ in range(3):
        done = threading.Event()
        threads.add(done.set, quiet)
        assert done.wait(SECONDS)
    eventually(lambda: at_work[0] == WORKERS_OF_USER)
    may.set()
    eventually(lambda: threads.busy == 0)
    assert most[0] == WORKERS_OF_USER
    threads.stop()
    eventually(lambda: threads.count == 0)


def test_jobs_that_wait_for_others_are_beside_those_at_work() -> None:
    """ST1: what would end the wait may be another job of the same user."""
    account = UseAccounts(lambda: 0.0).of("anna", lambda _: OF_USER)
    threads = ServerThreads(Condition(Lock()))
    ended = threading.Event()

    def wait_for_others() -> None:
        threads.begin_wait(account)
        assert ended.wait(SECONDS)
        threads.end_wait(account)

    for _ in range(3 * WORKERS_OF_USER):
        threads.add(wait_for_others, account)
    threads.add(ended.set, account)
    eventually(lambda: threads.busy == 0)
    threads.stop()
    eventually(lambda: threads.count == 0)


def test_long_calls_of_a_noisy_user_keep_nobody_waiting(
    url: str, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four from each of 70 connections; another's calls and puts are answered meanwhile."""
    may, whole = threading.Event(), ServedClient.answer

    def answer_late(client: ServedClient, data: bytes) -> object:
        if client.account.name == "anna" and data[4] == CALL:
            assert may.wait(SECONDS)
        return whole(client, data)

    with ExitStack() as stack:
        noisy = [stack.enter_context(closing(connected(url, users, "anna"))) for _ in range(70)]
        quiet = stack.enter_context(closing(connected(url, users, "bert")))
        monkeypatch.setattr(ServedClient, "answer", answer_late)
        for stream in noisy:
            for number in range(1, 5):
                stream.send(call({"op": "queues", "arguments": {}}, stream=number))
        for number in range(1, 6, 2):
            quiet.send(call({"op": "queues", "arguments": {}}, stream=number))
            assert quiet.frame()[4] == RESULT
            quiet.send(put(number + 1))
            assert quiet.frame()[4] == ID
        may.set()
        for stream in noisy:
            assert [stream.frame()[4] for _ in range(4)] == [RESULT] * 4
