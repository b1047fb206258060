"""The handlers of states, delayed messages and prepared transactions at the owner of a store."""

from __future__ import annotations

import builtins

from quire.arguments import check_max_messages, check_state_key, check_state_name
from quire.batches.delivered_messages import Messages
from quire.engine.commits.definitions import Definitions
from quire.engine.live_state.engine_state import EngineState
from quire.engine.reading.fetcher import Fetcher
from quire.env import Env
from quire.reports.info import PreparedInfo


class StatesHandlers:
    """A handler for each row of `States`."""

    def __init__(self, state: EngineState, definitions: Definitions) -> None:
        self._values = state.values
        self._definitions = definitions

    def get(self, name: str, key: str) -> bytes | None:
        return self._values.value(check_state_name(name), check_state_key(key))

    def items(self, name: str) -> dict[str, bytes]:
        return self._values.items(check_state_name(name))

    def names(self) -> list[str]:
        return self._values.names()

    def drop(self, name: str) -> int:
        return self._definitions.drop_state(check_state_name(name))


class DelayedHandlers:
    """A handler for each row of `Delayed`."""

    def __init__(self, state: EngineState, delivery: Fetcher) -> None:
        self._state = state
        self._delivery = delivery

    def list(self, source: str, max_messages: int) -> Messages:
        check_max_messages(max_messages)
        queue, subscription = self._state.source(source)
        found = self._delivery.scheduled(queue, subscription, max_messages)
        return Messages(queue.name, found, queue.schema)


class PreparedHandlers:
    """A handler for each row of `Prepared`."""

    def __init__(self, state: EngineState, env: Env) -> None:
        self._state = state
        self._env = env

    def list(self) -> builtins.list[PreparedInfo]:
        return self._state.prepared.info(self._env.now_us())
