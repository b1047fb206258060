"""The values that are typed on a command line: sizes, times, counts, NAME=VALUE."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Final

from quire.definitions.properties import QueueChanges, QueueOptions
from quire.errors import InvalidArgument
from quire.sizes import bytes_of

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def size(text: str) -> int:
    """Bytes, with K, M, G or T for powers of 1024."""
    found = bytes_of(text)
    if not isinstance(found, int):
        raise argparse.ArgumentTypeError(f"{text!r} is no size: give bytes, or 64K, 512M, 2G")
    return found


def place(text: str) -> int:
    """An LSN or a position: decimal, or hexadecimal with 0x."""
    try:
        found = int(text, 16 if text[:2].lower() == "0x" else 10)
    except ValueError:
        found = -1
    if found < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no LSN or position: give 4096 or 0x1000")
    return found


def count(text: str) -> int:
    """Return a count of at least one."""
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no count: give a number of 1 or more")
    return int(text)


def number(text: str) -> int:
    """A whole number, as of a data file, a priority or an id."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number: give one as 3") from None


def seconds(text: str) -> float:
    """Return seconds, given as such, or with s, m, h or d."""
    factor = _SECONDS.get(text[-1:], 1)
    try:
        found = float(text[:-1] if text[-1:] in _SECONDS else text) * factor
    except ValueError:
        found = -1.0
    if not 0 <= found < math.inf:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time: give seconds, 0 or more, or 90s, 10m, 2h, 7d"
        )
    return found


def wait(text: str) -> float | None:
    """Return how long to wait: as `seconds`, or "forever"."""
    return None if text == "forever" else seconds(text)


def moment(text: str) -> float:
    """A point in time, in seconds since 1970: as ISO 8601 has it, or seconds since 1970."""
    for read in (float, lambda text: datetime.fromisoformat(text).astimezone().timestamp()):
        with contextlib.suppress(ValueError, OverflowError):
            found = read(text)
            if 0 <= found < math.inf:
                return found
    raise argparse.ArgumentTypeError(
        f"{text!r} is no point in time: give one as 2025-01-31T12:00:00 (your local time), "
        "2025-01-31T12:00:00+00:00, or seconds since 1970"
    )


def record_or_moment(text: str) -> tuple[int | None, float | None]:
    """Return the number of a record, or a point in time."""
    if text.isascii() and text.isdecimal():
        return int(text), None
    return None, moment(text)


START: Final = (
    "earliest, latest, a position, a time (2025-01-31T12:00:00, 1738324800.0) or id:NUMBER"
)


def start(text: str) -> Any:
    """Return a place in a queue: a position, seconds since the epoch, a date and time, or the
    text.
    """
    for read in (int, float, lambda text: datetime.fromisoformat(text).astimezone()):
        with contextlib.suppress(ValueError):
            return read(text)
    return text


def pair(text: str) -> tuple[str, str]:
    """NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r:.100}: give NAME=VALUE, as colour=red")
    return name, value


def pairs(texts: Iterable[str], example: str) -> Iterator[tuple[str, str]]:
    """Yield the pairs of several NAME=VALUE, such as the example. Raises InvalidArgument."""
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidArgument(f"{text!r:.100}: give NAME=VALUE, as in {example}")
        yield name, value


def value(text: str) -> Any:
    """JSON, or else a text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def shell_command(text: str) -> str:
    """Return a command of the shell. One of no words would succeed, having done nothing."""
    if not text.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is no command: give one, as ./handle-order")
    return text


def _property_hints() -> dict[str, str]:
    """Return the types of a queue's properties, as they are written where they stand."""
    hints = {**QueueOptions.__annotations__, **QueueChanges.__annotations__}
    written = {name: str(getattr(hint, "__forward_arg__", hint)) for name, hint in hints.items()}
    return written | {"capacity": "Size", "kind": "str"}


def properties(texts: Iterable[str]) -> dict[str, Any]:
    """Return the properties of a queue, from NAME=VALUE, each by its type. Raises InvalidArgument.

    Bytes may be a size as 64K, spans of time 90s or 2h, several names one,two; a text is what is
    written, all else JSON. `null` is None where there may be none. Whether there are such
    properties is for the caller to check.
    """
    hints = _property_hints()
    return {
        name: _property(name, hints.get(name, ""), text)
        for name, text in pairs(texts, "max_deliveries=5")
    }


def _property(name: str, hint: str, text: str) -> Any:
    kinds = hint.split(" | ")
    if text == "null" and ("None" in kinds or kinds == [""]):
        return None
    if "Size" in kinds:
        return bytes_of(text)
    if "Duration" in kinds:
        try:
            return seconds(text)
        except argparse.ArgumentTypeError as error:
            raise InvalidArgument(f"{name}: {error}") from None
    if "str" in kinds:
        return text
    if "Sequence[str]" in kinds and not text.startswith("["):
        return [word for word in text.split(",") if word]
    return value(text)


def limits(texts: Iterable[str]) -> tuple[dict[str, float | None], list[str]]:
    """Return limits of what clients have in use, from NAME=VALUE, and the names with `default`.

    `none` is no limit; bytes may be a size as 64K, times as 10m. Whether there are such limits is
    for the caller to check. Raises InvalidArgument.
    """
    found: dict[str, float | None] = {}
    defaults = []
    for name, text in pairs(texts, "connections=100"):
        try:
            if text == "default":
                defaults.append(name)
            elif name.endswith("bytes"):
                found[name] = None if text == "none" else size(text)
            else:
                found[name] = None if text == "none" else seconds(text)
        except argparse.ArgumentTypeError:
            raise InvalidArgument(
                f"{name}={text:.50}: give a number, as 100, 64M or 10m, or none, or default"
            ) from None
    return found, defaults


def add_where(parser: argparse.ArgumentParser) -> None:
    """The option that says which messages."""
    parser.add_argument(
        "--where", metavar="SELECTOR", help='only those that it holds for, as "total > 100"'
    )
