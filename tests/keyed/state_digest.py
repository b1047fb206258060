"""All that a keyed state holds, as one digest: the same before a store is closed and after it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from quire import keyed
from quire.keyed.keyed_changes import KeyedChanges

Row = tuple[Any, ...]  # all columns, moments as whole numbers, and the timer


def rows_held(store: Any, state: keyed.KeyedState) -> list[Row]:
    """Return each row of a state with its timer behind its columns; nothing is merged for it."""
    found: list[Row] = []
    with store.transaction() as txn:
        with KeyedChanges(state._reader, txn) as changes:
            for batch in state.rows():
                timers = changes.timers(batch.select(state.key_names)).to_pylist()
                found += zip(*map(values_of, batch.columns), timers, strict=True)
        txn.rollback()
    return found


def values_of(column: pa.Array) -> list[Any]:
    """Return a column's values, which are equal where their texts are."""
    is_moment = pa.types.is_timestamp(column.type)
    found: list[Any] = (column.cast(pa.int64()) if is_moment else column).to_pylist()
    return found


def digest_of(rows: Iterable[Row]) -> str:
    """Return the digest of rows, in whatever order they come; each of them counts."""
    found = hashlib.blake2b(digest_size=16)
    for line in sorted(map(repr, rows)):
        found.update(f"{line}\n".encode())
    return found.hexdigest()


def state_digest(store: Any, state: keyed.KeyedState) -> str:
    """Return the digest of all rows of a state, with their timers."""
    return digest_of(rows_held(store, state))
