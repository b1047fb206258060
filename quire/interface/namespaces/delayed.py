"""Messages that are not due yet: `store.delayed`."""

# mypy: disable-error-code="empty-body"
# The body of a row is its call.

from __future__ import annotations

from quire.arguments import check_name
from quire.batches import delivered_messages
from quire.batches.moved_messages import put_again
from quire.calls.call_table import Subject, look
from quire.interface.transaction import Streaming, TransactionSource
from quire.messages.message import SETTABLE
from quire.messages.message_fields import with_moments
from quire.moments import Duration, Moment, check_moment


class Delayed(Subject, path="delayed"):
    """`store.delayed`: what was put with `deliver_at` or `delay`, and is not due yet.

    What every method raises is told with `Store`.
    """

    __slots__ = ()
    _of: TransactionSource[Streaming]

    @look(needs="browse source:source")
    def list(self, source: str, max_messages: int = 1000) -> delivered_messages.Messages:
        """Look at up to `max_messages` that are not due yet, in the order in which they will be.

        `source`: as for `Transaction.get`; of a queue that is not `timed` there are none. Raises
        QueueNotFound, SubscriptionNotFound, StoreCorrupt.
        """

    def cancel(self, source: str, message_id: int) -> bool:
        """Take a message away before it is due; False: it was too late, or there is none.

        `source`: as for `Transaction.get`; of a topic, this subscription alone does not get it.
        Raises QueueNotFound, SubscriptionNotFound, InvalidArgument.
        """
        with self._of.transaction() as txn:
            return txn.get_delayed(source, message_id, to_change=True) is not None

    def reschedule(
        self,
        queue: str,
        message_id: int,
        *,
        deliver_at: Moment | None = None,
        delay: Duration | None = None,
    ) -> int | None:
        """Have a message of a work queue be due at another time; its new id, None: it was too late.

        It is put anew, in one transaction with taking it. `deliver_at`: a moment, as for a
        put (an int is microseconds since the epoch); or `delay`: seconds from now, or a
        `timedelta`; or neither: now. Its `expires_at` stays. Raises QueueNotFound, QueueFull,
        QueueDisabled, InvalidArgument.
        """
        source = check_name(queue, "queue")
        times = {"deliver_at": deliver_at, "delay": delay}
        with_moments(times, lambda: 0)  # refused before anything is looked for
        due = None if deliver_at is None else check_moment("deliver_at", deliver_at)
        with self._of.transaction() as txn:
            message = txn.get_delayed(source, message_id, to_change=True)
            if message is None:
                return None
            fields = {name: getattr(message, name) for name in SETTABLE}
            fields |= {"attributes": dict(message.attributes)}
            fields |= {"deliver_at": due, "delay": delay}
            made = put_again(txn, queue, message, fields)
        return int(made)
