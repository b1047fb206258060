"""A store, and files beneath it that are cut, removed or garbage: what a child of a test does then.

It imports no pytest, which takes longer than what a child does here.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from quire.engine import EmbeddedStore as Store
from quire.errors import QuireError, StoreCorrupt


def furnish(store: Store) -> None:
    """Queues whose messages are in the journal, in the data file, and in files of their own."""
    for name in ("journal", "data", "large", "streamed"):
        store.create_queue(name, kind="work")
    with store.transaction(large=True) as transaction:
        transaction.put_many("large", [b"l" * 1000] * 3000)
    with store.transaction() as transaction:
        transaction.put_stream("streamed", io.BytesIO(b"s" * 3_000_000))
    for _ in range(40):
        with store.transaction() as transaction:
            transaction.put_many("data", [b"d" * 1000] * 10)
    store.admin.checkpoint()
    store.put("journal", b"j" * 3000)
    store._context.places.cache.close()  # what is in memory would hide what is gone
    store._context.state.pages._cache.clear()


def calls_of(store: Store) -> Iterator[Callable[[], object]]:
    """Each way to read, and each to change something; the last ones end the store."""
    for name in ("journal", "data", "large", "streamed"):
        yield lambda name=name: [bytes(m.payload) for m in store.browse(name)]  # type: ignore[misc]
        yield lambda name=name: read_open(store, name)  # type: ignore[misc]
        yield lambda name=name: get_and_give_back(store, name)  # type: ignore[misc]
        yield lambda name=name: store.integration.lease_many([(name, 0, 1)])  # type: ignore[misc]
    yield store.status
    yield store.admin.verify
    yield lambda: store.put("journal", b"more")
    yield lambda: store.put("data", bytes(400_000))
    yield store.admin.checkpoint
    yield store.admin.verify
    yield store.close


def read_open(store: Store, name: str) -> None:
    """Each payload, in pieces."""
    for message in store.browse(name):
        while message.open().read(1 << 16) == b"never":
            pass


def get_and_give_back(store: Store, name: str) -> None:
    """Get one, and give it back."""
    with store.transaction() as transaction:
        transaction.get(name)
        transaction.rollback()


def spoil(path: str, how: str) -> None:
    """What somebody, or a disk, does to a file."""
    size = os.path.getsize(path)
    if how == "removed":
        os.remove(path)
    elif how == "replaced":
        content = Path(path).read_bytes()
        os.remove(path)
        Path(path).write_bytes(content)
    elif how == "garbage":
        with open(path, "r+b") as file:
            file.write(os.urandom(min(size, 1 << 20)))
    else:
        os.truncate(path, 0 if how == "cut to nothing" else size // 2)


def use(store_path: str, pattern: str, how: str) -> int:
    """Use a store with such a file, and open it again; how many calls raised an error of Quire."""
    store = Store.open(store_path, background=False, checkpoint_bytes=1 << 20)
    furnish(store)
    for path in Path(store_path).glob(pattern):
        spoil(str(path), how)
    raised = unnamed = 0
    for call in calls_of(store):
        try:
            call()
        except QuireError as error:
            raised += 1
            unnamed += type(error) is StoreCorrupt and store_path not in str(error)
    with contextlib.suppress(QuireError), Store.open(store_path, background=False) as again:
        for call in calls_of(again):
            with contextlib.suppress(QuireError):
                call()
    assert not unnamed
    return raised
