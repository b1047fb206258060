"""Removing old backups from an archive.

- BK1: the newest backup stays, however old it is.
- BK2: a backup's manifest goes first, and what no other backup names after that: so whatever ends
  this, each backup that is listed is whole, and what is left the next time removes.
- BK3: objects that no backup ever named may be of one that is being made: they are removed once
  they are a day old.
- BK4: nothing is removed but what an archive makes: other files of its directory stay.
"""

from __future__ import annotations

import os
from contextlib import closing

from quire.archive.objects import open_objects
from quire.arguments import check_seconds
from quire.env import Env, check_env
from quire.limits import MAX_TIME_US
from quire.moments import Duration

from . import format
from .limits import UNNAMED_AGE_SECONDS
from .manifest import BackupInfo, manifests, names_of, own_objects


def keep(
    url: str | os.PathLike[str], seconds: Duration, *, env: Env | None = None
) -> list[BackupInfo]:
    """Remove the backups that are older than so many seconds; the removed ones.

    The newest one stays, whatever its age, and so does one whose manifest is damaged. Objects that
    a backup left that was broken off are removed when they are a day old. Make backups of one
    archive, and call this, one after another. Raises ArchiveFailed, InvalidArgument.
    """
    machine, age = check_env(env), min(check_seconds(seconds), MAX_TIME_US / 1e6)
    with closing(open_objects(url, machine)) as objects:
        found = manifests(objects)
        now_us = machine.now_us()
        oldest_us = now_us - round(age * 1e6)
        whole = [each for each in found if each.manifest is not None]
        going = [each for each in whole[:-1] if each.info.time_us < oldest_us]
        objects.delete(format.manifest_name(each.info.base) for each in going)
        left = names_of(manifests(objects))  # as they are now: a newer one may have come
        released = names_of(going)
        youngest_us = now_us - round(UNNAMED_AGE_SECONDS * 1e6)
        damaged = [each.info.base for each in found if each.manifest is None]
        spared = [format.FILES, *damaged] if damaged else []  # nobody knows what it names
        objects.delete(
            listed.name
            for listed in list(own_objects(objects, format.OF_BASES))
            if listed.name not in left
            and (listed.name in released or listed.modified_us < youngest_us)
            and not any(part in listed.name for part in spared)
        )
        return [each.info for each in going]
