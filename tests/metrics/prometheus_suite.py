"""Prometheus itself with the alert rules: each fires for what it is about, and for nothing else.

Run by `make check-metrics`. The rules are those of the package, with times of seconds in place of
minutes. Prometheus listens on loopback, keeps a few MiB for as long as the run lasts, and is ended
by its number.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.errors import QuireError
from quire.metrics import ALERT_RULES, MetricsServer
from quire.testing import SimEnv
from tests.engine.workload import new_machine, open_store
from tests.kit.waiting import eventually

SHORT = {r"\[\d+m\]": "[8s]", r"for: \d+m": "for: 2s"}
WATCHED_SECONDS = 120


def free_port() -> int:
    """A port of loopback that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert isinstance(port, int)
    return port


class Machines:
    """Stores on simulated disks, each with a port of metrics: `calm`, `busy` and `broken`."""

    def __init__(self, ending: ExitStack) -> None:
        self.disks: dict[str, SimEnv] = {}
        self.stores: dict[str, Store] = {}
        self.targets: dict[str, str] = {}
        for name in ("calm", "busy", "broken"):
            self.disks[name] = disk = new_machine(1)
            marks: dict[str, Any] = {"warn_below_bytes": 2 << 20, "refuse_below_bytes": 1 << 20}
            self.stores[name] = store = open_store(disk, **marks)
            disk.capacity_bytes = disk.used_bytes() + (64 << 20)
            store.create_queue("jobs", kind="work", capacity=200_000)
            store.create_queue("news", kind="topic")
            store.subscribe("news", "reader")
            server = ending.enter_context(MetricsServer("127.0.0.1:0", store))
            self.targets[name] = server.url.removeprefix("http://")

    def work(self, *names: str) -> None:
        """Put and read everywhere, as a program does whose store is well."""
        for name in names:
            with suppress(QuireError):
                self.disks[name].advance(1)
                self.stores[name].put("jobs", b"x")
                self.stores[name].put("news", b"x")
                self.stores[name].get("jobs")
                self.stores[name].get("news/reader")


class Prometheus:
    """A process of Prometheus, and what it says of alerts."""

    def __init__(self, folder: Path, targets: dict[str, str]) -> None:
        rules = Path(ALERT_RULES).read_text()
        for long, short in SHORT.items():
            rules = re.sub(long, short, rules)
        (folder / "alerts.yml").write_text(rules)
        settings = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["alerts.yml"],
            "scrape_configs": [
                {"job_name": name, "static_configs": [{"targets": [target]}]}
                for name, target in targets.items()
            ],
        }
        (folder / "prometheus.yml").write_text(json.dumps(settings))  # which is YAML, too
        self.url = f"http://127.0.0.1:{free_port()}"
        words = [
            "prometheus",
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data",
            "--storage.tsdb.retention.time=1h",
            "--storage.tsdb.retention.size=64MB",
            f"--web.listen-address={self.url.removeprefix('http://')}",
        ]
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log)

    def is_ready(self) -> bool:
        """Return True once it answers."""
        assert self.process.poll() is None, "Prometheus has ended: see its log"
        with suppress(OSError):
            return bool(urllib.request.urlopen(f"{self.url}/-/ready", timeout=5).status == 200)
        return False

    def ask(self, what: str) -> Any:
        """The answer of its API."""
        answer = urllib.request.urlopen(f"{self.url}/api/v1/{what}", timeout=5)
        return json.loads(answer.read())["data"]

    def firing(self) -> set[tuple[str, str]]:
        """The alerts that fire, each with the store that it is about."""
        return {
            (alert["labels"]["alertname"], alert["labels"]["job"])
            for alert in self.ask("alerts")["alerts"]
            if alert["state"] == "firing"
        }


@pytest.fixture
def machines() -> Iterator[Machines]:
    """The stores, until the end."""
    with ExitStack() as ending:
        made = Machines(ending)
        yield made
        for store in made.stores.values():
            with suppress(QuireError):
                store.close()


@pytest.fixture
def prometheus(tmp_path: Path, machines: Machines) -> Iterator[Prometheus]:
    """It watches all of them."""
    if which("prometheus") is None:
        pytest.skip("Prometheus is not installed: apt-get install prometheus")
    started = Prometheus(tmp_path, machines.targets)
    try:
        eventually(started.is_ready, WATCHED_SECONDS)
        yield started
    finally:
        started.process.terminate()
        started.process.wait(30)


def test_the_rules_are_right() -> None:
    """As promtool reads them."""
    if which("promtool") is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    checked = subprocess.run(
        ["promtool", "check", "rules", ALERT_RULES], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr
    assert "16 rules found" in checked.stdout


def test_alerts_fire(machines: Machines, prometheus: Prometheus) -> None:
    """None at first; then for a queue that fills, a subscription that stalls, disks that fail."""
    seen = 0

    def is_watched() -> bool:
        nonlocal seen
        machines.work("calm", "busy", "broken")
        up = prometheus.ask("query?query=sum(quire_up)")["result"]
        seen += bool(up) and float(up[0]["value"][1]) == len(machines.targets)
        return seen > 1000

    with suppress(AssertionError):  # for as long as every window and wait of a rule takes
        eventually(is_watched, 15)
    assert seen > 0
    assert prometheus.firing() == set()

    busy, broken = machines.stores["busy"], machines.stores["broken"]
    with suppress(QuireError):
        while True:
            busy.put("jobs", b"x" * 1000)
    for _ in range(10):
        busy.put("news", b"x")
    machines.disks["broken"].fail("write", forever=True)
    with suppress(QuireError):
        broken.put("jobs", b"lost")
    expected = {
        ("QuireQueueFilling", "busy"),
        ("QuireQueueFull", "busy"),
        ("QuireQueueStalled", "busy"),
        ("QuireSubscriptionStalled", "busy"),
        ("QuireFailed", "broken"),
    }

    def is_told() -> bool:
        machines.work("calm")
        return prometheus.firing() >= expected

    eventually(is_told, WATCHED_SECONDS)
    disk = machines.disks["busy"]
    disk.capacity_bytes = disk.used_bytes() + 1000
    busy.get("jobs")
    disk.advance(1)
    busy.get("jobs")
    expected |= {("QuireDiskLow", "busy"), ("QuireDiskFull", "busy")}
    eventually(is_told, WATCHED_SECONDS)
    assert not [alert for alert, job in prometheus.firing() if job == "calm"]

    machines.stores["calm"].close()
    eventually(lambda: ("QuireDown", "calm") in prometheus.firing(), WATCHED_SECONDS)
