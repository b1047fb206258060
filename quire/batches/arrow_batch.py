"""Slices of many blocks as one batch of Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from quire.block.arrow import schema_of, to_record_batch
from quire.block.block import StreamedBlock
from quire.block.format import Column
from quire.block.header_columns import Headers, join_headers, offsets_of
from quire.errors import InvalidArgument
from quire.libraries import np, pa
from quire.limits import MAX_BLOCK_BYTES
from quire.rows.row_block import RowBlock, rows_and_headers, with_meta

from .delivered_slice import Delivered
from .packing import BlockSlice, runs_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


def slices_to_arrow(slices: Sequence[Delivered], *, queue: str) -> pa.RecordBatch:
    """Return one batch of all the slices' messages, with its own memory; rows may refer to the
    blocks'.
    """
    if slices and isinstance(slices[0].block, RowBlock):
        return _rows_to_arrow(slices, queue)
    if not slices:
        schema = schema_of(queue)
        return pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in schema], schema=schema)
    if len(slices) == 1:
        block, start, stop, first_id, time_us, delivery_count = slices[0][:6]
        return block.to_arrow(
            start,
            stop,
            queue=queue,
            first_id=first_id,
            time_us=time_us,
            delivery_count=delivery_count,
        )
    if not any(part.block.columns for part in slices):
        return _plain_to_arrow(slices, queue)
    slices = [with_payload(part) for part in slices]
    runs = runs_of([BlockSlice(*part[:5]) for part in slices])
    offsets = offsets_of(np.concatenate([run.lengths for run in runs]))
    _check_batch_bytes(int(offsets[-1]))
    headers = join_headers([(run.headers, run.count) for run in runs])
    ids, times = headers.fixed.pop(Column.ID), headers.fixed.pop(Column.TIME)
    return to_record_batch(
        headers,
        offsets.astype(np.int32),
        memoryview(b"".join([piece for run in runs for piece in run.pieces])),
        ids=ids,
        times=times,
        delivery_count=_delivery_counts(slices),
        queue=queue,
        copy=False,
    )


def _rows_to_arrow(slices: Sequence[Delivered], queue: str) -> pa.RecordBatch:
    _, batch, headers = rows_and_headers([part[:5] for part in slices])
    ids, times = headers.fixed.pop(Column.ID), headers.fixed.pop(Column.TIME)
    counts = _delivery_counts(slices)
    return with_meta(batch, headers, ids=ids, times=times, delivery_count=counts, queue=queue)


def with_payload(part: Delivered) -> Delivered:
    """The message with its payload in memory. Raises InvalidArgument above 1 GiB."""
    block = part.block
    return part._replace(block=block.whole()) if isinstance(block, StreamedBlock) else part


def _plain_to_arrow(slices: Sequence[Delivered], queue: str) -> pa.RecordBatch:
    """A batch of payloads without any headers: a few array operations for all slices together."""
    counts = np.array([part.stop - part.start for part in slices])
    rows = int(counts.sum())
    before = np.cumsum(counts) - counts
    firsts = np.array([part.block.offsets[part.start] for part in slices], np.int64)
    lasts = np.array([part.block.offsets[part.stop] for part in slices], np.int64)
    ends = np.cumsum(lasts - firsts)
    _check_batch_bytes(int(ends[-1]))
    offsets = np.zeros(rows + 1, np.int32)
    np.concatenate(
        [part.block.offsets[part.start + 1 : part.stop + 1] for part in slices], out=offsets[1:]
    )
    offsets[1:] += np.repeat((ends - lasts).astype(np.int32), counts)
    ids = np.array([part.first_id + part.start for part in slices]) - before
    payload = b"".join(
        [
            part.block.payload[first:last]
            for part, first, last in zip(slices, firsts.tolist(), lasts.tolist(), strict=True)
        ]
    )
    return to_record_batch(
        Headers(),
        offsets,
        memoryview(payload),
        ids=np.repeat(ids, counts) + np.arange(rows),
        times=np.repeat(np.array([part.time_us for part in slices], np.int64), counts),
        delivery_count=_delivery_counts(slices),
        queue=queue,
        copy=False,
    )


def _check_batch_bytes(size: int) -> None:
    if size > MAX_BLOCK_BYTES:
        raise InvalidArgument(
            f"the messages take {size} bytes; one batch holds {MAX_BLOCK_BYTES}: take fewer at a "
            "time"
        )


def _delivery_counts(slices: Sequence[Delivered]) -> int | NDArray[np.int32]:
    counts = np.fromiter([part.delivery_count for part in slices], np.int32, len(slices))
    if (counts == 1).all():
        return 1
    return np.repeat(counts, [part.stop - part.start for part in slices])
