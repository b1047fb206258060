"""Objects that one of many makes, and the proof that a server makes them so."""

from __future__ import annotations

from contextlib import suppress

from quire.archive.limits import CREATE_TRIES
from quire.env import Env
from quire.errors import ArchiveError, ArchiveFailed, ArchiveRefused, ObjectNotFound

from .seam import ObjectBytes, Objects


def create_own(objects: Objects, name: str, data: ObjectBytes) -> None:
    """Make an object, or find that it was made with these bytes; safe to repeat.

    A create may be refused without an object in the way, which is then tried again. Raises
    ArchiveRefused where the object has other bytes.
    """
    for _ in range(CREATE_TRIES):
        if objects.create(name, data):
            return
        try:
            found = objects.read(name, 0, len(data) + 1)
        except ObjectNotFound:
            continue
        if found == data:
            return
        raise ArchiveRefused(
            f"{objects.url}: {name} is there with other content: another store, or another owner of"
            " this one, writes there; give each store a place of its own"
        )
    raise ArchiveFailed(
        f"{objects.url}: {name} cannot be made, and is not there; look after the archive's server,"
        " then repeat the operation"
    )


def probe(objects: Objects, env: Env) -> None:
    """Make an object, try to make it again, and delete it.

    Raises ArchiveRefused where both succeed, or it reads as something else: two owners of a store
    could then write over each other.
    """
    name = f"probe/{env.random_u64():016x}"
    try:
        first, second = objects.create(name, b"first"), objects.create(name, b"second")
        found = objects.read(name) if first else b""
    finally:
        with suppress(ArchiveError):
            objects.delete([name])
    if not first or second or found != b"first":
        raise ArchiveRefused(
            f"{objects.url}: its server lets an object be made twice under one name, or gives other"
            " bytes than were written, and so is not fit for an archive; give a place on a server"
            " that knows the header If-None-Match, or a directory"
        )
