"""A data manager of the package `transaction` in which the process kills itself."""

from __future__ import annotations

import os
import signal
from typing import Final

__all__ = ["Killer"]


class Killer:
    """It sorts by `key` among the others, and dies when it is called `call`."""

    transaction_manager = None

    def __init__(self, call: str, key: str) -> None:
        self._call: Final = call
        self._key: Final = key

    def sortKey(self) -> str:  # noqa: N802 - the name that the package calls
        return self._key

    def abort(self, transaction: object) -> None:
        self._called("abort")

    def tpc_begin(self, transaction: object) -> None:
        self._called("tpc_begin")

    def commit(self, transaction: object) -> None:
        self._called("commit")

    def tpc_vote(self, transaction: object) -> None:
        self._called("tpc_vote")

    def tpc_finish(self, transaction: object) -> None:
        self._called("tpc_finish")

    def tpc_abort(self, transaction: object) -> None:
        self._called("tpc_abort")

    def _called(self, name: str) -> None:
        if name == self._call:
            os.kill(os.getpid(), signal.SIGKILL)
