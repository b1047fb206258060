"""What errors say: what was meant, where a mistake is near to something, and what to do."""

from __future__ import annotations

import asyncio
import inspect
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import pytest

import quire
import quire.aio
from quire.definitions.near_names import did_you_mean
from quire.errors import (
    ConnectionLost,
    InvalidArgument,
    QueueNotFound,
    StoreClosed,
    StoreLocked,
    SubscriptionNotFound,
)
from quire.remote.wire.address import run_directory
from tests.behaviour.forms import AnyStore
from tests.source_tree import ROOT

NEAR: dict[str, tuple[Callable[[Any], object], str]] = {
    "get": (lambda s: s.get("ordres"), r"'ordres' \(did you mean 'orders'\?\): create it"),
    "put": (lambda s: s.put("order", b""), r"'order' \(did you mean 'orders'\?\): create it"),
    "put_many": (lambda s: s.put_many("oders", [b""]), "did you mean 'orders'"),
    "queue": (lambda s: s.queue("Orders"), "did you mean 'orders'"),
    "an alias": (lambda s: s.queue("alia"), "did you mean 'alias'"),
    "drop_queue": (lambda s: s.drop_queue("ordrs"), r"did you mean 'orders'\?\): queues\(\) lists"),
    "far": (lambda s: s.drop_queue("something"), r"no queue 'something': queues\(\) lists"),
    "get of far": (lambda s: s.get("something"), "no queue 'something': create it"),
    "subscription": (lambda s: s.get("topic/audits"), "did you mean 'audit'"),
    "create_queue": (lambda s: s.create_queue("q", groupped=True), "did you mean 'grouped'"),
    "create_queue limit": (lambda s: s.create_queue("q", max_message=1), "did you mean 'max_mess"),
    "create_queues": (lambda s: s.admin.create_queues([{"name": "q", "knd": ""}]), "mean 'kind'"),
    "alter_queue": (
        lambda s: s.alter_queue("orders", max_delivries=3), "did you mean 'max_deliveries'"
    ),
    "put to a subscription": (lambda s: s.put("topic/audit", b""), "put to 'topic'"),
    "put_many to one": (lambda s: s.put_many("topic/audit", [b""]), "put to 'topic'"),
    "get of a topic": (lambda s: s.get("topic"), "as 'topic/subscription'; subscribe first"),
}  # fmt: skip


@pytest.mark.parametrize("name", NEAR)
def test_what_was_meant_is_told(store: AnyStore, name: str) -> None:
    """What was meant is told, and nothing is changed."""
    store.create_queue("orders")
    store.admin.create_alias("alias", "orders")
    store.create_queue("topic", kind="topic")
    store.subscribe("topic", "audit")
    before = store.queues()
    call, words = NEAR[name]
    with pytest.raises((QueueNotFound, SubscriptionNotFound, InvalidArgument), match=words):
        call(store)
    with store.transaction() as txn, pytest.raises(InvalidArgument, match="put to 'topic'"):
        txn.put("topic/audit", b"")
    assert store.queues() == before


def test_options_of_open(store_path: str) -> None:
    """Of a store that is not there, which is not made."""
    with pytest.raises(InvalidArgument, match="did you mean 'data_files'"):
        quire.open(store_path, data_fils=2)
    assert not os.path.exists(store_path)


def test_what_is_near() -> None:
    """A name is not near to itself, and what is long is not looked through."""
    assert did_you_mean("b", ["a", "b"]) == ""
    assert did_you_mean("bills", ["bill", "bells"]) == " (did you mean 'bill'?)"
    assert did_you_mean("q", []) == did_you_mean("", ["q"]) == did_you_mean(5, ["q"]) == ""
    assert did_you_mean("queue-x", (f"queue-{n}" for n in range(100_000)))


@pytest.mark.parametrize("store", ["embedded", "joined", "elected"], indirect=True)
def test_a_closed_store_is_no_block(store: AnyStore) -> None:
    """What would be done in it is not begun."""
    store.close()
    with pytest.raises(StoreClosed, match="closed"), store:
        pytest.fail("it was entered")


def test_a_closed_store_of_asyncio_is_no_block(store_path: str) -> None:
    """The same."""

    async def enter() -> None:
        store = await quire.aio.open(store_path)
        await store.close()
        async with store:
            pytest.fail("it was entered")

    with pytest.raises(StoreClosed):
        asyncio.run(enter())


@pytest.mark.parametrize("store", ["embedded", "joined", "elected"], indirect=True)
@pytest.mark.parametrize("name", ["put", "get", "subscribe", "create_queue", "put_many"])
def test_classes_that_nobody_sees_are_not_named(store: AnyStore, name: str) -> None:
    """Where arguments are missing Python tells whose they are."""
    with pytest.raises(TypeError, match=rf"^Store\.{name}\(\)"):
        getattr(store, name)()
    with store.transaction() as txn, pytest.raises(TypeError, match=r"^Transaction\.put\(\)"):
        txn.put()  # type: ignore[call-arg]
    assert inspect.signature(type(store).put) is not None


FORBIDDEN = """
import os, sys
import quire, quire.remote, quire.engine
import quire.remote.ownership.election, quire.remote.ownership.succession
import quire.opening
quire.opening.JOIN_SECONDS = 0.1
os.setuid(65534)
for call in (lambda: quire.open(sys.argv[1]), lambda: quire.connect(sys.argv[2])):
    try:
        call()
    except quire.QuireError as error:
        print(type(error).__name__, error)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="it takes root to be another user")
def test_a_socket_of_another_user() -> None:
    """The error says that it is forbidden, and where."""
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        path = os.path.join(directory, "store")
        with quire.open(path):
            os.chmod(path, 0o755)
            os.chmod(os.path.join(path, "LOCK"), 0o666)
            run = run_directory(path)
            url = f"quire+unix://{run}/quire.sock"
            told = subprocess.run(
                [sys.executable, "-c", FORBIDDEN, path, url],
                capture_output=True, text=True, check=True, cwd=ROOT,
            ).stdout.splitlines()  # fmt: skip
    assert [line.split()[0] for line in told] == [StoreLocked.__name__, ConnectionLost.__name__]
    assert f"permission denied: this process may not use {run}/address" in told[0]
    assert f"permission denied: this process may not use the socket {run}" in told[1]
