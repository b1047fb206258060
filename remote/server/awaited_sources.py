"""The sources that a client awaits messages of, at the owner: waiting that takes no thread."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from quire.errors import QuireError, RemoteError
from quire.interface.store import Store
from quire.remote.limits import MAX_AWAITED


class AwaitedSources:
    """The sources that the client of one connection awaits."""

    def __init__(self, store: Store, ready: Callable[[str], None]) -> None:
        """`ready` is told a source, from any thread, and does not wait."""
        self._store = store
        self._ready = ready
        self._awaited: set[str] = set()  # until they are ready
        self._withdraw: dict[str, Callable[[], None]] = {}  # by source, perhaps ready already

    def __bool__(self) -> bool:
        """True if a source is awaited that is not ready yet."""
        return bool(self._awaited)

    def add(self, source: str) -> None:
        """Tell the client when something may be got from the source (PR5)."""
        if source in self._awaited:
            return
        if len(self._withdraw) >= MAX_AWAITED:
            self._withdraw = {s: w for s, w in self._withdraw.items() if s in self._awaited}
            if len(self._withdraw) >= MAX_AWAITED:
                raise RemoteError(f"a connection awaits {MAX_AWAITED} sources, as many as it may")
        self._awaited.add(source)
        tell = partial(self._tell, source)
        try:
            self._withdraw[source] = self._store.integration.when_ready(source, tell)
        except QuireError:  # the get that follows finds it out
            tell()

    def _tell(self, source: str) -> None:
        """Report a source that is ready. Called from any thread, under a queue's lock."""
        self._awaited.discard(source)
        self._ready(source)

    def close(self) -> None:
        """The connection has ended."""
        while self._withdraw:
            self._withdraw.popitem()[1]()
