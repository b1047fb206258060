"""`verify` of entries: what is gone or damaged is named, with the records that need it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from quire.archive import backup, backups, format, restore, verify
from quire.archive.boundaries import Boundary
from quire.archive.manifest import sealed
from quire.errors import ArchiveCorrupt, BackupNotFound
from quire.testing import SimEnv
from tests.archive.shipped_records import Shipper
from tests.archive.test_backup_and_restore import (
    ARCHIVE,
    RESTORED,
    clock_machine,
    furnish_small,
    objects,
    opened,
)
from tests.archive.test_hostile_archives import rewrite
from tests.archive.test_restore_points import entry_maker, messages

PUTS = 9


class SmallArchive:
    """A base with a file, and entries alone, merged, with a blob, with a file."""

    def __init__(self) -> None:
        env = clock_machine(1)
        with opened(env, page_size=4096, inline_limit_bytes=100) as store:
            store.admin.set_archive(ARCHIVE)
            furnish_small(store)
            self.base = backup(store, ARCHIVE, env=env).backup
            shipper = Shipper(env, store, self.base.number)
            for number in range(PUTS):
                with store.transaction(large=number == 5) as txn:
                    txn.put("q", b"%d" % number * (20_000 if number == 3 else 1000))
            shipper.ship()
            self.last = shipper.records[-1].number
            self.count = store.queue("q").messages
            self.maker = entry_maker(env, store)
            for each in shipper.records:
                self.maker.add([each])
            self.maker.merge(2, 3)
        self.env: SimEnv = env.crash(outcome="kept")


@pytest.fixture(scope="module")
def small() -> SmallArchive:
    """An archive; each test takes a copy of its machine."""
    return SmallArchive()


def test_a_whole_archive_has_no_findings(small: SmallArchive) -> None:
    """All of it is read, what is in no base too."""
    report = verify(ARCHIVE, env=small.env)
    assert report.findings == []
    assert (report.checked["backups"], report.checked["entries"]) == (1, PUTS)
    stored = [path for path in objects(small.env) if not path.endswith("/store")]
    assert report.checked["objects"] == len(stored) - 1  # but for the manifest


def lost_from(small: SmallArchive, name: str) -> set[int]:
    """The first record that cannot be restored without an object, of several where it has more."""
    base = small.base.number
    if name.startswith((format.BASES, format.PACKS)):
        return {base}
    if name.startswith(format.MERGED):
        return {base + 2, base + 3}
    if name.startswith(format.LOG):
        return {base + format.place_of(name)}
    if name.startswith(format.BLOBS):
        return {base + 4}
    return {base, base + 6}  # a file is of the base, or of an entry


@pytest.mark.parametrize("count", [4, pytest.param(1000, marks=pytest.mark.long)])
@pytest.mark.parametrize("fault", ["gone", "flipped", "longer"])
def test_each_object_that_is_gone_or_damaged_is_named(
    small: SmallArchive, fault: str, count: int, rng: random.Random
) -> None:
    """With the records that cannot be restored; those before can, and a new base heals the rest."""
    names = [path.removeprefix(f"{ARCHIVE}/") for path in objects(small.env)]
    kinds = {name.partition("/")[0] for name in names}
    assert kinds == {"store", "bases", "packs", "files", "blobs", "log", "merged"}
    newest = format.entry_name(PUTS)  # whether it was ever there nobody knows
    known = [name for name in names if not (fault != "flipped" and name == newest)]
    for name in rng.sample(known, min(count, len(known))):
        env = small.env.crash(outcome="kept")
        path = f"{ARCHIVE}/{name}"
        if fault == "gone":
            env.remove(path)
        elif fault == "longer":
            longer = env.open_file(path)
            longer.write(len(env.contents(path)), b"x")
            longer.close()
        else:
            contents = env.contents(path)
            offset = rng.choice([i for i, byte in enumerate(contents) if byte])
            env.corrupt(path, offset, 1 << rng.randrange(8))
        findings = verify(ARCHIVE, env=env).damage
        assert findings, name
        if fault == "gone" and name.endswith("manifest"):
            assert "make one" in findings[0]
            continue
        shown = name
        if fault == "gone" and name.startswith(format.MERGED):
            shown = "entries 2 to 3 of the archive are missing"  # by which name nobody knows
        assert any(shown in finding for finding in findings), (name, findings)
        if name == format.STORE:
            assert restore(ARCHIVE, RESTORED, env=env).number == small.last
            continue
        lost = [finding for finding in findings if "cannot be restored" in finding]
        assert len(lost) == 1, findings
        first = int(lost[0].split()[1])
        assert f"to {small.last} cannot" in lost[0]
        assert first in lost_from(small, name)
        if first > small.base.number:
            assert restore(ARCHIVE, RESTORED, number=first - 1, env=env).number == first - 1
        with pytest.raises((ArchiveCorrupt, BackupNotFound)):
            restore(ARCHIVE, f"{RESTORED}-no", number=first, env=env)
        assert not env.exists(f"{RESTORED}-no")
        check_healed(small, env, name, fault)


def check_healed(small: SmallArchive, env: SimEnv, name: str, fault: str) -> None:
    """A new base, and what is shipped after it, are restored whatever was damaged before."""
    if fault == "flipped" and name.startswith(format.FILES):
        env.remove(f"{ARCHIVE}/{name}")  # as its finding says; the backup sends it again
    with opened(env, page_size=4096) as store:
        made = backup(store, ARCHIVE, env=env).backup
        count = store.queue("q").messages
    assert made.number == small.last
    assert restore(ARCHIVE, f"{RESTORED}-healed", env=env).number == made.number
    assert messages(env, f"{RESTORED}-healed") == count


def test_a_boundary_is_checked(small: SmallArchive) -> None:
    """Entries before it may be gone; without it they are missing; one that is damaged is named."""
    env = small.env.crash(outcome="kept")
    env.remove(f"{ARCHIVE}/{format.entry_name(1)}")
    assert "are missing" in verify(ARCHIVE, env=env).damage[0]
    name = format.boundary_name(1)
    boundary = sealed(Boundary(1, small.base.number + 1, 0))
    env.make_directory(f"{ARCHIVE}/boundary")
    env.open_file(f"{ARCHIVE}/{name}", create=True).close()
    rewrite(env, f"{ARCHIVE}/{name}", boundary)
    findings = verify(ARCHIVE, env=env).damage
    assert [finding for finding in findings if "are missing" in finding] == []
    env.corrupt(f"{ARCHIVE}/{name}", 20)
    assert any(name in finding for finding in verify(ARCHIVE, env=env).damage)


def test_a_damaged_newest_entry_is_told_of(small: SmallArchive) -> None:
    """The listing says why records end before it, and no time behind them is taken for covered."""
    env = small.env.crash(outcome="kept")
    name = format.entry_name(PUTS)
    env.corrupt(f"{ARCHIVE}/{name}", 50, 1)  # in its head
    assert name in backups(ARCHIVE, env=env)[-1].end
    with pytest.raises(BackupNotFound):
        restore(ARCHIVE, RESTORED, time=4e9, env=env)


def test_a_damaged_entry_hides_no_later_base(small: SmallArchive) -> None:
    """The listing says where a window ends, and why."""
    env = small.env.crash(outcome="kept")
    env.remove(f"{ARCHIVE}/{format.entry_name(6)}")
    [info] = backups(ARCHIVE, env=env)
    assert info.until_number == small.base.number + 5
    assert format.entry_name(6) in info.end


def test_an_older_base_is_taken_where_one_is_damaged(
    small: SmallArchive, caplog: pytest.LogCaptureFixture
) -> None:
    """Entries go on from it to the same point (BR4): so nothing is lost, and a log line says so."""
    env = small.env.crash(outcome="kept")
    with opened(env, page_size=4096) as store:
        newer = backup(store, ARCHIVE, env=env).backup
    [state] = [path for path in objects(env) if path.endswith("/state") and newer.base in path]
    env.corrupt(state, 100)
    findings = verify(ARCHIVE, env=env).damage
    assert [finding for finding in findings if "cannot be restored" in finding] == []
    points: list[dict[str, Any]] = [{}, {"number": newer.number}, {"time": newer.time_us}]
    for index, at in enumerate(points):
        caplog.clear()
        made = restore(ARCHIVE, f"{RESTORED}{index}", env=env, **at)
        assert (made.number, made.backup.base) == (newer.number, small.base.base)
        assert "an older backup is taken" in caplog.text
        assert messages(env, f"{RESTORED}{index}") == small.count
    env.corrupt(f"{ARCHIVE}/{format.entry_name(6)}", 120)
    with pytest.raises(ArchiveCorrupt, match=format.entry_name(6)):
        restore(ARCHIVE, f"{RESTORED}-no", env=env)
