"""Putting dead letters back: see `Store.redrive`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from quire.errors import InvalidArgument
from quire.message import GROUP_KEY, SETTABLE, Message
from quire.moving import OWN_PREFIX, QUEUE, REASON, put_again
from quire.streamed import StreamedMessage
from quire.typed_message import content_of, row_of_payload

if TYPE_CHECKING:
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
            content = content_of(letter)
            if schemas[target] is not None and isinstance(content, bytes):
                content = row_of_payload(content)
                fields["content_type"] = None
            txn.put(target, content, **fields)
            count += 1
    return count
