"""The parts that every store object and every transaction has besides its interface."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack
from weakref import ReferenceType

from quire.arguments import check_name, check_timeout
from quire.batches.moved_messages import check_movable, move
from quire.calls.documented import documented_by
from quire.calls.uncopied import not_copied
from quire.errors import InvalidArgument
from quire.messages import payload_writer
from quire.messages.message import Message
from quire.messages.message_id import MessageId
from quire.moments import Duration

from .integration import TransactionIntegration
from .store import Store
from .transaction import Streaming, Transaction

if TYPE_CHECKING:
    from quire.messages.payload_writer import PayloadWriter
    from quire.messages.put_options import MessageOptions

    from .listening import ListenerCallbacks
    from .lookup import Where


class StoreObject(Store):
    """A store, as far as it is the same for all.

    Its subjects are made when they are asked for: it would never end by itself if it had them.
    """

    __reduce_ex__ = not_copied
    path: str = ""  # until it is opened
    _callbacks: ListenerCallbacks | None = None  # of listeners, once one calls back

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}, {self.role}>"

    def check_usable(self) -> None:
        """Raises StoreClosed once it was closed."""

    def __enter__(self) -> Self:
        self.check_usable()
        return self


@documented_by(Transaction)
class TransactionCalls(Transaction):
    """A transaction, as far as it is the same for all stores."""

    __slots__ = ()
    __reduce_ex__ = not_copied
    _integration: ClassVar[type]  # a class of `TransactionIntegration`

    @property
    def integration(self) -> TransactionIntegration:
        made: TransactionIntegration = self._integration(self)
        return made

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}, {self.state}>"

    def put_writer(
        self: Streaming,
        queue: str,
        *,
        size: int | None = None,
        timeout: Duration | None = None,
        **options: Unpack[MessageOptions],
    ) -> PayloadWriter:
        fields: dict[str, Any] = dict(options)
        if fields.pop("request_id", None) is not None:
            raise InvalidArgument(
                "a message that is put as a stream has no request_id: leave it out"
            )
        length = payload_writer.check_size(size)
        wait = None if timeout is None else check_timeout(timeout)
        sink = self.begin_stream(check_name(queue, "queue"), fields, length, wait)
        return payload_writer.PayloadWriter(sink, length)

    def move(
        self: Streaming,
        source: str | Iterable[Message],
        queue: str,
        max_messages: int = 1000,
        *,
        where: Where | None = None,
    ) -> int:
        if not isinstance(source, str):
            if where is not None:
                raise InvalidArgument(
                    "where chooses among the messages of a queue: give it with the queue's name as "
                    "source; of messages that were got give those that are to be moved"
                )
            source = check_movable(source)
            self.mark_moved(source)
        return move(self, source, queue, max_messages, where)

    def end_after(self, check: ReferenceType[Callable[[], object]]) -> None:
        """Have commit and prepare call something before they change anything, while it lives.

        It raises where there is something to be done before.
        """
        raise NotImplementedError

    def withdraw_refused(self, put: MessageId) -> bool:
        """Take back the last put, if it is this one and its queue has refused it; False: it is not.

        Where a put itself raises what refuses it, as here, there is nothing to be taken back.
        """
        return False
