"""The options of `format("quire")`, parsed once and checked in full.

Names follow Spark's Kafka connector where the meaning is the same. They are case-insensitive, and
an option that is not known where it is given is an error, never ignored.

Everywhere
    path                   the store's directory, absolute, or the URL of its server
                           (quire://host:port); or what is given to load, save, start
    networkFileSystem      true: a store on a network file system is warned of in place of refused

Reads
    queue                  the queue to read
    subscribe              or several: a,b,c
    subscribePattern       or all whose whole name a regular expression of Python matches; of
                           streams all topics. Topics made later join a running query, each from
                           its first message, and the offsets are words
    subscription           streams: the subscription that keeps messages until the query has read
                           them; made if it is not there. One query reads by it at a time
    startingOffsets        earliest, latest, or {"queue": position} with -2 for earliest and -1 for
                           latest. Batch: earliest by default, never latest. Streams: latest; words
                           say where a new subscription begins, an old one goes on where it stands;
                           positions hold for every new query. A restarted query always goes on
    endingOffsets          batch: the same, latest by default, never earliest
    startingTimestamp      begin with the first message committed then or later, in milliseconds
                           since 1970, and as positions do: for every new query. It goes before
                           startingOffsetsByTimestamp, and that before startingOffsets
    startingOffsetsByTimestamp  the same by queue: {"queue": milliseconds}
    startingOffsetsByTimestampStrategy  where no message is as new as that: error (the default), or
                           latest: begin with the next one that comes
    endingTimestamp        batch: end before the first message committed then or later, or behind
                           all if there is none; before endingOffsetsByTimestamp, endingOffsets
    endingOffsetsByTimestamp  batch: the same by queue
    maxMessagesPerTrigger  streams: the most messages of a micro-batch over all queues; also
                           under the name maxOffsetsPerTrigger
    maxBytesPerTrigger     streams: about the most bytes of a micro-batch over all queues, told by
                           the mean of a block's messages; at least one message. 64m is 64 MiB
    minOffsetsPerTrigger   streams: a micro-batch waits until so many messages are there,
    maxTriggerDelay        but no longer than this since the last one; 15m by default. Neither the
                           first one after a start nor Trigger.AvailableNow waits
    minPartitions          at least so many tasks; by default one for each core and 256 MiB
    checkpointLocation     streams: that of the query, once more. What it says was read is then
                           durable before the store lets go of the messages (Graph gives it)
    failOnDataLoss         true: messages that are gone are an error. false: take what is there
    includeHeaders         true: all columns. false: queue, id, position, payload and time
    columns                the columns to read, with commas between them; of typed queues all of
                           theirs by default, and _meta (or _meta.position) only if it is named
    where                  only rows for which this is true, such as "amount > 5 and day = date
                           '2024-02-29'": see quire/rows/row_filter.py. Blocks without any are not
                           read

Writes
    queue                  where all rows go; by default each goes where its column `queue` says
    queueFullTimeout       seconds to wait for room in a full queue before the write fails; 60
    compression            zstd, lz4 or none (the default), of what is written to files
    txnAppId, txnVersion   batch, both or neither: a write with a version that this id has written
                           to the queue already, or an older one, has no effect. Streams need none
    txnCheck               batch: content (the default) refuses a version that the queue has with
                           other rows; version skips it, whatever its rows are
"""

from __future__ import annotations

import difflib
import enum
import json
import math
import re
from collections.abc import Mapping

from msgspec import Struct

from quire.arguments import check_name
from quire.errors import InvalidArgument
from quire.ltds import Compression, codec_named
from quire.sizes import bytes_of

from . import by_time
from .by_time import ByTime
from .connection import check_url, is_served
from .limits import DEFAULT_TRIGGER_DELAY_SECONDS

EARLIEST = -2  # the numbers that Kafka's connector uses inside JSON offsets
LATEST = -1


class Side(enum.Enum):
    """The call that options are given to."""

    BATCH_READ = "a batch read"
    BATCH_WRITE = "a batch write"
    STREAM_READ = "a streaming read"
    STREAM_WRITE = "a streaming write"


_READS = (Side.BATCH_READ, Side.STREAM_READ)
_WRITES = (Side.BATCH_WRITE, Side.STREAM_WRITE)

KNOWN: dict[str, tuple[Side, ...]] = {
    "path": tuple(Side),
    "networkFileSystem": tuple(Side),
    "queue": tuple(Side),
    "subscribe": _READS,
    "subscribePattern": _READS,
    "subscription": (Side.STREAM_READ,),
    "startingOffsets": _READS,
    "endingOffsets": (Side.BATCH_READ,),
    "startingTimestamp": _READS,
    "startingOffsetsByTimestamp": _READS,
    "startingOffsetsByTimestampStrategy": _READS,
    "endingTimestamp": (Side.BATCH_READ,),
    "endingOffsetsByTimestamp": (Side.BATCH_READ,),
    "maxMessagesPerTrigger": (Side.STREAM_READ,),
    "maxOffsetsPerTrigger": (Side.STREAM_READ,),
    "maxBytesPerTrigger": (Side.STREAM_READ,),
    "minOffsetsPerTrigger": (Side.STREAM_READ,),
    "maxTriggerDelay": (Side.STREAM_READ,),
    "minPartitions": _READS,
    "failOnDataLoss": _READS,
    "includeHeaders": _READS,
    "columns": _READS,
    "where": _READS,
    "txnAppId": (Side.BATCH_WRITE,),
    "txnVersion": (Side.BATCH_WRITE,),
    "txnCheck": (Side.BATCH_WRITE,),
    "queueFullTimeout": _WRITES,
    "compression": _WRITES,
    # Spark hands its own `queryName` and `checkpointLocation` to a streaming sink.
    "queryName": (Side.STREAM_WRITE,),
    "checkpointLocation": (Side.STREAM_READ, Side.STREAM_WRITE),
}
_CANONICAL = {name.lower(): name for name in KNOWN}

_NO_SECRETS = (
    "options are in plans, event logs and the user interface: give a token by QUIRE_TOKEN in the "
    "environment of driver and executors, or by the file ~/.config/quire/tokens of each host"
)
_ADVICE = {
    "token": _NO_SECRETS,
    "password": _NO_SECRETS,
    "tls": "name the files by QUIRE_TLS_CA, QUIRE_TLS_CERT and QUIRE_TLS_KEY in the environment",
    "topic": "use 'queue'",
    "assign": "a queue has no partitions; use 'queue' or 'subscribe'",
    "paths": "a read is of one store: give load() its directory alone, and queues by 'subscribe'",
}

# The units of Spark's own options; a bare number is of milliseconds.
_SECONDS = {"": 0.001, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SHORT_UNITS = {"millisecond": "ms", "second": "s", "minute": "min", "hour": "h", "day": "d"}
_WRITTEN_OUT = re.compile(rf"([0-9]+\s*)({'|'.join(_SHORT_UNITS)})s?")

Starts = int | Mapping[str, int] | ByTime
"""EARLIEST, LATEST, a position (or one of these two) for each queue, or times."""


class ReadOptions(Struct, frozen=True):
    path: str
    queues: tuple[str, ...]  # none where a pattern chooses them
    subscription: str | None
    starting: Starts
    ending: Starts
    max_messages: int | None
    min_partitions: int | None
    fail_on_data_loss: bool
    include_headers: bool
    pattern: str | None = None
    max_bytes: int | None = None
    min_messages: int | None = None
    max_delay_seconds: float = DEFAULT_TRIGGER_DELAY_SECONDS
    checkpoint: str | None = None
    columns: str | None = None
    where: str | None = None
    source: int = 1  # of those that Spark makes of one load (one_load.py)
    network_file_system: bool = False


class WriteOptions(Struct, frozen=True):
    path: str
    queue: str | None
    app_id: str | None
    version: int | None
    queue_full_timeout: float
    codec: Compression = Compression.NONE
    checkpoint: str | None = None  # as Spark was told it, for a streaming write
    query_name: str | None = None
    network_file_system: bool = False
    check_content: bool = True


def read_options(raw: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """The options of a source. Raises InvalidArgument with what to change."""
    options = _known(raw, Side.STREAM_READ if streaming else Side.BATCH_READ)
    path, queues = _path(options), _queues(options)
    starting = _offsets(options, "startingOffsets", LATEST if streaming else EARLIEST, queues)
    ending = _offsets(options, "endingOffsets", LATEST, queues)
    from_time, to_time = by_time.starting(options, queues), by_time.ending(options, queues)
    if not streaming and from_time is None:
        _check_word("startingOffsets", starting, LATEST)
    if not streaming and to_time is None:
        _check_word("endingOffsets", ending, EARLIEST)
    by_time.check_order(from_time, to_time)
    return ReadOptions(
        path=path,
        queues=queues,
        subscription=options.get("subscription"),
        starting=from_time or starting,
        ending=to_time or ending,
        max_messages=_max_messages(options),
        min_partitions=_positive(options, "minPartitions"),
        fail_on_data_loss=_flag(options, "failOnDataLoss", True),
        include_headers=_flag(options, "includeHeaders", True),
        pattern=options.get("subscribePattern"),
        max_bytes=_bytes(options, "maxBytesPerTrigger"),
        min_messages=_min_messages(options),
        max_delay_seconds=_duration(options, "maxTriggerDelay", DEFAULT_TRIGGER_DELAY_SECONDS),
        checkpoint=options.get("checkpointLocation"),
        columns=options.get("columns"),
        where=options.get("where"),
        network_file_system=_flag(options, "networkFileSystem", False),
    )


def write_options(raw: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """The options of a sink. Raises InvalidArgument with what to change."""
    options = _known(raw, Side.STREAM_WRITE if streaming else Side.BATCH_WRITE)
    app_id, version = options.get("txnAppId"), options.get("txnVersion")
    if (app_id is None) != (version is None):
        raise InvalidArgument("give 'txnAppId' and 'txnVersion' together, or neither of them")
    check = options.get("txnCheck", "content").strip().lower()
    if check not in ("content", "version"):
        raise InvalidArgument(f"option 'txnCheck' must be content or version, not '{check}'")
    if app_id is None and "txnCheck" in options:
        raise InvalidArgument(
            "option 'txnCheck' says how a version that is there already is compared: give "
            "'txnAppId' and 'txnVersion' with it"
        )
    queue = options.get("queue")
    return WriteOptions(
        path=_path(options),
        queue=None if queue is None else check_name(queue, "queue"),
        app_id=app_id,
        version=None if version is None else _integer("txnVersion", version, minimum=0),
        queue_full_timeout=_seconds(options, "queueFullTimeout", 60.0),
        check_content=check == "content",
        codec=_codec(options, "compression"),
        checkpoint=options.get("checkpointLocation"),
        query_name=options.get("queryName"),
        network_file_system=_flag(options, "networkFileSystem", False),
    )


def include_headers(raw: Mapping[str, str]) -> bool:
    """`includeHeaders` alone: the schema is asked for before it is known what will be read."""
    folded = {key.lower(): value for key, value in raw.items()}
    value = folded.get("includeheaders")
    return _flag({} if value is None else {"includeHeaders": value}, "includeHeaders", True)


def _known(raw: Mapping[str, str], side: Side) -> dict[str, str]:
    """The options under their canonical names, or an error that names the first strange one."""
    options = {}
    for key, value in raw.items():
        name = _CANONICAL.get(key.lower())
        if name is None:
            raise InvalidArgument(f"unknown option '{key}' of format 'quire'{_advice(key)}")
        # A view by CREATE TEMPORARY VIEW has one set for SELECT and INSERT.
        is_of_view = side is Side.BATCH_READ and Side.BATCH_WRITE in KNOWN[name]
        if side not in KNOWN[name] and not is_of_view:
            places = [place.value for place in KNOWN[name]]
            raise InvalidArgument(
                f"option '{name}' belongs to {' or '.join(places)}, not to {side.value}"
            )
        options[name] = value
    return options


def _advice(key: str) -> str:
    if key.lower() in _ADVICE:
        return f": {_ADVICE[key.lower()]}"
    near = difflib.get_close_matches(key.lower(), _CANONICAL, n=1)
    if near:
        return f"; did you mean '{_CANONICAL[near[0]]}'?"
    return f"; known are {', '.join(sorted(KNOWN))}"


def _path(options: Mapping[str, str]) -> str:
    path = local_path(options.get("path", ""))
    if not path:
        raise InvalidArgument(
            "option 'path' is missing: give the store's directory, or quire://host:port. (Spark "
            "does not hand on the options of CREATE TABLE: use CREATE TEMPORARY VIEW, or give them "
            "WITH (...) in each statement)"
        )
    if is_served(path):
        return check_url(path)
    if not path.startswith("/"):
        # The connector runs in processes with other working directories than the driver's.
        raise InvalidArgument(f"option 'path' must be absolute, not '{path}'")
    return path


def local_path(location: str) -> str:
    """A path, or a location of the scheme `file`, as a path; other schemes stay as they are."""
    path = location.removeprefix("file:")
    return "/" + path.lstrip("/") if path.startswith("//") else path


def _queues(options: Mapping[str, str]) -> tuple[str, ...]:
    """The names that were given; none where a pattern chooses the queues."""
    chosen = [name for name in ("queue", "subscribe", "subscribePattern") if name in options]
    if len(chosen) != 1:
        raise InvalidArgument(
            "give exactly one of 'queue' (one name), 'subscribe' (a,b,c) and 'subscribePattern' "
            "(a regular expression)"
        )
    text = options[chosen[0]]
    if chosen == ["subscribePattern"]:
        try:
            re.compile(text)
        except re.error as error:
            raise InvalidArgument(
                f"option 'subscribePattern' is '{text}', which is no regular expression: {error}"
            ) from None
        return ()
    names = [text] if chosen == ["queue"] else [name.strip() for name in text.split(",")]
    if not all(names):
        raise InvalidArgument("'queue' and 'subscribe' name the queues to read; a name is empty")
    if len(set(names)) != len(names):
        raise InvalidArgument(f"'subscribe' names a queue twice: {text}")
    return tuple(check_name(name, "queue") for name in names)


def _max_messages(options: Mapping[str, str]) -> int | None:
    ours, kafkas = "maxMessagesPerTrigger", "maxOffsetsPerTrigger"
    if ours in options and kafkas in options:
        raise InvalidArgument(f"'{kafkas}' is another name of '{ours}': give one of them")
    return _positive(options, ours if ours in options else kafkas)


def _min_messages(options: Mapping[str, str]) -> int | None:
    least, limit = _positive(options, "minOffsetsPerTrigger"), _max_messages(options)
    if least is None and "maxTriggerDelay" in options:
        raise InvalidArgument(
            "option 'maxTriggerDelay' says how long a micro-batch waits for the messages of "
            "'minOffsetsPerTrigger': give both, or neither of them"
        )
    if least is not None and limit is not None and least > limit:
        raise InvalidArgument(
            f"'minOffsetsPerTrigger' is {least}, more than the {limit} messages that a micro-batch "
            "may have: lower it, or raise the limit"
        )
    return least


def _offsets(
    options: Mapping[str, str], name: str, default: int, queues: tuple[str, ...]
) -> Starts:
    text = options.get(name)
    if text is None:
        return default
    named_offsets = {"earliest": EARLIEST, "latest": LATEST}
    if text.strip().lower() in named_offsets:
        return named_offsets[text.strip().lower()]
    if not queues:
        raise InvalidArgument(
            f"option '{name}' is '{text}'; with 'subscribePattern' give earliest or latest"
        )
    shape = f'earliest, latest, or JSON such as {{"{queues[0]}": 23}} (-2 earliest, -1 latest)'
    try:
        offsets = json.loads(text)
    except ValueError:
        raise InvalidArgument(f"option '{name}' is '{text}'; give {shape}") from None
    if not isinstance(offsets, dict) or not all(_is_offset(value) for value in offsets.values()):
        raise InvalidArgument(f"option '{name}' is '{text}'; give {shape}")
    if set(offsets) != set(queues):
        raise InvalidArgument(
            f"option '{name}' must give a position for each of {', '.join(queues)}, "
            f"but gives {', '.join(sorted(offsets)) or 'none'}"
        )
    return offsets


def _check_word(name: str, offsets: Starts, wrong: int) -> None:
    """Refuse a batch read that begins where it ends, of a queue or of all."""
    queues = [*offsets] if isinstance(offsets, Mapping) else []
    found = [queue for queue in queues if offsets[queue] == wrong]  # type: ignore[index]
    if offsets != wrong and not found:
        return
    ends = ("latest", "earliest") if wrong == LATEST else ("earliest", "latest")
    of_queue = f" for queue '{found[0]}'" if found else ""
    raise InvalidArgument(
        f"option '{name}' is {ends[0]}{of_queue}, and a batch read has no rows then: give "
        f"{ends[1]} or a position. A stream may begin at latest"
    )


def _is_offset(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= EARLIEST


def _positive(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    return None if text is None else _integer(name, text, minimum=1)


def _integer(name: str, text: str, *, minimum: int) -> int:
    try:
        value = int(text)
    except ValueError:
        raise InvalidArgument(f"option '{name}' must be a whole number, not '{text}'") from None
    if not minimum <= value < 1 << 63:
        raise InvalidArgument(f"option '{name}' must be at least {minimum}, not {text}")
    return value


def _seconds(options: Mapping[str, str], name: str, default: float) -> float:
    text = options.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < math.inf:
        raise InvalidArgument(f"option '{name}' must be a number of seconds, not '{text}'")
    return value


def _duration(options: Mapping[str, str], name: str, default: float) -> float:
    """A time such as 90s or 15m, in seconds."""
    text = options.get(name)
    return default if text is None else _quantity(name, text, _SECONDS, "15m or 500ms")


def _bytes(options: Mapping[str, str], name: str) -> int | None:
    """A size such as 64m."""
    text = options.get(name)
    return None if text is None else quantity_of_bytes(name, text)


def quantity_of_bytes(name: str, text: str) -> int:
    """A size such as 64m, in bytes. Raises InvalidArgument."""
    found = bytes_of(text)
    if not isinstance(found, int) or found < 1:
        raise InvalidArgument(
            f"option '{name}' is '{text}'; give a number from 1 on, with one of the units b, k, m, "
            "g, t, such as 64m or 100000"
        )
    return found


def quantity_of_seconds(name: str, text: str) -> float:
    """A time such as 500 ms or 2 minutes, in seconds; its unit has to be there.

    Raises InvalidArgument.
    """
    units = {unit: seconds for unit, seconds in _SECONDS.items() if unit}
    found = _WRITTEN_OUT.fullmatch(text.strip().lower())
    short = text if found is None else found[1] + _SHORT_UNITS[found[2]]
    return _quantity(name, short, units, "500 ms or 2 minutes")


def _quantity(name: str, text: str, units: Mapping[str, float], example: str) -> float:
    found = re.fullmatch(r"([0-9]{1,15})\s*([a-z]*)", text.strip().lower())
    if found is None or found[2] not in units or int(found[1]) < 1:
        raise InvalidArgument(
            f"option '{name}' is '{text}'; give a number from 1 on, with one of the units "
            f"{', '.join(filter(None, units))}, such as {example}"
        )
    return int(found[1]) * units[found[2]]


def _codec(options: Mapping[str, str], name: str) -> Compression:
    text = options.get(name, "none").strip().lower()
    try:
        return codec_named(None if text == "none" else text)
    except InvalidArgument:
        raise InvalidArgument(f"option '{name}' must be zstd, lz4 or none, not '{text}'") from None


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name)
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise InvalidArgument(f"option '{name}' must be true or false, not '{text}'")
    return text.strip().lower() == "true"
