"""Interrupts (a signal's exception) at the worst moments of a commit."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from quire.engine import Store
from quire.testing import Call, SimEnv


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
            go_on.wait(10)

    def interrupt() -> None:
        while len(store._manager.sequencer._queue) == 0:
            pass
        os.kill(os.getpid(), signal.SIGINT)
        threading.Timer(0.2, go_on.set).start()

    leader = threading.Thread(target=store.put, args=("work", b"first"))
    env.before_call = hold
    leader.start()
    assert writing.wait(10)
    threading.Thread(target=interrupt).start()
    transaction = store.transaction()
    with pytest.raises(KeyboardInterrupt), transaction:
        transaction.put("work", b"second")
    leader.join(10)
    env.before_call = None
    assert transaction.state == "committed"
    info = store.queue("work")
    assert (info.messages, info.open_transactions, info.reserving) == (2, 0, 0)
    assert store.put("work", b"third") == 3
    assert store.verify().ok
    store.close()
