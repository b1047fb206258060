"""The command that puts messages."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, Final

from quire.cli.command import Command, argument
from quire.cli.opened_store import opened
from quire.cli.typed_values import moment, number, pair, seconds
from quire.errors import InvalidArgument
from quire.limits import COMMAND_BATCH_MESSAGES
from quire.messages import encoded_values

_HEADER: Final = (
    ("--priority", number, "N", "0 to 65535; higher goes first, where the queue is so ordered"),
    ("--group-key", str, "KEY", "one reader at a time gets the messages of a key, in order"),
    ("--delay", seconds, "S", "nobody gets it before so many seconds (or 10m, 2h, 7d) are over"),
    ("--deliver-at", moment, "TIME", "nor before 2025-01-31T12:00:00"),
    ("--ttl", seconds, "S", "it expires after so many seconds (or 10m, 2h, 7d)"),
    ("--expires-at", moment, "TIME", "or at a point in time"),
    ("--content-type", str, "TYPE", "what the payload is, as application/json"),
    ("--correlation-id", str, "ID", "the message that this one is about, as a request"),
    ("--reply-to", str, "QUEUE", "where an answer is expected"),
    ("--sender", str, "NAME", "whom it is from"),
    ("--group", number, "N", "0 to 65535"),
    ("--request-id", str, "ID", "a put with the same one is not put again; of one message"),
)


def _add_header(parser: argparse.ArgumentParser) -> None:
    header = parser.add_argument_group("header of the messages")
    for name, kind, metavar, text in _HEADER:
        header.add_argument(name, type=kind, metavar=metavar, help=text)
    header.add_argument(
        "--attribute", action="append", type=pair, metavar="NAME=VALUE", help="any number of them"
    )


def _put(options: argparse.Namespace) -> None:
    fields = _fields(options)
    if options.stream:
        _put_streams(options, fields)
        return
    payloads: Iterable[bytes] = map(os.fsencode, options.payloads)
    if not options.payloads:
        payloads = (line.removesuffix(b"\n") for line in _standard_input())
    with opened(options) as store, store.transaction() as txn:
        info = store.queue(options.queue)
        timeout = {} if options.timeout is None else {"timeout": options.timeout}
        for batch in _batches(payloads):
            contents = [_row(line) for line in batch] if info.schema is not None else batch
            if not fields and info.codec is None and len(contents) > 1:
                txn.put_many(options.queue, contents, **timeout)
                continue
            for content in contents:
                if info.codec is not None:
                    fields["content_type"] = encoded_values.check_encoded(
                        options.queue, info.codec, content, options.content_type
                    )
                txn.put(options.queue, content, **fields, **timeout)


def _fields(options: argparse.Namespace) -> dict[str, Any]:
    """Return the header of the messages. Raises InvalidArgument."""
    names = [name.removeprefix("--").replace("-", "_") for name, *_ in _HEADER]
    found = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    if options.attribute:
        names = [name for name, _ in options.attribute]
        for name in names:
            if names.count(name) > 1:
                raise InvalidArgument(f"attribute {name!r} is given twice: give each once")
        found["attributes"] = dict(options.attribute)
    if "request_id" in found and (len(options.payloads) != 1 or options.stream):
        raise InvalidArgument(
            "--request-id is the name of one put: give one payload with it, and no --stream"
        )
    return found


def _put_streams(options: argparse.Namespace, fields: dict[str, Any]) -> None:
    if options.timeout is not None:
        fields["timeout"] = options.timeout
    with opened(options) as store:
        for name in options.payloads:
            with _readable(name) as file:
                size = os.fstat(file.fileno()).st_size
                store.put_stream(options.queue, file, size=size, **fields)
        if not options.payloads:
            store.put_stream(options.queue, _standard_input(), **fields)


def _standard_input() -> BinaryIO:
    if sys.stdin is None:
        raise InvalidArgument(
            "standard input is closed: give the payloads on the line, or have it read a file"
        )
    return sys.stdin.buffer


def _batches(payloads: Iterable[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    for payload in payloads:
        batch.append(payload)
        if len(batch) == COMMAND_BATCH_MESSAGES:
            yield batch
            batch = []
    if batch:
        yield batch


def _readable(name: str) -> BinaryIO:
    try:
        return open(name, "rb")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidArgument(
            f"file {name!r:.300} cannot be read ({reason}): give one that is there and that you "
            "may read"
        ) from error


def _row(line: bytes) -> Any:
    """Return the row of a typed queue: a JSON object of its columns."""
    try:
        return json.loads(line)
    except ValueError as error:
        raise InvalidArgument(
            f"the queue is typed: give a JSON object of its columns, not {line!r:.100} ({error})"
        ) from None


COMMANDS: Final = (
    Command(
        "put",
        "put messages: all of them, or with an error none",
        _put,
        (
            argument("queue", metavar="QUEUE"),
            argument("payloads", nargs="*", metavar="PAYLOAD", help="else lines of the input"),
            argument(
                "--stream",
                action="store_true",
                help="a message of each file that is named, or of all of standard input, of any "
                "size",
            ),
            argument(
                "--wait",
                dest="timeout",
                type=seconds,
                metavar="S",
                help="for room, where the queue is full and has overflow=wait",
            ),
            _add_header,
        ),
        "Each PAYLOAD is a message; without one, each line of standard input is. Of a typed queue\n"
        "each is a JSON object of its columns, of one with a codec what that makes of a value (a\n"
        "JSON text, say). With --stream each file is one, by itself.\n\n"
        "  quire put shop.quire orders '2 apples' '1 pear'\n"
        "  quire put shop.quire orders < orders.txt\n"
        "  quire put shop.quire orders '2 apples' --priority 3 --attribute colour=red",
        calls=("put", "put_many", "put_stream"),
    ),
)
