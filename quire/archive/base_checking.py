"""Verifying an archive: all of it is read back."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from itertools import pairwise

from quire.archive.objects import Objects, open_objects
from quire.engine.records.checkpoint_file import decode
from quire.env import Env, check_env
from quire.errors import ArchiveCorrupt, ArchiveRefused, ObjectNotFound, StoreCorrupt
from quire.intervals import IntervalSet
from quire.reports.info import Report

from . import format, table
from .entry_checking import EntryCheck
from .manifest import (
    FoundManifest,
    Manifest,
    StoredObject,
    manifests,
    names_of,
    own_objects,
    read_store,
)
from .object_reading import ObjectReading, reading
from .windows import windows


def verify(url: str | os.PathLike[str], *, env: Env | None = None) -> Report:
    """Read and check all backups and entries in the archive at `url`.

    What is missing or damaged is told in the report's `findings`, by name, with the points to which
    no restore goes for it; `ok` means that there is none. Objects that nothing names are a warning:
    a backup is being made, or was broken off. Raises ArchiveFailed.
    """
    report = Report()
    with closing(open_objects(url, check_env(env))) as objects, reading(objects) as read:
        found = manifests(objects)
        good: dict[str, StoredObject] = {}
        whole = [each for each in found if _is_whole(objects, each, read, good, report)]
        _check_store(objects, found, report)
        entries = EntryCheck(objects, read)
        for name in good:
            entries.know_file(name)
        entries.run()
        report.findings.extend([*entries.findings, *_lost_points(found, whole, entries)])
        named, unnamed = names_of(found) | entries.names, list[str]()
        for listed in own_objects(objects, (*format.OF_BASES, format.BLOBS)):
            if listed.name not in named:
                unnamed.append(listed.name)
    report.checked.update(
        backups=len(found),
        entries=len(entries.all),
        objects=len({*good, *entries.names}),
        bytes=sum(each.bytes for each in good.values()) + entries.bytes,
    )
    if unnamed:
        text = (
            f"{len(unnamed)} objects are of no backup, {unnamed[0]} the first: one is being made, "
            "or was broken off; `quire backup ... --keep 7d` removes them when they are a day old"
        )
        report.findings.append(text)
        report.warnings.append(text)
    return report


def _check_store(objects: Objects, found: Sequence[FoundManifest], report: Report) -> None:
    """Check the object that says whose archive it is."""
    try:
        store_id = f"{read_store(objects):016x}"
    except ObjectNotFound:
        if found:
            report.findings.append(
                f"the archive's object {format.STORE} is missing: the next backup makes it anew"
            )
    except (ArchiveCorrupt, ArchiveRefused) as error:
        report.findings.append(str(error))
    else:
        report.findings.extend(
            f"the archive's object {format.STORE} is that of store {store_id}, and backup "
            f"{each.info.base} is of store {each.manifest.store_id}: two archives were mixed; copy "
            "each of them anew to a place of its own"
            for each in found
            if each.manifest is not None and each.manifest.store_id != store_id
        )


def _lost_points(
    found: Sequence[FoundManifest], whole: Sequence[FoundManifest], entries: EntryCheck
) -> list[str]:
    """Return, in words, the records that were archived continuously and cannot be restored."""
    known = [each.info.number for each in found if _is_continuous(each, entries)]
    if not entries.all:
        return []
    if not known:
        return ["no backup is there from which the entries go on: make one (quire backup)"]
    covered, lost = IntervalSet(), []
    for window in windows(whole, entries.whole):
        covered.add(window.info.number, window.info.until_number + 1)
    for before, after in pairwise(entries.all):  # what was never shipped is no damage
        if after.place == before.place + 1 and after.first_number > before.last_number + 1:
            covered.add(before.last_number + 1, after.first_number)
    for start, end in covered.gaps(min(known), max(*known, entries.all[-1].last_number) + 1):
        lost.append(
            f"records {start} to {end - 1} cannot be restored: what is damaged is needed for them;"
            " from the next backup on (quire backup) later ones can"
        )
    return lost


def _is_continuous(found: FoundManifest, entries: EntryCheck) -> bool:
    """Return True for a base of the entries' history, or one that cannot be read."""
    return found.manifest is None or any(
        head.history == found.manifest.history_number for head in entries.all[:1]
    )


def _is_removed(objects: Objects, manifest: Manifest) -> bool:
    """Return True if a backup was removed since it was listed: its manifest goes first (BK2)."""
    try:
        objects.size(format.manifest_name(manifest.base))
    except ObjectNotFound:
        return True
    return False


def _is_whole(
    objects: Objects,
    found: FoundManifest,
    read: ObjectReading,
    good: dict[str, StoredObject],
    report: Report,
) -> bool:
    """Check one backup. `good`: the objects that have been read; several may name the same."""
    manifest, find, is_whole = found.manifest, report.findings.append, True
    if manifest is None:
        find(f"backup {found.info.base}: {found.info.damage}")
        return False
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
                return False
            find(f"backup {manifest.base}: {error}")
            is_whole = False
        else:
            good[stored.name] = stored
    return is_whole
