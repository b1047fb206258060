"""Ranks of messages, by their headers: where each stands in its queue's order, the lowest first.

- A rank depends on the message alone: not on when it is looked at, nor on which messages are looked
  at together. So it is the same after a restart.
- RK2: numbers are in the order of their values. Whole ones are exact within 2**63, the others are
  those of a 64-bit float. What is no number comes last.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from quire.batches.delivered_slice import Delivered
from quire.block import Block, to_header_batch
from quire.block.format import Column
from quire.definitions.order_code import OrderCode
from quire.engine.delivery.ordered_groups import group_number
from quire.engine.delivery.ready_positions import Ranks
from quire.engine.delivery.sequences import NO_SEQUENCE, link_of
from quire.libraries import np
from quire.limits import (
    APART_BITS,
    LAST_RANK,
    MAX_SEQUENCE_NUMBER,
    MIDDLE,
    ORDERED_TEXT_BYTES,
    SIGN,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NOBODY: Final = group_number(b"")


def text_rank(text: bytes | memoryview) -> int:
    """Return the rank of a text: its first bytes."""
    return int.from_bytes(bytes(text[:ORDERED_TEXT_BYTES]).ljust(ORDERED_TEXT_BYTES, b"\0"), "big")


def number_rank(value: int | float | None) -> int:
    """Return the rank of a number (RK2)."""
    if value is None or value != value:
        return LAST_RANK
    try:
        near = float(value)
    except OverflowError:
        near = float("inf") if value > 0 else float("-inf")
    bits: int = struct.unpack("<Q", struct.pack("<d", near + 0.0))[0]  # no -0.0
    apart = value - int(near) if isinstance(value, int) and abs(near) <= SIGN else 0
    apart = min(max(int(apart), -MIDDLE), MIDDLE - 1)
    ordered = bits ^ SIGN if bits < SIGN else ~bits & (1 << 64) - 1
    return ordered << APART_BITS | apart + MIDDLE


def number_of(text: bytes) -> int | float | None:
    """The number that a text is; None: it is none."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


def attribute_ranks(block: Block, start: int, stop: int, name: str, *, numeric: bool) -> Ranks:
    """By the value of an attribute."""
    ranks = np.full(stop - start, LAST_RANK, object)
    attributes = block.headers.attributes
    if attributes is not None:
        for row, value in attributes.find(name.encode(), start, stop):
            if numeric:
                ranks[row - start] = number_rank(number_of(bytes(value)))
            else:
                ranks[row - start] = text_rank(memoryview(value))
    return ranks


def sequence_links(block: Block, start: int, stop: int, name: str) -> Ranks:
    """Return each message's place in its sender's sequence (see `delivery.sequences`)."""
    links = np.full(stop - start, NO_SEQUENCE, object)
    attributes = block.headers.attributes
    senders = block.headers.strings.get(Column.SENDER)
    if attributes is None:
        return links
    for row, value in attributes.find(name.encode(), start, stop):
        number = number_of(bytes(value))
        if isinstance(number, int) and 0 <= number <= MAX_SEQUENCE_NUMBER:
            sender = None if senders is None else senders.get(row)
            whose = _NOBODY if sender is None else group_number(sender.encode())
            links[row - start] = link_of(number, whose)
    return links


def code_ranks(code: OrderCode, part: Delivered) -> Ranks:
    """By registered code. Raises what that raises, and ValueError where it gives no keys."""
    block, start, stop = part.block, part.start, part.stop
    ids, times = block.ids(part.first_id, start, stop), block.times(part.time_us, start, stop)
    keys = code(to_header_batch(block.headers.slice(start, stop), ids, times))
    return _ranks_of(_keys(keys, stop - start))


def _keys(keys: Any, count: int) -> Sequence[float | None] | NDArray[Any]:
    """Numbers, one for each message, None or NaN where it has none."""
    to_numpy = getattr(keys, "to_numpy", None)
    found = np.asarray(keys) if to_numpy is None else to_numpy(zero_copy_only=False)
    if found.shape != (count,):
        raise ValueError(f"it gave keys of shape {found.shape}, not one for each of {count} rows")
    if found.dtype.kind == "M":
        whole = found.astype("M8[us]").astype(np.int64)
        return [None if n == -SIGN else n for n in whole.tolist()]
    if found.dtype.kind == "O":
        rows: list[float | None] = found.tolist()
        if not all(row is None or isinstance(row, (int, float)) for row in rows):
            raise ValueError("it gave keys that are neither numbers nor None")
        return rows
    if found.dtype.kind not in "buif":
        raise ValueError(f"it gave keys of type {found.dtype}, not whole numbers, floats or times")
    return found


def _ranks_of(keys: Sequence[float | None] | NDArray[Any]) -> Ranks:
    """Return the rank of each number."""
    rows = keys.tolist() if isinstance(keys, np.ndarray) else keys
    ranks = np.empty(len(rows), object)
    ranks[:] = [number_rank(row) for row in rows]
    return ranks
