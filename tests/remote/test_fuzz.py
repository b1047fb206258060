"""Random requests on the wire, against a real store that must come through them unharmed."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from quire.block import encode_one
from quire.engine import EmbeddedStore as Store
from quire.remote import RemoteStore
from quire.remote.calls import BROWSE_ARGUMENTS, CALLS
from quire.remote.failures import ERROR_CLASSES
from quire.remote.protocol import HEAD, MAGIC, PROTOCOL_VERSION, Decision, field
from quire.remote.session import Session
from tests.remote.raw_stream import RawStream

VALUES: list[Any] = [
    None, True, -1, 0, 1, 2, 7, 1 << 70, 0.5, -0.5, "", "q", "q/a", "w", "x" * 300, "\udc80",
    "latest", [], ["w"], [["k", 1]], {}, {"name": "q"}, {"queue": "q", "start": 0},
]  # fmt: skip
SHORT = [value for value in VALUES if not isinstance(value, int | float) or value < 1]
PLAUSIBLE: dict[str, list[Any]] = {
    "name": ["q", "w", "t"],
    "queue": ["q", "w", "t"],
    "queues": [["a"], ["a", {"name": "b", "kind": "work"}]],
    "type": [None, "queue", "subscription"],
    "subscription": ["a", "b"],
    "kind": ["work", "topic"],
    "source": ["w", "t/a", "t/b"],
    "start": [0, 1, "latest", "earliest"],
    "end": [1, 2],
    "capacity": [1 << 20],
    "data_file": [None, 0],
    "max_messages": [1, 5],
    "seconds": [1.0, 60],
    "lease_id": [1, 2],
    "key": ["k"],
    "keys": [["k"], ["k", "another"], []],
    "positions": [{"w": 0}, {"w": 1, "t/a": 1}, {"t/b": 0, "w": 2}],
    "names": [None, ["w"], ["t", "w"]],
    "starts": [{"t": "latest"}, {"t": 0, "w": "earliest"}],
    "ranges": [[["w", 0, 1]], [["t", 0, 1], ["w", 0, 2]], []],
    "wait": [0, 0.001],
    "ltds_id": [1 << 62, (1 << 62) + 1],
    "timeout": [None, 60],
    "large": [False, True],
    "gaps": [False, True],
    "xid": ["x1", "x2"],
    "number": [None, 1, 2],
    "transaction_id": [1, 2, 3, 40],
    "limit": [1, 100],
    "owner": [None, "the importer"],
    "records": [[], [["k", 1]], [["k", 9]]],
}
IN_TRANSACTIONS: dict[str, list[str]] = {
    "send": [],
    "get": ["source", "wait"],
    "get_many": ["source", "max_messages", "wait"],
    "read_to": ["positions"],
    "commit": ["records", "wait"],
    "prepare": ["records", "xid", "wait"],
    "rollback": [],
}
CALLS_AND_BROWSE = {
    **{name: sorted(call.arguments) for name, call in CALLS.items()},
    "browse": sorted(BROWSE_ARGUMENTS),
    **{decision.value: ["xid", "number"] for decision in Decision},
}


def random_value(rng: random.Random, name: str) -> Any:
    """Mostly something that makes sense there."""
    if rng.random() < 0.85:
        return rng.choice(PLAUSIBLE[name])
    # A get that is to wait for very long does so.
    return rng.choice(SHORT if name == "wait" else VALUES)


def random_fields(rng: random.Random, names: list[str]) -> dict[str, Any]:
    """Most of the names, with values."""
    return {name: random_value(rng, name) for name in names if rng.random() < 0.95}


def random_put(rng: random.Random) -> list[Any]:
    """A queue, and mostly a block."""
    return [
        random_value(rng, "queue"),
        random_value(rng, "ltds_id") if rng.random() < 0.1 else None,
    ]


def random_request(rng: random.Random, epoch: str, number: int) -> bytes:
    """A frame that is well-formed as a whole, and often enough nonsense inside."""
    header: dict[str, Any] = {"epoch": epoch, "txn": number}
    bodies: list[bytes] = []
    if rng.random() < 0.4:
        header["op"] = rng.choice(list(CALLS_AND_BROWSE))
        header["arguments"] = random_fields(rng, CALLS_AND_BROWSE[header["op"]])
    else:
        header["op"] = rng.choice(list(IN_TRANSACTIONS))
        header |= random_fields(rng, [*IN_TRANSACTIONS[header["op"]], "timeout", "large", "owner"])
        if header["op"] in ("send", "commit", "prepare"):
            header["puts"] = [random_put(rng) for _ in range(rng.randint(0, 3))]
            blocks = sum(put[1] is None for put in header["puts"])
            bodies = [bytes(encode_one(b"payload"))] * blocks
    if bodies and rng.random() < 0.2:
        damaged = bytearray(bodies[0])
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        bodies[0] = bytes(damaged)
    header["bodies"] = [len(body) for body in bodies]
    if rng.random() < 0.1:
        header[rng.choice(list(header))] = rng.choice(VALUES)
    text = json.dumps(header).encode()
    return HEAD.pack(MAGIC, PROTOCOL_VERSION, 0, len(text)) + text + b"".join(bodies)


def fuzz(url: str, rng: random.Random, rounds: int) -> None:
    """Each request is answered by a result or an error of the tree, never by a failure inside."""
    results = errors = 0
    for _ in range(rounds):
        stream = RawStream(url)
        number = 1
        for _ in range(20):
            request = random_request(rng, field(stream.hello.header, "epoch", str), number)
            answer = stream.ask(request)
            while answer.header.get("more") is True:
                answer = stream.next()
            if "error" not in answer.header:
                results += 1
            else:
                errors += 1
                error = field(answer.header, "error", dict)
                assert error["type"] in ERROR_CLASSES
                assert "the owner of the store failed" not in error["message"], (error, request)
            if answer.header["state"] is None:
                number += 1
        stream.close()
    assert results
    assert errors


@pytest.mark.fuzz
@pytest.mark.promise(13)
def test_random_requests(
    owner: Store, joined: RemoteStore, rng: random.Random, rounds: int
) -> None:
    """What other queues hold is untouched, and the store stays sound (the fixture verifies it)."""
    owner.create_queue("keep", kind="topic")
    owner.subscribe("keep", "a")
    owner.put("keep", b"kept")
    fuzz(joined.url, rng, rounds)
    assert joined.browse("keep").payloads() == [b"kept"]
    with joined.transaction() as txn:
        assert txn.get_many("keep/a").payloads() == [b"kept"]


@pytest.mark.fuzz
def test_the_fuzzer_finds_a_failure(
    joined: RemoteStore, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Canary: an operation that fails by an error from elsewhere is noticed."""

    def broken(*_: object) -> None:
        raise KeyError("puts")

    monkeypatch.setattr(Session, "_take_puts", broken)
    with pytest.raises(AssertionError, match="the owner of the store failed"):
        fuzz(joined.url, rng, 25)
