"""The first put with a time makes a work queue timed: whole or not at all, after any failure."""

from __future__ import annotations

import pytest

from quire.errors import InvalidArgument, StoreFailed
from tests.engine.workload import new_machine, open_store

DUE_US = 4_000_000_000_000_000


def test_a_failed_definition_is_told() -> None:
    """The queue could not be made timed: the put has the error, and nothing is put."""
    env = new_machine(1)
    store = open_store(env)
    store.create_queue("q", kind="work")
    txn = store.transaction()
    txn.put("q", b"before")
    env.fail("write", "*.log")
    with pytest.raises(StoreFailed):
        txn.put("q", b"m", deliver_at=DUE_US)
    txn.rollback()
    assert store.browse("q").payloads() == []
    env = env.kill()
    with open_store(env) as store:
        assert store.browse("q").payloads() == []


def test_what_was_stored_before_is_taken_as_it_is() -> None:
    """Options of an earlier release that would be refused now stand; others may be altered."""
    with open_store(new_machine(2)) as store:
        store.create_queue("q", kind="work", timed=False)
        assert store.alter_queue("q", text="words").timed is False
        with pytest.raises(InvalidArgument, match="counts where times do"):
            store.alter_queue("q", ttl=1.0)
        assert store.alter_queue("q", timed=None).timed is None
        store.put("q", b"m", delay=1.0)
        assert store.queue("q").timed is True
