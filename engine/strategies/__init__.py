"""Commit strategies: when a queue's space is checked, and against what. One module each.

Source: "Managing message queues" (JP 2008-547130), paragraphs 0062-0079. All keep promise 5: a
commit that has its journal record finds room for its commit records.
"""

from __future__ import annotations

from .lock_all import LockAll
from .reserve_at_open import ReserveAtOpen
from .reserve_mode import ReserveMode
from .reserve_mode_counted import ReserveModeCounted
from .strategy import Strategy, strategy_named

__all__ = [
    "LockAll",
    "ReserveAtOpen",
    "ReserveMode",
    "ReserveModeCounted",
    "Strategy",
    "strategy_named",
]
