"""The policy of a store object that lives on while owners come and go (`quire.open`).

It asks the owner over a session, until that ends; then the next owner's, or the store itself, owned
by this process: an owned store is lost to nobody.

- The watch, a thread, learns that the owner is gone, and elects (`election`), whether or not
  anybody calls. A call that finds the owner gone waits for it, `HAND_OVER_SECONDS` at most.
- What becomes of a call whose request is not answered, the table of `request_outcomes` says. Here
  its events are found.
- ES5: whether the next owner is the same one is told by its epoch (OU2).
- Who joins begins without the engine, most of the time of a process that begins. Who stays loads it
  later, for the day on which it owns the store: at a time that is drawn, so that processes which
  joined together do not all do it at once.
- In a process that was forked nothing is elected: the store object stays its parent's.
- An owner that is there and does not answer is waited for in its channels (CH4), and no longer: it
  has the lock, so nobody takes over, and the call raises.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from quire.calls.errand import current
from quire.calls.signal_safety import defer_signals
from quire.calls.wake_up import Thread, WakeUp
from quire.env.interpreter import Lock
from quire.errors import (
    ConnectionLost,
    NotAllowed,
    OutcomeUnknown,
    QuireError,
    RemoteError,
    StoreClosed,
    TransactionNotFound,
)
from quire.limits import (
    ANSWER_SECONDS,
    CANCEL_SECONDS,
    CANDIDATE_PAUSE_SECONDS,
    HAND_OVER_SECONDS,
    LONGEST_PAUSE_SECONDS,
)
from quire.remote.client.connection import OwnerConnection
from quire.remote.client.fail_over import NOBODY, CallOwner, FailOver, LostCall
from quire.remote.client.owner_session import OwnerSession
from quire.remote.client.request_outcomes import (
    OwnerEvent,
    Request,
    RequestAction,
    RequestProgress,
    action_of,
    further,
    progress_of,
    waits_for_owner,
)
from quire.remote.client.waits import ClientCondition
from quire.remote.limits import REFUSED_RECONNECT_SECONDS

if TYPE_CHECKING:
    from quire.remote.client.network_owner import NetworkOwner

    from .election import Election
    from .shared_store import SharedStore

_CLOSED: Final = "this store object was closed: open the store again"


class Succession(FailOver):
    """Finds the next owner when the owner ends, or makes this process the owner. Thread-safe."""

    finds_owners = True

    def __init__(self, election: Election | NetworkOwner, session: OwnerSession) -> None:
        super().__init__(session)
        self._election = election
        self._take_over: Callable[[], Callable[[Any], None] | None] = lambda: None
        self._changed = ClientCondition(Lock())
        self._closed = False
        self._closing = WakeUp()
        self._trouble: Exception | None = None  # why this process cannot own the store
        self._watch = Thread(
            target=_watch,
            args=(weakref.ref(self), session.connection, election),
            name="quire-elect",
        )

    def begin(self, take_over: weakref.WeakMethod[Callable[[Any], None]]) -> None:
        """Begin the watch, which keeps nobody from dropping the store object."""
        self._take_over = take_over
        self._watch.start()

    def check_usable(self) -> None:
        """Raises StoreClosed once it was closed."""
        if self._closed:
            raise StoreClosed(_CLOSED)
        if not self.usable:
            self.owner.check_usable()  # which says why

    def close(self) -> None:
        """Let go of the store, and end the watch."""
        if self.process_id != os.getpid():  # the locks here may be held by threads that are not
            self.owner.close()
            return
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._closing.set()
        self.owner.close()  # all of this may be done again, if it was interrupted
        if self._watch is not threading.current_thread():
            self._watch.join()  # it may be recovering the store, and lets go of it then

    def resolve(
        self,
        request: Request,
        owner: CallOwner,
        error: QuireError,
        before: LostCall | None,
        transaction_id: int | None = None,
    ) -> LostCall:
        """Wait for the next owner, if that is to be asked. Raises what the call raises if not.

        A request of the call that may have taken effect before still may (OU1).
        """
        progress = self._progress_of(owner, error)
        since = time.monotonic()
        worst = error
        if before is not None:
            since = before.since
            progress = further(before.progress, progress)
            worst = before.error if progress is before.progress else error
        if not isinstance(owner, OwnerSession):
            raise worst  # this process owns it, and closes it
        event = self._find_event(request, progress, owner, error, since)
        action = action_of(request, progress, event)
        if action in (RequestAction.REPEAT, RequestAction.LOOK_UP):
            return LostCall(worst, progress, action, since)
        if action is RequestAction.NOT_FOUND:
            if transaction_id is None:  # of the owner itself
                raise ConnectionLost(
                    "the owner of the store has ended, and the next one was not asked"
                )
            raise TransactionNotFound(
                f"transaction {transaction_id} is not open any more: the owner of the store "
                "has ended, and its open transactions were rolled back"
            )
        if action is RequestAction.STORE_CLOSED and event is OwnerEvent.CLOSED:
            raise StoreClosed(_CLOSED)
        if action is RequestAction.CONNECTION_LOST and event in (
            OwnerEvent.NO_OWNER,
            OwnerEvent.CANCELLED,
        ):
            if self._trouble is not None:
                raise self._trouble
            if isinstance(worst, StoreClosed):
                raise ConnectionLost(NOBODY)
        raise worst

    def action_for(
        self, request: Request, session: OwnerSession, error: QuireError
    ) -> RequestAction:
        """Return the action for a request that was lost with this error, once it can be done."""
        progress = self._progress_of(session, error)
        event = self._find_event(request, progress, session, error, time.monotonic())
        return action_of(request, progress, event)

    def _progress_of(self, owner: CallOwner, error: QuireError) -> RequestProgress:
        usable = self.usable
        goes_on = usable and isinstance(owner, OwnerSession) and not owner.connection.lost
        return progress_of(error, is_usable=usable, goes_on=goes_on)

    def _find_event(
        self,
        request: Request,
        progress: RequestProgress,
        session: OwnerSession,
        error: QuireError,
        since: float,
    ) -> OwnerEvent:
        """Find what has happened; where the action depends on the next owner, wait for that."""
        if self.process_id != os.getpid():
            return OwnerEvent.FORKED
        if isinstance(error, StoreClosed) and self.usable:  # by its owner, which is closing (OU3)
            session.connection.lose("it is closing the store")
        if isinstance(error, RemoteError) and error.late:
            return OwnerEvent.CANCELLED if _is_withdrawn() else OwnerEvent.LATE
        is_answer = progress is RequestProgress.FAILED and isinstance(error, OutcomeUnknown)
        if is_answer or not waits_for_owner(request, progress):
            return (
                OwnerEvent.CLOSED if self._closed else OwnerEvent.SAME_OWNER
            )  # as well as any other
        return self._find_next(session, since)

    def _find_next(self, lost: OwnerSession, since: float) -> OwnerEvent:
        """Wait until there is another owner than this one, which has been lost since then."""
        left = max(0.0, since + HAND_OVER_SECONDS - time.monotonic())
        defer_signals(self._wait_for_another, lost, left)
        with self._changed:
            found, is_closed = self.owner, self._closed
        if is_closed:
            return OwnerEvent.CLOSED
        if found is lost:
            return OwnerEvent.CANCELLED if _is_withdrawn() else OwnerEvent.NO_OWNER
        if not isinstance(found, OwnerSession):
            return OwnerEvent.OWN
        is_same = found.connection.epoch == lost.connection.epoch  # (ES5)
        return OwnerEvent.SAME_OWNER if is_same else OwnerEvent.NEXT_OWNER

    @property
    def usable(self) -> bool:
        """True if it is open, in the process that opened it."""
        return not self._closed and self.process_id == os.getpid()

    def _wait_for_another(self, lost: CallOwner, seconds: float) -> None:
        until, errand = time.monotonic() + seconds, current()
        if errand is not None:
            until = min(until, errand.until + ANSWER_SECONDS)
        with self._changed:
            while not (self._closed or self._trouble is not None or self.owner is not lost):
                left = until - time.monotonic()
                if left <= 0 or (errand is not None and errand.withdrawn):
                    break
                # Who may give it up does not know this lock.
                self._changed.wait(left if errand is None else min(left, CANCEL_SECONDS))

    def find_next_owner(self) -> OwnerConnection | None:
        """The owner is gone: own the store, or join who does. Called by the watch alone.

        The connection to the next one; None if there is nothing more to watch.
        """
        lost = self.owner
        assert isinstance(lost, OwnerSession)
        found = self._elect() if lost.connection.lost else None
        if found is None:
            return None
        if self.temporary:  # before the owner takes them for left behind
            with suppress(QuireError):  # it is gone, too: the next one is asked
                found.claim(sorted(self.temporary))
        with self._changed:
            if not self._closed:
                self.owner, self._trouble = found, None
                if not isinstance(found, OwnerSession) and (take_over := self._take_over()):
                    take_over(found)
                self._changed.notify_all()
        lost.close()
        if self._closed:
            found.close()
            return None
        return found.connection if isinstance(found, OwnerSession) else None

    def _elect(self) -> SharedStore | OwnerSession | None:
        """The next owner's store; None if this store object was closed meanwhile."""
        candidate_pause = CANDIDATE_PAUSE_SECONDS
        while not self._closed:
            pause = self._election.pause_seconds
            try:
                found = self._election.succeed()
                if found is not None:
                    return found
            except (QuireError, OSError, RuntimeError) as error:  # no thread starts at the very end
                # Longer each time, as every process may see the same; a user may be let in again.
                is_refused = isinstance(error, NotAllowed)
                most = REFUSED_RECONNECT_SECONDS if is_refused else LONGEST_PAUSE_SECONDS
                pause = min(candidate_pause, most)
                candidate_pause = 2 * pause
                with self._changed:
                    self._trouble = error
                    self._changed.notify_all()
            self._closing.wait(pause)
        return None


def _is_withdrawn() -> bool:
    """Return True if nobody waits for this thread's call any more."""
    errand = current()
    return errand is not None and errand.withdrawn


def _watch(
    reference: weakref.ref[Succession],
    connection: OwnerConnection | None,
    election: Election | NetworkOwner,
) -> None:
    """The thread behind a store object; it does not keep it from being dropped."""
    while connection is not None:
        if not connection.wait_for_end(election.preparation_seconds):
            election.prepare()  # not only when the owner ends: it may be another release's by then
            connection.wait_for_end()
        policy = reference()
        connection = None if policy is None else policy.find_next_owner()
        del policy
