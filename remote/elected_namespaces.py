"""What a store object that lives on has by subject: each call is tried, owner after owner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from quire.call_table import Call, call_of
from quire.info import SubscriptionInfo
from quire.single_calls import (
    AdminCalls,
    DelayedCalls,
    IntegrationCalls,
    Namespace,
    Namespaces,
)
from quire.starts import Start, starts_given

from .joined_namespaces import filled

P = ParamSpec("P")
R = TypeVar("R")


class Attempts(Protocol):
    """A store object that lives on, or a part of one."""

    def attempt(self, row: Call, given: Mapping[str, Any]) -> Any:
        """What a call gives, which is made twice if its row says so."""


def tried(
    method: Callable[Concatenate[Any, P], R], path: str = ""
) -> Callable[Concatenate[Any, P], R]:
    """A method that is made at the owner, whoever that is."""
    row = call_of(method, path)

    @wraps(method)
    def attempt(self: Attempts, /, *args: P.args, **kwargs: P.kwargs) -> R:
        found: R = self.attempt(row, row.given(args, kwargs))
        return found

    return attempt


class Elected(Namespace):
    """Of an `ElectedStore`."""

    __slots__ = ()

    def attempt(self, row: Call, given: Mapping[str, Any]) -> Any:
        return self._of.attempt(row, given)


@filled("admin", tried)
class ElectedAdmin(Elected, AdminCalls):
    """See `Admin`."""


@filled("cron", tried)
class ElectedCron(Elected):
    """See `Cron`."""


@filled("delayed", tried)
class ElectedDelayed(Elected, DelayedCalls):
    """See `Delayed`."""


@filled("states", tried)
class ElectedStates(Elected):
    """See `States`."""


@filled("prepared", tried)
class ElectedPrepared(Elected):
    """See `Prepared`."""

    def commit(self, xid: str) -> None:
        self._of.decide(xid, lambda store: store.prepared.commit(xid))

    def rollback(self, xid: str) -> None:
        self._of.decide(xid, lambda store: store.prepared.rollback(xid))


@filled("integration", tried)
class ElectedIntegration(Elected, IntegrationCalls):
    """See `Integration`."""

    @property
    def store_id(self) -> int:
        """A number of 64 bits, drawn when the store was made."""
        number: int = self._of._store_id
        return number

    def subscribe_many(
        self,
        subscription: str | None,
        starts: Mapping[str, Start],
        exclusive: bool = False,
        durable: bool = True,
    ) -> list[SubscriptionInfo]:
        given = starts_given(subscription, starts)

        def subscribe(store: Any) -> list[SubscriptionInfo]:
            made: list[SubscriptionInfo] = store.integration.subscribe_many(
                subscription, given, exclusive, durable
            )
            return made

        found: list[SubscriptionInfo] = (
            self._of.again(subscribe) if durable else self._of.hold(subscription, given, subscribe)
        )
        return found

    def when_ready(self, source: str, callback: Callable[[], None]) -> Callable[[], None]:
        withdraw: Callable[[], None] = self._of.again(
            lambda store: store.integration.when_ready(source, callback)
        )
        return withdraw


# What is filled in mypy does not see: a test compares it with the interfaces.
_MADE: Any = (
    ElectedAdmin, ElectedCron, ElectedDelayed, ElectedStates, ElectedPrepared, ElectedIntegration
)  # fmt: skip
ELECTED = Namespaces(*_MADE)
