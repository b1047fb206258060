"""`quire serve --metrics`: a process of its own, from its beginning to its end."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import quire
from quire.cli import main
from tests.kit.waiting import SECONDS, eventually
from tests.metrics.scraping import number, page, scrape
from tests.source_tree import ROOT


@contextmanager
def serving(path: str, *further: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server, and the URL of its metrics."""
    words = [sys.executable, "-m", "quire", "serve", path, "--metrics", "127.0.0.1:0", *further]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = ""
            while not url:
                line = server.stdout.readline()
                assert line, "it has ended"
                if line.startswith("metrics: "):
                    url = line.split()[1].removesuffix("/metrics")
            yield server, url
        finally:
            server.kill()


def is_ready(url: str) -> bool:
    """Return True if the server says so."""
    return page(url, "/readyz")[0] == 200


def test_a_server_and_the_next_one(store_path: str) -> None:
    """The first one is ready; the second one lives, waits, and is ready when that one has ended."""
    with (
        serving(store_path, "--timings") as (_, url),
        serving(store_path, "--timings") as (_, next_url),
    ):
        eventually(lambda: is_ready(url) or is_ready(next_url))
        if is_ready(next_url):  # it was faster
            url, next_url = next_url, url
        first_owns = is_ready(url)
        assert first_owns
        with quire.open(store_path) as store:
            store.create_queue("q", kind="work")
            store.put("q", b"x")
        found = scrape(url)
        assert number(found, "quire_queue_messages", queue="q", state="waiting") == 1
        assert number(found, "quire_commit_seconds_count") >= 1
        assert page(next_url, "/healthz") == (200, "ok\n")
        assert not is_ready(next_url)


def test_an_end_in_order(store_path: str) -> None:
    """A signal while somebody scrapes ends it with 0."""
    with serving(store_path, "--grace", "1") as (server, url):
        eventually(lambda: is_ready(url))
        assert number(scrape(url), "quire_up") == 1
        server.send_signal(signal.SIGTERM)
        assert server.wait(SECONDS) == 0


def test_metrics_over_tls_want_certificates(store_path: str) -> None:
    """The error says which."""
    words = ["serve", store_path, "--metrics", ":0", "--metrics-tls"]
    assert main(words) == 1
