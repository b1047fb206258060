"""Checks of a queue that is there already: that it is as the call asks, that its puts may wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quire.errors import InvalidArgument, QueueExists
from quire.reports.info import QueueInfo

from .properties import WAIT
from .row_schema import first_difference


def check_same(found: QueueInfo, options: Mapping[str, Any]) -> QueueInfo:
    """The queue that is there already, if it is what is asked for. Raises QueueExists.

    Compared is what the call says: a kind and a type each call says, as they never change; of the
    rest who says nothing, or None, takes what is there. A queue that grows has whatever capacity
    it has grown to.
    """
    current = {name: getattr(found, name) for name in options if name != "capacity"}
    current["capacity"] = found.capacity_bytes
    if (options["capacity"] or 0) < found.capacity_bytes <= (found.grow_to or 0):
        current["capacity"] = options["capacity"]
    differing = [
        f"{name} is {current[name]!r}, not {value!r}"
        if name != "schema"
        else f"schema: {first_difference(current[name], value)}"
        for name, value in options.items()
        if value is not None and current[name] != value
    ]
    if differing:
        raise QueueExists(
            f"queue {found.name!r} is there already, and not as asked for: {'; '.join(differing)}; "
            "ask for what is there, or use another name"
        )
    return found


def check_waits(queue: str, overflow: str, seconds: float) -> None:
    """A put may say how long it waits for room where its queue has puts wait.

    Raises InvalidArgument.
    """
    if seconds and overflow != WAIT:
        raise InvalidArgument(
            f"queue {queue!r} has no put wait for room (overflow={overflow!r}), so that timeout "
            f"would have no effect: alter_queue({queue!r}, overflow='wait') has puts wait, or put "
            "without"
        )
