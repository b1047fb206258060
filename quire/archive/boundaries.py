"""Boundaries of an archive: the entries that are not needed any more. Layout: `format`."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from msgspec import Meta, Struct

from quire.archive.objects import Objects
from quire.errors import ArchiveCorrupt, ArchiveError, ArchiveRefused, ObjectNotFound

from . import format
from .limits import MAX_CREATE_BYTES
from .manifest import unsealed

_BoundaryCount = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class Boundary(Struct, frozen=True):
    """Entries at or before the place are not needed, nor what is named by these alone."""

    place: _BoundaryCount = 0
    number: _BoundaryCount = 0  # of the latest record in them
    time_us: int = 0  # when that was committed
    version: int = format.VERSION


class FoundBoundary(NamedTuple):
    """The newest boundary of an archive that can be read."""

    number: int  # of the newest boundary object; 0: there is none
    boundary: Boundary
    damage: tuple[ArchiveError, ...] = ()  # of later ones


def newest_boundary(objects: Objects) -> FoundBoundary:
    """Return the boundary that counts. Raises ArchiveFailed."""
    listed = [info.name for info in objects.list(format.BOUNDARY) if format.is_name(info.name)]
    names = sorted(listed, reverse=True)
    damage: list[ArchiveError] = []
    number = format.place_of(names[0]) if names else 0
    for name in names:
        try:
            data = objects.read(name, 0, MAX_CREATE_BYTES + 1)
            return FoundBoundary(number, unsealed(Boundary, data, name), tuple(damage))
        except ObjectNotFound:  # removed meanwhile, as a later one is there
            continue
        except (ArchiveCorrupt, ArchiveRefused) as error:
            damage.append(error)
    return FoundBoundary(number, Boundary(), tuple(damage))
