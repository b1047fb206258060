"""The two-phase calls of PEP 249 on a store, owned and joined."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import quire
from quire.coordination import Connection, Xid, connect
from quire.engine import EmbeddedStore as Store
from quire.errors import QueueFull, QuireError, TransactionNotFound
from quire.testing import SimEnv
from tests.kit.messages import payloads_in


@pytest.fixture(params=["owned", "joined"])
def either(request: pytest.FixtureRequest, store: Any) -> Iterator[Any]:
    """The store itself, or the same over its socket."""
    if request.param == "owned":
        yield store
        return
    with quire.open(store.path) as joined:
        assert joined.role == "joined"
        yield joined


@pytest.fixture
def connection(either: Any) -> Iterator[Connection]:
    """A connection to it."""
    connection = connect(either)
    yield connection
    connection.close()


def begun(connection: Connection, gtrid: str = "one") -> Xid:
    """A two-phase transaction that has put a message."""
    xid = connection.xid(7, gtrid, "a")
    connection.tpc_begin(xid)
    connection.put("work", gtrid.encode())
    return xid


# The way it is meant -----------------------------------------------------------------------------


def test_an_ordinary_transaction_begins_by_itself(either: Any, connection: Connection) -> None:
    """As PEP 249 has it: commit and rollback end it, and without one they do nothing."""
    connection.commit()
    connection.rollback()
    connection.put("work", b"kept")
    connection.commit()
    connection.put("work", b"dropped")
    connection.rollback()
    assert payloads_in(either, "work") == [b"kept"]


def test_every_call_of_a_transaction_is_there(either: Any, connection: Connection) -> None:
    """Puts, gets and the ledger go to the current transaction."""
    connection.put_many("work", [b"a", b"b", b"c", b"d"])
    connection.enter("key", 4)
    connection.commit()
    assert either.integration.ledger("key") == 4
    first = connection.get("work")
    assert first is not None
    assert first.payload == b"a"
    assert [message.payload for message in connection.get_many("work", 2)] == [b"b", b"c"]
    assert connection.get_arrow("work").num_rows == 1
    connection.commit()
    assert payloads_in(either, "work") == []


def test_prepare_and_commit(either: Any, connection: Connection) -> None:
    """What is prepared is listed and not visible; after the commit it is the other way round."""
    xid = begun(connection)
    connection.tpc_prepare()
    assert payloads_in(either, "work") == []
    assert connection.tpc_recover() == [xid]
    connection.tpc_commit()
    assert payloads_in(either, "work") == [b"one"]
    assert connection.tpc_recover() == []


def test_prepare_and_roll_back(either: Any, connection: Connection) -> None:
    """Nothing of it stays, and what it had got is there again."""
    either.put("work", b"before")
    begun(connection)
    assert connection.get("work") is not None
    connection.tpc_prepare()
    assert connect(either).get("work") is None
    connection.tpc_rollback()
    assert payloads_in(either, "work") == [b"before"]
    message = connection.get("work")
    assert message is not None
    assert message.payload == b"before"


def test_without_a_prepare_it_is_one_phase(either: Any, connection: Connection) -> None:
    """A transaction manager with one participant may leave the first phase out."""
    begun(connection)
    connection.tpc_commit()
    begun(connection, "two")
    connection.tpc_rollback()
    assert payloads_in(either, "work") == [b"one"]
    assert connection.tpc_recover() == []


def test_another_connection_ends_it(either: Any, connection: Connection) -> None:
    """What was prepared outlives its connection, and is ended by its xid from any other."""
    for gtrid in ("one", "two"):
        short = connect(either)
        begun(short, gtrid)
        short.tpc_prepare()
        short.close()
    first, second = connection.tpc_recover()
    assert first.prepared_us is not None
    connection.tpc_commit(first)
    connection.tpc_rollback(str(second))
    assert payloads_in(either, "work") == [b"one"]


def test_closing_rolls_back_what_is_not_prepared(either: Any) -> None:
    """CC3; closing twice is closing once."""
    ordinary, two_phase = connect(either), connect(either)
    ordinary.put("work", b"a")
    begun(two_phase)
    for connection in (ordinary, two_phase):
        connection.close()
        connection.close()
    assert payloads_in(either, "work") == []
    assert either.prepared.list() == []


@pytest.mark.promise(7)
def test_promise_7_a_reopened_store_still_has_it(store_path: str) -> None:
    """The store may be closed in between: `tpc_recover` of a new connection finds it."""
    with quire.open(store_path) as store:
        store.create_queue("work", kind="work")
        connection = connect(store)
        xid = begun(connection)
        connection.tpc_prepare()
    with quire.open(store_path) as store:
        connection = connect(store)
        assert connection.tpc_recover() == [xid]
        connection.tpc_commit(xid)
        assert payloads_in(store, "work") == [b"one"]
        assert store.admin.verify().ok


def test_what_others_prepared_is_found_whatever_its_name(
    either: Any, connection: Connection
) -> None:
    """A plain string of the engine's own API is a global id without the other two parts."""
    for name in ("order-17", "1_nonsense_", str(Xid.from_parts(1, "a", "b"))):
        transaction = either.transaction()
        transaction.put("work", name.encode())
        transaction.prepare(name)
    found = connection.tpc_recover()
    assert {tuple(xid) for xid in found} == {
        (None, "order-17", None),
        (None, "1_nonsense_", None),
        (1, "a", "b"),
    }
    for xid in found:
        connection.tpc_commit(xid)
    assert len(payloads_in(either, "work")) == 3


def test_a_plain_string_is_an_xid_too(either: Any, connection: Connection) -> None:
    """`tpc_begin` takes what other drivers take: a string, or their identifier of three parts."""
    for xid in ("order-17", (3, "a", "b")):
        connection.tpc_begin(xid)
        connection.tpc_prepare()
        connection.tpc_commit()
        connection.tpc_begin(xid)
        connection.put("work", b"x")
        connection.tpc_prepare()
        assert either.prepared.list()[0].xid == str(Xid.of(xid))
        connection.tpc_commit()


# Out of order ------------------------------------------------------------------------------------

CALLS: dict[str, Callable[[Connection], Any]] = {
    "put": lambda c: c.put("work", b"x"),
    "get": lambda c: c.get("work"),
    "commit": lambda c: c.commit(),
    "rollback": lambda c: c.rollback(),
    "xid": lambda c: c.xid(1, "a", "b"),
    "tpc_begin": lambda c: c.tpc_begin(Xid(1, "other", "b")),
    "tpc_prepare": lambda c: c.tpc_prepare(),
    "tpc_commit": lambda c: c.tpc_commit(),
    "tpc_rollback": lambda c: c.tpc_rollback(),
    "tpc_commit(xid)": lambda c: c.tpc_commit(Xid(1, "waiting", "b")),
    "tpc_rollback(xid)": lambda c: c.tpc_rollback(Xid(1, "waiting", "b")),
    "tpc_recover": lambda c: c.tpc_recover(),
}
BRANCH = {"tpc_commit(xid)", "tpc_rollback(xid)"}
REFUSED = {
    "idle": {"tpc_prepare", "tpc_commit", "tpc_rollback"},
    "open": {"tpc_begin", "tpc_prepare", "tpc_commit", "tpc_rollback", *BRANCH},
    "begun": {"tpc_begin", "commit", "rollback", *BRANCH},
    "prepared": {"put", "get", "tpc_begin", "tpc_prepare", "commit", "rollback", *BRANCH},
    "closed": set(CALLS),
}


def in_state(store: Any, state: str) -> Connection:
    """A connection in a state of the module's table, which has put a message in it."""
    connection = connect(store)
    if state == "open":
        connection.put("work", b"x")
    elif state != "idle":
        begun(connection)
    if state == "prepared":
        connection.tpc_prepare()
    if state == "closed":
        connection.close()
    return connection


@pytest.mark.cases(3)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("state", REFUSED)
def test_calls_out_of_order_are_programming_errors(sim_store: Any, state: str, call: str) -> None:
    """CC1: exactly the calls that the table lacks are refused, and the transaction goes on."""
    store = sim_store
    transaction = store.transaction()
    transaction.put("work", b"y")
    transaction.prepare(str(Xid(1, "waiting", "b")))
    connection = in_state(store, state)
    if call not in REFUSED[state]:
        CALLS[call](connection)
        connection.close()
    else:
        with pytest.raises(connection.ProgrammingError, match="cannot be called"):
            CALLS[call](connection)
        finish = {"open": connection.commit, "begun": connection.tpc_commit}
        finish["prepared"] = connection.tpc_commit
        before = len(payloads_in(store, "work"))
        finish.get(state, connection.close)()
        assert len(payloads_in(store, "work")) == before + (state in finish)
    for info in store.prepared.list():
        store.prepared.rollback(info.xid)


# Errors ------------------------------------------------------------------------------------------


def test_the_exceptions_are_attributes_and_form_pep_249s_tree(connection: Connection) -> None:
    """A program that has only the connection can catch them; all are of Quire's tree too."""
    database_errors = ["Data", "Operational", "Integrity", "Internal", "Programming"]
    for name in [*(f"{kind}Error" for kind in database_errors), "NotSupportedError"]:
        assert issubclass(getattr(connection, name), connection.DatabaseError)
    for kind in (connection.DatabaseError, connection.InterfaceError):
        assert issubclass(kind, connection.Error)
    assert issubclass(connection.Error, QuireError)
    assert not issubclass(connection.Warning, connection.Error)


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.put("nowhere", b"x"),
        lambda c: c.get("work/nobody"),
        lambda c: c.put("work", "text"),
        lambda c: c.put("work", b"x", color=1),
        lambda c: c.xid(-1, "a", "b"),
        lambda c: c.tpc_begin(17),
        lambda c: c.tpc_commit("unknown"),
        lambda c: c.tpc_rollback(Xid(1, "un", "known")),
        lambda c: c.tpc_commit("\n"),
    ],
)
def test_bad_arguments_and_unknown_names_are_programming_errors(
    connection: Connection, call: Callable[[Connection], Any]
) -> None:
    """The cause is the store's own error; the connection goes on."""
    with pytest.raises(connection.ProgrammingError) as caught:
        call(connection)
    assert isinstance(caught.value.__cause__ or caught.value, QuireError)
    connection.rollback()
    connection.put("work", b"x")
    connection.rollback()


def test_an_unknown_xid_names_the_cause(connection: Connection) -> None:
    """As PEP 249 asks: ProgrammingError."""
    with pytest.raises(connection.ProgrammingError) as caught:
        connection.tpc_commit(connection.xid(1, "un", "known"))
    assert isinstance(caught.value.__cause__, TransactionNotFound)


def test_an_xid_in_use_is_refused_by_the_prepare(either: Any, connection: Connection) -> None:
    """CC2: the second one can still be rolled back, and the first is untouched."""
    xid = begun(connection)
    connection.tpc_prepare()
    other = connect(either)
    begun(other)
    with pytest.raises(other.ProgrammingError):
        other.tpc_prepare()
    other.tpc_rollback()
    assert connection.tpc_recover() == [xid]
    connection.tpc_commit()
    assert payloads_in(either, "work") == [b"one"]


def test_a_full_queue_is_an_operational_error(store: Any) -> None:
    """What the store cannot at this time: the same call may succeed later (CC2)."""
    store.create_queue("small", kind="work", max_messages=1)
    connection = connect(store)
    connection.put("small", b"a")
    with pytest.raises(connection.OperationalError) as caught:
        connection.put("small", b"b")
    assert isinstance(caught.value.__cause__, QueueFull)
    connection.commit()
    assert store.queue("small").messages == 1


def test_a_replay_is_an_integrity_error(store: Any) -> None:
    """The ledger holds the version: the transaction has ended, and the connection is idle."""
    connection = connect(store)
    for _ in range(2):
        connection.put("work", b"x")
        connection.enter("key", 1)
        if store.integration.ledger("key") is None:
            connection.commit()
    with pytest.raises(connection.IntegrityError):
        connection.commit()
    connection.tpc_begin("next")
    connection.tpc_rollback()
    assert len(payloads_in(store, "work")) == 1


def test_a_transaction_that_was_open_too_long_is_an_operational_error() -> None:
    """The store has rolled it back; rollback makes the connection usable again."""
    env = SimEnv()
    options: dict[str, Any] = {"segment_bytes": 1 << 20, "background": False}
    with Store.open("/store", env=env, transaction_timeout=60, **options) as store:
        store.create_queue("work", kind="work")
        connection = connect(store)
        connection.put("work", b"x")
        env.advance(61)
        store.put("work", b"a")  # without threads of its own, the store looks at each commit
        with pytest.raises(connection.OperationalError):
            connection.put("work", b"y")
        connection.rollback()
        connection.put("work", b"z")
        connection.commit()
        assert payloads_in(store, "work") == [b"a", b"z"]


def test_a_store_that_was_closed_is_a_programming_error(store_path: str) -> None:
    """The store's life is the program's business."""
    with quire.open(store_path) as store:
        store.create_queue("work", kind="work")
        connection = connect(store)
        connection.put("work", b"x")
    with pytest.raises(connection.ProgrammingError):
        connection.put("work", b"y")
    connection.close()
