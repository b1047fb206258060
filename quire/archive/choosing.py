"""The backups of an archive: listed, and the one that a restore is to begin with."""

from __future__ import annotations

import os
from contextlib import closing
from datetime import UTC, datetime

from quire.archive.objects import Objects, open_objects
from quire.arguments import is_int
from quire.env import Env, check_env
from quire.errors import ArchiveCorrupt, BackupNotFound, InvalidArgument
from quire.moments import Moment, check_moment

from .manifest import BackupInfo, FoundManifest, Manifest, manifests


def backups(url: str | os.PathLike[str], *, env: Env | None = None) -> list[BackupInfo]:
    """Return the backups of the archive at `url`, the oldest first.

    One whose manifest is damaged has the reason in `damage`. Raises ArchiveFailed.
    """
    with closing(open_objects(url, check_env(env))) as objects:
        return [each.info for each in manifests(objects)]


def no_backup(url: str) -> BackupNotFound:
    """Return the error for a place where no backup is."""
    return BackupNotFound(f"{url} has no backup: correct the place, or make one (quire backup)")


def choose(objects: Objects, number: int | None, time: Moment | None) -> Manifest:
    """Return the newest backup whose latest record, or time, is not after what is given.

    Raises BackupNotFound, ArchiveCorrupt if its manifest is damaged, InvalidArgument.
    """
    if number is not None and (not is_int(number) or number < 0):
        raise InvalidArgument(f"number {number!r:.100}: give that of a record, as `backups` has it")
    if number is not None and time is not None:
        raise InvalidArgument("give a number or a time, not both")
    time_us = None if time is None else check_moment("time", time)
    found = manifests(objects)
    if number is not None:  # a restored store that goes on here counts anew from its backup
        found.sort(key=lambda each: each.info.number)
    fitting = [each for each in found if _fits(each.info, number, time_us)]
    if not found:
        raise no_backup(objects.url)
    if not fitting:
        first, last = found[0].info, found[-1].info
        raise BackupNotFound(
            f"no backup in {objects.url} is that old: the earliest one is of record {first.number} "
            f"({_text(first)}), the latest one of record {last.number} ({_text(last)})"
        )
    return _whole(fitting[-1], fitting[:-1])


def _whole(chosen: FoundManifest, older: list[FoundManifest]) -> Manifest:
    if chosen.manifest is not None:
        return chosen.manifest
    whole = [each.info.number for each in older if each.manifest is not None]
    advice = (
        f"the next older one is of record {whole[-1]}: ask for that" if whole else "no other is"
    )
    raise ArchiveCorrupt(f"{chosen.info.damage}; {advice} whole")


def _fits(info: BackupInfo, number: int | None, time_us: int | None) -> bool:
    return (number is None or info.number <= number) and (
        time_us is None or info.time_us <= time_us
    )


def _text(info: BackupInfo) -> str:
    return f"{datetime.fromtimestamp(info.time_us / 1e6, UTC):%Y-%m-%dT%H:%M:%SZ}"
