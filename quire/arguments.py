"""Checks of arguments: each kind of them is checked here, for embedded and joined stores alike.

A check returns the argument itself, with its type known, or raises `InvalidArgument`, whose message
shows the argument as far as a line has room for it. (What a message may carry is checked where it
is kept: `quire.messages.message`, `quire.block`.)
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from typing import Any, Final, Literal, NamedTuple, TypeGuard, cast

from quire.definitions.near_names import did_you_mean
from quire.definitions.source_pattern import SourcePattern, is_pattern, wants_one
from quire.errors import InvalidArgument
from quire.limits import (
    DEFAULT_CAPACITY_BYTES,
    FOREVER_SECONDS,
    MAX_ARCHIVE_URL_BYTES,
    MAX_CAPACITY_BYTES,
    MAX_CONCURRENCY,
    MAX_DELAY_SECONDS,
    MAX_KEPT,
    MAX_LEDGER_KEY_BYTES,
    MAX_MESSAGE_ID,
    MAX_REASON_BYTES,
    MAX_REQUEST_ID_BYTES,
    MAX_STATE_KEY_BYTES,
    MAX_STATE_VALUE_BYTES,
    MAX_TEXT_BYTES,
    MAX_TTL_SECONDS,
    MAX_XID_BYTES,
    MIN_ARCHIVE_LIMIT_BYTES,
    MIN_CAPACITY_BYTES,
    STATE_ENTRY_BYTES,
)
from quire.moments import seconds_of
from quire.sizes import bytes_of

from .definitions.properties import DEFAULT, MADE_WITH, NAME, Properties, check_properties
from .definitions.retry import Retry, check_retry

Bytes = bytes | bytearray | memoryview
QueueKind = Literal["topic", "work"]
Acknowledge = Literal["auto", "block", "lazy"]


def is_int(value: object) -> TypeGuard[int]:
    """Return True if it is a whole number; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> TypeGuard[int | float]:
    return is_int(value) or isinstance(value, float)


def are_several(value: object) -> TypeGuard[Iterable[object]]:
    """Return True for an iterable of values, as a list is: no text, no bytes and no mapping."""
    return isinstance(value, Iterable) and not isinstance(
        value, (str, bytes, bytearray, memoryview, Mapping)
    )


def copied_bytes(what: str, data: Bytes) -> bytes:
    """Return the bytes of a buffer. Raises InvalidArgument for a memoryview that was released."""
    try:
        return bytes(data)
    except ValueError:
        raise InvalidArgument(f"{what}: its memoryview was released: give bytes") from None


# Names


def check_name(name: object, what: str) -> str:
    """The name of a queue or subscription."""
    if not isinstance(name, str) or NAME.fullmatch(name) is None:
        advice = ""
        if what == "queue" and isinstance(name, str):
            queue, _, subscription = name.partition("/")
            if NAME.fullmatch(queue) and NAME.fullmatch(subscription):
                advice = f"; a subscription is for reading: put to {queue!r:.100}"
        raise InvalidArgument(
            f"{what} name {name!r:.100}: use 1 to 200 of A-Z a-z 0-9 . _ - and do not begin with "
            f"a dot{advice}"
        )
    return name


def split_source(source: object) -> tuple[str, str | None]:
    """("queue", None) or ("queue", "subscription"). Raises InvalidArgument."""
    if not isinstance(source, str):
        raise InvalidArgument(f'source {source!r:.100}: give "queue" or "queue/subscription"')
    if is_pattern(source):
        raise wants_one(source)
    queue, slash, subscription = source.partition("/")
    if not slash:
        return check_name(queue, "queue"), None
    return check_name(queue, "queue"), check_name(subscription, "subscription")


def check_source(source: object) -> str:
    """Check a source to read: "queue" or "queue/subscription"."""
    split_source(source)
    return cast(str, source)


def check_sources(source: object) -> str:
    """Check a source to get from, or a pattern that names many."""
    if is_pattern(source):
        SourcePattern.of(cast(str, source))
        return cast(str, source)
    return check_source(source)


def check_xid(xid: object) -> str:
    """A prepared transaction's name."""
    if (
        isinstance(xid, str)
        and xid
        and xid.isprintable()  # so it has no lone surrogates either
        and len(xid.encode()) <= MAX_XID_BYTES
    ):
        return xid
    raise InvalidArgument(
        f"xid {xid!r:.100}: give a string of printable characters, 1 to {MAX_XID_BYTES} bytes in "
        "UTF-8"
    )


def check_request_id(request_id: object) -> str | None:
    """A put's name among those of its queue; None is none."""
    if request_id is None or (
        isinstance(request_id, str)
        and request_id
        and request_id.isprintable()
        and len(request_id.encode()) <= MAX_REQUEST_ID_BYTES
    ):
        return request_id
    raise InvalidArgument(
        f"request_id {request_id!r:.100}: give a string of printable characters, 1 to "
        f"{MAX_REQUEST_ID_BYTES} bytes in UTF-8"
    )


def count_of(payloads: object) -> int:
    """How many there are. Raises InvalidArgument where that cannot be told."""
    rows = getattr(payloads, "num_rows", None)  # of a batch or a table
    if isinstance(rows, int):
        return rows
    is_one = isinstance(payloads, (str, bytes, bytearray, memoryview))
    if isinstance(payloads, Sized) and not is_one:
        return len(payloads)
    raise InvalidArgument(
        f"payloads {type(payloads).__name__}: with request_ids give a list of bytes or Arrow data"
    )


def check_request_ids(request_ids: object, messages: int) -> list[str]:
    """One for each of so many messages, none of them None."""
    if not are_several(request_ids):
        raise InvalidArgument(
            f"request_ids {request_ids!r:.100}: give a list, with one for each payload"
        )
    found: list[Any] = list(request_ids)
    if len(found) != messages:
        raise InvalidArgument(
            f"request_ids: {len(found)} for {messages} payloads: give one for each"
        )
    for one in found:
        if one is None:
            raise InvalidArgument("request_ids: None is none: put such messages by themselves")
        check_request_id(one)
    return found


def check_owner(owner: object) -> str | None:
    """Whom a transaction is for, as `transactions` shows it."""
    if owner is None or (isinstance(owner, str) and _has_utf8(owner)):
        return owner
    raise InvalidArgument(f"owner {owner!r:.100}: give a name, or None")


# The ledger


def check_key(key: object) -> str:
    """A ledger key."""
    if isinstance(key, str) and _has_utf8(key) and 0 < len(key.encode()) <= MAX_LEDGER_KEY_BYTES:
        return key
    raise InvalidArgument(
        f"ledger key {key!r:.100}: give a string of 1 to {MAX_LEDGER_KEY_BYTES} bytes in UTF-8"
    )


def check_keys(keys: object) -> list[str]:
    """Several ledger keys."""
    if not are_several(keys):
        raise InvalidArgument(f"keys {keys!r:.100}: give several")
    return [check_key(key) for key in keys]


def check_version(version: object) -> int:
    """A ledger version."""
    if not is_int(version) or not 0 <= version < 1 << 63:
        raise InvalidArgument(f"ledger version {version!r:.100}: give an int from 0 to 2**63 - 1")
    return version


def check_state_name(name: object) -> str:
    """The name of a state."""
    return check_name(name, "state")


def check_state_key(key: object) -> str:
    """The key of one of a state's values."""
    if isinstance(key, str) and key.isprintable() and 0 < len(key.encode()) <= MAX_STATE_KEY_BYTES:
        return key
    raise InvalidArgument(
        f"state key {key!r:.100}: give a printable string of 1 to {MAX_STATE_KEY_BYTES} bytes in "
        "UTF-8"
    )


def check_state_value(value: object) -> bytes | None:
    """A value of a state; None: there is to be none."""
    if value is None:
        return None
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise InvalidArgument(f"state value {value!r:.100}: give bytes, or None to delete it")
    found = copied_bytes("state value", value)
    if len(found) > MAX_STATE_VALUE_BYTES:
        raise InvalidArgument(
            f"a state value of {len(found)} bytes: at most {MAX_STATE_VALUE_BYTES}; put more under "
            "several keys, or as messages"
        )
    return found


def state_bytes(name: str, key: str, value: bytes | None) -> int:
    """Return the most bytes that a key takes in the journal: two bytes of a key may need one more.

    A value is there in base64.
    """
    text_bytes = 0 if value is None else (len(value) + 2) // 3 * 4
    return STATE_ENTRY_BYTES + len(name) + 2 * len(key.encode()) + text_bytes


def check_state_bytes(size: int, most: int) -> None:
    """Check the bytes in the journal of the values that a transaction sets."""
    if size > most:
        raise InvalidArgument(
            f"what the transaction sets of states takes {size} bytes: at most {most}; set it in "
            "several transactions"
        )


# Times, in seconds


def check_timeout(timeout: object) -> float:
    """How long to wait, as a wait can take it: an infinite one is a very long one."""
    seconds = timeout if type(timeout) is float else seconds_of(timeout)
    if (type(seconds) is float or type(seconds) is int) and seconds >= 0:
        return min(seconds, FOREVER_SECONDS)
    raise InvalidArgument(f"timeout {timeout!r:.100}: give seconds from 0 on, or a timedelta")


def check_grace(grace: object) -> float:
    """How long open transactions may go on."""
    seconds = seconds_of(grace)
    if (type(seconds) is float or type(seconds) is int) and seconds >= 0:
        return min(seconds, FOREVER_SECONDS)
    raise InvalidArgument(f"grace {grace!r:.100}: give seconds from 0 on, or a timedelta")


def check_wait(timeout: object) -> float:
    """How long to wait, as a wait can take it; None waits for ever."""
    return FOREVER_SECONDS if timeout is None else check_timeout(timeout)


def check_lifetime(timeout: object) -> float | None:
    """How long a transaction may stay open; None: as the store's options say."""
    timeout = seconds_of(timeout)
    if timeout is None:
        return None
    if _is_number(timeout) and timeout > 0:
        return float(timeout) if timeout <= sys.float_info.max else math.inf
    raise InvalidArgument(
        f"timeout {timeout!r:.100}: give seconds above 0, or a timedelta, or None"
    )


def check_delay(delay: object) -> float | Retry | None:
    """How long a message that is rejected stays hidden."""
    if delay is None or isinstance(delay, Mapping):
        return cast("Retry | None", check_retry("delay", delay))
    delay = seconds_of(delay)
    if not _is_number(delay) or not 0 <= delay <= MAX_DELAY_SECONDS:
        raise InvalidArgument(
            f"delay {delay!r:.100}: give seconds from 0 to {MAX_DELAY_SECONDS}, or a timedelta"
        )
    return delay


def check_message_id(message_id: object) -> int:
    """The id of a message."""
    if not is_int(message_id) or not 0 < message_id <= MAX_MESSAGE_ID:
        raise InvalidArgument(f"message id {message_id!r:.100}: give an int of a message")
    return message_id


def check_blocks(blocks: Iterable[object]) -> Iterator[tuple[str, Bytes]]:
    """One after another: the name of a queue and a block, which are looked at by who puts them."""
    if not are_several(blocks):
        raise InvalidArgument(f"blocks {blocks!r:.100}: give pairs of a queue's name and a block")
    for pair in blocks:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise InvalidArgument(f"{pair!r:.100}: give a pair of a queue's name and a block")
        yield pair


def check_reason(reason: object) -> str:
    """Check the reason of a rejection."""
    if isinstance(reason, str) and _has_utf8(reason) and len(reason.encode()) <= MAX_REASON_BYTES:
        return reason
    raise InvalidArgument(
        f"reason {reason!r:.100}: give a str of up to {MAX_REASON_BYTES} bytes in UTF-8"
    )


def check_seconds(seconds: object) -> float:
    """How long a lease lasts."""
    seconds = seconds_of(seconds)
    if not _is_number(seconds) or not 0 < seconds < math.inf:
        raise InvalidArgument(f"seconds {seconds!r:.100}: give a number above 0, or a timedelta")
    return seconds


# Numbers


def check_ack(ack: object) -> Acknowledge:
    """Check when a consumer's transaction commits."""
    if not isinstance(ack, str) or ack not in ("auto", "block", "lazy"):
        raise InvalidArgument(
            f'ack {ack!r:.100}: give "auto" (each message when the loop comes for the next one), '
            '"block" (all at `acknowledge()` and at the end of the with block) or "lazy" (as '
            '"auto", durable a little later)'
        )
    return cast(Acknowledge, ack)


def check_max_messages(max_messages: object) -> int:
    """How many messages to get."""
    if type(max_messages) is not int or max_messages < 1:  # the quicker test: each get comes here
        raise InvalidArgument(f"max_messages {max_messages!r:.100}: give an int of 1 or more")
    return max_messages


def check_concurrency(concurrency: object) -> int:
    """How many threads call a handler."""
    if not is_int(concurrency) or not 1 <= concurrency <= MAX_CONCURRENCY:
        raise InvalidArgument(
            f"concurrency {concurrency!r:.100}: give an int from 1 to {MAX_CONCURRENCY}"
        )
    return concurrency


def check_position(position: object) -> int:
    """A position in a queue; whether the queue has it is the queue's to say."""
    if not is_int(position) or position < 0:
        raise InvalidArgument(f"position {position!r:.100}: give an int from 0 on")
    return position


def check_range(start: object, end: object) -> tuple[int, int]:
    """Two positions; whether the queue has them is the queue's to say."""
    if not is_int(start) or not is_int(end) or not 0 <= start <= end:
        raise InvalidArgument(
            f"range [{start!r:.100}, {end!r:.100}): give positions, from 0 on, in order"
        )
    return start, end


def check_span(offset: object, length: object) -> tuple[int, int]:
    """The offset of bytes, and how many."""
    for name, number in {"offset": offset, "length": length}.items():
        if not is_int(number) or not 0 <= number < 1 << 62:
            raise InvalidArgument(f"{name} {number!r:.100}: give a number from 0 on")
    return cast(int, offset), cast(int, length)


def check_ranges(ranges: object) -> list[tuple[str, int, int]]:
    """Queues, each with two positions."""
    if not are_several(ranges):
        raise InvalidArgument(f"ranges {ranges!r:.100}: give several (queue, start, end)")
    checked = []
    for item in ranges:
        if not isinstance(item, (tuple, list)) or len(item) != 3:
            shown = tuple(item) if isinstance(item, list) else item  # as before it was sent
            raise InvalidArgument(f"range {shown!r:.100}: give (queue, start, end)")
        checked.append((check_name(item[0], "queue"), *check_range(item[1], item[2])))
    return checked


def check_ends(positions: object) -> dict[str, int]:
    """Check sources, each with the position below which everything counts as read."""
    if not isinstance(positions, Mapping):
        raise InvalidArgument(f"positions {positions!r:.100}: give a mapping of source to position")
    return {check_source(source): check_position(end) for source, end in positions.items()}


def check_first(start: object) -> int | None:
    """The position to begin to look at; None: the first that is kept."""
    if start is not None and (not is_int(start) or start < 0):
        raise InvalidArgument(f"start {start!r:.100}: give a position from 0 on")
    return start


def check_passed(start: object) -> int:
    """How many entries of a list to pass over."""
    if not is_int(start) or start < 0:
        raise InvalidArgument(f"start {start!r:.100}: give how many to pass over, from 0 on")
    return start


def check_limit(limit: object) -> int:
    """How many entries of a list to tell."""
    if not is_int(limit) or limit < 1:
        raise InvalidArgument(f"limit {limit!r:.100}: give an int of 1 or more")
    return limit


def check_transaction_id(transaction_id: object) -> int:
    """As `transactions` lists it."""
    if not is_int(transaction_id):
        raise InvalidArgument(
            f"transaction {transaction_id!r:.100}: give the id of a TransactionInfo"
        )
    return transaction_id


def check_reader_names(names: object) -> list[str]:
    """Names by which readers keep others away."""
    if not are_several(names):
        raise InvalidArgument(f"names {names!r:.100}: give several names")
    checked: list[str] = []
    for name in names:
        if not isinstance(name, str) or not name:
            raise InvalidArgument(f"name {name!r:.100}: give a text of one character at least")
        checked.append(name)
    return checked


def check_lease_id(lease_id: object) -> int:
    """As `lease` gave it."""
    if not is_int(lease_id):
        raise InvalidArgument(f"lease {lease_id!r:.100}: give the lease_id of a Lease")
    return lease_id


def check_transaction(
    timeout: object, large: object, owner: object, durable: object
) -> float | None:
    """Check the arguments of `Store.transaction`, and return its time-out in seconds."""
    check_flag("large", large)
    check_owner(owner)
    check_flag("durable", durable)
    return check_lifetime(timeout)


def check_preparable(durable: bool) -> None:
    """Check that a transaction that was begun so may be prepared."""
    if not durable:
        raise InvalidArgument(
            "a transaction that was begun with durable=False cannot be prepared, as what is "
            "prepared is durable: begin it without"
        )


def check_selector(where: object) -> str:
    """Check a subscription's selector, as text; its queue's owner parses it."""
    if isinstance(where, str) and _has_utf8(where) and len(where.encode()) <= MAX_TEXT_BYTES:
        return where
    raise InvalidArgument(
        f"where {where!r:.100}: give a selector, a str of up to {MAX_TEXT_BYTES} bytes in UTF-8; "
        "a Template is not kept with a subscription: write what it asks for as a selector, as "
        "\"colour = 'red'\""
    )


def check_flag(name: str, value: object) -> bool:
    """Check that an argument is True or False."""
    if isinstance(value, bool):
        return value
    raise InvalidArgument(f"{name} {value!r:.100}: give True or False")


def check_switch(name: str, value: object) -> bool | None:
    """Check a switch of puts, or of gets; None: it stays as it is."""
    if value is not None and not isinstance(value, bool):
        raise InvalidArgument(f"{name} {value!r:.100}: give True or False, or nothing")
    return value


# What a queue and a subscription can be made with


def check_queue(
    name: object,
    kind: object = "work",
    capacity: object = DEFAULT_CAPACITY_BYTES,
    max_messages: object = None,
) -> None:
    """Check the arguments of every store's `create_queue`."""
    check_name(name, "queue")
    check_kind(kind)
    check_capacity(capacity)
    check_max_kept(max_messages)


class NewQueue(NamedTuple):
    """A queue that is to be made, with what `create_queue` takes."""

    name: str
    kind: QueueKind = "work"
    capacity: int = DEFAULT_CAPACITY_BYTES
    max_messages: int | None = None
    data_file: int | None = None
    properties: Properties = DEFAULT

    def to_dict(self) -> dict[str, object]:
        """As `create_queues` takes it, and a catalog's entry begins: values that JSON can hold."""
        return {**dict(zip(self._fields[:5], self, strict=False)), **self.properties.to_body()}


def check_queues(queues: object, files: int | None = None) -> list[NewQueue]:
    """Check the argument of `create_queues`: names, and mappings of arguments of `create_queue`.

    `files`: how many data files the store has, if that is known.
    """
    if not are_several(queues):
        raise InvalidArgument(f"queues {queues!r:.100}: give several names, or mappings")
    return [_new_queue(item, files) for item in queues]


def _new_queue(item: object, files: int | None) -> NewQueue:
    fields: dict[Any, Any] = dict(item) if isinstance(item, Mapping) else {"name": item}
    options = {name: fields.pop(name) for name in Properties._fields if name in fields}
    unknown = [field for field in fields if field not in NewQueue._fields[:5]]
    if unknown:
        known = ", ".join((*NewQueue._fields[:5], *Properties._fields))
        near = did_you_mean(unknown[0], (*NewQueue._fields[:5], *Properties._fields))
        raise InvalidArgument(f"queue {item!r:.100}: {unknown[0]!r:.100}{near} is none of {known}")
    fields["properties"] = Properties(**check_properties(options)) if options else DEFAULT
    if "capacity" in fields:
        fields["capacity"] = bytes_of(fields["capacity"])
    queue = NewQueue(**{"name": "", **fields})
    check_queue(*queue[:4])
    check_file_number(queue.data_file, files)
    return queue


def check_making(options: Mapping[str, object]) -> dict[str, Any]:
    """Options of `create_queue` besides the name, checked: limits and properties."""
    checked, left = _split_options(options, MADE_WITH)
    return checked | check_properties(left)


def check_changes(changes: object) -> dict[str, Any]:
    """Check the changes of `alter_queue`: limits and properties, those that change."""
    if not isinstance(changes, Mapping):
        raise InvalidArgument(f"changes {changes!r:.100}: give a mapping of names to values")
    checked, left = _split_options(changes, _LIMITS)
    return checked | check_properties(left, _LIMITS, _FIXED)


def _split_options(
    options: Mapping[str, object], names: Iterable[str]
) -> tuple[dict[str, Any], dict[str, object]]:
    """Those of these names, checked; the others."""
    checked = {name: _CHECKS[name](options[name]) for name in names if name in options}
    return checked, {name: value for name, value in options.items() if name not in checked}


def check_names(names: object) -> list[str]:
    """Several queues' names."""
    if not are_several(names):
        raise InvalidArgument(f"names {names!r:.100}: give several, or None for all queues")
    return [check_name(name, "queue") for name in names]


def check_held(names: object) -> list[tuple[str, str]]:
    """Subscriptions that a client holds, each with its queue."""
    if not isinstance(names, list) or not all(
        isinstance(pair, list | tuple) and len(pair) == 2 for pair in names
    ):
        raise InvalidArgument("names: give pairs of a queue and a subscription")
    return [(check_name(pair[0], "queue"), check_name(pair[1], "subscription")) for pair in names]


def check_kind(kind: object) -> QueueKind:
    """A queue's kind."""
    if not isinstance(kind, str) or kind not in ("topic", "work"):
        raise InvalidArgument(f'kind {kind!r:.100}: give "topic" or "work"')
    return cast(QueueKind, kind)


def check_capacity(capacity: object) -> int:
    """A queue's capacity, in bytes."""
    capacity = bytes_of(capacity)
    if not is_int(capacity) or not MIN_CAPACITY_BYTES <= capacity <= MAX_CAPACITY_BYTES:
        raise InvalidArgument(
            f"capacity {capacity!r:.100}: give bytes from {MIN_CAPACITY_BYTES} to "
            f"{MAX_CAPACITY_BYTES}, or a text such as '64m' or '1g'"
        )
    return capacity


def check_max_kept(max_messages: object) -> int | None:
    """How many messages a queue may hold; None: as many as its capacity admits."""
    if max_messages is None or (is_int(max_messages) and 1 <= max_messages <= MAX_KEPT):
        return max_messages
    raise InvalidArgument(
        f"max_messages {max_messages!r:.100}: give an int from 1 to {MAX_KEPT}, or None"
    )


def check_archive_url(url: object) -> str:
    """Check where an archive is; whether it can be reached there is its shipper's to say."""
    if not isinstance(url, str) or not url or not url.isprintable():
        raise InvalidArgument(f"url {url!r:.100}: give the URL of an object store, or a directory")
    if len(url.encode()) > MAX_ARCHIVE_URL_BYTES:
        raise InvalidArgument(f"url {url!r:.100}: at most {MAX_ARCHIVE_URL_BYTES} bytes in UTF-8")
    scheme, separator, rest = url.partition("://")
    if separator and "@" in rest.partition("/")[0]:
        raise InvalidArgument(
            f"url {scheme}://...: it has credentials, which would be kept with the store: give "
            "them by the environment, a role or a profile"
        )
    return url


def check_archive_limit(limit: object) -> int:
    """Check how many bytes may wait to be shipped."""
    limit = bytes_of(limit)
    if not is_int(limit) or not MIN_ARCHIVE_LIMIT_BYTES <= limit < 1 << 63:
        raise InvalidArgument(
            f"limit {limit!r:.100}: give bytes from {MIN_ARCHIVE_LIMIT_BYTES} on, or a text such "
            "as '10g'"
        )
    return limit


def check_archive_keep(keep: object) -> float:
    """Check how long restore points are kept, in seconds; 0 for None: for ever."""
    if keep is None:
        return 0.0
    keep = seconds_of(keep)
    if not _is_number(keep) or not 0 < keep <= MAX_TTL_SECONDS:
        raise InvalidArgument(
            f"keep {keep!r:.100}: give a number of seconds above 0, at most {MAX_TTL_SECONDS}, a "
            "timedelta, or None: for ever"
        )
    return float(keep)


def check_archive_full(full: object) -> str:
    """Check what happens beyond an archive's limit."""
    if not isinstance(full, str) or full not in ("gap", "wait"):
        raise InvalidArgument(
            f'full {full!r:.100}: give "gap" (let go of what is not shipped) or "wait" (let puts '
            "wait)"
        )
    return full


def check_place(place: object) -> int:
    """Check the place of an archive's entry."""
    if not is_int(place) or not 0 <= place < 1 << 63:
        raise InvalidArgument(f"place {place!r:.100}: give that of an entry, from 0 on")
    return place


def check_type(type: object) -> str | None:
    """A type of the catalog's entries, as far as that can be told without a store; None: all."""
    if type is None or isinstance(type, str):
        return type
    raise InvalidArgument(f"type {type!r:.100}: give the name of a type, or None")


def check_file_number(data_file: object, files: int | None = None) -> int | None:
    """The number of one of the store's data files, where `files` tells how many there are."""
    if data_file is None or (is_int(data_file) and 0 <= data_file < (files or math.inf)):
        return data_file
    there_are = "" if files is None else f"this store has {files}, "
    numbers = "the number of a data file"
    if files is not None:
        numbers = "0" if files == 1 else f"0 to {files - 1}"
    raise InvalidArgument(f"data_file {data_file!r:.100}: {there_are}give {numbers}, or None")


_FIXED: Final = ("kind", "data_file", "type", "persistent")
_LIMITS: Final = ("capacity", "max_messages")
_CHECKS: Final[Mapping[str, Callable[[Any], object]]] = {
    "kind": check_kind,
    "capacity": check_capacity,
    "max_messages": check_max_kept,
    "data_file": check_file_number,
}
assert tuple(_CHECKS) == MADE_WITH


def _has_utf8(text: str) -> bool:
    """Return True if a text has no lone surrogates, which UTF-8 cannot hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
