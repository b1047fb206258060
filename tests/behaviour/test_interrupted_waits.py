"""A signal that raises while somebody is woken: no other thread waits for ever because of it."""

from __future__ import annotations

import threading
from random import Random
from typing import Any

import pytest

from quire import Workers
from tests.behaviour.forms import WITH_CALLBACKS, AnyStore
from tests.behaviour.test_listening import SequenceProgress
from tests.kit.moments import at_moment, some_moments
from tests.kit.waiting import SECONDS, ends, eventually

MOMENTS = [4, pytest.param(0, marks=pytest.mark.long)]  # of each call; 0: all


@pytest.mark.parametrize("store", WITH_CALLBACKS, indirect=True)
@pytest.mark.parametrize("most", MOMENTS)
def test_an_interrupted_stop_of_a_loop_stops_nobody_else(
    store: AnyStore, work: str, rng: Random, most: int
) -> None:
    """What is put wakes other loops, and the loop ends by another `stop`."""

    def loop() -> tuple[Any, threading.Thread]:
        consumer = store.consume(work)
        thread = threading.Thread(target=list, args=(consumer,), daemon=True)
        thread.start()
        return consumer, thread

    first, waiting = loop()
    moments = list(some_moments(first.stop, rng, most, last=4))
    waiting.join(SECONDS)
    for moment in moments:
        consumer, thread = loop()
        at_moment(consumer.stop, moment)
        assert ends(lambda: store.put(work, b"x")), moment
        assert ends(consumer.stop), moment
        thread.join(SECONDS / 10)
        assert not thread.is_alive(), moment
        store.get_many(work)


@pytest.mark.parametrize("store", WITH_CALLBACKS, indirect=True)
@pytest.mark.parametrize("most", MOMENTS)
def test_an_interrupted_close_of_a_listener_silences_nobody_else(
    store: AnyStore, work: str, rng: Random, most: int
) -> None:
    """Others hear, more can be added, what is put is put; the one that was to be closed is."""
    other = SequenceProgress()
    store.listeners.add(work, callback=other)
    first = store.listeners.add(work, callback=lambda notice: None)
    moments = list(some_moments(first.close, rng, most, last=4))
    for count, moment in enumerate(moments, 1):
        listener = store.listeners.add(work, callback=lambda notice: None)
        at_moment(listener.close, moment)
        assert ends(lambda: store.put(work, b"x")), moment
        other.wait(count)
        assert ends(listener.close), moment
        assert listener.closed
    assert ends(lambda: store.listeners.add(work, callback=other).close())


@pytest.mark.parametrize("store", WITH_CALLBACKS[:1], indirect=True)
def test_a_listener_whose_close_was_interrupted_keeps_no_thread(
    store: AnyStore, work: str, rng: Random
) -> None:
    """Though nobody closes it again: once it has begun to close, its thread ends."""
    first = store.listeners.add(work, callback=lambda notice: None)
    for moment in some_moments(first.close, rng, 0):
        listener = store.listeners.add(work, callback=lambda notice: None)
        at_moment(listener.close, moment)
        store.put(work, b"x")  # a look
        if not listener.closed:  # it had not begun
            listener.close()
        eventually(lambda: not _callback_threads())


def _callback_threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == "quire-listen"]


@pytest.mark.parametrize("store", WITH_CALLBACKS, indirect=True)
@pytest.mark.parametrize("most", MOMENTS)
def test_an_interrupted_stop_of_workers_stops_nobody_else(
    store: AnyStore, work: str, rng: Random, most: int
) -> None:
    """Another `stop` ends them."""

    def run() -> tuple[Workers, threading.Thread]:
        workers = Workers(store)
        workers.on(work)(lambda message, txn: None)
        thread = threading.Thread(target=workers.run, daemon=True)
        thread.start()
        return workers, thread

    first, thread = run()
    eventually(lambda: first.status()[0].running)
    moments = list(some_moments(first.stop, rng, most, last=4))
    thread.join(SECONDS)
    for moment in moments:
        workers, thread = run()
        eventually(lambda workers=workers: workers.status()[0].running)  # type: ignore[misc]
        at_moment(workers.stop, moment)
        assert ends(lambda: store.put(work, b"x")), moment
        assert ends(workers.stop), moment
        thread.join(SECONDS)
        assert not thread.is_alive(), moment
        store.get_many(work)
