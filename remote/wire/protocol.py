"""The frames that a store's owner and its clients exchange; `docs/protocol.md` says it in words.

Numbers are little-endian. Each side begins with a greeting, which stays as it is in all versions:

| bytes | field | meaning |
|---|---|---|
| 4 | magic | `QUIR` |
| 2 | version | of the protocol: 5 |
| 2 | length | of the words that follow: why the other side is refused; 0: it is not |

Then come frames. The client's first one is a CALL `hello`, which the owner answers; from then on
the client sends requests, and reads the answer of each that has one before it sends the next.

| bytes | field | meaning |
|---|---|---|
| 4 | length | of what follows the head, in bytes |
| 1 | kind | see `Kind` |
| 3 | reserved | 0 |

| kind | after the head |
|---|---|
| CALL, TELL, RESULT | u32 length of the header, the header, the bodies |
| PUT | u16 length of the queue's name, the name, the payload |
| ADD | u32 transaction, u32 number of the first put, puts |
| GET | u32 transaction, f64 seconds to wait, the source |
| COMMIT | u32 transaction, u32 puts, f64 seconds to wait (NaN: as the owner's options say) |
| ROLLBACK | u32 transaction |
| AWAIT | the source |
| ID | u64 id |
| MESSAGE | i64 id, i64 time, u32 delivery count, the payload |
| NOTHING | - |
| COMMITTED | u64 id of the first message, for each queue in the order of their first puts |
| READY | the source |

A header is a MessagePack map (see `values`); `"bodies"` lists the bodies' lengths, if there are
any. A put in ADD: u16 length of the queue's name, u8 form (see `Form`), u8 0, u32 length of the
put, the name, the put.

TELL, ADD and AWAIT have no answer. PUT is answered by ID, GET by MESSAGE or NOTHING, COMMIT by
COMMITTED, and each of them, as CALL and ROLLBACK, by RESULT where that says more: an error, fields
beside the payload, files that were adopted. Once something may be got from a source that the client
awaits, READY is sent, between answers.

PR1. A frame that is none is answered by an error and changes nothing. One whose length cannot be
    believed (`MAX_BYTES_OF_KIND`) ends the connection, as nobody knows where the next one begins.
- A connection carries one transaction at a time. When it ends, for whatever reason, the transaction
  that is open in it is rolled back.
- A request names its transaction by a number that counts them on the connection from 1. A late one
  never reaches another transaction than its own.
PR4. The puts of a transaction are numbered from 0. The owner takes them in this order; one that it
    refuses, and those after it, are not taken, and the error is told with the next request that
    needs them (`"taken"` says how many are). The client keeps them until then.
PR5. Each AWAIT brings one READY, and a second one for a source whose READY is to come brings none:
    so what waits to be sent is bounded by the sources that a connection awaits.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from enum import Enum, IntEnum
from typing import Final, TypeVar

from msgspec import Struct

from quire.arguments import Bytes
from quire.errors import InvalidArgument, RemoteError
from quire.limits import MAX_PAYLOAD_BYTES, MAX_QUEUES
from quire.remote.limits import MAX_FRAME_BYTES, MAX_HEADER_BYTES, MAX_HELLO_BYTES
from quire.reports.info import TransactionState

from .values import decode_map, encode_map

MAGIC: Final = b"QUIR"
PROTOCOL_VERSION: Final = 5
GREETING: Final = struct.Struct("<4sHH")
HEAD: Final = struct.Struct("<IB3x")
CALL_HEAD: Final = struct.Struct("<IB3xI")
PUT_HEAD: Final = struct.Struct("<IB3xH")
ADD_HEAD: Final = struct.Struct("<IB3xII")
ENTRY: Final = struct.Struct("<HBxI")
GET_HEAD: Final = struct.Struct("<IB3xId")
COMMIT_FRAME: Final = struct.Struct("<IB3xIId")
ROLLBACK_FRAME: Final = struct.Struct("<IB3xI")
ID_FRAME: Final = struct.Struct("<IB3xQ")
MESSAGE_HEAD: Final = struct.Struct("<IB3xqqI")
FILE_ID: Final = struct.Struct("<Q")
MESSAGE_ID: Final = struct.Struct("<Q")
assert (GREETING.size, HEAD.size) == (8, 8)

Header = Mapping[str, object]
T = TypeVar("T")


class Kind(IntEnum):
    """The kind of a frame."""

    CALL = 1
    TELL = 2
    PUT = 3
    ADD = 4
    GET = 5
    COMMIT = 6
    ROLLBACK = 7
    AWAIT = 8
    RESULT = 16
    ID = 17
    MESSAGE = 18
    NOTHING = 19
    COMMITTED = 20
    READY = 21


class Form(IntEnum):
    """The form of a put in an ADD frame."""

    PLAIN = 0  # a payload
    FIELDS = 1  # u32 length, a MessagePack map of the message's fields; the payload
    BLOCK = 2
    FILE = 3  # u64, the id of a file to adopt
    MOVED_FIELDS = 4  # as FIELDS, of a message that is moved: its header is taken as it is
    MOVED_BLOCK = 5  # as BLOCK, likewise


class Role(Enum):
    """The purpose of a connection, as its hello says."""

    WATCH = "watch"  # nothing: its end tells that the other side is gone
    WORK = "work"


class Decision(Enum):
    """The decision over a prepared transaction."""

    COMMIT = "commit_prepared"
    ROLLBACK = "rollback_prepared"


# As plain numbers, which are read without a look-up in the class.
CALL, TELL, PUT, ADD, GET, COMMIT, ROLLBACK, AWAIT = (int(kind) for kind in list(Kind)[:8])
RESULT, ID, MESSAGE, NOTHING, COMMITTED, READY = (int(kind) for kind in list(Kind)[8:])
PLAIN, FIELDS, BLOCK, FILE, MOVED_FIELDS, MOVED_BLOCK = (int(form) for form in Form)
# The most bytes that a kind of frame may have after its head; others have `MAX_HELLO_BYTES`: all
# that they carry is numbers, a source, or how a transaction is to be.
MAX_BYTES_OF_KIND: Final[Mapping[int, int]] = {
    CALL: MAX_FRAME_BYTES,
    RESULT: MAX_FRAME_BYTES,
    ADD: MAX_FRAME_BYTES,
    PUT: MAX_PAYLOAD_BYTES + MAX_HELLO_BYTES,
    MESSAGE: MAX_PAYLOAD_BYTES + MAX_HELLO_BYTES,
    COMMITTED: MESSAGE_ID.size * MAX_QUEUES,
}
NOTHING_FRAME: Final = HEAD.pack(0, NOTHING)


class Frame(Struct, frozen=True):
    """A decoded CALL, TELL or RESULT. The bodies are views of the received buffer."""

    header: Header
    bodies: list[memoryview]


def greeting(refusal: str = "") -> bytes:
    """Return the greeting; `refusal`: why the other side is refused."""
    text = refusal.encode()
    return GREETING.pack(MAGIC, PROTOCOL_VERSION, len(text)) + text


def check_greeting(data: Bytes) -> int:
    """The length of the words that follow. Raises RemoteError for another protocol or version."""
    magic, version, length = GREETING.unpack(data)
    if magic != MAGIC:
        raise RemoteError("what came is not Quire's protocol")
    if version != PROTOCOL_VERSION:
        raise RemoteError(
            f"the other side speaks version {version} of the protocol, this one version"
            f" {PROTOCOL_VERSION}: use the same release of Quire on both sides"
        )
    return int(length)


def encode_call(kind: int, header: Header, bodies: Sequence[Bytes] = ()) -> list[Bytes]:
    """The parts of a CALL, TELL or RESULT. Raises InvalidArgument if it is too large for one."""
    if bodies:
        header = {**header, "bodies": [len(body) for body in bodies]}
    text = encode_map(header)
    length = CALL_HEAD.size - HEAD.size + len(text) + sum(map(len, bodies))
    check_size(length)
    if len(text) > MAX_HEADER_BYTES:
        raise InvalidArgument(
            f"arguments of {len(text)} bytes: one call takes {MAX_HEADER_BYTES}; ask for less"
        )
    return [CALL_HEAD.pack(length, kind, len(text)) + text, *bodies]


def check_size(length: int) -> None:
    """Raises InvalidArgument if a frame of that length is too large."""
    if length > MAX_FRAME_BYTES:
        raise InvalidArgument(
            f"{length} bytes do not fit into one message to or from the owner"
            f" (at most {MAX_FRAME_BYTES}): use smaller payloads or smaller batches"
        )


def decode_call(data: Bytes) -> Frame:
    """The frame in `data`, its head included. Raises RemoteError for what is none (PR1)."""
    view = memoryview(data)
    if len(view) < CALL_HEAD.size:
        raise RemoteError(f"{len(view)} bytes came, too few for a message of Quire's protocol")
    _, _, length = CALL_HEAD.unpack_from(view)
    if length > MAX_HEADER_BYTES or CALL_HEAD.size + length > len(view):
        raise RemoteError("a message is cut off in its header")
    header = decode_map(view[CALL_HEAD.size : CALL_HEAD.size + length])
    return Frame(header, _split(view[CALL_HEAD.size + length :], header.pop("bodies", [])))


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


def encode_wait(seconds: float | None) -> float:
    """Encode how long a COMMIT may wait."""
    return math.nan if seconds is None else seconds


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
