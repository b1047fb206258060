"""The owner's threads for what may take long, or waits: as many as there is to do at once.

ST1. Of one user `UseAccount.workers` jobs are done at a time, beside those that wait for other
    clients; the others of that user stand in line. So a user with many connections leaves threads,
    and time, to all others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING

from quire.calls.wake_up import Condition, Thread
from quire.remote.limits import IDLE_WORKERS, MAX_WORKERS

if TYPE_CHECKING:
    from quire.remote.access.use_account import UseAccount

ServerJob = Callable[[], None]


class ServerThreads:
    """Up to `MAX_WORKERS` threads, of which `IDLE_WORKERS` stay when there is nothing to do."""

    def __init__(self, changed: Condition) -> None:
        """`changed` is notified when a job is done."""
        self._changed = changed  # it guards what follows
        self._jobs: SimpleQueue[tuple[ServerJob, UseAccount | None] | None] = SimpleQueue()
        self._in_line: dict[UseAccount, deque[ServerJob]] = {}  # of users with as many as may be
        self._at_work: dict[UseAccount, int] = {}  # that do not wait for other clients
        self.count = 0  # of threads
        self.busy = 0  # jobs that are not done
        self._begun = 0  # of these, those that do not stand in line

    def add(self, job: ServerJob, account: UseAccount | None = None) -> None:
        """Have a thread do a job, which raises nothing. `account`: of whose user it is (ST1)."""
        with self._changed:
            self.busy += 1
            if account is not None and self._at_work.get(account, 0) >= account.workers:
                self._in_line.setdefault(account, deque()).append(job)
                return
            self._begin(job, account)

    def _begin(self, job: ServerJob, account: UseAccount | None) -> None:
        if account is not None:
            self._at_work[account] = self._at_work.get(account, 0) + 1
        self._begun += 1
        if self._begun > self.count and self.count < MAX_WORKERS:
            self.count += 1
            Thread(target=self._work, name="quire-serve").start()
        self._jobs.put((job, account))

    def begin_wait(self, account: UseAccount) -> None:
        """A job waits for other clients: another one of its user may be done meanwhile."""
        with self._changed:
            self._leave(account)

    def end_wait(self, account: UseAccount) -> None:
        """It does so no more, and goes on in any case."""
        with self._changed:
            self._at_work[account] = self._at_work.get(account, 0) + 1

    def _leave(self, account: UseAccount) -> None:
        """A job of a user is not at work any more: the next in line is."""
        left = self._at_work.pop(account) - 1
        if left:
            self._at_work[account] = left
        line = self._in_line.get(account)
        if line is not None and left < account.workers:
            self._begin(line.popleft(), account)
            if not line:
                del self._in_line[account]

    def stop(self) -> None:
        """Have the threads end, each when its job is done."""
        for _ in range(self.count):
            self._jobs.put(None)

    def _work(self) -> None:
        """Do jobs. By each thread."""
        is_needed = True
        while is_needed and (found := self._jobs.get()) is not None:
            job, account = found
            job()
            del job, found
            with self._changed:
                self.busy -= 1
                self._begun -= 1
                if account is not None:
                    self._leave(account)
                is_needed = self.count - self._begun <= IDLE_WORKERS
                self.count -= not is_needed
                self._changed.notify_all()
        if is_needed:
            with self._changed:
                self.count -= 1
                self._changed.notify_all()
