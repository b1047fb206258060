"""Quire for asyncio: the same store, owned or joined, with coroutines for methods.

    async with quire.aio.open("orders.quire") as store:
        async with store.transaction() as txn:
            order = await txn.get("orders", timeout=60.0)

What a call does, takes and raises is told by `Store` and `Transaction`. Calls of a store that this
process owns, which wait for its disk, run in a few threads of the store object; those of a joined
store in the event loop's thread, where none waits for another. A get that waits has no thread: any
number of tasks may wait, and messages go to those of a source in the order in which they came.

A call that is cancelled has had no effect, or is finished first: CancelledError comes once its
effect is there, so `txn.state` tells whether a commit took place. A get that raises CancelledError
has taken nothing. If a call that gets in a transaction of its own (`store.get`, `get_many`,
`request`, a session's `take`) is cancelled when its commit has begun, it returns what it has taken,
and the task is cancelled where it waits next, unless whoever cancelled it has withdrawn that. A
store whose owner does not answer is the exception: CancelledError then comes from OutcomeUnknown. A
transaction's `async with` block that is cancelled is rolled back.
"""

from .consumer import AsyncConsumer
from .listener import AsyncListener
from .payloads import AsyncPayload, AsyncPayloadWriter
from .repeated_transactions import run_transaction
from .session import AsyncSession
from .store import AsyncStore, open
from .transaction import AsyncTransaction
from .workers import AsyncWorkers

__all__ = [
    "AsyncConsumer",
    "AsyncListener",
    "AsyncPayload",
    "AsyncPayloadWriter",
    "AsyncSession",
    "AsyncStore",
    "AsyncTransaction",
    "AsyncWorkers",
    "open",
    "run_transaction",
]
