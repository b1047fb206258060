"""The new places of leased messages that have been moved."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from quire.errors import PositionLost, QuireError
from quire.reports.info import Piece
from quire.spark_graphs import connection, position_range

if TYPE_CHECKING:
    from quire.interface.store import Store


def find_again(
    path: str,
    queue: str,
    created_us: int | None,
    runs: Iterable[tuple[int, int]],
    error: QuireError,
) -> list[Piece]:
    """The pieces of runs of positions, leased anew. Raises the error, or why they are gone."""
    known = {} if created_us is None else {queue: created_us}

    def leased(store: Store) -> list[Piece]:
        leases = [
            lease
            for run in runs
            for lease in position_range.lease(
                store,
                {queue: run},
                whole=True,
                created_us=known,
                advice=position_range.TASK_ADVICE,
            )
        ]
        return [piece for lease in leases for piece in lease.pieces]

    try:
        return connection.call(path, leased)
    except PositionLost as second:  # says why the place holds other bytes by now
        raise second from error
    except QuireError as second:
        raise error from second
