"""The options of `format("quire")`, parsed once and checked in full.

Names follow Spark's Kafka connector where the meaning is the same. They are case-insensitive, and
an option that is not known where it is given is an error, never ignored.

Everywhere
    path                   the store's directory, absolute; or what is given to load, save, start

Reads
    queue                  the queue to read
    subscribe              or several: a,b,c
    subscription           streams: the subscription that keeps messages until the query has read
                           them; made if it is not there. One query reads by it at a time
    startingOffsets        earliest, latest, or {"queue": position} with -2 for earliest and -1 for
                           latest. Batch: earliest by default. Streams: latest by default; words
                           say where a new subscription begins, an old one goes on where it stands;
                           positions hold for every new query. A restarted query always goes on
    endingOffsets          batch: the same, latest by default
    maxMessagesPerTrigger  streams: the most messages of a micro-batch over all queues
    minPartitions          at least so many tasks; by default one for each core and 256 MiB
    checkpointLocation     streams: that of the query, once more. What it says was read is then
                           durable before the store lets go of the messages (Graph gives it)
    failOnDataLoss         true: messages that are gone are an error. false: take what is there
    includeHeaders         true: all columns. false: queue, id, position, payload and time

Writes
    queue                  where all rows go; by default each goes where its column `queue` says
    queueFullTimeout       seconds to wait for room in a full queue before the write fails; 60
    compression            zstd, lz4 or none (the default), of what is written to files
    txnAppId, txnVersion   batch, both or neither: a write with a version that this id has written
                           already, or an older one, has no effect. Streams need none
"""

from __future__ import annotations

import difflib
import enum
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

from quire.errors import InvalidArgument
from quire.ltds import Codec, codec_named

EARLIEST = -2  # the numbers that Kafka's connector uses inside JSON offsets
LATEST = -1


class Side(enum.Enum):
    """Where options are given."""

    # One side for batch reads and writes: a view by CREATE TEMPORARY VIEW has one set for both.
    BATCH = "a batch read or write"
    STREAM_READ = "a streaming read"
    STREAM_WRITE = "a streaming write"


_READS = (Side.BATCH, Side.STREAM_READ)
_WRITES = (Side.BATCH, Side.STREAM_WRITE)

_KNOWN: dict[str, tuple[Side, ...]] = {
    "path": tuple(Side),
    "queue": tuple(Side),
    "subscribe": _READS,
    "subscription": (Side.STREAM_READ,),
    "startingOffsets": _READS,
    "endingOffsets": (Side.BATCH,),
    "maxMessagesPerTrigger": (Side.STREAM_READ,),
    "minPartitions": _READS,
    "failOnDataLoss": _READS,
    "includeHeaders": _READS,
    "txnAppId": (Side.BATCH,),
    "txnVersion": (Side.BATCH,),
    "queueFullTimeout": _WRITES,
    "compression": _WRITES,
    # Spark hands its own `queryName` and `checkpointLocation` to a streaming sink.
    "queryName": (Side.STREAM_WRITE,),
    "checkpointLocation": (Side.STREAM_READ, Side.STREAM_WRITE),
}
_CANONICAL = {name.lower(): name for name in _KNOWN}

_ADVICE = {
    "topic": "use 'queue'",
    "subscribepattern": "list the queues in 'subscribe'",
    "maxoffsetspertrigger": "use 'maxMessagesPerTrigger'",
    "maxbytespertrigger": "limit a micro-batch with 'maxMessagesPerTrigger'",
}

Starts = int | Mapping[str, int]
"""EARLIEST, LATEST, or a position (or one of these two) for each queue."""


@dataclass(frozen=True)
class ReadOptions:
    path: str
    queues: tuple[str, ...]
    subscription: str | None
    starting: Starts
    ending: Starts
    max_messages: int | None
    min_partitions: int | None
    fail_on_data_loss: bool
    include_headers: bool
    checkpoint: str | None = None


@dataclass(frozen=True)
class WriteOptions:
    path: str
    queue: str | None
    app_id: str | None
    version: int | None
    queue_full_timeout: float
    codec: Codec = Codec.NONE


def read_options(given: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """The options of a source. Raises InvalidArgument with what to change."""
    options = _known(given, Side.STREAM_READ if streaming else Side.BATCH)
    path, queues = _path(options), _queues(options)
    return ReadOptions(
        path=path,
        queues=queues,
        subscription=options.get("subscription"),
        starting=_offsets(options, "startingOffsets", LATEST if streaming else EARLIEST, queues),
        ending=_offsets(options, "endingOffsets", LATEST, queues),
        max_messages=_positive(options, "maxMessagesPerTrigger"),
        min_partitions=_positive(options, "minPartitions"),
        fail_on_data_loss=_flag(options, "failOnDataLoss", True),
        include_headers=_flag(options, "includeHeaders", True),
        checkpoint=options.get("checkpointLocation"),
    )


def write_options(given: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """The options of a sink. Raises InvalidArgument with what to change."""
    options = _known(given, Side.STREAM_WRITE if streaming else Side.BATCH)
    app_id, version = options.get("txnAppId"), options.get("txnVersion")
    if (app_id is None) != (version is None):
        raise InvalidArgument("give 'txnAppId' and 'txnVersion' together, or neither of them")
    return WriteOptions(
        path=_path(options),
        queue=options.get("queue"),
        app_id=app_id,
        version=None if version is None else _integer("txnVersion", version, minimum=0),
        queue_full_timeout=_seconds(options, "queueFullTimeout", 60.0),
        codec=_codec(options, "compression"),
    )


def include_headers(given: Mapping[str, str]) -> bool:
    """`includeHeaders` alone: the schema is asked for before it is known what will be read."""
    folded = {key.lower(): value for key, value in given.items()}
    value = folded.get("includeheaders")
    return _flag({} if value is None else {"includeHeaders": value}, "includeHeaders", True)


def _known(given: Mapping[str, str], side: Side) -> dict[str, str]:
    """The options under their canonical names, or an error that names the first strange one."""
    options = {}
    for key, value in given.items():
        name = _CANONICAL.get(key.lower())
        if name is None:
            raise InvalidArgument(f"unknown option '{key}' of format 'quire'{_advice(key)}")
        if side not in _KNOWN[name]:
            places = [place.value for place in _KNOWN[name]]
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
    return f"; known are {', '.join(sorted(_KNOWN))}"


def _path(options: Mapping[str, str]) -> str:
    path = options.get("path", "").removeprefix("file:")
    path = "/" + path.lstrip("/") if path.startswith("//") else path
    if not path:
        raise InvalidArgument(
            "option 'path' is missing: give the store's directory. (Spark does not hand on "
            "the options of CREATE TABLE: use CREATE TEMPORARY VIEW, or give them WITH (...) in "
            "each statement)"
        )
    if not path.startswith("/"):
        # The connector runs in processes with other working directories than the driver's.
        raise InvalidArgument(f"option 'path' must be absolute, not '{path}'")
    return path


def _queues(options: Mapping[str, str]) -> tuple[str, ...]:
    one, several = options.get("queue"), options.get("subscribe")
    if (one is None) == (several is None):
        raise InvalidArgument("give exactly one of 'queue' (one name) and 'subscribe' (a,b,c)")
    names = [one] if one is not None else [name.strip() for name in (several or "").split(",")]
    if not all(names):
        raise InvalidArgument("'queue' and 'subscribe' name the queues to read; a name is empty")
    if len(set(names)) != len(names):
        raise InvalidArgument(f"'subscribe' names a queue twice: {several}")
    return tuple(name for name in names if name)


def _offsets(
    options: Mapping[str, str], name: str, default: int, queues: tuple[str, ...]
) -> Starts:
    text = options.get(name)
    if text is None:
        return default
    words = {"earliest": EARLIEST, "latest": LATEST}
    if text.strip().lower() in words:
        return words[text.strip().lower()]
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


def _codec(options: Mapping[str, str], name: str) -> Codec:
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
