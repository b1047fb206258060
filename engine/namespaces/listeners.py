"""Who listens to the store of this process: see `quire.interface.namespaces.listeners`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quire.arguments import check_first, split_source
from quire.calls.documented import documented_by
from quire.engine.commits.listening import ListenedFor, ReturnsMark
from quire.engine.finding.choice import choice_of
from quire.engine.opening import open_call
from quire.errors import InvalidArgument
from quire.interface.awaited import REMOVAL, check_group, check_max_ids, check_on
from quire.interface.namespaces.listeners import HeardEvent, Listeners
from quire.interface.single_calls import ListenersCalls
from quire.limits import HEARD_AT_ONCE
from quire.reports.info import Notice

from .namespace import EmbeddedNamespace

if TYPE_CHECKING:
    from quire.selectors.template import SelectorOrTemplate


@documented_by(Listeners)
class EmbeddedListeners(EmbeddedNamespace, ListenersCalls):
    """Of an `EmbeddedStore`."""

    @open_call
    def hear(
        self,
        source: str,
        position: int | None = None,
        *,
        group: int = 0,
        where: SelectorOrTemplate | None = None,
        on: HeardEvent = "put",
        until: int | None = None,
        max_ids: int = HEARD_AT_ONCE,
        created_us: int | None = None,
        mark: str = "",
    ) -> Notice:
        listening, name, subscription = self._of._context.listening, *split_source(source)
        queue = self._state().queue(name)
        choice = choice_of(queue, where)
        if choice.message_id is not None:
            raise InvalidArgument(
                f"where {where!r:.100}: give a selector (a str) or a quire.Template"
            )
        made_us = check_first(created_us)
        asked = ListenedFor(
            choice, check_group(group), check_max_ids(max_ids), made_us, ReturnsMark.of(mark)
        )
        start, end = check_first(position), check_first(until)
        if check_on(on) == REMOVAL:
            return listening.removals(queue, queue.subscription(subscription), asked, start)
        if subscription is not None:
            raise InvalidArgument(
                f"source {source!r}: what is put is put to a queue: listen to {name!r}, or to "
                'what leaves the subscription, with on="removal"'
            )
        return listening.puts(queue, asked, start, end)
