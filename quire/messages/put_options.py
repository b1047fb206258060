"""The options of every form of a put, besides queue and payload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from quire.moments import Duration, Moment


class MessageOptions(TypedDict, total=False):
    """The options of a message besides its payload. One that is None is as if it were left out.

    What a queue does not obey is refused (InvalidArgument, which names the queue's option to set),
    never accepted and ignored: see docs/queues.md.
    """

    priority: int | None
    """0 to 65535, higher first, in a queue that is read by priority (`order="priority"`). None: the
    queue's `default_priority`, as it is at the put; 0 is 0."""
    group: int
    """The number of a group of readers, for notification: 0 to 65535; 0 is everybody. Quire keeps
    and tells it, and nothing else. (Messages in order are `group_key`.)"""
    sender: str | None
    """The sender. This and the other strings: up to 64 KiB each in UTF-8."""
    correlation_id: str | None
    """The id of what it belongs to, as the message that it answers."""
    reply_to: str | None
    """The queue that an answer goes to."""
    content_type: str | None
    """The type of the payload, as "application/json" (see `quire.codecs`)."""
    expires_at: Moment | None
    """The moment after which it is not delivered: a `datetime` with a time zone, float seconds or
    int microseconds since the epoch. In a queue whose times count (`timed`)."""
    deliver_at: Moment | None
    """The moment before which it is not delivered, given in the same way."""
    ttl: Duration | None
    """The time after this call when it expires, in the stead of `expires_at`: seconds or a
    `timedelta`, above 0 and up to 366 days."""
    delay: Duration | None
    """The time after this call when it is delivered at the earliest, in the stead of `deliver_at`:
    from 0."""
    attributes: Mapping[str, str] | None
    """Strings by strings, up to 1,000 pairs and 64 KiB together."""
    group_key: str | None
    """The ordered group that it is of, in a queue that is `grouped`: messages with the same key go
    to one reader at a time, in order. It is one of the attributes."""


class PutOptions(MessageOptions, total=False):
    """The options that `put` takes by name: all of `MessageOptions`, and how it is put."""

    timeout: Duration | None
    """The longest wait while its queue has no room, in seconds or as a `timedelta`. A queue that
    has no put wait (`overflow="wait"`) refuses what is above 0. By default the store's option
    `commit_timeout`. In a joined store the put waits with a `timeout` only: else the commit does,
    by its own."""
    request_id: str | None
    """The put's name among those of its queue: printable, 1 to 200 bytes in UTF-8, for a queue with
    `dedup_count` or `dedup_seconds`. Where a message was put with it before, the put returns that
    one's id and puts nothing. Of two transactions that are open with the same one at the same time
    the second one's commit raises AlreadyCommitted: begun again, its put finds the first."""


class StorePutOptions(PutOptions, total=False):
    """The options that `Store.put` takes by name: all of `PutOptions`, as it is a transaction of
    its own.
    """

    durable: bool
    """The durability, as for `Store.transaction`."""
