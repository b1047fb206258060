"""An outbox in each database, by each way to it, and what a relay makes of it."""

from __future__ import annotations

import datetime as dt
import logging
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import quire
from quire.cli import main
from quire.databases import Outbox, Relay, database_of, sqlite_database
from quire.databases.relay import STATE
from quire.databases.statements import Begin, statements_of
from tests.coordination.program_databases import POSTGRESQL_FORMS, SQLITE_FORMS, database
from tests.kit.limits import Limits
from tests.kit.waiting import eventually

FORMS = [
    *(("sqlite", form) for form in SQLITE_FORMS),
    *(("postgresql", form) for form in POSTGRESQL_FORMS),
]


@pytest.fixture(params=FORMS, ids="-".join)
def begin(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Begin]:
    """Transactions of a database, with the tables of an outbox and one of the program's own."""
    kind, form = request.param
    if kind == "sqlite":
        target = str(tmp_path / "app.db")
    else:
        target = request.getfixturevalue("cluster").conninfo
    with database(form, target) as begin:
        with begin() as connection:
            for table in ("quire_outbox", "quire_outbox_relay", "book"):
                statements_of(connection).change(f"DROP TABLE IF EXISTS {table}")
        with begin() as connection:
            Outbox().create_tables(connection)
            Outbox().create_tables(connection)
            statements_of(connection).change("CREATE TABLE book (entry INTEGER)")
        yield begin


@pytest.fixture
def plain(tmp_path: Path) -> Begin:
    """The plainest of them."""
    begin = sqlite_database(str(tmp_path / "app.db"))
    with begin() as connection:
        Outbox().create_tables(connection)
    return begin


def payloads(store: Any, queue: str = "work") -> list[bytes]:
    """All that wait, in their order."""
    found: list[bytes] = store.browse(queue, max_messages=1 << 20).payloads()
    return found


def drain(relay: Relay) -> int:
    """All steps that have something to do; how many messages they have moved."""
    moved = 0
    while count := relay.step():
        moved += count
    return moved


# In each database -----------------------------------------------------------------------------


def test_messages_come_with_their_transaction(store: Any, begin: Begin) -> None:
    """What was committed is moved, once, in its order; what was rolled back never was there."""
    outbox, relay = Outbox(), Relay(store, Outbox(), begin, max_messages=3)
    assert relay.step() == 0
    with begin() as connection:
        statements_of(connection).change("INSERT INTO book VALUES (1)")
        outbox.put(connection, "work", b"1")
        outbox.put_many(connection, "work", [b"2", bytearray(b"3"), memoryview(b"")])
    with suppress(KeyError), begin() as connection:
        outbox.put(connection, "work", b"rolled back")
        raise KeyError
    with begin() as connection:
        outbox.put(connection, "work", b"\0\xff" * 100_000)
        told = outbox.info(connection)
    assert (told.waiting, told.waiting_bytes, told.refused) == (5, 200_003, 0)
    assert told.oldest_us is not None
    assert drain(relay) == 5
    assert payloads(store) == [b"1", b"2", b"3", b"", b"\0\xff" * 100_000]
    with begin() as connection:
        told = outbox.info(connection)
        assert (told.waiting, told.oldest_us, told.batches) == (0, None, 2)
        assert statements_of(connection).rows("SELECT * FROM quire_outbox") == []


def test_what_is_refused_stays_with_the_reason(store: Any, begin: Begin) -> None:
    """The others go on; it can be tried again, or thrown away."""
    outbox, relay = Outbox(), Relay(store, Outbox(), begin)
    with begin() as connection:
        outbox.put(connection, "work", b"1")
        outbox.put(connection, "later", b"2", sender="me")
        outbox.put(connection, "work", b"3", priority=7)  # which the queue does not obey
        outbox.put(connection, "work", b"4")
    assert drain(relay) == 2
    assert payloads(store) == [b"1", b"4"]
    with begin() as connection:
        first, second = outbox.refused(connection)
        assert (first.queue, first.payload, dict(first.options)) == (
            "later",
            b"2",
            {"sender": "me"},
        )
        assert first.reason.startswith("QueueNotFound: there is no queue 'later'")
        assert "priority" in second.reason
        assert outbox.info(connection).refused == 2
        assert outbox.discard(connection, second.id) == 1
        assert outbox.discard(connection, 10_000) == 0
    store.create_queue("later")
    assert drain(relay) == 0
    with begin() as connection:
        assert outbox.retry(connection) == 1
    assert drain(relay) == 1
    assert payloads(store, "later") == [b"2"]


@pytest.mark.cases(3)
def test_two_relays_move_each_message_once(store: Any, begin: Begin) -> None:
    """Each step of one may come between any two of the other."""
    outbox = Outbox()
    with begin() as connection:
        outbox.put_many(connection, "work", [b"%d" % n for n in range(300)])
    relays = [Relay(store, outbox, begin, max_messages=7) for _ in range(2)]
    threads = [threading.Thread(target=relay.run, args=(0.001,)) for relay in relays]
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: len(payloads(store)) >= 300)
    finally:
        for relay in relays:
            relay.stop()
        for thread in threads:
            thread.join()
    assert drain(relays[0]) == 0
    assert payloads(store) == [b"%d" % n for n in range(300)]


def test_a_relay_whose_first_look_finds_the_file_locked(
    store: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Another one that begins is writing, and this one waits for no lock: it looks again."""
    path = str(tmp_path / "app.db")
    with database("sqlite3", path) as begin:
        outbox = Outbox()
        with begin() as connection:
            outbox.create_tables(connection)
            outbox.put(connection, "work", b"1")

        @contextmanager
        def at_once() -> Iterator[sqlite3.Connection]:
            with closing(sqlite3.connect(path, timeout=0)) as connection, connection:
                yield connection

        relay = Relay(store, outbox, at_once)
        thread = threading.Thread(target=relay.run, args=(0.001,))
        with closing(sqlite3.connect(path)) as writer:
            writer.execute("BEGIN IMMEDIATE")
            thread.start()
            eventually(lambda: "is locked" in caplog.text)
            writer.rollback()
        eventually(lambda: payloads(store) == [b"1"])
        relay.stop()
        thread.join()


def test_the_step_that_died_between_put_and_delete(store: Any, begin: Begin) -> None:
    """The rows are there again, and are found to be in the store."""
    outbox = Outbox()
    with begin() as connection:
        outbox.put_many(connection, "work", [b"1", b"2"])
    assert Relay(store, outbox, begin).step() == 2
    with begin() as connection:
        assert outbox.info(connection).waiting == 2
        outbox.put(connection, "work", b"3")
    assert drain(Relay(store, outbox, begin)) == 1
    assert payloads(store) == [b"1", b"2", b"3"]


def test_a_put_that_commits_late_is_not_passed_over(
    store: Any, cluster: Any, tmp_path: Path
) -> None:
    """In PostgreSQL its row has an id below those that were moved already (OX3)."""
    with database("psycopg", cluster.conninfo) as begin:
        with begin() as connection:
            connection.execute("DROP TABLE IF EXISTS late, late_relay")
        outbox = Outbox("late")
        with begin() as connection:
            outbox.create_tables(connection)
        relay = Relay(store, outbox, begin)
        with begin() as late:
            outbox.put(late, "work", b"late")
            with begin() as connection:
                outbox.put(connection, "work", b"1")
            assert relay.step() == 1
            with begin() as connection:
                outbox.put(connection, "work", b"2")
            assert relay.step() == 1
        with begin() as connection:
            outbox.put(connection, "work", b"3")
        assert drain(relay) == 2
    assert payloads(store) == [b"1", b"2", b"late", b"3"]


# Options and limits ---------------------------------------------------------------------------


def test_all_that_a_put_may_say(store: Any, plain: Begin) -> None:
    """It comes with the message; spans count from the put."""
    store.create_queue("full", order="priority", timed=True, grouped=True, dedup_count=10)
    outbox = Outbox()
    with plain() as connection:
        for _ in range(2):
            outbox.put(
                connection, "full", b"1", priority=3, group=4, sender="a", correlation_id="b",
                reply_to="c", content_type="d", attributes={"ü": "\n"}, group_key="e",
                ttl=dt.timedelta(hours=1), delay=0, request_id="f",
            )  # fmt: skip
        waiting = outbox.info(connection)
    assert drain(Relay(store, outbox, plain)) == 2
    (message,) = store.browse("full")  # the second put has the request id of the first one
    assert (message.priority, message.group, message.sender) == (3, 4, "a")
    assert (message.correlation_id, message.reply_to, message.content_type) == ("b", "c", "d")
    assert dict(message.attributes) == {"ü": "\n", "quire.group_key": "e"}
    assert waiting.oldest_us is not None
    assert abs(message.expires_at - waiting.oldest_us - 3_600_000_000) < 1_000_000


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"timeout": 3.0}, "nobody waits"),
        ({"colour": "red"}, "colour"),
        ({"priority": -1}, "priority"),
        ({"request_id": ""}, "request_id"),
        ({"ttl": 1, "expires_at": 4e9}, "the same"),
        ({"durable": False}, "durable"),
    ],
)
def test_what_cannot_be_a_message_is_refused_at_once(
    plain: Begin, options: dict[str, Any], says: str
) -> None:
    """The transaction goes on without it."""
    outbox = Outbox()
    with plain() as connection:
        with pytest.raises(quire.InvalidArgument, match=says):
            outbox.put(connection, "work", b"1", **options)
        with pytest.raises(quire.InvalidArgument, match="payload"):
            outbox.put(connection, "work", "1")  # type: ignore[arg-type]
        with pytest.raises(quire.InvalidArgument, match="queue name"):
            outbox.put(connection, "work/a", b"1")
        assert outbox.info(connection).waiting == 0


def test_names_of_tables_and_connections(store: Any, plain: Begin) -> None:
    """What could be anything else in a statement is refused; so is what is no connection."""
    for name in ("", "Quire", "a b", "a;--", "x" * 41, 3):
        with pytest.raises(quire.InvalidArgument, match="table"):
            Outbox(name)  # type: ignore[arg-type]
    for connection in (None, "app.db", object()):
        with pytest.raises(quire.InvalidArgument, match="connection"):
            Outbox().put(connection, "work", b"1")
    with pytest.raises(quire.InvalidArgument, match="store"):
        Relay(None, Outbox(), plain)  # type: ignore[arg-type]
    with pytest.raises(quire.InvalidArgument, match="give an Outbox"):
        Relay(store, None, plain)  # type: ignore[arg-type]
    with pytest.raises(quire.InvalidArgument, match="begin"):
        Relay(store, Outbox(), None)  # type: ignore[arg-type]
    with pytest.raises(quire.InvalidArgument, match="give the path of a file"):
        sqlite_database(None)  # type: ignore[arg-type]


def test_a_put_by_itself_is_refused_where_each_statement_commits(tmp_path: Path) -> None:
    """It would not come with the row that it belongs to: a view of Django without `atomic`."""
    path = str(tmp_path / "app.db")
    outbox = Outbox()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        outbox.create_tables(connection)
        with pytest.raises(quire.InvalidArgument, match="commits each statement by itself"):
            outbox.put(connection, "work", b"1")
        connection.execute("BEGIN")
        outbox.put(connection, "work", b"2")
        connection.execute("COMMIT")
        assert outbox.info(connection).waiting == 1
    with database("django", path) as begin:
        with begin() as connection:
            outbox.put(connection, "work", b"3")
        with pytest.raises(quire.InvalidArgument, match=r"transaction\.atomic"):
            outbox.put(connection, "work", b"4")
        assert outbox.info(connection).waiting == 2


def test_psycopg_that_commits_each_statement(cluster: Any) -> None:
    """As those of SQLite: refused outside of a transaction, and taken in one."""
    outbox = Outbox("by_itself")
    with closing(cluster.connect(autocommit=True)) as connection:
        outbox.create_tables(connection)
        with pytest.raises(quire.InvalidArgument, match="commits each statement by itself"):
            outbox.put(connection, "work", b"1")
        with connection.transaction():
            outbox.put(connection, "work", b"2")
        assert outbox.info(connection).waiting == 1
        connection.execute("DROP TABLE by_itself, by_itself_relay")


@pytest.mark.parametrize("value", [0, 1001])
def test_how_many_at_a_time(store: Any, plain: Begin, value: int) -> None:
    """1 to 1,000."""
    with pytest.raises(quire.InvalidArgument, match="max_messages"):
        Relay(store, Outbox(), plain, max_messages=value)


def test_batches_by_bytes(store: Any, plain: Begin, limits: Limits) -> None:
    """As many as fit; one that is larger goes alone."""
    limits(RELAY_BATCH_BYTES=1000)
    outbox, relay = Outbox(), Relay(store, Outbox(), plain)
    with plain() as connection:
        outbox.put_many(connection, "work", [b"a" * 400] * 3 + [b"b" * 5000, b"c"])
    assert [relay.step() for _ in range(5)] == [2, 1, 1, 1, 0]


# Room, and what passes ------------------------------------------------------------------------


def test_a_queue_takes_as_many_as_it_has_room_for(store: Any, plain: Begin) -> None:
    """Also where a batch is more than it can ever hold; the rest waits, in its order."""
    store.create_queue("small", max_messages=5)
    outbox, relay = Outbox(), Relay(store, Outbox(), plain)
    with plain() as connection:
        outbox.put_many(connection, "small", [b"%d" % n for n in range(23)])
    got: list[bytes] = []
    while len(got) < 23:
        try:
            relay.step()
        except quire.QueueFull:
            got += [message.payload for message in store.get_many("small")]
        else:
            got += [message.payload for message in store.get_many("small")]
    assert got == [b"%d" % n for n in range(23)]


def test_run_waits_for_what_passes(
    store: Any, plain: Begin, caplog: pytest.LogCaptureFixture
) -> None:
    """A stopped queue, and a database that does not answer: both are told, neither ends it."""
    answers = [sqlite3.OperationalError("unable to open database file")]

    def begin() -> Any:
        if answers:
            raise answers.pop()
        return plain()

    outbox, relay = Outbox(), Relay(store, Outbox(), begin)
    with pytest.raises(sqlite3.OperationalError):
        relay.run()  # there may be no tables: the first look has to succeed
    assert relay.step() == 0
    answers.append(sqlite3.OperationalError("database is locked"))
    store.alter_queue("work", puts=False)
    with plain() as connection:
        outbox.put(connection, "work", b"1")
    with caplog.at_level(logging.WARNING, "quire.databases"):
        thread = threading.Thread(target=relay.run)
        thread.start()
        try:
            eventually(lambda: "QueueDisabled" in caplog.text)
            store.alter_queue("work", puts=True)
            eventually(lambda: payloads(store) == [b"1"])
        finally:
            relay.stop()
            thread.join()
    assert "database is locked" in caplog.text


def test_run_ends_with_what_does_not_pass(store: Any, tmp_path: Path) -> None:
    """There are no tables."""
    relay = Relay(store, Outbox(), database_of(str(tmp_path / "empty.db")))
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        relay.run()


@pytest.mark.parametrize(
    ("database", "said"),
    [
        ("there.db", "no such table: quire_outbox_relay; name the database"),
        ("typing_error.db", "there is no file"),
        ("nothing://x", "that is no URL of SQLAlchemy"),
        ("sqlite:///there.db", "no such table: quire_outbox_relay; name the database"),
    ],
)
def test_the_command_tells_in_one_line_what_a_database_says(
    store: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    database: str,
    said: str,
) -> None:
    """And makes no database: a wrong name would be drained for ever."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.db").touch()
    before = sorted(tmp_path.iterdir())
    assert main(["relay", store.path, database, "--drain"]) == 1
    told = capsys.readouterr().err
    assert told.startswith("quire: InvalidArgument: ")
    assert said in told
    assert told.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


# Older copies ---------------------------------------------------------------------------------


def put_and_move(store: Any, outbox: Outbox, begin: Begin, *several: bytes) -> None:
    """In one transaction, and then all steps."""
    with begin() as connection:
        outbox.put_many(connection, "work", several)
    assert drain(Relay(store, outbox, begin)) == len(several)


def test_a_store_that_is_an_older_copy_is_found(store: Any, plain: Begin) -> None:
    """So is another store. After `reset` all that waits is moved, once."""
    outbox = Outbox()
    put_and_move(store, outbox, plain, b"1")
    put_and_move(store, outbox, plain, b"2")
    before = store.states.items(STATE)
    put_and_move(store, outbox, plain, b"3")
    put_and_move(store, outbox, plain, b"4")
    with store.transaction() as transaction:
        for key, value in before.items():
            transaction.set_value(STATE, key, value)
    with plain() as connection:
        outbox.put(connection, "work", b"5")
    relay = Relay(store, outbox, plain)
    for _ in range(2):
        with pytest.raises(quire.OutboxMismatch, match="the store is an older copy"):
            relay.run()
    with plain() as connection:
        outbox.reset(connection)
    with pytest.raises(quire.OutboxMismatch, match="begun anew"):
        relay.step()
    assert drain(Relay(store, outbox, plain)) == 1
    assert payloads(store)[-2:] == [b"4", b"5"]


def test_a_database_that_is_an_older_copy_is_found(
    store: Any, plain: Begin, tmp_path: Path
) -> None:
    """Nothing is put that may have been put already."""
    outbox = Outbox()
    put_and_move(store, outbox, plain, b"1")
    with plain() as connection:
        outbox.put(connection, "work", b"2")
    older = sqlite3.connect(tmp_path / "older.db")
    with plain() as connection, older:
        rows = list(connection.iterdump())
    older.executescript("\n".join(rows))
    older.close()
    relay = Relay(store, outbox, plain)
    assert drain(relay) == 1
    put_and_move(store, outbox, plain, b"3")
    with pytest.raises(quire.OutboxMismatch, match="the database is an older copy"):
        Relay(store, outbox, sqlite_database(str(tmp_path / "older.db"))).step()
    assert payloads(store) == [b"1", b"2", b"3"]


# SQLAlchemy's words ---------------------------------------------------------------------------


def test_tables_by_sqlalchemy(store: Any, tmp_path: Path) -> None:
    """As parts of the program's metadata, they are the same tables."""
    import sqlalchemy

    metadata = sqlalchemy.MetaData()
    outbox = Outbox("box")
    assert [table.name for table in outbox.add_to(metadata)] == ["box", "box_relay"]
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'alchemy.db'}")
    metadata.create_all(engine)
    with engine.begin() as connection:
        outbox.create_tables(connection)
        outbox.put(connection, "work", b"1")
    assert drain(Relay(store, outbox, engine.begin)) == 1
    found = sqlalchemy.inspect(engine)
    plain = sqlite3.connect(":memory:")
    for statement in outbox.ddl("sqlite"):
        plain.execute(statement)
    for table in ("box", "box_relay"):
        columns = {
            (row[1], bool(row[3] or row[5])) for row in plain.execute(f"PRAGMA table_info({table})")
        }
        told = {(column["name"], not column["nullable"]) for column in found.get_columns(table)}
        assert told == columns
    plain.close()
    engine.dispose()


def test_other_databases_are_refused() -> None:
    """By their name, before anything is sent."""
    import sqlalchemy
    from sqlalchemy.dialects.mysql import dialect

    engine = sqlalchemy.create_engine("sqlite://")
    with engine.connect() as connection:
        connection.dialect = dialect()
        with pytest.raises(quire.InvalidArgument, match="'mysql'"):
            Outbox().put(connection, "work", b"1")
        connection.dialect = engine.dialect
    engine.dispose()
