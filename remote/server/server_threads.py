"""The owner's threads for what may take long, or waits: as many as there is to do at once."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue

from quire.calls.wake_up import Condition, Thread
from quire.remote.limits import IDLE_WORKERS, MAX_WORKERS

ServerJob = Callable[[], None]


class ServerThreads:
    """Up to `MAX_WORKERS` threads, of which `IDLE_WORKERS` stay when there is nothing to do."""

    def __init__(self, changed: Condition) -> None:
        """`changed` is notified when a job is done."""
        self._changed = changed
        self._jobs: SimpleQueue[ServerJob | None] = SimpleQueue()
        self.count = 0  # of threads
        self.busy = 0  # jobs that are not done

    def add(self, job: ServerJob) -> None:
        """Have a thread do a job, which raises nothing."""
        with self._changed:
            self.busy += 1
            if self.busy > self.count and self.count < MAX_WORKERS:
                self.count += 1
                Thread(target=self._work, name="quire-serve").start()
        self._jobs.put(job)

    def stop(self) -> None:
        """Have the threads end, each when its job is done."""
        for _ in range(self.count):
            self._jobs.put(None)

    def _work(self) -> None:
        """Do jobs. By each thread."""
        is_needed = True
        while is_needed and (job := self._jobs.get()) is not None:
            job()
            del job
            with self._changed:
                self.busy -= 1
                is_needed = self.count - self.busy <= IDLE_WORKERS
                self.count -= not is_needed
                self._changed.notify_all()
        if is_needed:
            with self._changed:
                self.count -= 1
                self._changed.notify_all()
