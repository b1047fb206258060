"""Processes that have a store open and do what a test says, line by line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from quire.interface.store import Store
from quire.opening import open as open_store
from quire.remote import JoinedStore
from quire.remote.ownership.succession import Succession
from tests.kit.children import Child

# Evaluates each line that it reads; `hang(...)` lets it hang in a method of a transaction or store.
PROGRAM = """
import ast, os, signal, sys, threading, time
import quire
from quire.engine import EmbeddedStore, EmbeddedTransaction
from quire.engine.namespaces.admin import AdminHandlers
from quire.engine.namespaces.integration import IntegrationHandlers
from quire.opening import open

def hang(kind, name, moment):
    real = getattr(kind, name)
    def hanging(*arguments, **named):
        if moment == "after":
            real(*arguments, **named)
        print("hanging", flush=True)
        time.sleep(1000)
    setattr(kind, name, hanging)

def begin():
    global txn
    txn = store.transaction()
    return txn.state

def transact(queue, payload, key=None, version=0):
    with store.transaction() as txn:
        txn.put(queue, payload)
        if key:
            txn.enter(key, version)
    return txn.state

def do(*calls):
    return [call() for call in calls][-1]

store = open(sys.argv[1], **ast.literal_eval(sys.argv[2]))
if store.role == "owner":
    store.share(store._env).wait_started()
print(store.role, flush=True)
for line in sys.stdin:
    try:
        print(repr(eval(line)), flush=True)
    except quire.QuireError as error:
        print(type(error).__name__, str(error), flush=True)
store.close()
print("closed", flush=True)
"""
OPTIONS: dict[str, Any] = {"segment_bytes": 4 << 20}


class Actor(Child):
    """A process that has the store at `path` open, as its `role`."""

    def __init__(self, path: str, **options: object) -> None:
        super().__init__(PROGRAM, path, repr({**OPTIONS, **options}))
        self.role = self.line()

    def ask(self, expression: str) -> str:
        """What the expression gives there: its repr, or the name of the error and its words."""
        self.say(expression)
        return self.line()

    def end(self) -> None:
        """Let it close the store and end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.line() == "closed"
        assert self.wait() == 0


@contextmanager
def actor(path: str, **options: object) -> Iterator[Actor]:
    """One for the length of a block."""
    process = Actor(path, **options)
    try:
        yield process
    finally:
        process.close()


def owner_with_work(store_path: str) -> Iterator[Actor]:
    """A process that owns the store at `store_path`, with a work queue "work": a fixture."""
    with actor(store_path) as process:
        assert process.role == "owner"
        process.ask('store.create_queue("work", kind="work")')
        yield process


def joined_elected(owner: Actor, store_path: str) -> Iterator[JoinedStore]:
    """The store, joined by this process: a fixture."""
    with open_store(store_path, **OPTIONS) as joined:
        assert isinstance(joined, JoinedStore)
        yield joined


def succession_of(store: Store) -> Succession:
    """The policy of a joined store object that lives on."""
    assert isinstance(store, JoinedStore)
    policy = store._policy
    assert isinstance(policy, Succession)
    return policy
