"""The health of a store's process, for probes: in words, without asking another process.

HP1. Neither waits for anything: a probe is answered while the store is busy, opens, or ends.
"""

from __future__ import annotations

from typing import Any, Protocol


class OwnedStore(Protocol):
    """A store that this process owns."""

    @property
    def failed(self) -> bool:
        """Return True if a write or sync has failed."""

    @property
    def unready(self) -> str:
        """The reason why others cannot work with the store as ever, in words; "": they can."""


def why_unhealthy(store: Any) -> str:
    """Return why the process had better be started anew; "": it had not.

    That is one whose store has failed. One that has no store open, or waits for another owner, is
    healthy.
    """
    owned = _owned(store)
    if owned is not None and owned.failed:
        return "a write or sync has failed: the store refuses commits"
    return ""


def why_unready(store: Any) -> str:
    """Return why work had better go elsewhere, or wait; "": it is welcome here.

    Welcome it is where this process owns the store, has recovered it, is not draining, and takes
    puts as the disk has room.
    """
    if store is None:
        return "no store is open here: it is being opened, or was closed"
    owned = _owned(store)
    if owned is None:
        return "another process owns the store, and this one waits"
    if owned.failed:
        return why_unhealthy(store)
    return owned.unready


def _owned(store: Any) -> OwnedStore | None:
    if store is None or store.role != "owner":
        return None
    found: OwnedStore = getattr(store, "owner", store)  # of one that was joined before
    return found
