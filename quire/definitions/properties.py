"""The properties of a queue: what it is made with, and what may be changed of it later.

They stand in the queue's entry of the catalog, where only those are noted that differ from what
they are by default; so an entry of an earlier release is one of a queue without any.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypedDict, cast

from quire.errors import InvalidArgument
from quire.libraries import pa
from quire.limits import (
    MAX_BLOCK_BYTES,
    MAX_CAPACITY_BYTES,
    MAX_DATA_BLOCK_BYTES,
    MAX_DELIVERIES,
    MAX_INDEXED,
    MAX_INDEXED_NAME,
    MAX_KEPT,
    MAX_PRIORITY,
    MAX_PROPERTIES,
    MAX_REQUESTS,
    MAX_STREAM_BYTES,
    MAX_TEXT_BYTES,
    MAX_TTL_SECONDS,
    MIN_CAPACITY_BYTES,
    SCATTERED_BLOCK_BYTES,
)
from quire.moments import Duration, seconds_of
from quire.sizes import Size, bytes_of

from .limits import MAX_IN_FLIGHT_LIMIT
from .near_names import did_you_mean
from .order import COMMIT, PRIORITY, Order, by_code, by_key, by_sequence, check_order
from .pace import NO_LIMITS, QueuePace, check_rate
from .retry import Retry, check_retry
from .row_schema import check_schema

NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")
"""The names that queues and subscriptions may have."""

OverflowPolicy = Literal["fail", "wait", "drop_oldest", "dead_letter"]
WAIT: Final = "wait"
DROP_OLDEST: Final = "drop_oldest"
DEAD_LETTER: Final = "dead_letter"
GIVING_WAY: Final = (DROP_OLDEST, DEAD_LETTER)
OVERFLOWS: Final = ("fail", WAIT, *GIVING_WAY)
PERSISTENT: Final = "persistent"
VOLATILE: Final = "volatile"

NO_PROPERTIES: Final[Mapping[str, str]] = MappingProxyType({})


class QueueOptions(TypedDict, total=False):
    """The options that `create_queue` and `alter_queue` take by name; one that is left out stays as
    it is.

    What would have no effect in the queue is refused when it is set (InvalidArgument, which says
    what it needs).
    """

    text: str
    """A description of the queue in words; up to 1 KiB in UTF-8."""
    properties: Mapping[str, str]
    """Free words by name, which Quire keeps and does not read; up to 100, 1 KiB together."""
    order: Order
    """The order in which messages are handed out. "commit": as they were committed (the default).
    "priority": of higher priority first. A mapping: by an attribute (`AttributeOrder`), or by the
    sequence numbers that senders give (`SequenceOrder`). Else the name of a registered code
    (`OrderCode`). What is equal comes in commit order; what is rolled back, at its place again."""
    default_priority: int
    """The priority that messages get which are put without one: 0 to 65535, only in a queue that is
    read by priority. A put says it for good: a message keeps the number that was the default when
    its transaction first put to the queue."""
    puts: bool
    """True if messages may be put; False stops the queue for all who put (QueueDisabled)."""
    gets: bool
    """True if messages may be got; False stops the queue for all who get (QueueDisabled)."""
    max_deliveries: int | None
    """The number of times that a message may be delivered: 1 to 65535. Then it goes to
    `dead_letter`. None: for ever. Each delivery is noted durably before it happens, which costs a
    write and a sync."""
    retry: Retry | None
    """The time for which a message stays hidden after a delivery that failed, by a rollback or
    `reject`; None (the default): it does not. It waits over a restart, too."""
    timed: bool | None
    """True if times of messages count: none is delivered before its `deliver_at`, nor after its
    `expires_at`. None (the default): a work queue is made timed, durably, by the first put that has
    a time, or by `ttl` or `max_ttl`; a topic is not. A queue that is not refuses puts with times.
    """
    ttl: Duration | None
    """The time after its commit when a message without `expires_at` expires: seconds, or a
    `timedelta`. It makes a work queue `timed`; of a topic it needs `timed=True`."""
    max_ttl: Duration | None
    """The longest life of a message, from its put on, given as `ttl` is: a put with a later
    `expires_at` is cut to that, and one without gets it (or `ttl`, where that is less). The put
    learns of it: `MessageId.expires_by`. It holds for what waits already, too."""
    grouped: bool
    """True if messages of one `group_key` go to one reader at a time, in order."""
    max_in_flight: int | None
    """The number of messages that may be in flight at a time, of each subscription: 1 to
    1,000,000."""
    rate: float | None
    """The number of messages that start in a second, of each subscription: never more. A whole
    number up to 1,000,000, or less than 1: `1 / 60` is one a minute. In a grouped queue with any of
    these four limits the groups take turns."""
    group_max_in_flight: int | None
    """The number of messages of one group that may be in flight at a time. They go to any readers
    then; with 1, and without, a group goes to one reader at a time. Where the queue is `grouped`.
    """
    group_rate: float | None
    """`rate`, of each group by itself. Where the queue is `grouped`."""
    keep_expired: bool
    """True if expired messages go to `dead_letter`; by default they are dropped."""
    dead_letter: str | None
    """The queue that takes what was delivered `max_deliveries` times and never read for good, what
    has expired (`keep_expired`), or what gives way (`overflow`): with one of these three."""
    keep_seconds: Duration | None
    """The age up to which a topic keeps what all have read; 0 to 10 years. This and the two that
    follow hold together: a message goes when all have read it and one of them lets it go."""
    keep_bytes: Size | None
    """The bytes, as they are charged, of the newest messages that a topic keeps of what all have
    read."""
    keep_messages: int | None
    """The number of the newest messages that a topic keeps of what all have read; 0: none."""
    keep_forever: bool
    """True if a topic keeps everything: nothing that all have read goes."""
    keep_latest: str | None
    """The key of a topic's messages: an attribute, a column of texts or whole numbers, or `sender`,
    `correlation_id`, `reply_to`, `content_type`. The latest message of each value is kept; with
    `keep_seconds`, until it is so old. One before it counts as read, also where nobody has read it.
    A message with an empty payload, or a row of nothing but the key, deletes its key: it goes when
    all have read it, as one without the key does. None: nothing is said of keys."""
    overflow: OverflowPolicy
    """The remedy where a put, or a commit, finds no room. "fail": QueueFull. "wait": a put waits
    for room, as a commit does, for the store's `commit_timeout` or as long as it says.
    "drop_oldest": the oldest messages that nobody has got are dropped, and counted
    (`QueueInfo.dropped`), whatever the queue's order. "dead_letter": they go to the queue
    `dead_letter`. These two not with `keep_forever`."""
    grow_to: Size | None
    """Bytes up to which the capacity is enlarged, durably, before any of that is done; more than
    the `capacity`."""
    max_message_bytes: Size | None
    """The largest size of a message, in bytes: payload, strings and attributes together. None: as
    large as any. A larger one is refused (InvalidArgument)."""
    max_stream_bytes: Size | None
    """The largest size of a message that is put as a stream (`put_stream`): up to 256 GiB. None: as
    `max_message_bytes` says, and where that is None too, 256 GiB."""
    dedup_count: int | None
    """The number of request ids of puts that are kept, so that a put that is repeated is known: 1
    to 100,000. None: none, or with `dedup_seconds` 100,000."""
    dedup_seconds: Duration | None
    """The seconds for which each is kept, up to 10 years, if `dedup_count` others do not come."""

    indexed: Sequence[str]
    """Names by whose values messages are often asked for (`txn.get(where=...)`): attributes,
    columns of texts or whole numbers, or `sender`, `correlation_id`, `reply_to`, `content_type`. Up
    to 16. What is asked for by an equal value is found without looking at the others; each name
    takes 16 bytes of memory a message, once somebody has asked."""

    schema: pa.Schema | str | None
    """The columns of its messages, which are rows then (see docs/typed.md): an Arrow schema, or
    words as "id bigint not null, amount double". Later, nullable columns may be added behind them.
    None: messages are bytes."""

    codec: str | None
    """The codec of values that are put without being bytes: "json", "text", "msgpack", "arrow", or
    another name of `quire.codecs`. `message.value` is the value again. Bytes are put as they are.
    """

    verified_sender: bool
    """True if the `sender` of a message that a user of a served store puts (see docs/security.md)
    is the name of that user: the server sets it, and refuses a put that says another. Programs that
    open the store by its path set any sender, or none."""

    type: str
    """The queue type, by which its messages are kept: "persistent" (by default), "volatile" (in the
    owner's memory, and gone when the owner ends), or a type that was registered. It stays as it was
    made."""
    persistent: bool
    """True if the queue itself is there after a restart; a volatile one comes back empty. It stays
    as it was made."""


class QueueChanges(QueueOptions, total=False):
    """The options that `alter_queue` takes by name."""

    capacity: int
    """Bytes, as for `create_queue`."""
    max_messages: int | None
    """The number of messages that it may hold, as for `create_queue`."""


class Granted(NamedTuple):
    """The values that a queue gives to messages that are put now.

    Times in microseconds since the epoch.
    """

    priority: int  # of those that say none; 0: they have none
    expires_at: int | None  # of those that say nothing of it
    latest: int | None  # when all others expire, at the latest; None: when they say


class Properties(NamedTuple):
    """The properties of a queue. See `QueueOptions`."""

    text: str = ""
    properties: Mapping[str, str] = NO_PROPERTIES
    order: str | Mapping[str, Any] = COMMIT
    default_priority: int = 0
    puts: bool = True
    gets: bool = True
    max_deliveries: int | None = None
    retry: Mapping[str, Any] | None = None
    timed: bool | None = None
    ttl: float | None = None
    max_ttl: float | None = None
    grouped: bool = False
    max_in_flight: int | None = None
    rate: float | None = None
    group_max_in_flight: int | None = None
    group_rate: float | None = None
    keep_expired: bool = False
    dead_letter: str | None = None
    keep_seconds: float | None = None
    keep_bytes: int | None = None
    keep_messages: int | None = None
    keep_forever: bool = False
    keep_latest: str | None = None
    overflow: OverflowPolicy = "fail"
    grow_to: int | None = None
    max_message_bytes: int | None = None
    max_stream_bytes: int | None = None
    dedup_count: int | None = None
    dedup_seconds: float | None = None
    indexed: tuple[str, ...] = ()
    schema: str | None = None
    codec: str | None = None
    verified_sender: bool = False
    type: str = PERSISTENT
    persistent: bool = True

    @property
    def has_remedy(self) -> bool:
        """True if something is to be done where there is no room."""
        return self.overflow != "fail" or self.grow_to is not None or self.lets_go

    @property
    def most_requests(self) -> int:
        """The number of request ids of puts that are kept."""
        if self.dedup_count is None:
            return 0 if self.dedup_seconds is None else MAX_REQUESTS
        return self.dedup_count

    @property
    def most_stream_bytes(self) -> int:
        """The largest size of a message that is put as a stream, payload and header, in bytes."""
        if self.max_stream_bytes is not None:
            return self.max_stream_bytes
        return MAX_STREAM_BYTES if self.max_message_bytes is None else self.max_message_bytes

    def oldest_request_us(self, now_us: int) -> int:
        """Return the time of commit of the oldest request ids that are kept."""
        return 0 if self.dedup_seconds is None else now_us - int(self.dedup_seconds * 1e6)

    @property
    def has_rules(self) -> bool:
        """True if messages leave the queue by themselves, or it is said where they would go."""
        return (
            bool(self.timed)
            or self.max_deliveries is not None
            or self.retry is not None
            or self.dead_letter is not None
            or self.keeps
            or by_sequence(self.order)
        )

    @property
    def is_clocked(self) -> bool:
        """True if messages become available, or stop being so, as time goes by."""
        return bool(self.timed) or by_sequence(self.order) or self.group_rate is not None

    @property
    def pace(self) -> QueuePace | None:
        """The limits of what is handed out; None: there are none, of groups neither."""
        limits = self.max_in_flight, self.rate, self.group_max_in_flight, self.group_rate
        return None if limits == NO_LIMITS else QueuePace(self.max_in_flight, self.rate)

    @property
    def group_pace(self) -> QueuePace:
        """The limits of each group."""
        return QueuePace(self.group_max_in_flight, self.group_rate)

    @property
    def keeps(self) -> bool:
        """True if anything is kept that all have read."""
        return self.keep_forever or self.lets_go or self.keep_latest is not None

    @property
    def lets_go(self) -> bool:
        """True if kept messages go by themselves some time."""
        return not self.keep_forever and not (
            self.keep_seconds is None and self.keep_bytes is None and self.keep_messages is None
        )

    @property
    def block_bytes(self) -> int:
        """The size of a block of several of its messages, at most."""
        return SCATTERED_BLOCK_BYTES if by_key(self.order) else MAX_DATA_BLOCK_BYTES

    @property
    def selected_by(self) -> tuple[object, ...]:
        """The properties that decide which message is next; empty: they are delivered in commit
        order.
        """
        if self.order == COMMIT and not (self.timed or self.grouped):
            return ()
        times = bool(self.timed), self.ttl, self.max_ttl
        has_turns = self.grouped and self.pace is not None
        return self.order, *times, self.grouped, has_turns, has_turns and self.group_pace

    @property
    def limits_expiry(self) -> bool:
        """True if messages live no longer than `max_ttl`."""
        return bool(self.timed) and self.max_ttl is not None

    @property
    def default_ttl(self) -> float | None:
        """Seconds in which a message expires that says nothing of it, if times count."""
        values = [seconds for seconds in (self.ttl, self.max_ttl) if seconds is not None]
        return min(values, default=None)

    @property
    def put_priority(self) -> int:
        """The priority of messages that are put without one; 0: they have none."""
        return priority_of_puts(self.order, self.default_priority)

    @property
    def grants(self) -> bool:
        """True if messages get more by their put than it says."""
        return self.limits_expiry or self.put_priority > 0

    def granted(self, now_us: int) -> Granted:
        """Return the values that messages get which are put now."""
        if not self.limits_expiry:
            return Granted(self.put_priority, None, None)
        unsaid, latest = (now_us + int((s or 0.0) * 1e6) for s in (self.default_ttl, self.max_ttl))
        return Granted(self.put_priority, unsaid, latest)

    def to_body(self) -> dict[str, Any]:
        """Return the properties that differ from the default, as JSON has them, for the catalog."""
        pairs = zip(self._fields, self, DEFAULT, strict=True)
        return {name: value for name, value, usual in pairs if value != usual}


DEFAULT: Final = Properties()
MADE_WITH: Final = ("kind", "capacity", "max_messages", "data_file")
"""The arguments that a queue is made with beside its name and its properties."""


def priority_of_puts(order: object, default_priority: int) -> int:
    """Return the priority of messages that are put without one, in a queue of this order."""
    return default_priority if order == PRIORITY or by_code(order) else 0


def read_properties(body: Mapping[str, Any]) -> Properties:
    """Read a body of the catalog. Raises KeyError, TypeError or ValueError for a wrong one."""
    values = {name: body[name] for name in Properties._fields if name in body}
    try:
        return Properties(**check_properties(values)) if values else DEFAULT
    except InvalidArgument as error:
        raise ValueError(str(error)) from error


def check_properties(
    values: Mapping[str, object], beside: Iterable[str] = MADE_WITH, fixed: Iterable[str] = ()
) -> dict[str, Any]:
    """Options that callers give, checked. Raises InvalidArgument, which lists those of the call.

    `beside`: what else the call takes by name. `fixed`: what it does not change, as a queue keeps
    it.
    """
    checked = {}
    for name, value in values.items():
        check = _CHECKS.get(name)
        if check is None:
            known = [*beside, *(each for each in _CHECKS if each not in fixed)]
            words = f"is no property of a queue{did_you_mean(name, known)}: there are"
            if name in fixed:
                words = (
                    "of a queue stays as it was made: make another queue, and move the messages; "
                    "to be changed there are"
                )
            raise InvalidArgument(f"{name!r:.100} {words} {', '.join(known)}")
        checked[name] = check(name, value)
    return checked


def _order(name: str, value: object) -> str | dict[str, Any]:
    order = check_order(name, value)
    if isinstance(order, str) and not NAME.fullmatch(order):
        raise InvalidArgument(f"{name} {value!r:.100}: give {COMMIT!r}, or another order's name")
    return order


def _names(name: str, value: object) -> tuple[str, ...]:
    is_list = isinstance(value, Sequence) and not isinstance(
        value, (str, bytes, bytearray, memoryview)
    )
    names = tuple(cast("Sequence[object]", value)) if is_list else ()
    texts = [each for each in names if isinstance(each, str) and 0 < len(each) <= MAX_INDEXED_NAME]
    if not is_list or len(texts) < len(names) or not len(set(texts)) == len(names) <= MAX_INDEXED:
        raise InvalidArgument(
            f"{name} {value!r:.100}: give a list of up to {MAX_INDEXED} different names of "
            f"attributes or columns, each a str of 1 to {MAX_INDEXED_NAME} characters"
        )
    return tuple(texts)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or _utf8_bytes(value) > MAX_TEXT_BYTES:
        raise InvalidArgument(
            f"{name} {value!r:.100}: give a str of up to {MAX_TEXT_BYTES} bytes in UTF-8"
        )
    return value


def _words(name: str, value: object) -> Mapping[str, str]:
    if not isinstance(value, Mapping) or not all(
        isinstance(word, str) for pair in value.items() for word in pair
    ):
        raise InvalidArgument(f"{name} {value!r:.100}: give a mapping of str to str")
    size = sum(_utf8_bytes(word) for pair in value.items() for word in pair)
    if len(value) > MAX_PROPERTIES or size > MAX_TEXT_BYTES:
        raise InvalidArgument(
            f"{name}: {len(value)} of {size} bytes together; up to {MAX_PROPERTIES}, of "
            f"{MAX_TEXT_BYTES} bytes, are possible"
        )
    return dict(value)


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidArgument(f"{name} {value!r:.100}: give True or False")
    return value


def _flag_or_unsaid(name: str, value: object) -> bool | None:
    return None if value is None else _flag(name, value)


def _whole(
    noun: str, least: int, most: int, *, optional: bool = True
) -> Callable[[str, object], int | None]:
    """Return the check of a whole number; `noun` says what is counted."""
    words = f"give {noun} from {least} to {most}" + (", or None" if optional else "")

    def check(name: str, value: object) -> int | None:
        if value is None and optional:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise InvalidArgument(f"{name} {value!r:.100}: {words}")
        return value

    return check


def _named(what: str, *, optional: bool = True) -> Callable[[str, object], str | None]:
    """Return the check of a name as queues have it; `what` tells whose it is."""
    words = f"{what}, or None" if optional else what

    def check(name: str, value: object) -> str | None:
        if (value is None and optional) or (isinstance(value, str) and NAME.fullmatch(value)):
            return value
        raise InvalidArgument(f"{name} {value!r:.100}: give the name of {words}")

    return check


def _key(name: str, value: object) -> str | None:
    if value is None or (isinstance(value, str) and 0 < len(value) <= MAX_INDEXED_NAME):
        return value
    raise InvalidArgument(
        f"{name} {value!r:.100}: give the name of an attribute or a column, a str of 1 to "
        f"{MAX_INDEXED_NAME} characters, or None"
    )


def _seconds(bound: str, least: float) -> Callable[[str, object], float | None]:
    """Return the check of a span of time; `bound` is what it says of the least one."""

    def check(name: str, value: object) -> float | None:
        value = seconds_of(value)
        if value is None:
            return None
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not least <= cast(float, value) <= MAX_TTL_SECONDS:
            raise InvalidArgument(
                f"{name} {value!r:.100}: give seconds {bound} {MAX_TTL_SECONDS}, or a timedelta, "
                "or None"
            )
        return float(cast(float, value))

    return check


def _size(check: Callable[[str, object], int | None]) -> Callable[[str, object], int | None]:
    """Return the check of bytes that may also be said by a text, as "64m"."""
    return lambda name, value: check(name, bytes_of(value))


def _overflow(name: str, value: object) -> OverflowPolicy:
    if not isinstance(value, str) or value not in OVERFLOWS:
        raise InvalidArgument(f"{name} {value!r:.100}: give one of {', '.join(OVERFLOWS)}")
    return cast(OverflowPolicy, value)


def _utf8_bytes(text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise InvalidArgument(
            f"{text!r:.100} has lone surrogates, which UTF-8 cannot hold"
        ) from None


_positive_seconds: Final = _seconds("above 0, up to", math.ulp(0.0))
_in_flight: Final = _whole("an int", 1, MAX_IN_FLIGHT_LIMIT)
_kept: Final = _whole("an int", 0, MAX_KEPT)

_CHECKS: Final = {
    "text": _text,
    "properties": _words,
    "order": _order,
    "default_priority": _whole("an int", 0, MAX_PRIORITY, optional=False),
    "puts": _flag,
    "gets": _flag,
    "max_deliveries": _whole("an int", 1, MAX_DELIVERIES),
    "retry": check_retry,
    "timed": _flag_or_unsaid,
    "ttl": _positive_seconds,
    "max_ttl": _positive_seconds,
    "grouped": _flag,
    "max_in_flight": _in_flight,
    "rate": check_rate,
    "group_max_in_flight": _in_flight,
    "group_rate": check_rate,
    "keep_expired": _flag,
    "dead_letter": _named("a queue"),
    "keep_seconds": _seconds("from 0 to", 0),
    "keep_bytes": _size(_kept),
    "keep_messages": _kept,
    "keep_forever": _flag,
    "keep_latest": _key,
    "overflow": _overflow,
    "grow_to": _size(_whole("bytes", MIN_CAPACITY_BYTES, MAX_CAPACITY_BYTES)),
    "max_message_bytes": _size(_whole("bytes", 1, MAX_BLOCK_BYTES)),
    "max_stream_bytes": _size(_whole("bytes", 1, MAX_STREAM_BYTES)),
    "dedup_count": _whole("an int", 1, MAX_REQUESTS),
    "dedup_seconds": _positive_seconds,
    "indexed": _names,
    "schema": check_schema,
    "codec": _named("a codec, as 'json'"),
    "verified_sender": _flag,
    "type": _named(f"a queue type, as {VOLATILE!r}", optional=False),
    "persistent": _flag,
}

assert tuple(_CHECKS) == Properties._fields == tuple(QueueOptions.__annotations__)
