"""What stands beside a fold that nobody but a test uses."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

from quire.engine.state.durable_state import DurableQueue


class Alone:
    """Nothing; a contradiction goes to `fault`."""

    defining = nullcontext()

    def __init__(self, fault: Callable[[str, str], None]) -> None:
        self.fault = fault

    def made(self, queue: DurableQueue, used: int) -> None:
        """Nothing stands beside the queue either."""

    def dropped(self, queue: DurableQueue) -> None:
        """It is in no list any more."""

    def named(self, name: str, queue: DurableQueue | None) -> None:
        """Names are looked up in the state."""

    def held(self, record: object, groups: object, *, counted: bool) -> None:
        """No space is counted."""

    def archived(self, body: object) -> None:
        """Nothing is shipped."""

    def known_as(self, record: object) -> int:
        """No queue knows it."""
        return 0

    def ended(self, record: object, groups: object, first_id: int | None) -> None:
        """No space is given back."""
