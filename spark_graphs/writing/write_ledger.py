"""The store's ledger of writes that may be repeated: which are there already.

YG1. A write is known by who writes (the query's id, or `txnAppId`), by its number (of the
    micro-batch, or `txnVersion`), and by the queue that it goes to, as that was made. So one that
    has the number of another and goes elsewhere is written: a query with a copy of another one's
    checkpoint, or the second write of a `foreachBatch`. A stream that names no queue is known
    without: its rows say where they go, and need not say the same when a micro-batch is repeated.
YG2. A write with the number of one that is there, and with other content, is an error and never
    skipped. The content of a micro-batch is its input (committed_input.py, YN1), that of a batch
    write is its rows, in whatever order and tasks (content_digest.py).
YG3. Where queries have written by a `txnAppId`, one of another checkpoint is refused whose numbers
    begin anew: without that all of it would be skipped until it has caught up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Protocol

from quire.checksum import checksum
from quire.errors import InputChanged
from quire.spark_graphs import position_range
from quire.spark_graphs.checkpoint import committed_input
from quire.spark_graphs.limits import DIGEST_BITS

if TYPE_CHECKING:
    from quire.interface.store import Store
    from quire.interface.transaction import Transaction

_DIGEST_MASK = (1 << DIGEST_BITS) - 1
_NO_QUERY = 0


class WriteLedger(Protocol):
    """The ledger's side of one write."""

    def missing(self, store: Store, queues: Collection[str]) -> set[str]:
        """Return those of the queues that do not have this write yet. Raises InputChanged (YG2)."""

    def enter(self, txn: Transaction) -> None:
        """Enter that the queues have it which `missing` has returned last."""

    def describe(self) -> str:
        """Return a name of the write, for logs and errors."""


class StreamLedger:
    """The ledger of a streaming query's micro-batch."""

    def __init__(
        self,
        query_id: str,
        batch_id: int,
        input_digest: int | None = None,
        queue: str | None = None,
    ) -> None:
        """`input_digest`: of the micro-batch (offset_log.py). `queue`: where all rows go (YG1)."""
        self._query_id = query_id
        self._batch_id = batch_id
        self._input_digest = input_digest
        self._queue = queue
        self._key = ledger_key(query_id)

    def missing(self, store: Store, queues: Collection[str]) -> set[str]:
        if self._queue is not None:
            queue = position_range.infos(store, [self._queue])[self._queue]
            self._key = ledger_key(self._query_id, queue.name, queue.created_us)
        last = store.integration.ledger(self._key)
        if last is None or last < self._batch_id:
            return set(queues)
        if self._input_digest is not None:
            committed_input.check_same(store, self._key, self._batch_id, self._input_digest, last)
        return set()

    def enter(self, txn: Transaction) -> None:
        txn.enter(self._key, self._batch_id)
        if self._input_digest is not None:
            made = committed_input.version_of(self._batch_id, self._input_digest)
            txn.enter(committed_input.input_key(self._key), made)

    def describe(self) -> str:
        return f"{self._key}, version {self._batch_id}"


class BatchLedger:
    """The ledger of a batch write with `txnAppId` and `txnVersion`.

    Two entries beside a queue's version say what was written last: a count of the writes, and below
    it a digest of the rows, and of the query that they are of.
    """

    def __init__(
        self,
        app_id: str,
        version: int,
        contents: Mapping[str, int] | None = None,
        query_id: str | None = None,
    ) -> None:
        """`contents`: the digests of the rows by queue; None: the version alone decides.

        `query_id`: of the streaming query in whose `foreachBatch` the write is, if it is known.
        """
        self._app_id = app_id
        self._version = version
        self._contents = contents
        self._query = _NO_QUERY if query_id is None else _short(checksum(query_id.encode()))
        self._keys: dict[str, str] = {}  # of the queues that do not have the write
        self._counts: dict[str, int] = {}

    def missing(self, store: Store, queues: Collection[str]) -> set[str]:
        found = position_range.infos(store, queues)
        keys = {name: ledger_key(self._app_id, name, q.created_us) for name, q in found.items()}
        known = store.integration.ledger_many(
            [entry for key in keys.values() for entry in (key, _content_key(key), _query_key(key))]
        )
        self._keys = {}
        for queue, key in keys.items():
            content = known.get(_content_key(key), -1)
            if known.get(key, -1) < self._version:
                self._keys[queue] = key
                self._counts[queue] = (content >> DIGEST_BITS) + 1
                continue
            self._check_same(queue, known[key], content, known.get(_query_key(key), 0), store.path)
        return set(self._keys)

    def enter(self, txn: Transaction) -> None:
        for queue, key in self._keys.items():
            count = self._counts[queue] << DIGEST_BITS
            txn.enter(key, self._version)
            txn.enter(_content_key(key), count | self._content(queue))
            txn.enter(_query_key(key), count | self._query)

    def describe(self) -> str:
        return f"txnAppId '{self._app_id}', txnVersion {self._version}"

    def _content(self, queue: str) -> int:
        """Return the digest of the queue's rows; 0: it is not known."""
        return 0 if self._contents is None else _short(self._contents.get(queue, 0))

    def _check_same(self, queue: str, last: int, content: int, query: int, path: str) -> None:
        """Raise InputChanged unless a write that is there is this one (YG2, YG3)."""
        query &= _DIGEST_MASK
        if self._query != query and _NO_QUERY not in (self._query, query):
            raise InputChanged(
                f"queue '{queue}' of the store {path} has version {last} of txnAppId "
                f"'{self._app_id}' by a query with another checkpoint than this one, whose "
                f"micro-batch {self._version} would be skipped. Nothing was written. A query with "
                "a new checkpoint counts its micro-batches from 0: give it a txnAppId of its own"
            )
        content &= _DIGEST_MASK
        mine = self._content(queue)
        if last == self._version and mine != content and 0 not in (mine, content):
            raise InputChanged(
                f"queue '{queue}' of the store {path} has version {last} of txnAppId "
                f"'{self._app_id}' with other rows than these. Nothing was written. Give each "
                "write to a queue a version, or a txnAppId, of its own. Where these are the rows "
                "of that version, computed once more with other values (current_timestamp(), "
                "rand()), set the option txnCheck to version"
            )


def ledger_key(identity: str, queue: str | None = None, created_us: int = 0) -> str:
    """Return the ledger's name for a query or a txnAppId, and a queue that it writes to (YG1)."""
    return f"spark:{identity}" if queue is None else f"spark:{identity}/{queue}@{created_us}"


def _content_key(key: str) -> str:
    return f"{key}#content"


def _query_key(key: str) -> str:
    return f"{key}#query"


def _short(digest: int) -> int:
    """Return a number of DIGEST_BITS that is not 0, which stands for nothing known."""
    return digest & _DIGEST_MASK or 1
