"""The times at which schedules are due: those that a cron text names, in a time zone.

- What a text names is what Debian's cron makes of it, at the change to summer time and back too:
  what is at a time of day that is left out is due right after, what is at one that comes twice is
  due the first time; what is due in every hour, or every so many minutes, is due as time passes.
- CR2: times ascend, and none comes twice. Looked for from anywhere, they are the same: they are
  always looked for forwards.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Final

from quire.errors import InvalidArgument
from quire.libraries.late_modules import stand_in
from quire.limits import FIRST_WINDOW_US, MAX_CRON_CHARACTERS, WIDER_WINDOW

if TYPE_CHECKING:
    import zoneinfo

    import cronsim
else:
    cronsim = stand_in("cronsim")
    zoneinfo = stand_in("zoneinfo")

NICKNAMES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class DueTimes:
    """The times, in microseconds since the epoch, that a text names in a time zone."""

    def __init__(self, cron: object, timezone: object) -> None:
        """Read the text.

        Raises InvalidArgument for one that is wrong, or a time zone that is not known.
        """
        if not isinstance(cron, str) or len(cron) > MAX_CRON_CHARACTERS:
            raise InvalidArgument(
                f"cron {cron!r:.100}: give a text of up to {MAX_CRON_CHARACTERS} characters, as "
                "'30 2 * * MON-FRI' (minute, hour, day, month, day of the week)"
            )
        self._text = NICKNAMES.get(cron.strip().lower(), cron)
        self._zone = _zone(timezone)
        self._iterate = cronsim.CronSim
        try:
            cronsim.CronSim(self._text, datetime(2000, 1, 1, tzinfo=UTC))
        except cronsim.CronSimError as error:
            raise InvalidArgument(
                f"cron {cron!r}: {error}; give minute, hour, day, month and day of the week, as "
                "'30 2 * * MON-FRI', or before them the second, or one of "
                f"{', '.join(NICKNAMES)}"
            ) from None

    def after(self, time_us: int) -> int | None:
        """The first one after a time; None: there is none within 50 years."""
        return next(self._from(time_us), None)

    def latest(self, start_us: int, end_us: int, limit: int) -> list[int]:
        """Return the last times after the start, up to the end, at most so many."""
        window_us = FIRST_WINDOW_US
        while True:
            begin_us = max(start_us, end_us - window_us)
            found: deque[int] = deque(maxlen=limit)
            for due_us in self._from(begin_us):
                if due_us > end_us:
                    break
                found.append(due_us)
            if len(found) == limit or begin_us == start_us:
                return list(found)
            window_us *= WIDER_WINDOW

    def _from(self, time_us: int) -> Iterator[int]:
        """Yield all times after one (CR2)."""
        last_us = time_us
        try:
            moment = datetime.fromtimestamp(time_us // 1_000_000, self._zone)
            for due in self._iterate(self._text, moment):
                due_us = round(due.timestamp()) * 1_000_000
                if due_us > last_us:
                    last_us = due_us
                    yield due_us
        except (OverflowError, ValueError):  # the calendar ends
            return


def _zone(name: object) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        if isinstance(name, str):
            return zoneinfo.ZoneInfo(name)
    except (LookupError, ValueError, OSError):  # as it is no zone, or no name of one at all
        pass
    raise InvalidArgument(
        f"timezone {name!r:.100}: give the name of a time zone that is known where the store's "
        "owner runs, as 'UTC' or 'Europe/Berlin'"
    )
