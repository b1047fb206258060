"""Some clients of one server, each in a process of its own, that all do the same for a while.

`bench.served.served` starts this, and writes an operation and seconds to its standard input; it
answers with a line of JSON: what each client has done.
"""

from __future__ import annotations

import json
import os
import sys
import time
from statistics import median
from typing import IO, NamedTuple

from bench.served.served_clients import BATCH, CLIENTS, Client

__all__ = ["main"]

TAKES = {"get": 1, "move": 1, "get_batch": BATCH, "get_arrow": BATCH}  # messages of the first queue

END = "end\n"


class ClientProcess(NamedTuple):
    """A client's process, and the pipes to it."""

    process_id: int
    orders: IO[str]
    answers: IO[str]


def main() -> None:
    """Arguments: the server's name and address, the number of clients."""
    name, address, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    members = [_start(name, address, count * 1000 + number) for number in range(count)]
    for member in members:
        member.answers.readline()
    print("ready", flush=True)
    for order in sys.stdin:
        for member in members:
            member.orders.write(order)
            member.orders.flush()
        print(json.dumps([json.loads(member.answers.readline()) for member in members]), flush=True)
    for member in members:
        member.orders.write(END)  # as the others have copies of the pipe, it has no end
        member.orders.close()
        os.waitpid(member.process_id, 0)


def _start(name: str, address: str, number: int) -> ClientProcess:
    """Forked: nothing is shared with the others, and nothing is imported again."""
    order_read, order_write = os.pipe()
    answer_read, answer_write = os.pipe()
    process_id = os.fork()
    if not process_id:
        os.close(order_write)
        with os.fdopen(order_read) as orders, os.fdopen(answer_write, "w") as answers:
            _work(CLIENTS[name](address, number), orders, answers)
        os._exit(0)
    os.close(order_read)
    os.close(answer_write)
    return ClientProcess(process_id, os.fdopen(order_write, "w"), os.fdopen(answer_read))


def _work(client: Client, orders: IO[str], answers: IO[str]) -> None:
    there = 0  # messages in the first queue
    answers.write("ready\n")
    answers.flush()
    while (order := orders.readline()) != END:
        operation, seconds = order.split()
        there, found = _repeat(client, operation, float(seconds), there)
        answers.write(json.dumps(found) + "\n")
        answers.flush()


def _repeat(
    client: Client, operation: str, seconds: float, there: int
) -> tuple[int, dict[str, float]]:
    call, takes = getattr(client, operation), TAKES.get(operation, 0)
    puts = {"put": 1, "put_batch": BATCH, "put_arrow": BATCH}.get(operation, 0)
    clock, times, filling = time.perf_counter, list[float](), 0.0
    spent, began = time.process_time(), time.perf_counter()
    while (now := clock()) - began - filling < seconds or not times:
        if takes > there:
            for _ in range(max(1, takes * 2 // BATCH)):
                client.put_batch()
                there += client.batch
            filling += clock() - now
            continue
        call()
        times.append(clock() - now)
        there += puts - takes
    elapsed = clock() - began - filling
    times.sort()
    return there, {
        "count": len(times),
        "rate": len(times) / elapsed,
        "p50": median(times) * 1e6,
        "p99": times[len(times) * 99 // 100] * 1e6,
        "processor": (time.process_time() - spent) / len(times) * 1e6,
    }


if __name__ == "__main__":
    main()
