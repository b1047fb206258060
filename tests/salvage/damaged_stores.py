"""Stores that are damaged at random, and an oracle that knows where each message's bytes are."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
from msgspec import Struct

from quire.engine import EmbeddedStore as Store
from quire.engine.pages.data_files import split_address
from quire.engine.records import format
from quire.errors import QuireError
from quire.journal import segment_path
from quire.ltds import LtdsReader, path_of
from quire.messages.typed_message import TypedMessage
from quire.rows.row_block import RowBlock
from quire.testing import SimEnv
from tests.engine.workload import OPTIONS, PATH, new_machine

NEW = "/disk/new"
ROWS = pa.schema([("text", pa.string())])
QUEUES: dict[str, dict[str, Any]] = {
    "plain": {"kind": "work"},
    "dead": {"kind": "work"},
    "urgent": {"kind": "work", "order": "priority"},
    "counted": {"kind": "work", "max_deliveries": 9, "dead_letter": "dead"},
    "topic": {"kind": "topic"},
    "rows": {"kind": "work", "schema": ROWS},
}
SOURCES = ("plain", "dead", "urgent", "counted", "topic/fast", "topic/slow", "rows")
WAYS = ("bit", "bytes", "zeros", "sector", "gone", "cut", "longer", "swapped")


class Kept(Struct, frozen=True):
    """An unread message, and the bytes of its block."""

    queue: str
    position: int
    text: str
    path: str
    offset: int
    length: int
    directory: tuple[int, int] = (0, 0)  # where its file is compressed: its bytes in the file


class Sound(Struct):
    """A store before the damage."""

    env: SimEnv
    put: dict[str, str]  # the queue of each text that was ever put
    kept: list[Kept]
    numbers: dict[str, int]  # of the queues
    unread: dict[str, set[str]]  # by source


class Story:
    """A random workload; what it puts is told by its own text."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.put: dict[str, str] = {}
        self.env = new_machine(rng.randrange(1 << 30))
        options = dict(OPTIONS)
        if rng.random() < 0.3:
            options["data_files"] = 2
        if rng.random() < 0.2:
            options["ltds_compression"] = "zstd"
        self.store = Store.open(PATH, env=self.env, background=False, **options)
        for name, how in QUEUES.items():
            self.store.create_queue(name, **how)
        for name in ("fast", "slow"):
            self.store.subscribe("topic", name)
        self.xids = self.steps = 0

    def texts(self, queue: str, count: int, size: int) -> list[str]:
        """New ones."""
        first = len(self.put)
        made = [f"{queue}:{first + n}:" + chr(97 + n % 26) * size for n in range(count)]
        self.put |= dict.fromkeys(made, queue)
        return made

    def put_some(self, transaction: Any) -> None:
        """Put to one queue."""
        rng = self.rng
        queue = rng.choice(list(QUEUES))
        count, size = rng.choice([(1, 10), (1, 900), (5, 100), (30, 300), (2, 7000), (90, 50)])
        texts = self.texts(queue, count, size)
        if queue == "rows":
            transaction.put_many(queue, pa.record_batch({"text": texts}, schema=ROWS))
        else:
            transaction.put_many(queue, [text.encode() for text in texts])

    def step(self) -> None:
        """Do something."""
        rng, store = self.rng, self.store
        way = rng.random()
        if way < 0.5:
            with store.transaction(large=rng.random() < 0.15) as transaction:
                for _ in range(rng.choice([1, 1, 3])):
                    self.put_some(transaction)
        elif way < 0.8:
            with store.transaction() as transaction:
                transaction.get_many(rng.choice(SOURCES), rng.choice([1, 3, 20]))
                if rng.random() < 0.3:
                    self.put_some(transaction)
                self.steps += 1
                transaction.enter(f"key{rng.randrange(3)}", self.steps)
        elif way < 0.84:
            with store.transaction() as transaction:
                [text] = self.texts("plain", 1, 20_000)
                transaction.put_stream("plain", io.BytesIO(text.encode()))
        elif way < 0.88:
            transaction = store.transaction()
            self.put_some(transaction)
            transaction.get_many("plain", 2)
            self.xids += 1
            transaction.prepare(f"xid{self.xids}")
            if rng.random() < 0.6:
                store.prepared.commit(f"xid{self.xids}")
        elif way < 0.96:
            store.admin.checkpoint()
        else:
            with store.transaction() as transaction:
                transaction.set_value("state", f"k{rng.randrange(5)}", b"value")

    def maintain(self) -> None:
        """What a thread of the store does."""
        journal = self.store._opened.journal
        if journal.nearly_full and not journal.next_is_ready:
            journal.prepare_next()

    def sound(self) -> Sound:
        """End it as a kill does; what is there then."""
        store = self.store
        kept = list(_kept(store))
        unread = {source: {_text(m) for m in store.browse(source)} for source in SOURCES}
        numbers = {q.name: q.queue_id for q in store._context.state.queues.values()}
        env = self.env.kill()
        return Sound(env, self.put, kept, numbers, unread)


def _text(message: Any) -> str:
    if isinstance(message, TypedMessage):
        return str(message.value["text"])
    return bytes(message.payload).decode()


def _kept(store: Any) -> Iterator[Kept]:
    segment_bytes = store._opened.settings["segment_bytes"]
    layout = store._opened.layout
    for queue in store._context.state.queues.values():
        for ref in queue.records.stored():
            if not queue.unreleased(ref):
                continue
            if ref.kind == format.LTDS:
                path = path_of(layout.ltds, ref.address)
                opened = store._opened
                ids = ref.address, opened.store_id
                with LtdsReader(opened.env, layout.ltds, *ids) as file:
                    for number in range(file.chunk_count, file.block_count):
                        offset, first, length, *_ = file._entries[number].item()
                        block, _ = file.block_at(number)
                        if file.chunk_count:
                            offset, length = 4096, file.bytes - 4096
                        where = path, offset, length
                        ends = (file.bytes - 8192, file.bytes) if file.codec else (0, 0)
                        yield from _of(queue, ref.position + first, block, where, ends)
                continue
            if ref.kind == format.DATA:
                number, offset = split_address(ref.address)
                path = layout.data_file(number)
            else:
                number, offset = divmod(ref.address, segment_bytes)
                path = segment_path(layout.journal, number)
            block = store._context.reader.read(ref)
            yield from _of(queue, ref.position, block, (path, offset, ref.length))


def _of(
    queue: Any,
    first: int,
    block: Any,
    place: tuple[str, int, int],
    directory: tuple[int, int] = (0, 0),
) -> Iterator[Kept]:
    """The unread messages of a block."""
    if isinstance(block, RowBlock):
        texts = block.rows.column("text").to_pylist()
    else:
        texts = [payload.decode() for payload in block.payloads()]
    for index, text in enumerate(texts):
        if not queue.released.contains(first + index):
            yield Kept(queue.name, first + index, text, *place, directory)


def story(rng: random.Random, steps: int) -> Sound:
    """A store after a random workload."""
    made = Story(rng)
    for _ in range(steps):
        made.step()
        made.maintain()
    return made.sound()


def files_of(env: SimEnv) -> dict[str, bytes]:
    """The files of the store by path, with their content."""
    paths = [p for p in env.files() if p.startswith(f"{PATH}/") and not p.endswith("LOCK")]
    return {path: env.contents(path) for path in paths}


def spoil(env: SimEnv, rng: random.Random, *, blocks: list[Kept] | None = None) -> str:
    """Damage one file; what was done. `blocks`: only within one of them."""
    paths = sorted(path for path, data in files_of(env).items() if data)
    if blocks is not None:
        block = rng.choice(blocks)
        offset = block.offset + rng.randrange(block.length)
        env.corrupt(block.path, offset, 1 << rng.randrange(8))
        return f"a bit at {offset} of {block.path}"
    kinds = sorted({path.rpartition("/")[0] for path in paths})
    kind = rng.choice(kinds)  # else most of it would hit the journal, which has most bytes
    path = rng.choice([path for path in paths if path.rpartition("/")[0] == kind])
    data, way = env.contents(path), rng.choice(WAYS)
    used = data.rstrip(b"\0")
    offset = rng.randrange(max(len(used), 1))
    if way == "gone":
        env.remove(path)
    elif way in ("cut", "longer"):
        file = env.open_file(path)
        file.truncate(offset if way == "cut" else len(data) + rng.randrange(1, 9000))
        file.close()
    else:
        _flip(env, rng, path, offset, way)
    return f"{way} at {offset} of {path}"


def _flip(env: SimEnv, rng: random.Random, path: str, offset: int, way: str) -> None:
    data = env.contents(path)
    sector = offset // 512 * 512
    if way == "bit":
        env.corrupt(path, offset, 1 << rng.randrange(8))
    elif way == "bytes":
        mask = rng.randbytes(rng.randrange(1, 600))[: len(data) - offset]
        env.corrupt(path, offset, mask)
    elif way == "zeros":
        env.corrupt(path, offset // 4096 * 4096, data[offset // 4096 * 4096 :][:4096])
    elif way == "sector":
        env.corrupt(path, sector, rng.randbytes(len(data[sector : sector + 512])))
    else:
        other = rng.randrange(len(data) // 512 or 1) * 512
        one, two = data[sector : sector + 512], data[other : other + 512]
        mask = bytes(a ^ b for a, b in zip(one, two, strict=False))
        if sector != other and mask:
            env.corrupt(path, sector, mask)
            env.corrupt(path, other, mask)


class Outcome(Struct):
    """The new store, as a reader finds it."""

    texts: dict[str, list[str]]  # by queue, in order
    unread: dict[str, set[str]]  # by source
    positions: dict[str, dict[str, int]]  # by queue: of the unread ones
    prepared: set[str]  # those of transactions whose decision may be lost


def outcome(env: SimEnv, path: str = NEW) -> Outcome:
    """Open the new store, verify it, use it, and read all of it."""
    store = Store.open(path, env=env, background=False, create=False)
    report = store.admin.verify()
    assert report.ok, report.findings
    kept = list(_kept(store))
    texts: dict[str, list[str]] = {}
    positions: dict[str, dict[str, int]] = {}
    for each in kept:
        texts.setdefault(each.queue, []).append(each.text)
        positions.setdefault(each.queue, {})[each.text] = each.position
    names = {queue.name for queue in store.queues()}
    sources = [source for source in SOURCES if source.partition("/")[0] in names]
    unread: dict[str, set[str]] = {}
    for source in sources:
        with suppress(QuireError):  # its subscription is lost
            unread[source] = {_text(message) for message in store.browse(source)}
    for name in names - {"topic", "rows"}:
        with suppress(QuireError), store.transaction() as transaction:
            transaction.get_many(name, 5)
    before = {each.text for each in _kept(store)}
    for info in store.prepared.list():
        store.prepared.commit(info.xid)
    prepared = {each.text for each in _kept(store)} - before
    store.admin.checkpoint()
    assert store.admin.verify().ok
    store.close()
    return Outcome(texts, unread, positions, prepared)


def intact(kept: list[Kept], before: dict[str, bytes], env: SimEnv) -> list[Kept]:
    """The messages whose blocks are what they were."""
    after = files_of(env)
    found = []
    for each in kept:
        own = before[each.path][each.offset : each.offset + each.length]
        there = after.get(each.path, b"")[each.offset : each.offset + each.length]
        start, end = each.directory
        named = before[each.path][start:end] == after.get(each.path, b"")[start:end]
        if own == there and named:
            found.append(each)
    return found
