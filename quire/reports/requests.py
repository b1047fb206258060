"""Reports of a session on its requests: plain values."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class RequestState(StrEnum):
    """The progress of a session's request. The letters are Bernstein's (001, 4.3)."""

    NOT_PUT = "not put"
    """A: it was never put, though perhaps begun. Put it (`submit`), or drop it (`withdraw`)."""
    PENDING = "pending"
    """B: it was put, and neither a reply nor the news of its failure is there."""
    ANSWERED = "answered"
    """C: a reply is in the reply queue: take it."""
    TAKEN = "taken"
    """D: its reply was taken."""
    FAILED = "failed"
    """Its server has answered with an error, or it is a dead letter; the reason tells."""
    EXPIRED = "expired"
    """It, or its reply, was not delivered in time."""
    WITHDRAWN = "withdrawn"
    """Its client has dropped it before anybody executed it."""
    FORGOTTEN = "forgotten"
    """It has ended long ago, or its client has forgotten it: what it was is not known any more."""


class RequestInfo(Struct, frozen=True):
    """A request of a session, as it was when asked."""

    number: int  # as `begin` gave it
    state: RequestState  # how far it is
    queue: str | None = None  # that it is for; None: nothing is known of it
    begun_us: int | None = None  # microseconds since the epoch
    ended_us: int | None = None  # when its reply was taken, or it was given up
    reason: str | None = None  # why it failed
    is_reported: bool = False  # the news of its end (its reply, a report) was taken
    payload: bytes | None = None  # of one that is not put


class SessionInfo(Struct, frozen=True):
    """A session, as it was when asked."""

    name: str  # under which it is opened
    epoch: int  # how often it was opened
    replies: str  # the queue that its replies come to
    last_begun: int  # numbers of requests; 0: none
    last_enqueued: int  # the one that was put last
    last_dequeued: int  # the one whose reply was taken last
    unfinished: list[int]  # the numbers of those that have not ended, in their order
    finished: int  # how many ended ones are remembered
