"""Files and places of a served store: a user reaches those of the queues with rights, and own ones.

What is known beforehand is everything: where the messages of all queues are, and the ids of all
files, which nobody tells a user.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import quire
from quire.block import BlockBuilder, encode_streamed
from quire.block.encoding import EncodedBlock
from quire.engine import EmbeddedStore as Store
from quire.env import OsEnv
from quire.errors import (
    InvalidArgument,
    NotAllowed,
    PositionLost,
    QueueNotFound,
    QuireError,
    StoreCorrupt,
)
from quire.limits import (
    CHUNK_BYTES,
    DEFAULT_LEASE_SECONDS,
    MAX_LTDS_BLOCK_BYTES,
    MESSAGE_OVERHEAD_BYTES,
)
from quire.ltds import LtdsWriter, new_id, path_of
from quire.ltds.format import PAGE_BYTES
from quire.messages.message_fields import Fields
from quire.messages.payload_reader import Stream
from tests.kit.users import Users, as_user, serving_users

QUEUES = ("q0", "q1", "q2", "q3")
NAMES = (*QUEUES, "alias", "nothing")
MIB = 1 << 20


def mark(queue: str) -> bytes:
    """Return what the payloads of a queue consist of."""
    return f"[{queue}]".encode()


class Secret(NamedTuple):
    """A place with messages of a queue."""

    queue: str
    kind: str
    address: int
    length: int
    lease_id: int


def furnish(owner: Store) -> list[Secret]:
    """Make queues with messages in the journal, in pages and in files; return where they are."""
    found = []
    for queue in QUEUES:
        owner.create_queue(queue, kind="topic")
        owner.subscribe(queue, "reader")
        for count, size, large in ((6, MIB, True), (3, 200_000, False), (1, 900, False)):
            with owner.transaction(large=large) as txn:
                txn.put_many(queue, [mark(queue) * (size // 4)] * count)
        end = owner.integration.positions(queue)[1]
        lease = owner.integration.lease(queue, 0, end)
        found += [
            Secret(queue, piece.kind, piece.address, piece.length, lease.lease_id)
            for piece in lease.pieces
        ]
    owner.admin.create_alias("alias", "q1")
    assert {each.kind for each in found} == {"journal", "data", "ltds"}
    return found


def file_of(store: Any, directory: Path, blocks: Iterable[EncodedBlock]) -> tuple[int, bytes]:
    """Return an id and the bytes of a file of such blocks."""
    env, ltds_id = OsEnv(), new_id(OsEnv(), foreign=True)
    (directory / "made").mkdir(exist_ok=True)
    writer = LtdsWriter(env, str(directory / "made"), store.integration.store_id, ltds_id)
    writer.append(blocks)
    writer.finish()
    return ltds_id, Path(path_of(str(directory / "made"), ltds_id)).read_bytes()


def message_block(payload: bytes, fields: Fields | None = None, charge: int = 0) -> EncodedBlock:
    """Return a block of one message, of which its file says that it takes so much more."""
    builder = BlockBuilder()
    builder.add(payload, fields)
    [block] = builder.build(MAX_LTDS_BLOCK_BYTES)
    return EncodedBlock(bytes(block.data), 1, block.charge_bytes + charge, len(payload))


@contextmanager
def two_users(owner: Store, directory: Path, words: str) -> Iterator[tuple[Any, Any]]:
    """Open the store as anna, with these rights, and as bert, who may do everything with queues."""
    users = Users(directory)
    users.grant("anna", words)
    users.grant("bert", "admin queue:*")
    with ExitStack() as stack:
        url = stack.enter_context(serving_users(owner, users))
        opened = [quire.open(url, token=users.tokens[each].text) for each in ("anna", "bert")]
        anna, bert = (stack.enter_context(closing(each)) for each in opened)
        yield anna, bert


def attempts(
    store: Any, rng: random.Random, secrets: Sequence[Secret], files: Sequence[int], part: bytes
) -> list[Callable[[], object]]:
    """Return calls at random about everything that is there."""
    calls, secret = store.integration, rng.choice(secrets)
    queue = rng.choice(NAMES)
    offset = rng.choice((0, 0, 1, 4096, 8192))
    length = rng.choice((64, 4096, secret.length, secret.length + 4096, 100_000))
    place = (secret.kind, secret.address, offset, length)
    file = rng.choice(files)

    def adopt() -> None:
        with store.transaction() as txn:
            txn.integration.adopt(queue, file)

    return [
        lambda: calls.read_places(queue, [place]),
        lambda: calls.read_places(secret.queue, [place]),
        lambda: calls.read_places(
            queue, [place, ("data", rng.randrange(1 << 49), 0, 4096), ("ltds", file, 0, 9000)]
        ),
        lambda: calls.file_size(queue, rng.choice((file, secret.address))),
        lambda: calls.read_fragment(rng.choice((file, secret.address)), offset, length),
        lambda: calls.write_fragment(queue, file, rng.choice((0, 4096, 8192)), part),
        lambda: calls.remove_fragments([*files]),
        lambda: calls.lease_many([(rng.choice(NAMES), 0, 1), (queue, 0, rng.randrange(12))]),
        lambda: calls.lease_names([f"{queue}/reader"], 0.01),
        adopt,
    ]


def contents(found: object) -> bytes:
    """Return all bytes in a result."""
    if isinstance(found, bytes):
        return found
    if isinstance(found, list | tuple):
        return b"".join(map(contents, found))
    return b""


def seen(calls: Iterable[Callable[[], object]]) -> set[str]:
    """Return the queues whose messages calls have returned."""
    found = b""
    for call in calls:
        with suppress(QuireError):
            found += contents(call())
    return {queue for queue in QUEUES if mark(queue) in found}


@pytest.mark.fuzz
def test_calls_at_random_reach_no_other_queue(
    owner: Store, tmp_path: Path, rng: random.Random, rounds: int
) -> None:
    """Whatever rights a user has: bytes come of queues with `browse`, and files of others stay.

    What is in a queue in the end was put there by who may put to it.
    """
    secrets = furnish(owner)
    ids = [each.address for each in secrets if each.kind == "ltds"]
    was_seen: set[str] = set()
    for number in range(max(2, rounds // 10)):
        granted = {
            queue: rng.choice(("", "put", "browse", "get", "put,browse")) for queue in QUEUES
        }
        words = "; ".join(f"{rights} queue:{q}" for q, rights in granted.items() if rights)
        place = tmp_path / f"{number}"
        place.mkdir()
        with two_users(owner, place, words) as (anna, bert):
            block = message_block(b"(berts)" * 2000)
            file, data = file_of(owner, place, [block])
            bert.integration.write_fragment("q0", file, 0, data)
            files = [file, *ids, new_id(OsEnv(), foreign=True)]
            calls: list[Callable[[], object]] = []
            for _ in range(30):
                calls += attempts(anna, rng, secrets, files, data)
            rng.shuffle(calls)
            found = seen(calls)
            allowed = {q for q, rights in granted.items() if "browse" in rights or rights == "get"}
            assert found <= allowed, (words, found)
            was_seen |= found
            size, kept = bert.integration.read_fragment(file, 0, len(data))
            assert (size, kept[PAGE_BYTES:]) == (len(data), data[PAGE_BYTES:])
            with bert.transaction() as txn:
                txn.integration.adopt("q0", file)
            with pytest.raises(PositionLost):
                bert.integration.read_fragment(file, 0, 10)
    for queue in QUEUES:
        for message in owner.browse(queue):
            assert message.payload.startswith(mark(queue)) or (
                queue == "q0" and message.payload.startswith(b"(berts)")
            )
    assert was_seen, "no call has seen anything"


def test_what_looks_for_them_finds_bytes_that_may_be_seen(
    owner: Store, tmp_path: Path, rng: random.Random
) -> None:
    """The same calls see the messages of all queues, where the user may: a canary."""
    secrets = furnish(owner)
    with as_user(owner, tmp_path, "browse queue:*") as anna:
        calls = [call for _ in range(60) for call in attempts(anna, rng, secrets, [1 << 62], b"")]
        assert seen(calls) == set(QUEUES)


def test_a_place_is_read_while_it_is_leased(owner: Store, tmp_path: Path) -> None:
    """Of the queue of a lease, up to its end, by whatever name; and not when that has ended."""
    held = {each.lease_id for each in furnish(owner)}
    with as_user(owner, tmp_path, "browse queue:q1; browse queue:q2") as anna:
        lease = anna.integration.lease("alias", *anna.integration.positions("alias"))
        assert lease.queue == "q1"
        for piece in lease.pieces:
            length = piece.length or 8192
            place = (piece.kind, piece.address, 0, length)
            [data] = anna.integration.read_places("q1", [place])
            assert [data] == anna.integration.read_places("alias", [place])
            assert len(data) == length
            with pytest.raises(PositionLost, match="q2"):
                anna.integration.read_places("q2", [place])
            if piece.length:
                with pytest.raises(PositionLost):
                    anna.integration.read_places("q1", [(piece.kind, piece.address, 1, length)])
            else:
                assert anna.integration.file_size("q1", piece.address) > 6 * MIB
                with pytest.raises(PositionLost):
                    anna.integration.file_size("q2", piece.address)
        place = (lease.pieces[-1].kind, lease.pieces[-1].address, 0, 64)
        for each in [lease.lease_id, *held]:
            owner.integration.end_lease(each)
        with pytest.raises(PositionLost, match="plan the read anew"):
            anna.integration.read_places("q1", [place])


def test_a_user_s_lease_ends_in_time(owner: Store, tmp_path: Path) -> None:
    """What is leased keeps its space: for longer only who looks after the store may take it."""
    furnish(owner)
    with as_user(owner, tmp_path, "get queue:*") as anna:
        late = DEFAULT_LEASE_SECONDS + 1
        with pytest.raises(InvalidArgument, match="renew"):
            anna.integration.lease("q1", 0, 1, seconds=late)
        with pytest.raises(InvalidArgument, match="renew"):
            anna.integration.lease_names(["q1/reader"], late)
        lease = anna.integration.lease("q1", 0, 1)
        with pytest.raises(InvalidArgument, match="renew"):
            anna.integration.renew_lease(lease.lease_id, late)
        anna.integration.renew_lease(lease.lease_id, DEFAULT_LEASE_SECONDS)
    with as_user(owner, tmp_path, "admin *:*") as root:
        root.integration.lease("q1", 0, 1, seconds=late)


def test_a_file_is_its_writer_s_alone(owner: Store, tmp_path: Path) -> None:
    """To another user it is one that is not there, word for word, with all rights on its queue."""
    owner.create_queue("q", kind="topic")
    with two_users(owner, tmp_path, "admin queue:*") as (anna, bert):
        file, data = file_of(owner, tmp_path, [message_block(b"x" * 10_000)])
        none = new_id(OsEnv(), foreign=True)
        bert.integration.write_fragment("q", file, 0, data[:8192])

        def adopt(ltds_id: int) -> None:
            with anna.transaction() as txn:
                txn.integration.adopt("q", ltds_id)

        for call in (
            lambda file: anna.integration.read_fragment(file, 0, 100),
            lambda file: anna.integration.write_fragment("q", file, 8192, data[8192:]),
            adopt,
        ):
            errors = []
            for ltds_id in (file, none):
                with pytest.raises((PositionLost, StoreCorrupt)) as error:
                    call(ltds_id)
                errors.append(str(error.value).replace(f"{ltds_id:016x}", "?"))
            assert errors[0] == errors[1]
        with pytest.raises(PositionLost):
            anna.integration.write_fragment("q", file, 0, data)
        anna.integration.remove_fragments([file, none])
        with pytest.raises(InvalidArgument, match="first page"):
            bert.integration.write_fragment("q", file, 40, b"12345678")
        bert.integration.write_fragment("q", file, 8192, data[8192:])
        with bert.transaction() as txn:
            txn.integration.adopt("q", file)
    assert [len(each.payload) for each in owner.browse("q")] == [10_000]


@pytest.mark.parametrize("size", [100, 4095])
def test_a_user_s_file_begins_with_its_first_page(owner: Store, tmp_path: Path, size: int) -> None:
    """In which the server notes whose it is."""
    owner.create_queue("q")
    with as_user(owner, tmp_path, "put queue:q") as anna:
        for data in (b"x" * size, b"x" * 8192):
            with pytest.raises(InvalidArgument, match="first page"):
                anna.integration.write_fragment("q", 1 << 62 | 7, 0, data)


def wrong_files() -> dict[str, tuple[list[EncodedBlock], type[QuireError]]]:
    """Files that a user may not adopt, and what is said."""
    reply = Fields(reply_to="secret")
    damaged = message_block(b"x" * 5000)
    broken = bytearray(damaged.data)
    broken[-10] ^= 1
    return {
        "replies elsewhere": ([message_block(b"x", reply)], NotAllowed),
        "a small charge": ([message_block(b"x" * 5000, charge=-4000)], InvalidArgument),
        "no block": ([EncodedBlock(bytes(broken), 1, damaged.charge_bytes, 5000)], StoreCorrupt),
    }


@pytest.mark.parametrize("name", wrong_files())
def test_a_file_is_looked_through_before_a_user_adopts_it(
    owner: Store, tmp_path: Path, name: str
) -> None:
    """What a put of the same messages would be refused for is refused, and nothing is put."""
    owner.create_queue("q")
    owner.create_queue("secret")
    blocks, error = wrong_files()[name]
    file, data = file_of(owner, tmp_path, blocks)
    with as_user(owner, tmp_path, "put queue:q") as anna:
        anna.integration.write_fragment("q", file, 0, data)
        with pytest.raises(error), anna.transaction() as txn:
            txn.integration.adopt("q", file)
        with pytest.raises(QueueNotFound):
            anna.integration.write_fragment("secret", file, 0, data)
    assert owner.queue("q").messages == 0
    assert owner.admin.verify().ok


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_streamed_message_s_file_is_looked_through_too(
    owner: Store, tmp_path: Path, is_damaged: bool
) -> None:
    """Its chunks are those that its message names, as in a run of a keyed state."""
    owner.create_queue("q")
    env, ltds_id = OsEnv(), new_id(OsEnv(), foreign=True)
    (tmp_path / "made").mkdir()
    writer = LtdsWriter(
        env, str(tmp_path / "made"), owner.integration.store_id, ltds_id, streamed=True
    )
    payload = bytes(range(250)) * 10_000
    for start in range(0, len(payload), CHUNK_BYTES):
        writer.append_chunk(payload[start : start + CHUNK_BYTES])
    header = encode_streamed(Stream(ltds_id, len(payload), CHUNK_BYTES), Fields())
    writer.append([EncodedBlock(header, 1, MESSAGE_OVERHEAD_BYTES, 0)])
    writer.finish()
    data = bytearray(Path(path_of(str(tmp_path / "made"), ltds_id)).read_bytes())
    if is_damaged:
        data[PAGE_BYTES + 1000] ^= 1
    with as_user(owner, tmp_path, "put queue:q") as anna:
        anna.integration.write_fragment("q", ltds_id, 0, bytes(data))

        def adopt() -> None:
            with anna.transaction() as txn:
                txn.integration.adopt("q", ltds_id)

        if is_damaged:
            with pytest.raises(StoreCorrupt):
                adopt()
        else:
            adopt()
            assert owner.get("q").payload == payload  # type: ignore[union-attr]
