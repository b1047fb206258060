"""The handlers of `store.listeners` at the owner: see `quire.interface.namespaces.listeners`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quire.arguments import check_first, split_source
from quire.engine.commits.listening import ListenedFor, Listening, ReturnsMark
from quire.engine.live_state.engine_state import EngineState
from quire.engine.lookup.choice import choice_of
from quire.errors import InvalidArgument
from quire.interface.awaited import REMOVAL, check_group, check_max_ids, check_on
from quire.reports.info import Notice

if TYPE_CHECKING:
    from quire.selectors.template import SelectorOrTemplate


class ListenersHandlers:
    """A handler for each row of `Listeners`."""

    def __init__(self, state: EngineState, listening: Listening) -> None:
        self._state = state
        self._listening = listening

    def poll_notices(
        self,
        source: str,
        position: int | None,
        group: int,
        where: SelectorOrTemplate | None,
        on: str,
        until: int | None,
        max_ids: int,
        created_us: int | None,
        mark: str,
    ) -> Notice:
        name, subscription = split_source(source)
        queue = self._state.queue(name)
        choice = choice_of(queue, where)
        if choice.message_id is not None:
            raise InvalidArgument(
                f"where {where!r:.100}: give a selector (a str) or a quire.Template"
            )
        made_us = check_first(created_us)
        request = ListenedFor(
            choice, check_group(group), check_max_ids(max_ids), made_us, ReturnsMark.of(mark)
        )
        start, end = check_first(position), check_first(until)
        if check_on(on) == REMOVAL:
            return self._listening.removals(queue, queue.subscription(subscription), request, start)
        if subscription is not None:
            raise InvalidArgument(
                f"source {source!r}: what is put is put to a queue: listen to {name!r}, or to "
                'what leaves the subscription, with on="removal"'
            )
        return self._listening.puts(queue, request, start, end)
