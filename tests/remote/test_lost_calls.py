"""Calls outside of transactions whose answer does not come, as their owner is gone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from quire.engine import EmbeddedStore as Store
from quire.env import OsEnv
from quire.errors import ConnectionLost, OutcomeUnknown, QuireError
from quire.remote import JoinedStore, StoreServer
from quire.remote.server.stream_context import ServedStore
from quire.remote.wire.named_calls import NAMESPACES
from tests.behaviour.forms import own
from tests.kit.children import child, join
from tests.kit.programs import OWNER
from tests.kit.waiting import SECONDS

CHANGING: dict[str, Callable[[JoinedStore], object]] = {
    "admin.create_queues": lambda store: store.create_queue("q", kind="topic"),
    "admin.rename_queue": lambda store: store.admin.rename_queue("q", "r"),
    "admin.purge": lambda store: store.admin.purge("q"),
    "admin.create_alias": lambda store: store.admin.create_alias("a", "q"),
    "admin.drop_alias": lambda store: store.admin.drop_alias("a"),
    "admin.switch": lambda store: store.admin.switch(puts=False),
    "cron.create": lambda store: store.cron.create("s", "q", "@daily"),
    "cron.alter": lambda store: store.cron.alter("s", paused=True),
    "cron.drop": lambda store: store.cron.drop("s"),
    "drop_queue": lambda store: store.drop_queue("q"),
    "subscribe_for, one": lambda store: store.subscribe("q", "a"),
    "subscribe_for": lambda store: store.integration.subscribe_many("a", {"q": 0, "r": "latest"}),
    "unsubscribe": lambda store: store.unsubscribe("q", "a"),
    "admin.abort": lambda store: store.admin.abort(1),
    "states.drop": lambda store: store.states.drop("s"),
    "commit_prepared": lambda store: store.prepared.commit("x1"),
    "rollback_prepared": lambda store: store.prepared.rollback("x1"),
    "integration.lease_many, one": lambda store: store.integration.lease("q", 0, 0),
    "integration.lease_many": lambda store: store.integration.lease_many(
        [("q", 0, 0), ("r", 0, 0)]
    ),
    "integration.lease_names": lambda store: store.integration.lease_names(["q/s"]),
    "integration.lease_state": lambda store: store.integration.lease_state(),
    "integration.renew_lease": lambda store: store.integration.renew_lease(1),
    "integration.end_lease": lambda store: store.integration.end_lease(1),
    "integration.write_fragment": lambda store: store.integration.write_fragment(
        "q", 1 << 62, 0, b"1"
    ),
    "integration.remove_fragments": lambda store: store.integration.remove_fragments([1 << 62]),
    "integration.ship": lambda store: store.integration.ship(),
    "integration.archive_boundary": lambda store: store.integration.archive_boundary(1),
    "admin.set_archive": lambda store: store.admin.set_archive("/proc/none/archive"),
    "admin.stop_archive": lambda store: store.admin.stop_archive(),
    "admin.checkpoint": lambda store: store.admin.checkpoint(),
}
LOOKING: dict[str, Callable[[JoinedStore], object]] = {
    "admin.aliases": lambda store: store.admin.aliases(),
    "cron.list": lambda store: store.cron.list(),
    "queues": lambda store: store.queues(),
    "queues of names": lambda store: store.queues(["q", "r"]),
    "queue": lambda store: store.queue("q"),
    "integration.positions": lambda store: store.integration.positions("q"),
    "integration.read_places": lambda store: store.integration.read_places(
        "q", [("data", 0, 0, 1)]
    ),
    "integration.file_size": lambda store: store.integration.file_size("q", 1 << 62),
    "integration.read_fragment": lambda store: store.integration.read_fragment(1 << 62, 0, 1),
    "admin.queue_records": lambda store: store.admin.queue_records("q"),
    "subscriptions": lambda store: store.subscriptions("q"),
    "admin.archive": lambda store: store.admin.archive(),
    "admin.transactions": lambda store: store.admin.transactions(),
    "admin.transaction": lambda store: store.admin.transaction(1),
    "prepared.list": lambda store: store.prepared.list(),
    "integration.ledger": lambda store: store.integration.ledger("k"),
    "browse": lambda store: store.browse("q"),
    "states.get": lambda store: store.states.get("s", "k"),
    "states.items": lambda store: store.states.items("s"),
    "states.names": lambda store: store.states.names(),
    "status": lambda store: store.status(),
    "admin.verify": lambda store: store.admin.verify(),
}

# Hangs when a queue is made: before anything is done, or when it is durable.
HANGING_OWNER = (
    """
import sys, time
from quire.engine.namespaces.admin import AdminHandlers
real = AdminHandlers.create_queues
def hanging(self, queues):
    if sys.argv[2] == "after":
        real(self, queues)
    print("hanging", flush=True)
    time.sleep(1000)
AdminHandlers.create_queues = hanging
"""
    + OWNER
)


class Hanging:
    """A store each of whose methods says that it was called, and returns when it may."""

    store_id = 7
    commit_timeout = 0.0
    failed = False
    fixed_options: ClassVar[dict[str, int]] = {}

    def __init__(self) -> None:
        self.called = threading.Event()
        self.may_return = threading.Event()

    def __getattr__(self, name: str) -> Any:
        if name in NAMESPACES:
            return self

        def method(*_: object, **__: object) -> object:
            self.called.set()
            self.may_return.wait(SECONDS)
            raise QuireError("a test")

        return method


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[tuple[Hanging, StoreServer, JoinedStore]]:
    """Such a store, its server, and a client."""
    store = Hanging()
    server = StoreServer(cast(ServedStore, store), OsEnv(), str(tmp_path))
    client = JoinedStore.connect(server.start())
    yield store, server, client
    store.may_return.set()
    client.close()
    server.close()


def lost(
    hanging: tuple[Hanging, StoreServer, JoinedStore], call: Callable[[JoinedStore], object]
) -> QuireError:
    """What the client gets when the connection ends while its call is under way."""
    store, server, client = hanging
    raised: list[QuireError] = []

    def run() -> None:
        try:
            call(client)
        except QuireError as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert store.called.wait(SECONDS)
    for connection in list(server._connections.values()):
        connection.cut()
    thread.join(SECONDS)
    return raised[0]


@pytest.mark.parametrize("name", CHANGING)
def test_a_change_whose_answer_is_lost(
    hanging: tuple[Hanging, StoreServer, JoinedStore], name: str
) -> None:
    """OutcomeUnknown, which names the call; the next one is not sent, so nothing of it is done."""
    error = lost(hanging, CHANGING[name])
    assert type(error) is OutcomeUnknown
    assert f"during {name.partition(',')[0]}" in str(error)
    assert "look whether" in str(error)
    _, _, client = hanging
    with pytest.raises(ConnectionLost, match="open the store again"):
        CHANGING[name](client)


@pytest.mark.parametrize("name", LOOKING)
def test_a_look_whose_answer_is_lost(
    hanging: tuple[Hanging, StoreServer, JoinedStore], name: str
) -> None:
    """ConnectionLost: there is nothing that could have taken effect."""
    assert type(lost(hanging, LOOKING[name])) is ConnectionLost


@pytest.mark.parametrize("moment", ["before", "after"])
def test_the_owner_dies_while_a_queue_is_made(store_path: str, moment: str) -> None:
    """OutcomeUnknown; the store, opened again, has the queue or has it not."""
    raised: list[Any] = []
    with child(HANGING_OWNER, store_path, moment) as owner:
        assert owner.line() == "ready"
        store = join(store_path)

        def create() -> None:
            try:
                store.create_queue("q", kind="topic")
            except QuireError as error:
                raised.append(error)

        creating = threading.Thread(target=create)
        creating.start()
        assert owner.line() == "hanging"
        owner.kill()
        creating.join(SECONDS)
    assert [type(error) for error in raised] == [OutcomeUnknown]
    store.close()
    with own(store_path) as again:
        assert [queue.name for queue in again.queues()] == ["q"] * (moment == "after")


def test_joined_stores_have_failed(
    owner: Store, joined: JoinedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the owner says at the time; an owner that is gone says nothing."""
    told = [joined.failed]
    with monkeypatch.context() as patch:
        patch.setattr(type(owner), "failed", True)
        told.append(joined.failed)
    assert told == [False, True]
    owner.close()
    with pytest.raises(ConnectionLost):
        _ = joined.failed
