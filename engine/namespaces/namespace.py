"""What the namespaces of an embedded store have in common."""

from __future__ import annotations

from quire.engine.live_state.live_state import State
from quire.engine.opening import StoreLife
from quire.interface.single_calls import Namespace


class EmbeddedNamespace(Namespace):
    """Made anew whenever it is asked for: so it keeps its store from ending, and nothing else."""

    __slots__ = ()
    _of: StoreLife

    def _state(self) -> State:
        return self._of._state()
