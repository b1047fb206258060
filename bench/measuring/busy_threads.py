"""Threads that all do something again and again, while somebody else measures."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Work", "busy_threads"]

Work = Callable[[int], Callable[[], object]]  # of the thread's number: what it does again and again


@contextmanager
def busy_threads(count: int, work: Work) -> Iterator[list[int]]:
    """Run threads while the block runs; gives how often each has done its work so far."""
    stop, gate = threading.Event(), threading.Barrier(count + 1)
    done = [0] * count

    def repeat(number: int) -> None:
        step, stopped, times = work(number), stop.is_set, 0
        gate.wait()
        while not stopped():
            step()
            times += 1
            done[number] = times

    threads = [threading.Thread(target=repeat, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    gate.wait()
    try:
        yield done
    finally:
        stop.set()
        for thread in threads:
            thread.join()
