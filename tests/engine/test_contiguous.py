"""Reading from contiguous places: what a transaction wrote in turns with others is read in a row.

Source: "Managing message queues" (JP 2008-547130), paragraphs 0041-0046 and the claims on messages
that are read from consecutive locations. What the reader asks of the disk is noted at the
environment's seam.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, cast

import pytest

from quire.engine import EmbeddedStore as Store
from quire.env import File
from quire.testing import SimEnv

PAGE = 4096
OPTIONS: dict[str, Any] = {"background": False, "page_size": PAGE, "grow_bytes": 1 << 16}
MESSAGES, TRANSACTIONS = 200, 4  # messages of each transaction


class NotedFile:
    """A simulated file; the pages of data files and large files that are read are noted."""

    def __init__(self, file: File, read: list[tuple[str, int]]) -> None:
        self._file, self._read = file, read

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._file, name)
        if name not in ("read", "read_block") or not self._file.path.endswith((".dat", ".ltds")):
            return member

        def noted(offset: int, length: int) -> Any:
            pages = range(offset // PAGE, -(-(offset + length) // PAGE))
            self._read.extend((self._file.path, page) for page in pages)
            return member(offset, length)

        return noted


class NotingEnv(SimEnv):
    """A simulated machine that notes which pages are read, in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.pages_read: list[tuple[str, int]] = []

    def open_file(self, path: str, **options: bool) -> Any:
        return NotedFile(cast(File, super().open_file(path, **options)), self.pages_read)


def open_noting(**options: Any) -> tuple[NotingEnv, Store]:
    """A store with a queue on a machine that notes reads."""
    env = NotingEnv()
    store = Store.open("/s", env=env, **OPTIONS, **options)
    store.create_queue("q", kind="work")
    return env, store


def put_in_turns(store: Store, *, large: bool = False) -> None:
    """Each of the transactions puts a message, then each the next one; then all commit."""
    transactions = [store.transaction(large=large) for _ in range(TRANSACTIONS)]
    for number in range(MESSAGES):
        for name, transaction in enumerate(transactions):
            transaction.put("q", b"%d:%05d" % (name, number) + bytes(93))
    for transaction in transactions:
        transaction.commit()


def pages_of_transactions(env: NotingEnv, store: Store) -> list[list[tuple[str, int]]]:
    """The pages that the delivery of each of the transactions reads."""
    found = []
    for name in range(TRANSACTIONS):
        env.pages_read.clear()
        with store.transaction() as txn:
            payloads = txn.get_many("q", MESSAGES).payloads()
        found.append(list(env.pages_read))
        assert [payload[:7] for payload in payloads] == [
            b"%d:%05d" % (name, number) for number in range(MESSAGES)
        ]
    return found


def block_bytes(store: Store) -> list[int]:
    """The bytes of each block of the queue."""
    return [ref.length for ref in store._context.state.queue("q").records]


def consecutive(pages: list[tuple[str, int]]) -> bool:
    """Whether they are one page after another of one file."""
    return all(after == (path, page + 1) for (path, page), after in pairwise(pages))


def test_un_interleaved_messages_are_read_from_consecutive_pages() -> None:
    """[0043, 0046] A transaction's messages take as many pages as their bytes need, in a row."""
    env, store = open_noting(inline_limit_bytes=1)
    with store:
        put_in_turns(store)
        sizes = block_bytes(store)
        assert len(sizes) == TRANSACTIONS
        for size, pages in zip(sizes, pages_of_transactions(env, store), strict=True):
            assert len(pages) == -(-size // PAGE) < MESSAGES / 20
            assert consecutive(pages)
        assert store.admin.verify().ok


def test_without_a_buffer_each_message_is_a_page() -> None:
    """[0046] And those of the other transactions lie in between."""
    env, store = open_noting(inline_limit_bytes=1, write_buffer_messages=1)
    with store:
        put_in_turns(store)
        for pages in pages_of_transactions(env, store):
            assert len(pages) == MESSAGES
            assert len(set(pages)) == MESSAGES
            assert not any(consecutive(list(pair)) for pair in pairwise(pages[:-1]))
        assert store.admin.verify().ok


def test_what_a_checkpoint_has_packed_is_read_from_consecutive_pages() -> None:
    """Small transactions leave the journal for one extent, which is read as a whole, once."""
    env, store = open_noting()
    with store:
        put_in_turns(store)
        store.admin.checkpoint()
    with Store.open("/s", env=env, **OPTIONS) as store:
        records = store._context.state.queue("q").records
        (listed,) = records.directory
        (ref,) = records.read_page(listed)
        (path, record_page), *blocks = [
            page for pages in pages_of_transactions(env, store) for page in pages
        ]
        first = ref.address // PAGE
        assert record_page == listed.page
        assert blocks == [(path, page) for page in range(first, first - (-ref.length // PAGE))]
        assert len(blocks) < TRANSACTIONS * MESSAGES / 30
        assert store.admin.verify().ok


@pytest.mark.parametrize(
    "options",
    [{"large_flush_bytes": 10_000}, {"when_full": "large", "write_buffer_messages": 100}],
    ids=["begun as large", "became large"],
)
def test_a_large_transaction_is_read_from_consecutive_pages(options: dict[str, Any]) -> None:
    """[0043, 0058] Its file holds its messages alone: header, end and directory, then the rest."""
    env, store = open_noting(**options)
    with store:
        put_in_turns(store, large="when_full" not in options)
        for (path, header), (_, trailer), (_, directory), *blocks in pages_of_transactions(
            env, store
        ):
            assert path.endswith(".ltds")
            assert (header, directory) == (0, trailer - 1)
            assert blocks == [(path, page) for page in range(1, directory)]
            assert len(blocks) < MESSAGES / 8
        assert store.admin.verify().ok
