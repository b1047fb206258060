"""Random requests on the wire, against a real store that must come through them unharmed."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from quire.block import encode_one
from quire.engine import EmbeddedStore as Store
from quire.remote import JoinedStore
from quire.remote.server.taken_puts import TakenPuts
from quire.remote.wire.failures import ERROR_CLASSES
from quire.remote.wire.named_calls import CALLS, STEPS
from quire.remote.wire.payload_streams import ABANDON, FINISH, PUT_CHUNK, PUT_WHOLE, READ_CHUNK
from quire.remote.wire.protocol import (
    ADD,
    ADD_HEAD,
    BLOCK,
    CALL,
    CALL_HEAD,
    CANCEL,
    COMMIT,
    COMMIT_FRAME,
    ENTRY,
    FIELDS,
    FILE,
    FILE_ID,
    GET,
    GET_HEAD,
    HEAD,
    PLAIN,
    PUT,
    PUT_HEAD,
    ROLLBACK,
    STEP,
    TELL,
    Decision,
    field,
)
from quire.remote.wire.values import encode_map
from tests.kit.raw_stream import RawStream, good_hello
from tests.kit.waiting import eventually

FIELDS_MAP = encode_map({"priority": 1})
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
    "contents": [False, True],
    "subscription": ["a", "b"],
    "kind": ["work", "topic"],
    "source": ["w", "t/a", "t/b"],
    "start": [0, 1, "latest", "earliest"],
    "most": [1, 5],
    "chosen": [None, {"ids": [], "last": 1}, {"ids": [1, 2], "last": 2}],
    "end": [1, 2],
    "capacity": [1 << 20],
    "data_file": [None, 0],
    "max_messages": [1, 5],
    "seconds": [1.0, 60],
    "lease_id": [1, 2],
    "key": ["k"],
    "keys": [["k"], ["k", "another"], []],
    "positions": [{"w": 0}, {"w": 1, "t/a": 1}, {"t/b": 0, "w": 2}],
    "names": [None, ["w"], ["t", "w"], [["t", "a"], ["q", "b"]]],
    "exclusive": [False, True],
    "durable": [False, True],
    "time": [0.0, 2e9],
    "to": [0, 1, "latest", "earliest", "time:1", "id:2"],
    "starts": [{"t": "latest"}, {"t": 0, "w": "earliest"}],
    "ranges": [[["w", 0, 1]], [["t", 0, 1], ["w", 0, 2]], []],
    "wait": [0, 0.001],
    "message": [None, "q"],
    "holder": [None, 1],
    "cron": ["@daily", "0 0 1 1 *"],
    "payload": [b"", b"x"],
    "priority": [None, 1],
    "ltds_id": [1 << 62, (1 << 62) + 1],
    "timeout": [0, 0.001],
    "large": [False, True],
    "gaps": [False, True],
    "xid": ["x1", "x2"],
    "number": [None, 1, 2],
    "transaction_id": [1, 2, 3, 40],
    "limit": [1, 100],
    "owner": [None, "the importer"],
    "records": [[], [["k", 1]], [["k", 9]]],
    "values": [[], [["q", "k", b""]], [["q", "k", b"v"], ["w", "k", None]]],
    "changes": [{}, {"text": "t"}, {"order": "priority"}, {"gets": True, "capacity": 1 << 20}],
    "message_id": [1, 2, 7],
    "stream": [1, 1, 2, [1 << 60, 8, 4], [5, 1, 9]],
    "fields": [{}, {"priority": 1}],
    "size": [None, 5, 10],
    "reason": ["", "bad"],
    "delay": [0, 0.01],
    "old": ["q", "r"],
    "new": ["r", "q"],
    "replace": [False, True],
    "exist_ok": [False, True],
    "schedule": [{"queue": "w", "cron": "@daily"}, {"payload": "AA=="}, {"missed": "all"}],
    "gets": [None, True],
    "puts": [None, True],
    "to_change": [False, True],
}
WITH_PUTS: dict[str, list[str]] = {  # what is asked with the number of a transaction's puts
    "puts": [],
    "commit": ["records", "values", "wait"],
    "prepare": ["records", "values", "xid", "wait"],
    PUT_CHUNK: ["stream", "queue", "fields", "size", "wait"],
    PUT_WHOLE: ["stream", "queue", "fields", "size", "wait"],
    FINISH: ["stream"],
    ABANDON: ["stream"],
}
BY_NAME = {
    **{name: sorted(call.arguments().names) for name, call in {**CALLS, **STEPS}.items()},
    READ_CHUNK: ["stream", "number"],
    **{decision.value: ["xid", "number"] for decision in Decision},
}


def random_value(rng: random.Random, name: str) -> Any:
    """Mostly something that makes sense there."""
    if rng.random() < 0.85:
        return rng.choice(PLAUSIBLE.get(name, VALUES))
    # A get that is to wait for very long does so.
    return rng.choice(SHORT if name in ("wait", "timeout") else VALUES)


def random_fields(rng: random.Random, names: list[str]) -> dict[str, Any]:
    """Most of the names, with values."""
    return {name: random_value(rng, name) for name in names if rng.random() < 0.95}


def random_put(rng: random.Random) -> tuple[int, str, bytes]:
    """The form, the queue, and mostly what the form says."""
    form = rng.choice([PLAIN, FIELDS, BLOCK, FILE, rng.randrange(256)])
    data = {
        PLAIN: b"payload",
        FIELDS: len(FIELDS_MAP).to_bytes(4, "little") + FIELDS_MAP + b"payload",
        FILE: FILE_ID.pack(rng.choice(PLAUSIBLE["ltds_id"])),
    }.get(form, bytes(encode_one(b"payload")))
    if rng.random() < 0.2:
        damaged = bytearray(data)
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        data = bytes(damaged[: rng.randrange(len(data) + 1)])
    return form, str(random_value(rng, "queue"))[:300], data


def name_of(text: str) -> bytes:
    """As it is sent."""
    return text.encode(errors="surrogatepass")


def random_add(rng: random.Random, number: int, first: int) -> tuple[bytes, int]:
    """An ADD, and how many puts it has."""
    count = rng.randint(0, 3)
    data = b""
    for form, queue, put in (random_put(rng) for _ in range(count)):
        name = name_of(queue)
        length = len(put) if rng.random() < 0.95 else rng.randrange(1000)
        data += ENTRY.pack(len(name), form, length) + name + put
    return ADD_HEAD.pack(4 + len(data), ADD, number, first) + data, count


def random_short(rng: random.Random, number: int, puts: int) -> bytes:
    """A request without a header."""
    wait = rng.choice([0.0, 0.001, float("nan"), -1.0])
    kind = rng.choice([PUT, GET, GET, COMMIT, COMMIT, ROLLBACK])
    if kind == PUT:
        name = name_of(str(random_value(rng, "queue"))[:300])
        return PUT_HEAD.pack(2 + len(name) + 7, PUT, number, len(name)) + name + b"payload"
    if kind == GET:
        source = name_of(str(random_value(rng, "source")))
        return GET_HEAD.pack(8 + len(source), GET, number, wait) + source
    if kind == COMMIT:
        return COMMIT_FRAME.pack(12, COMMIT, number, puts, wait)
    return HEAD.pack(0, ROLLBACK, number)


def random_call(rng: random.Random, number: int, puts: int) -> bytes:
    """A CALL that is well-formed as a whole, and often enough nonsense inside."""
    header: dict[str, Any] = {}
    if rng.random() < 0.75:
        header["op"] = rng.choice(list(BY_NAME))
        header["arguments"] = random_fields(rng, BY_NAME[header["op"]])
    else:
        header["op"] = rng.choice(list(WITH_PUTS))
        header |= random_fields(rng, WITH_PUTS[header["op"]])
        header["puts"] = puts
    if rng.random() < 0.1:
        header[rng.choice(list(header))] = rng.choice(VALUES)
    body = b""
    if header["op"] in (PUT_CHUNK, PUT_WHOLE):
        body = b"chunk"[: rng.choice([5, 5, 4])]
        header["bodies"] = [len(body)]
    text = encode_map(header)
    is_step = str(header["op"]) in {**WITH_PUTS, **STEPS}
    kind = STEP if is_step == (rng.random() < 0.9) else CALL
    return CALL_HEAD.pack(4 + len(text) + len(body), kind, number, len(text)) + text + body


def mutated(rng: random.Random, frame: bytes) -> bytes:
    """Changed bytes after the head; what says how long the frame is stays."""
    changed = bytearray(frame)
    for _ in range(rng.randint(1, 4)):
        changed[rng.randrange(4, len(changed))] = rng.randrange(256)
    return bytes(changed)


def begin(rng: random.Random, number: int) -> bytes:
    """A TELL."""
    fields = random_fields(rng, ["timeout", "large", "owner", "durable"])
    text = encode_map({"op": "begin"} | fields)
    return CALL_HEAD.pack(4 + len(text), TELL, number, len(text)) + text


def converse(stream: RawStream, rng: random.Random, frames: int) -> Iterator[dict[str, Any]]:
    """Send so many requests, of a few transactions at a time; what answers them."""
    latest = 0
    puts: dict[int, int] = {}  # of each open transaction, by its stream
    for _ in range(frames):
        number = rng.choice([*puts, latest + 1]) if len(puts) < 3 else rng.choice(list(puts))
        latest = max(latest, number)
        before = begin(rng, number) if rng.random() < 0.2 else b""
        if rng.random() < 0.5:
            added, count = random_add(rng, number, puts.get(number, 0))
            puts[number] = puts.get(number, 0) + count
            before += mutated(rng, added) if rng.random() < 0.1 else added
        make = random_short if rng.random() < 0.5 else random_call
        request = make(rng, number, puts.get(number, 0))
        is_alone = request[4] in (PUT, CALL)
        if is_alone and rng.random() < 0.9:
            latest += 1
            request = request[:8] + latest.to_bytes(4, "little") + request[12:]
        if rng.random() < 0.1:
            request = mutated(rng, request)
            kind = rng.choice([PUT, GET, COMMIT, ROLLBACK, CALL, STEP, 99])
            request = request[:4] + bytes([kind]) + request[5:]
        if rng.random() < 0.1:
            before += HEAD.pack(0, CANCEL, rng.randint(0, latest + 1))
        answer = stream.ask(before + request)
        while answer.header.get("more") is True:
            answer = stream.next()
        yield dict(answer.header)
        if not is_alone and answer.header.get("state", "open") == "open":
            puts.setdefault(number, 0)
        elif not is_alone:
            puts.pop(number, None)


def fuzz(url: str, rng: random.Random, frames: int) -> None:
    """Each request is answered by a result or an error of the tree, never by a failure inside."""
    results = errors = 0
    while results + errors < frames:
        with closing(RawStream(url)) as stream:
            for header in converse(stream, rng, 20):
                if "error" not in header:
                    results += 1
                    continue
                errors += 1
                error = field(header, "error", dict)
                assert error["type"] in ERROR_CLASSES
                assert "the owner of the store failed" not in error["message"], error
    assert results
    assert errors


@pytest.mark.fuzz
@pytest.mark.promise(13)
def test_random_requests(
    owner: Store, joined: JoinedStore, rng: random.Random, rounds: int
) -> None:
    """What other queues hold is untouched, and the store stays sound (the fixture verifies it)."""
    owner.create_queue("keep", kind="topic")
    owner.subscribe("keep", "a")
    owner.put("keep", b"kept")
    fuzz(joined.url, rng, rounds * 20)
    assert joined.browse("keep").payloads() == [b"kept"]
    with joined.transaction() as txn:
        assert txn.get_many("keep/a").payloads() == [b"kept"]


def hostile(rng: random.Random) -> bytes:
    """The beginning of a connection: random bytes, or a session with changes in it."""
    if rng.random() < 0.2:
        return rng.randbytes(rng.randrange(200))
    hello = bytearray(good_hello())
    if rng.random() < 0.5:
        hello[rng.randrange(len(hello))] = rng.randrange(256)
    data = bytes(hello)
    for number in range(1, rng.randint(1, 6)):
        frame = bytearray(rng.choice([random_call, random_short])(rng, number, 0))
        for _ in range(rng.randrange(3)):
            frame[rng.randrange(HEAD.size)] = rng.randrange(256)
        data += frame
    return data[: rng.randint(0, len(data))] if rng.random() < 0.2 else data


@pytest.mark.fuzz
@pytest.mark.promise(13)
def test_hostile_connections(
    owner: Store, joined: JoinedStore, rng: random.Random, rounds: int
) -> None:
    """Whatever comes before and after the greeting, the owner goes on, and lets go of it."""
    owner.create_queue("keep")
    owner.put("keep", b"kept")
    for _ in range(rounds * 4):
        with closing(RawStream(joined.url, hostile(rng))) as stream:
            stream.socket.shutdown(socket.SHUT_WR)
            with contextlib.suppress(EOFError, ConnectionResetError):
                while True:
                    stream.words(1)
    assert joined.browse("keep").payloads() == [b"kept"]
    eventually(lambda: owner.admin.transactions() == [])
    eventually(lambda: joined.status()["sharing"]["connections"] == 2)


@pytest.mark.fuzz
def test_the_fuzzer_finds_a_failure(
    joined: JoinedStore, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Canary: an operation that fails by an error from elsewhere is noticed."""

    def broken(*_: object) -> None:
        raise KeyError("puts")

    monkeypatch.setattr(TakenPuts, "_take", broken)
    with pytest.raises(AssertionError, match="the owner of the store failed"):
        fuzz(joined.url, rng, 500)
