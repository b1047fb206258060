"""The frames of version 6, byte by byte: requests as clients send them, and the owner's answers.

A later release speaks them, too: these stay as they are.
"""

from __future__ import annotations

from contextlib import closing

import pytest

from quire.arguments import Bytes
from quire.engine import EmbeddedStore as Store
from quire.remote import JoinedStore
from quire.remote.wire.protocol import HEAD, MESSAGE, MESSAGE_HEAD
from tests.kit.raw_stream import RawStream
from tests.kit.sent_bytes import watch_sends

# Requests, each with its answer, if it has one; the time of a message is 0 here.
SESSION: list[tuple[str, str | None]] = [
    (  # PUT, ID
        "0500000003000000010000000100716869",
        "0800000011000000010000000100000000000000",
    ),
    (  # TELL
        (
            "2700000002000000020000002300000084a26f70a5626567696ea56c61726765c2a56f776e6572a2"
            "6d65a764757261626c65c3"
        ),
        None,
    ),
    (  # ADD
        "0e00000004000000020000000000000001000000010000007161",
        None,
    ),
    (  # STEP, RESULT
        (
            "3000000009000000020000002c00000085a26f70a6636f6d6d6974a477616974c0a47075747301a7"
            "7265636f7264739192a16b07a676616c75657390"
        ),
        "2000000010000000020000001c00000083a6706c6163656481a1719102a66c696d69747380a57374617465c0",
    ),
    (  # GET, MESSAGE
        "090000000500000003000000000000000000000071",
        "16000000120000000300000001000000000000000000000000000000010000006869",
    ),
    (  # STEP, RESULT
        (
            "2200000009000000030000001e00000082a26f70a5636f756e74a9617267756d656e747381a6736f"
            "75726365a171"
        ),
        "1800000010000000030000001400000082a6726573756c7402a57374617465a46f70656e",
    ),
    (  # ROLLBACK, RESULT
        "000000000700000003000000",
        "0c00000010000000030000000800000081a57374617465c0",
    ),
    (  # ADD
        "0e00000004000000040000000000000001000000010000007162",
        None,
    ),
    (  # COMMIT, COMMITTED
        "0c000000060000000400000001000000000000000000f87f",
        "0800000014000000040000000300000000000000",
    ),
    (  # GET, MESSAGE
        "090000000500000005000000000000000000000071",
        "16000000120000000500000001000000000000000000000000000000020000006869",
    ),
    (  # COMMIT, COMMITTED
        "0c000000060000000500000000000000000000000000f87f",
        "000000001400000005000000",
    ),
    (  # GET, MESSAGE
        "090000000500000006000000000000000000000071",
        "150000001200000006000000020000000000000000000000000000000100000061",
    ),
    (  # COMMIT, COMMITTED
        "0c000000060000000600000000000000000000000000f87f",
        "000000001400000006000000",
    ),
    (  # GET, MESSAGE
        "090000000500000007000000000000000000000071",
        "150000001200000007000000030000000000000000000000000000000100000062",
    ),
    (  # COMMIT, COMMITTED
        "0c000000060000000700000000000000000000000000f87f",
        "000000001400000007000000",
    ),
    (  # GET, NOTHING
        "090000000500000008000000000000000000000071",
        "000000001300000008000000",
    ),
    (  # COMMIT, COMMITTED
        "0c000000060000000800000000000000000000000000f87f",
        "000000001400000008000000",
    ),
    (  # CALL, RESULT
        "1a00000001000000090000001600000082a26f70a66661696c6564a9617267756d656e747380",
        "1400000010000000090000001000000082a6726573756c74c2a57374617465c0",
    ),
]
# Likewise, on stream 0.
OF_CONNECTION: list[tuple[str, str | None]] = [
    (  # PING, PONG
        "080000000a000000000000000000000000010000",
        "0800000016000000000000000000000000010000",
    ),
    (  # AWAIT
        "01000000080000000000000071",
        None,
    ),
]


def frames_of(data: bytes) -> list[str]:
    """Frames one after another, each in hexadecimal digits."""
    found = []
    while data:
        length = HEAD.size + HEAD.unpack_from(data)[0]
        found.append(data[:length].hex())
        data = data[length:]
    return found


def without_time(frame: Bytes) -> str:
    """A frame in hexadecimal digits, the time of a message as 0."""
    if frame[4] == MESSAGE:
        numbers = list(MESSAGE_HEAD.unpack_from(frame))
        numbers[4] = 0
        frame = MESSAGE_HEAD.pack(*numbers) + frame[MESSAGE_HEAD.size :]
    return bytes(frame).hex()


def test_the_requests_of_a_client(
    owner: Store, joined: JoinedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a short session over one connection."""
    owner.create_queue("q")
    sent: list[str] = []

    def note(data: bytes) -> None:
        if not data.startswith(b"QUIR"):  # the hello tells the process and the owner's epoch
            sent.extend(frames_of(data))

    joined.queues(["q"])
    shared = joined.owner_session.connection._shared
    assert shared is not None
    shared.is_over = True  # the session has a connection of its own
    watch_sends(monkeypatch, note)
    assert joined.put("q", b"hi") == 1
    with joined.transaction(owner="me") as txn:
        txn.put("q", b"a")
        txn.enter("k", 7)
    with joined.transaction() as txn:
        assert txn.get("q") is not None
        assert txn.count("q") == 2
        txn.rollback()
    with joined.transaction() as txn:
        txn.put("q", b"b")
    assert [joined.get("q") is not None for _ in range(4)] == [True] * 3 + [False]
    assert not joined.failed
    assert sent == [request for request, _ in SESSION]


def test_the_answers_of_an_owner(owner: Store, joined: JoinedStore) -> None:
    """The same requests, from nobody's code, have these answers."""
    owner.create_queue("q")
    with closing(RawStream(joined.url)) as stream:
        for request, answer in SESSION + OF_CONNECTION:
            stream.send(bytes.fromhex(request))
            found = None if answer is None else without_time(stream.frame())
            assert found == answer
