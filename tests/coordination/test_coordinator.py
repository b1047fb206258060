"""The coordinator over two stores: every power failure, and every failure of a participant."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

import quire
from quire.coordination import Connection, Coordinator, Xid, connect
from quire.engine import EmbeddedStore as Store
from quire.errors import (
    AlreadyCommitted,
    CommitUnfinished,
    InvalidArgument,
    StoreFailed,
    TransactionError,
)
from quire.testing import SimEnv, enumerate_crashes
from tests.kit.messages import payloads_in

OPTIONS: dict[str, Any] = {"segment_bytes": 64 << 10, "grow_bytes": 64 << 10}
MESSAGES = 4


@contextmanager
def two_stores(env: SimEnv) -> Iterator[tuple[Store, Store]]:
    """Both stores of a simulated machine; made with a queue each."""
    env.make_directory("/disk")
    env.sync_directory("/")
    stores = [
        Store.open(f"/disk/{name}", env=env, background=False, **OPTIONS) for name in ("a", "b")
    ]
    for store in stores:
        if not store.queues():
            store.create_queue("work", kind="work")
    yield stores[0], stores[1]
    for store in stores:
        report = store.admin.verify()
        assert report.ok, report.findings
        store.close()


@pytest.fixture
def pair() -> Iterator[tuple[Store, Store]]:
    """Two open stores."""
    with two_stores(SimEnv()) as stores:
        yield stores


@pytest.fixture
def ends(pair: tuple[Store, Store]) -> dict[str, Connection]:
    """A connection to each."""
    return {"a": connect(pair[0]), "b": connect(pair[1])}


def put_both(coordinator: Coordinator, ends: dict[str, Connection], payload: bytes) -> str:
    """One transaction over both stores."""
    with coordinator.transaction() as name:
        for connection in ends.values():
            connection.put("work", payload)
    return name


# Power failures ----------------------------------------------------------------------------------


@dataclass
class Noted:
    """What was acknowledged."""

    filled: bool = False
    moved: int = 0


def move_all(env: SimEnv, noted: Noted, coordinator: type[Coordinator] = Coordinator) -> None:
    """Move messages from one store to the other, one by one."""
    with two_stores(env) as (a, b):
        with a.transaction() as transaction:
            transaction.put_many("work", [b"%d" % n for n in range(MESSAGES)])
        noted.filled = True
        ends = {"a": connect(a), "b": connect(b)}
        mover = coordinator(a, "mover", ends)
        for _ in range(MESSAGES):
            with mover.transaction():
                message = ends["a"].get("work")
                assert message is not None
                ends["b"].put("work", message.payload)
            noted.moved += 1


def open_again(env: SimEnv, noted: Noted) -> None:
    """A new process after an error: what it finds stays, and it moves one more message."""
    with two_stores(env) as (a, b):
        ends = {"a": connect(a), "b": connect(b)}
        mover = Coordinator(a, "mover", ends)
        noted.filled = noted.filled or bool(payloads_in(a, "work"))
        noted.moved = len(payloads_in(b, "work"))
        with mover.transaction():
            message = ends["a"].get("work")
            if message is not None:
                ends["b"].put("work", message.payload)
        noted.moved += message is not None


def check_moved(env: SimEnv, noted: Noted) -> None:
    """Every message is at one place; what was acknowledged has moved; and it goes on."""
    with two_stores(env) as (a, b):
        ends = {"a": connect(a), "b": connect(b)}
        mover = Coordinator(a, "mover", ends)
        assert a.prepared.list() == b.prepared.list() == []
        moved = len(payloads_in(b, "work"))
        assert noted.moved <= moved <= noted.moved + 1
        expected = [b"%d" % n for n in range(MESSAGES)]
        if noted.filled or payloads_in(a, "work"):
            assert payloads_in(b, "work") + payloads_in(a, "work") == expected
        put_both(mover, ends, b"after")
        assert payloads_in(a, "work")[-1] == payloads_in(b, "work")[-1] == b"after"


@pytest.mark.crash
@pytest.mark.cases(4, of_file=True)
@pytest.mark.promise(2, 8)
def test_promise_2_8_power_failure_at_every_call(seed: int, spread: int) -> None:
    """Whatever call of either store the power fails in, no message is lost or doubled."""
    cases = enumerate_crashes(
        move_all,
        check_moved,
        Noted,
        seed=seed,
        rounds=1,
        every=2 * spread - 1,
        resume=open_again,
    )
    assert cases > 100


@pytest.mark.crash
@pytest.mark.cases(4, of_file=True)
def test_canary_a_coordinator_that_writes_no_decision_is_caught(seed: int) -> None:
    """The check above finds the first message that is lost or doubled by it."""

    class Forgetful(Coordinator):
        def _decide(self) -> None:
            pass

    def move(env: SimEnv, noted: Noted) -> None:
        move_all(env, noted, Forgetful)

    with pytest.raises(AssertionError):
        enumerate_crashes(move, check_moved, Noted, seed=seed, rounds=1, every=2)


@pytest.mark.crash
@pytest.mark.cases(4, of_file=True)
@pytest.mark.promise(8)
def test_promise_8_power_failure_at_every_call_of_the_recovery(seed: int) -> None:
    """A recovery that is broken off is repeated by the next one, to the same end."""
    before = SimEnv(seed)
    with two_stores(before) as (a, b):
        connections = {"a": connect(a), "b": connect(b)}
        broken = Coordinator(a, "mover", {"a": connections["a"], "b": Deaf(connections["b"])})
        with pytest.raises(CommitUnfinished):
            put_both(broken, connections, b"decided")
        assert (payloads_in(a, "work"), payloads_in(b, "work")) == ([b"decided"], [])

    def recover(env: SimEnv, _: Noted) -> None:
        with two_stores(env) as (a, b):
            Coordinator(a, "mover", {"a": connect(a), "b": connect(b)})

    def check(env: SimEnv, _: Noted) -> None:
        recover(env, _)
        with two_stores(env) as (a, b):
            assert (payloads_in(a, "work"), payloads_in(b, "work")) == ([b"decided"], [b"decided"])

    assert enumerate_crashes(
        recover, check, Noted, seed=seed, rounds=1, new_env=lambda n: before.crash(seed=n)
    )


# Participants that fail --------------------------------------------------------------------------


@dataclass
class Faulty:
    """A participant one of whose calls fails."""

    connection: Connection
    fails_in: str = ""
    calls: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            self.calls.append(name)
            if name == self.fails_in:
                raise ConnectionError(f"{name} fails")
            return getattr(self.connection, name)(*arguments)

        return call


class Deaf(Faulty):
    """A participant that cannot be told what was decided."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection, "tpc_commit")


class Meanwhile(Faulty):
    """A participant after whose prepare something else happens before it returns."""

    def __init__(self, connection: Connection, happens: Callable[[], object]) -> None:
        super().__init__(connection)
        self._happens = happens

    def tpc_prepare(self) -> None:
        self.connection.tpc_prepare()
        self._happens()


@pytest.mark.parametrize("fails_in", ["xid", "tpc_begin", "tpc_prepare"])
@pytest.mark.parametrize("which", ["a", "b"])
def test_a_failure_before_the_decision_rolls_back(
    pair: tuple[Store, Store], ends: dict[str, Connection], which: str, fails_in: str
) -> None:
    """The participant's own error is raised, nothing stays, and the coordinator goes on."""
    faulty = Faulty(ends[which], fails_in)
    coordinator = Coordinator(pair[0], "c", {**ends, which: faulty})
    with pytest.raises(ConnectionError):
        put_both(coordinator, ends, b"x")
    for store in pair:
        assert (payloads_in(store, "work"), store.prepared.list()) == ([], [])
    faulty.fails_in = ""
    put_both(coordinator, ends, b"y")
    assert payloads_in(pair[0], "work") == payloads_in(pair[1], "work") == [b"y"]


def test_an_exception_in_the_block_rolls_back(
    pair: tuple[Store, Store], ends: dict[str, Connection]
) -> None:
    """An exception in the block rolls back as in every transaction."""
    coordinator = Coordinator(pair[0], "c", ends)
    with pytest.raises(TypeError, match="bytes"):
        put_both(coordinator, ends, b"x" + "text")  # type: ignore[operator]
    put_both(coordinator, ends, b"y")
    assert payloads_in(pair[0], "work") == payloads_in(pair[1], "work") == [b"y"]


@pytest.mark.parametrize("which", ["a", "b"])
def test_a_participant_that_cannot_be_told_is_told_by_the_next(
    pair: tuple[Store, Store], ends: dict[str, Connection], which: str
) -> None:
    """The others are told; nothing new begins (CO4); the next coordinator commits the rest."""
    coordinator = Coordinator(pair[0], "c", {**ends, which: Deaf(ends[which])})
    with pytest.raises(CommitUnfinished, match=which):
        put_both(coordinator, ends, b"x")
    told = {"a": pair[1], "b": pair[0]}[which]
    assert (payloads_in(told, "work"), told.prepared.list()) == ([b"x"], [])
    with pytest.raises(TransactionError, match="make a new coordinator"):
        put_both(coordinator, ends, b"y")
    fresh = {"a": connect(pair[0]), "b": connect(pair[1])}
    recovered = Coordinator(pair[0], "c", fresh).recovered
    assert [name for name, _ in recovered.committed] == [which]
    assert payloads_in(pair[0], "work") == payloads_in(pair[1], "work") == [b"x"]


def test_a_participant_that_cannot_roll_back_is_recovered(
    pair: tuple[Store, Store], ends: dict[str, Connection]
) -> None:
    """It stays prepared until the next coordinator rolls it back: nothing was decided."""
    faulty = {"a": Faulty(ends["a"], "tpc_rollback"), "b": Faulty(ends["b"], "tpc_prepare")}
    coordinator = Coordinator(pair[0], "c", faulty)
    with pytest.raises(ConnectionError):
        put_both(coordinator, ends, b"x")
    assert len(pair[0].prepared.list()) == 1
    with pytest.raises(TransactionError):
        put_both(coordinator, ends, b"y")
    fresh = {"a": connect(pair[0]), "b": connect(pair[1])}
    recovered = Coordinator(pair[0], "c", fresh).recovered
    assert [name for name, _ in recovered.rolled_back] == ["a"]
    assert (payloads_in(pair[0], "work"), pair[0].prepared.list()) == ([], [])


def test_an_unknown_outcome_of_the_decision_rolls_nothing_back() -> None:
    """The ledger's sync fails: whether it was decided is known when the store is open again."""
    env = SimEnv()
    with two_stores(env) as (a, b):
        log = Store.open("/disk/log", env=env, background=False, **OPTIONS)
        ends = {"a": connect(a), "b": connect(b)}
        breaks = Meanwhile(ends["b"], lambda: env.fail("write", "/disk/log/*"))
        coordinator = Coordinator(log, "c", {"a": ends["a"], "b": breaks})
        with pytest.raises(StoreFailed):
            put_both(coordinator, ends, b"x")
        assert len(a.prepared.list()) == len(b.prepared.list()) == 1
        log.close()
        log = Store.open("/disk/log", env=env, background=False, **OPTIONS)
        decided = log.integration.ledger("c.decided") is not None
        Coordinator(log, "c", {"a": connect(a), "b": connect(b)})
        assert payloads_in(a, "work") == payloads_in(b, "work") == ([b"x"] if decided else [])
        assert a.prepared.list() == b.prepared.list() == []
        log.close()


# Several coordinators ----------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["a", "b"])
def test_an_earlier_coordinator_decides_nothing_any_more(
    pair: tuple[Store, Store], ends: dict[str, Connection], which: str
) -> None:
    """CO3: it was slow, not dead; another starts between its prepares, or after both of them.

    What the other did not meet, because it was not prepared yet, the slow one rolls back itself.
    """
    fresh = {"a": connect(pair[0]), "b": connect(pair[1])}
    slow = Meanwhile(ends[which], lambda: Coordinator(pair[0], "c", fresh))
    coordinator = Coordinator(pair[0], "c", {**ends, which: slow})
    with pytest.raises(AlreadyCommitted):
        put_both(coordinator, ends, b"slow")
    for store in pair:
        assert (payloads_in(store, "work"), store.prepared.list()) == ([], [])


def test_a_prepare_that_comes_late_is_rolled_back(
    pair: tuple[Store, Store], ends: dict[str, Connection]
) -> None:
    """CO2: it took effect after the recovery that should have met it, and others were decided."""
    coordinator = Coordinator(pair[0], "c", ends)
    late = put_both(coordinator, ends, b"x").replace("1.1", "1.2")
    coordinator = Coordinator(pair[0], "c", ends)
    put_both(coordinator, ends, b"y")
    transaction = pair[1].transaction()
    transaction.put("work", b"late")
    transaction.prepare(str(Xid(0x71756972, late, "b")))
    recovered = Coordinator(pair[0], "c", ends).recovered
    assert recovered.rolled_back == (("b", late),)
    assert payloads_in(pair[1], "work") == [b"x", b"y"]


def test_what_is_not_its_own_is_left_alone(
    pair: tuple[Store, Store], ends: dict[str, Connection]
) -> None:
    """CO5: another format, another coordinator's name, another store, another participant."""
    mine = put_both(Coordinator(pair[0], "c", ends), ends, b"x")
    theirs = [
        "order-17",
        str(Xid(1, mine, "a")),
        str(Xid(0x71756972, mine.replace("c/", "cc/"), "a")),
        str(Xid(0x71756972, f"c/{1:016x}/1.1", "a")),
        str(Xid(0x71756972, mine, "b")),
    ]
    for xid in theirs:
        pair[0].transaction().prepare(xid)
    Coordinator(pair[0], "c", ends)
    assert sorted(info.xid for info in pair[0].prepared.list()) == sorted(theirs)


def test_the_ledger_grows_by_two_keys(
    pair: tuple[Store, Store], ends: dict[str, Connection]
) -> None:
    """CO4: whatever the number of starts and transactions."""
    for _ in range(3):
        coordinator = Coordinator(pair[0], "c", ends)
        for _ in range(3):
            put_both(coordinator, ends, b"x")
    assert pair[0].status()["ledger_entries"] == 2


@pytest.mark.parametrize("name", ["", "a" * 25, "a/b", "\u00e4", 7])
def test_names_that_do_not_fit_an_xid_are_refused(store_path: str, name: Any) -> None:
    """The longest that is accepted makes an xid that every participant takes."""
    with quire.open(store_path) as store:
        ends = {"p" * 24: connect(store)}
        with pytest.raises(InvalidArgument):
            Coordinator(store, name, ends)
        with pytest.raises(InvalidArgument):
            Coordinator(store, "c", {name: connect(store)})
        with Coordinator(store, "n" * 24, ends).transaction():
            pass
