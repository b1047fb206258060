"""Objects: one suite over every implementation of the seam."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from quire.archive.limits import MAX_CREATE_BYTES, MAX_NAME_LENGTH, TRANSFER_BYTES
from quire.archive.objects import Objects, open_objects
from quire.archive.objects.retries import RetriedObjects
from quire.env import OsEnv
from quire.errors import InvalidArgument, ObjectNotFound
from quire.testing import SimEnv
from tests.kit.faulty_objects import FaultyObjects
from tests.kit.memory_objects import MemoryObjects

KINDS = ("memory", "directory", "simulated disk", "faulty")


@pytest.fixture(params=KINDS)
def objects(request: pytest.FixtureRequest, tmp_path: Path, seed: int) -> Objects:
    """Each kind of objects in turn, empty."""
    match request.param:
        case "directory":
            return open_objects(str(tmp_path / "archive" / "store"), OsEnv())
        case "simulated disk":
            return open_objects("/archive/store", SimEnv(seed=1))
        case "faulty":
            env = SimEnv(seed)
            return RetriedObjects(FaultyObjects(MemoryObjects(env), env, seed), env)
    return MemoryObjects(OsEnv())


def names(objects: Objects, prefix: str = "") -> list[str]:
    """The names of a listing, sorted."""
    return sorted(found.name for found in objects.list(prefix))


class TestContract:
    def test_an_object_is_made_once(self, objects: Objects) -> None:
        """[AO2] A second create is refused, and changes nothing."""
        assert objects.create("log/0/1", b"first")
        assert not objects.create("log/0/1", b"second")
        assert objects.read("log/0/1") == b"first"

    def test_of_many_creates_at_a_time_one_wins(self, objects: Objects) -> None:
        """[AO2] Eight threads, one winner, whose bytes are there."""
        barrier = threading.Barrier(8)
        won: list[bytes] = []

        def race(data: bytes) -> None:
            barrier.wait()
            if objects.create("claim", data):
                won.append(data)

        threads = [threading.Thread(target=race, args=[bytes([n]) * 100]) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [objects.read("claim")] == won

    def test_ranges_are_read(self, objects: Objects) -> None:
        """A range ends at the object's end; an empty object has nothing."""
        objects.create("a", bytes(range(100)))
        objects.create("empty", b"")
        assert objects.read("a", 10, 5) == bytes(range(10, 15))
        assert objects.read("a", 90) == bytes(range(90, 100))
        assert objects.read("a", 90, 50) == bytes(range(90, 100))
        assert objects.read("a", 100, 5) == objects.read("a", 5, 0) == b""
        assert objects.read("empty") == objects.read("empty", 0, 5) == b""
        assert (objects.size("a"), objects.size("empty")) == (100, 0)

    def test_a_large_object_goes_up_in_pieces(self, objects: Objects) -> None:
        """Pieces of any size and kind make one object, which replaces one of its name."""
        data = bytes(range(256)) * (TRANSFER_BYTES // 256 + 1000)
        pieces = (data[:1], b"", bytearray(data[1:100_000]), memoryview(data)[100_000:])
        objects.upload("packs/1-2", pieces)
        assert objects.size("packs/1-2") == len(data)
        assert objects.read("packs/1-2") == data
        assert objects.read("packs/1-2", TRANSFER_BYTES - 5, 10) == data[TRANSFER_BYTES - 5 :][:10]
        objects.upload("packs/1-2", [])
        assert objects.read("packs/1-2") == b""

    def test_pieces_that_end_with_an_error_make_no_object(self, objects: Objects) -> None:
        """[AO1] The error is that of the pieces, and nothing has the name."""

        def pieces() -> object:
            yield b"x" * 1000
            raise ValueError("the source is gone")

        with pytest.raises(ValueError, match="the source is gone"):
            objects.upload("packs/1", pieces())  # type: ignore[arg-type]
        assert names(objects) == []

    def test_a_hint_is_overwritten(self, objects: Objects) -> None:
        """The last of two is read."""
        objects.overwrite("lease", b"first, and longer")
        objects.overwrite("lease", b"second")
        assert objects.read("lease") == b"second"

    def test_objects_are_listed_by_folder(self, objects: Objects) -> None:
        """Names, sizes and times of all, or of those below a prefix that ends with a slash."""
        for number in range(30):
            objects.create(f"log/{number // 10}/{number}", bytes(number))
        objects.create("log2/1", b"x")
        objects.create("top", b"x")
        assert len(names(objects)) == 32
        assert names(objects, "log/1/") == [f"log/1/{number}" for number in range(10, 20)]
        assert names(objects, "nothing/") == []
        found = {info.name: info for info in objects.list("log/")}
        assert len(found) == 30
        assert found["log/2/25"].bytes == 25
        assert found["log/2/25"].modified_us > 1_600_000_000_000_000

    def test_objects_are_deleted(self, objects: Objects) -> None:
        """Those that are there; the others are passed over, and their names are free again."""
        for name in ("a/1", "a/2", "b/1"):
            objects.create(name, b"x")
        objects.delete(iter(["a/1", "b/1", "a/3", "c/d/e"]))
        objects.delete([])
        assert names(objects) == ["a/2"]
        assert objects.create("a/1", b"anew")

    def test_an_object_that_is_not_there_is_not_found(self, objects: Objects) -> None:
        """Nothing is made by asking."""
        objects.create("a/b", b"x")
        for name in ("c", "a/c", "a/d/e"):
            with pytest.raises(ObjectNotFound, match=name):
                objects.read(name)
            with pytest.raises(ObjectNotFound, match=name):
                objects.size(name)
        assert names(objects) == ["a/b"]

    @pytest.mark.parametrize(
        "name", ["", "/a", "a/", "a//b", "../a", "a/.b", ".", "a b", "ä", "a\n", "x" * 201]
    )
    def test_a_wrong_name_is_refused(self, objects: Objects, name: str) -> None:
        """None leads out of the archive, or means another thing in another store."""
        assert len(name) <= MAX_NAME_LENGTH + 1
        calls = (
            lambda: objects.create(name, b""), lambda: objects.upload(name, []),
            lambda: objects.overwrite(name, b""), lambda: objects.read(name),
            lambda: objects.size(name), lambda: objects.delete([name]),
        )  # fmt: skip
        for call in calls:
            with pytest.raises(InvalidArgument, match="object name"):
                call()
        with pytest.raises(InvalidArgument):
            list(objects.list("a"))

    def test_what_is_made_at_a_time_is_bounded(self, objects: Objects) -> None:
        """The largest that is allowed is made; a larger one is to be uploaded."""
        assert objects.create("largest", bytes(MAX_CREATE_BYTES))
        for make in (objects.create, objects.overwrite):
            with pytest.raises(InvalidArgument, match="upload"):
                make("larger", bytes(MAX_CREATE_BYTES + 1))
