"""What `JobGroup` promises (W1 to W3 in its module): one time each, no job under way at the end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from quire.engine.pages.io_worker import IoWorker, Job, JobGroup
from quire.errors import DiskFull, StoreFailed
from tests.kit.waiting import SECONDS


@pytest.fixture
def workers() -> Iterator[list[IoWorker]]:
    """Three threads, ended afterwards."""
    made = [IoWorker(f"test {n}") for n in range(3)]
    yield made
    for worker in made:
        worker.stop()


def failing(error: BaseException) -> Callable[[], None]:
    """An action that raises."""

    def fail() -> None:
        raise error

    return fail


def test_jobs_run_at_the_same_time(workers: list[IoWorker]) -> None:
    """Three jobs that wait for each other, and for the caller's own, all end."""
    together = threading.Barrier(4)
    threads: list[int] = []

    def meet() -> None:
        together.wait(SECONDS)
        threads.append(threading.get_ident())

    work = JobGroup(limit=4)
    for worker in workers:
        work.begin(meet, worker)
    work.begin(meet)
    work.finish()
    assert len(set(threads)) == 4
    assert threading.get_ident() in threads


def test_w1_a_busy_worker_is_not_waited_for(workers: list[IoWorker]) -> None:
    """What a worker has not begun is done by the thread that waits for it, and only there."""
    hold = threading.Event()

    def occupy() -> None:
        hold.wait(SECONDS)

    workers[0].take(Job(occupy))
    done: list[int] = []
    work = JobGroup(limit=10)
    for _ in range(10):
        work.begin(lambda: done.append(threading.get_ident()), workers[0])
    work.finish()
    assert done == [threading.get_ident()] * 10
    hold.set()
    workers[0].stop()  # it comes past all ten
    assert len(done) == 10


def test_w1_a_worker_that_was_stopped_is_not_waited_for(workers: list[IoWorker]) -> None:
    """It takes nothing and starts no thread any more."""
    workers[0].stop()
    done: list[int] = []
    work = JobGroup(limit=1)
    work.begin(lambda: done.append(threading.get_ident()), workers[0])
    work.finish()
    assert done == [threading.get_ident()]


def test_w2_an_interrupt_waits_for_what_is_under_way(workers: list[IoWorker]) -> None:
    """The caller's own job is interrupted: `finish` raises when the other has ended, not before."""
    begun, interrupted, ended = threading.Event(), threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        interrupted.wait(SECONDS)
        ended.set()

    def interrupt() -> None:
        begun.wait(SECONDS)
        threading.Timer(0.05, interrupted.set).start()
        raise KeyboardInterrupt

    work = JobGroup(limit=2)
    work.begin(slow, workers[0])
    work.begin(interrupt)
    with pytest.raises(KeyboardInterrupt):
        work.finish()
    assert ended.is_set()


def test_w2_cancel_begins_nothing_and_waits_for_the_rest(workers: list[IoWorker]) -> None:
    """What a worker has begun ends; what it has not begun is never done."""
    begun, go_on = threading.Event(), threading.Event()
    done: list[str] = []

    def slow() -> None:
        begun.set()
        go_on.wait(SECONDS)
        done.append("slow")

    work = JobGroup(limit=3)
    work.begin(slow, workers[0])
    begun.wait(SECONDS)
    work.begin(lambda: done.append("behind it"), workers[0])
    work.begin(lambda: done.append("own"))
    threading.Timer(0.05, go_on.set).start()
    work.cancel()
    assert done == ["slow"]
    workers[0].stop()
    assert done == ["slow"]


@pytest.mark.promise(11)
@pytest.mark.parametrize("turn", [0, 1, 2])
def test_w3_the_gravest_failure_is_raised(workers: list[IoWorker], turn: int) -> None:
    """A failed write beside files without room: StoreFailed, whoever comes first."""
    errors: list[BaseException] = [DiskFull("full"), DiskFull("full"), DiskFull("full")]
    errors[turn] = StoreFailed("a write has failed")
    together = threading.Barrier(3)

    def fail(error: BaseException) -> Callable[[], None]:
        def action() -> None:
            together.wait(SECONDS)
            raise error

        return action

    work = JobGroup(limit=3)
    for error, worker in zip(errors, [*workers[:2], None], strict=True):
        work.begin(fail(error), worker)
    with pytest.raises(StoreFailed):
        work.finish()


def test_a_bounded_number_is_under_way(workers: list[IoWorker]) -> None:
    """The next one begins when the oldest has ended; its failure is raised there."""
    done: list[int] = []
    work = JobGroup(limit=1)
    for n in range(5):
        work.begin(lambda n=n: done.append(n), workers[n % 3])  # type: ignore[misc]
        assert done[:n] == list(range(n))
    work.begin(failing(DiskFull("full")), workers[0])
    with pytest.raises(DiskFull):
        work.begin(lambda: done.append(99), workers[1])
    work.cancel()
    assert 99 not in done
