"""The benchmark of served transactions: every client does what the benchmark says of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.served.served import Crowd
from bench.served.served_clients import CLIENTS, QuireClient
from bench.served.served_rivals import FloorServer, PostgresServer, QuireServer, RedisServer, Server


@pytest.fixture(params=[QuireServer, RedisServer, PostgresServer, FloorServer])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """Each that is installed."""
    try:
        server: Server = request.param(tmp_path / "server")
    except FileNotFoundError as error:
        pytest.skip(str(error))
    yield server
    server.stop()


@pytest.mark.cases(4)
def test_what_is_put_is_got_and_moved(server: Server) -> None:
    """As many gets as puts leave nothing there, and nothing was got that was not put."""
    client = CLIENTS[server.name](server.address, 1)
    for _ in range(3):
        client.put()
    client.move()
    client.get()
    client.get()
    client.put_batch()
    client.get_batch()
    if isinstance(client, QuireClient):
        client.put_arrow()
        client.get_arrow()
    if server.name != "floor":  # which keeps nothing
        with pytest.raises((AssertionError, TypeError)):  # there is none
            client.get()
    client.close()


@pytest.mark.long
def test_a_crowd_does_it_together(server: Server) -> None:
    """Two processes, with times of what they have done."""
    crowd = Crowd(server, 2)
    for operation in ("put", "get", "move", "get_batch"):
        found = crowd.run(operation, 0.05)
        assert found["rate"] > 0
        assert found["p50"] <= found["p99"]
    crowd.close()
