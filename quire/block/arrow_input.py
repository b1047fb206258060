"""Arrow to blocks: arrays of payloads and batches with header columns, without work per message.

Everything is checked before anything is kept: types, nulls, offsets, UTF-8 and limits. Payload
bytes are not copied here; the runs refer to Arrow's memory until they are built.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from quire.errors import InvalidArgument
from quire.libraries import np, pa
from quire.limits import (
    MAX_ATTRIBUTES,
    MAX_ATTRIBUTES_BYTES,
    MAX_GROUP,
    MAX_PAYLOAD_BYTES,
    MAX_PRIORITY,
    MAX_STRING_BYTES,
    MAX_TIME_US,
)

from .encoding import MessageRun, prioritised
from .format import ABSENT_TIME, FIXED_COLUMNS, Column
from .header_columns import Attributes, Headers, Strings, offsets_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

Priorities: TypeAlias = "int | NDArray[np.int64]"
"""The priority of all messages, or of each."""

SET_BY_STORE = ("id", "time", "delivery_count", "queue")
_SMALL = {"priority": (Column.PRIORITY, MAX_PRIORITY), "group": (Column.GROUP, MAX_GROUP)}
_TIMES = {"expires_at": Column.EXPIRES_AT, "deliver_at": Column.DELIVER_AT}
_STRINGS = {
    "sender": Column.SENDER,
    "correlation_id": Column.CORRELATION_ID,
    "reply_to": Column.REPLY_TO,
    "content_type": Column.CONTENT_TYPE,
}


def runs_of_arrow(source: object, default_priority: Priorities = 0) -> list[MessageRun]:
    """The runs of an array, chunked array, batch or table; empty ones are left out.

    `default_priority`: of messages whose priority is null, or of each if there is no such column.
    """
    try:
        if isinstance(source, pa.ChunkedArray):
            runs = [_run_of_array(c, Headers(), default_priority) for c in source.chunks if len(c)]
        elif isinstance(source, pa.Table):
            runs = [_run_of_batch(b, default_priority) for b in source.to_batches() if b.num_rows]
            if not runs:
                _check_names(source.schema)
        elif isinstance(source, pa.RecordBatch):
            run = _run_of_batch(source, default_priority)
            runs = [run] if run.count else []
        elif isinstance(source, pa.Array):
            run = _run_of_array(source, Headers(), default_priority)
            runs = [run] if run.count else []
        else:
            raise InvalidArgument(
                "messages must be a pyarrow Array, ChunkedArray, RecordBatch or Table, not "
                f"{type(source).__name__}"
            )
    except pa.ArrowException as error:
        raise InvalidArgument(f"the Arrow data cannot be used: {error}") from error
    return runs


def runs_of_shares(
    batch: pa.RecordBatch, counts: Sequence[int], defaults: Sequence[int] = ()
) -> list[MessageRun]:
    """The runs of the first so many messages of the batch, of the next ones, and so on.

    `defaults`: of each, what messages get whose priority is null. The batch is checked once for all
    of them, which is most of the work where they are small.
    """
    default = np.repeat(np.array(defaults), counts) if any(defaults) else 0
    shares = [share for run in runs_of_arrow(batch, default) for share in run.split(counts)]
    for share, own in zip(shares, defaults or [0] * len(counts), strict=False):
        priorities = share.headers.fixed.get(Column.PRIORITY)
        if not own and priorities is not None and not priorities.any():
            del share.headers.fixed[Column.PRIORITY]  # 0 is one only where there is a default
    return shares


def _run_of_array(array: pa.Array, headers: Headers, default_priority: Priorities) -> MessageRun:
    lengths, content = _binary_rows("payload", array, MAX_PAYLOAD_BYTES)
    headers = prioritised(headers, len(lengths), default_priority)
    return MessageRun(lengths, [content], headers, region=True)


def _run_of_batch(batch: pa.RecordBatch, default_priority: Priorities) -> MessageRun:
    _check_names(batch.schema)
    headers = Headers()
    payload: pa.Array = None
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        if name == "payload":
            payload = array
        else:
            keep_header(headers, name, array, default_priority)
    return _run_of_array(payload, headers, default_priority)


def keep_header(headers: Headers, name: str, array: pa.Array, default_priority: Priorities) -> bool:
    """Keep a header column, checked; whether there is one of this name that a put may set."""
    if name in _SMALL:
        column, maximum = _SMALL[name]
        values = _small_values(name, array, maximum)
        if name == "priority" and np.any(default_priority):  # then 0 is one, too
            values = np.where(np.asarray(array.is_valid()), values, default_priority)
            headers.fixed[column] = values.astype("<u2")
        else:
            _keep_fixed(headers, column, values)
    elif name in _TIMES:
        _keep_fixed(headers, _TIMES[name], _time_values(name, array))
    elif name in _STRINGS:
        if array.null_count < len(array):
            headers.strings[_STRINGS[name]] = _string_values(name, array)
    elif name == "attributes":
        attributes = _attributes_values(array)
        headers.attributes = attributes if attributes.starts[-1] else None
    else:
        return False
    return True


def _check_names(schema: pa.Schema) -> None:
    names = schema.names
    if names.count("payload") != 1:
        raise InvalidArgument(
            f"the batch must have one column 'payload'; it has {', '.join(names) or 'none'}"
        )
    refused = [name for name in names if name in SET_BY_STORE]
    if refused:
        raise InvalidArgument(
            f"the columns {', '.join(refused)} are set by the store: drop them from the batch"
        )
    known = {"payload", "attributes", *_SMALL, *_TIMES, *_STRINGS}
    unknown = [name for name in names if name not in known]
    if unknown or len(set(names)) < len(names):
        raise InvalidArgument(
            f"the batch has unknown or doubled columns ({', '.join(unknown or names)}); possible "
            f"are {', '.join(sorted(known))}"
        )


def _keep_fixed(headers: Headers, column: int, values: NDArray[np.int64]) -> None:
    dtype, absent = FIXED_COLUMNS[column]
    if (values != absent).any():
        headers.fixed[column] = values.astype(dtype)


def _binary_rows(
    name: str, array: pa.Array, maximum_bytes: int
) -> tuple[NDArray[np.int64], memoryview]:
    """Lengths and contiguous bytes of the rows of a binary or string array without nulls."""
    if pa.types.is_fixed_size_binary(array.type) or str(array.type).endswith("_view"):
        array = array.cast(pa.large_binary())
    large = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
    if not (large or pa.types.is_binary(array.type) or pa.types.is_string(array.type)):
        raise InvalidArgument(
            f"column {name!r} must be of type binary or string, not {array.type}: cast it"
        )
    if array.null_count:
        raise InvalidArgument(
            f"column {name!r} has {array.null_count} nulls: fill or filter them first"
        )
    count = len(array)
    if not count:
        return np.zeros(0, np.int64), memoryview(b"")
    array.validate()
    _, offsets_buffer, data = array.buffers()
    dtype = np.dtype(np.int64 if large else np.int32)
    offsets: NDArray[Any] = np.frombuffer(
        offsets_buffer, dtype, count + 1, array.offset * dtype.itemsize
    )
    lengths = np.diff(offsets).astype(np.int64, copy=False)
    first, last = int(offsets[0]), int(offsets[-1])
    size = data.size if data is not None else 0
    if lengths.min() < 0 or not 0 <= first <= last <= size:
        raise InvalidArgument(f"column {name!r} has offsets outside its data")
    if int(lengths.max()) > maximum_bytes:
        raise InvalidArgument(
            f"column {name!r} has a value of {int(lengths.max())} bytes; at most {maximum_bytes} "
            "are possible"
        )
    content = memoryview(data if data is not None else b"")
    return lengths, content[first:last]


def _small_values(name: str, array: pa.Array, maximum: int) -> NDArray[np.int64]:
    if not pa.types.is_integer(array.type):
        raise InvalidArgument(f"column {name!r} must be of an integer type, not {array.type}")
    values = _int64(array, 0)
    if len(values) and (values.min() < 0 or values.max() > maximum):
        raise InvalidArgument(f"column {name!r} must be from 0 to {maximum}")
    return values


def _time_values(name: str, array: pa.Array) -> NDArray[np.int64]:
    if not pa.types.is_timestamp(array.type):
        raise InvalidArgument(f"column {name!r} must be of type timestamp, not {array.type}")
    values = _int64(array.cast(pa.timestamp("us", array.type.tz)).view(pa.int64()), -1)
    present = np.asarray(array.is_valid())
    if (present & ((values < 0) | (values > MAX_TIME_US))).any():
        raise InvalidArgument(f"column {name!r} must be from 1970 to 9999")
    values[~present] = ABSENT_TIME
    return values


def _int64(array: pa.Array, absent: int) -> NDArray[np.int64]:
    """The values as a new numpy array, nulls filled."""
    array = array.cast(pa.int64())
    if array.null_count:
        array = array.fill_null(absent)
    return np.array(array, np.int64)


def _string_values(name: str, array: pa.Array, maximum_bytes: int = MAX_STRING_BYTES) -> Strings:
    if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        raise InvalidArgument(f"column {name!r} must be of type string, not {array.type}: cast it")
    array.validate(full=True)
    valid = None
    if array.null_count:
        valid = np.asarray(array.is_valid()).astype(np.uint8)
        # Nulls may lie over bytes; filling leaves them none.
        array = array.fill_null("")
    lengths, content = _binary_rows(name, array, maximum_bytes)
    return Strings(valid, offsets_of(lengths), content)


def _attributes_values(array: pa.Array) -> Attributes:
    type_ = array.type
    if not pa.types.is_map(type_):
        raise InvalidArgument(
            f"column 'attributes' must be of type map<string, string>, not {type_}"
        )
    array.validate(full=True)
    if not len(array):
        return Attributes.absent(0)
    offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, 4 * array.offset)
    counts = np.diff(offsets).astype(np.int64)
    counts[~np.asarray(array.is_valid())] = 0
    # As lists, since those can be flattened: without what lies under nulls and outside the slice.
    pairs = pa.list_(pa.struct([type_.key_field, type_.item_field]))
    keys, values = array.view(pairs).flatten().flatten()
    if values.null_count:
        raise InvalidArgument("column 'attributes' has null values: drop or fill them")
    attributes = Attributes(
        offsets_of(counts),
        _string_values("attributes", keys, MAX_ATTRIBUTES_BYTES),
        _string_values("attributes", values, MAX_ATTRIBUTES_BYTES),
    )
    if counts.max() > MAX_ATTRIBUTES or attributes.lengths().max() > MAX_ATTRIBUTES_BYTES:
        raise InvalidArgument(
            f"a message may have {MAX_ATTRIBUTES} attributes of {MAX_ATTRIBUTES_BYTES} bytes "
            "together: put more in the payload"
        )
    _check_once(keys, counts)
    return attributes


def _check_once(keys: pa.Array, counts: NDArray[np.int64]) -> None:
    """Check that no message has two attributes of one name. Raises InvalidArgument."""
    if counts.max() < 2:
        return
    names = keys.dictionary_encode()
    rows = np.repeat(np.arange(len(counts)), counts)
    pairs = np.sort(rows * len(names.dictionary) + names.indices.to_numpy())
    twice = np.flatnonzero(pairs[1:] == pairs[:-1])
    if len(twice):
        row, name = divmod(int(pairs[twice[0]]), len(names.dictionary))
        raise InvalidArgument(
            f"column 'attributes', row {row}: {names.dictionary[name].as_py()!r:.100} is there "
            "twice: give each attribute of a message once"
        )
