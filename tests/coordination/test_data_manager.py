"""One `transaction.commit()` for Quire and SQLAlchemy, over SQLite and over PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import transaction
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, sessionmaker
from zope.sqlalchemy import mark_changed, register

import quire
from quire.coordination import join
from quire.errors import AlreadyCommitted, InvalidArgument, QueueFull, TransactionClosed
from tests.coordination.postgres import Cluster
from tests.kit.messages import payloads_in


@pytest.fixture
def manager() -> Iterator[transaction.TransactionManager]:
    """A transaction manager of the test's own."""
    manager = transaction.TransactionManager()
    yield manager
    manager.abort()


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[Engine]:
    """A database with one empty table."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'orders.sqlite'}"
    else:
        cluster: Cluster = request.getfixturevalue("cluster")
        url = cluster.url
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE IF EXISTS orders"))
        connection.execute(text("CREATE TABLE orders (what VARCHAR(100) PRIMARY KEY)"))
    yield engine
    engine.dispose()


@pytest.fixture
def session(engine: Engine, manager: transaction.TransactionManager) -> Session:
    """A session that takes part in the manager's transactions; two-phase where there is such."""
    factory = sessionmaker(engine, twophase=engine.dialect.name == "postgresql")
    register(factory, transaction_manager=manager)
    return factory()


def insert(session: Session, manager: transaction.TransactionManager, what: str) -> None:
    """One row."""
    session.execute(text("INSERT INTO orders VALUES (:what)"), {"what": what})
    mark_changed(session, transaction_manager=manager)


def rows(engine: Engine) -> list[str]:
    """What the database has committed."""
    with engine.connect() as connection:
        return list(connection.execute(text("SELECT what FROM orders ORDER BY what")).scalars())


class Other:
    """Another data manager, which votes as it is told and notes the order of calls."""

    def __init__(self, key: str, calls: list[str], fails_in: str = "") -> None:
        self.transaction_manager = None
        self._key = key
        self._calls = calls
        self._fails_in = fails_in

    def sortKey(self) -> str:  # noqa: N802
        """Its place among the managers."""
        return self._key

    def __getattr__(self, name: str) -> Any:
        if name not in ("abort", "tpc_begin", "commit", "tpc_vote", "tpc_finish", "tpc_abort"):
            raise AttributeError(name)

        def call(_: Any) -> None:
            self._calls.append(f"{name} {self._key}")
            if name == self._fails_in:
                raise RuntimeError(f"{name} fails")

        return call


# With SQLAlchemy ---------------------------------------------------------------------------------


@pytest.mark.promise(2)
def test_promise_2_one_commit_for_both(
    store: Any, engine: Engine, session: Session, manager: Any
) -> None:
    """A row and a message, or a message that was got and the row made of it: both are there."""
    queues = join(store, transaction_manager=manager)
    queues.put("work", b"apples")
    insert(session, manager, "pears")
    assert (payloads_in(store, "work"), rows(engine)) == ([], [])
    manager.commit()
    assert (payloads_in(store, "work"), rows(engine)) == ([b"apples"], ["pears"])

    manager.begin()
    message = join(store, transaction_manager=manager).get("work")
    assert message is not None
    insert(session, manager, message.payload.decode())
    manager.commit()
    assert (payloads_in(store, "work"), rows(engine)) == ([], ["apples", "pears"])
    assert store.prepared.list() == []


def test_an_abort_undoes_both(store: Any, engine: Engine, session: Session, manager: Any) -> None:
    """Nothing is on either side, and what was got is there again."""
    store.put("work", b"before")
    queues = join(store, transaction_manager=manager)
    queues.put("work", b"apples")
    assert queues.get("work") is not None
    insert(session, manager, "apples")
    manager.abort()
    assert (payloads_in(store, "work"), rows(engine)) == ([b"before"], [])
    assert queues.state == "rolled back"


@pytest.mark.promise(2)
def test_promise_2_a_database_that_refuses_undoes_the_queue(
    store: Any, engine: Engine, session: Session, manager: Any
) -> None:
    """The row is there already, which the database finds out in its flush or at its vote."""
    insert(session, manager, "apples")
    manager.commit()
    manager.begin()
    join(store, transaction_manager=manager).put("work", b"apples")
    with pytest.raises(IntegrityError):
        insert(session, manager, "apples")
    manager.abort()
    assert (payloads_in(store, "work"), rows(engine)) == ([], ["apples"])


@pytest.mark.promise(2)
def test_promise_2_a_store_that_refuses_undoes_the_database(
    store: Any, engine: Engine, session: Session, manager: Any
) -> None:
    """Quire votes first: where it cannot promise, the database has committed nothing."""
    with store.transaction() as earlier:
        earlier.enter("key", 1)
    insert(session, manager, "apples")
    queues = join(store, transaction_manager=manager)
    queues.put("work", b"apples")
    queues.enter("key", 1)
    with pytest.raises(AlreadyCommitted):
        manager.commit()
    manager.abort()
    assert (payloads_in(store, "work"), rows(engine), store.prepared.list()) == ([], [], [])


def test_a_transaction_that_was_ended_by_hand_is_refused(store: Any, manager: Any) -> None:
    """What a user should not do: the vote finds out, and nobody commits."""
    join(store, transaction_manager=manager).rollback()
    with pytest.raises(TransactionClosed):
        manager.commit()
    manager.abort()


def test_a_full_queue_refuses_at_once(store: Any, session: Session, manager: Any) -> None:
    """QueueFull comes with the put, and the transaction can be aborted."""
    store.create_queue("small", kind="work", max_messages=1)
    queues = join(store, transaction_manager=manager)
    queues.put("small", b"a")
    insert(session, manager, "apples")
    with pytest.raises(QueueFull):
        queues.put("small", b"b")
    manager.abort()
    assert store.queue("small").messages == 0


# The protocol ------------------------------------------------------------------------------------


def test_it_votes_before_sql_and_after_the_vote_it_is_prepared(store: Any, manager: Any) -> None:
    """CM2: a manager that sorts as zope.sqlalchemy's one-phase one does votes when Quire has."""
    seen: list[str] = []

    class Last(Other):
        def tpc_vote(self, _: Any) -> None:
            seen.extend(info.xid for info in store.prepared.list())

    join(store, "order-17", manager).put("work", b"x")
    manager.get().join(Last("~sqlalchemy:1", []))
    manager.commit()
    assert seen == ["order-17"]
    assert payloads_in(store, "work") == [b"x"]


def test_joining_again_gives_the_same_transaction(store: Any, manager: Any) -> None:
    """Until it ends; the next transaction has one of its own."""
    first = join(store, transaction_manager=manager)
    assert join(store, transaction_manager=manager) is first
    manager.commit()
    manager.begin()
    assert join(store, "mine", manager) is not first
    with pytest.raises(InvalidArgument, match="part of this transaction already"):
        join(store, "another", manager)
    assert join(store, "mine", manager).state == "open"


def test_two_stores_take_part_in_one_transaction(store: Any, manager: Any, tmp_path: Any) -> None:
    """Each is a data manager of its own."""
    with quire.open(str(tmp_path / "other")) as other:
        other.create_queue("work", kind="work")
        store.put("work", b"x")
        message = join(store, transaction_manager=manager).get("work")
        assert message is not None
        join(other, transaction_manager=manager).put("work", message.payload)
        manager.commit()
        assert (payloads_in(store, "work"), payloads_in(other, "work")) == ([], [b"x"])
        assert other.admin.verify().ok


def test_the_thread_s_own_manager_is_the_default(store: Any) -> None:
    """`with transaction.manager:` around `join(store)` is all there is to write."""
    with transaction.manager:
        join(store).put("work", b"x")

    def fail() -> None:
        with transaction.manager:
            join(store).put("work", b"y")
            join(store).put("nowhere", b"y")

    with pytest.raises(quire.QueueNotFound):
        fail()
    assert payloads_in(store, "work") == [b"x"]


@pytest.mark.parametrize("fails_in", ["tpc_begin", "commit", "tpc_vote"])
@pytest.mark.parametrize("key", ["a", "z"])
def test_a_failure_before_the_second_phase_rolls_back(
    store: Any, manager: Any, fails_in: str, key: str
) -> None:
    """Whether the other votes before Quire or after it: nothing stays, and nothing is in doubt."""
    join(store, transaction_manager=manager).put("work", b"x")
    manager.get().join(Other(key, [], fails_in))
    with pytest.raises(RuntimeError):
        manager.commit()
    manager.abort()
    assert (payloads_in(store, "work"), store.prepared.list()) == ([], [])


def test_it_finishes_first(store: Any, manager: Any) -> None:
    """CM2 and CM3: when another fails to finish, Quire has, and its abort does nothing."""
    join(store, "mine", manager).put("work", b"x")
    manager.get().join(Other("0", [], "tpc_finish"))
    with pytest.raises(RuntimeError):
        manager.commit()
    manager.abort()
    assert (payloads_in(store, "work"), store.prepared.list()) == ([b"x"], [])


def test_a_finish_that_fails_leaves_it_in_doubt(store_path: str, manager: Any) -> None:
    """CM3: the store was closed between the phases; reopened, it lists the xid."""
    with quire.open(store_path) as store:
        store.create_queue("work", kind="work")

        class Closes(Other):
            def tpc_vote(self, _: Any) -> None:
                store.close()

        join(store, "mine", manager).put("work", b"x")
        manager.get().join(Closes("z", []))
        with pytest.raises(quire.StoreClosed):
            manager.commit()
        manager.abort()
    with quire.open(store_path) as store:
        assert [info.xid for info in store.prepared.list()] == ["mine"]
        store.prepared.commit("mine")
        assert payloads_in(store, "work") == [b"x"]
        assert store.admin.verify().ok


def test_hooks_after_the_commit_undo_nothing(store: Any, manager: Any) -> None:
    """The package calls abort once more after hooks; what is committed stays so."""
    join(store, transaction_manager=manager).put("work", b"x")
    manager.get().addAfterCommitHook(lambda success: None)
    manager.commit()
    assert payloads_in(store, "work") == [b"x"]


def test_savepoints_are_refused_clearly(store: Any, manager: Any) -> None:
    """There are none in Quire; an optimistic one is allowed, and cannot be rolled back to."""
    join(store, transaction_manager=manager).put("work", b"x")
    optimistic = manager.savepoint(optimistic=True)
    with pytest.raises(TypeError, match="Savepoints unsupported"):
        optimistic.rollback()
    manager.abort()
    manager.begin()
    join(store, transaction_manager=manager).put("work", b"x")
    with pytest.raises(TypeError, match="Savepoints unsupported"):
        manager.savepoint()
    manager.abort()
    assert payloads_in(store, "work") == []
