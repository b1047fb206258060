"""What a store calls on behalf of its users: checked when it is given, and kept from doing harm.

It is called in the midst of other threads' commits. What it raises is logged (`quire.callbacks`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from quire.errors import InvalidArgument
from quire.loggers import log_failure, logger

_log: Final = logger("quire.callbacks")


def check_callback(callback: Callable[[], None]) -> Callable[[], None]:
    """The callback, of which nothing is raised. Raises InvalidArgument for what is no function."""
    if not callable(callback):
        raise InvalidArgument(f"callback {callback!r:.100}: give a function without arguments")

    def call() -> None:
        try:
            callback()
        except BaseException as error:  # noqa: BLE001 - of somebody else's code; it is logged
            log_failure(_log, error, "a callback of when_ready failed: %.200r", callback)

    return call
