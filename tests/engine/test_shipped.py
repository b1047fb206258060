"""Stores that are built from another one's records: as shipped, each with places of its own."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from typing import Any, NamedTuple

import pytest

from quire.engine import EmbeddedStore as Store
from quire.engine.layout import Layout
from quire.engine.pages.data_file import DataFile
from quire.engine.records import format
from quire.engine.records.checkpoint_file import list_checkpoints, read_checkpoint
from quire.engine.records.commit_record import CommitRecord, Part
from quire.engine.records.local_tail import mark_of, placed, shared
from quire.engine.state.fold import decode_record
from quire.engine.state.sections.kinds import KINDS
from quire.journal import KIND_GENERATION, Geometry, Journal, JournalFinding, scan
from quire.journal.format import RECORD_HEADER, RECORD_HEADER_BYTES
from quire.ltds import path_of
from quire.testing import SimEnv
from tests.engine.test_state_hash import Clock, Follower, told, work
from tests.engine.workload import PATH

LAYOUT = Layout(PATH)

# Of the store that is shipped, and of those that are built of its records.
SOURCE: dict[str, Any] = {"page_size": 4096, "data_files": 3, "inline_limit_bytes": 16}
BUILT: list[dict[str, Any]] = [
    {"page_size": 16384, "data_files": 1},
    {"page_size": 8192, "data_files": 2},
]


class Shipped(NamedTuple):
    """A record as another machine gets it: its shared part, its attachment, and its files."""

    record: bytes
    attached: list[bytes]
    files: dict[str, bytes]  # but those that everybody has read
    kinds: set[int]  # of its sections


def machine(seed: int) -> Clock:
    """Of one seed they draw one store's id."""
    env = Clock(seed)
    env.make_directory("/disk")
    env.sync_directory("/")
    return env


def made(env: SimEnv, options: dict[str, Any]) -> Store:
    """With segments and checkpoints of the test's own."""
    return Store.open(
        PATH, env=env, background=False, segment_bytes=4 << 20, checkpoint_bytes=1 << 40, **options
    )


def ship(env: SimEnv, store: Store) -> Iterator[Shipped]:
    """All records since the store was made."""
    settings = store._opened.settings
    geometry = Geometry(
        store.integration.store_id, settings["segment_bytes"], settings["page_size"]
    )
    read = store._opened.places.data.read
    for group in scan(env, LAYOUT.journal, geometry):
        assert not isinstance(group, JournalFinding), group
        for record in group.records():
            if record.kind != KIND_GENERATION:
                length = RECORD_HEADER_BYTES + len(record.body)
                header = RECORD_HEADER.pack(length, record.kind, record.flags, record.sequence)
                said = decode_record(record, "here")
                parts: Sequence[Part] = said.parts if isinstance(said, CommitRecord) else ()
                on_pages = [part for part in parts if part.kind == format.DATA]
                attached = [bytes(read(part.address, part.length)) for part in on_pages]
                paths = [path_of(LAYOUT.ltds, p.address) for p in parts if p.kind == format.LTDS]
                files = {path: env.contents(path) for path in paths if env.exists(path)}
                kinds = {s.kind for s in said.sections} if isinstance(said, CommitRecord) else set()
                yield Shipped(shared(header + record.body), attached, files, kinds)


class Built:
    """A store of shipped records, which its machine has put into its own journal and pages."""

    def __init__(self, env: SimEnv, options: dict[str, Any]) -> None:
        self._env = env
        self._options = options
        with made(env, options) as store:
            self.store_id = store.integration.store_id

    def take(self, shipped: Sequence[Shipped], rng: random.Random) -> None:
        """They are there, some in a group: the next opening folds them."""
        with closing(self._journal()) as journal:
            places = list(self._place([b for each in shipped for b in each.attached], rng))
            group: list[bytes] = []
            for each in shipped:
                for path, content in each.files.items():
                    with closing(self._env.open_file(path, create=True)) as file:
                        file.write(0, content)
                        file.sync()
                self._env.sync_directory(LAYOUT.ltds)
                own = [places.pop(0) for _ in each.attached]
                group.append(placed(each.record, own, mark_of(journal.generation)))
                if rng.random() < 0.5 or sum(map(len, group)) > 1 << 20:
                    journal.write_group(group)
                    group = []
            if group:
                journal.write_group(group)

    def _journal(self) -> Journal:
        lsn = list_checkpoints(self._env, LAYOUT.checkpoints)[-1]
        document = read_checkpoint(self._env, LAYOUT.checkpoints, lsn).document
        return Journal.recover(
            self._env,
            LAYOUT.journal,
            store_id=self.store_id,
            segment_bytes=document["segment_bytes"],
            page_size=document["page_size"],
            restart_lsn=document["restart_lsn"],
            durable_lsn=lsn,
            apply=lambda record: None,
            report=lambda report: None,
        )

    def _place(self, blocks: Sequence[bytes], rng: random.Random) -> Iterator[int]:
        """Behind all that the data files have; where each is."""
        page_size: int = self._options["page_size"]
        with ExitStack() as opened:
            files: list[DataFile] = []
            for number in range(self._options["data_files"]):
                path = LAYOUT.data_file(number)
                data = DataFile(
                    self._env, path, page_size=page_size, store_id=self.store_id, number=number
                )
                files.append(opened.enter_context(closing(data)))
            ends = [data.pages for data in files]
            most = sum(files[0].pages_for(len(block)) for block in blocks)
            for data, end in zip(files, ends, strict=True):
                data.ensure(end + most)
            for block in blocks:
                number = rng.randrange(len(files))
                yield number << 48 | ends[number] * page_size
                ends[number] += files[number].write_extent(ends[number], [block])
            for data in files:
                data.sync()


@pytest.mark.promise(8)
def test_promise_8_stores_of_one_journal_are_equal(seed: int) -> None:
    """Built of its records on other pages, in other files, with other checkpoints: number, state
    and contents are those of the store that they are of.
    """
    env = machine(seed)
    with made(env, SOURCE) as store:
        store._opened.places.withhold()  # what is released is there until it was shipped
        work(store, Follower(env, store), random.Random(seed), checkpoints=0.0)
        records = list(ship(env, store))
        store._opened.places.hand_back()
        expected = told(store, "contents")
    assert len(records) == expected[0]
    assert sum(bool(each.attached) for each in records) > 40
    assert any(each.files for each in records)
    assert set().union(*(each.kinds for each in records)) == set(KINDS)  # a new one is to be there
    for number, options in enumerate(BUILT):
        rng = random.Random(seed + number)
        own = machine(seed)
        built = Built(own, options)
        moments = sorted(rng.sample(range(1, len(records)), number + 1))
        for first, after in zip([0, *moments], [*moments, len(records)], strict=True):
            built.take(records[first:after], rng)
            with Store.open(PATH, env=own, background=False) as store:
                assert store.admin.verify().checked["number"] == after
                store.admin.checkpoint()
        with Store.open(PATH, env=own, background=False) as store:
            assert told(store, "contents") == expected
