"""Values that a step keeps from one batch to the next, by key; they change with its commits.

- Inside a step's function they are as of the batch's beginning, with the function's changes; these
  are committed together with all else that the batch does, or not at all.
- A value is what JSON can hold.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from quire.arguments import check_state_key, check_state_value
from quire.errors import InvalidArgument

if TYPE_CHECKING:
    from quire.interface.transaction import Transaction


class ValueRefused(InvalidArgument):
    """A value that a step cannot keep: it may come of a message."""


class KeptValues(MutableMapping[str, Any]):
    """The values of a step, as its function sees them."""

    def __init__(self, step: str, found: Mapping[str, bytes], *, writable: bool = True) -> None:
        self._step = step
        self._committed = dict(found)
        self._changed: dict[str, bytes | None] = {}
        self._writable = writable

    def __getitem__(self, key: str) -> Any:
        data = self._changed[key] if key in self._changed else self._committed[key]
        if data is None:
            raise KeyError(key)
        return json.loads(data)

    def __setitem__(self, key: str, value: Any) -> None:
        self._check(key)
        try:
            data = json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueRefused(
                f"value of {key!r:.100}: {error}; a step keeps what JSON can hold (numbers, str, "
                "lists, dicts, bool, None)"
            ) from None
        try:
            check_state_value(data)
        except InvalidArgument as error:
            raise ValueRefused(f"value of {key!r:.100}: {error}") from None
        self._changed[key] = data

    def __delitem__(self, key: str) -> None:
        self._check(key)
        if key not in self:
            raise KeyError(key)
        self._changed[key] = None

    def __iter__(self) -> Iterator[str]:
        keys = dict.fromkeys((*self._committed, *self._changed))
        return (key for key in keys if key in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, key: object) -> bool:
        if key in self._changed:
            return self._changed[key] is not None
        return key in self._committed

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self)!r})"

    def _check(self, key: object) -> None:
        if not self._writable:
            raise InvalidArgument(
                f"the values of step '{self._step}' are changed by its own function only"
            )
        try:
            check_state_key(key)
        except (InvalidArgument, UnicodeError) as error:
            raise ValueRefused(str(error)) from None

    def forget_changes(self) -> None:
        """The function is called anew, or its batch was given up."""
        self._changed.clear()

    def write(self, txn: Transaction, name: str) -> None:
        """Put the changes into a transaction."""
        for key, data in self._changed.items():
            txn.set_value(name, key, data)

    def committed(self) -> None:
        """The changes stand."""
        for key, data in self._changed.items():
            if data is None:
                self._committed.pop(key, None)
            else:
                self._committed[key] = data
        self._changed.clear()
