"""Clients that were not let in, by their address: slowed down, and logged once a minute.

WT1. Of an address from which `FREE_REFUSALS` clients were refused in a minute, each further client
    waits `REFUSED_PAUSE_SECONDS` before its handshake begins, for the rest of that minute. Nobody
    is locked out by it: others may come from the same address.
WT2. The log has the first refusal of an address at once, and each minute how many more there were.
WT3. No more than `MAX_REFUSED_ADDRESSES` are remembered: with more, those of the oldest go.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Final

from quire.env.interpreter import Lock
from quire.remote.limits import (
    FREE_REFUSALS,
    MAX_REFUSED_ADDRESSES,
    REFUSALS_SECONDS,
    REFUSED_PAUSE_SECONDS,
)

_log = logging.getLogger("quire.remote")


class _RefusedAddress:
    """The refusals of one address in the minute that began with the first of them."""

    __slots__ = ("began", "count")

    def __init__(self, began: float) -> None:
        self.began: Final = began
        self.count = 0


class Refusals:
    """The refusals of all addresses. Thread-safe; times are those of a monotonic clock."""

    def __init__(self) -> None:
        self._guard = Lock()
        self._by_address: OrderedDict[str, _RefusedAddress] = OrderedDict()

    def note(self, address: str, now: float, why: str) -> None:
        """A client at the address was refused."""
        with self._guard:
            found = self._by_address.get(address)
            if found is None:
                found = self._by_address[address] = _RefusedAddress(now)
                if len(self._by_address) > MAX_REFUSED_ADDRESSES:
                    self._forget(*self._by_address.popitem(last=False))
            found.count += 1
            is_first = found.count == 1
        if is_first:
            _log.warning("a client at %s is refused: %s", address, why)

    def pause_of(self, address: str) -> float:
        """Return the seconds that a client at the address waits for its handshake (WT1)."""
        with self._guard:
            found = self._by_address.get(address)
        return REFUSED_PAUSE_SECONDS if found and found.count >= FREE_REFUSALS else 0.0

    def look(self, now: float) -> None:
        """Forget what is a minute ago (WT2)."""
        with self._guard:
            while self._by_address:
                address, found = next(iter(self._by_address.items()))
                if found.began + REFUSALS_SECONDS > now:
                    break
                del self._by_address[address]
                self._forget(address, found)

    def _forget(self, address: str, found: _RefusedAddress) -> None:
        if found.count > 1:
            _log.warning("%d more clients at %s were refused", found.count - 1, address)
