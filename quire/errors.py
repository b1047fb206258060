"""The exception tree of Quire.

    QuireError
    ├── InvalidArgument (ValueError)      an argument, name, size or option that cannot be used
    │   └── InvalidSelector                     a selector or template that the messages cannot be asked by
    ├── NotFound                          what is asked for by a name or number is not there
    │   ├── QueueNotFound (KeyError)            no queue of that name
    │   ├── SubscriptionNotFound (KeyError)     no subscription of that name on the queue
    │   ├── ScheduleNotFound (KeyError)         no schedule of that name
    │   ├── TransactionNotFound (TransactionError)  no transaction of that id or xid
    │   ├── ReplyNotFound (KeyError)            no reply can be had: it was taken, forgotten, or never asked for
    │   └── CodecNotFound (KeyError)            no codec of that name, or for that content type
    ├── AlreadyExists                     what is in the way of something new
    │   ├── QueueExists                         a queue of that name is there already
    │   ├── SubscriptionExists                  a subscription of that name is there already
    │   ├── ScheduleExists                      a schedule of that name is there already
    │   └── XidExists (TransactionError)        a transaction is prepared under that xid already
    ├── Conflict                          others have, or had, to do with the same
    │   ├── QueueInUse                          transactions hold the queue, or another reader its subscription
    │   ├── KeyHeld (TransactionError)          a prepared transaction holds the key; try again later
    │   ├── LockTimeout (TimeoutError)          another transaction has the message that was asked for by its id
    │   ├── Deadlock (TransactionError)         transactions wait for each other; this one was rolled back
    │   ├── AlreadyCommitted (TransactionError)  the ledger holds this key with this or a later version
    │   ├── OutboxMismatch                      an outbox and its store do not follow from each other
    │   ├── StateConflict (TransactionError)    a value of the state that it has read was changed meanwhile
    │   │   └── SessionFenced                       a newer opening of the session has taken its place
    │   └── InputChanged (TransactionError)     a repeated micro-batch is not the one that is committed
    ├── NoRoom                            what does not fit
    │   ├── QueueFull                           the queue's capacity does not admit the messages
    │   │   ├── ArchiveFull                         too much waits to be shipped to the archive, and puts wait for that
    │   │   └── StoreFull                           the disk has less free space than the store's owner wants to keep
    │   └── StateFull                           the limit on a name's, or on all, key-values does not admit it
    ├── QueueDisabled                     the queue is stopped for puts, or for gets
    ├── NotAllowed                        the user of a served store has no right to do that, or is not known
    ├── TransactionError
    │   ├── TransactionClosed             the transaction has ended already
    │   ├── TransactionTimeout (TimeoutError)   it was rolled back because it was open for too long
    │   ├── TransactionAborted            it was rolled back because somebody demanded it
    │   └── CommitUnfinished              it stands, but another system does not have its part yet
    ├── RequestFailed                     a request has ended without a reply, or with an error
    ├── RequestTimeout (TimeoutError)     no reply has come in time; it may come still
    ├── PositionLost                      a range of messages is not in the store any more
    ├── StepFailed                        a step of a graph has ended, or is paused, and has messages to read
    ├── StepTimeout (TimeoutError)        a step of a graph goes on, or has more to read, when the time is over
    ├── PayloadInvalid (ValueError)       a payload is not what its content type says
    ├── ReentrantCall (RuntimeError)      a call from inside a call, as by a finaliser: do it afterwards
    ├── StoreError
    │   ├── StoreNotFound (NotFound)      there is no store at the path; a FileNotFoundError too
    │   ├── StoreClosed                   the store object was closed
    │   ├── StoreLocked                   another process owns the store and cannot be joined
    │   ├── StoreFailed                   a write or sync failed; reopen the store to recover
    │   ├── StoreCorrupt                  bytes on disk fail their checksum or contradict each other
    │   ├── StoreVersion                  the files are of a format version this release cannot read
    │   └── ResourceExhausted (NoRoom)    no memory or file descriptor for the call; an OSError too
    │       └── DiskFull                        the file system has no room for what was asked
    ├── ArchiveError
    │   ├── ArchiveCorrupt                an object of an archive is missing or damaged
    │   ├── ArchiveFailed                 the archive cannot be reached, or refuses; try again, or look after it
    │   ├── ArchiveRefused                what is in the archive is another's, or its server is not fit for one
    │   ├── ObjectNotFound (NotFound)     the archive has no object of that name; a KeyError too
    │   └── BackupNotFound (NotFound)     the archive has no backup, or none so old; a KeyError too
    └── RemoteError
        ├── CertificateRefused            one side of a connection over TLS does not trust the other
        ├── LimitReached                  a user of a served store, or all clients, have as much in use as may be
        ├── ConnectionLost (ConnectionError)    the owner is gone; nothing of this operation took effect
        └── OutcomeUnknown                the owner was lost during a change; it may have taken effect

Warnings stand beside it:

    UserWarning
    ├── NobodyReads                       a message is put into a topic without subscriptions
    └── FileSystemWarning                 a store lies where locks and syncs may not hold

What is in brackets is a base, too: one who catches `NoRoom` catches whatever does not fit.
`quire.coordination` adds the exceptions of PEP 249 as a branch `Error`.

Every message says what happened and what to do about it.

What a call that raised an error leaves behind:

* The store, its queues and its ledger are as they were before the call. Exceptions: after
  OutcomeUnknown, and after StoreFailed from a commit, a prepare or a decision, this is not known:
  look, after StoreFailed in the store opened again (the ledger tells of a commit, `store.prepared` of
  what is prepared).
  CommitUnfinished comes after a commit that stands.
* A transaction is open as before, and can be tried again or rolled back. It has been rolled back
  after AlreadyCommitted, StateConflict, TransactionTimeout and TransactionAborted; after DiskFull and
  other ResourceExhausted, where its messages were on their way to a file; in a joined store also after ConnectionLost.
  `transaction.state` tells.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator as _Iterator  # no name of the reference
from contextlib import contextmanager
from typing import Final


class QuireError(Exception):
    """The root of everything Quire raises on purpose."""

    def __str__(self) -> str:
        # KeyError would show the message's repr.
        return str(self.args[0]) if len(self.args) == 1 else super().__str__()


class InvalidArgument(QuireError, ValueError):
    """An argument, name, size or option that cannot be used."""


class InvalidSelector(InvalidArgument):
    """A selector that cannot be read, or a template or selector that does not fit the queue."""


class NotFound(QuireError):
    """No such thing: its name or number is unknown."""


class AlreadyExists(QuireError):
    """Something is there already, in the way of something new."""


class Conflict(QuireError):
    """Others have, or had, to do with the same: wait for them, or begin again."""


class NoRoom(QuireError):
    """No room for something."""


class QueueNotFound(NotFound, KeyError):
    """No queue of that name."""


class QueueExists(AlreadyExists):
    """A queue of that name is there already."""


class QueueDisabled(QuireError):
    """The queue is stopped for puts, or for gets: `alter_queue` with `puts` or `gets` says so."""


class NotAllowed(QuireError):
    """The user has no right to do this, or the server does not let this user in.

    It names the right that is missing. Nothing was changed.
    """


class QueueInUse(Conflict):
    """Open or prepared transactions hold the queue, messages of it are in flight, or a stream reads.

    The last is of Spark: one source at a time streams by a subscription.
    """


class QueueFull(NoRoom):
    """The queue's capacity does not admit the messages."""

    queue: str | None = None  # its name
    # What it refused: by which rule of space, so many bytes in so many messages.
    refused: tuple[str, int, int] = "commit", 0, 0
    has_remedy = False  # the queue says what to do then (see `QueueOptions.overflow`)


class ArchiveFull(QueueFull):
    """Too much of the store waits to be shipped to its archive, and so puts wait (full="wait")."""


class StoreFull(QueueFull):
    """The disk has less free space than `refuse_below_bytes`: puts are refused, all else goes on."""


class StateFull(NoRoom):
    """The limits on the bytes and keys of a name, or of the whole state, do not admit the value."""


class SubscriptionNotFound(NotFound, KeyError):
    """No subscription of that name on the queue."""


class SubscriptionExists(AlreadyExists):
    """A subscription of that name is there already."""


class ScheduleNotFound(NotFound, KeyError):
    """No schedule of that name."""


class ScheduleExists(AlreadyExists):
    """A schedule of that name is there already."""


class TransactionError(QuireError):
    """The transaction cannot do this."""


class TransactionClosed(TransactionError):
    """The transaction has ended already."""


class TransactionNotFound(NotFound, TransactionError, KeyError):
    """There is no transaction of that id or xid."""


class XidExists(AlreadyExists, TransactionError):
    """A transaction is prepared under that xid already."""


class KeyHeld(Conflict, TransactionError):
    """A prepared transaction holds the key, of the ledger or of a state: try again later."""


class LockTimeout(Conflict, TimeoutError):
    """Another transaction has the message that was asked for by its id, until after the time-out.

    What asked stays as it was: ask again, or wait longer.
    """


class Deadlock(Conflict, TransactionError):
    """Transactions wait for each other's messages; the one that closed the circle was rolled back."""


class StateConflict(Conflict, TransactionError):
    """Another transaction has changed a value of the state that this one has read: begin again."""


class SessionFenced(StateConflict):
    """The session was opened again elsewhere, or removed: this opening may do nothing more."""


class ReplyNotFound(NotFound, KeyError):
    """There is no reply to be had: it was taken or forgotten, or the request was never put."""


class RequestFailed(QuireError):
    """A request has ended without a reply, or with an error, which its words tell.

    A function that answers requests raises it to end one so, with the reason as its words.
    """


class RequestTimeout(QuireError, TimeoutError):
    """No reply has come in time. The request may be executed still, unless it expires before."""


class OutboxMismatch(Conflict):
    """A database's outbox and the store do not follow from each other: one is an older copy."""


class TransactionTimeout(TransactionError, TimeoutError):
    """The transaction was rolled back because it was open for too long."""


class TransactionAborted(TransactionError):
    """The transaction was rolled back because somebody demanded it."""


class AlreadyCommitted(Conflict, TransactionError):
    """The ledger holds this key with this or a later version: the transaction's effect is there."""


class InputChanged(Conflict, TransactionError):
    """A micro-batch has the number of a committed one and another input: nothing is written."""


class CommitUnfinished(TransactionError):
    """The commit is decided and stands; another system that takes part does not have it yet."""


class PositionLost(QuireError):
    """A range of messages is not in the store any more."""


class StepFailed(QuireError):
    """A step of a graph has ended, or is paused, while it has messages to read."""


class StepTimeout(QuireError, TimeoutError):
    """A step of a graph goes on, or has more to read, when the time to wait for it is over."""


class CodecNotFound(NotFound, KeyError):
    """No codec of that name, or for that content type (see `quire.codecs`)."""


class PayloadInvalid(QuireError, ValueError):
    """A payload is not what its content type says: it cannot be decoded."""


class ReentrantCall(QuireError, RuntimeError):
    """A thread that is in a call of Quire has made another one inside it, which is not done.

    By a finaliser, a signal's handler, a logging handler or a callback that was run in the midst of
    the first: it would wait for its own thread. Do it after the first call, or in another thread.
    """


class StoreError(QuireError):
    """The store as a whole cannot be used as asked."""


class StoreNotFound(StoreError, NotFound, FileNotFoundError):
    """There is no store at the path."""


class StoreClosed(StoreError):
    """The store object was closed."""


class StoreLocked(StoreError):
    """Another process owns the store and cannot be joined."""


class StoreFailed(StoreError):
    """A write or sync failed; the store refuses commits until it is reopened and recovered.

    Whether a commit that raised it took effect is known when the store was opened again.
    """


class StoreCorrupt(StoreError):
    """Bytes on disk fail their checksum or contradict each other."""


class StoreVersion(StoreError):
    """The files are of a format version that this release cannot read."""


class ResourceExhausted(StoreError, NoRoom, OSError):
    """The system has no memory or no file descriptor for the call, which is not done.

    Repeat it once there is. `errno` tells which (docs/full-disk.md). A transaction whose messages
    were on their way to a file is rolled back; any other stays open.
    """


class DiskFull(ResourceExhausted):
    """The file system has no room for what was asked, or not for this process: it is not done.

    A transaction whose messages were on their way to a file is rolled back; any other stays open.
    """


class RemoteError(QuireError):
    """The store is in another process, and the way to it failed."""

    late = False  # the owner is there, and has not answered in time: it may be stopped


class CertificateRefused(RemoteError):
    """One side of a connection over TLS does not trust the certificate of the other; nothing is done.

    It is signed by another authority, has expired, is for another host, or is missing: the message
    says which, and what to do.
    """


class LimitReached(RemoteError):
    """A limit on what a user of a served store, or all clients together, may have in use is reached.

    Nothing of the call took effect, and a transaction stays open that was open before, but for one
    that was open, or a call that took, longer than may be.
    """

    limit = ""  # its name, as of `quire serve --limit`
    value = 0.0
    retry_after: float | None = None  # seconds; None: the same call is refused again


class ConnectionLost(RemoteError, ConnectionError):
    """The owner is gone, or does not answer (`late`); nothing of this operation took effect.

    A transaction is to be begun again: the store object finds the next owner.
    """


class OutcomeUnknown(RemoteError):
    """The owner was lost, or failed inside, after it was asked for a change and before it answered.

    A commit, `put`, `get`, `create_queue`, ...: repeat it where that is safe (a put with a request
    id, `exist_ok=True`), or look whether it took effect, with the next owner (docs/core.md).
    """


class ArchiveError(QuireError):
    """An archive, the object store or directory outside of a store, cannot be used as asked."""


class ArchiveCorrupt(ArchiveError):
    """An object of an archive is missing, damaged, or contradicts others; the message names it."""


class ArchiveFailed(ArchiveError):
    """The archive could not be reached, or refused a request, after repeated tries.

    What was to be written may be there, and may still appear: the same call may be repeated.
    """

    may_pass = False  # by itself, as a server does that has too much to do for a while


class ArchiveRefused(ArchiveError):
    """An object in the archive is another's, or the archive's server is not fit for one.

    Repeating the call does not help: give another place, or remove what is not wanted there.
    """


class ObjectNotFound(ArchiveError, NotFound, KeyError):
    """The archive has no object of that name."""


class BackupNotFound(ArchiveError, NotFound, KeyError):
    """The archive has no backup, or none that is as old as the one that was asked for."""


class NobodyReads(UserWarning):
    """A message is put into a topic without subscriptions: it is kept, and some time it is full.

    Said once for each queue and store object, by the process that puts.
    """


class FileSystemWarning(UserWarning):
    """A store lies where it may not be safe: FUSE, layers of a container, another machine.

    Said by the process that owns it, when it opens it. Where a store may live: docs/deployment.md.
    """


# Errors of the system


# What refuses a call of the environment (E9), and what to do then.
_REFUSALS: Final = {
    errno.ENOSPC: "free space there",
    errno.EDQUOT: "raise the quota, or free space there",
    errno.EFBIG: "raise the limit on the size of this process's files (ulimit -f)",
    errno.EMFILE: "let this process close files, or raise its limit on open files (ulimit -n)",
    errno.ENFILE: "let processes close files, or raise the system's limit on open files",
    errno.ENOMEM: "free memory, or raise the limits on memory",
}
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def raise_if_refused(error: OSError, path: str, doing: str) -> None:
    """Raise ResourceExhausted, which says what to do, if `error` refuses a call (E9)."""
    if isinstance(error, ResourceExhausted):  # said already
        raise error
    remedy = _REFUSALS.get(error.errno or 0)
    if remedy is None:
        return
    kind = DiskFull if error.errno in _NO_ROOM else ResourceExhausted
    refusal = kind(
        f"{path}: cannot {doing} ({error.strerror}); {remedy}, then repeat the operation"
    )
    refusal.errno = error.errno
    refusal.filename = path
    raise refusal from error


@contextmanager
def refusing(path: str, doing: str) -> _Iterator[None]:
    """An OSError inside that refuses the call is ResourceExhausted (E9)."""
    try:
        yield
    except OSError as error:
        raise_if_refused(error, path, doing)
        raise
