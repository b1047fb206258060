"""Changes of queues and subscriptions, as the sequencer takes them: one journal record each."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from quire.journal import pack_record

from .fold import definition
from .state import State


class Definition:
    """A change whose body is fixed when its place in the order is known.

    `prepare` looks at the state and returns the body, or raises to refuse.
    `undo` takes back what `prepare` did besides looking.
    """

    __slots__ = ("_kind", "_prepare", "_state", "_undo", "applied", "body", "record")

    def __init__(
        self,
        state: State,
        kind: int,
        prepare: Callable[[], dict[str, Any]],
        undo: Callable[[], None] | None = None,
    ) -> None:
        self._undo = undo
        self.applied = False
        self._kind = kind
        self._prepare = prepare
        self._state = state
        self.body: dict[str, Any] = {}
        self.record = b""

    def place(self) -> None:
        self.body = self._prepare()
        self.record = pack_record(self._kind, 0, json.dumps(self.body).encode())

    def withdraw(self) -> None:
        if self._undo is not None:
            self._undo()

    def apply(self, address: int) -> None:
        self._state.define(definition(self._kind, json.dumps(self.body).encode()))
