"""Interrupts (a signal's exception) at the worst moments of a commit."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.engine import EmbeddedTransaction as Transaction
from quire.engine.commits.queue_writes import QueueWrites
from quire.engine.commits.transaction_change import TransactionChange
from quire.errors import StoreFailed, TransactionClosed
from quire.testing import Call, SimEnv
from tests.kit.messages import take
from tests.kit.waiting import SECONDS


@pytest.mark.promise(2)
def test_promise_2_an_interrupt_while_a_group_is_awaited_does_not_undo_a_commit() -> None:
    """C8: who waits for its group hears of the interrupt when the outcome is known: it stands."""
    env = SimEnv()
    store = Store.open("/store", env=env, background=False)
    store.create_queue("work", kind="work")
    writing, go_on = threading.Event(), threading.Event()

    def hold(call: Call) -> None:
        if call.kind == "write" and threading.current_thread() is leader:
            writing.set()
            go_on.wait(SECONDS)

    def interrupt() -> None:
        while len(store._context.sequencer._queue) == 0:
            pass
        os.kill(os.getpid(), signal.SIGINT)
        threading.Timer(0.2, go_on.set).start()

    leader = threading.Thread(target=store.put, args=("work", b"first"))
    env.before_call = hold
    leader.start()
    assert writing.wait(SECONDS)
    threading.Thread(target=interrupt).start()
    transaction = store.transaction()
    with pytest.raises(KeyboardInterrupt), transaction:
        transaction.put("work", b"second")
    leader.join(SECONDS)
    env.before_call = None
    assert transaction.state == "committed"
    info = store.queue("work")
    assert (info.messages, info.open_transactions, info.reserving) == (2, 0, 0)
    assert store.put("work", b"third") == 3
    assert store.admin.verify().ok
    store.close()


@pytest.mark.promise(2)
@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("prepare", [False, True])
def test_promise_2_an_interrupt_while_the_journal_is_written_leaves_the_outcome_open(
    store_path: str, monkeypatch: pytest.MonkeyPatch, *, large: bool, prepare: bool
) -> None:
    """What the record may point to is neither removed nor used again; the reopening tells."""
    payload = b"x" * 400_000
    with Store.open(store_path, write_buffer_bytes=100_000) as store:
        store.create_queue("work", kind="work")
        journal = store._opened.journal
        write = journal._write

        def interrupted(*arguments: Any) -> None:
            write(*arguments)
            raise KeyboardInterrupt  # the record is on disk

        other = store.transaction()
        transaction = store.transaction(large=large)
        transaction.put("work", payload)
        transaction.put("work", payload)
        monkeypatch.setattr(journal, "_write", interrupted)
        with pytest.raises(KeyboardInterrupt), transaction:
            transaction.prepare("xid") if prepare else transaction.commit()
        assert transaction.state == "in doubt"
        transaction.rollback()
        for _ in range(3):  # it would take pages that were given back
            other.put("work", b"y" * 400_000)
        store._maintenance.stop()
        with suppress(StoreFailed):
            store._maintenance.step()
    with Store.open(store_path) as store:
        if prepare:
            store.prepared.commit("xid")
        assert take(store, "work") == [payload, payload]
        assert store.admin.verify().ok


@pytest.mark.promise(2)
def test_promise_2_an_interrupt_of_one_commit_keeps_the_pages_of_its_group(
    store_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C6: the record of another one was written with it; nobody takes that one's pages."""
    with Store.open(store_path, inline_limit_bytes=1, write_buffer_bytes=100_000) as store:
        store.create_queue("work", kind="work")
        leader, member, third = (store.transaction() for _ in range(3))
        leader.put("work", b"leader" * 10_000)
        member.put("work", b"member" * 10_000)
        sequencer = store._context.sequencer
        taken, go_on = threading.Event(), threading.Event()

        def hold() -> None:
            taken.set()
            go_on.wait(SECONDS)

        def interrupted(*_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

        threads = [threading.Thread(target=sequencer.exclusive, args=(hold,))]
        threads[0].start()
        assert taken.wait(SECONDS)
        for number, transaction in enumerate((leader, member)):
            threads.append(threading.Thread(target=end, args=(transaction,)))
            threads[-1].start()
            while len(sequencer._queue) <= number:
                pass
        monkeypatch.setattr(TransactionChange, "apply", interrupted)
        go_on.set()
        for thread in threads:
            thread.join(SECONDS)
        monkeypatch.undo()
        assert member.state == "in doubt"
        for _ in range(3):
            third.put("work", b"third" * 20_000)
    with Store.open(store_path) as store:
        assert take(store, "work") == [b"leader" * 10_000, b"member" * 10_000]
        assert store.admin.verify().ok


def end(transaction: Transaction) -> None:
    """Commit, whatever comes of it."""
    with suppress(KeyboardInterrupt, StoreFailed):
        transaction.commit()


@pytest.mark.promise(2)
@pytest.mark.parametrize("when_full", ["spill", "large"])
def test_promise_2_an_interrupt_while_another_transaction_leaves_the_buffer(
    when_full: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is whole, or it is rolled back and its owner is told: never part of it is committed."""
    env = SimEnv()
    with Store.open(
        "/s", env=env, background=False, write_buffer_messages=2, when_full=when_full
    ) as store:
        store.create_queue("work", kind="work")
        oldest, asking = store.transaction(), store.transaction()
        oldest.put("work", b"1")
        oldest.put("work", b"2")
        drain = QueueWrites._drain

        def interrupted(self: QueueWrites) -> None:
            drain(self)
            raise KeyboardInterrupt

        monkeypatch.setattr(QueueWrites, "_drain", interrupted)
        with pytest.raises(KeyboardInterrupt):
            asking.put("work", b"3")
        monkeypatch.undo()
        with pytest.raises(TransactionClosed, match="rolled back"):
            oldest.commit()
        asking.put("work", b"3")
        asking.commit()
        assert take(store, "work") == [b"3"]
        assert (store.queue("work").used_bytes, store.queue("work").open_transactions) == (0, 0)
        assert store.admin.verify().ok
