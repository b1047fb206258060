"""Verifying an archive: all of it is read back."""

from __future__ import annotations

import os
from contextlib import closing

from quire.archive.objects import Objects, open_objects
from quire.engine.records.checkpoint_file import decode
from quire.env import Env, check_env
from quire.errors import ArchiveCorrupt, ObjectNotFound, StoreCorrupt
from quire.reports.info import Report

from . import format, table
from .manifest import FoundManifest, Manifest, StoredObject, manifests, names_of, own_objects
from .object_reading import ObjectReading, reading


def verify(url: str | os.PathLike[str], *, env: Env | None = None) -> Report:
    """Read and check all backups in the archive at `url`.

    What is missing or damaged is told in the report's `findings`, by name; `ok` means that there is
    none. Objects that no backup names are a warning: a backup is being made, or was broken off.
    Raises ArchiveFailed.
    """
    report = Report()
    with closing(open_objects(url, check_env(env))) as objects, reading(objects) as read:
        found = manifests(objects)
        good: dict[str, StoredObject] = {}
        for each in found:
            _check(objects, each, read, good, report)
        named, unnamed = names_of(found), 0
        for listed in own_objects(objects, format.OF_BASES):
            unnamed += listed.name not in named
    report.checked.update(
        backups=len(found), objects=len(good), bytes=sum(each.bytes for each in good.values())
    )
    if unnamed:
        text = (
            f"{unnamed} objects are of no backup: one is being made, or was broken off; "
            "`quire backup ... --keep 7d` removes them when they are a day old"
        )
        report.findings.append(text)
        report.warnings.append(text)
    return report


def _is_removed(objects: Objects, manifest: Manifest) -> bool:
    """Return True if a backup was removed since it was listed: its manifest goes first (BK2)."""
    try:
        objects.size(format.manifest_name(manifest.base))
    except ObjectNotFound:
        return True
    return False


def _check(
    objects: Objects,
    found: FoundManifest,
    read: ObjectReading,
    good: dict[str, StoredObject],
    report: Report,
) -> None:
    """Check one backup. `good`: the objects that have been read; several may name the same."""
    manifest, find = found.manifest, report.findings.append
    if manifest is None:
        find(f"backup {found.info.base}: {found.info.damage}")
        return
    store_id = int(manifest.store_id, 16)
    for stored in manifest.objects():
        if good.get(stored.name) == stored:
            continue
        try:
            if stored in manifest.tables:
                number = manifest.tables.index(stored)
                for _ in table.rows(read.whole(stored), stored.name, store_id, number):
                    pass
            elif stored is manifest.state:
                decode(read.whole(stored), stored.name)
            else:
                for _ in read.pieces([stored]):
                    pass
        except (ArchiveCorrupt, StoreCorrupt) as error:
            if isinstance(error.__context__, ObjectNotFound) and _is_removed(objects, manifest):
                return
            find(f"backup {manifest.base}: {error}")
        else:
            good[stored.name] = stored
