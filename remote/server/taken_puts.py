"""The puts of a client's transaction, as its owner takes them.

- TP1: a put that is refused leaves the transaction open, as in an embedded store; the client is
  told by the request that needs it, and has it still (PR4).
- TP2: one that found no room in a queue that says what to do then is kept, with what follows it, up
  to `HELD_BYTES`, and taken by the request that needs it, which may wait.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Protocol

from quire.arguments import Bytes, check_timeout
from quire.errors import QueueFull, QuireError, RemoteError
from quire.ltds import check_foreign
from quire.messages.message_id import MessageId
from quire.remote.limits import HELD_BYTES
from quire.remote.wire.failures import error_from_elsewhere
from quire.remote.wire.payload_streams import PutsStreams, ServedStreams
from quire.remote.wire.protocol import (
    ADD_HEAD,
    BLOCK,
    ENTRY,
    FIELDS,
    FILE,
    FILE_ID,
    MOVED_BLOCK,
    MOVED_FIELDS,
    PLAIN,
    Header,
)
from quire.remote.wire.put_places import Placing, PutsBlocks
from quire.remote.wire.values import decode_map

if TYPE_CHECKING:
    from quire.remote.access.use_account import UseAccount

_SIZE: Final = struct.Struct("<I")


class ServedPuts(PutsBlocks, PutsStreams, Protocol):
    """A transaction whose puts wait as long as a request says."""

    put_timeout: float | None  # seconds that puts wait for room

    def put_moved(self, queue: str, content: Any, fields: Mapping[str, Any]) -> MessageId:
        """Put a message that is moved (see `quire.batches.moved_messages`)."""


class Takes(Protocol):
    """The client whose transactions these are, one after another."""

    @property
    def account(self) -> UseAccount:
        """The account that its puts are charged to."""

    def waiting(self) -> AbstractContextManager[None]:
        """A block in which others are waited for."""

    @property
    def commit_timeout(self) -> float:
        """Seconds."""

    def open_transaction(self) -> ServedPuts:
        """The transaction of the stream, begun if it is not yet."""

    def end_transaction(self) -> None:
        """Roll it back."""


class TakenPuts:
    """The puts of one transaction, which may not have begun."""

    def __init__(self, client: Takes) -> None:
        self._client = client
        self.placing: Final = Placing()
        self.count = 0  # that are taken
        self.size = 0  # bytes
        self._refusal: QuireError | None = None  # of the next of them
        self._kept: list[tuple[Bytes, int]] = []  # frames, each from where on (TP2)

    @cached_property
    def streams(self) -> ServedStreams:
        """The messages that are being put as streams."""
        return ServedStreams(self.placing, self._client.waiting)

    def add(self, data: Bytes) -> None:
        """Puts, which nobody waits for an answer of (TP1)."""
        *_, first = ADD_HEAD.unpack_from(data)
        if self._kept:
            self._keep(data, ADD_HEAD.size)
            return
        if first != self.count:
            return  # it follows one that was refused
        self._refusal = None
        self.size += len(data)
        refused_at = self._take_from(data, ADD_HEAD.size)
        if _has_remedy(self._refusal):
            self._keep(data, refused_at)

    def refuse(self, error: QuireError) -> None:
        """A frame of puts is not taken (TP1)."""
        self._refusal = error

    def _keep(self, data: Bytes, start: int) -> None:
        """Keep a frame for the request that needs it; with too much of it, none (TP2)."""
        kept_bytes = sum(len(frame) for frame, _ in self._kept)
        if self._kept and kept_bytes + len(data) > HELD_BYTES:
            self._kept = []
        else:
            self._kept.append((data if type(data) is bytes else bytes(data), start))

    def take_kept(self, transaction: ServedPuts | None, seconds: float | None) -> None:
        """Take what is kept, waiting for room for so long; None: as the store's options say."""
        if not self._kept or transaction is None:
            return
        with self._client.waiting():
            wait = self._client.commit_timeout if seconds is None else check_timeout(seconds)
            deadline = time.monotonic() + wait
            kept, self._kept = self._kept, []
            try:
                for data, start in kept:
                    *_, first = ADD_HEAD.unpack_from(data)
                    if start == ADD_HEAD.size and first != self.count:
                        return
                    self._refusal = None
                    transaction.put_timeout = max(0.0, deadline - time.monotonic())
                    if self._take_from(data, start) < len(data):
                        return
            finally:
                transaction.put_timeout = 0.0

    def _take_from(self, data: Bytes, start: int) -> int:
        """The puts of a frame from there on; where the one begins that is refused, or the end."""
        at, end = start, len(data)
        try:
            transaction = self._client.open_transaction()
            while at < end:
                size, form, length = ENTRY.unpack_from(data, at)
                name = at + ENTRY.size
                start = name + size
                stop = start + length
                queue = str(data[name:start], "utf-8")
                if stop > end:
                    raise RemoteError("a put is cut off")
                self._take(transaction, queue, form, data, start, stop)
                self.count += 1
                at = stop
        except QuireError as error:
            self._refusal = error
        except (struct.error, UnicodeDecodeError) as error:
            self._refusal = RemoteError(f"a put cannot be read: {error}")
        except Exception as error:  # noqa: BLE001 it is told to the client (SS1)
            self._refusal = error_from_elsewhere(error)
            self._client.end_transaction()  # nobody knows what happened
        return at

    def _take(
        self, transaction: ServedPuts, queue: str, form: int, data: Bytes, start: int, end: int
    ) -> None:
        """One put: messages, a block or a file."""
        placing, account = self.placing, self._client.account
        account.take_puts(form not in (BLOCK, MOVED_BLOCK))
        if form == PLAIN:
            payload = data[start:end] if type(data) is bytes else bytes(memoryview(data)[start:end])
            message_id = transaction.put(queue, payload)
            placing.first.setdefault(queue, message_id)
            return
        view = memoryview(data)[start:end]
        if form in (BLOCK, MOVED_BLOCK):
            ids = placing.put_block(transaction, queue, view, is_moved=form == MOVED_BLOCK)
            account.add_puts(len(ids))
        elif form in (FIELDS, MOVED_FIELDS):
            length = _SIZE.unpack_from(view)[0] + _SIZE.size
            fields = message_fields(decode_map(view[_SIZE.size : length]))
            payload = bytes(view[length:])
            if form == MOVED_FIELDS:
                message_id = transaction.put_moved(queue, payload, fields)
            else:
                message_id = transaction.put(queue, payload, **fields)
            placing.first.setdefault(queue, message_id)
        elif form == FILE:
            placing.adopt(transaction, queue, check_foreign(FILE_ID.unpack(view)[0]))
        else:
            raise RemoteError(f"a put of form {form} is none")

    def check(self, puts: int) -> None:
        """Raises what refused a put, if the client has put more than was taken."""
        self.placing.check()
        if puts != self.count:
            self._kept = []  # its client has it still
            raise self._refusal or RemoteError(
                f"{self.count} puts of the transaction are here, not {puts}"
            )


def message_fields(fields: Header) -> Any:
    """Return the fields of a put, which checks them; the time to wait is none of them."""
    if "timeout" in fields:
        raise RemoteError("a message has no field 'timeout'")
    return fields


def _has_remedy(refusal: QuireError | None) -> bool:
    return isinstance(refusal, QueueFull) and refusal.has_remedy
