"""What a queue can be made with; checked before anything is changed, a new store made included."""

from __future__ import annotations

from typing import TypeGuard

from quire.errors import InvalidArgument
from quire.limits import DEFAULT_CAPACITY_BYTES, MAX_CAPACITY_BYTES, MIN_CAPACITY_BYTES

from .durable_state import TOPIC, WORK
from .names import check_name


def check_queue(
    name: object,
    kind: object = TOPIC,
    capacity: object = DEFAULT_CAPACITY_BYTES,
    max_messages: object = None,
) -> None:
    """Raises InvalidArgument for arguments that no store's `create_queue` takes."""
    check_name(name, "queue")
    if kind not in (TOPIC, WORK):
        raise InvalidArgument(f'kind {kind!r}: give "topic" or "work"')
    if not is_int(capacity) or not MIN_CAPACITY_BYTES <= capacity <= MAX_CAPACITY_BYTES:
        raise InvalidArgument(
            f"capacity {capacity!r}: give bytes from {MIN_CAPACITY_BYTES} to {MAX_CAPACITY_BYTES}"
        )
    if max_messages is not None and (not is_int(max_messages) or max_messages < 1):
        raise InvalidArgument(f"max_messages {max_messages!r}: give 1 or more, or None")


def is_int(value: object) -> TypeGuard[int]:
    """Whether it is a number; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def check_data_file(data_file: object, files: int) -> None:
    """Raises InvalidArgument for what is no data file of a store that has so many."""
    if not is_int(data_file) or not 0 <= data_file < files:
        raise InvalidArgument(
            f"data_file {data_file!r}: this store has {files}, give 0 to {files - 1}, or None"
        )
