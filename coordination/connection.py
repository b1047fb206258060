"""A connection to an open store with the transaction calls of PEP 249, the two-phase ones included.

For programs and transaction managers that drive any number of DB-API connections through one
two-phase commit. A store has no SQL, so there are no cursors: messages are put and got through the
connection itself.

| from | by | to |
|---|---|---|
| idle | put, get, ... | open |
| open | put, get, ... | open |
| open | commit, rollback | idle |
| idle | tpc_begin(xid) | begun |
| begun | put, get, ... | begun |
| begun | tpc_prepare | prepared |
| begun, prepared | tpc_commit, tpc_rollback | idle |
| idle | commit, rollback, tpc_commit(xid), tpc_rollback(xid) | idle |
| any but closed | tpc_recover | the same |
| any | close | closed |

- CC1: every other call is a ProgrammingError and changes nothing.
- CC2: a call that raises leaves the connection where it was, so that it can be repeated; but a
  commit that ended the transaction (IntegrityError, a failed store) leaves it idle.
- CC3: close rolls back what is open or begun. What is prepared stays so, for `tpc_recover` on any
  connection, now or after the store was opened again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Any, NoReturn, Unpack

from quire.callbacks import check_function
from quire.libraries import pa
from quire.moments import Duration

from . import dbapi_errors
from .dbapi_errors import ProgrammingError, as_dbapi_errors
from .xid import Xid

if TYPE_CHECKING:
    from quire.batches.delivered_messages import Messages
    from quire.interface.store import Store
    from quire.interface.transaction import Payload, Transaction
    from quire.messages.message import Message
    from quire.messages.message_id import MessageId, MessageIds
    from quire.messages.put_options import PutOptions


class ConnectionState(Enum):
    """The kind of transaction that is under way in a connection."""

    IDLE = "in no transaction"
    OPEN = "in an ordinary transaction"
    BEGUN = "in a two-phase transaction"
    PREPARED = "in a prepared two-phase transaction"
    CLOSED = "closed"


def connect(store: Store) -> Connection:
    """A connection to an open store, owned or joined. Closing it leaves the store open."""
    return Connection(store)


class Connection:
    """A store as a connection with the transaction calls of PEP 249, the two-phase ones included.

    There are no cursors: messages are put and got through the connection itself. Any number of
    them may share a store; each is for one thread at a time. What is called at the wrong time is a
    ProgrammingError and changes nothing.
    """

    Warning = dbapi_errors.Warning
    Error = dbapi_errors.Error
    InterfaceError = dbapi_errors.InterfaceError
    DatabaseError = dbapi_errors.DatabaseError
    DataError = dbapi_errors.DataError
    OperationalError = dbapi_errors.OperationalError
    IntegrityError = dbapi_errors.IntegrityError
    InternalError = dbapi_errors.InternalError
    ProgrammingError = dbapi_errors.ProgrammingError
    NotSupportedError = dbapi_errors.NotSupportedError

    def __init__(self, store: Store) -> None:
        method = getattr(store, "transaction", store)
        check_function("store's method", method, "give a store of quire.open")
        self._store = store
        self._state = ConnectionState.IDLE
        self._transaction: Transaction | None = None
        self._xid: Xid | None = None

    def __repr__(self) -> str:
        return f"<quire.coordination.Connection to {self._store.path}, {self._state.value}>"

    # Messages

    def put(self, queue: str, payload: Payload, **options: Unpack[PutOptions]) -> MessageId:
        """Put one message in the current transaction; see `Transaction.put`."""
        with self._current("put") as transaction:
            return transaction.put(queue, payload, **options)

    def put_many(self, queue: str, payloads: Any) -> MessageIds:
        """Put many; see `Transaction.put_many`."""
        with self._current("put_many") as transaction:
            return transaction.put_many(queue, payloads)

    def get(self, source: str, timeout: Duration | None = 0.0) -> Message | None:
        """Take the next message in the current transaction, or None."""
        with self._current("get") as transaction:
            return transaction.get(source, timeout)

    def get_many(
        self, source: str, max_messages: int = 1000, timeout: Duration | None = 0.0
    ) -> Messages:
        """Take up to `max_messages`."""
        with self._current("get_many") as transaction:
            return transaction.get_many(source, max_messages, timeout)

    def get_arrow(
        self, source: str, max_messages: int = 65536, timeout: Duration | None = 0.0
    ) -> pa.RecordBatch:
        """Take up to `max_messages` as one Arrow batch."""
        with self._current("get_arrow") as transaction:
            return transaction.get_arrow(source, max_messages, timeout)

    def enter(self, key: str, version: int) -> None:
        """Enter key and version into the ledger; see `Transaction.enter`."""
        with self._current("enter") as transaction:
            transaction.enter(key, version)

    # Ordinary transactions

    def commit(self) -> None:
        """Commit the ordinary transaction, if there is one."""
        self._check("commit", ConnectionState.IDLE, ConnectionState.OPEN)
        self._commit_open()

    def rollback(self) -> None:
        """Roll back the ordinary transaction, if there is one."""
        self._check("rollback", ConnectionState.IDLE, ConnectionState.OPEN)
        self._rollback_open()

    def close(self) -> None:
        """Roll back what is not prepared (CC3); twice is once."""
        if self._state is not ConnectionState.PREPARED:
            self._rollback_open()
        self._state = ConnectionState.CLOSED
        self._transaction = self._xid = None

    # Two-phase transactions

    def xid(self, format_id: int, gtrid: str, bqual: str) -> Xid:
        """An identifier for the tpc calls. The strings have up to 64 bytes each in UTF-8."""
        self._check("xid")
        with as_dbapi_errors():
            return Xid.from_parts(format_id, gtrid, bqual)

    def tpc_begin(self, xid: Xid | str | tuple[int | None, str, str | None]) -> None:
        """Begin a two-phase transaction.

        Besides what `xid` gave, it takes a string, which may be any that `Transaction.prepare`
        takes, and the identifier of another driver.
        """
        self._check("tpc_begin", ConnectionState.IDLE)
        with as_dbapi_errors():
            own, transaction = Xid.of(xid), self._store.transaction()
            # Statements without a call: no handler of a signal comes in between.
            self._xid, self._transaction, self._state = own, transaction, ConnectionState.BEGUN

    def tpc_prepare(self) -> None:
        """The first phase: make the transaction durable, so that it can be committed for sure."""
        self._check("tpc_prepare", ConnectionState.BEGUN)
        assert self._transaction is not None
        try:
            with as_dbapi_errors():
                self._transaction.prepare(str(self._xid))
        finally:
            if self._transaction.state == "prepared":  # also where an interrupt came with it
                self._transaction = None
                self._state = ConnectionState.PREPARED

    def tpc_commit(self, xid: Xid | str | tuple[int | None, str, str | None] | None = None) -> None:
        """The second phase; before `tpc_prepare` it commits in one phase.

        With an xid: commit a transaction that `tpc_recover` found, outside of any other.
        """
        self._finish("tpc_commit", xid, commit=True)

    def tpc_rollback(
        self, xid: Xid | str | tuple[int | None, str, str | None] | None = None
    ) -> None:
        """Roll the two-phase transaction back, prepared or not.

        With an xid: roll back a transaction that `tpc_recover` found, outside of any other.
        """
        self._finish("tpc_rollback", xid, commit=False)

    def tpc_recover(self) -> list[Xid]:
        """Return all prepared transactions of the store, of whatever origin, for the calls
        above.
        """
        self._check("tpc_recover")
        with as_dbapi_errors():
            return [
                Xid.from_string(info.xid, info.prepared_us) for info in self._store.prepared.list()
            ]

    # Inside

    def _check(self, call: str, *states: ConnectionState) -> None:
        """Raise unless the connection is in one of the states; without any: unless it is closed."""
        if self._state is ConnectionState.CLOSED or (states and self._state not in states):
            self._refuse(call)

    def _refuse(self, call: str) -> NoReturn:
        ways_out = {
            ConnectionState.IDLE: "call tpc_begin first",
            ConnectionState.OPEN: "end it with commit or rollback",
            ConnectionState.BEGUN: "end it with tpc_commit or tpc_rollback",
            ConnectionState.PREPARED: "end it with tpc_commit or tpc_rollback",
            ConnectionState.CLOSED: "make a new one",
        }
        raise ProgrammingError(
            f"{call} cannot be called on a connection that is {self._state.value}: "
            f"{ways_out[self._state]}"
        )

    @contextmanager
    def _current(self, call: str) -> Iterator[Transaction]:
        """The current transaction; an ordinary one begins by itself."""
        self._check(call, ConnectionState.IDLE, ConnectionState.OPEN, ConnectionState.BEGUN)
        with as_dbapi_errors():
            if self._transaction is None:
                self._transaction = self._store.transaction()
                self._state = ConnectionState.OPEN
            yield self._transaction

    def _finish(self, call: str, xid: object, *, commit: bool) -> None:
        if xid is not None:
            self._check(call, ConnectionState.IDLE)
            with as_dbapi_errors():
                self._decide(str(Xid.of(xid)), commit=commit)
            return
        self._check(call, ConnectionState.BEGUN, ConnectionState.PREPARED)
        if self._state is ConnectionState.PREPARED:
            with as_dbapi_errors():
                self._decide(str(self._xid), commit=commit)
            self._be_idle()
        elif commit:
            self._commit_open()
        else:
            self._rollback_open()

    def _decide(self, xid: str, *, commit: bool) -> None:
        if commit:
            self._store.prepared.commit(xid)
        else:
            self._store.prepared.rollback(xid)

    def _commit_open(self) -> None:
        if self._transaction is None:
            return
        try:
            with as_dbapi_errors():
                self._transaction.commit()
        finally:
            if self._transaction.state != "open":
                self._be_idle()

    def _rollback_open(self) -> None:
        if self._transaction is not None:
            with as_dbapi_errors():
                self._transaction.rollback()
            self._be_idle()

    def _be_idle(self) -> None:
        self._transaction = self._xid = None
        self._state = ConnectionState.IDLE
