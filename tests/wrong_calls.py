"""Wrong calls that mypy finds in every form of a store and of a transaction: nothing runs this.

Each is ignored here, and has to be: an option that is misspelt, one of a wrong type, an argument
that is missing; of the core and of a namespace. `make check` does not pass with an ignore that is
not needed (`warn_unused_ignores`): so a form in which one is not found any more is noticed.
"""

from __future__ import annotations

from quire.aio import AsyncStore, AsyncTransaction
from quire.coordination import Connection
from quire.engine import EmbeddedStore
from quire.engine.transactions.transaction import EmbeddedTransaction
from quire.interface.store import Store
from quire.interface.transaction import Transaction
from quire.remote import JoinedStore, JoinedTransaction

# Of a store


def store(store: Store) -> None:
    """The interface."""
    store.alter_queue("q", capasity=1)  # type: ignore[call-arg]
    store.alter_queue("q", capacity="1")  # type: ignore[arg-type]
    store.alter_queue()  # type: ignore[call-arg]
    store.cron.alter("s", pausd=True)  # type: ignore[call-arg]
    store.admin.purge(5)  # type: ignore[arg-type]
    store.integration.lease("q", 0)  # type: ignore[call-arg]
    store.recover()  # type: ignore[attr-defined]
    store.put("q", b"", priorty=1)  # type: ignore[call-arg]
    store.put("q", b"", delay="1")  # type: ignore[arg-type]
    store.put("q", priority=1)  # type: ignore[call-arg]
    store.put_stream("q", b"", expires=1.0)  # type: ignore[call-arg]
    store.put_stream("q", b"", sender=5)  # type: ignore[arg-type]
    store.put_stream("q", request_id="r")  # type: ignore[call-arg]


def embedded_store(store: EmbeddedStore) -> None:
    """Where the store is this process's."""
    store.alter_queue("q", capasity=1)  # type: ignore[call-arg]
    store.alter_queue("q", capacity="1")  # type: ignore[arg-type]
    store.alter_queue()  # type: ignore[call-arg]
    store.cron.alter("s", pausd=True)  # type: ignore[call-arg]
    store.admin.purge(5)  # type: ignore[arg-type]
    store.integration.lease("q", 0)  # type: ignore[call-arg]
    store.put("q", b"", priorty=1)  # type: ignore[call-arg]
    store.put("q", b"", delay="1")  # type: ignore[arg-type]
    store.put("q", priority=1)  # type: ignore[call-arg]
    store.put_stream("q", b"", expires=1.0)  # type: ignore[call-arg]
    store.put_stream("q", b"", sender=5)  # type: ignore[arg-type]
    store.put_stream("q", request_id="r")  # type: ignore[call-arg]


def joined_store(store: JoinedStore) -> None:
    """Where it is another one's."""
    store.alter_queue("q", capasity=1)  # type: ignore[call-arg]
    store.alter_queue("q", capacity="1")  # type: ignore[arg-type]
    store.alter_queue()  # type: ignore[call-arg]
    store.cron.alter("s", pausd=True)  # type: ignore[call-arg]
    store.admin.purge(5)  # type: ignore[arg-type]
    store.integration.lease("q", 0)  # type: ignore[call-arg]
    store.put("q", b"", priorty=1)  # type: ignore[call-arg]
    store.put("q", b"", delay="1")  # type: ignore[arg-type]
    store.put("q", priority=1)  # type: ignore[call-arg]
    store.put_stream("q", b"", expires=1.0)  # type: ignore[call-arg]
    store.put_stream("q", b"", sender=5)  # type: ignore[arg-type]
    store.put_stream("q", request_id="r")  # type: ignore[call-arg]


async def async_store(store: AsyncStore) -> None:
    """Where calls are awaited."""
    await store.alter_queue("q", capasity=1)  # type: ignore[call-arg]
    await store.alter_queue("q", capacity="1")  # type: ignore[arg-type]
    await store.alter_queue()  # type: ignore[call-arg]
    await store.cron.alter("s", pausd=True)  # type: ignore[call-arg]
    await store.admin.purge(5)  # type: ignore[arg-type]
    await store.integration.lease("q", 0)  # type: ignore[call-arg]
    await store.put("q", b"", priorty=1)  # type: ignore[call-arg]
    await store.put("q", b"", delay="1")  # type: ignore[arg-type]
    await store.put("q", priority=1)  # type: ignore[call-arg]
    await store.put_stream("q", b"", expires=1.0)  # type: ignore[call-arg]
    await store.put_stream("q", b"", sender=5)  # type: ignore[arg-type]
    await store.put_stream("q", request_id="r")  # type: ignore[call-arg]


# Of a transaction


def transaction(txn: Transaction) -> None:
    """The interface."""
    txn.put("q", b"", priorty=1)  # type: ignore[call-arg]
    txn.put("q", b"", delay="1")  # type: ignore[arg-type]
    txn.put("q", priority=1)  # type: ignore[call-arg]
    txn.put_stream("q", b"", expires=1.0)  # type: ignore[call-arg]
    txn.put_stream("q", b"", sender=5)  # type: ignore[arg-type]
    txn.put_stream("q", request_id="r")  # type: ignore[call-arg]
    txn.put_writer("q", durable=True)  # type: ignore[call-arg]
    txn.put_writer("q", deliver_at="now")  # type: ignore[arg-type]
    txn.put_writer()  # type: ignore[call-arg]


def embedded_transaction(txn: EmbeddedTransaction) -> None:
    """Of a store of this process."""
    txn.put("q", b"", priorty=1)  # type: ignore[call-arg]
    txn.put("q", b"", delay="1")  # type: ignore[arg-type]
    txn.put("q", priority=1)  # type: ignore[call-arg]
    txn.put_stream("q", b"", expires=1.0)  # type: ignore[call-arg]
    txn.put_stream("q", b"", sender=5)  # type: ignore[arg-type]
    txn.put_stream("q", request_id="r")  # type: ignore[call-arg]
    txn.put_writer("q", durable=True)  # type: ignore[call-arg]
    txn.put_writer("q", deliver_at="now")  # type: ignore[arg-type]
    txn.put_writer()  # type: ignore[call-arg]


def joined_transaction(txn: JoinedTransaction) -> None:
    """Of a store of another one."""
    txn.put("q", b"", priorty=1)  # type: ignore[call-arg]
    txn.put("q", b"", delay="1")  # type: ignore[arg-type]
    txn.put("q", priority=1)  # type: ignore[call-arg]
    txn.put_stream("q", b"", expires=1.0)  # type: ignore[call-arg]
    txn.put_stream("q", b"", sender=5)  # type: ignore[arg-type]
    txn.put_stream("q", request_id="r")  # type: ignore[call-arg]
    txn.put_writer("q", durable=True)  # type: ignore[call-arg]
    txn.put_writer("q", deliver_at="now")  # type: ignore[arg-type]
    txn.put_writer()  # type: ignore[call-arg]


async def async_transaction(txn: AsyncTransaction) -> None:
    """Where calls are awaited."""
    await txn.put("q", b"", priorty=1)  # type: ignore[call-arg]
    await txn.put("q", b"", delay="1")  # type: ignore[arg-type]
    await txn.put("q", priority=1)  # type: ignore[call-arg]
    await txn.put_stream("q", b"", expires=1.0)  # type: ignore[call-arg]
    await txn.put_stream("q", b"", sender=5)  # type: ignore[arg-type]
    await txn.put_stream("q", request_id="r")  # type: ignore[call-arg]
    await txn.put_writer("q", durable=True)  # type: ignore[call-arg]
    await txn.put_writer("q", deliver_at="now")  # type: ignore[arg-type]
    await txn.put_writer()  # type: ignore[call-arg]


def connection(own: Connection) -> None:
    """Of the calls by PEP 249."""
    own.put("q", b"", priorty=1)  # type: ignore[call-arg]
    own.put("q", b"", delay="1")  # type: ignore[arg-type]
    own.put("q", priority=1)  # type: ignore[call-arg]
