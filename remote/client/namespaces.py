"""What a store that is not this process's has by subject: calls that are made by their rows.

The store object behind makes them: a joined one asks its owner, one that lives on asks whichever
owner there is. Methods that are written here are those that need more than that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from quire.calls.call_table import CallRow, Makes, by_row, filled
from quire.calls.documented import documented_by
from quire.interface.integration import Integration
from quire.interface.namespaces import Admin, Cron, Delayed, Listeners, Prepared, States
from quire.interface.redriving import Redrives
from quire.interface.single_calls import (
    AdminCalls,
    DelayedCalls,
    IntegrationCalls,
    ListenersCalls,
    Namespace,
    Namespaces,
    SingleCalls,
)
from quire.interface.starts import Start, starts_given
from quire.interface.store import Store
from quire.reports.info import SubscriptionInfo


class Elsewhere(Makes, Protocol):
    """A store object, as far as it is needed here."""

    _store_id: int

    def decide(self, xid: str, *, commit: bool) -> None:
        """What becomes of a prepared transaction."""

    def make_subscriptions(
        self,
        subscription: str | None,
        starts: Mapping[str, Start],
        exclusive: bool | None,
        durable: bool | None,
        where: str | None,
    ) -> list[SubscriptionInfo]:
        """See `Integration.subscribe_many`: what is not durable ends with the store object."""

    def await_source(self, source: str, callback: Callable[[], None]) -> Callable[[], None]:
        """See `Integration.when_ready`."""


class Made(Namespace):
    """Whose calls its store makes."""

    __slots__ = ()
    _of: Elsewhere

    def make(self, row: CallRow, given: Mapping[str, Any]) -> Any:
        return self._of.make(row, given)


@filled(Admin, "admin")
class MadeAdmin(Made, AdminCalls):
    """See `Admin`."""

    create_queues = by_row(Admin.create_queues, "admin")


@filled(Cron, "cron")
class MadeCron(Made):
    """See `Cron`."""


@filled(Delayed, "delayed")
class MadeDelayed(Made, DelayedCalls):
    """See `Delayed`."""


@filled(States, "states")
class MadeStates(Made):
    """See `States`."""


@documented_by(Prepared)
@filled(Prepared, "prepared")
class MadePrepared(Made):
    """See `Prepared`."""

    def commit(self, xid: str) -> None:
        self._of.decide(xid, commit=True)

    def rollback(self, xid: str) -> None:
        self._of.decide(xid, commit=False)


@filled(Listeners, "listeners")
class MadeListeners(Made, ListenersCalls):
    """See `Listeners`."""


@documented_by(Integration)
@filled(Integration, "integration")
class MadeIntegration(Made, IntegrationCalls):
    """See `Integration`."""

    @property
    def store_id(self) -> int:
        return self._of._store_id

    def subscribe_many(
        self,
        subscription: str | None,
        starts: Mapping[str, Start],
        exclusive: bool | None = None,
        durable: bool | None = None,
        where: str | None = None,
    ) -> list[SubscriptionInfo]:
        given = starts_given(subscription, starts)
        return self._of.make_subscriptions(subscription, given, exclusive, durable, where)

    def when_ready(self, source: str, callback: Callable[[], None]) -> Callable[[], None]:
        return self._of.await_source(source, callback)


# What is filled in mypy does not see: a test compares it with the interfaces.
_MADE: Any = (
    MadeAdmin, MadeCron, MadeDelayed, MadeStates, MadePrepared, MadeListeners, MadeIntegration,
)  # fmt: skip
MADE = Namespaces(*_MADE)


@documented_by(Store)
class MadeStore(SingleCalls):
    """The calls of a store itself that are made so, for each kind of store object."""

    _namespaces = MADE

    alter_queue = by_row(Store.alter_queue)
    drop_queue = by_row(Store.drop_queue)
    queues = by_row(Store.queues)
    subscriptions = by_row(Store.subscriptions)
    unsubscribe = by_row(Store.unsubscribe)
    sync = by_row(Store.sync)
    browse = by_row(Store.browse)
    status = by_row(Store.status)
    put_back = by_row(Redrives.put_back)
