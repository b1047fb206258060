"""A socket that is connected to the owner, or why there is none."""

from __future__ import annotations

import socket
from time import monotonic

from quire.calls.errand import current
from quire.errors import ConnectionLost
from quire.remote.limits import BACKLOG_PAUSE_SECONDS
from quire.remote.wire.address import Endpoint
from quire.remote.wire.sockets import connect

from . import waits
from .request_outcomes import OwnerEvent, RequestProgress
from .stream_inbox import StreamEnded, cancellation, reason_of


def connect_to_owner(place: Endpoint, seconds: float) -> socket.socket:
    """Raises StreamEnded. Where the system's line of those who wait is full, it is tried again."""
    deadline = monotonic() + seconds
    while True:
        try:
            if isinstance(place, str):
                return connect(place, seconds)
            return waits.offloaded(connect)(place, seconds)  # a name is looked up, keys agreed on
        except PermissionError:
            raise ConnectionLost(
                f"permission denied: this process may not use the socket {place}; a store is its "
                "user's alone, so run this as that user"
            ) from None
        except BlockingIOError as error:
            errand = current()
            if monotonic() > deadline or (errand is not None and errand.withdrawn):
                raise not_greeted(error, seconds) from None
            waits.pause(BACKLOG_PAUSE_SECONDS)
        except OSError as error:
            raise not_greeted(error, seconds) from None


def not_greeted(error: Exception, seconds: float) -> StreamEnded:
    if isinstance(error, TimeoutError | BlockingIOError):
        words = f"the owner does not answer, or is stopped: no answer within {seconds:.3g} seconds"
        return StreamEnded(words, RequestProgress.UNSENT, cancellation() or OwnerEvent.LATE)
    return StreamEnded(reason_of(error), RequestProgress.UNSENT, cancellation())
