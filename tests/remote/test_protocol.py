"""The frames: what is written is read again, and nothing else is taken for a frame."""

from __future__ import annotations

import contextlib
import random

import pytest

from quire import errors
from quire.errors import InvalidArgument, QuireError, RemoteError
from quire.remote.failures import ERROR_CLASSES, describe_error, raise_error
from quire.remote.protocol import HEAD, MAGIC, PROTOCOL_VERSION, decode_frame, encode_frame, field


@pytest.mark.parametrize("bodies", [[], [b""], [b"a", b"", b"ccc"], [memoryview(b"view")]])
def test_a_frame_comes_back_as_it_was(bodies: list[bytes]) -> None:
    """Header and bodies survive encoding."""
    frame = decode_frame(encode_frame({"op": "x", "text": "Grüße", "none": None}, bodies))
    assert frame.header == {"op": "x", "text": "Grüße", "none": None}
    assert [bytes(body) for body in frame.bodies] == [bytes(body) for body in bodies]


@pytest.mark.promise(13)
def test_damaged_frames_are_refused(rng: random.Random, rounds: int) -> None:
    """A frame that is cut or has a changed byte raises RemoteError or decodes; nothing else."""
    good = encode_frame({"op": "commit", "txn": 3, "puts": ["a"]}, [b"payload", b"more"])
    for _ in range(rounds * 40):
        bad = bytearray(good)
        for _ in range(rng.randint(1, 3)):
            bad[rng.randrange(len(bad))] = rng.randrange(256)
        cut = bytes(bad[: rng.randint(0, len(bad))]) if rng.random() < 0.5 else bytes(bad)
        with contextlib.suppress(RemoteError):
            decode_frame(cut)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "too few"),
        (b"GET / HTTP/1.1\r\n\r\n", "no message of Quire"),
        (HEAD.pack(MAGIC, PROTOCOL_VERSION + 1, 0, 2) + b"{}", "same release"),
        (HEAD.pack(MAGIC, PROTOCOL_VERSION, 0, 3) + b"{}", "cut off"),
        (HEAD.pack(MAGIC, PROTOCOL_VERSION, 0, 2) + b"[]", "not a JSON object"),
        (HEAD.pack(MAGIC, PROTOCOL_VERSION, 0, 2) + b"{{", "not JSON"),
        (HEAD.pack(MAGIC, PROTOCOL_VERSION, 0, 100_000) + b"[" * 100_000, "not JSON"),
        (HEAD.pack(MAGIC, PROTOCOL_VERSION, 0, 13) + b'{"bodies":-1}', "damaged"),
        (HEAD.pack(MAGIC, PROTOCOL_VERSION, 0, 14) + b'{"bodies":[9]}x', "bytes of bodies"),
    ],
)
@pytest.mark.promise(13)
def test_what_is_no_frame_is_named(data: bytes, words: str) -> None:
    """PR1: the error says what is wrong."""
    with pytest.raises(RemoteError, match=words):
        decode_frame(data)


def test_fields_have_exactly_their_type() -> None:
    """A bool is no int, and a missing field is an error."""
    assert field({"n": 1}, "n", int) == 1
    for header in ({"n": True}, {"n": "1"}, {}):
        with pytest.raises(RemoteError, match="'n'"):
            field(header, "n", int)


def test_an_argument_that_json_cannot_hold_is_refused() -> None:
    """It is the caller's mistake, not the connection's."""
    with pytest.raises(InvalidArgument):
        encode_frame({"source": object()})
    with pytest.raises(InvalidArgument):
        encode_frame({"timeout": float("nan")})


@pytest.mark.parametrize("name", sorted(ERROR_CLASSES))
def test_each_error_arrives_as_itself(name: str) -> None:
    """The same class with the same message, for the whole tree."""
    kind = ERROR_CLASSES[name]
    with pytest.raises(kind, match="do this instead") as caught:
        raise_error(describe_error(kind("it failed: do this instead")))
    assert type(caught.value) is kind
    assert str(caught.value) == "it failed: do this instead"


def test_errors_from_elsewhere_arrive_under_the_root() -> None:
    """What is no QuireError becomes a RemoteError that names it; so does an unknown class."""
    with pytest.raises(RemoteError, match="ZeroDivisionError: by zero"):
        raise_error(describe_error(ZeroDivisionError("by zero")))
    with pytest.raises(RemoteError, match="newer"):
        raise_error({"error": {"type": "FromTheFuture", "message": "newer"}})
    raise_error({})


def test_the_tree_is_complete() -> None:
    """Every class of quire.errors is known here."""
    public = {v for v in vars(errors).values() if isinstance(v, type) and issubclass(v, QuireError)}
    assert set(ERROR_CLASSES.values()) == public
