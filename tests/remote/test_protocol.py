"""The frames: what is written is read again, and nothing else is taken for a frame."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence

import pytest

from quire import errors
from quire.arguments import Bytes
from quire.errors import InvalidArgument, QuireError, RemoteError
from quire.remote.wire.failures import ERROR_CLASSES, describe_error, raise_error
from quire.remote.wire.protocol import (
    CALL,
    CALL_HEAD,
    GREETING,
    LOWEST_VERSION,
    MAGIC,
    PROTOCOL_VERSION,
    Header,
    check_greeting,
    decode_call,
    encode_call,
    field,
    greeting,
)
from quire.remote.wire.values import Unsent, encode_map, read
from quire.reports.info import PreparedInfo, Report


def encoded(header: Header, bodies: Sequence[Bytes] = ()) -> bytes:
    """A CALL."""
    return b"".join(encode_call(CALL, 1, header, bodies))


def raw(header_length: int, rest: bytes) -> bytes:
    """A CALL whose header is said to be so long."""
    return CALL_HEAD.pack(4 + len(rest), CALL, 1, header_length) + rest


@pytest.mark.parametrize("bodies", [[], [b""], [b"a", b"", b"ccc"], [memoryview(b"view")]])
def test_a_frame_comes_back_as_it_was(bodies: list[bytes]) -> None:
    """Header and bodies survive encoding."""
    frame = decode_call(encoded({"op": "x", "text": "Grüße", "none": None}, bodies))
    assert frame.header == {"op": "x", "text": "Grüße", "none": None}
    assert [bytes(body) for body in frame.bodies] == [bytes(body) for body in bodies]


@pytest.mark.promise(13)
def test_damaged_frames_are_refused(rng: random.Random, rounds: int) -> None:
    """A frame that is cut or has a changed byte raises RemoteError or decodes; nothing else."""
    good = encoded({"op": "commit", "txn": 3, "puts": ["a"]}, [b"payload", b"more"])
    for _ in range(rounds * 40):
        bad = bytearray(good)
        for _ in range(rng.randint(1, 3)):
            bad[rng.randrange(len(bad))] = rng.randrange(256)
        cut = bytes(bad[: rng.randint(0, len(bad))]) if rng.random() < 0.5 else bytes(bad)
        with contextlib.suppress(RemoteError):
            decode_call(cut)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "too few"),
        (raw(3, b"{}"), "cut off"),
        (raw(1, b"\x90"), "no MessagePack map"),  # a list
        (raw(2, b"\x81\xc1"), "no MessagePack map"),
        (raw(100_000, b"\x81\xa1a" + b"\x91" * 99_997), "no MessagePack map"),
        (raw(9, encode_map({"bodies": -1})), "damaged"),
        (raw(10, encode_map({"bodies": [9]}) + b"x"), "bytes of bodies"),
    ],
)
@pytest.mark.promise(13)
def test_what_is_no_frame_is_named(data: bytes, words: str) -> None:
    """PR1: the error says what is wrong."""
    with pytest.raises(RemoteError, match=words):
        decode_call(data)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (GREETING.pack(b"HTTP", PROTOCOL_VERSION, 0), "not Quire's protocol"),
        (GREETING.pack(MAGIC, LOWEST_VERSION - 1, 0), "update Quire on the side"),
    ],
)
@pytest.mark.promise(13)
def test_another_greeting_is_refused(data: bytes, words: str) -> None:
    """Another protocol, or an older version. What a newer one speaks besides, its hello says."""
    assert check_greeting(greeting("why")[: GREETING.size]) == 3
    with pytest.raises(RemoteError, match=words):
        check_greeting(data)


def test_fields_have_exactly_their_type() -> None:
    """A bool is no int, and a missing field is an error."""
    assert field({"n": 1}, "n", int) == 1
    for header in ({"n": True}, {"n": "1"}, {}):
        with pytest.raises(RemoteError, match="'n'"):
            field(header, "n", int)


@pytest.mark.parametrize(
    "value", [object(), "\ud800", 1 << 70, {"deep": ["\ud800", 1 << 70]}, {"\ud800": 1}]
)
def test_what_cannot_be_sent_arrives_as_what_it_looks_like(value: object) -> None:
    """VA2: it is of no kind of argument, and shown in an error as the argument itself would be."""
    found = decode_call(encoded({"source": value, "more": 5})).header
    assert found["more"] == 5
    assert repr(found["source"]) == repr(value)
    if not isinstance(value, dict | str | int):
        assert type(found["source"]) is Unsent


def test_what_holds_itself_is_refused() -> None:
    """It is the caller's mistake, not the connection's."""
    value: list[object] = []
    value.append(value)
    with pytest.raises(InvalidArgument, match="too deeply"):
        encoded({"source": value})


def test_values_are_maps_with_names() -> None:
    """What this release does not know is passed over, and what is missing has its default."""
    told = {"xid": "x", "prepared_us": 5, "age_seconds": 1, "queues": ["a"], "messages": 1}
    info = read(PreparedInfo, {**told, "bytes": 2, "from_the_future": []})
    assert info == PreparedInfo("x", 5, 1.0, ("a",), 1, 2)
    assert read(list[Report], [{}]) == [Report()]
    for wrong in (told, {**told, "bytes": "2"}, [1], None):
        with pytest.raises(RemoteError, match="cannot be read"):
            read(PreparedInfo, wrong)


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
