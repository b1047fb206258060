"""Ids of messages that are put, known once their transaction has committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, overload

from quire.errors import TransactionError


class Numbered(Protocol):
    """A run of messages in one queue that are put together."""

    @property
    def first_id(self) -> int:
        """The id of the first of them; 0 before the commit."""

    @property
    def expires_by(self) -> int | None:
        """The time by which they expire: see `MessageId`."""


class KnownId:
    """The id of a message that was put before, in place of such a run."""

    __slots__ = ("expires_by", "first_id")

    def __init__(self, first_id: int) -> None:
        self.first_id = first_id
        self.expires_by: int | None = None  # the message says


class MessageId:
    """The id of one message put; `int(id)` once its transaction has committed.

    Ids are given in commit order, so there is none before. Equal to the int and hashed like it,
    then.
    """

    # Made without `__init__` where every message passes: that is half of what making one takes.
    __slots__ = ("index", "run")

    run: Numbered  # all that is put into its queue by its transaction
    index: int  # its place among the messages that are put together

    @property
    def is_known(self) -> bool:
        """True if there is an id: its transaction has committed, or it was put before."""
        return self.run.first_id != 0

    @property
    def expires_by(self) -> int | None:
        """The time by which the message expires at the latest, as its queue's `max_ttl` says.

        In microseconds since the epoch, and the same for all that a transaction puts to a queue.
        What was to expire later does so then. None: the queue has no `max_ttl`, or it was put
        before. In a joined store it is known once its transaction has committed, or is prepared.
        """
        return self.run.expires_by

    def __int__(self) -> int:
        first = self.run.first_id
        if first == 0:
            raise TransactionError(
                "the message has no id before its transaction has committed: use it after that. "
                "Nobody can ask for it until then, that transaction neither: what it needs of the "
                "message, keep when you put it; what may have to go again, put last, or roll back"
            )
        return first + self.index

    __index__ = __int__

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (int, MessageId)):
            return int(self) == int(other)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(int(self))

    def __repr__(self) -> str:
        return f"MessageId({int(self) if self.run.first_id else 'not committed'})"


def id_of(run: Numbered, index: int) -> MessageId:
    """The id of the message at a place among those that are put together."""
    made = MessageId()
    made.run = run
    made.index = index
    return made


class PutId(int):
    """The id that a put in a transaction of its own returns, of a queue with `max_ttl`: an int.

    `expires_by`: as of a `MessageId`.
    """

    expires_by: int

    @classmethod
    def of(cls, number: int, expires_by: int | None) -> int:
        """The number itself, where nothing is to be told with it."""
        if expires_by is None:
            return number
        put_id = cls(number)
        put_id.expires_by = expires_by
        return put_id


class MessageIds(Sequence[MessageId]):
    """The ids of several messages put together, in their order."""

    __slots__ = ("_count", "_start", "_written")

    def __init__(self, written: Numbered, start: int, count: int) -> None:
        self._written = written
        self._start = start
        self._count = count

    @property
    def run(self) -> Numbered:
        """The run of all that is put into their queue by their transaction."""
        return self._written

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> MessageId: ...

    @overload
    def __getitem__(self, index: slice) -> MessageIds: ...

    def __getitem__(self, index: int | slice) -> MessageId | MessageIds:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                raise TransactionError("message ids are sliced without a step")
            return MessageIds(self._written, self._start + start, max(stop - start, 0))
        count = len(self)
        if not -count <= index < count:
            raise IndexError(f"message {index} of {count}")
        return id_of(self._written, self._start + index % count)

    def __repr__(self) -> str:
        return f"MessageIds({self._count} messages)"


class RequestedIds(MessageIds):
    """The ids of messages that were put by request ids, some of them before."""

    __slots__ = ("_ids",)

    def __init__(self, ids: Sequence[MessageId]) -> None:
        super().__init__(ids[0].run if ids else KnownId(0), 0, len(ids))
        self._ids = ids

    @overload
    def __getitem__(self, index: int) -> MessageId: ...

    @overload
    def __getitem__(self, index: slice) -> MessageIds: ...

    def __getitem__(self, index: int | slice) -> MessageId | MessageIds:
        return RequestedIds(self._ids[index]) if isinstance(index, slice) else self._ids[index]
