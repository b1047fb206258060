"""A worker process of each pool, and who fills its queue.

A job is 100 bytes, and its work their checksum. A worker works through the queue when it is told
to, until it gets the word that stands behind the last job, once for each worker (RQ: until the
queue is empty). What it answers: how many jobs it has done, and its processor seconds.

The hand-written queue is a table of SQLite (WAL, synchronous=FULL), as many programs have one: a
job is claimed by `UPDATE ... RETURNING` under BEGIN IMMEDIATE, with the time until which the claim
holds, worked on outside of any transaction, and deleted. So a worker that is killed delays its job
until its claim is over, and the others go on meanwhile.

Run as a program: the kind, the address, and how many jobs are taken at once.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import quire
from bench.measuring.program import answer_orders

__all__ = ["BURST", "HOLD", "JOB", "PRODUCERS", "STAY", "WORKERS", "JobProducer", "do_job", "main"]

JOBS = "jobs"
JOB = b"j" * 100
END = b"end"
HOLD = b"hold "
HOLD_SECONDS = 600.0
BURST, STAY = "burst", "stay"  # orders
CLAIM_SECONDS = 60.0
IDLE_SECONDS = 0.01  # before a table that was empty is looked at again

Worked = Callable[[bool], int]  # until the end, or for ever; how many jobs


def do_job(payload: bytes) -> int:
    """A small job. One that is to hold notes who has begun it in a file; the first never ends."""
    if payload.startswith(HOLD):
        path = Path(os.fsdecode(payload.removeprefix(HOLD)))
        is_first = not path.exists()
        with path.open("a") as file:
            file.write(f"{os.getpid()} {time.monotonic()}\n")
        if is_first:
            time.sleep(HOLD_SECONDS)
    return zlib.crc32(payload)


class JobProducer(Protocol):
    """The producer that fills the queue."""

    def fill(self, payloads: Sequence[bytes], workers: int) -> None:
        """Put them, and what so many workers end at."""

    def close(self) -> None: ...


# Quire --------------------------------------------------------------------------------------------


class QuireJobs:
    """A joined client."""

    def __init__(self, address: str) -> None:
        self._store = quire.open(address)
        self._store.create_queue(JOBS, exist_ok=True)

    def fill(self, payloads: Sequence[bytes], workers: int) -> None:
        self._store.put_many(JOBS, [*payloads, *[END] * workers])

    def close(self) -> None:
        self._store.close()


def quire_worker(address: str, most: int) -> Worked:
    """`quire.Workers` of a joined store: a handler, in one thread."""
    store = quire.open(address)

    def work(_: bool) -> int:
        done = 0
        workers = quire.Workers(store)

        @workers.on(JOBS, max_messages=most)
        def handle(found: Any, txn: quire.Transaction) -> None:
            nonlocal done
            messages = [found] if most == 1 else found
            for at, message in enumerate(messages):
                if message.payload == END:
                    for other in messages[at + 1 :]:  # which another worker ends at
                        txn.put(JOBS, other.payload)
                    workers.stop()
                    return
                do_job(message.payload)
                done += 1

        workers.run()
        return done

    return work


# SQLite -------------------------------------------------------------------------------------------


class SqliteJobs:
    """A queue in a database file of its own."""

    def __init__(self, address: str) -> None:
        self._database = connected(address)
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS job (id INTEGER PRIMARY KEY, payload BLOB NOT NULL,"
            " claimed_until REAL NOT NULL DEFAULT 0)"
        )

    def fill(self, payloads: Sequence[bytes], workers: int) -> None:
        execute = self._database.execute
        execute("BEGIN IMMEDIATE")
        rows = ((each,) for each in (*payloads, *[END] * workers))
        self._database.executemany("INSERT INTO job (payload) VALUES (?)", rows)
        execute("COMMIT")

    def close(self) -> None:
        self._database.close()


def connected(address: str) -> sqlite3.Connection:
    """Return a connection to the database, as both sides of the queue have."""
    database = sqlite3.connect(address, isolation_level=None, timeout=60.0)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    return database


def sqlite_worker(address: str, most: int) -> Worked:
    """Claim, work, delete."""
    assert most == 1
    database = connected(address)

    def claim() -> tuple[int, bytes] | None:
        now = time.time()
        database.execute("BEGIN IMMEDIATE")
        found: tuple[int, bytes] | None = database.execute(
            "UPDATE job SET claimed_until = ? WHERE id ="
            " (SELECT id FROM job WHERE claimed_until < ? ORDER BY id LIMIT 1)"
            " RETURNING id, payload",
            (now + CLAIM_SECONDS, now),
        ).fetchone()
        database.execute("COMMIT")
        return found

    def work(_: bool) -> int:
        done = 0
        while True:
            found = claim()
            if found is None:
                time.sleep(IDLE_SECONDS)
                continue
            number, payload = found
            if payload != END:
                do_job(payload)
            database.execute("DELETE FROM job WHERE id = ?", (number,))
            if payload == END:
                return done
            done += 1

    return work


# RQ -----------------------------------------------------------------------------------------------


class RqJobs:
    """`Queue.enqueue_many`; a job's result is not kept."""

    def __init__(self, address: str) -> None:
        import redis
        import rq

        self._queue = rq.Queue(JOBS, connection=redis.Redis(unix_socket_path=address))
        self._rq = rq

    def fill(self, payloads: Sequence[bytes], workers: int) -> None:
        data = [self._rq.Queue.prepare_data(do_job, (each,), result_ttl=0) for each in payloads]
        self._queue.enqueue_many(data)

    def close(self) -> None:
        self._queue.connection.close()


def rq_worker(address: str, most: int, *, forks: bool = False) -> Worked:
    """A burst. `forks`: each job in a process of its own, as RQ's `Worker` does."""
    import redis
    import rq

    assert most == 1
    connection = redis.Redis(unix_socket_path=address)
    kind: Any = rq.Worker if forks else rq.SimpleWorker

    def work(stays: bool) -> int:
        worker = kind([JOBS], connection=connection)
        worker.work(burst=not stays, logging_level="WARNING")
        worker.refresh()  # Redis counts them
        return int(worker.successful_job_count)

    return work


# As programs --------------------------------------------------------------------------------------

PRODUCERS: dict[str, Callable[[str], JobProducer]] = {
    "quire": QuireJobs,
    "sqlite": SqliteJobs,
    "rq": RqJobs,
    "rq forks": RqJobs,
}
WORKERS: dict[str, Callable[[str, int], Worked]] = {
    "quire": quire_worker,
    "sqlite": sqlite_worker,
    "rq": rq_worker,
    "rq forks": partial(rq_worker, forks=True),
}


def main(kind: str, address: str, most: str) -> None:
    """Run a worker of the kind."""
    work = WORKERS[kind](address, int(most))

    def answer(order: str) -> object:
        before = os.times()
        done = work(order == STAY)
        return {"done": done, "processor": sum(os.times()[:4]) - sum(before[:4])}

    answer_orders(answer)


if __name__ == "__main__":
    main(*sys.argv[1:])
