"""The free-space maps of all data files as a checkpoint holds them.

In the document, `"spaces"` has an object for each file: `total_pages`, and `extents`, which names a
slice of the numbers: rows (first page, pages) of the file's free pages; or where they are in so
many pieces that this is less, their runs as bits (see `packed_runs`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from quire.engine.pages.data_files import split_page
from quire.engine.pages.free_space import Extents, FreeSpace
from quire.engine.pages.unshipped_places import UnshippedSnapshot
from quire.engine.records.checkpoint_file import Checkpoint, IntegerRuns
from quire.intervals import IntervalSet

SpaceSnapshot: TypeAlias = tuple[int, Extents]  # see `FreeSpace.snapshot`


def spaces_after(
    snapshots: Sequence[SpaceSnapshot],
    taken: Iterable[tuple[int, int]],
    freed: Iterable[tuple[int, int]],
    page_size: int,
) -> list[FreeSpace]:
    """The maps as they are when the first extents are in use and the others are not."""
    spaces = [FreeSpace.from_extents(*snapshot) for snapshot in snapshots]
    for page, pages in taken:
        file, first = split_page(page, page_size)
        spaces[file].claim_or_grow(first, pages)
    for page, pages in freed:
        file, first = split_page(page, page_size)
        spaces[file].free(first, pages)
    return spaces


def spaces_document(spaces: Iterable[FreeSpace], numbers: IntegerRuns) -> dict[str, Any]:
    """Return the part of a checkpoint's document that describes the maps."""
    described = []
    for space in spaces:
        extents = space.extents()
        bits = numbers.add_bits([(first, first + pages) for first, pages in extents])
        described.append(
            {
                "total_pages": space.total_pages,
                "extents": numbers.add(extents) if bits is None else bits,
            }
        )
    return {"spaces": described}


def read_spaces(checkpoint: Checkpoint) -> list[FreeSpace]:
    """The maps of a checkpoint. Raises StoreCorrupt, or KeyError where it says nothing."""
    document = checkpoint.document
    return [
        FreeSpace.from_extents(entry["total_pages"], _read_extents(checkpoint, entry["extents"]))
        for entry in document["spaces"]
    ]


def _read_extents(checkpoint: Checkpoint, place: list[int]) -> Extents:
    if len(place) == 2:  # not as bits
        return checkpoint.rows(place, 2)
    return [(lo, hi - lo) for lo, hi in checkpoint.runs(place)]


def free_runs(extents: Extents) -> IntervalSet:
    """The free pages of such a file."""
    return IntervalSet.from_list([(lo, lo + pages) for lo, pages in extents])


def without_free(
    pages: IntervalSet, snapshots: Sequence[SpaceSnapshot], base_of: Callable[[int], int]
) -> IntervalSet:
    """Return those of the pages, numbered over all files, that are in use in these maps."""
    kept = pages.copy()
    for file, (_, extents) in enumerate(snapshots):
        for first, count in extents:
            kept.remove(base_of(file) + first, base_of(file) + first + count)
    return kept


def unshipped_document(
    unshipped: UnshippedSnapshot, spaces: Sequence[FreeSpace], page_size: int, numbers: IntegerRuns
) -> dict[str, Any]:
    """Return the part of a checkpoint's document that says what waits to be shipped."""
    runs: list[list[tuple[int, int]]] = [[] for _ in spaces]
    files: list[str] = []
    if not unshipped.lets_go:
        for lo, hi in unshipped.pages:
            file, first = split_page(lo, page_size)
            runs[file].append((first, first + hi - lo))
        files = [f"{ltds_id:016x}" for ltds_id in unshipped.files]
    described = {
        "position": list(unshipped.position),
        "gap": unshipped.gap,
        "gap_since_us": unshipped.gap_since_us,
        "since_us": unshipped.since_us,
        "base_number": unshipped.base_number,
        "pages": [numbers.add_runs(own) for own in runs],
        "files": files,
    }
    return {"unshipped": described}
