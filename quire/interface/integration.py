"""Calls for connectors to other systems: `store.integration`, `txn.integration`.

Spark's source and sink use nothing else beside what every program does.
"""

# mypy: disable-error-code="empty-body"
# The body of a row is its call.

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from quire.arguments import Bytes, check_key
from quire.calls.call_table import Makes, Subject, change, look, step
from quire.limits import DEFAULT_LEASE_SECONDS
from quire.messages.message_id import MessageIds
from quire.moments import Duration
from quire.reports.info import Lease, ShippingReport, ShippingState, StateLease, SubscriptionInfo

from . import starts as start_places


class CallTarget(Makes, Protocol):
    """A store object, as far as the subjects need it."""

    @property
    def store_id(self) -> int:
        """Its number."""

    def decide(self, xid: str, *, commit: bool) -> None:
        """Commit a prepared transaction, or roll it back."""

    def make_subscriptions(
        self,
        subscription: str | None,
        starts: Mapping[str, start_places.Start],
        exclusive: bool | None,
        durable: bool | None,
        where: str | None,
    ) -> list[SubscriptionInfo]:
        """See `Integration.subscribe_many`: what is not durable ends with the store object."""

    def await_source(self, source: str, callback: Callable[[], None]) -> Callable[[], None]:
        """See `Integration.when_ready`."""


class Integration(Subject, path="integration"):
    """`store.integration`: positions, the ledger, leases, waiting without a thread.

    What every method raises is told with `Store`.
    """

    __slots__ = ()
    _of: CallTarget

    @property
    def store_id(self) -> int:
        """A number of 64 bits, drawn when the store was made."""
        return self._of.store_id

    @look(needs="browse queue:name")
    def positions(self, name: str) -> tuple[int, int]:
        """(the first position that is kept, the position that the next message gets).

        A position is a message's number in its queue's commit order, from 0. Raises QueueNotFound.
        """

    @look(needs="browse queues:names")
    def positions_many(self, names: Iterable[str]) -> dict[str, tuple[int, int]]:
        """The positions of many queues, by name, at one point of the commit order.

        So of a transaction that has put to several of them either all its messages are before the
        ends, or none. Raises QueueNotFound, InvalidArgument.
        """

    def subscribe_many(
        self,
        subscription: str | None,
        starts: Mapping[str, start_places.Start],
        exclusive: bool | None = None,
        durable: bool | None = None,
        where: str | None = None,
    ) -> list[SubscriptionInfo]:
        """Make subscriptions of topics with one commit: all of them, or none.

        `starts`: by queue, where `subscription` begins in it, as `Store.subscribe` takes it; or
        with None for its name, by "queue/subscription", for subscriptions of several names.
        `where`: a selector, of all of them. One that is there already stays as it is. Their order
        is that of the answer. Raises as `Store.subscribe`.
        """
        checked = start_places.checked_starts(subscription, starts)
        return self._of.make_subscriptions(subscription, checked, exclusive, durable, where)

    @look(needs="", shows="by_queue")
    def put_priorities(self) -> dict[str, int]:
        """Return the priorities that queues grant to messages put without one, by queue.

        For blocks and files that a connector makes itself: in a block with a column of priorities
        each message has its own. Raises StoreClosed.
        """

    def ledger(self, key: str) -> int | None:
        """The last version committed for the key (see `Transaction.enter`); None: none was."""
        return self.ledger_many([check_key(key)]).get(key)

    @look(needs="browse states:keys")
    def ledger_many(self, keys: Iterable[str]) -> dict[str, int]:
        """The last versions of many keys, in one call; without those for which none was committed.

        Raises InvalidArgument.
        """

    def lease(
        self,
        queue: str,
        start: int,
        end: int,
        seconds: Duration = DEFAULT_LEASE_SECONDS,
        gaps: bool = False,
    ) -> Lease:
        """Keep the messages of the positions [start, end) in place, for `engine.PieceReader`.

        Until `end_lease`, or for so many seconds; it ends with the owner's process too: then
        `renew_lease` raises PositionLost, and a new lease is to be taken. Raises QueueNotFound,
        PositionLost if some of them are not there (any more). With `gaps` those are left out
        instead, and the pieces are of the messages that nobody had released yet.
        """
        return self.lease_many([(queue, start, end)], seconds, gaps)[0]

    @change(again=True, needs="browse ranges:ranges, browse lasting:seconds", noted=False)
    def lease_many(
        self,
        ranges: Iterable[tuple[str, int, int]],
        seconds: Duration = DEFAULT_LEASE_SECONDS,
        gaps: bool = False,
    ) -> list[Lease]:
        """Keep many ranges in place, each a queue and its positions from start to end: or none.

        All are one lease: they have one id, by which `renew_lease` and `end_lease` are for all of
        them. `seconds` and `gaps` as for `lease`. Raises as `lease`.
        """

    @change(needs="get reader_names:names, get lasting:seconds", noted=False)
    def lease_names(self, names: Iterable[str], seconds: Duration = DEFAULT_LEASE_SECONDS) -> int:
        """Keep others from names, as "queue/subscription" of who streams by it; the lease's id.

        All of them or none, for so many seconds: a lease as any, which `renew_lease` and
        `end_lease` take, and which ends with the owner's process. Raises QueueInUse for a name that
        is held, InvalidArgument.
        """

    @change(again=True, needs="admin store")
    def lease_state(self, seconds: Duration = DEFAULT_LEASE_SECONDS) -> StateLease:
        """Keep all that the store holds durably now in place, as it is at one moment.

        Commits and checkpoints go on. What is released or moved meanwhile takes its space until the
        lease ends: by `end_lease`, in so many seconds from its latest `renew_lease`, or with the
        owner's process. Backups are made of it (docs/archive.md). Raises InvalidArgument for a
        store in memory, which has no files.
        """

    @change(again=True, needs="see lasting:seconds", noted=False)
    def renew_lease(self, lease_id: int, seconds: Duration = DEFAULT_LEASE_SECONDS) -> None:
        """Let a lease last so many seconds from now. Raises PositionLost if it has ended.

        Its id is 63 random bits, which only who has taken it knows.
        """

    @change(again=True, needs="")
    def end_lease(self, lease_id: int) -> None:
        """End a lease; nothing happens if it has ended already."""

    @look(needs="browse own_queue:queue", brings="places")
    def read_places(self, queue: str, places: Iterable[tuple[str, int, int, int]]) -> list[bytes]:
        """Return bytes of leased pieces, for who has none of the store's files: not verified.

        `places`: the kind and the address of each piece, an offset there, and a length; 4 MiB of
        them at most together. Of a large transaction's file they are fewer at its end. Raises
        PositionLost where no lease of the queue has the place or the file is gone, StoreCorrupt for
        bytes that the disk does not give, InvalidArgument.
        """

    @look(needs="browse own_queue:queue")
    def file_size(self, queue: str, ltds_id: int) -> int:
        """Return the size in bytes of a large transaction's file, of which a piece is leased.

        Raises PositionLost where none is, or the file is gone; InvalidArgument.
        """

    @change(again=True, needs="put queue:queue, put writer:writer", noted=False)
    def write_fragment(
        self, queue: str, ltds_id: int, offset: int, data: bytes, writer: str | None = None
    ) -> None:
        """Write a part of a file that `Transaction.integration.adopt` may take (`quire.ltds`).

        For who has none of the store's files; up to 4 MiB, durable when it returns. The part at 0
        makes the file, whose id is drawn anew for each. `queue`: one that is to have messages of
        it. `writer`: a user, to whom alone the file is there until it is adopted; the server of a
        store with users says it. A file that no transaction adopts within a day after its last part
        is removed. Raises InvalidArgument, PositionLost for a file that is gone, or belongs to a
        transaction, and DiskFull.
        """

    @look(needs="put writer:writer", brings="length")
    def read_fragment(
        self, ltds_id: int, offset: int, length: int, writer: str | None = None
    ) -> tuple[int, bytes]:
        """Return the size of a file that no transaction has adopted, and up to 4 MiB of its bytes.

        Raises PositionLost where there is none of the writer, InvalidArgument.
        """

    @change(again=True, needs="put writer:writer", noted=False)
    def remove_fragments(self, ltds_ids: Iterable[int], writer: str | None = None) -> None:
        """Remove files that no transaction has adopted; the others, and those gone, are left.

        Raises InvalidArgument.
        """

    @change(again=True, needs="admin store")
    def ship(self, report: ShippingReport | None = None) -> ShippingState:
        """Tell the owner how far the archive has the store's records, and return what is next.

        Called by the shipper of an archive, once a second; without a report where it begins. The
        owner syncs its journal, and lets go of released pages, files and segments that only
        records before the report's LSN name. Raises InvalidArgument for a report of what the
        journal does not have.
        """

    @change(again=True, needs="admin store")
    def archive_boundary(self, place: int) -> None:
        """Note durably that the archive's entries up to this place are not needed any more.

        They may be removed once this record is itself shipped. A place before the one that is noted
        has no effect. Raises InvalidArgument, also for a store without an archive.
        """

    def when_ready(self, source: str, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` as soon as something may be there to get: waiting without a thread.

        It is called once, at once if something is there already: from any thread, under locks of
        the store, so it must not wait or use the store, but tell somebody who does; what it raises
        is logged (`quire.callbacks`). Also when the queue or the subscription goes, and when the
        store object is closed or its owner is lost. Nothing is taken: another reader may be
        faster. What is returned withdraws it.

        `source`: as for `Transaction.get`; or "queue@7", for messages that are put from position 7
        on, whoever gets them, and "queue!7" or "topic/subscription!7", for removals from the number
        7 on (see `Listeners.poll_notices`). Raises QueueNotFound, SubscriptionNotFound,
        InvalidArgument for a callback that is no function. Where the source is missing a joined
        store calls back instead, and the get raises it.
        """
        return self._of.await_source(source, callback)


class TransactionIntegration(Protocol):
    """`txn.integration`: encoded blocks and finished files as parts of a transaction."""

    def put_block(self, queue: str, data: Bytes) -> MessageIds:
        """Put the messages of one encoded block (`quire.block`), which is verified first.

        Raises InvalidArgument for what is not exactly one block, StoreVersion for one of a newer
        release, and what `put` raises.
        """

    def put_blocks(self, blocks: Iterable[tuple[str, Bytes]]) -> list[MessageIds]:
        """Put blocks one after another, each into its queue; the ids of each block's messages.

        A joined store takes them some 256 KiB at a time: it asks for the queues, and tells its
        owner of the puts, together. Raises what `put_block` raises, and what `blocks` does: some
        of the blocks before are put then, and the transaction is open.
        """

    def adopt(self, queue: str, ltds_id: int) -> MessageIds:
        """Put the messages of a finished file that another process wrote (`quire.ltds`).

        The file is the store's once the commit has returned; a rollback leaves it to its writer.
        In a joined store how many they are is known after the commit, and errors come with it.

        Raises InvalidArgument unless the id is one of such a file, PositionLost if another
        transaction has it, StoreCorrupt if it is missing or damaged, and what `put` raises.
        """

    @step(needs="get sources:positions")
    def read_to_many(self, positions: Mapping[str, int]) -> dict[str, int]:
        """`Transaction.read_to` of many sources, each with its position; with an error, of none.

        In a joined store this is one request. Returns when the queue of each source was made, in
        microseconds since 1970: who has its position from another day sees whether it is of that
        queue, or of one that has its name since. Raises as `read_to`.
        """
