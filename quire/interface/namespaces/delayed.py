"""Messages that are not due yet: `store.delayed`."""

from __future__ import annotations

from typing import Protocol

from quire.batches import delivered_messages
from quire.calls.call_table import look
from quire.moments import Duration, Moment


class Delayed(Protocol):
    """`store.delayed`: what was put with `deliver_at` or `delay`, and is not due yet.

    What every method raises is told with `Store`.
    """

    @look
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
