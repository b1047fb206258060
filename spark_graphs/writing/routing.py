"""Sorts a batch of rows by their destination queue; rows of one queue keep their order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from quire.arguments import check_name
from quire.errors import InvalidArgument
from quire.libraries import np, pa
from quire.spark_graphs.limits import GATHER_BYTES
from quire.spark_graphs.schema import SET_BY_STORE


class Routed(NamedTuple):
    """Messages, those of each queue together, and how many each queue has, in the same order."""

    messages: pa.RecordBatch
    shares: dict[str, int]


def gathered(
    batches: Iterable[pa.RecordBatch], queue: str | None, most_bytes: int = GATHER_BYTES
) -> Iterator[pa.RecordBatch]:
    """The rows in their order, in fewer batches where many queues share them.

    A batch of one queue's rows alone is passed on as it is, if nothing waits before it.
    """
    waiting: list[pa.RecordBatch] = []
    waiting_bytes = 0
    for batch in batches:
        if not waiting and (queue is not None or len(batch.column("queue").unique()) < 2):
            yield batch
            continue
        waiting.append(batch)
        waiting_bytes += batch.nbytes
        if waiting_bytes >= most_bytes:
            yield _joined(waiting)
            waiting, waiting_bytes = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def routed(batch: pa.RecordBatch, queue: str | None) -> Routed:
    """The messages of each queue, without the columns that the store sets itself.

    Args:
        queue: where all rows go; by default each goes where its column `queue` says.
    """
    names = [name for name in batch.schema.names if name not in SET_BY_STORE and name != "queue"]
    messages = batch.select(names)
    _check_payloads(messages)
    if batch.num_rows == 0:
        return Routed(messages, {})
    if queue is not None:
        return Routed(messages, {queue: batch.num_rows})
    column = batch.column("queue")
    if column.null_count:
        raise InvalidArgument(
            f"column 'queue' is null in {column.null_count} rows: every message needs its queue"
        )
    encoded = column.dictionary_encode()
    queues = [check_name(name, "queue") for name in encoded.dictionary.to_pylist()]
    codes = encoded.indices.to_numpy()
    if len(queues) > 1:
        messages = messages.take(pa.array(np.argsort(codes, kind="stable")))
    return Routed(messages, dict(zip(queues, np.bincount(codes).tolist(), strict=True)))


def _check_payloads(messages: pa.RecordBatch) -> None:
    nulls = messages.column("payload").null_count
    if nulls:
        raise InvalidArgument(
            f"column 'payload' is null in {nulls} rows: filter them out, or make it empty"
        )
