"""The handlers of the calls of an open store's subjects: one for each row.

Each subject's handlers are loaded and made when one of its calls is first made. They have parts of
the store and not the store itself, so that keeps them without a circle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from quire.calls.call_table import CallRow
from quire.engine.composition import Parts
from quire.libraries.late_imports import importing

from . import admin, cron, integration, listeners, values

if TYPE_CHECKING:
    from quire.engine.upkeep.shipping import Shipping


def _shipping(parts: Parts) -> Shipping:
    with importing():  # which few owners are asked for
        from quire.engine.upkeep.shipping import Shipping

    return Shipping(parts.opened, parts.context, parts.definitions, parts.checkpointer)


_MAKERS: Final[Mapping[str, Callable[[Parts], Any]]] = {
    "admin": lambda parts: admin.AdminHandlers(
        parts.opened,
        parts.context,
        parts.definitions,
        parts.types,
        parts.checkpointer,
        partial(_shipping, parts),
        lambda: parts.maintenance.last_error,
    ),
    "cron": lambda parts: cron.CronHandlers(parts.schedules, parts.maintenance),
    "delayed": lambda parts: values.DelayedHandlers(parts.context.state, parts.context.delivery),
    "states": lambda parts: values.StatesHandlers(parts.context.state, parts.definitions),
    "prepared": lambda parts: values.PreparedHandlers(
        parts.context.state, parts.opened.ownership.env.machine
    ),
    "listeners": lambda parts: listeners.ListenersHandlers(
        parts.context.state, parts.context.listening
    ),
    "integration": lambda parts: integration.IntegrationHandlers(
        parts.opened,
        parts.context,
        parts.leases,
        parts.maintenance,
        partial(_shipping, parts),
    ),
}


class CallHandlers:
    """The handlers of one open store, by subject."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._made: dict[str, Any] = {}

    def of(self, path: str) -> Any:
        """The handlers of a subject."""
        found = self._made.get(path)
        if found is None:
            found = self._made[path] = _MAKERS[path](self._parts)
        return found

    def handle(self, row: CallRow, arguments: Mapping[str, Any]) -> Any:
        """Return what the call returns; what is left out of its arguments has its default."""
        handler = getattr(self.of(row.path), row.name)
        return handler(**{**row.arguments().defaults, **arguments})
