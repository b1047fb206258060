"""The frames that a store's owner and its clients exchange.

The transport is an Arrow Flight `DoExchange` stream. Each frame is the application metadata of one
Flight message without data. A client opens a stream with a hello frame as the command of its
descriptor, and the owner answers with a hello of its own; each tells its process id. From then on
the client sends a request and reads its answer: one frame, or several of which all but the last
have `"more": true`.

| bytes | field | meaning |
|---|---|---|
| 4 | magic | `QUIR` |
| 2 | version | of the protocol, little-endian like all that follows: 3 |
| 2 | reserved | 0 |
| 4 | header length | of the JSON text, in bytes |
| n | header | a JSON object in UTF-8; `"bodies"` lists the bodies' lengths, if there are any |
| ... | bodies | encoded blocks or payloads, one after another |

A request has `"op"`. An answer has `"error"` (`{"type", "message"}`) or what the operation returns.
A request that works in a transaction names the exact one: `"epoch"`, a random number that the owner
draws each time it opens the store, and `"txn"`, which counts the transactions of a stream from 1.
So a late request never reaches another transaction than its own. It also says how the transaction
is to begin, if it has not: `"timeout"` in seconds (null: never; without it, as the owner's options
say), `"large"` and `"owner"`. The answer's `"state"` is that of the stream's transaction, null when
there is none.

What a transaction puts comes with `send`, `commit` or `prepare`: `"puts"` lists pairs of a queue
and null, for the next of the bodies, which is a block; or of a queue and the id of a file to adopt.
Once it has committed, `"placed"` tells for each queue the first id, and after it how many messages
each adopted file holds, in put order.

PR1. A frame of another version, or one that is no frame, is refused before anything is done.
PR2. A stream carries one transaction at a time. When it ends, for whatever reason, the transaction
    that is open in it is rolled back.
PR3. A transaction begins at the owner with the first request that needs it there. A commit is one
    request, which brings the puts that wait at the client.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from operator import index
from typing import Final, TypeVar

from quire.arguments import Bytes
from quire.errors import InvalidArgument, RemoteError
from quire.info import TransactionState

from .limits import MAX_FRAME_BYTES, MAX_HEADER_BYTES

MAGIC: Final = b"QUIR"
PROTOCOL_VERSION: Final = 3
HEAD: Final = struct.Struct("<4sHHI")
assert HEAD.size == 12


Header = Mapping[str, object]
T = TypeVar("T")


class Role(Enum):
    """What a stream is for, as its hello says."""

    WATCH = "watch"  # nothing: its end tells that the other side is gone
    WORK = "work"


class Decision(Enum):
    """What becomes of a prepared transaction."""

    COMMIT = "commit_prepared"
    ROLLBACK = "rollback_prepared"


@dataclass(frozen=True, slots=True)
class Frame:
    """A decoded frame. The bodies are views of the received buffer."""

    header: Header
    bodies: list[memoryview]


def _number(value: object) -> int:
    """numpy's integers, for example. Raises TypeError."""
    try:
        return index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{value!r:.100} is neither text nor a number") from None


_JSON: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=_number)


def encode_frame(header: Header, bodies: Sequence[Bytes] = ()) -> bytes:
    """The bytes of one frame. Raises InvalidArgument if it is too large for one."""
    if bodies:
        header = {**header, "bodies": [len(body) for body in bodies]}
    try:
        text = _JSON.encode(dict(header)).encode()
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"an argument cannot be sent to the store's owner: {error}") from None
    size = HEAD.size + len(text) + sum(map(len, bodies))
    if len(text) > MAX_HEADER_BYTES or size > MAX_FRAME_BYTES:
        raise InvalidArgument(
            f"{size} bytes do not fit into one message to or from the owner"
            f" (at most {MAX_FRAME_BYTES}): use smaller payloads or smaller batches"
        )
    return b"".join((HEAD.pack(MAGIC, PROTOCOL_VERSION, 0, len(text)), text, *bodies))


def decode_frame(data: Bytes) -> Frame:
    """The frame in `data`, all of it. Raises RemoteError for anything else (PR1)."""
    view = memoryview(data)
    if len(view) < HEAD.size:
        raise RemoteError(f"{len(view)} bytes came, too few for a message of Quire's protocol")
    magic, version, _, length = HEAD.unpack_from(view)
    if magic != MAGIC:
        raise RemoteError("what came is no message of Quire's protocol")
    if version != PROTOCOL_VERSION:
        raise RemoteError(
            f"the other side speaks version {version} of the protocol, this one version"
            f" {PROTOCOL_VERSION}: use the same release of Quire on both sides"
        )
    if length > MAX_HEADER_BYTES or HEAD.size + length > len(view):
        raise RemoteError("a message is cut off in its header")
    try:
        header: object = json.loads(bytes(view[HEAD.size : HEAD.size + length]))
    except (ValueError, RecursionError) as error:
        raise RemoteError(f"a message's header is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise RemoteError("a message's header is not a JSON object")
    return Frame(header, _split(view[HEAD.size + length :], header.pop("bodies", [])))


def _split(rest: memoryview, lengths: object) -> list[memoryview]:
    if not isinstance(lengths, list) or any(type(n) is not int or n < 0 for n in lengths):
        raise RemoteError("a message's list of bodies is damaged")
    if sum(lengths) != len(rest):
        raise RemoteError(f"a message has {len(rest)} bytes of bodies and says {sum(lengths)}")
    bodies, start = [], 0
    for length in lengths:
        bodies.append(rest[start : start + length])
        start += length
    return bodies


def field(header: Header, name: str, kind: type[T]) -> T:
    """A field of a request or an answer, of exactly this type. Raises RemoteError."""
    value = header.get(name)
    if type(value) is not kind:
        raise RemoteError(f"a message's field {name!r} is {value!r}, which is no {kind.__name__}")
    return value


def state_of(header: Header) -> TransactionState | None:
    """The state that an answer tells of a transaction. Raises RemoteError."""
    value = header.get("state")
    try:
        return None if value is None else TransactionState(value)
    except ValueError:
        raise RemoteError(f"{value!r:.100} is no state of a transaction") from None
