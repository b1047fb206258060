"""Wrong puts in every form of a store and of a transaction: mypy refuses each (nothing is run).

Every `type: ignore` here names the error that a caller is told: an option that is misspelt, one of
a wrong type, an argument that is missing. Where mypy does not find it any more, the comment is one
too many, which is an error of `make check` (strict: `warn_unused_ignores`).
"""

from __future__ import annotations

from quire.aio import AsyncStore, AsyncTransaction
from quire.coordination import Connection
from quire.engine import EmbeddedStore
from quire.engine.transactions.transaction import EmbeddedTransaction
from quire.remote import RemoteStore
from quire.remote.elected_store import ElectedStore
from quire.remote.elected_transaction import ElectedTransaction
from quire.remote.remote_transaction import RemoteTransaction
from quire.store import Store
from quire.transaction import Transaction

# Those of a store


def store(store: Store) -> None:
    """See the module."""
    store.put("q", b"", priorty=1)  # type: ignore[call-arg]
    store.put("q", b"", delay="1")  # type: ignore[arg-type]
    store.put("q", priority=1)  # type: ignore[call-arg]
    store.put_stream("q", b"", expires=1.0)  # type: ignore[call-arg]
    store.put_stream("q", b"", sender=5)  # type: ignore[arg-type]
    store.put_stream("q", request_id="r")  # type: ignore[call-arg]


def embedded_store(store: EmbeddedStore) -> None:
    """See the module."""
    store.put("q", b"", priorty=1)  # type: ignore[call-arg]
    store.put("q", b"", delay="1")  # type: ignore[arg-type]
    store.put("q", priority=1)  # type: ignore[call-arg]
    store.put_stream("q", b"", expires=1.0)  # type: ignore[call-arg]
    store.put_stream("q", b"", sender=5)  # type: ignore[arg-type]
    store.put_stream("q", request_id="r")  # type: ignore[call-arg]


def remote_store(store: RemoteStore) -> None:
    """See the module."""
    store.put("q", b"", priorty=1)  # type: ignore[call-arg]
    store.put("q", b"", delay="1")  # type: ignore[arg-type]
    store.put("q", priority=1)  # type: ignore[call-arg]
    store.put_stream("q", b"", expires=1.0)  # type: ignore[call-arg]
    store.put_stream("q", b"", sender=5)  # type: ignore[arg-type]
    store.put_stream("q", request_id="r")  # type: ignore[call-arg]


def elected_store(store: ElectedStore) -> None:
    """See the module."""
    store.put("q", b"", priorty=1)  # type: ignore[call-arg]
    store.put("q", b"", delay="1")  # type: ignore[arg-type]
    store.put("q", priority=1)  # type: ignore[call-arg]
    store.put_stream("q", b"", expires=1.0)  # type: ignore[call-arg]
    store.put_stream("q", b"", sender=5)  # type: ignore[arg-type]
    store.put_stream("q", request_id="r")  # type: ignore[call-arg]


async def async_store(store: AsyncStore) -> None:
    """See the module."""
    await store.put("q", b"", priorty=1)  # type: ignore[call-arg]
    await store.put("q", b"", delay="1")  # type: ignore[arg-type]
    await store.put("q", priority=1)  # type: ignore[call-arg]
    await store.put_stream("q", b"", expires=1.0)  # type: ignore[call-arg]
    await store.put_stream("q", b"", sender=5)  # type: ignore[arg-type]
    await store.put_stream("q", request_id="r")  # type: ignore[call-arg]


# Those of a transaction


def transaction(txn: Transaction) -> None:
    """See the module."""
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
    """See the module."""
    txn.put("q", b"", priorty=1)  # type: ignore[call-arg]
    txn.put("q", b"", delay="1")  # type: ignore[arg-type]
    txn.put("q", priority=1)  # type: ignore[call-arg]
    txn.put_stream("q", b"", expires=1.0)  # type: ignore[call-arg]
    txn.put_stream("q", b"", sender=5)  # type: ignore[arg-type]
    txn.put_stream("q", request_id="r")  # type: ignore[call-arg]
    txn.put_writer("q", durable=True)  # type: ignore[call-arg]
    txn.put_writer("q", deliver_at="now")  # type: ignore[arg-type]
    txn.put_writer()  # type: ignore[call-arg]


def remote_transaction(txn: RemoteTransaction) -> None:
    """See the module."""
    txn.put("q", b"", priorty=1)  # type: ignore[call-arg]
    txn.put("q", b"", delay="1")  # type: ignore[arg-type]
    txn.put("q", priority=1)  # type: ignore[call-arg]
    txn.put_stream("q", b"", expires=1.0)  # type: ignore[call-arg]
    txn.put_stream("q", b"", sender=5)  # type: ignore[arg-type]
    txn.put_stream("q", request_id="r")  # type: ignore[call-arg]
    txn.put_writer("q", durable=True)  # type: ignore[call-arg]
    txn.put_writer("q", deliver_at="now")  # type: ignore[arg-type]
    txn.put_writer()  # type: ignore[call-arg]


def elected_transaction(txn: ElectedTransaction) -> None:
    """See the module."""
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
    """See the module."""
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
    """See the module."""
    own.put("q", b"", priorty=1)  # type: ignore[call-arg]
    own.put("q", b"", delay="1")  # type: ignore[arg-type]
    own.put("q", priority=1)  # type: ignore[call-arg]
