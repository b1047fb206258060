"""What is prepared in the store of this process: see `quire.interface.namespaces.prepared`."""

from __future__ import annotations

import builtins

from quire.arguments import check_xid
from quire.calls.documented import documented_by
from quire.engine.opening import open_call
from quire.interface.namespaces import Prepared
from quire.reports.info import PreparedInfo

from .namespace import EmbeddedNamespace


@documented_by(Prepared)
class EmbeddedPrepared(EmbeddedNamespace):
    """Of an `EmbeddedStore`."""

    @open_call
    def list(self) -> builtins.list[PreparedInfo]:
        return self._state().prepared.info(self._of._env.now_us())

    @open_call
    def commit(self, xid: str) -> None:
        self._of._committer.decide(check_xid(xid), commit=True)

    @open_call
    def rollback(self, xid: str) -> None:
        self._of._committer.decide(check_xid(xid), commit=False)
