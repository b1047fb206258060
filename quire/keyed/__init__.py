"""Keyed state: rows by key, of any size, which transactions read and change.

A keyed state is a queue of sorted runs beside a state of values that names them. It is made of the
calls that every program has, so every form of a store has it, and the engine knows nothing of it
(see docs/keyed.md).
"""

from .fragment_files import FragmentFiles
from .keyed_changes import KeyedChanges
from .keyed_state import KeyedState, open_state
from .keyed_status import KeyedStatus
from .merge_thread import MergeThread, merging
from .row_lookup import DueRows
from .run_output import WrittenRun
from .state_look import StateLook
from .store_check import verify
from .timer_mark import TimerMark

__all__ = [
    "DueRows",
    "FragmentFiles",
    "KeyedChanges",
    "KeyedState",
    "KeyedStatus",
    "MergeThread",
    "StateLook",
    "TimerMark",
    "WrittenRun",
    "merging",
    "open_state",
    "verify",
]
