"""The order service: whatever is killed, every order is charged, packed and invoiced once."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import quire
from examples.order_service.orders import CustomerOrder
from examples.order_service.queues import EXPRESS, MAX_DELIVERIES, USUAL, set_up
from tests.source_tree import ROOT

README = ROOT / "examples" / "order_service" / "README.md"
SERVERS = 3
WAIT = 600.0


def command(path: Path, *arguments: str) -> list[str]:
    """The program with these arguments."""
    return [sys.executable, "-m", "examples.order_service", str(path), *arguments]


def ask(path: Path, *arguments: str) -> Any:
    """Run a command to its end; what it says, as JSON."""
    done = subprocess.run(
        command(path, *arguments), cwd=ROOT, check=True, stdout=subprocess.PIPE, timeout=WAIT
    )
    return json.loads(done.stdout or b"null")


class Servers:
    """Some processes that work; a dead one is replaced, as a supervisor does."""

    def __init__(self, path: Path, count: int) -> None:
        self._path = path
        self._all = [self._start() for _ in range(count)]
        self.died = 0  # that nobody here has killed

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(command(self._path, "work"), cwd=ROOT)

    def kill(self, number: int) -> None:
        """kill -9."""
        self.look()
        self._all[number].kill()
        self._all[number].wait()
        self._all[number] = self._start()

    def look(self) -> None:
        """Start those anew that have died."""
        for number, process in enumerate(self._all):
            if process.poll() is not None:
                assert process.returncode == -signal.SIGKILL, "it failed in another way"
                self.died += 1
                self._all[number] = self._start()

    def stop(self) -> list[int]:
        """SIGTERM; how they ended."""
        for process in self._all:
            process.terminate()
        return [process.wait(WAIT) for process in self._all]

    def close(self) -> None:
        for process in self._all:
            process.kill()
            process.wait()


def until_done(path: Path, servers: Servers) -> dict[str, Any]:
    """The report when nothing is left to be handled."""
    end = time.monotonic() + WAIT
    while True:
        servers.look()
        said: dict[str, Any] = ask(path, "report", "--wait", "1")
        if not any(said["queues"][name] for name in ("orders", "paid", "invoices")):
            return said
        assert time.monotonic() < end, f"not done after {WAIT:.0f} s: {said}"


def numbers(store: quire.Store, queue: str) -> list[int]:
    """Of the orders that its messages are about."""
    texts = store.browse(queue, max_messages=10_000).payloads()
    return sorted(int(re.match(rb"\d+", text).group()) for text in texts)  # type: ignore[union-attr]


@pytest.mark.promise(1)
@pytest.mark.promise(2)
@pytest.mark.crash
@pytest.mark.cases(8)
def test_every_order_is_handled_once_whatever_is_killed(
    tmp_path: Path, rng: random.Random, spread: int
) -> None:
    """Servers are killed at random moments, and by an order that kills whoever handles it."""
    path = tmp_path / "shop"
    count, kills = (60, 6) if spread == 1 else (20, 2)
    with ExitStack() as stack:
        servers = Servers(path, SERVERS)
        stack.callback(servers.close)
        ask(path, "order", "--count", str(count))
        for _ in range(kills):
            time.sleep(rng.uniform(0.2, 0.8))
            servers.kill(rng.randrange(SERVERS))
        # Now: whom it kills is not killed by the test instead.
        ask(path, "order", "--first", str(count + 1), "--count", str(count), "--bad")
        said = until_done(path, servers)
        # Orders that were in work whenever their server died may be dead letters too.
        assert {letter["payload"] for letter in said["dead"]} >= {"{"}
        for letter in said["dead"]:
            assert letter["deliveries"] == MAX_DELIVERIES
        good = [json.loads(one["payload"])["item"] for one in said["dead"]
                if '"item"' in one["payload"] and "dynamite" not in one["payload"]]  # fmt: skip
        given_back = sum(ask(path, "redrive", item) for item in sorted({"apples", *good}))
        assert given_back == len(good)
        # So may the one that is no order, without anybody having read it.
        with quire.open(str(path)) as store:
            assert store.admin.redrive("orders.dead", lambda letter: letter.payload == b"{") == 1
        said = until_done(path, servers)
        assert servers.stop() == [0] * SERVERS
    assert servers.died == MAX_DELIVERIES
    dead = {letter["payload"]: letter["reason"] for letter in said["dead"]}
    assert len(dead) == 2
    assert dead["{"].startswith("no order: ")
    [dynamite] = dead.keys() - {"{"}
    assert "dynamite" in dynamite
    with quire.open(str(path)) as store:
        for queue in ("charges", "parcels", "mailed"):
            assert numbers(store, queue) == list(range(1, 2 * count + 1)), queue


@pytest.mark.crash
@pytest.mark.cases(8)
def test_a_customer_has_each_receipt_once_whatever_is_killed(
    tmp_path: Path, rng: random.Random
) -> None:
    """The customer is killed and begun again, and so are the servers, of which one is the owner."""
    path, count = tmp_path / "shop", 12
    with ExitStack() as stack:
        servers = Servers(path, 2)
        stack.callback(servers.close)
        for number in range(3):
            customer = subprocess.Popen(
                command(path, "buy", "ann", "--count", str(count)), cwd=ROOT
            )
            stack.callback(customer.kill)
            if number < 2:
                time.sleep(rng.uniform(0.5, 3.0))
                servers.kill(number)
                customer.kill()
            assert customer.wait(WAIT) in ((0, -signal.SIGKILL) if number < 2 else (0,))
        said = until_done(path, servers)
        servers.stop()
    assert said["dead"] == []
    with quire.open(str(path)) as store:
        for queue in ("charges", "receipts"):
            assert numbers(store, queue) == list(range(1, count + 1)), queue
        assert store.session("ann").info().unfinished == []


def test_express_orders_overtake_the_others(tmp_path: Path) -> None:
    """One worker, all orders there before: the express ones are charged first."""
    with quire.open(str(tmp_path / "shop")) as store:
        set_up(store)
        with store.transaction() as txn:
            for number in range(1, 11):
                payload, kind = CustomerOrder(number, "apples", 100).encode()
                priority = EXPRESS if number > 8 else USUAL
                txn.put("orders", payload, content_type=kind, priority=priority)
        with store.transaction() as txn:
            first = [message.decode()["number"] for message in txn.get_many("orders", 2)]
            txn.rollback()
        assert first == [9, 10]


@pytest.mark.cases(8)
def test_the_readme_is_true(tmp_path: Path) -> None:
    """Its commands, as printed, end with what it says."""
    [program] = re.findall(r"^```sh\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    assert program.count(" shop ") == 3
    program = program.replace(".venv/bin/python", sys.executable)
    program = program.replace(" shop ", f" {tmp_path}/shop ")
    done = subprocess.run(
        ["bash", "-euc", program], cwd=ROOT, check=True, stdout=subprocess.PIPE, timeout=WAIT
    )
    said = json.loads(done.stdout)
    assert said["queues"]["charges"] == said["queues"]["parcels"] == 100
    assert said["queues"]["mailed"] == 100
    assert said["dead"] == []
