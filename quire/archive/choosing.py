"""The backups of an archive: listed, and the point to which a restore is to go."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import NamedTuple

from quire.archive.objects import Objects, open_objects
from quire.arguments import is_int
from quire.env import Env, check_env
from quire.errors import ArchiveCorrupt, ArchiveError, BackupNotFound, InvalidArgument
from quire.moments import Moment, check_moment

from .entry_reading import EntryHead, heads
from .manifest import BackupInfo, FoundManifest, Manifest, manifests
from .object_reading import ObjectReading, reading
from .windows import Window, infos, windows


class RestorePoint(NamedTuple):
    """A base, the entries whose records are to follow it, and where these end."""

    manifest: Manifest
    info: BackupInfo
    heads: Sequence[EntryHead]
    number: int | None  # of the latest record to restore; None: up to the time, or all
    time_us: int | None


def backups(url: str | os.PathLike[str], *, env: Env | None = None) -> list[BackupInfo]:
    """Return the backups of the archive at `url`, the oldest first, with what each covers.

    One whose manifest is damaged has the reason in `damage`. Raises ArchiveFailed.
    """
    with closing(open_objects(url, check_env(env))) as objects, reading(objects) as read:
        damage: dict[str, ArchiveError] = {}
        return infos(manifests(objects), heads(objects, read, damage), damage)


def no_backup(url: str) -> BackupNotFound:
    """Return the error for a place where no backup is."""
    return BackupNotFound(f"{url} has no backup: correct the place, or make one (quire backup)")


def choose(
    objects: Objects, read: ObjectReading, number: int | None, time: Moment | None
) -> list[RestorePoint]:
    """Return the ways to a record, to the latest record up to a time, or to the latest one of all.

    The first one begins with the newest base that is not after it. Where that is of no continuous
    archive the point is its own record; else older bases from which entries go on to the same point
    follow, in case that one is damaged. Raises BackupNotFound for what is not covered,
    ArchiveCorrupt where the manifest that is needed is damaged, InvalidArgument.
    """
    if number is not None and (not is_int(number) or number < 0):
        raise InvalidArgument(f"number {number!r:.100}: give that of a record, as `backups` has it")
    if number is not None and time is not None:
        raise InvalidArgument("give a number or a time, not both")
    time_us = None if time is None else check_moment("time", time)
    found = manifests(objects)
    if not found:
        raise no_backup(objects.url)
    damage: dict[str, ArchiveError] = {}
    covered = windows(found, heads(objects, read, damage), damage)
    if number is not None:
        window = _by_number(covered, number)
        if window is not None and number > window.info.until_number and window.is_continuous:
            raise _not_covered(objects.url, f"record {number}", covered)
    else:
        window = _by_time(covered, time_us)
        if window is not None and time_us is not None and _is_in_gap(covered, window, time_us):
            raise _not_covered(objects.url, _time_text(time_us), covered)
    _check_damaged(found, window, number, time_us)
    if window is None:
        raise _not_covered(objects.url, "", covered)
    return [
        RestorePoint(each.manifest, each.info, _heads_until(each, number, time_us), number, time_us)
        for each in (window, *_older(covered, window, number))
    ]


def _older(covered: Sequence[Window], window: Window, number: int | None) -> list[Window]:
    """Return the older bases from which entries go on to the same point, the newest first."""
    end = window.info.until_number if number is None else number
    return [
        each
        for each in reversed(covered[: covered.index(window)])
        if each.manifest.history_number == window.manifest.history_number
        and each.heads
        and each.info.until_number >= end
    ]


def _heads_until(window: Window, number: int | None, time_us: int | None) -> list[EntryHead]:
    """Return the entries that have records up to a record, or up to a time."""
    return [
        head
        for head in window.heads
        if (number is None or head.first_number <= number)
        and (time_us is None or head.first_us <= time_us)
    ]


def _by_number(covered: Sequence[Window], number: int) -> Window | None:
    """Return the newest base that covers the record; else the newest one that is not after it.

    A restored store that was backed up here, too, has the numbers of its backup's records anew.
    """
    older = sorted(
        (window for window in covered if window.info.number <= number),
        key=lambda window: window.info.number,
    )
    covering = [window for window in older if number <= window.info.until_number]
    fitting = covering or older
    return fitting[-1] if fitting else None


def _by_time(covered: Sequence[Window], time_us: int | None) -> Window | None:
    older = [window for window in covered if time_us is None or window.info.time_us <= time_us]
    return older[-1] if older else None


def _is_in_gap(covered: Sequence[Window], window: Window, time_us: int) -> bool:
    """Return True if the time is after all that a window covers, and there are later records."""
    if not window.is_continuous or time_us <= window.info.until_us:
        return False
    later = covered[covered.index(window) + 1 :]
    return bool(window.end) or any(each.info.number > window.info.until_number for each in later)


def _check_damaged(
    found: Sequence[FoundManifest], window: Window | None, number: int | None, time_us: int | None
) -> None:
    """Raise ArchiveCorrupt where a damaged base is needed: the best whole one is too old."""
    bases = [each.info.base for each in found]
    begin = -1 if window is None else bases.index(window.manifest.base)
    for each in found[begin + 1 :]:
        info = each.info
        if (
            each.manifest is not None
            or (number is not None and info.number > number)
            or (time_us is not None and info.time_us > time_us)
            or (window is not None and info.number <= window.info.until_number)
        ):
            continue
        advice = "no other is whole"
        if window is not None:
            advice = f"the next older one is of record {window.info.number}: ask for that"
        raise ArchiveCorrupt(f"{info.damage}; {advice}")


def _not_covered(url: str, point: str, covered: Sequence[Window]) -> BackupNotFound:
    """Return the error for a point that is not covered; no `point`: it is before all of them."""
    if not covered:
        return no_backup(url)
    first, last = covered[0].info, covered[-1].info
    text = (
        f"no backup in {url} is that old: the earliest one is of record {first.number} "
        f"({_time_text(first.time_us)})"
    )
    if point:
        text = (
            f"{point} is not covered by {url}: the earliest point there is record {first.number} "
            f"({_time_text(first.time_us)})"
        )
        gaps = [
            f"no record from {before.info.until_number + 1} to {after.info.number - 1}"
            for before, after in itertools.pairwise(covered)
            if before.end and after.info.number > before.info.until_number + 1
        ]
        text += "".join(f", {gap}" for gap in gaps[:3])
    return BackupNotFound(
        f"{text}, the latest one of record {last.until_number} ({_time_text(last.until_us)})"
    )


def _time_text(time_us: int) -> str:
    """Return a time exactly: a time that is cut is before the point that it is to name."""
    time = datetime.fromtimestamp(time_us // 1_000_000, UTC)
    return f"{time.replace(microsecond=time_us % 1_000_000):%Y-%m-%dT%H:%M:%S.%fZ}"
