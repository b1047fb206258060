"""The processes of a store that is served over TLS, for kill -9: servers, and clients that move.

Two servers have the store's directory: one owns it and listens, the other one waits to. Each client
puts messages with request ids, moves as many, and notes in the ledger how far it is, so that who
comes back goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import quire
import quire.opening
from quire.errors import ConnectionLost, OutcomeUnknown
from quire.tls import Tls

ASKED, DONE, LOG = "asked", "done", "log"
WAIT_SECONDS: Final = 60.0  # for a message that a process had that was killed
ATTEMPTS: Final = 1000

T = TypeVar("T")


def serve(path: str, port: str, cert: str, key: str, authority: str) -> None:
    """Serve the store until killed."""
    tls = Tls(cert=cert, key=key, ca=authority)
    quire.opening.serve(path, listen=[f"localhost:{port}"], tls=tls)


def create(path: str) -> None:
    """Make the store and its queues."""
    with quire.open(path) as store:
        store.create_queue(ASKED, kind="work", dedup_count=100_000)
        store.create_queue(DONE, kind="work")
        store.create_queue(LOG, kind="work")


def payload(name: str, number: int) -> bytes:
    """Return a client's message."""
    return f"{name} {number}".encode()


def again(call: Callable[[], T]) -> T:
    """Return its result, for a call that is the same twice as once."""
    while True:
        try:
            return call()
        except (ConnectionLost, OutcomeUnknown):
            time.sleep(0.01)


def move(txn: Any) -> None:
    """Move a message, whoever has put it, to two queues."""
    message = txn.get(ASKED, WAIT_SECONDS)
    txn.put(DONE, message.payload)
    txn.put(LOG, message.payload)


def work(url: str, name: str, cert: str, key: str, authority: str) -> None:
    """Put and move, and print the number of each move that is acknowledged, until killed."""
    tls = Tls(ca=authority, cert=cert, key=key)
    with again(lambda: quire.open(url, tls=tls)) as store:
        number = again(lambda: store.integration.ledger(name)) or 0
        while True:
            number += 1
            text = payload(name, number)
            again(lambda: store.put_many(ASKED, [text], request_ids=[text.decode()]))  # noqa: B023
            quire.run_transaction(store, move, attempts=ATTEMPTS, entry=(name, number))
            print(number, flush=True)
