"""A store through which messages go for long, in a process whose own memory is looked at.

    python -m tests.engine.soak_process ROLE STORE ROUNDS MESSAGES OPTIONS

Prints the megabytes that are the process's own after each round, as JSON.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path

from quire.engine import EmbeddedStore as Store


def put(store: Store) -> None:
    """One message, on its own."""
    store.put("queue", b"a payload of 20 byte")


def get(store: Store) -> None:
    """One message, on its own."""
    with store.transaction() as txn:
        assert txn.get("queue") is not None


def one_after_another(store: Store, messages: int) -> None:
    """Each message is read before the next one is put."""
    for _ in range(messages):
        put(store)
        get(store)


def backlog(store: Store, messages: int) -> None:
    """All are put before the first one is read."""
    for _ in range(messages):
        put(store)
    for _ in range(messages):
        get(store)


ROLES: dict[str, Callable[[Store, int], None]] = {
    "one_after_another": one_after_another,
    "backlog": backlog,
}


def own() -> float:
    """The resident memory that is no file's, in megabytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1000
    raise RuntimeError("/proc/self/status does not say RssAnon")


def main() -> None:
    """Open a new store; so many rounds of so many messages."""
    role, path, rounds, messages, options = sys.argv[1:]
    sizes = []
    with Store.open(path, **json.loads(options)) as store:
        store.create_queue("queue", kind="work")
        for _ in range(int(rounds)):
            ROLES[role](store, int(messages))
            gc.collect()
            sizes.append(own())
        assert store.queue("queue").messages == 0
    print(json.dumps(sizes))


if __name__ == "__main__":
    main()
