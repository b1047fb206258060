"""Collecting the messages of one transaction for one queue, and building their blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from quire.definitions.properties import Granted
from quire.errors import InvalidArgument
from quire.libraries import is_arrow, np
from quire.limits import MAX_PAYLOAD_BYTES, MESSAGE_OVERHEAD_BYTES
from quire.messages.message_fields import Fields, check_payload

from .arrow_input import runs_of_arrow
from .encoding import EncodedBlock, MessageRun, encode_runs, run_of_rows, with_granted
from .header_columns import Headers
from .single_block import encode_one


class BlockBuilder:
    """Messages in put order. An add that raises `InvalidArgument` has changed nothing.

    `payload_bytes` and `charge_bytes` are those of all messages so far. `granted`: what
    those get of their queue that are added together, if it grants anything.
    """

    __slots__ = (
        "_fields", "_payloads", "_runs", "charge_bytes", "count", "granted", "payload_bytes",
    )  # fmt: skip

    def __init__(self) -> None:
        self.granted: Granted | None = None
        self.clear()

    def clear(self) -> None:
        """Forget all messages."""
        self.count = 0
        self.payload_bytes = 0
        self.charge_bytes = 0
        self._runs: list[MessageRun] = []
        # Rows that were added one by one since the last run.
        self._payloads: list[bytes] = []
        self._fields: list[Fields | None] = []

    def add(self, payload: bytes | bytearray | memoryview, fields: Fields | None = None) -> None:
        """Add one message."""
        content = check_payload(payload)
        charged_bytes = len(content) + MESSAGE_OVERHEAD_BYTES
        if fields is not None:
            charged_bytes += fields.extra_bytes
        self.append(content, fields, charged_bytes)

    def append(self, content: bytes, fields: Fields | None, charged_bytes: int) -> None:
        """Add one message that was checked; `charge` as `add` reckons it."""
        self._payloads.append(content)
        self._fields.append(fields)
        self.count += 1
        self.payload_bytes += len(content)
        self.charge_bytes += charged_bytes

    def add_many(self, payloads: Iterable[bytes | bytearray | memoryview]) -> int:
        """Add plain messages; how many they were. Their bytes are copied once."""
        return self.add_runs(_runs_of_list(payloads))

    def add_arrow(self, source: object) -> int:
        """Add an array of payloads, or a batch with header columns; how many messages they were.

        The Arrow memory is referred to, not copied, until the blocks are built.
        """
        priority = 0 if self.granted is None else self.granted.priority
        return self.add_runs(runs_of_arrow(source, priority))

    def add_run(self, run: MessageRun) -> None:
        """Add messages that are one of `runs_of_shares`."""
        self.add_runs([run])

    def add_runs(self, runs: Sequence[MessageRun]) -> int:
        """Add the messages of runs; return how many they are."""
        if runs:
            self._close_rows()
        for run in runs:
            own = run if self.granted is None else with_granted(run, self.granted)
            self._runs.append(own)
            self.count += own.count
            self.payload_bytes += own.payload_bytes
            self.charge_bytes += own.charge_bytes
        return sum(run.count for run in runs)

    def blocks(self, max_block_bytes: int) -> Iterator[EncodedBlock]:
        """The blocks one after another; none is above the size unless by a single message."""
        if self.count == 1 and self._payloads:
            data = encode_one(self._payloads[0], self._fields[0])
            yield EncodedBlock(data, 1, self.charge_bytes, self.payload_bytes)
        elif self.count:
            yield from encode_runs(self._all_runs(), max_block_bytes)

    def build(self, max_block_bytes: int) -> list[EncodedBlock]:
        """Return all blocks; none is above the size unless by a single message.

        Keeps the messages.
        """
        if self.count == 1 and self._payloads and self._fields[0] is None:
            block = encode_one(self._payloads[0])
            return [EncodedBlock(block, 1, self.charge_bytes, self.payload_bytes)]
        return list(self.blocks(max_block_bytes))

    def _all_runs(self) -> Sequence[MessageRun]:
        self._close_rows()
        return self._runs

    def _close_rows(self) -> None:
        if self._payloads:
            self._runs.append(run_of_rows(self._payloads, self._fields))
            self._payloads = []
            self._fields = []


def runs_of_payloads(payloads: Any, priority: int) -> list[MessageRun]:
    """Return the runs of a list of payloads, or of Arrow data, without empty ones.

    `priority`: of messages of Arrow data that have none. Raises InvalidArgument.
    """
    return runs_of_arrow(payloads, priority) if is_arrow(payloads) else _runs_of_list(payloads)


def _runs_of_list(payloads: Iterable[bytes | bytearray | memoryview]) -> list[MessageRun]:
    if isinstance(payloads, (str, bytes, bytearray, memoryview)):
        raise InvalidArgument("payloads must be a list of bytes: use put for one payload")
    if not isinstance(payloads, Iterable) or isinstance(payloads, Mapping):
        raise InvalidArgument(
            f"payloads must be a list of bytes or Arrow data, not {type(payloads).__name__}"
        )
    rows = payloads if isinstance(payloads, (list, tuple)) else list(payloads)
    if not rows:
        return []
    try:
        content = b"".join(rows)
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    except (TypeError, BufferError) as error:
        raise InvalidArgument(f"every payload must be bytes: encode it first ({error})") from None
    size = int(lengths.sum())
    if size != len(content):
        raise InvalidArgument("payloads that are memoryviews must be of single bytes: cast them")
    if size > MAX_PAYLOAD_BYTES and int(lengths.max()) > MAX_PAYLOAD_BYTES:
        check_payload(rows[int(lengths.argmax())])
    return [MessageRun(lengths, [content], Headers(), region=True)]
