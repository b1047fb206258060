"""What a joined store has by subject: each call asked of the owner, as its row says.

Methods that are written here are those that need more than that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from quire.call_table import Call, call_of, calls_of
from quire.info import SubscriptionInfo
from quire.single_calls import (
    AdminCalls,
    DelayedCalls,
    IntegrationCalls,
    Namespace,
    Namespaces,
)
from quire.starts import Start, starts_given

from .calls import NAMESPACES
from .protocol import Decision

P = ParamSpec("P")
R = TypeVar("R")
Class = TypeVar("Class", bound=type)


class Asks(Protocol):
    """A joined store, or a part of one."""

    def ask(self, row: Call, given: Mapping[str, object]) -> Any:
        """What the owner answers to a call."""


def asked(
    method: Callable[Concatenate[Any, P], R], path: str = ""
) -> Callable[Concatenate[Any, P], R]:
    """A method that has the owner make the call."""
    row = call_of(method, path)

    @wraps(method)
    def ask(self: Asks, /, *args: P.args, **kwargs: P.kwargs) -> R:
        found: R = self.ask(row, row.given(args, kwargs))
        return found

    return ask


def delivering(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """A step of a transaction that brings messages, which are given back if they do not arrive."""
    row = call_of(method)

    @wraps(method)
    def take(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        found: R = self.take(row, row.given(args, kwargs))
        return found

    return take


def filled(
    path: str, made: Callable[[Callable[..., Any], str], Callable[..., Any]]
) -> Callable[[Class], Class]:
    """A decorator: a namespace has each row of its interface that is not written in its class."""

    def fill(own: Class) -> Class:
        interface = NAMESPACES[path]
        for row in calls_of(interface, path):
            if row.name not in vars(own):
                setattr(own, row.name, made(row.method, path))
        for name, method in vars(interface).items():
            found = getattr(own, name, None)
            if callable(found) and not name.startswith("_") and not found.__doc__:
                found.__doc__ = method.__doc__
        return own

    return fill


class Joined(Namespace):
    """Of a `RemoteStore`."""

    __slots__ = ()

    def ask(self, row: Call, given: Mapping[str, object]) -> Any:
        return self._of.ask(row, given)


@filled("admin", asked)
class JoinedAdmin(Joined, AdminCalls):
    """See `Admin`."""


@filled("cron", asked)
class JoinedCron(Joined):
    """See `Cron`."""


@filled("delayed", asked)
class JoinedDelayed(Joined, DelayedCalls):
    """See `Delayed`."""


@filled("states", asked)
class JoinedStates(Joined):
    """See `States`."""


@filled("prepared", asked)
class JoinedPrepared(Joined):
    """See `Prepared`."""

    def commit(self, xid: str) -> None:
        self._of.decide(Decision.COMMIT, xid)

    def rollback(self, xid: str) -> None:
        self._of.decide(Decision.ROLLBACK, xid)


@filled("integration", asked)
class JoinedIntegration(Joined, IntegrationCalls):
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
        found: list[SubscriptionInfo] = self._of.make_subscriptions(
            subscription, given, exclusive, durable
        )
        return found

    def when_ready(self, source: str, callback: Callable[[], None]) -> Callable[[], None]:
        withdraw: Callable[[], None] = self._of.await_source(source, callback)
        return withdraw


# What is filled in mypy does not see: a test compares it with the interfaces.
_MADE: Any = (
    JoinedAdmin, JoinedCron, JoinedDelayed, JoinedStates, JoinedPrepared, JoinedIntegration
)  # fmt: skip
JOINED = Namespaces(*_MADE)
