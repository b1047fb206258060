"""Work on several data files at the same time: jobs, and the threads that do them.

- W1: a job is done once, by a worker or by the thread that waits for it, whoever comes first: so
  nobody waits for a worker that is busy or has not started yet.
- W2: `finish` ends only when no job is under way any more, whatever interrupts it (a signal's
  exception): pages are never given back while they are still being written to.
- W3: what jobs raise is raised by `finish`, the gravest of it: a failure of the disk must not hide
  behind another file's DiskFull, which changes nothing (promise 11).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from quire.calls.signal_safety import as_call
from quire.calls.wake_up import Thread, WakeUp
from quire.env.interpreter import Lock
from quire.errors import ResourceExhausted

Action = Callable[[], None]


class Job:
    """Something to do once."""

    __slots__ = ("_action", "_by", "_gate", "ended", "error")

    def __init__(self, action: Action) -> None:
        self._action: Action | None = action
        self._by: dict[None, int] = {}  # the thread that does it: set once, in one step
        self._gate = WakeUp()  # set: it has ended
        self.ended = False
        self.error: BaseException | None = None

    def run(self) -> bool:
        """Do it; False if another thread does, or has done."""
        me = threading.get_ident()
        if self.ended or self._by.setdefault(None, me) != me:
            return False
        action, self._action = self._action, None
        try:
            if action is not None:  # else an interrupt came right here before
                action()
        except BaseException as error:  # noqa: BLE001 - raised by `JobGroup.finish` (W3)
            self.error = error
        self.ended = True
        self._gate.set()
        return True

    def drop(self) -> None:
        """Do not begin it any more."""
        if self._by.setdefault(None, 0) == 0:
            self.ended = True

    def wait(self) -> BaseException | None:
        """Return when it has ended, doing it here if nobody does; what interrupted that (W2)."""
        interrupt: BaseException | None = None
        while not self.ended:
            try:
                if not self.run() and not self.ended:
                    self._gate.wait()
            except BaseException as error:  # noqa: BLE001 - raised by `JobGroup.finish`
                interrupt = error
        return interrupt


class IoWorker:
    """A thread that does jobs, started by the first one. Once stopped it takes none (W1)."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._lock = Lock()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def take(self, job: Job) -> None:
        """Do the job when its turn comes, unless it is done by then."""
        if self._thread is None:
            self._start()
        self._jobs.put(job)

    def stop(self) -> None:
        """End when what was taken is done; twice is once."""
        with self._lock:
            self._stopped = True
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._stopped:
                # A commit waits for it: what is run in its midst is not to wait for a commit.
                own = (self._do_jobs,)
                thread = Thread(target=as_call, args=own, name=self._name)
                thread.start()
                self._thread = thread

    def _do_jobs(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.run()


class JobGroup:
    """Jobs that end together. For one thread."""

    def __init__(self, limit: int) -> None:
        """Not more than `limit` jobs are under way at a time."""
        self._limit = limit
        self._jobs: list[Job] = []
        self._errors: list[BaseException] = []

    def begin(self, action: Action, worker: IoWorker | None = None) -> None:
        """Let the worker do it; without one, `finish` does it. Raises what came of earlier ones."""
        while len(self._jobs) >= self._limit:
            self._settle(self._jobs[0])
        self._raise()
        job = Job(action)
        self._jobs.append(job)
        if worker is not None:
            worker.take(job)

    def finish(self) -> None:
        """Return, or raise, when all has ended (W2, W3); what has not begun after a failure is
        left undone."""
        try:
            self._finish()
        except BaseException:
            self._finish()
            raise
        self._raise()

    def cancel(self) -> None:
        """Return when nothing is under way any more, whatever came of it."""
        try:
            self._cancel()
        except BaseException:
            self._cancel()
            raise

    def _cancel(self) -> None:
        for job in self._jobs:
            job.drop()
        while self._jobs:
            self._settle(self._jobs[-1])

    def _finish(self) -> None:
        while self._jobs:
            if self._errors:
                self._jobs[-1].drop()
            self._settle(self._jobs[-1])  # the last is the one that no worker has

    def _settle(self, job: Job) -> None:
        interrupt = job.wait()
        for error in (job.error, interrupt):
            if error is not None:
                self._errors.append(error)
        self._jobs.remove(job)

    def _raise(self) -> None:
        if self._errors:
            raise min(self._errors, key=_mildness)


def _mildness(error: BaseException) -> int:
    if isinstance(error, ResourceExhausted):
        return 2
    return 0 if isinstance(error, Exception) else 1
