"""The policy of a joined store object for requests that its owner leaves without an answer.

A call asks the owner that there is; where that raises one of `UNANSWERED`, the policy decides by
the table of `request_outcomes`: the call is made again, with the owner that there is then, its
outcome is looked up there, or the error is raised.

`FailOver` is the policy of a store object that goes to no other owner (LAST_OWNER): the session has
decided by the table already, so each error is raised as it is. `quire.remote.ownership.succession`
has the policy that finds the next owner, or makes this process the owner.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any, Final, Protocol, Unpack

from quire.errors import QuireError
from quire.interface.integration import CallTarget
from quire.interface.transaction import Payload, Transaction
from quire.messages.put_options import StorePutOptions
from quire.moments import Duration

from .request_outcomes import Request, RequestAction, RequestProgress

NOBODY: Final = (
    "the owner of the store has closed it, and nobody has taken over in time; nothing of this "
    "operation took effect: try again later"
)


class CallOwner(CallTarget, Protocol):
    """The maker of a store object's calls: a session with the owner, or the store itself."""

    @property
    def role(self) -> str:
        """As `Store.role`."""

    @property
    def failed(self) -> bool:
        """As `Store.failed`."""

    def check_usable(self) -> None:
        """Raises StoreClosed once it was closed."""

    def transaction(
        self,
        timeout: Duration | None = None,
        large: bool = False,
        owner: str | None = None,
        durable: bool = True,
    ) -> Transaction:
        """As `Store.transaction`."""

    def put(self, queue: str, payload: Payload, **options: Unpack[StorePutOptions]) -> int:
        """As `Store.put`."""

    def close(self) -> None:
        """End what is open, and let go of the store."""


class LostCall:
    """A call that is to go on with another owner."""

    __slots__ = ("action", "error", "progress", "since")

    def __init__(
        self, error: QuireError, progress: RequestProgress, action: RequestAction, since: float
    ) -> None:
        self.error = error  # of the request that came furthest
        self.progress = progress
        self.action = action
        self.since = since  # it has had no owner


class FailOver:
    """The policy of a store object, and the owner that it has. This one goes to no other owner."""

    finds_owners = False  # a call can go on, and its outcome be looked up

    def __init__(self, owner: CallOwner) -> None:
        self.owner = owner
        self.process_id: Final = os.getpid()
        # Subscriptions, queue and name, that end with the store object, at whichever owner.
        self.temporary: set[tuple[str, str]] = set()

    def begin(self, take_over: weakref.WeakMethod[Callable[[Any], None]]) -> None:
        """Begin to watch the owner. `take_over`: told of the store once this process owns it."""

    def check_usable(self) -> None:
        """Raises StoreClosed once it was closed."""
        self.owner.check_usable()

    def resolve(
        self,
        request: Request,
        owner: CallOwner,
        error: QuireError,
        before: LostCall | None,
        transaction_id: int | None = None,
    ) -> LostCall:
        """Return how the call goes on, once it can. Raises what the call raises if it does not.

        `owner`: who was asked. `before`: the call as it was lost before.
        """
        raise error

    def action_for(self, request: Request, session: Any, error: QuireError) -> RequestAction:
        """Return the action for a request that was lost with this error, once it can be done."""
        return RequestAction.ANSWER

    def close(self) -> None:
        """Let go of the store, whichever way it is held."""
        self.owner.close()
