"""A simulator of turns: an archived store's owner, its shipper and one left over, bases, clean-up.

One schedule is one seeded interleaving. Each of these works in a thread of its own, of which one
runs at a time: it hands its turn back at every request to the archive, and the seed says who is
next, what the owner does meanwhile (commits of all kinds, checkpoints, crashes, its end), and which
requests fail, lose their answer or arrive late. Invariants, by their numbers in the design:

4. All that a base names is there, and all that an entry above the boundary does.
5. No entry is deleted but one that is in merged ones, or that a shipped record calls gone.
7. No page, file or segment that a record names which is not shipped is used again, also after a
   crash: else the shipper finds other bytes there.

At the end, with no more faults, all is shipped: the records, or a restore, give the state that the
store has.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any, Final

from quire.archive import backup, base_making, base_restoring, format, restore
from quire.archive.base_keeping import ArchiveCleaning, noted_place
from quire.archive.boundaries import newest_boundary
from quire.archive.entry_reading import ShippedRecord, heads, named, opened, records, records_of
from quire.archive.limits import MERGED_SECONDS
from quire.archive.manifest import manifests
from quire.archive.object_reading import ObjectReading
from quire.archive.objects import ObjectBytes, ObjectInfo
from quire.archive.objects.retries import RetriedObjects
from quire.archive.shipper import Shipper
from quire.engine import EmbeddedStore as Store
from quire.errors import (
    ArchiveFailed,
    PositionLost,
    QuireError,
    StoreClosed,
    StoreFailed,
)
from quire.testing import SimEnv
from tests.archive.shipping_kit import folded_hash, journal_records
from tests.engine.workload import open_store
from tests.kit.faulty_objects import FaultyObjects
from tests.kit.memory_objects import MemoryObjects

PATH: Final = "/disk/store"
URL: Final = "/archive"
QUEUES: Final = ("work", "other")
OPTIONS: Final[dict[str, Any]] = {"segment_bytes": 64 << 10, "checkpoint_bytes": 1 << 40}


class Killed(BaseException):
    """The end of a process that has a turn."""


class Actor:
    """A process that takes turns, in a thread of its own."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self.name = name
        self.is_over = False
        self.is_killed = False
        self.error: BaseException | None = None
        self._work = work
        self._go = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._go.acquire()
        try:
            if not self.is_killed:
                self._work()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - it is raised where turns are given
            if not self.is_killed:
                self.error = error
        self.is_over = True
        self._back.release()

    def turn(self) -> None:
        """Let it work until its next request. Raises what ended it."""
        if not self.is_over:
            self._go.release()
            self._back.acquire()
            if self.error is not None:
                raise self.error

    def kill(self) -> None:
        """End it."""
        self.is_killed = True
        while not self.is_over:
            self.turn()

    def wait(self) -> None:
        """Hand the turn back, in its own thread, until the next one."""
        if self.is_killed:
            raise Killed
        self._back.release()
        self._go.acquire()
        if self.is_killed:
            raise Killed


class TurnObjects:
    """Objects at each request of which the turn is handed back."""

    def __init__(self, objects: Any, world: World) -> None:
        self.url = objects.url
        self._objects = objects
        self._world = world

    def create(self, name: str, data: ObjectBytes) -> bool:
        is_made: bool = self._call(lambda: self._objects.create(name, data))
        return is_made

    def upload(self, name: str, pieces: Iterable[ObjectBytes]) -> None:
        self._call(lambda: self._objects.upload(name, pieces))

    def overwrite(self, name: str, data: ObjectBytes) -> None:
        self._call(lambda: self._objects.overwrite(name, data))

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        found: bytes = self._call(lambda: self._objects.read(name, offset, length))
        return found

    def size(self, name: str) -> int:
        found: int = self._call(lambda: self._objects.size(name))
        return found

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        yield from self._call(lambda: list(self._objects.list(prefix)))

    def delete(self, names: Iterable[str]) -> None:
        some = list(names)
        self._call(lambda: self._objects.delete(some))

    def close(self) -> None:
        """Do nothing: the next one uses them."""

    def _call(self, request: Callable[[], Any]) -> Any:
        self._world.wait()
        return request()


class CheckedObjects(MemoryObjects):
    """The archive itself, which checks what is deleted (invariant 5)."""

    url = URL
    boundary = 0  # the highest one that a shipped record has

    def create(self, name: str, data: ObjectBytes) -> bool:
        is_made = super().create(name, data)
        if is_made and name.startswith(format.LOG):
            entry, read = opened(bytes(data), name), ObjectReading(self, None)
            for record in records_of(entry, read, attachments=False):
                self.boundary = max(self.boundary, noted_place(record))
        return is_made

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self.contents:
                self._check(name)
                del self.contents[name]

    def _check(self, name: str) -> None:
        place = 0  # what is no entry is checked at the end (invariant 4)
        if name.startswith(format.MERGED):
            _, place = format.places_of(name)
        elif name.startswith(format.LOG):
            place = format.place_of(name)
            merged = [format.places_of(n) for n in self.contents if n.startswith(format.MERGED)]
            if any(first <= place <= last for first, last in merged):
                return
        assert place <= self.boundary, f"{name} is deleted, and no shipped record calls it gone"


@cache
def template() -> tuple[SimEnv, list[bytes]]:
    """A machine with a store that has an archive, and the records before it had; to be copied."""
    env = SimEnv(7)
    env.make_directory("/disk")
    env.sync_directory("/")
    store = open_store(env, PATH, **OPTIONS)
    for name in QUEUES:
        store.create_queue(name)
    store.admin.set_archive(URL)
    store.admin.checkpoint()  # from which on the position is known
    found = journal_records(env, store)
    store.close()
    return env, found


class World:
    """One schedule: a machine with a store's owner, others beside it, and an archive elsewhere."""

    def __init__(self, seed: int, *, turns: int = 60, share: float = 0.06) -> None:
        self.rng = random.Random(f"turns {seed}")
        self.seed = seed
        self.turns = turns
        self.done: Counter[str] = Counter()
        self.deaths = self.rng.choice([0, 0, 1])  # weight of what ends the owner
        self.gap_weight = self.rng.choice([0, 0, 0, 1])  # of letting go of what is not shipped
        self.second_weight = self.rng.choice([0, 0, 0, 1])
        self.care = self.rng.choice([0.02, 0.1, 0.3])  # how often a base or a clean-up is begun
        machine, self.first_records = template()
        self.env = machine.kill()
        self.elsewhere = SimEnv(seed)
        self.archive = CheckedObjects(self.elsewhere)
        self.faulty = FaultyObjects(self.archive, self.elsewhere, seed, share=share, late=True)
        self.actors: list[Actor] = []
        self.shippers: list[Shipper] = []
        self.running: Actor | None = None
        self.prepared: list[str] = []
        self.number = 0
        self.store = self.open()

    # The machine

    def open(self) -> Store:
        """The store's next owner, with a shipper and a base maker beside it."""
        self.store = store = open_store(self.env, PATH, **OPTIONS)
        self.prepared = [each.xid for each in store.prepared.list()]
        self.spawn("shipper", lambda: self.ship(store))
        return store

    def crash(self) -> None:
        """The power fails; everything on this machine ends, and requests may still arrive."""
        self.done["crash"] += 1
        self.end_actors()
        self.env = self.env.crash(seed=self.rng.randrange(1 << 30))
        self.open()

    def die(self) -> None:
        """The owner's process ends; its shipper goes on until it notices."""
        self.done["die"] += 1
        assert self.store._give_up()
        self.open()

    def reopen(self) -> None:
        """The store is closed and opened again."""
        self.done["reopen"] += 1
        self.store.close()
        self.open()

    def end_actors(self) -> None:
        for actor in self.actors:
            self.running = actor
            actor.kill()
        self.actors.clear()
        self.shippers.clear()
        self.running = None

    # Those beside the owner

    def spawn(self, name: str, work: Callable[[], None]) -> None:
        self.actors.append(Actor(name, work))

    def wait(self) -> None:
        """Hand the turn back, if it is an actor's."""
        if self.running is not None:
            self.running.wait()

    def turn(self, actor: Actor) -> None:
        self.running = actor
        try:
            actor.turn()
        finally:
            self.running = None
        if actor.is_over and actor in self.actors:
            self.actors.remove(actor)

    def objects(self) -> RetriedObjects:
        return RetriedObjects(TurnObjects(self.faulty, self), self.elsewhere)

    def ship(self, store: Store) -> None:
        """What a shipper's process does until its owner is gone."""
        shipper = Shipper(store, self.objects(), self.env)
        self.shippers.append(shipper)
        with suppress(StoreClosed, StoreFailed):
            while True:
                shipper.step()
                self.check_error(shipper, is_left=store is not self.store)
                self.wait()

    def check_error(self, shipper: Shipper, *, is_left: bool) -> None:
        """[7] A shipper may fail to reach the archive; nothing of the store is ever missing.

        But for one that is left over, or is slower than another one, which has shipped it and let
        go of it.
        """
        state, position = shipper.state, shipper._shipping
        if state is not None and position is not None:
            is_left = is_left or state.lsn > position.lsn
        error = shipper.error
        if error:
            self.done["error"] += 1
            assert is_left or error.startswith(URL), error
            assert "give this store" not in error, error

    def is_at_work(self, *names: str) -> bool:
        return any(actor.name in names for actor in self.actors)

    def begin_care(self) -> None:
        """A base is begun, or a clean-up; one may be under way while the other is."""
        has_base = any(name.endswith(format.MANIFEST) for name in self.archive.contents)
        if has_base and self.rng.random() < 0.5:
            if not self.is_at_work("clean-up"):
                self.clean_up()
        elif not self.is_at_work("base"):
            self.make_base()

    def ship_beside(self) -> None:
        """Another shipper of the same owner, as a program has that ships at once."""
        if not self.is_at_work("second shipper"):
            store = self.store
            self.spawn("second shipper", lambda: self.ship(store))

    def make_base(self) -> None:
        """What a base maker does: one base, unless its owner ends."""
        store, objects = self.store, self.objects()

        def work() -> None:
            vars(base_making)["open_objects"] = lambda url, env: objects
            try:
                backup(store, URL, env=self.env)
                self.done["base"] += 1
            except (StoreClosed, StoreFailed, PositionLost, ArchiveFailed):
                self.done["no base"] += 1

        self.spawn("base", work)

    def clean_up(self) -> None:
        """What a clean-up does: once, unless its owner ends."""
        store, objects = self.store, self.objects()
        age = self.rng.choice([0.0, 0.0, 1000.0])

        def work() -> None:
            read = ObjectReading(objects, None)
            try:
                cleaning = ArchiveCleaning(objects, read, self.env, age, store)
                while not cleaning.step():
                    self.wait()
                self.done["clean-up"] += 1
                self.done["boundary"] += bool(cleaning.boundary_place)
            except (StoreClosed, StoreFailed, ArchiveFailed):
                self.done["no clean-up"] += 1

        self.spawn("clean-up", work)

    # The owner

    def act(self) -> None:
        """The owner does something."""
        weights: dict[Callable[[], None], int] = {
            self.put: 10,
            self.get: 10,
            self.put_large: 3,
            self.prepare: 1,
            self.decide: 2,
            self.recreate: 1,
            self.checkpoint: 5,
            self.crash: self.deaths,
            self.die: self.deaths,
            self.reopen: self.deaths,
            self.let_go: self.gap_weight,
            self.ship_beside: self.second_weight,
        }
        [action] = self.rng.choices(list(weights), list(weights.values()))
        action()

    def payloads(self, count: int) -> list[bytes]:
        size = self.rng.choice([10, 300, 3000])
        self.number += 1
        return [b"%d " % self.number * (size // 3)] * count

    def put(self) -> None:
        with self.store.transaction() as txn:
            txn.put_many(self.rng.choice(QUEUES), self.payloads(self.rng.choice([1, 3, 6])))

    def put_large(self) -> None:
        with self.store.transaction(large=True) as txn:
            txn.put_many(self.rng.choice(QUEUES), [bytes(200)] * 100)

    def get(self) -> None:
        with self.store.transaction() as txn:
            txn.get_many(self.rng.choice(QUEUES), self.rng.choice([1, 5, 100]))

    def prepare(self) -> None:
        if len(self.prepared) < 2:
            self.number += 1
            txn = self.store.transaction()
            txn.put_many("work", self.payloads(2))
            txn.get("other")
            txn.prepare(f"x{self.number}")
            self.prepared.append(f"x{self.number}")

    def decide(self) -> None:
        if self.prepared:
            xid = self.prepared.pop(self.rng.randrange(len(self.prepared)))
            if self.rng.random() < 0.5:
                self.store.prepared.commit(xid)
            else:
                self.store.prepared.rollback(xid)

    def recreate(self) -> None:
        """A queue is dropped with all that it has, and made anew."""
        with suppress(QuireError):
            self.store.drop_queue("other")
        with suppress(QuireError):
            self.store.create_queue("other")

    def checkpoint(self) -> None:
        self.store.admin.checkpoint()

    def let_go(self) -> None:
        """More waits than the archive's limit allows: the archive has a gap."""
        self.store._checkpointer.run(lets_go=True)
        self.done["gap"] += 1

    # A schedule

    def run(self) -> None:
        """Run the schedule; an AssertionError is what it finds."""
        try:
            for _ in range(self.turns):
                chance = self.rng.random()
                if chance < self.care:
                    self.begin_care()
                elif chance < self.care + 0.03 and not self.is_at_work("base", "clean-up"):
                    self.env.advance(MERGED_SECONDS)  # longer than a lease
                    self.elsewhere.advance(MERGED_SECONDS)
                elif chance < self.care + 0.3 or not self.actors:
                    self.act()
                else:
                    actor = self.rng.choice(self.actors)
                    for _ in range(self.rng.choice([1, 1, 2, 5, 20])):
                        self.turn(actor)
            self.finish()
        finally:
            self.end_actors()

    def finish(self) -> None:
        """Without faults from now on, all is shipped, and read back."""
        self.faulty.share = 0.0
        while self.is_at_work("base", "clean-up") and self.rng.random() < 0.999:
            self.turn(self.rng.choice(self.actors))
        if self.rng.random() < 0.3:
            self.crash()
        self.faulty.land()
        self.end_actors()
        shipper = Shipper(self.store, self.objects(), self.env)
        for _ in range(1000):
            pause = shipper.step()
            assert not shipper.error, shipper.error
            if pause:
                break
        self.check()
        self.store.close()

    def check(self) -> None:
        """[4] All that is named is there, and the records give the store's state."""
        read = ObjectReading(self.archive, None)
        boundary = newest_boundary(self.archive).boundary.place
        found = heads(self.archive, read)
        for name in named(self.archive, read, [h for h in found if h.place > boundary]):
            assert name in self.archive.contents, f"{name} is named by an entry, and missing"
        bases = manifests(self.archive)
        for each in bases:
            assert each.manifest is not None, each.info.damage
            for stored in each.manifest.objects():
                assert stored.name in self.archive.contents, f"{stored.name} of a base is missing"
        report = self.store.admin.verify()
        assert report.ok, report.findings
        number, state_hash = report.checked["number"], report.checked["state_hash"]
        is_whole = not self.done["gap"]
        last = found[-1].last_number if found else len(self.first_records)
        assert last == number or not is_whole
        if is_whole and not boundary:
            before = [ShippedRecord(0, 0, record, b"") for record in self.first_records]
            every = list(records(read, found))
            assert [record.number for record in every] == [*range(len(before) + 1, number + 1)]
            assert folded_hash([*before, *every]) == state_hash
            self.done["records"] += len(every)
        if not is_whole:  # until there is a base behind the gap
            vars(base_making)["open_objects"] = lambda url, env: self.archive
            backup(self.store, URL, env=self.env)
            bases = manifests(self.archive)
        if bases and (boundary or not is_whole or self.rng.random() < 0.3):
            self.restore(number, state_hash)
        self.done["entries"] += found[-1].place if found else 0
        self.done["merged"] += sum(name.startswith(format.MERGED) for name in self.archive.contents)

    def restore(self, number: int, state_hash: str) -> None:
        """A restore on another machine gives the state that the store has."""
        vars(base_restoring)["open_objects"] = lambda url, env: self.archive
        restored = restore(URL, "/restored", env=SimEnv(self.seed))
        assert (restored.number, restored.state_hash) == (number, state_hash)
        self.done["restore"] += 1


def run_schedules(seed: int, count: int) -> Counter[str]:
    """Run schedules, from a seed on; what was done in all. Raises AssertionError with the seed."""
    done: Counter[str] = Counter()
    for number in range(seed, seed + count):
        world = World(number)
        try:
            world.run()
        except BaseException as error:
            error.add_note(f"schedule {number}: repeat it with --first {number} --count 1")
            raise
        done.update(world.done)
        done["schedules"] += 1
        done.update(world.faulty.faults)
    return done


def main() -> int:
    """Run schedules for long, and say how many there were."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=1, help="the seed of the first schedule")
    parser.add_argument("--count", type=int, default=50_000, help="how many schedules")
    options = parser.parse_args()
    done, step = Counter[str](), 100
    for first in range(options.first, options.first + options.count, step):
        done += run_schedules(first, min(step, options.first + options.count - first))
        if done["schedules"] % 1000 < step:
            print(f"{done['schedules']} schedules", flush=True)
    print(", ".join(f"{name} {count}" for name, count in sorted(done.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
