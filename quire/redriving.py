"""Putting dead letters back: see `Store.redrive`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from quire.errors import InvalidArgument
from quire.message import GROUP_KEY, SETTABLE, Message
from quire.moving import OWN_PREFIX, QUEUE, REASON, put_again
from quire.row_schema import schema_of_words
from quire.streamed import StreamedMessage
from quire.typed_message import content_of, row_of_payload

if TYPE_CHECKING:
    import pyarrow as pa

    from .store import Store


def redrive(
    store: Store,
    queue: str,
    where: Callable[[Message], bool] | None,
    max_messages: int,
    to: str | None,
) -> int:
    """In one transaction; how many were put back."""
    if where is not None and not callable(where):
        raise InvalidArgument(f"where {where!r:.100}: give a function of a message, or None")
    count = 0
    schemas: dict[str, str | None] = {}
    with store.transaction() as txn:
        for letter in list(txn.get_many(queue, max_messages)):
            target = letter.attributes.get(QUEUE) if to is None else to
            if target is None or (where is not None and not where(letter)):
                txn.reject(letter, letter.attributes.get(REASON, ""), delay=0.0)
                continue
            fields = {name: getattr(letter, name) for name in SETTABLE}
            fields["attributes"] = {
                name: value
                for name, value in letter.attributes.items()
                if name == GROUP_KEY or not name.startswith(OWN_PREFIX)
            }
            if isinstance(letter, StreamedMessage):
                put_again(txn, target, letter, fields)
                count += 1
                continue
            if target not in schemas:
                schemas[target] = store.queue(target).schema
            content: Any = content_of(letter)
            words = schemas[target]
            if words is not None and isinstance(content, bytes):
                content = row_of_payload(content)
                fields["content_type"] = None
            if words is not None:
                content = _without_more(content, words)
            txn.put(target, content, **fields)
            count += 1
    return count


def _without_more(row: pa.RecordBatch, words: str) -> pa.RecordBatch:
    """Without columns that the queue of dead letters has more, and that say nothing."""
    own = schema_of_words(words).names
    kept = [name for name in row.schema.names if name in own or not row.column(name).null_count]
    return row.select(kept)
