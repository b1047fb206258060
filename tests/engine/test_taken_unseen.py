"""Messages that are asked for by what they are, before their queue's order has looked at them."""

from __future__ import annotations

from typing import Any

import pytest

from quire import Template
from quire.engine import EmbeddedStore as Store
from quire.engine.reading.indexing import Columns
from quire.engine.upkeep.dead_letters import DeadLetters
from quire.testing import SimEnv
from tests.engine.workload import open_store

WANTED = Template(correlation_id="own")


def opened(env: SimEnv, **options: Any) -> Store:
    """A store with a queue like that of replies."""
    store = open_store(env)
    store.create_queue("dead")
    store.create_queue("q", indexed=["correlation_id"], **options)
    return store


def got(store: Store) -> bytes | None:
    """The payload of the first that is wanted."""
    found = store.get("q", where=WANTED)
    return None if found is None else found.payload


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Positions from which the order has looked at messages, where maintenance does not."""
    found: list[int] = []
    monkeypatch.setattr(DeadLetters, "move_all", lambda self: None)
    read = Columns.read

    def noted(self: Columns, reader: Any, queue: Any, pointer: Any) -> None:
        found.append(pointer.position)
        read(self, reader, queue, pointer)

    monkeypatch.setattr(Columns, "read", noted)
    return found


@pytest.mark.parametrize("options", [{"timed": True}, {"order": "priority"}], ids=str)
def test_one_that_is_alone_is_taken_as_its_header_says(
    env: SimEnv, looks: list[int], options: dict[str, Any]
) -> None:
    """The order of the queue has looked at nothing for that (FM3), and others find theirs."""
    store = opened(env, **options)
    store.put("q", b"other", correlation_id="other")
    store.put("q", b"own", correlation_id="own")
    assert got(store) == b"own"
    assert looks == []
    assert got(store) is None
    found = store.get("q")
    assert found is not None
    assert found.payload == b"other"
    assert store.queue("q").messages == 0
    store.close()


def test_what_is_not_due_or_over_is_not_taken(env: SimEnv) -> None:
    """Whether it was looked at or not; what is due by then is."""
    store = opened(env, timed=True)
    store.put("q", b"later", correlation_id="own", delay=10.0)
    store.put("q", b"over", correlation_id="own", ttl=5.0)
    env.advance(6.0)
    assert got(store) is None
    store.put("q", b"over too", correlation_id="own", ttl=5.0)
    env.advance(5.0)
    store.put("q", b"now", correlation_id="own")
    assert [got(store) for _ in range(3)] == [b"later", b"now", None]
    store.close()


def test_the_first_in_the_order_comes_first(env: SimEnv, looks: list[int]) -> None:
    """Of what was looked at and what was not, and of what comes again."""
    store = opened(env, order="priority")
    store.put("q", b"low", correlation_id="own", priority=1)
    assert store.get("q", where="correlation_id = 'nobody'") is None
    assert looks == [0]
    store.put("q", b"lower", correlation_id="own", priority=0)
    store.put("q", b"high", correlation_id="own", priority=9)
    with store.transaction() as txn:
        found = txn.get("q", where=WANTED)
        assert found is not None
        assert found.payload == b"high"
        txn.rollback()
    assert [got(store) for _ in range(4)] == [b"high", b"low", b"lower", None]
    store.close()


@pytest.mark.parametrize(
    "options", [{"max_deliveries": 2, "dead_letter": "dead"}, {"ttl": 5.0}], ids=str
)
def test_rules_that_no_header_says_hold(env: SimEnv, options: dict[str, Any]) -> None:
    """Deliveries that are counted, and a queue's own time to live."""
    store = opened(env, timed=True, **options)
    store.put("q", b"m", correlation_id="own")
    for _ in range(2):
        with store.transaction() as txn:
            assert txn.get("q", where=WANTED) is not None
            txn.rollback()
    env.advance(6.0)
    assert got(store) is None
    store.close()
