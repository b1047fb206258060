"""The forms in which commands print: tables, JSON, messages."""

from __future__ import annotations

import argparse
import base64
import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import IO, Any

from quire.limits import PAYLOAD_START_BYTES
from quire.messages.message import MESSAGE_COLUMNS
from quire.messages.typed_message import value_json


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print in columns; the first row is their heads."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())


def print_listing(
    options: argparse.Namespace, value: Any, heads: Sequence[str], rows: Iterable[Sequence[str]]
) -> None:
    """Print the value as JSON where the options say so, else the rows as a table."""
    if options.json:
        print_json(value)
    else:
        print_table([heads, *rows])


def print_tree(value: Any, indent: str = "") -> None:
    """A JSON value in lines."""
    items = value.items() if isinstance(value, dict) else ((str(i), v) for i, v in enumerate(value))
    for name, inner in items:
        if isinstance(inner, dict | list) and inner:
            print(f"{indent}{name}:")
            print_tree(inner, indent + "  ")
        else:
            print(f"{indent}{name}: {'none' if inner in ([], {}, None) else inner}")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, as "1 message", "7 messages"."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def size_words(size: int) -> str:
    """Return bytes for a person: 512 B, 1.5 KiB, 64 MiB."""
    unit, found = "B", float(size)
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if found < 1024:
            break
        unit, found = larger, found / 1024
    return f"{found:.{1 if found < 10 and found != int(found) else 0}f} {unit}"


def age_words(seconds: float) -> str:
    """Return a span of time for a person, by its two largest units: 5s, 12m 3s, 3d 4h."""
    left = max(0, int(seconds))
    words: list[tuple[int, str]] = []
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if left >= length or words:
            words.append((left // length, unit))
        left %= length
    return " ".join(f"{count}{unit}" for count, unit in words[:2] if count) or "0s"


def print_json(value: Any) -> None:
    """Print JSON on one line; the values of a store have their fields by name."""
    print(json.dumps(value, default=fields_of))


def fields_of(value: Any) -> dict[str, Any]:
    """Return the fields of a store's value by name; values inside are as they were."""
    return {name: getattr(value, name) for name in value.__struct_fields__}


def moment_text(time_us: int | None) -> str:
    """Return the time in UTC."""
    if time_us is None:
        return "-"
    return f"{datetime.fromtimestamp(time_us // 1_000_000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def exact_moment_text(time_us: int) -> str:
    """Return the time in UTC with microseconds, so that it names the same moment when given."""
    time = datetime.fromtimestamp(time_us // 1_000_000, UTC)
    return f"{time.replace(microsecond=time_us % 1_000_000):%Y-%m-%dT%H:%M:%S.%fZ}"


def payload_start(payload: bytes) -> str:
    """Return the payload as far as a line of a table has room for it; what is not printable is
    escaped.
    """
    return repr(payload[:PAYLOAD_START_BYTES])[1:]


def bytes_json(name: str, value: bytes) -> dict[str, str]:
    """Return the bytes as text, where they are UTF-8; else in base64, under a name that says so."""
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


# Messages


def add_forms(parser: argparse.ArgumentParser) -> None:
    """Options of commands that print messages."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--json",
        action="store_true",
        help="all fields, an object a line; payload_base64 where a payload is not UTF-8",
    )
    group.add_argument(
        "--raw", action="store_true", help="the payloads' bytes as they are, with nothing between"
    )


def print_message(message: Any, options: argparse.Namespace) -> None:
    """Print in the form of the options; a payload, or a row's columns, are a line by default."""
    sys.stdout.flush()  # what was printed as text
    write_message(sys.stdout.buffer, message, options)


def write_message(
    out: IO[bytes], message: Any, options: argparse.Namespace, *, is_line: bool = True
) -> None:
    """Write a message in the form of the options; a payload is a line of its own if `is_line`."""
    value = None if options.json else value_json(message)
    if options.json:
        out.write(json.dumps(_message_json(message), default=fields_of).encode() + b"\n")
    elif value is not None and not options.raw:
        out.write(json.dumps(value, ensure_ascii=False).encode() + b"\n")
    else:
        with message.open() as payload:  # it may be larger than memory
            while piece := payload.read(1 << 20):
                out.write(piece)
        if is_line and not options.raw:
            out.write(b"\n")


def _message_json(message: Any) -> dict[str, Any]:
    shown = {
        "queue": message.queue,
        **{name: getattr(message, name) for name in MESSAGE_COLUMNS},
        "attributes": dict(message.attributes),
    }
    payload, value = shown.pop("payload"), value_json(message)
    return shown | (bytes_json("payload", payload) if value is None else {"value": value})
