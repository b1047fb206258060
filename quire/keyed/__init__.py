"""Keyed state: rows by key, of any size, which transactions read and change.

A keyed state is a queue of sorted runs beside a state of values that names them. It is made of the
calls that every program has, so every form of a store has it, and the engine knows nothing of it
(see docs/keyed.md).
"""

from .keyed_changes import KeyedChanges
from .keyed_state import KeyedState, open_state

__all__ = ["KeyedChanges", "KeyedState", "open_state"]
