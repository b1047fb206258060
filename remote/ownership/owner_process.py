"""A process of its own that owns a store for as long as others need it.

Starting one is safe however many processes try at once: the store's lock decides which of the
started owners stays, and the others end.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from quire.env import Env

from .started_process import StartedProcess

LOG_NAME: Final = "serve.log"
LOCKED_EXIT_STATUS: Final = 75  # of `quire serve`: another process owns the store


class OwnerProcess(StartedProcess):
    """A started `quire serve`, detached from this process; `further`: more of its options."""

    def __init__(
        self,
        env: Env,
        path: str,
        linger: float,
        *,
        create: bool = True,
        further: Sequence[str] = (),
    ) -> None:
        arguments = ["quire", "serve", os.path.abspath(path), "--no-wait"]
        arguments += ["--linger", str(linger), *further]
        if not create:
            arguments.append("--no-create")
        super().__init__(env, path, arguments, LOG_NAME)

    @property
    def has_failed(self) -> bool:
        """True if it ended by an error: not by a signal, nor because another owns the store."""
        return self.status > 0 and self.status != LOCKED_EXIT_STATUS
