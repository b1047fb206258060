"""kill -9 of clients, of servers and of the owner of a store that is served over TLS.

Nothing is lost, nothing is there twice, and what each client has acknowledged is there.
"""

from __future__ import annotations

import json
import os
import random
import select
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import quire
from quire.remote.wire.address import RUN_DIRECTORY
from quire.tls import Tls
from tests.crash.network_programs import ASKED, DONE, LOG, create, payload
from tests.kit.children import Child
from tests.kit.network import certificates, drawn_port
from tests.kit.violation import Violation
from tests.kit.waiting import SECONDS, eventually

CODE = "import sys; from tests.crash import network_programs as it; it.{}(*sys.argv[1:])"
CLIENTS = ("ann", "ben")
VICTIMS = ("owner", "server", "client", "both")  # of a kill; both: a client, and then the owner
READ_BYTES = 1 << 16
MOST_SECONDS = 0.3  # that all live on after a kill
FEW, MANY = 3, 100
ALL = 1_000_000  # messages: more than there are


def files_of(tls: Tls) -> list[str]:
    """Return the files of a certificate: its own, its key and the authority's."""
    return [str(tls.cert), str(tls.key), str(tls.ca)]


class Processes:
    """Two servers and two clients, of which those that are killed begin again."""

    def __init__(self, path: str, rng: random.Random) -> None:
        self.path = path
        server, client = certificates()
        ports = {"first": str(drawn_port(rng)), "second": str(drawn_port(rng))}
        url = "quire://" + ",".join(f"localhost:{port}" for port in ports.values())
        self._plans = {
            name: ("serve", [path, port, *files_of(server)]) for name, port in ports.items()
        }
        self._plans |= {name: ("work", [url, name, *files_of(client)]) for name in CLIENTS}
        self.running: dict[str, Child] = {}
        self.acknowledged = dict.fromkeys(CLIENTS, 0)
        self._parts: dict[str, str] = {}  # of a line
        for name in self._plans:
            self._begin(name)

    def _begin(self, name: str) -> None:
        program, arguments = self._plans[name]
        self.running[name] = Child(CODE.format(program), *arguments)
        self._parts[name] = ""

    def owner(self) -> str:
        """Return which server owns the store, once one does."""
        found: list[str] = []

        def look() -> bool:
            try:
                text = (Path(self.path) / RUN_DIRECTORY / "address").read_text()
            except FileNotFoundError:
                return False
            number = json.loads(text)["process_id"]
            found[:] = [n for n, each in self.running.items() if each.process.pid == number]
            return bool(found)

        eventually(look)
        return found[0]

    def kill(self, names: list[str]) -> None:
        """Kill these, note what they have acknowledged, and begin them again."""
        for name in names:
            if self.running[name].process.poll() is not None:
                raise Violation(f"{name} has ended by itself")
            self.end(name)
        for name in names:
            self._begin(name)

    def end(self, name: str) -> None:
        """Kill one, and note what it has acknowledged."""
        child = self.running.pop(name)
        child.kill()
        if name in CLIENTS:
            while self._read(name, child, SECONDS):
                pass
        child.close()

    def end_all(self) -> None:
        """Kill all of them."""
        for name in list(self.running):
            self.end(name)

    def wait_for_progress(self, name: str) -> None:
        """Return once a client has another move acknowledged."""
        child = self.running[name]
        while self._read(name, child, 0):
            pass
        before = self.acknowledged[name]
        while self.acknowledged[name] == before:
            if not self._read(name, child, SECONDS):
                raise Violation(f"{name} goes on no more")

    def _read(self, name: str, child: Child, seconds: float) -> bool:
        """Read what a client has acknowledged; False: nothing came in time, or it has ended."""
        output = child.process.stdout.fileno()
        if not select.select([output], [], [], seconds)[0]:
            return False
        data = os.read(output, READ_BYTES)
        *lines, self._parts[name] = (self._parts[name] + data.decode()).split("\n")
        if lines:
            self.acknowledged[name] = int(lines[-1])
        return bool(data)


@contextmanager
def processes(path: str, rng: random.Random) -> Iterator[Processes]:
    """All of them, which have ended when the block has."""
    create(path)
    with ExitStack() as stack:
        found = Processes(path, rng)
        stack.callback(found.end_all)
        yield found


def kill_again_and_again(path: str, kills: int, rng: random.Random) -> Counter[str]:
    """Kill so often, and look what is left; return who was killed how often."""
    victims: Counter[str] = Counter()
    with processes(path, rng) as found:
        for name in CLIENTS:
            found.wait_for_progress(name)
        for n in range(kills):
            time.sleep(rng.random() ** 2 * MOST_SECONDS)
            victim = VICTIMS[n % len(VICTIMS)] if kills <= FEW else rng.choice(VICTIMS)
            victims[victim] += 1
            client, owner = rng.choice(CLIENTS), found.owner()
            server = "second" if owner == "first" else "first"
            names = {"owner": [owner], "server": [server], "client": [client]}
            found.kill(names.get(victim, [client, owner]))
            found.wait_for_progress(rng.choice(CLIENTS))
    look(path, found.acknowledged)
    return victims


def look(path: str, acknowledged: dict[str, int]) -> None:
    """Look whether each message is there once, and what was acknowledged is moved."""
    with quire.open(path) as store:
        left, moved, logged = (
            [bytes(message.payload) for message in store.browse(name, ALL)]
            for name in (ASKED, DONE, LOG)
        )
        _check(sorted(moved) == sorted(logged), "a half transaction: the queues differ")
        found = Counter(left + moved)
        moves = 0
        for name in CLIENTS:
            number = store.integration.ledger(name) or 0
            moves += number
            _check(number - acknowledged[name] in (0, 1), f"{name}: {acknowledged[name]}, {number}")
            last = number + (found[payload(name, number + 1)] > 0)  # put, and no move since
            wanted = Counter(payload(name, each) for each in range(1, last + 1))
            own = Counter({t: n for t, n in found.items() if t.startswith(name.encode() + b" ")})
            _check(own == wanted, f"{name}: {(own - wanted) or (wanted - own)}")
        _check(len(moved) == moves, f"{len(moved)} messages are moved by {moves} moves")
        report = store.admin.verify()
        _check(report.ok, f"verify: {report.findings}")


def _check(holds: bool, words: str) -> None:
    if not holds:
        raise Violation(words)


@pytest.mark.promise(1)
@pytest.mark.promise(2)
@pytest.mark.crash
def test_three_kills_over_the_network_lose_nothing_and_repeat_nothing(
    store_path: str, rng: random.Random
) -> None:
    """The short slice of the test below, for every run: owner, server and client."""
    kill_again_and_again(store_path, FEW, rng)


@pytest.mark.promise(1)
@pytest.mark.promise(2)
@pytest.mark.crash
@pytest.mark.long
def test_a_hundred_kills_over_the_network_lose_nothing_and_repeat_nothing(
    store_path: str, rng: random.Random, rounds: int
) -> None:
    """One store, and two clients, live through a hundred kills at random moments."""
    victims = kill_again_and_again(store_path, max(rounds, MANY), rng)
    print(f"killed: {dict(sorted(victims.items()))}")
    assert set(victims) == set(VICTIMS)


@pytest.mark.crash
@pytest.mark.parametrize(("queue", "words"), [(ASKED, "ann"), (DONE, "differ"), ("both", "ann")])
def test_a_message_that_is_gone_or_there_twice_is_caught(
    store_path: str, queue: str, words: str
) -> None:
    """The canary: a message that was not moved, one that is half moved, one that is there twice."""
    create(store_path)
    with quire.open(store_path) as store:
        for name in CLIENTS:
            for number in (1, 2):
                text = payload(name, number)
                with store.transaction() as txn:
                    txn.put(DONE, text)
                    txn.put(LOG, text)
                    txn.enter(name, number)
    look(store_path, dict.fromkeys(CLIENTS, 2))
    with quire.open(store_path) as store:
        if queue == ASKED:
            for name in (DONE, LOG):
                assert store.get(name) is not None
        elif queue == DONE:
            assert store.get(DONE) is not None
        else:
            store.put(DONE, payload("ann", 1))
            store.put(LOG, payload("ann", 1))
    with pytest.raises(Violation, match=words):
        look(store_path, dict.fromkeys(CLIENTS, 2))
