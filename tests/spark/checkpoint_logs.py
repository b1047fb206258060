"""The logs of a checkpoint of Spark: what is in them, and losing some of it."""

from __future__ import annotations

from pathlib import Path


def last_logged(checkpoint: Path, log: str) -> int | None:
    """The last batch in a log (`offsets` or `commits`) of a checkpoint."""
    try:
        names = [path.name for path in (checkpoint / log).iterdir()]
    except FileNotFoundError:
        return None
    return max((int(name) for name in names if name.isdigit()), default=None)


def lose(checkpoint: Path, log: str, *batches: int) -> None:
    """Delete batches from a log of a checkpoint, with their checksums."""
    for batch in batches:
        for name in (f"{batch}", f".{batch}.crc"):
            (checkpoint / log / name).unlink(missing_ok=True)
