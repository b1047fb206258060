"""The frames that a store's owner and its clients exchange; `docs/protocol.md` says it in words.

Numbers are little-endian. Each side begins with a greeting, which stays as it is in all versions:

| bytes | field | meaning |
|---|---|---|
| 4 | magic | `QUIR` |
| 2 | version | of the protocol: the highest that this side speaks, 6 |
| 2 | length | of the words that follow: why the other side is refused; 0: it is not |

Then come frames. The client's first one is a CALL `hello`, which the owner answers: its layout is
the same from version 6 on. From then on the client sends requests, and reads their answers.

| bytes | field | meaning |
|---|---|---|
| 4 | length | of what follows the head, in bytes |
| 1 | kind | see `Kind` |
| 1 | flags | 0; one that is not known is ignored |
| 2 | reserved | 0 |
| 4 | stream | a transaction, or a request outside of any; 0: the connection's own |

| kind | after the head |
|---|---|
| CALL, STEP, TELL, RESULT | u32 length of the header, the header, the bodies |
| PUT | u16 length of the queue's name, the name, the payload |
| ADD | u32 number of the first put, puts |
| GET | f64 seconds to wait, the source |
| COMMIT | u32 puts, f64 seconds to wait (NaN: as the owner's options say) |
| ROLLBACK | - |
| AWAIT | the source |
| PING | u64 |
| CANCEL | - |
| DRAIN | - |
| ID | u64 id |
| MESSAGE | i64 id, i64 time, u32 delivery count, the payload |
| NOTHING | - |
| COMMITTED | u64 id of the first message, for each queue in the order of their first puts |
| READY | the source |
| PONG | the u64 of the PING |
| DRAINED | - |

A header is a MessagePack map (see `values`); `"bodies"` lists the bodies' lengths, if there are
any. A put in ADD: u16 length of the queue's name, u8 form (see `Form`), u8 0, u32 length of the
put, the name, the put.

TELL, ADD and AWAIT have no answer. PUT is answered by ID, GET by MESSAGE or NOTHING, COMMIT by
COMMITTED, PING by PONG, CANCEL by CANCEL once nothing of its stream is under way, and each of them,
as CALL, STEP and ROLLBACK, by RESULT where that says more: an error, fields beside the payload,
files that were adopted. An answer has the stream of its request. Once something may be got from a
source that the client awaits, READY is sent, between answers; AWAIT, READY, PING, PONG, DRAIN and
DRAINED are the connection's (stream 0). After a DRAIN no more transactions begin on the connection;
it is answered by DRAINED if none is open and no request is under way, else by nothing: it is to be
sent again.

PR1. A frame that is none is answered by an error and changes nothing. One whose length cannot be
    believed (`MAX_BYTES_OF_KIND`) ends the connection, as nobody knows where the next one begins.
PR2. The client numbers the streams of a connection from 1, rising, and uses none twice. A
    transaction is a stream, which its first request begins; PUT and CALL are a stream each. CANCEL
    ends the request that is under way on its stream and rolls back its transaction, and the end of
    the connection, for whatever reason, those of all. Requests of a stream are answered in their
    order; streams do not wait for one another.
PR3. A frame of a stream that has ended is answered by an error at the owner, and dropped by the
    client: it never reaches another stream.
PR4. The puts of a transaction are numbered from 0. The owner takes them in this order; one that it
    refuses, and those after it, are not taken, and the error is told with the next request that
    needs them (`"taken"` says how many are). The client keeps them until then.
PR5. Each AWAIT brings one READY, and a second one for a source whose READY is to come brings none:
    so what waits to be sent is bounded by the sources that a connection awaits.
PR6. Fields, capabilities, flags and frames on stream 0 that a side does not know are ignored; a
    request of an unknown kind is answered by an error of its stream.
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
LOWEST_VERSION: Final = 6  # of the protocol that this release speaks
PROTOCOL_VERSION: Final = 6  # the highest one
CAPABILITIES: Final = frozenset[str]()  # that not every side of these versions has
CONNECTION: Final = 0  # the stream of what is no request's
GREETING: Final = struct.Struct("<4sHH")
HEAD: Final = struct.Struct("<IB3xI")
STREAM: Final = struct.Struct("<8xI")  # of a head, its last field
CALL_HEAD: Final = struct.Struct("<IB3xII")
PUT_HEAD: Final = struct.Struct("<IB3xIH")
ADD_HEAD: Final = struct.Struct("<IB3xII")
ENTRY: Final = struct.Struct("<HBxI")
GET_HEAD: Final = struct.Struct("<IB3xId")
COMMIT_FRAME: Final = struct.Struct("<IB3xIId")
NUMBER_FRAME: Final = struct.Struct("<IB3xIQ")  # ID, PING, PONG
MESSAGE_HEAD: Final = struct.Struct("<IB3xIqqI")
FILE_ID: Final = struct.Struct("<Q")
MESSAGE_ID: Final = struct.Struct("<Q")
assert (GREETING.size, HEAD.size, STREAM.size) == (8, 12, 12)

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
    STEP = 9
    PING = 10
    CANCEL = 11
    DRAIN = 12
    RESULT = 16
    ID = 17
    MESSAGE = 18
    NOTHING = 19
    COMMITTED = 20
    READY = 21
    PONG = 22
    DRAINED = 23


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
CALL, TELL, PUT, ADD, GET, COMMIT, ROLLBACK, AWAIT, STEP = map(int, list(Kind)[:9])
PING, CANCEL, DRAIN = map(int, list(Kind)[9:12])
RESULT, ID, MESSAGE, NOTHING, COMMITTED, READY, PONG, DRAINED = map(int, list(Kind)[12:])
PLAIN, FIELDS, BLOCK, FILE, MOVED_FIELDS, MOVED_BLOCK = (int(form) for form in Form)
# The most bytes that a kind of frame may have after its head; others have `MAX_HELLO_BYTES`: all
# that they carry is numbers, a source, or how a transaction is to be.
MAX_BYTES_OF_KIND: Final[Mapping[int, int]] = {
    CALL: MAX_FRAME_BYTES,
    STEP: MAX_FRAME_BYTES,
    RESULT: MAX_FRAME_BYTES,
    ADD: MAX_FRAME_BYTES,
    PUT: MAX_PAYLOAD_BYTES + MAX_HELLO_BYTES,
    MESSAGE: MAX_PAYLOAD_BYTES + MAX_HELLO_BYTES,
    COMMITTED: MESSAGE_ID.size * MAX_QUEUES,
}


class Frame(Struct, frozen=True):
    """A decoded CALL, STEP, TELL or RESULT. The bodies are views of the received buffer."""

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
    if version < LOWEST_VERSION:
        raise _no_common_version(f"version {version} at most")
    return int(length)


def spoken_versions() -> Header:
    """The fields of a hello that say what this side speaks."""
    return {
        "versions": [LOWEST_VERSION, PROTOCOL_VERSION],
        "capabilities": sorted(CAPABILITIES),
    }


def agree(hello: Header) -> Header:
    """The fields of the answer to a hello: what both sides speak. Raises RemoteError."""
    lowest, highest = _range(hello.get("versions"))
    version = min(highest, PROTOCOL_VERSION)
    if version < max(lowest, LOWEST_VERSION):
        raise _no_common_version(_words(lowest, highest))
    return {"version": version, "capabilities": sorted(capabilities(hello) & CAPABILITIES)}


def capabilities(header: Header) -> frozenset[str]:
    """The names of a hello, or of the answer to it. Raises RemoteError."""
    names = field(header, "capabilities", list)
    if not all(isinstance(name, str) for name in names):
        raise RemoteError("a capability is no name")
    return frozenset(names)


def check_agreed(answer: Header) -> None:
    """Raises RemoteError if the owner's answer to the hello is of a version not spoken here."""
    version = field(answer, "version", int)
    if not LOWEST_VERSION <= version <= PROTOCOL_VERSION:
        raise _no_common_version(_words(version, version))


def _range(versions: object) -> tuple[int, int]:
    if (
        not isinstance(versions, list)
        or len(versions) != 2
        or any(type(version) is not int for version in versions)
    ):
        raise RemoteError(f"a hello's versions are {versions!r:.100}, not the lowest and highest")
    return versions[0], versions[1]


def _words(lowest: int, highest: int) -> str:
    return f"version {lowest}" if lowest == highest else f"versions {lowest} to {highest}"


def _no_common_version(other: str) -> RemoteError:
    return RemoteError(
        f"the other side speaks {other} of the protocol, this one"
        f" {_words(LOWEST_VERSION, PROTOCOL_VERSION)}: update Quire on the side with the lower one"
    )


def encode_call(
    kind: int, stream: int, header: Header, bodies: Sequence[Bytes] = ()
) -> list[Bytes]:
    """The parts of a CALL, STEP, TELL or RESULT. Raises InvalidArgument if it is too large."""
    if bodies:
        header = {**header, "bodies": [len(body) for body in bodies]}
    text = encode_map(header)
    length = CALL_HEAD.size - HEAD.size + len(text) + sum(map(len, bodies))
    check_size(length)
    if len(text) > MAX_HEADER_BYTES:
        raise InvalidArgument(
            f"arguments of {len(text)} bytes: one call takes {MAX_HEADER_BYTES}; ask for less"
        )
    return [CALL_HEAD.pack(length, kind, stream, len(text)) + text, *bodies]


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
    *_, length = CALL_HEAD.unpack_from(view)
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
