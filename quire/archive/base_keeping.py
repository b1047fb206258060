"""Removing from an archive what no restore point needs that is kept.

- BK1: the newest backup stays, however old it is. So does, with continuous archiving, the one with
  which a restore to the oldest point that is kept begins, and all entries behind it.
- BK2: a backup's manifest goes first, and after that the manifests are listed again: what none of
  these names goes then. So whatever ends this, each backup that is listed is whole, and what is
  left the next time removes; and a backup that is made meanwhile keeps what it names (BM4).
- BK3: objects that no backup ever named may be of one that is being made, or of an entry that is:
  they are removed once they are a day old.
- BK4: nothing is removed but what an archive makes: other files of its directory stay.
- BK5: before any entry goes, or what it names, the store's catalog says so, in a record that was
  found in the archive; then the next boundary is made. So nothing is removed that the store's own
  records do not call gone, and who reads the archive knows from where on it is whole.
- BK6: the newest entry stays, by which a shipper finds the end (AL2).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing

from quire.archive.objects import Objects, create_own, is_place_of, open_objects
from quire.arguments import check_seconds
from quire.engine.records import format as records_format
from quire.engine.state.catalog import ARCHIVE, unpack
from quire.env import Env, check_env
from quire.errors import ArchiveError, ArchiveFailed, InvalidArgument, StoreCorrupt
from quire.interface.store import Store
from quire.journal import RECORD_HEADER, RECORD_HEADER_BYTES
from quire.limits import MAX_TIME_US
from quire.moments import Duration

from . import format
from .boundaries import Boundary, newest_boundary
from .entry_reading import EntryHead, ShippedRecord, heads, named, records
from .limits import BOUNDARY_SECONDS, ENTRY_SECONDS, UNNAMED_AGE_SECONDS
from .manifest import BackupInfo, FoundManifest, manifests, names_of, own_objects, sealed
from .object_reading import ObjectReading, reading


def keep(
    url: str | os.PathLike[str],
    seconds: Duration,
    *,
    store: Store | None = None,
    env: Env | None = None,
) -> list[BackupInfo]:
    """Remove what only restore points need that are older than so many seconds; removed backups.

    The newest backup stays, whatever its age, and so does one whose manifest is damaged. Of an
    archive with entries give the `store`, open: its records say first what is not needed, and its
    shipper has to be at work. Objects that a backup left that was broken off are removed when they
    are a day old. Make backups of one archive, and call this, one after another. Raises
    ArchiveFailed, InvalidArgument.
    """
    machine, age = check_env(env), check_seconds(seconds)
    with closing(open_objects(url, machine)) as objects, reading(objects) as read:
        cleaning = ArchiveCleaning(objects, read, machine, age, store)
        cleaning.run(lambda: machine.sleep(ENTRY_SECONDS))
        return cleaning.removed


class ArchiveCleaning:
    """One clean-up of an archive, step by step, for one thread."""

    def __init__(
        self, objects: Objects, read: ObjectReading, env: Env, age: float, store: Store | None
    ) -> None:
        """`age`: in seconds, of restore points; `store`: whose archive it is (BK5)."""
        self.removed: list[BackupInfo] = []
        self.boundary_place = 0  # of the archive's newest boundary, once it is done
        self._objects = objects
        self._read = read
        self._env = env
        self._oldest_us = env.now_us() - round(min(age, MAX_TIME_US / 1e6) * 1e6)
        self._store = store
        self._going: list[FoundManifest] = []
        self._boundary = Boundary()  # the one that is to be made
        self._noted_after: int | None = None  # behind this record the boundary's own stands

    def run(self, wait: Callable[[], object]) -> None:
        """Do all of it; `wait` is called while the store's record is to be shipped (BK5).

        Raises ArchiveError, StoreError; ArchiveFailed where that is not shipped in time.
        """
        end = self._env.monotonic() + BOUNDARY_SECONDS
        while not self.step():
            if self._env.monotonic() > end:
                raise ArchiveFailed(
                    f"{self._objects.url}: the store's record of what is not needed there was not "
                    f"shipped within {BOUNDARY_SECONDS:.0f} s, so nothing was removed; look after "
                    "the shipper (`quire archive show`), then repeat the operation"
                )
            wait()

    def step(self) -> bool:
        """Go on as far as is possible now; True once it is done. Raises ArchiveError, StoreError.

        False: the record with the boundary is not in the archive yet.
        """
        if self._noted_after is None:
            self._plan()
        elif not self._is_noted():
            return False
        if self._boundary.place and self._noted_after is None:
            self._note()
            return False
        self._remove()
        return True

    def _plan(self) -> None:
        found = manifests(self._objects)
        entries = heads(self._objects, self._read, {})
        whole = [each for each in found if each.manifest is not None]
        if not entries:
            self._going = [e for e in whole[:-1] if e.info.time_us < self._oldest_us]
            return
        if self._store is None:
            raise InvalidArgument(
                f"{self._objects.url} has the records of a store, shipped continuously: give that "
                "store, open, so that it notes what is not needed any more"
            )
        info = self._store.admin.archive()
        if info is None or not is_place_of(self._objects, self._env, info.url):
            raise InvalidArgument(
                f"{self._objects.url} has entries of records, and is not the archive of the store "
                f"at {self._store.path} now: give the store that ships there"
            )
        older = [index for index, e in enumerate(whole) if e.info.time_us <= self._oldest_us]
        if not older or older[-1] == 0:
            first = whole[0] if whole else None
        else:
            first = whole[older[-1]]
            self._going = whole[: older[-1]]
        self._boundary = _boundary_before(first, entries) if older else Boundary()
        newest = newest_boundary(self._objects).boundary
        self.boundary_place = newest.place
        if self._boundary.place <= newest.place:
            self._boundary = Boundary()

    def _note(self) -> None:
        """Have the store's catalog say what is not needed (BK5)."""
        assert self._store is not None
        integration = self._store.integration
        self._noted_after = integration.ship(None).end_number
        integration.archive_boundary(self._boundary.place)

    def _is_noted(self) -> bool:
        """Return True once the record is found in the archive."""
        assert self._noted_after is not None
        later = [
            head
            for head in heads(self._objects, self._read, {})
            if head.last_number > self._noted_after
        ]
        return any(
            noted_place(record) >= self._boundary.place
            for record in records(self._read, later)
            if record.number > self._noted_after
        )

    def _remove(self) -> None:
        objects = self._objects
        if self._boundary.place:
            self._make_boundary()
        objects.delete(format.manifest_name(each.info.base) for each in self._going)
        found = manifests(objects)  # as they are now: a newer one may have come (BK2)
        released, kept = names_of(self._going), names_of(found)
        damage: dict[str, ArchiveError] = {}
        entries = heads(objects, self._read, damage)
        place = newest_boundary(objects).boundary.place
        below = [head for head in entries if head.place <= place]
        kept |= named(objects, self._read, [head for head in entries if head.place > place])
        released |= named(objects, self._read, below)
        self._remove_entries(below, place)
        spared = [each.info.base for each in found if each.manifest is None]
        if spared or damage:  # nobody knows what these name
            spared += [format.FILES, format.BLOBS]
        youngest_us = self._env.now_us() - round(UNNAMED_AGE_SECONDS * 1e6)
        objects.delete(
            listed.name
            for listed in list(own_objects(objects, (*format.OF_BASES, format.BLOBS)))
            if listed.name not in kept
            and (listed.name in released or listed.modified_us < youngest_us)
            and not any(part in listed.name for part in spared)
        )
        self.removed = [each.info for each in self._going]

    def _make_boundary(self) -> None:
        """Make the next boundary; those before it go."""
        number = newest_boundary(self._objects).number + 1
        create_own(self._objects, format.boundary_name(number), sealed(self._boundary))
        self.boundary_place = self._boundary.place
        names = [info.name for info in self._objects.list(format.BOUNDARY)]
        self._objects.delete(
            name for name in names if format.is_name(name) and format.place_of(name) < number
        )

    def _remove_entries(self, below: Sequence[EntryHead], place: int) -> None:
        """Remove entries up to a place; merged ones once none of them is needed."""
        names = {head.name for head in below}
        names.update(format.entry_name(head.place) for head in below)  # late ones (EY3)
        self._objects.delete(
            name
            for name in sorted(names)
            if not name.startswith(format.MERGED) or format.places_of(name)[1] <= place
        )


def _boundary_before(first: FoundManifest | None, entries: Sequence[EntryHead]) -> Boundary:
    """Return the boundary of the entries that a base has all records of, but for BK6."""
    number = -1 if first is None else first.info.number
    below = [head for head in entries[:-1] if head.last_number <= number]
    if not below:
        return Boundary()
    return Boundary(below[-1].place, below[-1].last_number, below[-1].last_us)


def noted_place(record: ShippedRecord) -> int:
    """Return the boundary that a record puts into the catalog; 0: it is of something else."""
    if RECORD_HEADER.unpack_from(record.record)[1] != records_format.CATALOG:
        return 0
    try:
        changes = unpack(record.record[RECORD_HEADER_BYTES:], f"record {record.number}")
    except StoreCorrupt:
        return 0
    return max(
        (
            int(made.body.get("boundary_place", 0))
            for made in changes
            if made.type == ARCHIVE and made.body is not None
        ),
        default=0,
    )
