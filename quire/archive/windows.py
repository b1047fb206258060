"""The window of each base of an archive: the records that entries have behind it, without a gap.

- WI1: entries go on from a base if they are of its history, the first of them has the record after
  its latest one, and each follows the one before: by place, by checksum, by number. A base that was
  made while the store had no continuous archive covers its own record only.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from msgspec.structs import replace

from quire.errors import ArchiveCorrupt, ArchiveError

from . import format
from .entry_reading import EntryHead, check_follows
from .manifest import BackupInfo, FoundManifest, Manifest

GAP = "gap"
Damage: TypeAlias = Mapping[str, ArchiveError]
NO_DAMAGE: Final[Damage] = MappingProxyType({})


class Window(NamedTuple):
    """A base that is whole, and the entries behind it."""

    manifest: Manifest
    info: BackupInfo
    heads: Sequence[EntryHead]
    end: str = ""  # why no more entries follow: `GAP`, damage in words; empty: none was shipped

    @property
    def is_continuous(self) -> bool:
        """Return True if it was made for a continuous archive."""
        return self.manifest.history_number != 0


class _EntryRun(NamedTuple):
    """Entries that follow each other without a gap."""

    heads: list[EntryHead]
    ends: list[int]  # the number of the latest record of each
    end: str


def windows(
    found: Iterable[FoundManifest], heads: Sequence[EntryHead], damage: Damage = NO_DAMAGE
) -> list[Window]:
    """Return the window of each base whose manifest is whole, in their order (WI1).

    `damage`: of objects with entries that are left out of the heads, by name.
    """
    runs = list(_runs(heads, damage))
    return [_window(each.manifest, each.info, runs) for each in found if each.manifest is not None]


def infos(
    found: Iterable[FoundManifest], heads: Sequence[EntryHead], damage: Damage = NO_DAMAGE
) -> list[BackupInfo]:
    """Return all bases as they are listed, damaged ones too. `damage`: as for `windows`."""
    known = {window.manifest.base: window.info for window in windows(found, heads, damage)}
    return [known.get(each.info.base, each.info) for each in found]


def _window(manifest: Manifest, info: BackupInfo, runs: Sequence[_EntryRun]) -> Window:
    for run in runs if manifest.history_number else ():
        first, last = run.heads[0], run.heads[-1]
        follows = first.first_number <= manifest.number + 1 <= last.last_number + 1
        if first.history == manifest.history_number and follows:
            heads = run.heads[bisect_right(run.ends, manifest.number) :]
            if heads:
                until_us = max(last.last_us, info.time_us)
                info = replace(info, until_number=last.last_number, until_us=until_us, end=run.end)
                return Window(manifest, info, heads, run.end)
            if run.end:
                info = replace(info, end=run.end)
            return Window(manifest, info, (), run.end)
    return Window(manifest, info, ())


def _runs(heads: Sequence[EntryHead], damage: Damage) -> Iterable[_EntryRun]:
    run: list[EntryHead] = []
    for head in heads:
        if run:
            end = _break_between(run[-1], head)
            if end:
                yield _EntryRun(run, [each.last_number for each in run], end)
                run = []
        run.append(head)
    if run:
        later = [
            name for name in damage if format.is_name(name) and _last_place(name) > run[-1].place
        ]
        end = str(damage[min(later, key=_last_place)]) if later else ""
        yield _EntryRun(run, [each.last_number for each in run], end)


def _last_place(name: str) -> int:
    """Return the place of the last entry that an object has by its name."""
    return format.places_of(name)[1] if name.startswith(format.MERGED) else format.place_of(name)


def _break_between(before: EntryHead, head: EntryHead) -> str:
    """Return why an entry does not go on from the one before; empty: it does."""
    try:
        check_follows(before, head)
    except ArchiveCorrupt as error:
        return str(error)
    return GAP if head.first_number > before.last_number + 1 else ""
