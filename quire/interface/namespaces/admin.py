"""Looking after a store: `store.admin`."""

# mypy: disable-error-code="empty-body"
# The body of a row is its call.

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from quire.arguments import check_name
from quire.calls.call_table import Subject, change, look
from quire.interface import lookup, redriving
from quire.interface import starts as start_places
from quire.limits import DEFAULT_ARCHIVE_LIMIT_BYTES
from quire.moments import Duration
from quire.reports import explanation
from quire.reports.info import (
    ArchiveInfo,
    CatalogItem,
    CompactReport,
    QueueInfo,
    QueueRecord,
    Report,
    TransactionInfo,
)
from quire.sizes import Size


class Admin(Subject, path="admin"):
    """`store.admin`: queues in bulk and by other names, open transactions, the files' care.

    What every method raises is told with `Store`.
    """

    __slots__ = ()
    _of: redriving.Redrives

    @change(needs="manage definitions:queues")
    def create_queues(self, queues: Iterable[str | Mapping[str, Any]]) -> list[QueueInfo]:
        """Make many queues with one commit, durably: all of them, or none.

        Each is a name, or a mapping of what `create_queue` takes: `{"name": "orders", "kind":
        "work"}`. Raises QueueExists, InvalidArgument, also where they do not fit one journal
        record (some 200 bytes each; segments of 64 MiB take more than the 100,000 that a store
        holds).
        """

    @look(needs="", shows="queue_names")
    def queue_names(self, prefix: str = "") -> list[str]:
        """The names of all queues, or of those that begin so, in their order; no aliases.

        Of many queues this costs a small part of what `Store.queues` does. Raises InvalidArgument.
        """

    @change(queues="old new", needs="admin queue:old, admin new_queue:new", shows="queue")
    def rename_queue(self, old: str, new: str) -> QueueInfo:
        """Give a queue another name, online and durably; as it is then.

        Messages, subscriptions, aliases and open transactions are of the queue and go on; where it
        takes the dead letters of other queues, these name it anew. Who uses the old name gets
        QueueNotFound, unless it is made an alias. Spark's streams know a queue by the name that
        they were given. Raises QueueNotFound, QueueExists, InvalidArgument (also for an alias).
        """

    @change(needs="manage queue:queue")
    def purge(
        self, queue: str, subscription: str | None = None, *, where: lookup.Where | None = None
    ) -> int:
        """Remove all that waits, durably; how many messages they were.

        What open and prepared transactions have got stays theirs, and what they have put comes
        when they commit. `subscription`: only the messages that wait for it go; None: those that
        wait for any, and messages that a topic keeps after all have read them. `where`: only those
        that a selector or a `Template` holds for (docs/selectors.md), or the one with this id. Up
        to 65,536 messages go in one commit, more in several (with `where` also where they stand in
        more than 1,024 runs): if the process ends in between, the rest stays.

        Raises QueueNotFound, SubscriptionNotFound, InvalidSelector, QueueInUse while an open
        transaction moves one of them (`seek`), StoreCorrupt if it cannot be told what it holds.
        """

    def redrive(
        self,
        queue: str,
        where: redriving.LetterChoice | None = None,
        max_messages: int | None = None,
        to: str | None = None,
    ) -> int:
        """Put dead letters back to the queues where they come from; how many they were.

        All that are there when the call begins, in their commit order, with what they were put
        with; the attributes that tell of their death are taken away. `where`: a selector, a
        `Template` or an id, as for `Transaction.get`, or a function of a message that says which;
        the others stay, and so does what is no dead letter: they are not
        counted as delivered. What others have got, what is not due, and what waits for a retry
        stays, too. `max_messages`: how many to put back; None: all. `to`: the queue to put them to
        instead, also what is no dead letter. What comes from one subscription of a topic goes to
        all of it.

        In a transaction for each 1,000: if one fails, what those before it have put back stays put
        back, and the error tells how many that are. No room is waited for: of what a queue cannot
        take as many go as it takes, then QueueFull is raised. Raises QueueNotFound, QueueFull,
        QueueDisabled, InvalidArgument, InvalidSelector, and what `where` raises.
        """
        return redriving.redrive(self._of, queue, where, max_messages, to)

    def move(
        self,
        source: str,
        queue: str,
        *,
        where: lookup.Where | None = None,
        max_messages: int | None = None,
    ) -> int:
        """Move messages to another queue, as `Transaction.move` does; how many they were.

        All that are there when the call begins, in their commit order, and not counted as
        delivered. What others have got, what is not due, and what waits for a retry stays. `where`:
        only those that a selector or a `Template` holds for, or the one with this id.
        `max_messages`: how many; None: all.

        In a transaction for each 1,000, as `redrive`: if one fails, what those before it have moved
        stays moved, and the error tells how many that are. No room is waited for. Raises
        QueueNotFound, SubscriptionNotFound, QueueFull, QueueDisabled, InvalidArgument (also for
        what the other queue cannot hold), InvalidSelector.
        """
        target = check_name(queue, "queue")
        return redriving.redrive(self._of, source, where, max_messages, target, is_moved=True)

    @change(queues="name", needs="manage alias:name, manage queue:queue")
    def create_alias(self, name: str, queue: str, replace: bool = False) -> None:
        """Give a queue one more name, durably: every call that names a queue takes it.

        But for `drop_queue` and `rename_queue`, which take the queue's own. An alias stays with its
        queue when that is renamed; while it has one a queue is not dropped. `replace`: one that is
        there is given to this queue, in one step; what open transactions have done stays.

        Raises QueueNotFound, QueueExists for a name that a queue or alias has, InvalidArgument
        (also for a queue that is not there after a restart, `persistent=False`).
        """

    @change(queues="name", needs="manage alias:name")
    def drop_alias(self, name: str) -> None:
        """Take an alias away, durably; its queue stays.

        Raises QueueNotFound, InvalidArgument for a queue's own name, QueueInUse where it is the
        `dead_letter` of a queue.
        """

    @look(needs="", shows="aliases")
    def aliases(self) -> dict[str, str]:
        """All aliases in the order of their names, each with the name of its queue."""

    @change(again=True, needs="admin store")
    def switch(self, puts: bool | None = None, gets: bool | None = None) -> dict[str, bool]:
        """Stop puts or gets of the store as a whole (False), or let them in (True), durably.

        None: as it is. How both are then, by name: without arguments it tells that. Where puts, or
        gets, are stopped, each of any queue raises QueueDisabled, also those that wait. What was
        put and got before may be committed. Queues keep their own properties `puts` and `gets`.
        Raises InvalidArgument.
        """

    @look(needs="admin store")
    def catalog(self, type: str | None = None) -> list[CatalogItem]:
        """Return the definitions of the store, by type and number.

        Types are "queue", "subscription", "alias" (of a queue), "schedule", "archive" and "store"
        (while it is stopped as a whole). `type`: these only. Raises InvalidArgument.
        """

    @look(needs="", shows="transactions")
    def transactions(self) -> list[TransactionInfo]:
        """All open transactions, whosever they are, the oldest first.

        One of a joined store is listed from the first request that reaches the owner.
        """

    @look(of_one_owner=True, needs="admin transaction:transaction_id", shows="transaction")
    def transaction(self, transaction_id: int) -> TransactionInfo:
        """One open transaction, by its id in `transactions`. Raises TransactionNotFound."""

    @change(again=True, of_one_owner=True, needs="admin transaction:transaction_id")
    def abort(self, transaction_id: int) -> None:
        """Roll back an open transaction, whosever it is; its owner gets TransactionAborted.

        Waits for a call that is using it right now. Raises TransactionNotFound if it is not open.
        """

    @change(again=True, of_one_owner=True, needs="admin store")
    def shutdown(self, *, grace: Duration = 0.0) -> None:
        """Have the process that serves the store close it, as at SIGTERM, and return at once.

        No more transactions are begun from now on, and those that are open may end, for `grace`
        seconds; what is open then is rolled back. Calls outside of transactions go on until the
        end. A further shutdown may shorten the time, and does not prolong it. Another process that
        has the store open, or waits for it, takes over then: `switch` stops a store for all of them
        (docs/operations.md).

        Raises NotAllowed where a program owns the store that is not `quire serve`, nor calls
        `quire.serve`: it closes the store itself. Raises InvalidArgument.
        """

    @change(again=True, needs="admin store")
    def checkpoint(self) -> None:
        """Make a checkpoint now: recovery will begin here, the journal's space is given back.

        Checkpoints are made by themselves; nobody has to ask. Raises StoreFailed, DiskFull.
        """

    @change(again=True, needs="admin store")
    def compact(self) -> CompactReport:
        """Give the disk back what the store keeps to go on with; the bytes before and after.

        It makes a checkpoint, goes on in a small segment of the journal, removes the spare ones,
        and moves what lies at the end of mostly free data files down, so that they are cut. What
        is kept back for a full disk stays. Commits go on meanwhile. The journal takes its space
        again as it is used: so it is for a store that is to be small, or idle, from now on.
        Raises StoreFailed, DiskFull.
        """

    @look(long=True, needs="admin store")
    def verify(self, *, contents: bool = False) -> Report:
        """Read and check all that the store holds; commits go on meanwhile.

        What is damaged is told in the report's `findings`; `ok` means there is none. Among them are
        its `warnings`, which leave it `ok`: the journal's tail was cut when this owner opened the
        store, as after a power failure; without one, the last commit may be lost by damage. The
        next opening knows nothing of it any more. `checked` has the `number` of the
        latest record and the `state_hash`; with `contents` also a digest of all messages in their
        order. They are equal in stores that hold the same, whatever their pages and files.
        """

    @look(needs="browse queue:name")
    def position_at(self, name: str, time: start_places.Time) -> int:
        """The first position that is kept whose message was committed at this time or later.

        Commit times ascend with the positions. Where there is no such message it is the position
        that the next one gets. `time`: a datetime with a time zone, or seconds since the epoch.
        A few record pages and one block at most are read, however many messages are kept.
        Raises QueueNotFound, InvalidArgument, StoreCorrupt.
        """

    @look(needs="browse source:source", shows="explanation")
    def explain(self, source: str, id: int | None = None) -> explanation.Explanation:
        """Return why a message is not delivered: why not, since or until when, and what to do.

        `source`: "queue" of a work queue, "queue/subscription" of a topic. `id`: of the message;
        None: the message that comes next, or would if anything let it. The `reason` is a value, the
        fields say more, and `text` is a sentence in words (docs/operations.md). Nothing is taken or
        changed. It takes a moment, however many messages there are: of many that nobody has looked
        at since the store was opened the answer says just that.

        Raises QueueNotFound, SubscriptionNotFound, InvalidArgument, StoreCorrupt.
        """

    @look(needs="manage queue:name")
    def queue_records(self, name: str, start: int = 0, limit: int = 10_000) -> list[QueueRecord]:
        """The queue's records since the last checkpoint, in queue order, open transactions' too.

        OPEN, MESSAGES, INDIRECT, COMMIT and ROLLBACK (paragraphs 0047-0053 of the patent). `limit`
        of them, after the first `start`; a checkpoint in between takes the oldest away, and
        `quire dump` lists them then. Raises QueueNotFound.
        """

    @change(again=True, needs="admin store")
    def set_archive(
        self,
        url: str,
        *,
        limit: Size = DEFAULT_ARCHIVE_LIMIT_BYTES,
        full: str = "gap",
        keep: Duration | None = None,
    ) -> ArchiveInfo:
        """Have the store's records shipped to an archive from now on, durably (docs/archive.md).

        What a record releases stays in place until the record is shipped, over restarts too. That
        may take `limit` bytes, together with the journal that waits. Beyond that `full` says what
        happens: "gap" lets go of it, so that the archive has a gap until its next base; with "wait"
        puts wait as for a full queue, then raise ArchiveFull, while gets and rollbacks go on.
        `keep`: how long restore points are kept; None: for ever. Another `url` is another archive,
        which begins now; a relative path counts from the current directory of the store's owner.
        Raises InvalidArgument, also for a store in memory.
        """

    @look(needs="admin store")
    def archive(self) -> ArchiveInfo | None:
        """The archive that the store's records are shipped to; None: there is none.

        Raises StoreClosed.
        """

    @change(again=True, needs="admin store")
    def stop_archive(self, *, forget: bool = False) -> None:
        """Ship no more records, durably, and let go of all that waits for it.

        What is in the archive stays. An archive that is set later goes on with the same history;
        `forget`: with a new one, as is right for a store that was restored. Raises InvalidArgument.
        """
