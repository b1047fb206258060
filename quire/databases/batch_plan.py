"""The batches of an outbox: rows that are moved together, noted before they are put, deleted after.

The batch's number N stands in the database, and in the store the progress P: the number of the
batch that was moved last, the last of its rows that is done with, and which of them were refused.

| P | what it means | what comes next |
|---|---|---|
| N - 1 | the batch is planned, nothing of it was put | it is put |
| N, and rows are left | a part of it was put | the rest is put |
| N, and none is left | all of it is in the store | its rows are deleted, N + 1 is planned |
| anything else | one of the two is an older copy | OutboxMismatch |

- OX1: a batch is planned, and its plan committed, before any of it is put. That commit is made
  durable, and with it, as databases write one log, all that the plan names: what is in a queue is
  never gone from the database that it came from.
- OX2: a row is deleted only when the store tells that it is done with, and a batch is planned only
  when the one before it is. So no row is ever in two batches, whatever died in between.
- OX3: a plan names rows that are there, one by one (as ranges of ids without a gap), the lowest
  first. What commits later with an id below is in a later plan: it is not passed over.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from msgspec import Struct

from quire.env import Env
from quire.errors import OutboxMismatch, StateConflict

from .limits import RELAY_BATCH_BYTES
from .statements import Statements

RowRanges = tuple[tuple[int, int], ...]  # first and last id of each


class OutboxRow(NamedTuple):
    """A message that waits."""

    id: int
    queue: str
    payload: bytes
    options: str | None  # JSON


class Progress(Struct, frozen=True):
    """The progress of an outbox, as the store knows it."""

    batch: int = 0  # the last one of which anything was put
    through: int = 0  # the last of its rows that is done with
    refused: tuple[tuple[int, str], ...] = ()  # rows of it that were not put, and why

    @classmethod
    def of(cls, value: bytes | None) -> Progress:
        """Decode a progress; None: nothing was put ever."""
        if value is None:
            return cls()
        values = json.loads(value)
        return cls(values[0], values[1], tuple((number, reason) for number, reason in values[2]))

    def encode(self) -> bytes:
        """Return the bytes that are kept in the store."""
        values = [self.batch, self.through, self.refused]
        return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()


class OutboxBatch(Struct, frozen=True):
    """A batch that is planned, as far as it is not done with."""

    number: int
    last_id: int
    rows: tuple[OutboxRow, ...]


class BatchPlan:
    """The plan of an outbox in its database. Each method runs in a transaction of the caller."""

    def __init__(self, table: str, env: Env, max_messages: int) -> None:
        self._table: Final = table
        self._env: Final = env
        self._max_messages: Final = max_messages

    def outbox_id(self, statements: Statements) -> str:
        """The name of the outbox in stores: drawn at random when a relay first comes to it."""
        found = statements.rows(f"SELECT outbox_id FROM {self._table}_relay")
        if not found:
            drawn = f"{self._env.random_u64():016x}{self._env.random_u64():016x}"
            statements.change(
                f"INSERT INTO {self._table}_relay (one, outbox_id, batch, planned)"
                " VALUES (1, :drawn, 0, '[]') ON CONFLICT (one) DO NOTHING",
                drawn=drawn,
            )
            found = statements.rows(f"SELECT outbox_id FROM {self._table}_relay")
        return str(found[0][0])

    def next(
        self, statements: Statements, outbox_id: str, progress: Progress
    ) -> OutboxBatch | None:
        """The batch that is to be put; None: nothing waits.

        `progress` was read before. Raises OutboxMismatch where the two do not follow from each
        other, also where another relay has gone on since: then look again. Raises StateConflict
        where one goes on just now.
        """
        number, planned = self._planned(statements, outbox_id)
        last_id = planned[-1][1] if planned else 0
        if progress.batch == number and progress.through >= last_id:
            if not planned and not self._rows_wait(statements):
                return None
            self._lock(statements, outbox_id, number)
            self._finish(statements, planned, progress)
            number, planned = self._plan(statements, number)
            if not planned:
                return None
            last_id, through = planned[-1][1], 0
        elif progress.batch == number:
            through = progress.through
        elif progress.batch == number - 1:
            through = 0
        else:
            raise self._mismatch(number, progress)
        rows = tuple(
            OutboxRow(row, queue, bytes(payload), options)
            for first, last in planned
            if last > through
            for row, queue, payload, options in statements.rows(
                f"SELECT id, queue, payload, options FROM {self._table}"
                " WHERE id >= :first AND id <= :last AND refused IS NULL ORDER BY id",
                first=max(first, through + 1),
                last=last,
            )
        )
        return OutboxBatch(number, last_id, rows)

    def _planned(self, statements: Statements, outbox_id: str) -> tuple[int, RowRanges]:
        found = statements.rows(
            f"SELECT batch, planned FROM {self._table}_relay WHERE outbox_id = :id", id=outbox_id
        )
        if not found:
            raise OutboxMismatch(
                f"the outbox {self._table} has begun anew (`reset`): begin with a new Relay"
            )
        ranges: Any = json.loads(found[0][1])
        return int(found[0][0]), tuple((first, last) for first, last in ranges)

    def _rows_wait(self, statements: Statements) -> bool:
        return bool(statements.rows(f"SELECT 1 FROM {self._table} WHERE refused IS NULL LIMIT 1"))

    def _lock(self, statements: Statements, outbox_id: str, number: int) -> None:
        """Keep other relays from going on; and the commit that follows is durable (OX1)."""
        if statements.dialect == "postgresql":
            statements.change("SET LOCAL synchronous_commit = on")
        locked = statements.change(
            f"UPDATE {self._table}_relay SET planned = planned"
            " WHERE outbox_id = :id AND batch = :number",
            id=outbox_id,
            number=number,
        )
        if locked != 1:
            raise StateConflict(f"another relay of {self._table} has gone on: look again")

    def _finish(self, statements: Statements, planned: RowRanges, progress: Progress) -> None:
        """Delete what is in the store, keep what was refused (OX2)."""
        if not planned:
            return
        statements.change_many(
            f"UPDATE {self._table} SET refused = :reason WHERE id = :id",
            [{"id": number, "reason": reason} for number, reason in progress.refused],
        )
        statements.change_many(
            f"DELETE FROM {self._table} WHERE id >= :first AND id <= :last AND refused IS NULL",
            [{"first": first, "last": last} for first, last in planned],
        )

    def _plan(self, statements: Statements, number: int) -> tuple[int, RowRanges]:
        """The next batch, of what is there now."""
        ids: list[int] = []
        left = RELAY_BATCH_BYTES
        for row, size in statements.rows(
            f"SELECT id, length(payload) FROM {self._table} WHERE refused IS NULL"
            " ORDER BY id LIMIT :limit",
            limit=self._max_messages,
        ):
            left -= size
            if ids and left < 0:
                break
            ids.append(row)
        planned = ranges_of(ids)
        number += bool(planned)
        statements.change(
            f"UPDATE {self._table}_relay SET batch = :number, planned = :planned",
            number=number,
            planned=json.dumps(planned, separators=(",", ":")),
        )
        return number, planned

    def _mismatch(self, number: int, progress: Progress) -> OutboxMismatch:
        which = "database" if progress.batch > number else "store"
        return OutboxMismatch(
            f"the outbox {self._table} is at batch {number}, the store at {progress.batch} of it: "
            f"the {which} is an older copy, or another one; stop the relays, look what the store "
            "has, and begin anew with `Outbox.reset`"
        )


def ranges_of(ids: Sequence[int]) -> RowRanges:
    """Ascending ids as ranges without a gap."""
    if not ids:
        return ()
    firsts, lasts = [ids[0]], []
    for before, number in pairwise(ids):
        if number != before + 1:
            lasts.append(before)
            firsts.append(number)
    return tuple(zip(firsts, [*lasts, ids[-1]], strict=True))
