"""Subscriptions that end with their clients (`durable=False`): who holds them, and their end.

- One is held by those who made it, or asked for it when it was there. It is removed when none of
  them has the store open any more; what stands in the way (a prepared transaction, a full disk)
  makes it wait, and the maintenance tries again.
- TS2: those that an opening finds had clients of another owner. Who lives claims them; what nobody
  has claimed after `CLAIM_SECONDS` is removed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from quire.arguments import check_selector, check_switch
from quire.calls.signal_safety import allow_reentry
from quire.engine.commits.definitions import Definitions
from quire.engine.live_state.engine_state import EngineState
from quire.engine.reading import position_search
from quire.engine.reading.fetcher import Fetcher
from quire.engine.state.catalog import SUBSCRIPTION, subscription_form
from quire.env import Env
from quire.env.interpreter import Lock, RLock
from quire.errors import QueueNotFound, QuireError, SubscriptionNotFound
from quire.interface import starts as start_places
from quire.limits import CLAIM_SECONDS
from quire.reports.info import SubscriptionInfo

if TYPE_CHECKING:
    from quire.interface.starts import Start

Name = tuple[str, str]  # of the queue, of the subscription
_BEFORE: Final = object()  # holds those that an opening finds, until somebody claims them (TS2)


def requested_form(
    exclusive: bool | None, durable: bool | None, where: str | None
) -> dict[str, bool | str]:
    """Return what a caller says of the form of subscriptions, checked."""
    form = {
        "exclusive": check_switch("exclusive", exclusive),
        "durable": check_switch("durable", durable),
        "where": None if where is None else check_selector(where),
    }
    return {name: value for name, value in form.items() if value is not None}


class Temporary:
    """The subscriptions that end with their clients. Thread-safe."""

    def __init__(
        self, env: Env, state: EngineState, definitions: Definitions, delivery: Fetcher
    ) -> None:
        self._env = env
        self._state = state
        self._definitions = definitions
        self._delivery = delivery
        # Held while one is made or removed, so that nobody is given what is just being removed.
        self._changing = RLock()
        self._lock = Lock()
        self._holders: dict[int, set[object]] = {}  # by the subscription's number
        self._ending: set[int] = set()
        for number, entry in state.durable.catalog[SUBSCRIPTION].items():
            if entry.body["queue_id"] in state.queues and not subscription_form(entry.body).durable:
                self._holders[number] = {_BEFORE}
        self._claim_until = env.monotonic() + CLAIM_SECONDS if self._holders else math.inf

    def subscribe(
        self,
        holder: object,
        subscription: str | None,
        starts: Mapping[str, Start],
        form: Mapping[str, bool | str],
    ) -> list[SubscriptionInfo]:
        """Make some with one commit. What is not durable ends no sooner than the holder.

        `form`: the options that were given for them.
        """
        checked = start_places.check_starts(subscription, starts)
        if form.get("durable") is not False:
            return self._subscribe(checked, form)
        with self._changing:
            found = self._subscribe(checked, form)
            self._hold(holder, [(info.queue, info.name) for info in found])
        return found

    def _subscribe(
        self, starts: dict[Name, str | int], form: Mapping[str, bool | str]
    ) -> list[SubscriptionInfo]:
        state = self._state
        for (name, own), start in starts.items():
            queue = state.queue(name)
            if start not in ("earliest", "latest") and own not in queue.named:
                starts[name, own] = position_search.place_of(self._delivery, queue, start)
        self._definitions.subscribe(starts, form)
        targets = [(state.queue(name), own) for name, own in starts]
        return [target.subscription_info(target.subscription(own)) for target, own in targets]

    def claim(self, holder: object, names: Iterable[Name]) -> None:
        """A client has such subscriptions, from the owner before (TS2)."""
        with self._changing:
            self._hold(holder, names)

    def _hold(self, holder: object, names: Iterable[Name]) -> None:
        """Let those that are there, and do end, end no sooner than this holder."""
        for name, subscription in names:
            queue = self._state.names.get(name)
            found = None if queue is None else queue.named.get(subscription)
            if found is None or found.durable:
                continue
            number = found.subscription_id
            with self._lock:
                self._holders[number] = self._holders.get(number, set()) - {_BEFORE} | {holder}
                self._ending.discard(number)

    def let_go(self, holder: object) -> None:
        """The holder is gone; short: `end` removes what nobody holds then."""
        with self._lock:
            for number, holders in list(self._holders.items()):
                holders.discard(holder)
                if not holders:
                    del self._holders[number]
                    self._ending.add(number)

    def end(self) -> None:
        """Remove what nobody holds, as far as it can be removed now."""
        if self._claim_until < math.inf and self._env.monotonic() >= self._claim_until:
            self._claim_until = math.inf
            self.let_go(_BEFORE)
        if not self._ending:
            return
        with self._changing:
            for number in list(self._ending):
                allow_reentry(self._end, number)

    def _end(self, number: int) -> None:
        with self._lock:
            if number not in self._ending:
                return
            self._ending.discard(number)  # what follows may come here again
        for queue in list(self._state.queues.values()):
            found = queue.subscriptions.get(number)
            if found is None:
                continue
            try:
                self._definitions.unsubscribe(queue.name, found.name, number)
            except (QueueNotFound, SubscriptionNotFound):
                pass  # somebody removed it
            except QuireError:
                with self._lock:
                    self._ending.add(number)
