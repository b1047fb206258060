"""Scripts of parts: each part works on queues of its own, by turns that the seed draws.

A part has a plain model of what was acknowledged to it, and judges its queues alone; between its
steps the others make theirs, checkpoints are made, and the store is opened anew.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from random import Random
from typing import Any, NamedTuple

import pytest

from quire.engine import EmbeddedStore as Store
from quire.errors import DiskFull, QueueDisabled, QuireError, StoreFailed
from quire.ltds import list_ids
from quire.testing import SimEnv
from tests.engine.crashing.drawn import refuses
from tests.engine.workload import ALL, PATH, new_machine, open_store
from tests.kit.crashes import CellRun
from tests.kit.messages import put_until_full

FILLER = "filler"


class Site:
    """A machine, and the store that is open on it."""

    def __init__(self, env: SimEnv) -> None:
        self.env = env
        self.store = open_store(env)
        self.kept: dict[str, Any] = {}  # of this opening

    def reopen(self) -> None:
        """Close the store, and open it."""
        self.store.close()
        self.store = open_store(self.env)
        self.kept.clear()

    def maintain(self) -> None:
        """Do the work of maintenance, as no thread does."""
        self.store._maintenance.step()

    def numbers(self, source: str, digits: int | None = None) -> list[int]:
        """Return the payloads of a source as numbers, each by its first digits."""
        payloads = self.store.browse(source, max_messages=ALL).payloads()
        return [int(payload[:digits]) for payload in payloads]


class Step(NamedTuple):
    """An operation of a part. `whole`: a full disk refuses all of it or nothing.

    `goes_on`: the next step is of the same part, as nobody else can work in between.
    `refusals`: the errors of a full disk.
    """

    name: str
    act: Callable[[], object]
    whole: bool = True
    goes_on: bool = False
    refusals: tuple[type[QuireError], ...] = (DiskFull,)


class Part:
    """A part of a script: a model, whose attributes can be copied."""

    def make(self, store: Store) -> None:
        """Make what is there before the first fault."""

    def steps(self, site: Site) -> list[Step]:
        """Return the operations, each of which notes what was acknowledged."""
        raise NotImplementedError

    def reopened(self) -> None:
        """The store was closed and opened."""

    def check(self, site: Site) -> None:
        """Raise AssertionError if its queues have not what they should; use them up."""
        raise NotImplementedError


Parts = list[Part]


class Script:
    """A crash workload of parts."""

    def __init__(
        self,
        seed: int,
        parts: Sequence[Callable[[], Part]],
        *,
        full: float = 0.0,
        base: SimEnv | None = None,
    ) -> None:
        self.operation = ""
        self._seed = seed
        self._parts = parts
        self._full = full  # how often the disk is full at a step
        self._base = self._made() if base is None else base
        self._site: Site | None = None

    def _made(self) -> SimEnv:
        env = new_machine(self._seed)
        with open_store(env) as store:
            store.create_queue(FILLER, kind="work")
            for part in self.new_oracle():
                part.make(store)
        return env

    def new_machine(self) -> SimEnv:
        return self._base.kill()

    def new_oracle(self) -> Parts:
        return [new() for new in self._parts]

    def run(self, env: SimEnv, oracle: Parts) -> None:
        """One step after another, of one part after another, as the seed draws them."""
        self.operation = "open"
        site = self._site = Site(env)
        rng = Random(f"script {self._seed}")
        left = {number: part.steps(site) for number, part in enumerate(oracle)}
        number = -1
        goes_on = False
        while left:
            if not goes_on:
                self._between(rng, site, oracle)
                number = rng.choice(sorted(left))
            step = left[number].pop(0)
            goes_on = step.goes_on
            self._do(rng, site, step, type(oracle[number]).__name__)
            if not left[number]:
                del left[number]
        self.operation = "close"
        site.store.close()

    def _between(self, rng: Random, site: Site, oracle: Parts) -> None:
        chance = rng.random()
        if chance < 0.08:
            self.operation = "checkpoint"
            site.store.admin.checkpoint()
        elif chance < 0.12:
            self.operation = "reopen"
            site.reopen()
            for part in oracle:
                part.reopened()
        elif chance < 0.16:
            self.operation = "maintain"
            site.maintain()

    def _do(self, rng: Random, site: Site, step: Step, part: str) -> None:
        if step.whole and rng.random() < self._full:
            self.operation = f"{part}: fill the disk"
            fill(site)
            self.operation = f"{part}: {step.name}, on a full disk"
            try:
                step.act()
            except step.refusals:
                pass
            else:
                return
            finally:
                site.env.capacity_bytes = None
        self.operation = f"{part}: {step.name}"
        step.act()

    def resume(self, env: SimEnv, oracle: Parts) -> None:
        """Open the store that has failed, work beside the parts, and close it."""
        self.operation = "open after an error"
        site = Site(env)
        self.operation = "go on after an error"
        takes_puts = site.store.admin.switch()["puts"]
        for size in (10, 9000):
            if takes_puts:
                site.store.put(FILLER, bytes(size))
        site.store.admin.checkpoint()
        site.store.create_queue("resumed")
        site.store.close()

    def recover(self, env: SimEnv, oracle: Parts) -> None:
        """Twice: what the first opening shows, the second one shows."""
        self.operation = "recover"
        shown = []
        for _ in range(2):
            site = Site(env)
            state_of(site.store)
            shown.append(shown_by(site.store))
            site.store.close()
        assert shown[0] == shown[1]

    def check(self, env: SimEnv, oracle: Parts, seed: int) -> None:
        """Recover, twice; have each part look; lose the power again."""
        first = Site(env)
        told = state_of(first.store)
        site = Site(env.kill())
        first.store.abandon("its process was killed")
        assert state_of(site.store) == told
        site.env.capacity_bytes = None
        for part in oracle:
            try:
                part.check(site)
            except Exception as error:
                error.add_note(f"of the part {type(part).__name__}: {vars(part)}")
                raise
        store = site.store
        store._opened.places.sweep()
        files = store.status()["large_transactions"]["files"]
        assert len(list_ids(site.env, f"{PATH}/ltds")) == files
        left = shown_by(store)
        again = Site(site.env.crash(outcome="lost"))
        store.abandon("its machine lost its power")
        state_of(again.store)
        assert shown_by(again.store) == left
        again.store.close()

    def check_failed(self, env: SimEnv, oracle: Parts) -> bool:
        site = self._site
        if site is None or site.env is not env or not refuses(site.store):
            return False
        store = site.store
        for change in (
            lambda: store.create_queue("refused", kind="topic"),
            store.admin.checkpoint,
        ):
            with pytest.raises(StoreFailed):
                change()
        with pytest.raises(StoreFailed if store.admin.switch()["puts"] else QueueDisabled):
            store.put(FILLER, b"refused")
        for info in store.queues():
            store.browse(info.name)
        return True

    def on_full_disk(self, seed: int) -> Script:
        return Script(seed, self._parts, full=0.3)

    def key(self, oracle: Parts) -> Hashable:
        return repr([vars(part) for part in oracle])


def try_parts(seed: int, *parts: Callable[[], Part]) -> None:
    """Try every point of the power failures of these alone: a broken engine must not pass."""
    CellRun(Script(seed, parts), seed, None).power()


def fill(site: Site) -> None:
    """Leave no room for a record, however small."""
    site.env.capacity_bytes = site.env.used_bytes()
    for size in (3000, 1):
        with pytest.raises(DiskFull):
            put_until_full(site.store, FILLER, size)


def state_of(store: Store) -> tuple[int, str]:
    """Return the number and the hash of the state of a store that finds no fault with itself."""
    report = store.admin.verify()
    assert report.ok, report.findings
    return report.checked["number"], report.checked["state_hash"]


def shown_by(store: Store) -> tuple[Any, ...]:
    """Return what persistent queues hold, and what is prepared."""
    queues = [
        (info.name, info.end_position, info.messages)
        for info in store.queues()
        if info.type == "persistent"
    ]
    return queues, [info.xid for info in store.prepared.list()]
