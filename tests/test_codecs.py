"""Values as payloads and back: `quire.codecs`."""

from __future__ import annotations

import pickle
import struct
import subprocess
import sys
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from quire import codecs
from quire.codecs import Codec
from quire.errors import CodecNotFound, InvalidArgument, PayloadInvalid
from quire.libraries.late_modules import stand_in
from quire.messages.message import Message
from tests.source_tree import ROOT

TABLE = pa.table({"a": [1, 2, None], "b": ["x", "", "ü"]})


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone after it."""
    monkeypatch.setattr(codecs, "_registered", dict(codecs._registered))


def message(payload: bytes, content_type: str | None) -> Message:
    """One that came."""
    return Message(1, "q", payload, content_type=content_type)


@pytest.mark.parametrize(
    ("value", "content_type", "back"),
    [
        (b"\xff\x00", "application/octet-stream", b"\xff\x00"),
        (bytearray(b"1"), "application/octet-stream", b"1"),
        (memoryview(b"1"), "application/octet-stream", b"1"),
        ("größer\n", "text/plain", "größer\n"),
        ("", "text/plain", ""),
        ({"a": [1, 2.5, None, True], "ü": {}}, "application/json", None),
        ([], "application/json", None),
        ((1, "x"), "application/json", [1, "x"]),
        (7, "application/json", 7),
        (TABLE, "application/vnd.apache.arrow.stream", TABLE),
        (TABLE.to_batches()[0], "application/vnd.apache.arrow.stream", TABLE),
        (TABLE.slice(0, 0), "application/vnd.apache.arrow.stream", TABLE.slice(0, 0)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_comes_back(value: Any, content_type: str, back: Any) -> None:
    """Its type chooses the codec, and the content type that of the way back."""
    payload, chosen = codecs.encode(value)
    assert (type(payload), chosen) == (bytes, content_type)
    decoded = message(payload, chosen).decode()
    assert decoded == (value if back is None else back)
    assert codecs.encode(value, content_type) == (payload, content_type)
    assert codecs.decode(message(payload, f" {content_type.upper()}; q=1")) == decoded


def test_nothing_comes_back_as_true_or_null() -> None:
    """JSON's own constants, which compare equal to others."""
    for value in (None, True, False):
        payload, content_type = codecs.encode(value)
        assert message(payload, content_type).decode() is value


def test_without_a_content_type_the_payload_is_the_value() -> None:
    """Without a content type the payload is the value as it was put."""
    assert message(b"{}", None).decode() == b"{}"


@pytest.mark.parametrize(
    ("content_type", "payload"),
    [
        ("text/plain", b"\xff"),
        ("application/json", b"{"),
        ("application/json", b""),
        ("application/json", b"NaN"),
        ("application/json", b'"\xff"'),
        ("application/json", b"[" * 100_000),
        ("application/vnd.apache.arrow.stream", b""),
        ("application/vnd.apache.arrow.stream", b"\xff\xff\xff\xff\x10\x00\x00\x00"),
        ("application/vnd.apache.arrow.stream", codecs.encode(TABLE)[0][:-100]),
    ],
)
def test_a_payload_that_is_none_of_its_type(content_type: str, payload: bytes) -> None:
    """An error of the tree that names the type."""
    with pytest.raises(PayloadInvalid, match=content_type):
        message(payload, content_type).decode()


def test_arrow_offsets_that_lead_out_of_the_payload() -> None:
    """They are found when it is decoded, not when it is read."""
    good = codecs.encode(pa.table({"b": ["abc", "defgh"]}))[0]
    offsets = struct.pack("<3i", 0, 3, 8)
    assert good.count(offsets) == 1
    bad = good.replace(offsets, struct.pack("<3i", 0, 3, 1 << 30))
    with pytest.raises(PayloadInvalid):
        message(bad, "application/vnd.apache.arrow.stream").decode()


@pytest.mark.parametrize(
    ("value", "content_type"),
    [
        (b"1", "text/plain"),
        ("1", "application/octet-stream"),
        (float("nan"), "application/json"),
        (b"1", "application/json"),
        ("\ud800", "text/plain"),
        ([1], "application/vnd.apache.arrow.stream"),
        (object(), None),
        (b"1", 7),
    ],
)
def test_a_value_that_cannot_be_encoded(value: Any, content_type: Any) -> None:
    """It is an argument that cannot be used."""
    with pytest.raises(InvalidArgument):
        codecs.encode(value, content_type)


def test_there_is_no_codec() -> None:
    """For a content type, of a name, for a charset: the error says what there is."""
    for text in ("application/xml", "", "text/plain;charset=latin-1"):
        with pytest.raises(CodecNotFound):
            message(b"1", text).decode()
        with pytest.raises(CodecNotFound):
            codecs.encode("1", text)
    assert codecs.encode("ü", "text/plain; charset=UTF-8")[1] == "text/plain; charset=UTF-8"
    with pytest.raises(CodecNotFound, match="arrow, bytes, json, msgpack, pickle, text"):
        message(b"1", None).decode("yaml")


def test_a_codec_by_name() -> None:
    """Whatever the message says that it is."""
    assert message(b"[1]", "text/plain").decode("json") == [1]
    assert codecs.codec("json").encode([1]) == b"[1]"


class Runs:
    """What unpickling it does is told to the list."""

    done: ClassVar[list[str]] = []

    def __reduce__(self) -> Any:
        return Runs.done.append, ("code was run",)


def test_pickle_is_never_chosen_by_what_came(registry: None) -> None:
    """Not by its content type, and not by a value; by its name, and once registered."""
    evil = message(pickle.dumps(Runs()), "application/x-pickle")
    with pytest.raises(CodecNotFound, match="by name"):
        evil.decode()
    with pytest.raises(CodecNotFound, match="by name"):
        codecs.encode({1}, "application/x-pickle")
    with pytest.raises(InvalidArgument):
        codecs.encode({1})
    assert Runs.done == []
    found = codecs.codec("pickle")
    good = message(found.encode({1, 2}), found.content_type)
    assert good.decode("pickle") == {1, 2}
    codecs.register(found)
    assert good.decode() == {1, 2}
    with pytest.raises(PayloadInvalid):
        message(b"no pickle", "application/x-pickle").decode()


@dataclass
class Order:
    """A program's own type."""

    item: str


def test_a_codec_of_ones_own(registry: None) -> None:
    """For a type of values, and in the place of another one."""
    own = Codec(
        "order", "application/x-order", lambda o: o.item.encode(), lambda p: Order(p.decode()),
        (Order,),
    )  # fmt: skip
    codecs.register(own)
    payload, content_type = codecs.encode(Order("apple"))
    assert (payload, content_type) == (b"apple", "application/x-order")
    assert message(payload, content_type).decode() == Order("apple")
    codecs.register(Codec("capitals", "text/plain", lambda t: t.upper().encode(), bytes, (str,)))
    assert codecs.encode("x") == (b"X", "text/plain")
    assert message(b"X", "text/plain; charset=latin-1").decode() == b"X"
    with pytest.raises(InvalidArgument):
        codecs.register("pickle")  # type: ignore[arg-type]


def test_msgpack() -> None:
    """By name and by content type, where the package is there; bytes stay bytes."""
    pytest.importorskip("msgpack")
    value = {"a": [1, 2.5, None, b"\xff"], 7: "ü"}
    payload, content_type = codecs.encode(value, "application/msgpack")
    assert message(payload, content_type).decode() == value
    assert message(payload, None).decode("msgpack") == value
    for bad in (b"", b"\xc1", payload + b"1", payload[:-1]):
        with pytest.raises(PayloadInvalid):
            message(bad, "application/msgpack").decode()
    with pytest.raises(InvalidArgument):
        codecs.encode({1, 2}, "application/msgpack")


def test_msgpack_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says how to get it."""
    monkeypatch.setitem(sys.modules, "msgpack", None)
    monkeypatch.setattr(codecs, "msgpack", stand_in("msgpack"))  # as before its first use
    with pytest.raises(CodecNotFound, match=r"quire-mq\[msgpack\]"):
        message(b"\x01", "application/msgpack").decode()
    with pytest.raises(CodecNotFound, match=r"quire-mq\[msgpack\]"):
        codecs.encode(1, "application/msgpack")


def test_importing_quire_does_not_import_msgpack() -> None:
    """It is asked for when it is used."""
    script = "import sys, quire; print('msgpack' in sys.modules, quire.codecs.codec('json').name)"
    output = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert output.split() == ["False", "json"]
