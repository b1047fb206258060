"""What a journal asks and tells those that it writes for."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final, NamedTuple


def _nothing(*_: str) -> None:
    """Nobody is to be told."""


class Hooks(NamedTuple):
    """What a journal asks and tells those that it writes for."""

    # How many bytes of groups may come before it is asked again; raises DiskFull. A group of
    # one page counts by some times what is in it: nothing is to be kept for the rest of a page.
    admit: Callable[[], int] = lambda: sys.maxsize
    # Called before a group is not synced, and once all are (J10); must not raise.
    before_unsynced: Callable[[], None] = _nothing
    after_sync: Callable[[], None] = _nothing
    # Called with the path of each next segment, before anything is written there.
    before_segment: Callable[[str], None] = _nothing


NO_HOOKS: Final = Hooks()
