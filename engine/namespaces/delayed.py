"""What is not due yet in the store of this process: see `quire.interface.namespaces.delayed`."""

from __future__ import annotations

from quire.arguments import check_max_messages
from quire.batches.delivered_messages import Messages
from quire.calls.documented import documented_by
from quire.engine.opening import open_call
from quire.interface.namespaces import Delayed
from quire.interface.single_calls import DelayedCalls

from .namespace import EmbeddedNamespace


@documented_by(Delayed)
class EmbeddedDelayed(EmbeddedNamespace, DelayedCalls):
    """Of an `EmbeddedStore`."""

    @open_call
    def list(self, source: str, max_messages: int = 1000) -> Messages:
        check_max_messages(max_messages)
        queue, subscription = self._state().source(source)
        found = self._of._context.delivery.scheduled(queue, subscription, max_messages)
        return Messages(queue.name, found, queue.schema)
