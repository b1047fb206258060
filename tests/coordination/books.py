"""What must be true of the table and the queue after recovery, whatever died before."""

from __future__ import annotations

from typing import Any, Final

import psycopg

from tests.coordination.transfer import START
from tests.kit.violation import Violation

__all__ = ["check"]

ALL: Final = (
    1 << 30
)  # messages to browse; the default of 1000 is fewer than fifty kills let through


def check(store: Any, table: psycopg.Connection[Any]) -> set[str]:
    """The transfers that both sides have carried out. Raises Violation."""
    in_doubt = [info.xid for info in store.prepared.list()] + [
        str(xid) for xid in table.tpc_recover()
    ]
    if in_doubt:
        raise Violation(f"still in doubt: {in_doubt}")
    noted = [message.payload.decode().split() for message in store.browse("done", max_messages=ALL)]
    at_queue = {name: int(amount) for name, amount in noted}
    if len(at_queue) < len(noted):
        raise Violation("the queue has carried out a transfer twice")
    at_table = dict(table.execute("SELECT id, amount FROM transfer").fetchall())
    if at_queue != at_table:
        one_sided = sorted(at_queue.items() ^ at_table.items())
        raise Violation(f"only one side has carried out {one_sided}")
    waiting = sum(int(message.payload) for message in store.browse("amounts", max_messages=ALL))
    row = table.execute("SELECT amount FROM account").fetchone()
    table.commit()
    moved = sum(at_table.values())
    assert row is not None
    if (row[0], waiting) != (START + moved, START - moved):
        raise Violation(f"{row[0]} and {waiting} do not follow from transfers of {moved}")
    return set(at_table)
