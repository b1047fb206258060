"""Scrapes as Prometheus makes them: over a socket, and read by prometheus-client."""

from __future__ import annotations

import http.client
import socket
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.kit.waiting import SECONDS

Numbers = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def page(url: str, path: str, method: str = "GET") -> tuple[int, str]:
    """The status and text of a page."""
    connection = http.client.HTTPConnection(url.rpartition("/")[2], timeout=SECONDS)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def numbers_of(text: str) -> Numbers:
    """Each sample by name and labels; a name and labels come once."""
    found: Numbers = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def scrape(url: str) -> Numbers:
    """The numbers of a page of metrics."""
    status, text = page(url, "/metrics")
    assert status == 200
    return numbers_of(text)


def number(numbers: Numbers, name: str, **labels: str) -> float:
    """Return one of them."""
    return numbers[name, tuple(sorted(labels.items()))]


def raw(url: str) -> socket.socket:
    """A connection to the port."""
    host, _, port = url.rpartition("/")[2].rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=SECONDS)
    assert isinstance(connection, socket.socket)
    return connection


def collected(collector: Any) -> Numbers:
    """The numbers of a collector in a registry of its own."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(collector)
    return numbers_of(generate_latest(registry).decode())
