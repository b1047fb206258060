"""Limits among processes: an owner and those that have joined it, over the owner's death.

Each worker notes in one file what it got, by the clock that all processes of a machine share:

- when it asked and when it had the message: it was started in between;
- when it began to commit: until then it was in flight.

So what these notes prove to be too many is too many, however slow the machine is. What was open as
the owner was killed was in flight until then, and is started again by the next owner: whoever
handles it learns that from its next call only.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kit.children import Child, child
from tests.kit.waiting import eventually

MAIL = {"max_in_flight": 3, "rate": 20}
JOBS = {"max_in_flight": 5, "group_max_in_flight": 2, "group_rate": 8}
WORK = {"mail": 2000, "a": 1000, "b": 500, "c": 500}

WORKER = """
import os, random, sys, time
import quire
path, notes, stop, count = sys.argv[1], sys.argv[2], sys.argv[3], eval(sys.argv[4])
out = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
store = quire.open(path)
if count is not None:
    store.create_queue("mail", **count["limits"][0])
    store.create_queue("jobs", grouped=True, **count["limits"][1])
    with store.transaction() as txn:
        for key, number in count["work"].items():
            for _ in range(number):
                if key == "mail":
                    txn.put("mail", b"")
                else:
                    txn.put("jobs", b"", group_key=key)
print(store.role, flush=True)

def note(*words):
    os.write(out, (" ".join(map(str, words)) + "\\n").encode())

def work(queue):
    with store.transaction() as txn:
        asked = time.monotonic()
        found = txn.get(queue)
        got = time.monotonic()
        if found is not None:
            note("got", os.getpid(), asked, got, found.group_key or "mail")
            time.sleep(random.uniform(0, 0.04))
            note("end", os.getpid(), time.monotonic())
    return found is not None

was_owner = False
while not os.path.exists(stop):
    if store.role == "owner" and not was_owner:
        was_owner = True
        note("owner", os.getpid())
    try:
        if not (work("mail") | work("jobs")):
            time.sleep(0.01)
    except quire.QuireError:
        note("lost", os.getpid())
store.close()
"""


class Handled(NamedTuple):
    """One message, as its worker saw it."""

    key: str
    asked: float
    got: float
    until: float  # it was in flight at least so long


def notes_of(text: str, kills: dict[int, float]) -> Iterator[Handled]:
    """What was noted. `kills`: of owners, by their process: what was open then ended then."""
    by_process: dict[str, list[list[str]]] = defaultdict(list)
    for line in text.splitlines():
        kind, process, *rest = line.split()
        by_process[process].append([kind, *rest])
    for rows in by_process.values():
        for index, (kind, *rest) in enumerate(rows):
            if kind != "got":
                continue
            asked, got = map(float, rest[:2])
            is_over = index + 1 < len(rows) and rows[index + 1][0] == "end"
            until = float(rows[index + 1][1]) if is_over else got
            after = [at for at in kills.values() if asked < at]
            yield Handled(rest[2], asked, got, min([until, *after]))


def most_in_flight(handled: list[Handled]) -> int:
    """At any moment."""
    changes = [(one.got, 1) for one in handled if one.got < one.until]
    changes += [(one.until, -1) for one in handled if one.got < one.until]
    flying = most = 0
    for _, change in sorted(changes):
        flying += change
        most = max(most, flying)
    return most


def most_in_a_second(handled: list[Handled]) -> int:
    """That were surely started within one."""
    rows = sorted((one.asked, one.got) for one in handled)
    return max((sum(got < begin + 1.0 for asked, got in rows if asked >= begin)
                for begin, _ in rows), default=0)  # fmt: skip


class Run:
    """Some processes that work, of which the owner is killed now and then."""

    def __init__(self, store_path: str, folder: Path, workers: int, seconds: list[float]) -> None:
        notes, stop = folder / "notes", folder / "stop"
        self.kills: dict[int, float] = {}
        begun = {"limits": [MAIL, JOBS], "work": WORK}
        with ExitStack() as ending:
            first = ending.enter_context(
                child(WORKER, store_path, str(notes), str(stop), repr(begun))
            )
            assert first.line() == "owner"
            running = {first.process.pid: first}
            for _ in range(workers):
                process = ending.enter_context(
                    child(WORKER, store_path, str(notes), str(stop), "None")
                )
                assert process.line() == "joined"
                running[process.process.pid] = process
            time.sleep(seconds[0])
            owner: Child = first
            for each in seconds[1:]:
                self.kills[owner.process.pid] = time.monotonic()
                owner.kill()
                del running[owner.process.pid]
                eventually(lambda: self._goes_on(notes))  # by another one
                time.sleep(each)
                owner = running[owner_in(notes)]
            stop.touch()
            self.ended = time.monotonic()
            for process in running.values():
                assert process.wait() == 0
        self.handled = list(notes_of(notes.read_text(), self.kills))

    def _goes_on(self, notes: Path) -> bool:
        """Whether something was started since the last kill."""
        last = max(self.kills.values())
        rows = [line.split() for line in notes.read_text().splitlines()]
        return any(row[0] == "got" and float(row[2]) > last for row in rows)

    def of(self, key: str) -> list[Handled]:
        """Messages of one group, or of all of them ("jobs"), or of the other queue."""
        return [
            one for one in self.handled if one.key == key or (key == "jobs" and one.key != "mail")
        ]

    def check(self) -> None:
        """That nothing was ever exceeded."""
        assert most_in_flight(self.of("mail")) <= MAIL["max_in_flight"]
        assert most_in_flight(self.of("jobs")) <= JOBS["max_in_flight"]
        assert most_in_a_second(self.of("mail")) <= MAIL["rate"]
        for group in "abc":
            assert most_in_flight(self.of(group)) <= JOBS["group_max_in_flight"]
            assert most_in_a_second(self.of(group)) <= JOBS["group_rate"]

    def share(self, key: str, rate: float) -> float:
        """How much of a rate was reached: from the first start of each owner to its end."""
        kills = sorted(self.kills.values())
        starts = sorted(one.got for one in self.of(key))
        started = expected = 0.0
        for begin, end in zip([0.0, *kills], [*kills, self.ended], strict=True):
            own = [at for at in starts if begin < at < end]
            if own:
                started += len(own)
                expected += rate * (end - own[0])
        return started / expected


def owner_in(notes: Path) -> int:
    """Which process has noted last that it owns the store."""
    rows = [line.split() for line in notes.read_text().splitlines()]
    return int([row[1] for row in rows if row[0] == "owner"][-1])


def test_no_limit_is_exceeded_over_the_owners_death(store_path: str, tmp_path: Path) -> None:
    """Of queues and of groups; the next owner starts no fresh burst."""
    Run(store_path, tmp_path, 3, [1.5, 1.5]).check()


@pytest.mark.long
def test_rates_are_reached_beside_that(store_path: str, tmp_path: Path) -> None:
    """0.95 of each, from the first start of an owner to its end; over three owners."""
    run = Run(store_path, tmp_path, 4, [12.0, 12.0, 12.0])
    run.check()
    shares = {"mail": run.share("mail", MAIL["rate"])}
    shares |= {group: run.share(group, JOBS["group_rate"]) for group in "abc"}
    print(shares)
    assert min(shares.values()) >= 0.95


def test_what_these_notes_prove_is_seen() -> None:
    """Too many at once, and too many in a second."""
    text = "\n".join(f"got {p} {p / 10} {p / 10 + 0.01} mail\nend {p} 3.0" for p in range(9))
    handled = list(notes_of(text, {}))
    assert most_in_flight(handled) == 9
    assert most_in_a_second(handled) == 9
    assert most_in_a_second([one._replace(got=one.got + 2.0) for one in handled]) == 0
    assert most_in_flight(list(notes_of(text, {1: 0.45}))) == 5
