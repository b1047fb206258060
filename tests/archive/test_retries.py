"""Requests that fail: which are repeated, for how long, and lost and late answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from quire.archive import backup, base_checking, base_making, base_restoring, restore, verify
from quire.archive.limits import (
    CREATE_TRIES,
    DELETE_BATCH,
    MAX_TRIES,
    RETRY_SECONDS,
    TRANSFER_BYTES,
)
from quire.archive.objects import ObjectBytes, Objects, create_own, probe
from quire.archive.objects.retries import RetriedObjects
from quire.engine import EmbeddedStore
from quire.errors import ArchiveFailed, ArchiveRefused
from quire.testing import SimEnv
from tests.kit.faulty_objects import DRAWS, FaultyObjects
from tests.kit.memory_objects import MemoryObjects


class OvertakenObjects(MemoryObjects):
    """Objects whose server makes a second object under a name, over the first."""

    def create(self, name: str, data: ObjectBytes) -> bool:
        self.overwrite(name, data)
        return True


class RefusingObjects(MemoryObjects):
    """Objects whose server refuses every create, though nothing is there."""

    def create(self, name: str, data: ObjectBytes) -> bool:
        return False


class Rival:
    """Somebody who makes an object, once, and adds itself to its winners then."""

    def __init__(self, objects: Objects, name: str, winners: list[bytes]) -> None:
        self._objects = objects
        self._names = iter([name])
        self._winners = winners

    def come(self, seconds: float = 0.0) -> None:
        """Make it now, unless that was done."""
        for name in self._names:
            self._winners.extend([b"there"] * self._objects.create(name, b"there"))


def faulty(
    env: SimEnv, seed: int, share: float = 0.2, most: int = MAX_TRIES - 1
) -> tuple[MemoryObjects, FaultyObjects]:
    """Objects in memory, and the same behind a bad network: no operation fails at all its tries."""
    memory = MemoryObjects(env)
    return memory, FaultyObjects(memory, env, seed, share=share, late=True, most=most)


def test_who_makes_an_object_knows_it(seed: int) -> None:
    """[AO2, RO1] Two make the same 200 objects, over a network that loses answers and is late.

    The second comes while the first pauses, if it does. Of each object one of them hears that it
    has made it, never both; the bytes are of that one, and stay so.
    """
    env, patient = SimEnv(seed), SimEnv(seed)
    memory, network = faulty(env, seed)
    here, there = RetriedObjects(network, patient), RetriedObjects(network, env)
    made: dict[str, list[bytes]] = {}
    for number in range(200):
        name = f"log/{number}"
        winners: list[bytes] = []
        rival = Rival(there, name, winners)
        patient.sleep = rival.come  # type: ignore[method-assign]
        winners.extend([b"here"] * here.create(name, b"here"))
        rival.come()
        made[name] = winners
    network.land()
    assert made == {name: [memory.read(name)] for name in made}
    assert [b"there"] in made.values()
    struck = {"409 on create", "late", "lost answer", "time-out", "short read", "slow read"}
    assert struck < set(network.faults)


def test_one_that_forgets_a_lost_answer_is_caught(seed: int) -> None:
    """A canary: a create that takes every refusal for another's has objects that nobody made."""
    env = SimEnv(seed)
    _, network = faulty(env, seed)

    def create(name: str, data: bytes) -> bool:
        while True:
            try:
                return network.create(name, data)
            except ArchiveFailed:
                env.sleep(1)

    made = Counter(
        sum(create(f"log/{number}", data) for data in (b"here", b"there")) for number in range(200)
    )
    assert made[0]


def test_own_bytes_are_success_and_foreign_ones_refusal(seed: int) -> None:
    """Whoever made it before: the same bytes may be made again and again, others never."""
    env = SimEnv(seed)
    _, network = faulty(env, seed)
    for objects in (MemoryObjects(env), RetriedObjects(network, env)):
        for number in range(50):
            for _ in range(2):
                create_own(objects, f"log/{number}", b"own")
            for foreign in (b"", b"owm", b"own and more"):
                with pytest.raises(ArchiveRefused, match=f"log/{number} .*a place of its own"):
                    create_own(objects, f"log/{number}", foreign)


def test_a_refusal_without_an_object_is_tried_again(seed: int) -> None:
    """A 409 says that others were making it: the object is made, or the error says that not."""
    env = SimEnv(seed)
    memory = MemoryObjects(env)
    busy = FaultyObjects(memory, env, seed, share=0.5)
    made = 0
    for number in range(100):
        try:
            create_own(busy, f"log/{number}", b"own")
        except ArchiveFailed:
            continue
        made += 1
        assert memory.read(f"log/{number}") == b"own"
    assert made
    assert busy.faults["409 on create"] > 10
    for objects in (RefusingObjects(env), RetriedObjects(RefusingObjects(env), env)):
        with pytest.raises(ArchiveFailed, match=r"x.* not there.* repeat"):
            create_own(objects, "x", b"own")
    assert CREATE_TRIES > 1


def test_a_server_that_is_away_is_waited_for_with_an_end(seed: int) -> None:
    """Pauses grow, are bounded, and differ by chance; the error says how often and how long."""
    env = SimEnv(seed)
    _, network = faulty(env, seed, share=1.0, most=DRAWS)
    objects = RetriedObjects(network, env)
    spent = []
    for _ in range(3):
        start = env.monotonic()
        with pytest.raises(ArchiveFailed, match=r"at try \d+, after \d+ s; look after .*repeat"):
            objects.size("x")
        spent.append(env.monotonic() - start)
    assert 5 < min(spent) < max(spent) < RETRY_SECONDS
    assert network.faults.total() == 3 * MAX_TRIES
    network.share = 0.0
    assert objects.create("x", b"back")


def test_the_same_bytes_are_no_proof() -> None:
    """[RO1] An object in the way is another's where no answer was lost, whatever it holds."""
    env = SimEnv()
    objects = RetriedObjects(MemoryObjects(env), env)
    assert [objects.create("x", b"same") for _ in range(2)] == [True, False]


def test_a_refusal_for_good_is_not_repeated() -> None:
    """No rights, no bucket: the error comes at once."""
    env = SimEnv()

    class Forbidding(MemoryObjects):
        calls = 0

        def size(self, name: str) -> int:
            self.calls += 1
            raise ArchiveFailed("no rights")

    forbidding = Forbidding(env)
    with pytest.raises(ArchiveFailed, match=r"^no rights$"):
        RetriedObjects(forbidding, env).size("x")
    assert forbidding.calls == 1


def test_pieces_are_sent_again(seed: int) -> None:
    """Few of them, or such as can be iterated again; an iterator of many is sent once."""
    env = SimEnv(seed)
    memory, network = faulty(env, seed)
    objects = RetriedObjects(network, env)
    many = [b"a" * TRANSFER_BYTES, b"b"]
    number = failed = 0
    while number < 20 or not 0 < failed < number:
        assert number < 500, failed
        objects.upload(f"few/{number}", iter([b"a", b"b"]))
        assert memory.read(f"few/{number}") == b"ab"
        objects.upload(f"many/{number}", many)
        assert memory.size(f"many/{number}") == TRANSFER_BYTES + 1
        try:
            objects.upload(f"iterator/{number}", iter(many))
        except ArchiveFailed:
            failed += 1
        else:
            assert memory.size(f"iterator/{number}") == TRANSFER_BYTES + 1
        network.land()
        memory.contents.clear()
        number += 1


def test_a_backup_over_a_bad_network_is_whole(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two backups, the second of what is new; what is restored has all of it."""
    env = SimEnv(seed)
    env.make_directory("/disk")
    env.sync_directory("/")
    _, network = faulty(env, seed, share=0.1)
    for module in (base_making, base_restoring, base_checking):
        monkeypatch.setattr(module, "open_objects", lambda url, env: RetriedObjects(network, env))
    with EmbeddedStore.open("/disk/store", env=env, background=False) as store:
        store.create_queue("q")
        for content in ([b"x" * 5000] * 300, [b"later"]):
            store.put_many("q", content)
            backup(store, "archive", env=env)
    assert verify("archive", env=env).ok
    restore("archive", "/disk/restored", env=env)
    with EmbeddedStore.open("/disk/restored", env=env, background=False) as restored:
        found = [bytes(message.payload) for message in restored.browse("q")]
    assert found == [*[b"x" * 5000] * 300, b"later"]
    assert network.faults


def test_many_are_deleted_by_some_requests(seed: int) -> None:
    """Each request has as many names as a server takes, whatever they come from."""
    env = SimEnv(seed)
    counts = []

    class Counting(MemoryObjects):
        def delete(self, names: Iterable[str]) -> None:
            some = list(names)
            counts.append(len(some))
            super().delete(some)

    memory = Counting(env)
    memory.contents = {f"log/{number}": (b"x", 0) for number in range(2500)}
    RetriedObjects(memory, env).delete(info.name for info in memory.list())
    assert (counts, memory.contents) == ([DELETE_BATCH, DELETE_BATCH, 2500 % DELETE_BATCH], {})


def test_a_probe_refuses_a_server_that_makes_an_object_twice(seed: int) -> None:
    """It leaves nothing, also over a bad network; a server that is fit passes."""
    env = SimEnv(seed)
    memory, network = faulty(env, seed, share=0.2)
    fit: tuple[Objects, ...] = (memory, RetriedObjects(network, env))
    for objects in fit:
        probe(objects, env)
        assert memory.contents == {}
    unfit = OvertakenObjects(env)
    with pytest.raises(ArchiveRefused, match="twice under one name"):
        probe(unfit, env)
    assert unfit.contents == {}
