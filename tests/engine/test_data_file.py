"""What `DataFile` promises (D1 to D6 in its module), on the real disk and on the simulated one."""

from __future__ import annotations

import errno
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import Barrier

import pytest

from quire.checksum import checksum
from quire.engine.pages.data_file import (
    CHECKSUM,
    HEADER_BYTES,
    HEADER_FIELDS,
    MAGIC,
    DataFile,
    PageData,
)
from quire.env import Env, OsEnv
from quire.errors import (
    DiskFull,
    InvalidArgument,
    QuireError,
    StoreClosed,
    StoreCorrupt,
    StoreFailed,
    StoreVersion,
)
from quire.testing import SimEnv, SimulatedCrash, enumerate_crashes
from tests.kit.limits import Limits

PAGE = 4096
STORE = 0x1122334455667788
SIM_PATH = "/store/data"


@dataclass
class Place:
    """An environment and a path in it."""

    env: Env
    path: str

    def open(
        self, *, create: bool = False, page_size: int = PAGE, store_id: int = STORE, grow: int = 4
    ) -> DataFile:
        return DataFile(
            self.env,
            self.path,
            page_size=page_size,
            store_id=store_id,
            create=create,
            grow_bytes=grow * page_size,
        )


@pytest.fixture(params=["os", "sim", "sim-plain"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A place on the real disk, on a simulated one, and on one without direct files."""
    if request.param == "os":
        return Place(OsEnv(), str(tmp_path / "data"))
    return Place(sim_env(direct=request.param == "sim"), SIM_PATH)


def sim_env(seed: int = 0, *, capacity_bytes: int | None = None, direct: bool = True) -> SimEnv:
    """A simulated machine with a durable directory for the store."""
    env = SimEnv(seed, capacity_bytes=capacity_bytes, direct=direct)
    env.make_directory("/store")
    env.sync_directory("/")
    return env


def sim_file(env: SimEnv, *, grow: int = 4) -> DataFile:
    """A data file on a simulated machine."""
    return Place(env, SIM_PATH).open(create=True, grow=grow)


def overwrite(place: Place, offset: int, data: bytes) -> None:
    """Change the file behind the back of its owner."""
    file = place.env.open_file(place.path)
    file.write(offset, data)
    file.sync()
    file.close()


# Content


@pytest.mark.parametrize("page_size", [4096, 16384, 65536])
def test_pieces_begin_on_pages_and_are_padded_with_zeros(place: Place, page_size: int) -> None:
    """What was written is read back, each piece from its own page on."""
    file = place.open(create=True, page_size=page_size)
    file.ensure(9)
    file.write_extent(1, [b"\xff" * (8 * page_size)])
    pieces: list[PageData] = [b"a", bytearray(b"b" * page_size), memoryview(b"c" * (page_size + 1))]
    assert file.write_extent(2, pieces) == 4
    file.sync()
    expected = b"".join(bytes(piece) + bytes(-len(piece) % page_size) for piece in pieces)
    for _ in range(2):
        assert file.read(2 * page_size, 4 * page_size) == expected
        assert file.read(page_size, page_size) == b"\xff" * page_size
        assert file.read(6 * page_size, page_size) == b"\xff" * page_size
        file.close()
        file = place.open(page_size=page_size)
    file.close()


def test_an_extent_is_one_write() -> None:
    """Many pieces cost one call of the disk."""
    env = sim_env()
    file = sim_file(env)
    file.ensure(20)
    env.calls.clear()
    file.write_extent(3, [b"x" * 5000, b"y", b"z" * 100])
    file.sync()
    assert env.calls.kinds() == ["write"]
    assert env.calls.bytes("write") == 4 * PAGE


def test_a_long_extent_takes_writes_of_bounded_size(limits: Limits) -> None:
    """D6: more than the largest write goes in several, wherever the pieces begin and end."""
    limits(MAX_WRITE_BYTES=64 << 10)
    random = Random(1)
    env = sim_env()
    file = sim_file(env)
    lengths = [1, 64 << 10, 200_000, PAGE, 15 * PAGE, 5, 70_001]
    pieces = [random.randbytes(length) for length in lengths]
    file.ensure(200)
    env.calls.clear()
    count = file.write_extent(1, pieces)
    assert count == sum(file.pages_for(length) for length in lengths)
    writes = env.calls.log
    assert all(call.length == 64 << 10 for call in writes[:-1])
    assert sum(call.length for call in writes) == count * PAGE
    page = 1
    for piece in pieces:
        assert file.read(page * PAGE, len(piece)) == piece
        page += file.pages_for(len(piece))


def test_pieces_of_any_item_size_are_bytes(place: Place) -> None:
    """A view of 8-byte items is measured and written in bytes."""
    file = place.open(create=True)
    file.ensure(4)
    column = memoryview(bytes(range(256)) * 32).cast("Q")
    assert file.write_extent(1, [column]) == 2
    assert file.read(PAGE, 8192) == bytes(range(256)) * 32
    file.close()


def test_what_was_read_is_the_readers_own(place: Place) -> None:
    """D5: it stays the same, whatever becomes of the file."""
    file = place.open(create=True)
    file.ensure(8)
    file.write_extent(1, [b"first" * 100, b"second"])
    read = file.read(PAGE, 500)
    file.write_extent(1, [b"later" * 100])
    file.shrink(3)
    file.close()
    assert read == b"first" * 100


def test_a_file_that_was_cut_by_others_is_damage(place: Place) -> None:
    """D5: what is missing is told with file and place; the rest is read and written on."""
    file = place.open(create=True)
    file.ensure(8)
    file.write_extent(1, [b"first" * 100, b"second" * 1000])
    place.env.open_file(place.path).truncate(2 * PAGE + 100)
    with pytest.raises(StoreCorrupt, match=rf"{place.path} ends within .* at {2 * PAGE}"):
        file.read(2 * PAGE, 6000)
    assert file.read(PAGE, 500) == b"first" * 100
    file.write_extent(2, [b"second" * 1000])
    file.sync()
    assert file.read(2 * PAGE, 6000) == b"second" * 1000


@pytest.mark.parametrize(
    ("offset", "length"), [(8 * PAGE, 1), (8 * PAGE - 1, 2), (0, 1 << 40), (1 << 40, 0)]
)
def test_reading_beyond_the_end_is_damage(place: Place, offset: int, length: int) -> None:
    """What points beyond the file contradicts it; the file itself goes on."""
    file = place.open(create=True)
    assert file.ensure(8) == 8
    with pytest.raises(StoreCorrupt, match="not in it"):
        file.read(offset, length)
    assert len(file.read(7 * PAGE, PAGE)) == PAGE
    assert len(file.read(8 * PAGE, 0)) == 0
    file.close()


def test_bad_arguments_change_nothing(place: Place) -> None:
    """Pages the file does not have, the header page, empty pieces (D2)."""
    file = place.open(create=True)
    file.ensure(4)
    calls: list[Callable[[], object]] = [
        lambda: file.write_extent(0, [b"over the header"]),
        lambda: file.write_extent(3, [b"x" * (PAGE + 1)]),
        lambda: file.write_extent(-1, [b"x"]),
        lambda: file.write_extent(1, [b"x", b""]),
        lambda: file.shrink(0),
        lambda: file.shrink(5),
    ]
    for call in calls:
        with pytest.raises(InvalidArgument):
            call()
    assert file.write_extent(1, []) == 0
    assert not file.failed
    file.close()
    place.open().close()


def test_a_closed_file_says_so(place: Place) -> None:
    """Everything but `close` raises StoreClosed."""
    file = place.open(create=True)
    file.ensure(4)
    file.close()
    file.close()
    calls: list[Callable[[], object]] = [
        file.sync,
        lambda: file.read(0, 1),
        lambda: file.write_extent(1, [b"x"]),
        lambda: file.ensure(5),
        lambda: file.shrink(1),
    ]
    for call in calls:
        with pytest.raises(StoreClosed):
            call()


def test_threads_write_side_by_side(place: Place) -> None:
    """Writes to different pages, growth and reads do not disturb each other (D6: more threads
    than buffers)."""
    file = place.open(create=True)
    start = Barrier(6)

    def work(number: int) -> None:
        start.wait()
        for turn in range(10):
            first = 1 + 60 * number + 6 * turn
            file.ensure(first + 6)
            data = bytes([number + 1]) * (5 * PAGE + turn)
            file.write_extent(first, [data])
            file.sync()
            assert file.read(first * PAGE, len(data)) == data

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    file.close()


# Header


def test_the_header_is_what_the_table_says(place: Place) -> None:
    """The bytes of page 0, by their offsets."""
    place.open(create=True, page_size=8192).close()
    file = place.env.open_file(place.path, read_only=True)
    page = file.read(0, 1 << 20)
    file.close()
    assert len(page) == 8192
    assert page[8:12] == b"QDAT"
    assert int.from_bytes(page[12:14], "little") == 1
    assert page[14:16] == bytes(2)
    assert int.from_bytes(page[16:20], "little") == 8192
    assert int.from_bytes(page[24:32], "little") == STORE
    assert page[40:] == bytes(8192 - 40)


def header(magic: int = MAGIC, version: int = 1, page_size: int = PAGE) -> bytes:
    """A header whose checksum is right."""
    fields = HEADER_FIELDS.pack(magic, version, 0, page_size, 0, STORE, 0)
    return CHECKSUM.pack(checksum(fields)) + fields


@pytest.mark.parametrize(
    ("content", "error", "words"),
    [
        (header(version=2), StoreVersion, "version 2"),
        (header(magic=1), StoreCorrupt, "not a data file"),
        (header(page_size=8192), StoreCorrupt, "8192"),
        (bytes(HEADER_BYTES), StoreCorrupt, "damaged"),
        (header()[:-1] + b"\1", StoreCorrupt, "damaged"),
    ],
)
def test_a_wrong_header_is_refused(
    place: Place, content: bytes, error: type[QuireError], words: str
) -> None:
    """Another version, another kind of file, another page size, damage: each said in words."""
    place.open(create=True).close()
    overwrite(place, 0, content)
    for create in (False, True):
        with pytest.raises(error, match=words) as caught:
            place.open(create=create)
        assert place.path in str(caught.value)


def test_the_file_of_another_store_is_refused(place: Place) -> None:
    """A file that was copied from elsewhere does not pass as this store's."""
    place.open(create=True).close()
    with pytest.raises(StoreCorrupt, match="belongs to store 1122334455667788"):
        place.open(store_id=5)


def test_a_missing_or_short_file_is_damage(place: Place) -> None:
    """Without `create` a file has to be there, with the whole of its header page."""
    with pytest.raises(StoreCorrupt, match="missing"):
        place.open()
    place.open(create=True, page_size=8192).close()
    file = place.env.open_file(place.path)
    for size in (4096, 40, 0):
        file.truncate(size)
        with pytest.raises(StoreCorrupt):
            place.open(page_size=8192)
    file.close()


def test_every_flipped_bit_of_the_header_is_found() -> None:
    """No damage of the 64 bytes passes."""
    for bit in range(HEADER_BYTES * 8):
        env = sim_env()
        sim_file(env).close()
        env.corrupt(SIM_PATH, bit // 8, 1 << bit % 8)
        with pytest.raises(StoreCorrupt):
            Place(env, SIM_PATH).open()


# Crashes


@dataclass
class Acknowledged:
    """What a workload was told is durable."""

    created: bool = False
    pages: dict[int, bytes] = field(default_factory=dict)


def create_and_write(env: SimEnv, noted: Acknowledged) -> None:
    """Create a file and write to it; note what is acknowledged."""
    env.make_directory("/store")
    env.sync_directory("/")
    file = sim_file(env)
    noted.created = True
    random = Random(3)
    for page in (1, 5, 9):
        data = random.randbytes(PAGE)
        file.ensure(page + 1)
        file.write_extent(page, [data])
        file.sync()
        noted.pages[page] = data
    file.close()


def opens_with_what_was_acknowledged(env: SimEnv, noted: Acknowledged) -> None:
    """There is a whole file or none, and creation works in either case."""
    if not env.exists("/store"):
        assert not noted.created
        return
    whole = env.exists(SIM_PATH)
    assert whole or not noted.created
    file = Place(env, SIM_PATH).open(create=not whole)
    for page, data in noted.pages.items():
        assert file.read(page * PAGE, PAGE) == data
    file.ensure(3)
    file.write_extent(2, [b"again"])
    file.close()
    sim_file(env).close()
    assert whole or not env.exists(SIM_PATH + ".tmp")


@pytest.mark.crash
@pytest.mark.parametrize("direct", [True, False])
def test_a_crash_at_any_call_leaves_no_file_or_a_whole_one(direct: bool) -> None:
    """D1, and what was synced is there afterwards."""
    cases = enumerate_crashes(
        create_and_write,
        opens_with_what_was_acknowledged,
        Acknowledged,
        rounds=6,
        new_env=lambda seed: SimEnv(seed, direct=direct),
    )
    assert cases > 60


@pytest.mark.crash
def test_a_name_that_is_not_durable_yet_is_made_durable_by_opening() -> None:
    """D1: killed between rename and the sync of the directory, opened, then the power fails."""
    env = sim_env()
    sim_file(env).close()
    last = env.calls.log[-1]
    assert last.kind == "sync_directory"
    env = sim_env()
    env.crash_at = last.number
    with pytest.raises(SimulatedCrash):
        sim_file(env)
    env = env.kill()
    assert env.exists(SIM_PATH)
    sim_file(env).close()
    Place(env.crash(outcome="lost"), SIM_PATH).open().close()


@pytest.mark.crash
def test_creation_begins_anew_after_a_failed_sync_of_the_directory() -> None:
    """D1: a name whose sync failed may never become durable; one made afterwards does."""
    for seed in range(8):
        env = sim_env(seed)
        env.fail("sync_directory")
        with pytest.raises(StoreFailed):
            sim_file(env)
        assert not env.exists(SIM_PATH)
        sim_file(env).close()
        Place(env.crash(outcome="lost"), SIM_PATH).open().close()


def test_what_a_failed_creation_left_is_no_hindrance(place: Place) -> None:
    """D1: an unfinished file of the temporary name is removed by the next creation."""
    file = place.env.open_file(place.path + ".tmp", create=True)
    file.write(0, b"rubbish" * 10_000)
    file.close()
    created = place.open(create=True)
    assert created.pages == 1
    created.close()
    assert not place.env.exists(place.path + ".tmp")


@pytest.mark.parametrize("kind", ["create", "write", "sync", "rename", "sync_directory"])
def test_creation_reports_what_fails(kind: str) -> None:
    """An I/O error in creation is StoreFailed, no room is DiskFull; both may be tried again."""
    env = sim_env(direct=False)
    env.fail(kind)
    with pytest.raises(StoreFailed, match="could not be created"):
        sim_file(env)
    sim_file(env).close()
    full = sim_env(capacity_bytes=0)
    with pytest.raises(DiskFull):
        sim_file(full)
    full.capacity_bytes = PAGE
    sim_file(full).close()


# Failures


@pytest.mark.parametrize(
    ("kind", "error"),
    [("write", None), ("sync", None), ("sync", OSError(errno.ENOSPC, "no space after all"))],
)
def test_after_a_failed_write_or_sync_only_reads_go_on(kind: str, error: OSError | None) -> None:
    """D4: nothing is retried; opening the file anew ends it. A sync fails with any errno."""
    env = sim_env(direct=False)
    file = sim_file(env)
    file.ensure(8)
    file.write_extent(1, [b"safe"])
    file.sync()
    env.fail(kind, error=error)
    if kind == "sync":
        file.write_extent(2, [b"lost"])
    with pytest.raises(StoreFailed):
        file.sync() if kind == "sync" else file.write_extent(2, [b"lost"])
    env.calls.clear()
    calls: list[Callable[[], object]] = [
        file.sync,
        lambda: file.write_extent(3, [b"x"]),
        lambda: file.ensure(100),
        lambda: file.shrink(1),
    ]
    for call in calls:
        with pytest.raises(StoreFailed, match="open it again"):
            call()
    assert file.failed
    assert bytes(file.read(PAGE, 4)) == b"safe"
    file.close()
    assert env.calls.log == []
    again = Place(env, SIM_PATH).open()
    again.write_extent(3, [b"x"])
    again.sync()
    assert bytes(again.read(PAGE, 4)) == b"safe"


@pytest.mark.parametrize(
    ("kind", "call"),
    [
        ("allocate", lambda file: file.ensure(20)),
        ("truncate", lambda file: file.shrink(2)),
    ],
)
def test_a_failed_change_of_size_is_a_failure_too(
    kind: str, call: Callable[[DataFile], object]
) -> None:
    """D4 for all that changes the file."""
    env = sim_env()
    file = sim_file(env)
    file.ensure(8)
    env.fail(kind)
    with pytest.raises(StoreFailed):
        call(file)
    with pytest.raises(StoreFailed):
        file.sync()


# Space


def test_growth_is_in_chunks(place: Place) -> None:
    """D3: room for more than was asked, as long as there is room."""
    file = place.open(create=True, grow=10)
    assert file.pages == 1
    assert file.ensure(2) == 10
    assert file.ensure(10) == 10
    assert file.ensure(11) == 20
    file.close()
    assert place.open().pages == 20


def test_a_full_disk_changes_nothing() -> None:
    """D3: growth goes as far as asked if not further, else DiskFull, and all goes on."""
    env = sim_env(capacity_bytes=10 * PAGE)
    file = sim_file(env, grow=8)
    assert file.ensure(3) == 8
    assert file.ensure(9) == 9
    before = env.contents(SIM_PATH)
    with pytest.raises(DiskFull, match="free space"):
        file.ensure(11)
    assert file.pages == 9
    assert env.contents(SIM_PATH) == before
    assert not file.failed
    file.write_extent(1, [b"x" * 8 * PAGE])
    file.sync()
    assert file.ensure(10) == 10


def test_holes_get_space_before_a_write() -> None:
    """D3: a write to a hole, as a copy of the file may have, never runs out of room half-way."""
    env = sim_env(capacity_bytes=10 * PAGE)
    file = sim_file(env)
    file.ensure(8)
    file.write_extent(1, [b"x" * 7 * PAGE])
    file.close()
    with closing(env.open_file(SIM_PATH)) as copied:
        copied.punch(2 * PAGE, 4 * PAGE)
    file = Place(env, SIM_PATH).open()
    assert env.used_bytes() == 4 * PAGE
    assert file.read(PAGE, 7 * PAGE) == b"x" * PAGE + bytes(4 * PAGE) + b"x" * 2 * PAGE
    other = env.open_file("/store/other", create=True)
    other.allocate(0, 4 * PAGE)
    with pytest.raises(DiskFull):
        file.write_extent(1, [b"y" * 6 * PAGE])
    assert not file.failed
    assert file.read(PAGE, PAGE) == b"x" * PAGE
    other.truncate(0)
    file.write_extent(1, [b"y" * 6 * PAGE])
    assert file.read(PAGE, 6 * PAGE) == b"y" * 6 * PAGE
    env.calls.clear()
    file.write_extent(1, [b"z" * 6 * PAGE])
    assert env.calls.kinds() == ["write"]


def test_the_file_is_cut_right_after_opening(place: Place) -> None:
    """D5: before the first view the tail really goes."""
    file = place.open(create=True)
    file.ensure(20)
    file.close()
    file = place.open()
    file.shrink(7)
    assert file.pages == 7
    file.shrink(7)
    with pytest.raises(StoreCorrupt):
        file.read(7 * PAGE, 1)
    file.close()
    assert place.open().pages == 7
