"""The states of the store of this process: see `quire.interface.namespaces.states`."""

from __future__ import annotations

from quire.arguments import check_state_key, check_state_name
from quire.calls.documented import documented_by
from quire.engine.opening import open_call
from quire.interface.namespaces import States

from .namespace import EmbeddedNamespace


@documented_by(States)
class EmbeddedStates(EmbeddedNamespace):
    """Of an `EmbeddedStore`."""

    @open_call
    def get(self, name: str, key: str) -> bytes | None:
        return self._state().values.value(check_state_name(name), check_state_key(key))

    @open_call
    def items(self, name: str) -> dict[str, bytes]:
        return self._state().values.items(check_state_name(name))

    @open_call
    def names(self) -> list[str]:
        return self._state().values.names()

    @open_call
    def drop(self, name: str) -> int:
        return self._of._definitions.drop_state(check_state_name(name))
