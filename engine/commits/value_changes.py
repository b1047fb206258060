"""What a transaction sets of states, as part of its commit: a CATALOG record behind its own.

Both are one change of the sequencer, and so in one group: all or nothing. The entries' numbers are
known when the change has its place in the order; until then the record has blanks for them, which
JSON allows, so that its length stays.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress

from quire.arguments import state_bytes
from quire.engine.queues.state import State
from quire.engine.queues.state_values import Found
from quire.engine.records import format
from quire.engine.records.catalog import PREPARED_STATE, STATE, CatalogChange, pack
from quire.engine.records.key_values import StateKey, encode, to_text
from quire.journal import RECORD_HEADER, RECORD_HEADER_BYTES, WholeRecord, pack_record
from quire.limits import STATE_DROP_BYTES

from .commit import Commit
from .sequencer import Change, Sequencer
from .volatile import MixedCommit, VolatileCommit


class Setting:
    """One key that a transaction sets; no value: it is deleted."""

    __slots__ = ("body", "key", "name", "record_bytes", "text", "value")

    def __init__(self, name: str, key: str, value: bytes | None) -> None:
        self.name = name
        self.key = key
        self.value = value
        self.text = text = None if value is None else to_text(value)  # as an entry has it
        # Of the entry.
        self.body = None if text is None else {"name": name, "key": key, "value": text}
        self.record_bytes = state_bytes(name, key, value)


class _Text:
    """The text of a CATALOG record: JSON, with blanks where numbers come."""

    def __init__(self) -> None:
        self.data = bytearray(RECORD_HEADER_BYTES)
        self._places: list[int] = []

    def add(self, before: str, after: str) -> None:
        """A number, between these."""
        self.data += before.encode()
        self._places.append(len(self.data))
        self.data += b" " * format.NUMBER_DIGITS + after.encode()

    def close(self, transaction_id: int, end: str) -> None:
        """It is whole."""
        self.data += end.encode()
        header = len(self.data), format.CATALOG, 0, transaction_id
        RECORD_HEADER.pack_into(self.data, 0, *header)

    def fill(self, numbers: Collection[int]) -> None:
        """They are known now."""
        for at, number in zip(self._places, numbers, strict=True):
            self.data[at : at + format.NUMBER_DIGITS] = b"%*d" % (format.NUMBER_DIGITS, number)


class ValueChanges:
    """What a transaction has read of states, and what it sets. `xid`: it is prepared by that."""

    def __init__(
        self,
        state: State,
        transaction_id: int,
        reads: Mapping[StateKey, Found | None],
        sets: Collection[Setting],
        xid: str | None = None,
    ) -> None:
        self._values = state.values
        self._fold = state.fold
        self._reads = reads
        self._sets = sets
        self._xid = xid
        self._marks = [(one.name, one.key, one.value is not None) for one in sets]
        self._changes: list[CatalogChange] = []  # once it has its place
        self._text = (
            _record(transaction_id, sets) if xid is None else _held(transaction_id, sets, xid)
        )

    def behind(self, record: WholeRecord) -> WholeRecord:
        """The transaction's own record, and behind it what is set, if anything is."""
        if not self._sets:
            return record
        return (
            (*record, self._text.data) if isinstance(record, tuple) else (record, self._text.data)
        )

    def check(self) -> None:
        """Whether it may be committed next. Raises StateConflict, KeyHeld."""
        self._values.check(self._reads, [(name, key) for name, key, _ in self._marks])

    def place(self) -> None:
        """It is committed next: the numbers are known."""
        if not self._sets:
            return
        numbers = self._values.place(self, self._marks, self._xid)
        pairs = list(zip(self._sets, numbers, strict=True))
        if self._xid is None:
            self._changes = [CatalogChange(STATE, number, one.body) for one, number in pairs]
        else:
            own = self._values.number()
            rows = [[number, one.name, one.key, one.text] for one, number in pairs]
            body = {"xid": self._xid, "sets": rows}
            self._changes = [CatalogChange(PREPARED_STATE, own, body)]
            numbers = [own, *numbers]
        self._text.fill(numbers)

    def withdraw(self) -> None:
        """The record was not written."""
        self._values.unplace(self, self._marks)

    def apply(self) -> None:
        """The record is durable."""
        with self._values.changing:
            self._fold.define(self._changes, "the state")
        self._values.unplace(self, self._marks)


def _record(transaction_id: int, sets: Collection[Setting]) -> _Text:
    text = _Text()
    for index, one in enumerate(sets):
        text.add(f'{"," if index else "["}["{STATE}",', f",{encode(one.body)}]")
    text.close(transaction_id, "]")
    return text


def _held(transaction_id: int, sets: Collection[Setting], xid: str) -> _Text:
    text = _Text()
    text.add(f'[["{PREPARED_STATE}",', f',{{"xid":{encode(xid)},"sets":[')
    for index, one in enumerate(sets):
        fields = encode([one.name, one.key, one.text])[1:]
        text.add(",[" if index else "[", f",{fields}")
    text.close(transaction_id, "]}]]")
    return text


class WithValues:
    """A change: another one, and what its transaction sets of states."""

    __slots__ = ("_change", "_values", "applied", "durable", "record")

    def __init__(self, change: Change, values: ValueChanges) -> None:
        self._change = change
        self._values = values
        self.durable = change.durable
        self.record = values.behind(change.record)
        self.applied = False

    def place(self) -> None:
        """The values' place comes last: what may refuse the change has not done so then."""
        self._values.check()
        self._change.place()
        try:
            self._values.place()
        except BaseException:  # of what has failed there is nobody who withdraws it
            self.withdraw()
            raise

    def withdraw(self) -> None:
        self._values.withdraw()
        self._change.withdraw()

    def apply(self, address: int) -> None:
        self._change.apply(address)
        self._values.apply()


class CommitWithValues(WithValues):
    """The same of a commit."""

    __slots__ = ("_commit",)

    def __init__(self, commit: Commit | MixedCommit, values: ValueChanges) -> None:
        super().__init__(commit, values)
        self._commit = commit

    @property
    def beside(self) -> VolatileCommit | None:
        """Its share in volatile queues."""
        return self._commit.beside

    @property
    def first_id(self) -> int:
        """Of its messages in other queues."""
        return self._commit.first_id


class _Drop:
    """A change, alone in its group: keys of a name go. `most`: so many."""

    durable = True

    __slots__ = ("_changes", "_most", "_name", "_state", "applied", "record")

    def __init__(self, state: State, name: str, most: int) -> None:
        self._state = state
        self._name = name
        self._most = most
        self._changes: list[CatalogChange] = []
        self.record = b""
        self.applied = False

    @property
    def keys(self) -> int:
        """How many."""
        return len(self._changes)

    def place(self) -> None:
        values, name = self._state.values, self._name
        keys = values.keys(name)[: self._most]
        if not keys:
            raise _NothingLeft
        values.check({}, [(name, key) for key in keys])
        numbers = values.place(self, [(name, key, False) for key in keys])
        values.unplace(self, [(name, key, False) for key in keys])  # nobody comes in between
        self._changes = [CatalogChange(STATE, number, None) for number in numbers]
        self.record = pack_record(format.CATALOG, 0, pack(self._state.durable, self._changes))

    def withdraw(self) -> None:
        """Nothing was done."""

    def apply(self, address: int) -> None:
        with self._state.values.changing:
            self._state.fold.define(self._changes, "the state")


class _NothingLeft(Exception):
    """There is no such key any more."""


def drop_state(state: State, sequencer: Sequencer, name: str, most_bytes: int) -> int:
    """All keys of a name go; how many they were. `most_bytes`: of a record.

    With one commit, where they fit one record. Raises KeyHeld, DiskFull, StoreFailed.
    """
    dropped, most = 0, max(1, most_bytes // STATE_DROP_BYTES)
    with suppress(_NothingLeft):
        while True:
            change = _Drop(state, name, most)
            sequencer.submit_alone(change, ())
            dropped += change.keys
    return dropped
