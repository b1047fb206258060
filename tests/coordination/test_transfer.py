"""Transfers between a PostgreSQL table and a queue: whatever dies at whatever step, both agree.

The transfers are made by a process of its own (`tests.coordination.transfer`), which is killed at a
step, or whose PostgreSQL session or store's owner is. Then a new coordinator recovers, and the
books are checked: no money is lost or made, and every transfer is on both sides or on none.
"""

from __future__ import annotations

import itertools
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from quire.env import OsEnv
from quire.remote import read_address
from tests.coordination.books import check
from tests.coordination.postgres import Cluster
from tests.coordination.template import Template
from tests.coordination.transfer import (
    COMMITTED_FROM,
    RECOVERY_STEPS,
    REFUSED_STEPS,
    STEPS,
    create,
    recovered,
)
from tests.kit.violation import Violation
from tests.source_tree import ROOT

pytestmark = pytest.mark.crash

DIRECTIONS = ("to-table", "to-queue")
ALL_CASES = tuple(itertools.product((*STEPS, *REFUSED_STEPS), DIRECTIONS, ("queue", "table")))
ROUNDS = 200
PATIENCE_SECONDS = 300.0
CRASHED = "all server processes terminated; reinitializing"  # in PostgreSQL's log


@dataclass
class Bank:
    """A store and a cluster with money in both, and the transfers that were seen so far."""

    path: str
    conninfo: str
    template: Template
    seen: frozenset[str] = frozenset()

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """A process that transfers, from scratch."""
        command = [sys.executable, "-m", "tests.coordination.transfer", self.path, self.conninfo]
        return subprocess.Popen(
            [*command, *arguments],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> tuple[int, str]:
        """Such a process to its end: its exit status, and what it said of an error."""
        return self.template.run(self.path, self.conninfo, *arguments)

    def look(self) -> int:
        """Recover and check the books; how many transfers are new."""
        with recovered(self.path, self.conninfo) as (store, table):
            transfers = check(store, table)
            report = store.admin.verify()
            assert report.ok, report.findings
        assert transfers >= self.seen, "a transfer is gone again"
        new = len(transfers) - len(self.seen)
        self.seen = frozenset(transfers)
        return new


@pytest.fixture(scope="module")
def template() -> Iterator[Template]:
    """Where the processes come from."""
    template = Template()
    yield template
    template.stop()


@pytest.fixture
def bank(store_path: str, cluster: Cluster, template: Template) -> Bank:
    """1000 on each side."""
    create(store_path, cluster.conninfo)
    return Bank(store_path, cluster.conninfo, template)


def cases(rng: random.Random) -> Iterator[tuple[str, str, str]]:
    """Each step in both directions and orders, over and over, each time shuffled."""
    while True:
        yield from rng.sample(ALL_CASES, len(ALL_CASES))


def kill_at(bank: Bank, step: str, direction: str, first: str, *more: str) -> tuple[int, str]:
    """One transfer that does not get past a step."""
    refuse = ["--refuse"] if step in REFUSED_STEPS else []
    return bank.run("--direction", direction, "--first", first, "--die-at", step, *refuse, *more)


@pytest.mark.cases(3)
@pytest.mark.promise(2)
@pytest.mark.promise(7)
def test_promise_2_7_a_coordinator_killed_at_its_steps(
    bank: Bank, rng: random.Random, spread: int
) -> None:
    """Every step in both directions, with either side first, once, and in a long run four times.

    Now and then the next process is killed too, while it recovers.
    """
    count = ROUNDS if spread == 1 else len(ALL_CASES)
    for step, direction, first in itertools.islice(cases(rng), count):
        status, said = kill_at(bank, step, direction, first)
        assert status == -signal.SIGKILL, f"{step} was not reached: {said}"
        if rng.random() < 0.25:
            bank.run("--recover-only", "--die-at", rng.choice(RECOVERY_STEPS))
        done = step in STEPS and STEPS.index(step) >= COMMITTED_FROM
        assert bank.look() == done, f"killed at {step!r}, {direction}, {first} first"


def killing_at_any_moment(bank: Bank, count: int, rng: random.Random) -> None:
    """Kill a process that transfers on and on, at random moments, and look."""
    for n in range(count):
        with bank.start("--forever", "--first", rng.choice(["queue", "table"])) as process:
            assert process.stdout is not None
            assert process.stdout.readline(), "the process ended before its first transfer"
            time.sleep(rng.random() * 0.3)
            process.kill()
            acknowledged = 1 + process.stdout.read().count("\n")
        new = bank.look()
        assert acknowledged <= new <= acknowledged + 1, f"kill {n}"


@pytest.mark.cases(3)
@pytest.mark.promise(1)
@pytest.mark.promise(2)
def test_promise_1_2_a_coordinator_killed_at_any_moment(bank: Bank, rng: random.Random) -> None:
    """Between the steps too; and every transfer that was acknowledged has been made."""
    killing_at_any_moment(bank, 3, rng)


@pytest.mark.promise(1)
@pytest.mark.promise(2)
@pytest.mark.long
def test_promise_1_2_fifty_kills_at_any_moment(bank: Bank, rng: random.Random) -> None:
    """The same for longer."""
    killing_at_any_moment(bank, 50, rng)


def with_a_dying_session(
    bank: Bank, cluster: Cluster, steps: list[str], rng: random.Random
) -> None:
    """PostgreSQL's server process dies at a step, as in a crash, and all of PostgreSQL recovers."""
    for step in steps:
        direction, first = rng.choice(DIRECTIONS), rng.choice(["queue", "table"])
        crashes = cluster.log().count(CRASHED)
        status, said = kill_at(bank, step, direction, first, "--victim", "session")
        assert status in (0, 1), said
        wait_for_crash(cluster, crashes + 1, step)
        assert bank.look() >= (status == 0), said
        assert cluster.log().count(CRASHED) == crashes + 1


def wait_for_crash(cluster: Cluster, number: int, step: str) -> None:
    """Return when PostgreSQL has noticed it: until then it takes connections, which it cuts."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while cluster.log().count(CRASHED) < number:
        assert time.monotonic() < deadline, f"{step} was not reached"
        time.sleep(0.02)


def test_a_postgresql_that_crashes_at_a_step(
    bank: Bank, cluster: Cluster, rng: random.Random
) -> None:
    """The coordinator fails, or had PostgreSQL's answer already; then both sides agree."""
    with_a_dying_session(
        bank, cluster, [rng.choice(["table changed", "table prepared", "decided"])], rng
    )


@pytest.mark.long
def test_a_postgresql_that_crashes_at_every_step(
    bank: Bank, cluster: Cluster, rng: random.Random
) -> None:
    """The same at each of them."""
    with_a_dying_session(bank, cluster, list(STEPS), rng)


def with_a_dying_owner(bank: Bank, steps: list[str], rng: random.Random) -> None:
    """The store is owned by another process, which dies at a step."""
    for step in steps:
        direction, first = rng.choice(DIRECTIONS), rng.choice(["queue", "table"])
        owner = subprocess.Popen([sys.executable, "-m", "quire", "serve", bank.path], cwd=ROOT)
        try:
            wait_for_owner(bank.path, owner)
            status, said = kill_at(bank, step, direction, first, "--victim", "owner")
            assert status in (0, 1), said
            assert owner.wait(PATIENCE_SECONDS) == -signal.SIGKILL, f"{step} was not reached"
        finally:
            owner.kill()
            owner.wait()
        assert bank.look() >= (status == 0), said


def wait_for_owner(path: str, owner: subprocess.Popen[bytes]) -> None:
    """Return when the store can be joined."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        assert owner.poll() is None, "the owner ended"
        address = read_address(OsEnv(), path)
        if address is not None and address.process_id == owner.pid:
            return
        time.sleep(0.02)
    pytest.fail("the owner cannot be joined")


def test_a_store_s_owner_that_dies_at_a_step(bank: Bank, rng: random.Random) -> None:
    """The coordinator fails, or had the owner's answer already; then both sides agree."""
    with_a_dying_owner(bank, ["queue prepared", rng.choice(STEPS)], rng)


@pytest.mark.long
def test_a_store_s_owner_that_dies_at_every_step(bank: Bank, rng: random.Random) -> None:
    """The same at each of them."""
    with_a_dying_owner(bank, list(STEPS), rng)


# Canaries ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("coordinator", ["hasty", "forgetful"])
@pytest.mark.parametrize("first", ["queue", "table"])
def test_a_coordinator_that_commits_too_early_is_caught(
    bank: Bank, coordinator: str, first: str, rng: random.Random
) -> None:
    """One commits a side before the other has prepared, one before its decision is written."""
    step = f"{first} committed"
    status, said = kill_at(bank, step, rng.choice(DIRECTIONS), first, "--coordinator", coordinator)
    assert status == -signal.SIGKILL, said
    with pytest.raises(Violation, match="only one side"):
        bank.look()


@pytest.mark.cases(12)
@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE account SET amount = amount + 1", "do not follow"),
        ("DELETE FROM transfer", "only one side"),
        ("INSERT INTO transfer VALUES ('x', 1)", "only one side"),
        ("BEGIN; DELETE FROM account; PREPARE TRANSACTION 'x'", "still in doubt"),
    ],
)
def test_books_that_do_not_agree_are_caught(
    bank: Bank, cluster: Cluster, statement: str, message: str
) -> None:
    """Whatever is wrong, the check finds it."""
    assert bank.run()[0] == 0
    assert bank.look() == 1
    with cluster.connect(autocommit=True) as connection:
        connection.execute(statement)
        with pytest.raises(Violation, match=message):
            bank.look()
        for xid in connection.tpc_recover():
            connection.tpc_rollback(xid)
