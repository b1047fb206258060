"""State, as an open store has it: values by name and key that transactions set and get.

- KV1: who looks at a whole name sees it between two commits.
- What a transaction has read of it is as it was when the transaction commits: else that is refused
  (StateConflict). What it sets without having read it is set, whatever others do.
- The keys that a prepared transaction sets are its own until it is decided: who reads or sets one
  of them cannot commit meanwhile (KeyHeld).
- KV4: what an open transaction sets has its room from then on, so that its commit needs none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from quire.engine.records.format import NO_ENTRY
from quire.engine.records.key_values import StateKey, to_value
from quire.engine.state.catalog import STATE
from quire.engine.state.durable_state import CatalogEntry, DurableState
from quire.env.interpreter import Lock, RLock
from quire.errors import KeyHeld, StateConflict, StateFull
from quire.limits import MAX_STATE_BYTES, MAX_STATE_KEYS, MAX_STATE_NAME_BYTES


class StateEntry(NamedTuple):
    """An entry: the number tells it from a later one of the same key."""

    number: int
    entry: CatalogEntry


class _PlacedValue(NamedTuple):
    """The value that a change with a place in the order sets a key to."""

    number: int  # of the entry; NO_ENTRY: it deletes it
    by: object
    xid: str | None  # that is to hold it


class StateValues:
    """The values of an open store, which transactions set and get. Thread-safe."""

    def __init__(self, durable: DurableState) -> None:
        self.changing = RLock()  # held while the fold changes several (KV1)
        self._durable = durable
        self._index = durable.values
        self._room = Lock()
        self._reserved: dict[str, int] = {}  # bytes, by name, of open transactions (KV4)
        self._reserved_keys = 0
        # By changes that have their place in the order, and are not applied yet; these things are
        # of the thread that leads the sequencer.
        self._placed: dict[StateKey, _PlacedValue] = {}
        self._next_number = 1

    # Looking

    def find(self, name: str, key: str) -> StateEntry | None:
        """The entry that is committed."""
        number = self._index.numbers.get(name, {}).get(key)
        entry = None if number is None else self._durable.catalog[STATE].get(number)
        return None if number is None or entry is None else StateEntry(number, entry)

    def value(self, name: str, key: str) -> bytes | None:
        """Return the committed value of a key; None if there is none."""
        found = self.find(name, key)
        return None if found is None else to_value(found.entry.body["value"])

    def items(self, name: str) -> dict[str, bytes]:
        """All of a name, by key in their order (KV1)."""
        with self.changing:
            entries = self._durable.catalog[STATE]
            found = {k: entries[n] for k, n in self._index.numbers.get(name, {}).items()}
        return {key: to_value(entry.body["value"]) for key, entry in sorted(found.items())}

    def names(self) -> list[str]:
        """Those that have a value, in their order."""
        with self.changing:
            return sorted(self._index.numbers)

    def keys(self, name: str) -> list[str]:
        """Return the keys of a name, in no order."""
        with self.changing:
            return list(self._index.numbers.get(name, ()))

    def sums(self) -> dict[str, int]:
        """How many names and keys there are, and what they count, in bytes."""
        with self.changing:
            index = self._index
            return {"names": len(index.numbers), "keys": index.keys, "bytes": index.total}

    # Room

    def reserve(self, name: str, more_bytes: int, more_keys: int) -> None:
        """A transaction is to set so much more than there is (KV4), or gives that back.

        Raises StateFull.
        """
        with self._room:
            index, reserved = self._index, self._reserved
            own = index.charges.get(name, 0) + index.held_charges.get(name, 0)
            own += reserved.get(name, 0) + more_bytes
            if more_bytes > 0 and own > MAX_STATE_NAME_BYTES:
                raise StateFull(
                    f"state {name!r} would take {own} bytes, with what open transactions set: at "
                    f"most {MAX_STATE_NAME_BYTES}; delete keys that are not needed any more"
                )
            total = index.total + sum(list(index.held_charges.values()))  # one step (GI2)
            total += sum(reserved.values()) + more_bytes
            if more_bytes > 0 and total > MAX_STATE_BYTES:
                raise StateFull(
                    f"the state of all names would take {total} bytes: at most {MAX_STATE_BYTES}; "
                    "drop a name that is not needed any more (store.states.drop)"
                )
            keys = index.keys + len(index.holders) + self._reserved_keys + more_keys
            if more_keys > 0 and keys > MAX_STATE_KEYS:
                raise StateFull(
                    f"the state of all names would have {keys} keys: at most {MAX_STATE_KEYS}; "
                    "delete keys that are not needed any more, or keep many things in one value"
                )
            reserved[name] = reserved.get(name, 0) + more_bytes
            if not reserved[name]:
                del reserved[name]
            self._reserved_keys += more_keys

    # In the journal's order

    def check(self, reads: Mapping[StateKey, StateEntry | None], sets: Iterable[StateKey]) -> None:
        """Check that a transaction may be committed next. Raises StateConflict, KeyHeld."""
        for where in (*reads, *sets):
            placed = self._placed.get(where)
            xid = self._index.holders.get(where) or (placed and placed.xid)
            if xid is not None:
                name, key = where
                raise KeyHeld(
                    f"the prepared transaction {xid!r} sets key {key!r} of state {name!r}: try "
                    "again when it is decided, or roll back"
                )
        for where, seen in reads.items():
            placed = self._placed.get(where)
            if placed is None:
                is_same = _identity(self.find(*where)) == _identity(seen)
            else:  # what is set is another value; what is deleted may have been missing before
                is_same = placed.number == NO_ENTRY and seen is None
            if not is_same:
                name, key = where
                raise StateConflict(
                    f"key {key!r} of state {name!r} was changed by another transaction after this "
                    "one had read it: it is rolled back, begin again"
                )

    def place(
        self, by: object, sets: Collection[tuple[str, str, bool]], xid: str | None = None
    ) -> list[int]:
        """The numbers of the entries that a change puts, or deletes (False), in this order.

        `xid`: of a transaction that is prepared, and is to hold them. What fails places nothing.
        """
        placed: dict[StateKey, _PlacedValue] = {}
        numbers: list[int] = []
        for name, key, is_put in sets:
            where = name, key
            number = self._number(where, is_put)
            numbers.append(number)
            placed[where] = _PlacedValue(number if is_put else NO_ENTRY, by, xid)
        self._placed |= placed
        return numbers

    def _number(self, where: StateKey, is_put: bool) -> int:
        placed = self._placed.get(where)
        number = NO_ENTRY if placed is None else placed.number
        if placed is None and (found := self.find(*where)) is not None:
            number = found.number
        return self.number() if is_put and number == NO_ENTRY else number

    def number(self) -> int:
        """Return the number of a new entry."""
        number = max(self._next_number, self._index.next_number)
        self._next_number = number + 1
        return number

    def unplace(self, by: object, sets: Collection[tuple[str, str, bool]]) -> None:
        """It is applied, or withdrawn."""
        for name, key, _ in sets:
            placed = self._placed.get((name, key))
            if placed is not None and placed.by is by:
                del self._placed[name, key]


def _identity(found: StateEntry | None) -> tuple[int, int] | None:
    return None if found is None else (found.number, found.entry.version)
