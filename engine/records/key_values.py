"""State, as the fold has it: values by name and key, and those that prepared transactions hold.

Each is an entry of the catalog; here stands where it is found, and how much they are.
"""

from __future__ import annotations

import json
from binascii import Error, a2b_base64, b2a_base64
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from quire.limits import CHECKPOINT_STATE_BYTES, STATE_ENTRY_BYTES

from .format import NO_ENTRY

StateKey = tuple[str, str]  # name, key
encode: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class ValueSet(NamedTuple):
    """A value that a transaction sets: its entry's number, name and key; without value: deleted."""

    number: int
    name: str
    key: str
    value: bytes | None


class KeyValues:
    """Values by name and key, also of prepared transactions. Only the fold changes them."""

    __slots__ = (
        "charges", "held_charges", "holders", "keys", "next_number", "numbers", "saved_bytes",
        "total",
    )  # fmt: skip

    def __init__(self) -> None:
        self.numbers: dict[str, dict[str, int]] = {}  # of entries, by name and key
        self.charges: dict[str, int] = {}  # bytes, by name
        self.total = 0  # of them
        self.keys = 0
        self.saved_bytes = 0  # what the entries take in a checkpoint, at most
        self.next_number = 1
        self.holders: dict[StateKey, str] = {}  # the xid that holds a key
        self.held_charges: dict[str, int] = {}  # bytes, by name

    def put(self, number: int, before: Mapping[str, Any] | None, body: Mapping[str, Any]) -> None:
        """An entry is put, in the stead of `before`. Raises KeyError, TypeError, ValueError."""
        name, key = str(body["name"]), str(body["key"])
        charge = charge_of(key, _bytes_of(body["value"]))
        if number <= NO_ENTRY or self.numbers.get(name, {}).get(key, number) != number:
            raise ValueError(f"sets key {key!r} of state {name!r} as entry {number}, not its own")
        if before is not None:
            if (before["name"], before["key"]) != (name, key):
                raise ValueError(f"sets key {key!r} of state {name!r} as another one's entry")
            # It stays in its place: who looks, without a lock, finds the one value or the other.
            self._count(before, charge_of(key, _bytes_of(before["value"])), -1)
        else:
            self.numbers.setdefault(name, {})[key] = number
        self._count(body, charge, 1)
        self.next_number = max(self.next_number, number + 1)

    def delete(self, body: Mapping[str, Any]) -> None:
        """An entry goes."""
        name, key = body["name"], body["key"]
        del self.numbers[name][key]
        self._count(body, charge_of(key, _bytes_of(body["value"])), -1)
        if not self.numbers[name]:
            del self.numbers[name], self.charges[name]

    def _count(self, body: Mapping[str, Any], charge: int, sign: int) -> None:
        name = str(body["name"])
        self.charges[name] = self.charges.get(name, 0) + sign * charge
        self.total += sign * charge
        self.keys += sign
        self.saved_bytes += sign * _saved_bytes(body)

    def hold(self, xid: str, sets: Sequence[ValueSet]) -> None:
        """A prepared transaction sets these. Raises ValueError."""
        if any((one.name, one.key) in self.holders for one in sets):
            raise ValueError(f"holds keys of a state for {xid!r} that are held already")
        for one in sets:
            self.holders[one.name, one.key] = xid
            self._charge(one, 1)
            self.next_number = max(self.next_number, one.number + 1)

    def let_go(self, xid: str, sets: Sequence[ValueSet]) -> None:
        """The prepared transaction is decided: its keys are free."""
        for one in sets:
            if self.holders.get((one.name, one.key)) == xid:
                del self.holders[one.name, one.key]
                self._charge(one, -1)

    def _charge(self, one: ValueSet, sign: int) -> None:
        if one.value is None:
            return
        charge = self.held_charges.get(one.name, 0)
        charge += sign * charge_of(one.key, len(one.value))
        if charge:
            self.held_charges[one.name] = charge
        else:
            self.held_charges.pop(one.name, None)


def charge_of(key: str, value_bytes: int) -> int:
    """Return the charge of a key and its value."""
    return STATE_ENTRY_BYTES + len(key.encode()) + value_bytes


def to_text(value: bytes) -> str:
    """A value, as an entry has it."""
    return b2a_base64(value, newline=False).decode()


def to_value(text: str) -> bytes:
    """A value of the text that `to_text` made."""
    return a2b_base64(text)


def _bytes_of(text: object) -> int:
    """How long a value is. Raises TypeError, ValueError for what is none."""
    if not isinstance(text, str):
        raise TypeError("a state's value is no text")
    try:
        return len(a2b_base64(text, strict_mode=True))
    except Error as error:
        raise ValueError(f"a state's value is not base64: {error}") from error


def _saved_bytes(body: Mapping[str, Any]) -> int:
    return CHECKPOINT_STATE_BYTES + len(encode(body).encode())
