"""A `transaction.commit()` over Quire and PostgreSQL in two phases, killed in between.

Both sides may be left in doubt. The rule of docs/two-phase-commit.md decides: Quire finishes first,
and its ledger tells whether it has.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import sessionmaker
from zope.sqlalchemy import mark_changed, register

import quire
from quire.coordination import join
from tests.coordination.killer import Killer
from tests.coordination.postgres import Cluster
from tests.source_tree import ROOT

__all__ = ["order"]


def order(path: str, url: str, number: int, killer: Killer) -> None:
    """A row, a message and a ledger entry in one transaction, in which the killer takes part."""
    import transaction

    factory = sessionmaker(create_engine(url), twophase=True)
    register(factory)
    with quire.open(path, share=False) as store, transaction.manager as current:
        session = factory()
        session.execute(text("INSERT INTO orders VALUES (:number)"), {"number": number})
        mark_changed(session)
        queues = join(store, f"order {number}")
        queues.put("work", b"%d" % number)
        queues.enter("orders", number)
        current.join(killer)


def settle(store: Any, table: Any, number: int) -> None:
    """What the document says is to be done after a crash in the transaction of the number."""
    committed = store.integration.ledger("orders") == number
    for info in store.prepared.list():
        store.prepared.rollback(info.xid)
    for xid in table.tpc_recover():
        if committed:
            table.tpc_commit(xid)
        else:
            table.tpc_rollback(xid)


@pytest.mark.cases(2)
@pytest.mark.crash
@pytest.mark.promise(2)
@pytest.mark.parametrize(
    ("call", "key", "in_doubt", "outcome"),
    [
        ("tpc_vote", "b", (1, 0), 0),  # Quire is prepared
        ("tpc_vote", "z", (1, 1), 0),  # both are
        ("tpc_finish", "b", (0, 1), 1),  # Quire has finished
        ("tpc_finish", "z", (0, 0), 1),  # both have
    ],
)
def test_promise_2_the_ledger_decides_after_a_crash(
    store_path: str, cluster: Cluster, call: str, key: str, in_doubt: tuple[int, int], outcome: int
) -> None:
    """Killed at each point of the protocol, both sides agree once the rule was followed."""
    with quire.open(store_path, share=False) as store:
        store.create_queue("work", kind="work")
    with cluster.connect() as table:
        table.execute("DROP TABLE IF EXISTS orders")
        table.execute("CREATE TABLE orders (number bigint PRIMARY KEY)")
    program = "from tests.coordination.test_in_doubt import order, Killer; "
    program += f"order({store_path!r}, {cluster.url!r}, 1, Killer({call!r}, {key!r}))"
    killed = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False)
    assert killed.returncode == -signal.SIGKILL
    with quire.open(store_path, share=False) as store, cluster.connect() as table:
        assert (len(store.prepared.list()), len(table.tpc_recover())) == in_doubt
        settle(store, table, 1)
        assert (store.prepared.list(), table.tpc_recover()) == ([], [])
        assert table.execute("SELECT count(*) FROM orders").fetchone() == (outcome,)
        assert store.queue("work").messages == outcome
        assert store.admin.verify().ok
