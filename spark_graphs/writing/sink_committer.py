"""The commit of a sink: all tasks' fragments, over all queues, in one transaction, exactly once.

YC1. One compound transaction puts all fragments in task order and enters the write in the store's
    ledger. What the ledger has already is not put (write_ledger.py).
YC2. A commit whose outcome is not known is repeated: the ledger tells whether it took effect.
    Without a ledger it is not repeated, and OutcomeUnknown is raised.
YC3. A file that is to be adopted is removed only if no commit that named it can have taken effect.
    All others are left to the store's owner, which reclaims old files that no transaction adopted.
YC4. A write is skipped only if it is committed with the same content (write_ledger.py, YG2).
YC5. A file that queues share is never part of the store: the commit puts its blocks, of which few
    MiB are read at a time, and removes it once it is known what became of it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING

from quire.arguments import Bytes
from quire.env import Env, OsEnv
from quire.errors import (
    AlreadyCommitted,
    OutcomeUnknown,
    QueueFull,
    QueueNotFound,
    QuireError,
    StoreFailed,
)
from quire.spark_graphs import connection, position_range
from quire.spark_graphs.fragments.fragment import Fragment
from quire.spark_graphs.limits import FLUSH_BYTES, LEDGER_TRIES, QUEUE_FULL_PAUSE_SECONDS
from quire.spark_graphs.task_files.task_files import TaskFiles, files_at

from . import sink_queues
from .write_ledger import WriteLedger

if TYPE_CHECKING:
    from quire.interface.store import Store
    from quire.interface.transaction import Transaction


_log = logging.getLogger("quire.spark_graphs")


class FragmentCommitter:
    """Commits the fragments of one micro-batch or one batch write.

    Args:
        ledger: of the write; None for one that is not repeatable.
        queue_full_timeout: seconds to wait for room in a queue before QueueFull is raised.
    """

    def __init__(
        self,
        path: str,
        ledger: WriteLedger | None,
        queue_full_timeout: float,
        env: Env | None = None,
    ) -> None:
        self._path = path
        self._ledger = ledger
        self._queue_full_timeout = queue_full_timeout
        self._env = env or OsEnv()
        self._files = files_at(path, env)
        self._may_have_committed = False

    def commit(self, fragments: list[Fragment]) -> None:
        """Put all fragments, or find that they are there already. Raises what prevents it."""
        if not fragments:
            return
        full_until = self._env.monotonic() + self._queue_full_timeout
        is_checked = False
        while True:
            try:
                self._call(fragments)
                self._remove({f.shared_id for f in fragments})
                return
            except AlreadyCommitted as error:
                _log.warning("nothing is written again: %s", error)
                self.discard(fragments)
                return
            except QueueFull as error:
                if not is_checked:
                    self._refuse_too_large(fragments)
                is_checked = True
                if self._env.monotonic() + QUEUE_FULL_PAUSE_SECONDS > full_until:
                    self.discard(fragments)
                    raise QueueFull(
                        f"{error} (no room came within {self._queue_full_timeout:g} seconds; let "
                        "consumers catch up, or raise the option queueFullTimeout)"
                    ) from error
                self._env.sleep(QUEUE_FULL_PAUSE_SECONDS)
            except OutcomeUnknown as error:
                if self._ledger is not None:
                    raise
                raise OutcomeUnknown(
                    f"{error}. Look into the queues whether the write is there; give txnAppId and "
                    "txnVersion to a write that shall be repeated safely"
                ) from error
            except QuireError:
                self.discard(fragments)
                raise

    def _refuse_too_large(self, fragments: list[Fragment]) -> None:
        """Raise QueueFull where waiting for room would be in vain."""
        shares = sink_queues.shares_of(fragments)
        try:
            connection.call(
                self._path,
                lambda store: sink_queues.check_capacities(store, shares),
                env=self._env,
            )
        except QuireError:
            self.discard(fragments)
            raise

    def discard(self, fragments: Iterable[Fragment]) -> None:
        """Remove the files of fragments that cannot be part of the store (YC3)."""
        shared_only = self._may_have_committed
        self._remove({f.shared_id if shared_only else f.ltds_id for f in fragments})

    def _remove(self, files: Iterable[int | None]) -> None:
        """Leave to the owner what cannot be removed; it is no reason to fail."""
        try:
            self._files.remove([ltds_id for ltds_id in files if ltds_id is not None])
        except OSError as error:
            _log.warning("fragments are left to age: %s", error)

    def _call(self, fragments: list[Fragment]) -> None:
        connection.call(
            self._path,
            lambda store: self._attempt(store, fragments),
            repeat_unknown=self._ledger is not None,
            env=self._env,
        )

    def _attempt(self, store: Store, fragments: list[Fragment]) -> None:
        """One attempt. Raises AlreadyCommitted also before any work is done."""
        missing = fragments
        for tries_left in reversed(range(LEDGER_TRIES)):
            missing = self._missing(store, fragments)
            sink_queues.check_durable(store, {fragment.queue for fragment in missing})
            try:
                with store.transaction() as txn:
                    self._put(store, txn, missing)
            except QueueNotFound:
                position_range.infos(store, {fragment.queue for fragment in fragments})  # advice
                raise
            except (OutcomeUnknown, StoreFailed):  # a record that failed may be read back
                self._may_have_committed = True
                raise
            except AlreadyCommitted:  # by another write, after the look into the ledger
                if not tries_left:
                    raise
            else:
                break
        if not self._may_have_committed:
            self._remove({each.ltds_id for each in fragments if each not in missing})

    def _missing(self, store: Store, fragments: list[Fragment]) -> list[Fragment]:
        """Return what is not there yet. Raises AlreadyCommitted if all is, InputChanged (YC4)."""
        if self._ledger is None:
            return fragments
        queues = self._ledger.missing(store, {fragment.queue for fragment in fragments})
        if not queues:
            raise AlreadyCommitted(f"the ledger of {self._path} holds {self._ledger.describe()}")
        return [fragment for fragment in fragments if fragment.queue in queues]

    def _put(self, store: Store, txn: Transaction, fragments: list[Fragment]) -> None:
        put_fragments(self._files, store, txn, fragments)
        if self._ledger is not None:
            self._ledger.enter(txn)


def put_fragments(
    files: TaskFiles, store: Store, txn: Transaction, fragments: Iterable[Fragment]
) -> None:
    """Put what fragments hold, or adopt their files, in their order."""
    for shared_id, group in groupby(fragments, key=lambda fragment: fragment.shared_id):
        if shared_id is not None:
            _put_shared(files, store, txn, shared_id, group)
            continue
        for own, some in groupby(group, key=lambda fragment: fragment.block is None):
            if not own:
                txn.integration.put_blocks((f.queue, f.block) for f in some if f.block is not None)
                continue
            for fragment in some:
                if fragment.ltds_id is not None:
                    txn.integration.adopt(fragment.queue, fragment.ltds_id)


def _put_shared(
    files: TaskFiles, store: Store, txn: Transaction, ltds_id: int, fragments: Iterable[Fragment]
) -> None:
    """Put blocks of one file (YC5)."""
    queues = {
        number: fragment.queue
        for fragment in fragments
        for number in range(*(fragment.blocks or ()))
    }
    with files.open_fragment(ltds_id, store.integration.store_id) as file:
        blocks = file.contents(list(queues))
        some: list[tuple[str, Bytes]] = []
        size = 0
        # Read before they are put: the file may be read by calls of the same store.
        for queue, block in zip(queues.values(), blocks, strict=True):
            some.append((queue, block))
            size += len(block)
            if size >= FLUSH_BYTES:
                txn.integration.put_blocks(some)
                some, size = [], 0
        txn.integration.put_blocks(some)
