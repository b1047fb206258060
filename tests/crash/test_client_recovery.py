"""A client's recovery, played with kill -9 of client, server, owner and all of them at every step.

Each request is executed once and each reply processed once, and whoever comes back is told right
how far each of its requests is: A, B, C or D.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import cycle, product
from pathlib import Path

import pytest

import quire
from tests.crash.client_recovery import (
    CARELESS,
    CLIENT_STEPS,
    OPTIONS,
    ROLES,
    SERVER_STEPS,
    WHOLE,
)
from tests.kit.children import Child
from tests.kit.violation import Violation

REQUESTS = 4
ROUND_SECONDS = 200
ALONE_SECONDS = 5.0
CODE = "import sys; from tests.crash import client_recovery as it; it.{}(*sys.argv[1:])"


class Round:
    """The three processes, which are begun again whenever one of them has ended."""

    def __init__(
        self, folder: Path, form: str, victim: str, step: str, times: int, how: str = WHOLE
    ) -> None:
        self._how = how
        self._folder = folder
        self._form = form
        self._plan = f"{victim}@{step}#{times}"
        self._planner = "client" if step in CLIENT_STEPS else "server"
        self._running: dict[str, Child] = {}
        self._waited_since = 0.0

    def play(self) -> Counter[str]:
        """Until the client has all replies; what it was told after it had come back."""
        with ExitStack() as ends:
            ends.callback(self._end)
            for role in ROLES:
                self._begin(role, self._plan if role == self._planner else "")
            until = time.monotonic() + ROUND_SECONDS
            while True:
                for role, child in list(self._running.items()):
                    status = child.process.poll()
                    if status == 0 and role == "client":
                        return self._looked_at()
                    if status is not None:
                        if status != -9:
                            raise Violation(f"{role} has ended with {status}: {self._plan}")
                        if role == "server" and self._waits():
                            continue
                        child.close()
                        self._begin(role, "")
                if time.monotonic() > until:
                    raise Violation(f"the round does not end: {self._plan}, {self._form}")
                time.sleep(0.02)

    def _waits(self) -> bool:
        """Whether the client, that was killed with its server, is to come back before it."""
        if not self._plan.startswith("all@") or (self._folder / "told").exists():
            return False
        self._waited_since = self._waited_since or time.monotonic()
        return time.monotonic() - self._waited_since < ALONE_SECONDS

    def _begin(self, role: str, plan: str) -> None:
        more = {"client": [self._form, str(REQUESTS)], "server": [self._how]}.get(role, [])
        child = self._running[role] = Child(CODE.format(role), str(self._folder), plan, *more)
        if role == "owner":
            child.line()  # the queues are there; empty where it was killed before

    def _end(self) -> None:
        for child in self._running.values():
            child.close()

    def _looked_at(self) -> Counter[str]:
        self._end()
        wrong = self._folder / "wrong"
        if wrong.exists():
            raise Violation(f"{self._plan}: {wrong.read_text()}")
        if not (self._folder / "killed").exists():
            raise Violation(f"nobody came to {self._plan}")
        with quire.open(str(self._folder / "store"), **OPTIONS) as store:
            wanted = [b"%d" % number for number in range(REQUESTS)]
            for name in ("executed", "processed"):
                found = sorted(message.payload for message in store.browse(name))
                if found != wanted:
                    raise Violation(f"{self._plan}: {name} are {found}")
            left = [store.queue(name).messages for name in ("asked", "quire.replies.client")]
            if any(left):
                raise Violation(f"{self._plan}: {left} messages are left")
            report = store.admin.verify()
            if not report.ok:
                raise Violation(str(report.findings))
        told = self._folder / "told"
        return Counter(told.read_text().split()) if told.exists() else Counter()


def rounds(rng: random.Random) -> Iterator[tuple[str, str, str, int]]:
    """Every step with every victim, in both forms of a client; then others."""
    steps = list(product((*CLIENT_STEPS, *SERVER_STEPS), (*ROLES, "all")))
    rng.shuffle(steps)
    forms = cycle(["joined", "asyncio"])
    for step, victim in cycle(steps):
        yield next(forms), victim, step, 1 if step == "wait" else rng.randint(1, 2)


def play(folder: Path, rng: random.Random, count: int) -> Counter[str]:
    """So many rounds; what was told."""
    told: Counter[str] = Counter()
    for number, plan in zip(range(count), rounds(rng), strict=False):
        place = folder / str(number)
        place.mkdir()
        told += Round(place, *plan).play()
    return told


@pytest.mark.crash
def test_a_few_rounds_of_recovery(tmp_path: Path, rng: random.Random) -> None:
    """The short slice of the test below, for every run."""
    play(tmp_path, rng, 3)


@pytest.mark.crash
def test_the_canary_a_careless_server_is_caught(tmp_path: Path) -> None:
    """One that executes a request and answers it in two transactions executes it twice."""
    with pytest.raises(Violation, match="executed are"):
        Round(tmp_path, "joined", "server", "got", 1, CARELESS).play()


@pytest.mark.crash
def test_what_was_begun_put_answered_and_taken_is_told(tmp_path: Path) -> None:
    """All four states are met, where the client comes back alone at the step that leaves each."""
    told: Counter[str] = Counter()
    for step in ("begun", "submitted", "take in", "taken"):
        place = tmp_path / step.replace(" ", "-")
        place.mkdir()
        told += Round(place, "joined", "all" if step == "submitted" else "client", step, 1).play()
    assert set(told) == set("ABCD"), told


@pytest.mark.crash
@pytest.mark.long
def test_fifty_rounds_of_recovery(tmp_path: Path, rng: random.Random) -> None:
    """Every state is met, and told right."""
    told = play(tmp_path, rng, 56)
    print(f"told: {dict(sorted(told.items()))}")
    assert set(told) == set("ABCD"), told
