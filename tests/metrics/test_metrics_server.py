"""The port of metrics and probes: it answers, it is bounded, and nothing of it hangs."""

from __future__ import annotations

import os
import socket
import ssl
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.env import OsEnv
from quire.errors import InvalidArgument, RemoteError
from quire.metrics import MetricsServer
from quire.metrics import metrics_server as module
from quire.metrics.limits import CONNECTIONS
from quire.opening import open as open_store
from quire.remote.ownership.shared_store import SharedStore
from tests.kit.network import certificates
from tests.kit.waiting import SECONDS, ends, eventually
from tests.metrics.scraping import number, page, raw, scrape


@pytest.fixture
def served(owner: Store) -> Iterator[MetricsServer]:
    """A port of an owned store."""
    with MetricsServer("127.0.0.1:0", owner) as server:
        yield server


def test_pages(owner: Store, served: MetricsServer) -> None:
    """Metrics, of this process too; probes; what is asked wrongly."""
    owner.create_queue("q", kind="work")
    owner.put("q", b"x")
    found = scrape(served.url)
    assert number(found, "quire_queue_messages", queue="q", state="waiting") == 1
    assert number(found, "quire_owner") == 1
    assert number(found, "process_open_fds") > 0
    assert page(served.url, "/healthz") == (200, "ok\n")
    assert page(served.url, "/readyz?verbose") == (200, "ok\n")
    assert page(served.url, "/metrics", "HEAD") == (200, "")
    assert page(served.url, "/")[0] == 404
    assert page(served.url, "/metrics", "POST")[0] == 405


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n\r\n",
        b"GET /metrics\r\n\r\n",
        b"GET  /metrics HTTP/2\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 600 + b"\n\n",
        b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: " + b"y" * 20_000,
        os.urandom(3000) + b"\n\n",
    ],
    ids=["empty", "HTTP/0.9", "HTTP/2", "TLS", "long line", "long header", "random"],
)
def test_what_is_no_request(served: MetricsServer, data: bytes) -> None:
    """It is refused, or the connection ends; the port goes on."""
    with raw(served.url) as connection:
        answer = b""
        with suppress(ConnectionError):
            connection.sendall(data)
            while more := connection.recv(4096):
                answer += more
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400 ")
    assert page(served.url, "/healthz") == (200, "ok\n")


def test_silent_clients_give_way(served: MetricsServer) -> None:
    """However many there are, who asks is answered; the oldest of them is cut off."""
    silent = [raw(served.url) for _ in range(3 * CONNECTIONS)]
    try:
        for connection in silent:
            connection.sendall(b"GET /me")
        assert page(served.url, "/healthz") == (200, "ok\n")
        assert number(scrape(served.url), "quire_up") == 1
        with suppress(ConnectionError):
            assert silent[0].recv(1) == b""
    finally:
        for connection in silent:
            connection.close()
    eventually(lambda: not served._visits)


def test_a_slow_client_is_cut_off(served: MetricsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose request does not end, whether or not some of it comes."""
    monkeypatch.setattr(module, "REQUEST_SECONDS", 0.2)
    with raw(served.url) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\n")
        with suppress(ConnectionError):
            assert connection.recv(1) in (b"", b"H")
    eventually(lambda: not served._visits)


def test_who_does_not_take_the_answer(
    owner: Store, served: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Is cut off in the end, too, and others are answered meanwhile."""
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(MetricsServer, "_scrape", lambda server: (200, "x" * (64 << 20), "text"))
    with raw(served.url) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert page(served.url, "/readyz") == (200, "ok\n")
        eventually(lambda: not served._visits)


class Gate:
    """A store whose status waits until it may go on."""

    role = "owner"
    failed = False
    unready = ""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()

    def status(self) -> dict[str, Any]:
        self.begun.set()
        assert self.may_end.wait(SECONDS)
        return {}


def test_probes_wait_for_no_scrape() -> None:
    """Nor does another scrape wait for ever; the end waits for neither."""
    gate = Gate()
    with MetricsServer(":0", gate) as server, raw(server.url) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert gate.begun.wait(SECONDS)
        assert page(server.url, "/healthz") == (200, "ok\n")
        assert page(server.url, "/readyz") == (200, "ok\n")
        gate.may_end.set()
        assert ends(server.close)
    assert not server._thread.is_alive()


def test_a_second_scrape_is_refused_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the first one hangs."""
    monkeypatch.setattr(module, "SCRAPE_SECONDS", 0.1)
    gate = Gate()
    with MetricsServer(":0", gate) as server, raw(server.url) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert gate.begun.wait(SECONDS)
        assert page(server.url, "/metrics")[0] == 503
        gate.may_end.set()
        assert connection.recv(8) == b"HTTP/1.1"


def test_the_end_does_not_wait_for_a_scrape_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within bounded time it is over for who closes."""
    monkeypatch.setattr(module, "END_SECONDS", 0.2)
    gate = Gate()
    server = MetricsServer(":0", gate)
    with raw(server.url) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert gate.begun.wait(SECONDS)
        server.close()
        server.close()
    gate.may_end.set()
    with pytest.raises(OSError, match=r".*"):
        raw(server.url)


def test_the_store_is_closed_while_it_is_scraped(store_path: str) -> None:
    """Every scrape is answered, up or down; nothing hangs."""
    store = open_store(store_path)
    store.create_queue("q", kind="work")
    with MetricsServer(":0", store) as server:
        ups: list[float] = []

        def look() -> None:
            while not ups or ups[-1]:
                ups.append(number(scrape(server.url), "quire_up"))

        threads = [threading.Thread(target=look) for _ in range(3)]
        for thread in threads:
            thread.start()
        eventually(lambda: len(ups) > 5)
        assert ends(store.close)
        for thread in threads:
            thread.join(SECONDS)
            assert not thread.is_alive()
        assert page(server.url, "/healthz")[0] == 200
        status, text = page(server.url, "/readyz")
        assert status == 503
        assert "closed" in text


def test_a_poisoned_store_is_unhealthy(owner: Store, served: MetricsServer) -> None:
    """Its metrics go on, and say so."""
    owner._context.sequencer.fail(OSError("the disk is gone"))
    assert page(served.url, "/healthz")[0] == 503
    assert page(served.url, "/readyz")[0] == 503
    assert number(scrape(served.url), "quire_failed") == 1
    owner.close()


def test_one_that_drains_is_not_ready(owner: Store, served: MetricsServer) -> None:
    """It is healthy, and scraped as before."""
    assert isinstance(owner, SharedStore)
    owner.share(OsEnv()).drain(0.0)
    assert page(served.url, "/healthz") == (200, "ok\n")
    status, text = page(served.url, "/readyz")
    assert (status, "about to end" in text) == (503, True)
    assert number(scrape(served.url), "quire_draining") == 1


def test_a_disk_below_the_mark_is_not_ready(
    store_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that refuses puts is not; the words say why."""
    monkeypatch.setattr(OsEnv, "free_bytes", lambda env, path: 5)
    with (
        open_store(store_path, refuse_below_bytes=6) as store,
        MetricsServer(":0", store) as server,
    ):
        status, text = page(server.url, "/readyz")
        assert (status, "refuse_below_bytes=6" in text) == (503, True)
        assert page(server.url, "/healthz")[0] == 200
        assert number(scrape(server.url), "quire_disk_below_mark", level="full") == 1
        assert number(scrape(server.url), "quire_disk_mark_bytes", mark="refuse") == 6


def test_one_that_takes_over(store_path: str) -> None:
    """A joined one is healthy and not ready, and says nothing of the store; then it does."""
    first = open_store(store_path)
    first.create_queue("q", kind="work")
    second = open_store(store_path)
    with MetricsServer(":0", second) as server:
        found = scrape(server.url)
        assert (number(found, "quire_up"), number(found, "quire_owner")) == (1, 0)
        assert ("quire_failed", ()) not in found
        assert page(server.url, "/healthz") == (200, "ok\n")
        status, text = page(server.url, "/readyz")
        assert (status, "another process owns" in text) == (503, True)
        first.close()
        eventually(lambda: page(server.url, "/readyz")[0] == 200)
        found = scrape(server.url)
        assert (number(found, "quire_owner"), number(found, "quire_openings_total")) == (1, 3)
        second.close()


def test_before_the_store_is_open() -> None:
    """While it recovers, which may take long."""
    with MetricsServer(":0") as server:
        assert page(server.url, "/healthz") == (200, "ok\n")
        assert page(server.url, "/readyz")[0] == 503
        assert number(scrape(server.url), "quire_up") == 0


def test_a_forked_child_has_nothing_of_it(served: MetricsServer) -> None:
    """The port is the parent's alone; the child may have a port of its own."""
    child = os.fork()
    if child == 0:
        ok = served._listener.fileno() == -1
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert page(served.url, "/healthz") == (200, "ok\n")


def test_over_tls(owner: Store) -> None:
    """With the certificates of the server; with an authority of clients for them alone."""
    tls, client = certificates()
    with MetricsServer("localhost:0", owner, tls=tls) as server:
        context = ssl.create_default_context(cafile=str(client.ca))
        with pytest.raises(OSError, match=r".*"):
            urllib.request.urlopen(f"{server.url}/healthz", context=context, timeout=SECONDS).read()
        context.load_cert_chain(str(client.cert), str(client.key))
        found = urllib.request.urlopen(f"{server.url}/metrics", context=context, timeout=SECONDS)
        assert b"quire_up 1.0" in found.read()
        with socket.create_connection(("localhost", int(server.url.rpartition(":")[2]))) as plain:
            plain.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            plain.settimeout(SECONDS)
            with suppress(ConnectionError):
                assert b"quire" not in plain.recv(4096)


@pytest.mark.parametrize("address", ["", "nonsense", "127.0.0.1", "127.0.0.1:x", "a/b:80"])
def test_bad_addresses(address: str) -> None:
    """The error says what to give."""
    with pytest.raises(InvalidArgument, match="give HOST:PORT for the metrics"):
        MetricsServer(address)


def test_a_port_that_is_taken(served: MetricsServer) -> None:
    """The error names the address."""
    address = served.url.removeprefix("http://")
    with pytest.raises(RemoteError, match=address):
        MetricsServer(address)
