"""A next version of the protocol, made up here, and this one speak with each other."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.errors import RemoteError
from quire.remote import JoinedStore
from quire.remote.wire.failures import raise_error
from quire.remote.wire.protocol import (
    CONNECTION,
    GREETING,
    HEAD,
    ID,
    MAGIC,
    NUMBER_FRAME,
    PING,
    PONG,
    PUT,
    RESULT,
)
from tests.kit.raw_stream import RawStream, add, call, commit
from tests.kit.waiting import SECONDS

NEXT = GREETING.pack(MAGIC, 7, 0)
UNKNOWN_KIND = 77
FLAGS = b"\x81\xff\xff"


def of_the_next(frame: bytes) -> bytes:
    """A frame with flags, and with something where version 6 has a reserved field."""
    return frame[:5] + FLAGS + frame[8:]


def next_hello(**more: Any) -> bytes:
    """The beginning of a client that speaks versions 6 and 7."""
    hello = {"op": "hello", "role": "work", "versions": [6, 7], "capabilities": ["chunks", "more"]}
    return NEXT + of_the_next(call({**hello, "colour": "blue", **more}, stream=CONNECTION))


def test_a_next_client(owner: Store, joined: JoinedStore) -> None:
    """It is answered in version 6, and what only it knows is ignored, or an error of its stream."""
    owner.create_queue("q")
    with closing(RawStream(joined.url, next_hello())) as stream:
        assert GREETING.unpack(stream.words(GREETING.size)) == (MAGIC, 6, 0)
        answer = stream.next().header
        assert (answer["version"], answer["capabilities"]) == (6, [])
        unknown = {"op": "status", "arguments": {"colour": "blue"}, "deadline": 5}
        stream.send(of_the_next(HEAD.pack(0, UNKNOWN_KIND, CONNECTION)))  # a notice, as it may be
        found = stream.ask(of_the_next(call(unknown, stream=1)))
        raise_error(found.header)
        stream.send(of_the_next(add(2, ("q", b""), form=0)))
        with pytest.raises(RemoteError, match="kind 77"):
            raise_error(stream.ask(of_the_next(HEAD.pack(3, UNKNOWN_KIND, 3) + b"???")).header)
        assert stream.ask(of_the_next(commit(2, 1))).header == {}
        ping = of_the_next(NUMBER_FRAME.pack(8, PING, CONNECTION, 1 << 63))
        stream.send(ping)
        assert stream.frame() == NUMBER_FRAME.pack(8, PONG, CONNECTION, 1 << 63)
    assert owner.browse("q").payloads() == [b""]


@pytest.mark.promise(13)
@pytest.mark.parametrize(
    ("versions", "words"),
    [
        ([7, 9], "speaks versions 7 to 9 of the protocol, this one version 6: update Quire"),
        ([1, 5], "speaks versions 1 to 5 of the protocol, this one version 6: update Quire"),
        ([9, 9], "speaks version 9 of the protocol, this one version 6: update Quire"),
        (None, "versions"),
        ([6], "versions"),
        (["6", "7"], "versions"),
        ([True, 7], "versions"),
    ],
)
def test_no_common_version(joined: JoinedStore, versions: object, words: str) -> None:
    """The answer to the hello says both ranges, and what to do."""
    with closing(RawStream(joined.url, next_hello(versions=versions))) as stream:
        stream.words(GREETING.size)
        with pytest.raises(RemoteError, match=words):
            raise_error(stream.next().header)
        with pytest.raises(EOFError):
            stream.frame()


@pytest.fixture
def next_owner(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Make an owner that speaks version 7, too; its URL. It answers a put by ID, and nothing."""
    path = f"{tmp_path}/owner.sock"
    with socket.socket(socket.AF_UNIX) as listener, ExitStack() as stack:
        listener.bind(path)
        listener.listen()

        def begun(answer: dict[str, Any]) -> socket.socket:
            connection = stack.enter_context(listener.accept()[0])
            connection.settimeout(SECONDS)
            assert connection.recv(1 << 16).startswith(GREETING.pack(MAGIC, 6, 0))
            frame = of_the_next(call(answer, kind=RESULT, stream=CONNECTION))
            connection.sendall(NEXT + frame)
            return connection

        def serve(answer: dict[str, Any]) -> None:
            begun(answer)  # the watch
            try:
                connection = begun(answer)
            except OSError:  # it was refused at the first
                return
            request = connection.recv(1 << 16)
            length, kind, number = HEAD.unpack_from(request)
            assert (length, kind) == (8, PUT)
            notice = of_the_next(HEAD.pack(3, UNKNOWN_KIND, CONNECTION) + b"???")
            late = NUMBER_FRAME.pack(8, ID, number + 1, 5)
            connection.sendall(notice + late + of_the_next(NUMBER_FRAME.pack(8, ID, number, 6)))

        threads = []

        def make(**more: Any) -> str:
            hello = {"op": "hello", "epoch": "e", "path": "p", "store_id": 1, "process_id": 1}
            answer = {**hello, "version": 6, "capabilities": ["chunks"], "colour": "blue", **more}
            threads.append(threading.Thread(target=serve, args=(answer,), daemon=True))
            threads[-1].start()
            return f"quire+unix://{path}"

        yield make
        listener.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(SECONDS)


def test_a_next_owner(next_owner: Callable[..., str]) -> None:
    """What it says besides is ignored, and so is an answer on a stream that is none (PR3)."""
    with JoinedStore.connect(next_owner()) as store:
        store.owner_session._own_names.add("q")  # the put is the first request
        assert store.put("q", b"hello") == 6


@pytest.mark.promise(13)
def test_an_owner_that_answers_in_another_version(next_owner: Callable[..., str]) -> None:
    """It is no version that the hello has offered."""
    with pytest.raises(RemoteError, match="speaks version 7 of the protocol, this one version 6"):
        JoinedStore.connect(next_owner(version=7))
