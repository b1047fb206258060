"""Signs of clients at the owner: who has promised them and gives none is cut off (CL9)."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

import quire
from quire.engine import EmbeddedStore as Store
from quire.env import OsEnv
from quire.errors import InvalidArgument
from quire.remote.limits import HEARTBEATS_IN_TIME
from quire.remote.ownership.shared_store import SharedStore
from quire.remote.wire.protocol import CONNECTION, GREETING, NUMBER_FRAME, PING, PONG
from tests.kit.raw_stream import RawStream, get, good_hello
from tests.kit.waiting import SECONDS, eventually


def opened(owner: Store, seconds: float, **hello: Any) -> tuple[RawStream, object]:
    """Connect to an owner with this heartbeat; return also what it demands."""
    assert isinstance(owner, SharedStore)
    server = owner.share(OsEnv())
    server.expect_heartbeats(seconds)
    stream = RawStream(server.wait_started(), good_hello(**hello))
    stream.words(GREETING.size)
    return stream, stream.next().header.get("heartbeat_seconds")


def connections(owner: Store) -> int:
    """Return how many connections the owner has."""
    found: int = owner.status()["sharing"]["connections"]
    return found


def test_a_client_without_a_sign_is_cut_off(owner: Store) -> None:
    """What it has got is given back, and what waits is over."""
    owner.create_queue("jobs", kind="work")
    owner.put("jobs", b"held")
    stream, seconds = opened(owner, 1.5, heartbeats=True)
    with closing(stream):
        assert seconds == 1.5
        stream.send(get(1, "jobs"))
        assert bytes(stream.next().bodies[0]).endswith(b"held")
        stream.send(get(2, "jobs", 1e5))
        [message] = owner.get_many("jobs", timeout=SECONDS).payloads()
        assert bytes(message) == b"held"
        eventually(lambda: not connections(owner))
        with pytest.raises((EOFError, ConnectionResetError)):
            stream.frame()


def test_a_client_that_gives_signs_is_not(owner: Store) -> None:
    """A PING now and then is one, and so is any request."""
    seconds = 1.5
    stream, _ = opened(owner, seconds, heartbeats=True)
    with closing(stream):
        served = owner._server._connections  # type: ignore[attr-defined]
        [connection] = served.values()
        for number in range(2 * HEARTBEATS_IN_TIME):
            eventually(lambda: connection.silent_seconds >= seconds / 2 / HEARTBEATS_IN_TIME)
            stream.send(NUMBER_FRAME.pack(8, PING, CONNECTION, number))
            assert stream.frame() == NUMBER_FRAME.pack(8, PONG, CONNECTION, number)
        assert connections(owner) == 1


def test_nothing_is_demanded_of_who_promises_nothing(owner: Store) -> None:
    """So clients that know of none are served as they were."""
    stream, seconds = opened(owner, 0.1)
    with closing(stream):
        assert seconds is None
        served = owner._server._connections  # type: ignore[attr-defined]
        [connection] = served.values()
        eventually(lambda: connection.silent_seconds > 0.3)
        assert stream.request("status", arguments={}).header["result"]


@pytest.mark.promise(13)
@pytest.mark.parametrize("seconds", [0, -1, float("inf"), "soon"])
def test_a_heartbeat_that_cannot_be(store_path: str, seconds: Any) -> None:
    """It is refused before the store is opened."""
    with pytest.raises(InvalidArgument, match="seconds"):
        quire.opening.serve(store_path, listen=["localhost:0"], insecure=True, heartbeat=seconds)
