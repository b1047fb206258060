"""Kills while messages are found by what they are, heard of, and asked for by selectors."""

from __future__ import annotations

import copy
import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import quire
from quire.env import OsEnv
from quire.remote import read_address
from tests.kit.children import Child
from tests.kit.violation import Violation
from tests.kit.waiting import eventually
from tests.remote.found_and_heard import (
    LISTENERS,
    OPTIONS,
    StoreContents,
    audit,
    create,
    look,
)

WORKERS = 3
KILLS = 6  # of a round
WORKER = "import sys; from tests.remote.found_and_heard import work; work(*sys.argv[1:])"
LISTENER = "import sys; from tests.remote.found_and_heard import hear; hear(*sys.argv[1:])"


class FindingProcesses:
    """Workers, and one that listens, each of which may be killed and begins again."""

    def __init__(self, path: str, logs: Path, seed: int) -> None:
        self._path, self._logs, self._seed = path, logs, str(seed)
        self._started = 0
        self.running: list[Child] = []

    def begin(self, place: int) -> Child:
        """The last one listens."""
        self._started += 1
        name = f"w{self._started}"
        if place == WORKERS:
            child = Child(LISTENER, self._path, str(self._logs / "told"))
        else:
            child = Child(WORKER, self._path, str(self._logs / name), name, self._seed)
        return child

    def kill(self, place: int) -> None:
        """It begins again."""
        self.check_running()
        self.running[place].kill()
        self.running[place].close()
        self.running[place] = self.begin(place)
        assert self.running[place].line() in ("owner", "joined")

    def wait_for_more(self, count: int) -> None:
        """Until so many further transactions are done."""
        until = self._done() + count

        def is_done() -> bool:
            self.check_running()
            return self._done() >= until

        eventually(is_done)

    def check_running(self) -> None:
        """Fail if a process has ended by itself: nobody would do its part."""
        ended = [
            place for place, each in enumerate(self.running) if each.process.poll() is not None
        ]
        assert not ended, f"processes at places {ended} have ended by themselves"

    def _done(self) -> int:
        return sum(path.read_text().count("\ndone ") for path in self._logs.glob("w*"))

    def owner(self) -> int | None:
        """The place of the one that owns the store, if it is one of them."""
        address = read_address(OsEnv(), self._path)
        pids = [child.process.pid for child in self.running]
        return pids.index(address.process_id) if address and address.process_id in pids else None


@contextmanager
def finding_processes(path: str, logs: Path, seed: int) -> Iterator[FindingProcesses]:
    """For the length of a block; all of them are killed at its end."""
    made = FindingProcesses(path, logs, seed)
    try:
        for place in range(WORKERS + 1):
            made.running.append(made.begin(place))
        for child in made.running:
            assert child.line() in ("owner", "joined")
        yield made
    finally:
        for child in made.running:
            child.close()


def kill_again_and_again(path: str, logs: Path, rng: random.Random) -> StoreContents:
    """One round: kills of owners and of others; what is there then, of which all was told."""
    logs.mkdir()
    create(path)
    with finding_processes(path, logs, rng.getrandbits(32)) as processes:
        for _ in range(KILLS):
            time.sleep(rng.uniform(0.05, 0.4))
            processes.wait_for_more(rng.randint(3, 20))
            owner = processes.owner() if rng.random() < 0.5 else None
            processes.kill(rng.randrange(WORKERS + 1) if owner is None else owner)
        processes.wait_for_more(20)
        processes.check_running()
    with quire.open(path, **OPTIONS) as store:
        for xid in store.prepared.list():
            store.prepared.commit(xid.xid)
        with (logs / "told").open("a") as file:  # what was not told yet, or not done with
            file.write("\n")
            for name, asked in LISTENERS.items():
                with store.listeners.add(name=name, **asked) as listener:
                    while (notice := listener.get(0)) is not None:
                        print(name, notice.missed, *notice.ids, file=file)
        found = look(store)
        report = store.admin.verify()
        assert report.ok, report.findings
    return found


@pytest.mark.promise(1)
@pytest.mark.promise(2)
@pytest.mark.promise(11)
@pytest.mark.crash
@pytest.mark.parametrize(
    "round_number", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, 20))]
)
def test_nothing_is_lost_nothing_comes_twice_and_all_is_told(
    store_path: str, tmp_path: Path, rng: random.Random, round_number: int
) -> None:
    """Reconciled by receipts: what was put, taken by id and by selectors, removed and told."""
    found = kill_again_and_again(store_path, tmp_path / "logs", rng)
    counts = audit(found, tmp_path / "logs")
    print(f"\nround {round_number}: {dict(counts)}", end="")
    assert counts["done"] >= 3 * KILLS + 20
    assert counts["told"]


@pytest.fixture(scope="module")
def reconciled(tmp_path_factory: pytest.TempPathFactory) -> tuple[StoreContents, Path]:
    """A round of its own, for the canaries."""
    path = tmp_path_factory.mktemp("reconciled")
    return kill_again_and_again(str(path / "store"), path / "logs", random.Random(1)), path / "logs"


def lose_told(found: StoreContents, logs: Path) -> None:
    """One id of an event is never told."""
    lost = str(min(found.events))
    lines = [line.split(" ") for line in (logs / "told").read_text().split("\n")]
    kept = [
        line[:2] + [each for each in line[2:] if line[0] != "events" or each != lost]
        for line in lines
    ]
    (logs / "told").write_text("\n".join(map(" ".join, kept)))


LOST: dict[str, Callable[[StoreContents, Path], object]] = {
    "an id that is told": lose_told,
    "a transaction": lambda found, _: found.receipts.pop(0),
    "an event": lambda found, _: found.events.pop(min(found.events)),
    "what a selector asks for": lambda found, _: found.unread["red"].append(min(found.events)),
    "an order": lambda found, _: found.receipts[0].take(taken_order(found)),
}


def taken_order(found: StoreContents) -> quire.Message:
    """An order that was taken, to be taken once more."""
    key, group, text = next(each for made in found.receipts for each in made.taken)
    return quire.Message(key, "orders", text.encode(), 0, group)


@pytest.mark.crash
@pytest.mark.parametrize("lost", LOST)
def test_what_is_lost_or_comes_twice_is_found(
    reconciled: tuple[StoreContents, Path], tmp_path: Path, lost: str
) -> None:
    """The canaries: the audit finds what is not as it was said."""
    found, logs = copy.deepcopy(reconciled[0]), tmp_path / "logs"
    shutil.copytree(reconciled[1], logs)
    audit(found, logs)
    LOST[lost](found, logs)
    with pytest.raises(Violation):
        audit(found, logs)
