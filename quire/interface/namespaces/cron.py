"""Messages that are put by the clock: `store.cron`."""

# mypy: disable-error-code="empty-body"
# The body of a row is its call.

from __future__ import annotations

import builtins
from typing import Unpack

from quire.arguments import Bytes
from quire.calls.call_table import Subject, change, look
from quire.interface import schedules
from quire.reports.info import ScheduleInfo


class Cron(Subject, path="cron"):
    """`store.cron`: schedules, which put a message into a queue whenever a cron text says.

    What every method raises is told with `Store`.
    """

    __slots__ = ()

    @change(
        needs="manage schedule:name, put queue:queue, get reply_to:reply_to, put scheduled:sender"
    )
    def create(
        self,
        name: str,
        queue: str,
        cron: str,
        payload: Bytes = b"",
        exist_ok: bool = False,
        **options: Unpack[schedules.ScheduleOptions],
    ) -> ScheduleInfo:
        """Have a message put into a queue whenever a cron text says, durably; the schedule then.

        `name`: as for queues. `cron`: minute, hour, day, month, day of the week, as
        "30 2 * * MON-FRI", a second before them where that is wanted, or one of @hourly, @daily,
        @weekly, @monthly, @yearly. `payload`: of each message. `options`: see `ScheduleOptions`;
        all of it together up to 16 KiB. `exist_ok`: a schedule of the name that is there already is
        fine if it has this queue, cron text and payload, and those options that are given.

        The message and the note that it was put are one transaction of the store's owner: for each
        due time there is one message, over crashes and changes of the owner, however clocks are
        set. What cannot be put is tried again, and shown (`ScheduleInfo.waiting`). The schedule is
        of the queue, and follows when that is renamed.

        Raises QueueNotFound, ScheduleExists (which with `exist_ok` tells what differs),
        InvalidArgument (also for a queue that is typed, or not there after a restart).
        """

    @change(
        needs="manage schedule:name, put schedule_queue:name, put optional_queue:queue,"
        " get reply_to:reply_to, put scheduled:sender"
    )
    def alter(self, name: str, **changes: Unpack[schedules.ScheduleChanges]) -> ScheduleInfo:
        """Change a schedule, durably; as it is then. What is not named stays; None: not set.

        What is due while it is `paused` is not missed; with another `cron` or `timezone` due times
        count from now on. Raises ScheduleNotFound, QueueNotFound, InvalidArgument.
        """

    @change(needs="manage schedule:name")
    def drop(self, name: str) -> None:
        """Remove a schedule, durably; what it has put stays. Raises ScheduleNotFound."""

    @look(needs="", shows="schedules")
    def list(self) -> builtins.list[ScheduleInfo]:
        """All schedules, by name, with the last and the next due time of each."""
