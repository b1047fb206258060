"""The interface of a transaction: what `store.transaction()` gives, embedded and joined alike.

A method with a body is made of others, alike for every store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    ForwardRef,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
    Union,
    Unpack,
)

from quire.arguments import Bytes, check_source
from quire.batches import delivered_messages
from quire.batches.moved_messages import Moving
from quire.calls.call_table import step
from quire.definitions.retry import Retry
from quire.libraries import pa
from quire.messages import payload_writer, put_options
from quire.messages.message import Message
from quire.messages.message_id import MessageId, MessageIds
from quire.moments import Duration
from quire.reports.info import Description

from . import lookup
from . import starts as start_places
from .integration import TransactionIntegration

T_co = TypeVar("T_co", covariant=True)

Payload: TypeAlias = Bytes | Mapping[str, Any] | Any
"""The payload of one message: bytes; for a typed queue a mapping of its columns (or a batch of one
row); for a queue with a codec any value that this takes."""

if TYPE_CHECKING:
    Payloads: TypeAlias = (
        Sequence[Bytes]
        | Sequence[Mapping[str, Any]]
        | Sequence[Any]
        | pa.Array
        | pa.ChunkedArray
        | pa.RecordBatch
        | pa.Table
    )
else:  # the same, for who reads annotations: PyArrow is loaded then
    _NAMES = ("Array", "ChunkedArray", "RecordBatch", "Table")
    _ARROW = [ForwardRef(f"pa.{name}", module="quire.libraries") for name in _NAMES]
    Payloads = Union[(Sequence[Bytes], Sequence[Mapping[str, Any]], Sequence[Any], *_ARROW)]


class Transaction(Protocol):
    """Puts to and gets from any number of queues, committed as one or not at all.

    Made by `store.transaction()`, and used by one thread at a time. As a `with` block it commits at
    the end, and rolls back on an exception; one that is prepared is left to its decision.

        with store.transaction() as txn:
            order = txn.get("orders", timeout=10.0)
            if order is not None:
                txn.put("bills", order.payload)

    | state | how |
    |---|---|
    | open | from the beginning |
    | prepared | `prepare` returned: only `commit` and `rollback` can follow |
    | committed | `commit` returned: all of it is durable and visible |
    | rolled back | `rollback`, an exception, a time-out, `store.admin.abort`, the store's end |
    | in doubt | the disk failed, or the owner was lost, while it was committed |

    Nothing of it is visible to others before its commit. What it has got is in flight: hidden from
    others until it ends, and available again at its place in the order if it is rolled back.

    Every call on one that is not open any more raises TransactionClosed; TransactionTimeout or
    TransactionAborted if it was ended from outside. In a joined store nobody waits for the answer
    to a put: what only the owner can find out (QueueFull) is raised by the commit, by prepare or by
    a later put, and leaves it open with all that was put. There every call raises ConnectionLost if
    the owner is gone: what was not committed or prepared is rolled back, and to be begun again.
    What is prepared is decided at the next owner.
    """

    __slots__ = ()

    @property
    def id(self) -> int:
        """Its number. That of a joined store's is the client's own, not the owner's."""

    @property
    def state(self) -> str:
        """ "open", "prepared", "committed", "rolled back" or "in doubt"."""

    # Putting

    def put(
        self,
        queue: str,
        payload: Payload,
        **options: Unpack[put_options.PutOptions],
    ) -> MessageId:
        """Put one message; its id is an int once the transaction has committed.

        `payload`: up to 1 GiB; in a typed queue a mapping of its columns, where those that are left
        out are null, or a RecordBatch of one row. `options`: what the message has besides, and how
        it is put, see `PutOptions`. An error leaves the transaction as it was.

        Raises QueueNotFound, QueueFull, DiskFull (if its messages had to leave memory for a file,
        it is rolled back), InvalidArgument (also for what the queue does not obey).
        """

    def put_many(
        self,
        queue: str,
        payloads: Payloads,
        *,
        timeout: Duration | None = None,
        request_ids: Sequence[str] | None = None,
    ) -> MessageIds:
        """Put many messages, all or with an error none; their ids, in the same order.

        `payloads`: a list of bytes; a pyarrow array of binary or string without nulls; or a
        RecordBatch or Table with a column `payload` and any of the columns of
        `quire.MESSAGE_SCHEMA` that `put` takes. In a typed queue: a RecordBatch, a Table or a
        DataFrame of pandas or polars, with the queue's columns in any order, and a struct `_meta`
        of what else `put` takes, if need be; or a list of mappings, without `_meta`. Where a value
        does not fit, the error names its column. `timeout`: seconds, as for `put`. `request_ids`:
        one for each payload, as `put` takes it, where they are bytes; those of which a put is known
        are not put again, and have that one's id in the answer. Raises as `put`.
        """

    def put_stream(
        self,
        queue: str,
        source: payload_writer.Source,
        *,
        size: int | None = None,
        timeout: Duration | None = None,
        **options: Unpack[put_options.MessageOptions],
    ) -> MessageId:
        """Put one message whose payload may be larger than memory: up to 256 GiB.

        `source`: a binary file, bytes, or an iterable of bytes, which is read to its end. A payload
        above 1 MiB goes to a file as it is read, and about 5 MiB of it are in memory at a time; a
        smaller one is put as by `put`. Readers get one message; `Message.open` reads its payload
        piece by piece. The queue's capacity holds for all of it, `max_stream_bytes` in the stead of
        `max_message_bytes`; the queue must not be volatile.

        `size`: bytes of the payload, if they are known: the queue's space for all of them is taken
        before the first is written, and another number is an error. `timeout`: seconds, as for
        `put`, each time that the queue has no room. Takes what `put` takes besides, but no
        `request_id`.

        An error, also one that the source raises, leaves the transaction as it was, and nothing of
        the message. Raises what `put` raises, and InvalidArgument for a source that gives no bytes.
        """
        with self.put_writer(queue, size=size, timeout=timeout, **options) as writer:
            for piece in payload_writer.pieces_of(source):
                writer.write(piece)
        return writer.message_id

    def put_writer(
        self,
        queue: str,
        *,
        size: int | None = None,
        timeout: Duration | None = None,
        **options: Unpack[put_options.MessageOptions],
    ) -> payload_writer.PayloadWriter:
        """Put one message whose payload is written: `write` takes its bytes, `finish` puts it.

        Takes what `put_stream` takes, but for the source, `timeout` in seconds. As a `with` block
        it is finished at the end, and on an exception nothing is put. Once more
        than 1 MiB is written, and until it is finished or abandoned, the transaction refuses other
        puts into the queue, and its commit (TransactionError). Raises as `put_stream`.
        """

    @property
    def integration(self) -> TransactionIntegration:
        """The further puts and reads of connectors: blocks, files, positions of many sources."""

    # Getting

    @step(waits=True, needs="get source:source")
    def get(
        self,
        source: str,
        timeout: Duration | None = 0.0,
        *,
        id: lookup.MessageKey | None = None,
        where: lookup.Where | None = None,
    ) -> Message | None:
        """Take the next message; None if none came within `timeout` seconds (None: for ever).

        `source`: "queue" for a work queue, "queue/subscription" for a topic, or a pattern of
        either, as "orders.*", by whose queues it goes in turn (docs/handling.md). `id`: take that
        very message, wherever it stands. `where`: the first, in the order of delivery, that a
        selector (a text, docs/selectors.md) or a `Template` holds for.

        By `id` None is returned where the message is not there, was read, or is not due yet. Where
        another transaction has it, that one's end is waited for up to `timeout` seconds; then
        LockTimeout is raised, and this one stays open. Deadlock is raised at once where the other
        one waits, itself or by way of others, for a message of this one, which is rolled back.

        Raises QueueNotFound, SubscriptionNotFound, StoreCorrupt (it stays where it is),
        InvalidArgument, InvalidSelector.
        """

    @step(waits=True, needs="get source:source")
    def get_many(
        self,
        source: str,
        max_messages: int = 1000,
        timeout: Duration | None = 0.0,
        *,
        where: lookup.Where | None = None,
    ) -> delivered_messages.Messages:
        """Take up to `max_messages`, as they are there; waits `timeout` seconds for the first
        (None: for ever).

        A lazy sequence of `Message`, empty if none came. `where`: as for `get`; of an id that
        message alone. Raises as `get`.
        """

    def get_arrow(
        self, source: str, max_messages: int = 65536, timeout: Duration | None = 0.0
    ) -> pa.RecordBatch:
        """Take messages as one batch of `quire.MESSAGE_SCHEMA`, of no rows if none came.

        Waits up to `timeout` seconds as `get` does, for ever with None. Raises as `get`, and
        InvalidArgument above 2 GiB, which one batch cannot hold, and for a streamed message above
        1 GiB: get that, and read it by its `open`.
        """
        return self.get_many(source, max_messages, timeout).to_arrow()

    # Looking

    @step(waits=True, needs="get source:source")
    def read_many(
        self,
        source: str,
        max_messages: int = 1000,
        timeout: Duration | None = 0.0,
        *,
        where: lookup.Where | None = None,
        hold: bool = False,
    ) -> delivered_messages.Messages:
        """Look at up to `max_messages`, the first in the order of delivery, and take nothing.

        All that is committed and not read counts, also what another transaction has, and what is
        not due yet; so what is seen may be gone the moment after. `where`: as for `get`; None: all.
        Waits up to `timeout` seconds for the first (None: for ever). `hold`: only what could be got
        now, and nobody else gets it until this transaction ends; it stays in the queue, unless this
        transaction takes it by its id (`get`, `remove`). A transaction that has held anything
        cannot be prepared.

        Raises as `get`; LockTimeout and Deadlock with `hold` only.
        """

    def read(
        self,
        source: str,
        timeout: Duration | None = 0.0,
        *,
        id: lookup.MessageKey | None = None,
        where: lookup.Where | None = None,
        hold: bool = False,
    ) -> Message | None:
        """Look at one message, by its `id` or the first that `where` holds for; see `read_many`.

        Waits `timeout` seconds for it (None: for ever). None: there is none. Raises as `read_many`.
        """
        chosen = lookup.where_of(id, where)
        return lookup.first_of(self.read_many(source, 1, timeout, where=chosen, hold=hold))

    @step(needs="browse source:source")
    def browse(
        self,
        source: str,
        max_messages: int = 1000,
        *,
        after: lookup.Seen | None = None,
        where: lookup.Where | None = None,
    ) -> delivered_messages.Messages:
        """Look through a queue as it is at the first such call of this transaction, page by page.

        What others put and read meanwhile is not seen, however long it takes: each call shows the
        same state. In commit order, up to `max_messages` of them, behind `after`: the last message
        of the page before, or its id; None: from the first on. `source` and `where` as for
        `Store.browse`.

        What is read meanwhile takes room until the transaction ends: of more than 100,000 blocks,
        or 256 MiB, PositionLost is raised. Such a transaction cannot be prepared. Raises as
        `Store.browse`.
        """

    @step(waits=True, needs="browse source:source")
    def describe(
        self,
        source: str,
        max_messages: int = 1000,
        timeout: Duration | None = 0.0,
        *,
        where: lookup.Where | None = None,
    ) -> list[Description]:
        """Header and attributes of messages, without their payloads; what `read_many` looks at.

        Waits `timeout` seconds for the first. Raises as `get`.
        """

    def attributes(
        self, source: str, id: lookup.MessageKey, timeout: Duration | None = 0.0
    ) -> Description | None:
        """Header and attributes of one message, by its id; None: it is not there, or was read.

        Waits up to `timeout` seconds for it to be committed (None: for ever). Raises QueueNotFound,
        SubscriptionNotFound, StoreCorrupt, InvalidArgument.
        """
        found = self.describe(source, 1, timeout, where=lookup.check_key_of(id))
        return found[0] if found else None

    @step(waits=True, needs="browse source:source")
    def count(
        self, source: str, timeout: Duration | None = 0.0, *, where: lookup.Where | None = None
    ) -> int:
        """How many messages `where` holds for, counted as `read_many` sees them.

        Waits up to `timeout` seconds for the first. Raises as `get`.
        """

    def exists(
        self, source: str, timeout: Duration | None = 0.0, *, where: lookup.Where | None = None
    ) -> bool:
        """Return True if there is any message that `where` holds for.

        Waits up to `timeout` seconds for one. Raises as `get`.
        """
        return bool(self.describe(source, 1, timeout, where=where))

    @step(waits=True, needs="get source:source")
    def remove(self, source: str, id: lookup.MessageKey, timeout: Duration | None = 0.0) -> bool:
        """Take a message away by its id, without looking at it; whether it was there.

        With the commit it counts as read. On a topic this subscription alone does not get it.
        What another transaction has is waited for, up to `timeout` seconds. Raises as `get`, also
        LockTimeout and Deadlock.
        """

    def move(
        self,
        source: str | Iterable[Message],
        queue: str,
        max_messages: int = 1000,
        *,
        where: lookup.Where | None = None,
    ) -> int:
        """Take messages and put them into another queue, as parts of this transaction; how many.

        `source`: as for `get`, of which the next `max_messages` are taken at most; or messages that
        this transaction has got, each once. `where`: only those of the source that a selector or a
        `Template` holds for, or the one with this id. They keep payload, header and attributes, and
        get those of a dead letter that tell where they come from (`quire.queue`,
        `quire.subscription`, `quire.deliveries`, `quire.reason`), but where they have them already;
        so `store.admin.redrive` puts them back. Their ids and times are new. An error leaves the
        transaction as it was, but where a streamed message cannot be put after others: then it is
        rolled back.

        Raises InvalidArgument for messages that it has not got (as `browse` shows them), has given
        back or has moved already; and as `get` and `put_many`. What it has moved is not given back
        by `reject` or `unget`.
        """

    @step(needs="get source:source")
    def get_delayed(
        self, source: str, message_id: int, *, to_change: bool = False
    ) -> Message | None:
        """Take a message that is not due yet, of a queue that is timed.

        Once committed it is gone, and what is put instead is there. `message_id`: as its put or
        `store.delayed` told it. None: it is due by now, or was taken or read. Where the queue is
        grouped this is a delivery as any other: the transaction has the message's group until it
        ends, and None is returned too while another one has it, or while the group waits for a
        message that was rejected. `to_change`: nobody handles the message, it is cancelled or put
        anew (as `store.delayed` does); then its group does not count.
        Raises as `get`.
        """

    @step(needs="")
    def unget(self) -> None:
        """Give back what the latest get, get_many or get_arrow took, as if it had not been called.

        It is available again at its place in the order, to others too, and does not count as
        delivered: where the queue has `max_deliveries` that is noted, without a sync of its own.
        For calls whose result did not arrive where it was to go; call it right after the one that
        took something. What was rejected since is not given back twice. Raises TransactionClosed.
        """

    @step(needs="")
    def reject(
        self, message: Message, reason: str = "", delay: Duration | Retry | None = None
    ) -> None:
        """Give back one message that this transaction has got: it failed, the others did not.

        At once, whatever becomes of the transaction. It is delivered again at its place in the
        order, after `delay`: seconds, or a retry policy (see `QueueOptions.retry`); by default the
        queue's own, where it has one; it waits over a restart, too. Or, once it was
        delivered as often as the queue's `max_deliveries` says, it goes to the queue's
        `dead_letter` with `reason`, up to 4 KiB, among its attributes (docs/handling.md).
        Raises InvalidArgument where the transaction has not got it, or a `read_to` has passed it
        meanwhile; TransactionClosed.
        """

    def read_to(self, source: str, position: int) -> None:
        """Count all messages below the position as read, when this transaction commits.

        Raises as `get`, InvalidArgument for a position that the queue does not have.
        """
        self.integration.read_to_many({check_source(source): position})

    @step(waits=True, needs="get source:source")
    def seek(self, source: str, to: start_places.Start, timeout: Duration = 0.0) -> None:
        """Move a subscription, back or forward, when this transaction commits.

        Then all that is kept from there on is unread, also what was read before, and all before it
        is read, also what this transaction has got of it. `source`: as for `get`; a work queue
        keeps nothing that was read, so it can only be moved forward. `to`: "earliest" (the first
        that is kept), "latest" (behind what is committed now), a position, a time or a message,
        as for `Store.subscribe`. Of several seeks of one source the last one holds.

        From this call until the transaction ends nobody gets anything of the subscription: others
        wait as if nothing were there, and this transaction's gets and `read_to` raise
        TransactionError. What others have got already has to be ended first, and is waited for up
        to `timeout` seconds; then QueueInUse is raised. Such a transaction cannot be prepared.

        Raises PositionLost where the position, or the message, is not kept any more; so does the
        commit if it went meanwhile. InvalidArgument for a position that the queue does not have,
        and what `get` raises.
        """

    # State

    @step(needs="browse state:name")
    def get_value(self, name: str, key: str) -> bytes | None:
        """A value of a state; None: there is none.

        As this transaction has set it, else as it was committed when this transaction read it
        first. If another one changes it after that, the commit raises StateConflict, unless this
        transaction has done nothing but read states: so what it writes is made of what is there.
        `name`: as for a queue. `key`: printable, 1 to 1,024 bytes in UTF-8. Raises InvalidArgument.
        """

    def set_value(self, name: str, key: str, value: Bytes | None) -> None:
        """Set a value of a state when this transaction commits; None: delete it.

        Where it was not read before, the value of the last commit holds. `value`: up to 1 MiB. All
        that a transaction sets may take 4 MiB (a value counts four thirds), or a quarter of the
        journal's segments where that is less. A name may have 16 MiB, all names 32 MiB and 100,000
        keys; a key counts its bytes, those of its value, and 64.

        Raises InvalidArgument, and StateFull where that would be more, with what open transactions
        set; then it sets what it did before. In a joined store StateFull is raised by the commit or
        the prepare, which leaves the transaction open.
        """

    # Ending

    @step(needs="")
    def extend(self, seconds: Duration) -> None:
        """Let it stay open for so many seconds from now on, if it would be rolled back sooner.

        For work that takes longer than the transaction's `timeout`: call it again now and then.
        Raises InvalidArgument, and TransactionTimeout where its time is over already.
        """

    def enter(self, key: str, version: int) -> None:
        """Enter key and version into the store's ledger, with the commit.

        The commit raises AlreadyCommitted when the ledger holds the key with this or a later
        version: a client that repeats a commit whose outcome it does not know does it once.
        `key`: 1 to 1,024 bytes in UTF-8. `version`: 0 to 2**63 - 1. Raises InvalidArgument.
        """

    def commit(self, timeout: Duration | None = None) -> None:
        """Make all of it durable and visible at once.

        Durable a little later, where the transaction was begun with `durable=False`. `timeout`:
        seconds to wait while a queue has no room for the commit's own record; by default the
        store's option `commit_timeout`. Once it is prepared this is the decision.

        Raises QueueFull, DiskFull, KeyHeld and StoreCorrupt (it stays open, but where its messages
        were lost on their way to a file: try again or roll back), AlreadyCommitted and
        StateConflict (it is rolled back), StoreFailed (in doubt: reopen the store), and in a joined
        store OutcomeUnknown (in doubt: the owner was lost before it answered, and no entry of the
        ledger tells).
        """

    def rollback(self) -> None:
        """Drop what was put, give back what was got. Nothing happens if it has ended already.

        Of one that is prepared this is the decision, and raises as `store.prepared.rollback`.
        """

    def prepare(self, xid: str, timeout: Duration | None = None) -> None:
        """Make all of it durable and leave it undecided, under a name: two-phase commit.

        What can fail fails here. From then on nothing but a decision ends it: `commit` or
        `rollback`, or `store.prepared.commit` and `rollback` with the xid, also after a
        crash. `xid`: printable, 1 to 200 bytes in UTF-8. `timeout`: seconds, as for
        `commit`.

        Raises XidExists (it stays open), InvalidArgument if it was begun with `durable=False`, and
        what `commit` raises; OutcomeUnknown and StoreFailed: `store.prepared.list`, of the store
        opened again, lists the xid or does not.
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


class Streaming(Transaction, Moving, Protocol):
    """A transaction, with what moving messages and putting streams need."""

    @step(needs="")
    def mark_moved(self, messages: Iterable[Message]) -> None:
        """These are about to be put elsewhere.

        Raises InvalidArgument where one was not got, is given back already, or is moved already.
        """

    @step(needs="")
    def unmark_moved(self) -> None:
        """Take back the latest mark."""


class TransactionSource(Protocol[T_co]):
    """A store, as far as it begins transactions."""

    def transaction(
        self,
        timeout: Duration | None = None,
        large: bool = False,
        owner: str | None = None,
        durable: bool = True,
    ) -> T_co:
        """A new one."""
