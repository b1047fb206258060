"""The beginning or end of a read by time: options, and the positions that they mean.

YJ1. A time means the first message that is kept and was committed then or later, of those that are
    there when the read is planned. A read ends before that message, and begins with it.
YJ2. As in Spark's Kafka connector a time for all queues goes before times by queue, and these go
    before offsets; times are in milliseconds since 1970.
YJ3. Where there is no such message, a read begins as `startingOffsetsByTimestampStrategy` says: not
    at all (error), or behind what is there (latest). It ends behind what is there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from msgspec import Struct

from quire.errors import InvalidArgument
from quire.reports.info import QueueInfo

from .limits import LAST_TIME_MS

if TYPE_CHECKING:
    from quire.interface.store import Store

STRATEGY = "startingOffsetsByTimestampStrategy"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ByTime(Struct, frozen=True):
    """The milliseconds since 1970 for all queues, or for each; `option` is who says so."""

    option: str
    times_ms: int | Mapping[str, int]
    or_latest: bool = True  # where there is no such message; else that is an error

    def of(self, queue: str) -> int:
        return self.times_ms if isinstance(self.times_ms, int) else self.times_ms[queue]


def starting(options: Mapping[str, str], queues: tuple[str, ...]) -> ByTime | None:
    """Return where a read begins, if a time is given. Raises InvalidArgument."""
    found = _times_of(options, "startingTimestamp", "startingOffsetsByTimestamp", queues)
    strategy = options.get(STRATEGY)
    if strategy is None:
        return found and ByTime(found.option, found.times_ms, or_latest=False)
    if strategy.strip().lower() not in ("error", "latest"):
        raise InvalidArgument(f"option '{STRATEGY}' must be error or latest, not '{strategy}'")
    if found is None:
        raise InvalidArgument(
            f"option '{STRATEGY}' says what is done where no message is as new as the time of "
            "'startingTimestamp' or 'startingOffsetsByTimestamp': give one of them with it"
        )
    return ByTime(found.option, found.times_ms, strategy.strip().lower() == "latest")


def ending(options: Mapping[str, str], queues: tuple[str, ...]) -> ByTime | None:
    """Return where a read ends, if a time is given. Raises InvalidArgument."""
    return _times_of(options, "endingTimestamp", "endingOffsetsByTimestamp", queues)


def check_order(begin: ByTime | None, end: ByTime | None) -> None:
    """Refuse a read that is to end before it begins, as far as times tell it."""
    if begin is None or end is None:
        return
    by_queue = [each.times_ms for each in (begin, end) if isinstance(each.times_ms, Mapping)]
    for queue in by_queue[0] if by_queue else [""]:
        if begin.of(queue) > end.of(queue):
            raise InvalidArgument(
                f"'{begin.option}' is {begin.of(queue)}, and '{end.option}' is {end.of(queue)}, "
                "which is before it: exchange them"
            )


def position(store: Store, queue: QueueInfo, at: ByTime) -> int:
    """The position that the time means in the queue as it has been seen (YJ1, YJ3)."""
    found = store.admin.position_at(queue.name, at.of(queue.name) / 1_000)
    # Messages that came after the look at the queue are not there yet.
    if found < queue.end_position:
        return found
    if at.or_latest:
        return queue.end_position
    raise InvalidArgument(
        f"queue '{queue.name}' has no message of {_utc_text(at.of(queue.name))} or later, which is "
        f"where '{at.option}' begins to read. Give an earlier time, or set the option {STRATEGY} "
        "to latest to begin with the next message that comes"
    )


def _times_of(
    options: Mapping[str, str], for_all: str, by_queue: str, queues: tuple[str, ...]
) -> ByTime | None:
    """The one that counts (YJ2); the other is checked all the same."""
    each = _by_queue(options, by_queue, queues)
    text = options.get(for_all)
    if text is None:
        return each
    try:
        time_ms = int(text)
    except ValueError:
        time_ms = -1
    if not _is_time(time_ms):
        raise InvalidArgument(
            f"option '{for_all}' is '{text}'; give the milliseconds since 1970, as 1700000000000"
        )
    return ByTime(for_all, time_ms)


def _by_queue(options: Mapping[str, str], name: str, queues: tuple[str, ...]) -> ByTime | None:
    text = options.get(name)
    if text is None:
        return None
    if not queues:
        raise InvalidArgument(
            f"option '{name}' is '{text}'; with 'subscribePattern' give one time for all queues, "
            f"by '{name.removesuffix('OffsetsByTimestamp')}Timestamp'"
        )
    try:
        times = json.loads(text)
    except ValueError:
        times = None
    if not isinstance(times, dict) or not all(map(_is_time, times.values())):
        raise InvalidArgument(
            f"option '{name}' is '{text}'; give the milliseconds since 1970 of each queue, such as "
            f'{{"{queues[0]}": 1700000000000}}'
        )
    if set(times) != set(queues):
        raise InvalidArgument(
            f"option '{name}' must give a time for each of {', '.join(queues)}, but gives "
            f"{', '.join(sorted(times)) or 'none'}"
        )
    return ByTime(name, times)


def _is_time(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LAST_TIME_MS


def _utc_text(time_ms: int) -> str:
    return (_EPOCH + timedelta(milliseconds=time_ms)).isoformat(" ", "milliseconds")
