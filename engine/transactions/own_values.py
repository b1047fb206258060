"""The values that an open transaction has read and sets (see `live_values`)."""

from __future__ import annotations

from collections.abc import Callable
from weakref import ReferenceType

from quire.arguments import check_state_bytes, state_bytes
from quire.engine.commits.pending_sections import ValuesSection
from quire.engine.live_state.engine_state import EngineState
from quire.engine.live_state.live_values import StateEntry
from quire.engine.records.key_values import StateKey, charge_of, to_value
from quire.engine.state.sections.values import Setting
from quire.journal import Journal
from quire.limits import MAX_STATE_CHANGE_BYTES


class OwnValues:
    """The values that an open transaction has read and sets. Used by one thread at a time."""

    def __init__(self, state: EngineState, most_bytes: int) -> None:
        """`most_bytes`: of all that it sets, as the journal has it."""
        self._state = state
        self._values = state.values
        self._most_bytes = most_bytes
        self._bytes = 0
        self._reads: dict[StateKey, StateEntry | None] = {}
        self.sets: dict[StateKey, Setting] = {}  # what is to be committed
        self._growth: dict[StateKey, tuple[int, int]] = {}  # bytes and keys more than there are
        # The same by name, as far as there are more: what is reserved.
        self._sums: dict[str, tuple[int, int]] = {}
        self.checks: list[ReferenceType[Callable[[], object]]] = []  # of who is to set more

    @classmethod
    def of(cls, state: EngineState, journal: Journal) -> OwnValues:
        """Return the values of a new transaction, with no more bytes than its record can hold."""
        return cls(state, min(MAX_STATE_CHANGE_BYTES, journal.max_group_bytes // 4))

    def get(self, name: str, key: str) -> bytes | None:
        """Return the value that it sets; else the one committed when it read this first."""
        own = self.sets.get((name, key))
        if own is not None:
            return own.value
        if (name, key) not in self._reads:
            self._reads[name, key] = self._values.find(name, key)
        found = self._reads[name, key]
        return None if found is None else to_value(found.entry.body["value"])

    def set(self, name: str, key: str, value: bytes | None) -> None:
        """Raises StateFull, InvalidArgument; then it sets what it did before."""
        where, one = (name, key), Setting(name, key, value)
        before = self.sets.get(where)
        size = self._bytes + state_bytes(*one) - (0 if before is None else state_bytes(*before))
        check_state_bytes(size, self._most_bytes)
        bytes_more, keys_more = self._growth_of(one)
        known_bytes, known_keys = self._growth.get(where, (0, 0))
        sums = self._sums.get(name, (0, 0))
        grown = sums[0] + bytes_more - known_bytes, sums[1] + keys_more - known_keys
        self._values.reserve(
            name, *(max(0, n) - max(0, b) for n, b in zip(grown, sums, strict=True))
        )
        self._growth[where] = bytes_more, keys_more
        self._sums[name] = grown
        self._bytes = size
        self.sets[where] = one

    def _growth_of(self, one: Setting) -> tuple[int, int]:
        """How many bytes and keys more there are by it, or fewer."""
        found = self._values.find(one.name, one.key)
        before = after = 0
        if found is not None:
            before = charge_of(one.key, len(to_value(found.entry.body["value"])))
        if one.value is not None:
            after = charge_of(one.key, len(one.value))
        return after - before, (after > 0) - (before > 0)

    def check(self) -> None:
        """Raise what refuses that the transaction ends now."""
        for each in self.checks:
            check = each()
            if check is not None:
                check()

    def section(self, xid: str | None = None) -> ValuesSection:
        """For the commit, or what is prepared."""
        sets = list(self.sets.values())
        return ValuesSection(self._values, self._reads, sets, xid)

    def end(self) -> None:
        """The transaction has ended; twice is once."""
        sums, self._sums = self._sums, {}
        for name, (size, keys) in sums.items():
            self._values.reserve(name, -max(0, size), -max(0, keys))
