"""The states in which Quire keeps something of its own, by the kinds of names that users know.

A session, a listener's registration and a graph are kept in states. The right on them is the right
on what they are, so that no name of a state has to be known, and none is a way around it.
"""

from __future__ import annotations

from typing import Final

from quire.interface.listening import STATE as LISTENERS
from quire.interface.sessions.session_opening import PREFIX as SESSION_STATES
from quire.interface.sessions.session_opening import SESSIONS

from .users_document import NameKind

GRAPH_STATES: Final = "graph."  # of `quire.graphs`, which stands above this package
STEP_STATES: Final = ".step."
_BY_KEY: Final = {LISTENERS: NameKind.LISTENER, SESSIONS: NameKind.SESSION}
_ALL: Final = "*"


def is_by_key(state: str) -> bool:
    """Return True if each key of the state is a name of its own."""
    return state in _BY_KEY


def name_of_state(state: str, key: str | None = None) -> tuple[NameKind, str]:
    """Return what a state, or one of its keys, belongs to; without the key all of such a kind."""
    kind = _BY_KEY.get(state)
    if kind is not None:
        return kind, _ALL if key is None else key
    if state.startswith(SESSION_STATES):
        return NameKind.SESSION, state.removeprefix(SESSION_STATES)
    if state.startswith(GRAPH_STATES):
        return NameKind.GRAPH, state.removeprefix(GRAPH_STATES).partition(STEP_STATES)[0]
    return NameKind.STATE, state
