"""An inbox in each database: what a message does there happens once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quire
from quire.databases import Inbox, sqlite_database
from quire.databases.statements import Begin, statements_of
from tests.coordination.program_databases import POSTGRESQL_FORMS, SQLITE_FORMS, database
from tests.kit.waiting import SECONDS, eventually

DATABASES = [
    *(("sqlite", form) for form in SQLITE_FORMS),
    *(("postgresql", form) for form in POSTGRESQL_FORMS),
]
TABLES = ("quire_inbox", "quire_inbox_source", "effect")


def prepare(begin: Begin) -> None:
    """The tables of an inbox, and one of the program's own, all empty."""
    with begin() as connection:
        for table in TABLES:
            statements_of(connection).change(f"DROP TABLE IF EXISTS {table}")
    with begin() as connection:
        Inbox().create_tables(connection)
        statements_of(connection).change("CREATE TABLE effect (entry TEXT)")


@pytest.fixture(params=DATABASES, ids="-".join)
def each_way(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Begin]:
    """Transactions of each database, by each way to it."""
    kind, form = request.param
    if kind == "sqlite":
        target = str(tmp_path / "app.db")
    else:
        target = request.getfixturevalue("cluster").conninfo
    with database(form, target) as begin:
        prepare(begin)
        yield begin


@pytest.fixture
def app(tmp_path: Path) -> Begin:
    """Transactions of a file of SQLite."""
    begin = sqlite_database(str(tmp_path / "app.db"))
    prepare(begin)
    return begin


def effects(begin: Begin) -> list[str]:
    """All that was done, sorted."""
    with begin() as connection:
        return sorted(row[0] for row in statements_of(connection).rows("SELECT * FROM effect"))


def known(begin: Begin) -> int:
    """How many messages the inbox has."""
    with begin() as connection:
        return len(statements_of(connection).rows("SELECT * FROM quire_inbox"))


def note(message: quire.Message, connection: Any) -> None:
    """The effect of a message."""
    statements_of(connection).change(
        "INSERT INTO effect VALUES (:entry)", entry=message.payload.decode()
    )


def test_an_effect_is_made_once(store: Any, each_way: Begin) -> None:
    """However often its message is delivered; one that failed has none, and is made later."""
    inbox = Inbox()
    handle = inbox.handles("work", each_way)(note)
    store.put_many("work", [b"1", b"2"])
    for _ in range(3):  # the consumer dies before it has released anything
        transaction = store.transaction()
        for message in transaction.get_many("work"):
            handle(message, transaction)
        transaction.rollback()
    store.put("work", b"3")

    def fails(message: quire.Message, connection: Any) -> None:
        note(message, connection)
        raise KeyError(message.id)

    with store.transaction() as transaction:
        for message in transaction.get_many("work"):
            if message.payload == b"3":
                with pytest.raises(KeyError):
                    inbox.handles("work", each_way)(fails)(message, transaction)
            handle(message, transaction)
    assert effects(each_way) == ["1", "2", "3"]


def test_clean_up_lets_nothing_through(store: Any, each_way: Begin) -> None:
    """What waits, is in flight or was given back is kept; a consumer from long ago finds out."""
    inbox = Inbox()
    handle = inbox.handles("work", each_way)(note)
    for n in range(6):
        store.put("work", b"%d" % n)
    lost = store.transaction()
    messages = list(lost.get_many("work"))
    for message in messages:
        handle(message, lost)
    lost.rollback()
    with store.transaction() as transaction:
        first, second, _, fourth = transaction.get_many("work", 4)
        assert [first.id, second.id] == [message.id for message in messages[:2]]
        transaction.reject(messages[2])
        handle(fourth, transaction)
    assert inbox.clean(store, each_way, "work", keep=3600) == 0
    assert inbox.clean(store, each_way, "work", keep=0) == 2  # the third was given back
    assert known(each_way) == 4
    for message in messages:  # its connection was cut, and it does not know
        handle(message, lost)
    with store.transaction() as transaction:
        for message in transaction.get_many("work"):
            handle(message, transaction)
    assert inbox.clean(store, each_way, "work", keep=0) == 3
    for message in messages:
        handle(message, lost)
    assert effects(each_way) == ["0", "1", "2", "3", "4", "5"]
    store.put("work", b"6")
    with store.transaction() as transaction:
        message = transaction.get("work")
        handle(message, transaction)
    assert effects(each_way)[-1] == "6"


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_a_consumer_that_slept_through_the_clean_up(
    store: Any, cluster: Any, isolation: str
) -> None:
    """Its transaction began before; in PostgreSQL it may see what was there then (IB3)."""
    import psycopg

    def begin() -> Any:
        return psycopg.connect(cluster.conninfo)

    prepare(begin)
    inbox = Inbox()
    store.put_many("work", [b"1", b"2"])
    with store.transaction() as transaction:
        sleeper = begin()
        sleeper.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}")
        sleeper.execute("SELECT * FROM effect")
        messages = transaction.get_many("work")
        for message in messages:
            inbox.handles("work", begin)(note)(message, transaction)
        last = messages[1]
    assert inbox.clean(store, begin, "work", keep=0) in (0, 1)
    store.put("work", b"3")
    with store.transaction() as transaction:
        inbox.handles("work", begin)(note)(transaction.get("work"), transaction)
    assert inbox.clean(store, begin, "work", keep=0) > 0
    with sleeper:
        try:
            assert not inbox.is_new(sleeper, "work", last)
        except psycopg.errors.SerializationFailure:
            assert isolation != "READ COMMITTED"
            sleeper.rollback()
        else:
            assert isolation == "READ COMMITTED"
    assert effects(begin) == ["1", "2", "3"]


def test_two_consumers_of_one_message(store: Any, each_way: Begin) -> None:
    """The second waits for the end of the first, and then makes no effect."""
    inbox = Inbox()
    store.put("work", b"1")
    message = store.browse("work")[0]
    inside, go = threading.Event(), threading.Event()

    def slowly(message: quire.Message, connection: Any) -> None:
        note(message, connection)
        inside.set()
        assert go.wait(SECONDS)

    first = threading.Thread(target=inbox.handles("work", each_way)(slowly), args=(message, None))
    second = threading.Thread(target=inbox.handles("work", each_way)(note), args=(message, None))
    first.start()
    assert inside.wait(SECONDS)
    second.start()
    go.set()
    first.join()
    second.join()
    assert effects(each_way) == ["1"]


def test_subscriptions_are_apart(store: Any, app: Begin) -> None:
    """Each source has its own; one table holds them all."""
    store.create_queue("news", kind="topic", keep_forever=True)
    for name in ("a", "b"):
        store.subscribe("news", name)
    store.put("news", b"1")
    inbox = Inbox()
    for source in ("news/a", "news/b", "news/a"):
        with store.transaction() as transaction:
            message = transaction.get(source)
            if message is not None:
                inbox.handles(source, app)(note)(message, transaction)
    assert effects(app) == ["1", "1"]
    assert inbox.clean(store, app, "news/c") == 0
    with app() as connection:
        assert inbox.is_new(connection, "news/c", store.browse("news")[0])
    with pytest.raises(quire.SubscriptionNotFound):
        inbox.clean(store, app, "news/c")


def test_a_subscription_that_is_moved_back(store: Any, app: Begin) -> None:
    """What it delivers again has no effect, until the inbox forgets it."""
    store.create_queue("news", kind="topic", keep_forever=True)
    store.subscribe("news", "a")
    store.put_many("news", [b"1", b"2"])
    inbox = Inbox()

    def all_again() -> None:
        with store.transaction() as transaction:
            transaction.seek("news/a", "earliest")
        with store.transaction() as transaction:
            for message in transaction.get_many("news/a"):
                inbox.handles("news/a", app)(note)(message, transaction)

    all_again()
    all_again()
    assert effects(app) == ["1", "2"]
    with app() as connection:
        assert inbox.forget(connection, "news/a") == 2
    all_again()
    assert effects(app) == ["1", "1", "2", "2"]


def test_a_store_that_goes_on_from_an_older_copy(store: Any, app: Begin) -> None:
    """A message with an id that was given before is new: it has another time (IB1)."""
    inbox = Inbox()
    store.put("work", b"1")
    old = store.browse("work")[0]
    with app() as connection:
        assert inbox.is_new(connection, "work", old)
        assert not inbox.is_new(connection, "work", old)
        again = quire.Message(id=old.id, queue="work", payload=b"2", time=old.time + 1)
        assert inbox.is_new(connection, "work", again)


def test_workers_with_a_poison_message(store: Any, app: Begin) -> None:
    """It goes to the dead letters without any effect, and the others have theirs."""
    store.create_queue("dead")
    store.alter_queue("work", max_deliveries=2, dead_letter="dead")
    workers = quire.Workers(store, retry={"delay": 0.01})
    inbox = Inbox()

    @workers.on("work", concurrency=2)
    @inbox.handles("work", app)
    def book(message: quire.Message, connection: Any) -> None:
        note(message, connection)
        if message.payload == b"poison":
            raise KeyError

    store.put_many("work", [b"1", b"poison", b"2"])
    thread = threading.Thread(target=workers.run)
    thread.start()
    try:
        eventually(lambda: store.queue("dead").messages == 1 and store.queue("work").messages == 0)
    finally:
        workers.stop()
        thread.join()
    assert effects(app) == ["1", "2"]


def test_what_would_not_be_one_transaction_is_refused(store: Any, app: Begin) -> None:
    """A connection that commits each statement; a handler that does nothing yet."""
    import sqlite3

    store.put("work", b"1")
    message = store.browse("work")[0]
    connection = sqlite3.connect(":memory:", isolation_level=None)
    inbox = Inbox()
    inbox.create_tables(connection)
    with pytest.raises(quire.InvalidArgument, match="begin a transaction"):
        inbox.is_new(connection, "work", message)
    connection.close()
    with pytest.raises(quire.InvalidArgument, match="give a Message"), app() as connection:
        inbox.is_new(connection, "work", b"1")  # type: ignore[arg-type]

    async def handler(message: object, connection: object) -> None: ...

    with pytest.raises(quire.InvalidArgument, match="coroutine"):
        inbox.handles("work", app)(handler)
    with pytest.raises(quire.InvalidArgument, match="keep"):
        inbox.clean(store, app, "work", keep=-1)
    with pytest.raises(quire.InvalidArgument, match="begin"):
        inbox.clean(store, None, "work")  # type: ignore[arg-type]
