"""Payloads of streamed messages for asyncio, piece by piece."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from quire.arguments import Bytes
from quire.batches.delivered_messages import Messages, with_payloads
from quire.calls.documented import documented_by
from quire.limits import CHUNK_BYTES
from quire.messages.message import Message, check_message
from quire.messages.message_id import MessageId
from quire.messages.payload_writer import PayloadWriter, Source, pieces_of
from quire.messages.streamed_message import StreamedMessage

from .pool import Calls

R = TypeVar("R")


class Calling(Protocol):
    """Makes a call of a transaction; `surely` and `in_thread`: as of `Calls.run`."""

    def __call__(
        self, call: Callable[[], R], *, surely: bool = False, in_thread: bool = False
    ) -> Awaitable[R]: ...


class Pooled(Protocol):
    """An `AsyncStore`."""

    _pool: Calls


@documented_by(PayloadWriter)
class AsyncPayloadWriter:
    """`PayloadWriter` for asyncio. Made by `AsyncTransaction.put_writer`.

    As an `async with` block it is finished at the end, and abandoned on an exception, also where
    its task is cancelled.
    """

    def __init__(self, inner: PayloadWriter, run: Calling) -> None:
        self._inner = inner
        self._run = run

    @property
    def message_id(self) -> MessageId:
        """The id of the message that was put; an int once the transaction has committed."""
        return self._inner.message_id

    @property
    def size(self) -> int:
        """The size of what is written so far, in bytes."""
        return self._inner.size

    async def write(self, data: Bytes) -> int:
        return await self._run(lambda: self._inner.write(data))

    async def finish(self) -> MessageId:
        return await self._run(self._inner.finish)

    async def abandon(self) -> None:
        await self._run(self._inner.abandon, surely=True)

    async def write_all(self, source: Source | AsyncIterable[Bytes]) -> None:
        """Write what a source of any kind gives, which is read in a thread, too."""
        if isinstance(source, AsyncIterable):
            async for piece in source:
                await self.write(piece)
            return
        pieces = pieces_of(source)
        while await self._run(partial(self._write_next, pieces), in_thread=True):
            pass

    def _write_next(self, pieces: Iterator[Bytes]) -> bool:
        """Write one piece, which may be waited for; return True if there was any."""
        for piece in pieces:
            self._inner.write(piece)
            return True
        return False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._run(lambda: self._inner.__exit__(kind, error, None), surely=True)


class AsyncPayload:
    """A message's payload as a binary file that is read, see `Message.open`, for asyncio.

    For one task at a time, in the event loop of the store that the message is from.

        async for piece in quire.aio.AsyncPayload(store, message):
            digest.update(piece)
    """

    def __init__(self, store: Pooled, message: Message) -> None:
        self._file = check_message(message).open()
        self._pool = store._pool
        self.size = message.size
        """The size of the payload, in bytes."""

    async def read(self, size: int = -1) -> bytes:
        """Up to so many bytes, none at the end; with -1 all that follow, up to 1 GiB.

        Raises PositionLost once the message is gone, StoreCorrupt, InvalidArgument above 1 GiB.
        """
        return await self._pool.run(partial(self._file.read, size))

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a place, in bytes from the beginning (0), from here (1) or from the end (2)."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """How many bytes are before the place that is read next."""
        return self._file.tell()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the rest of the payload, 1 MiB at a time."""
        while piece := await self.read(CHUNK_BYTES):
            yield piece


def kept(found: Any) -> Any:
    """Return a copy of messages to keep after their transaction has committed, with payloads."""
    if isinstance(found, StreamedMessage):
        return found.whole()
    return with_payloads(found) if isinstance(found, Messages) else found
