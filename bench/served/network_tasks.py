"""A process whose asyncio tasks, up to 64, share one connection to a server of Quire.

`bench.served.network` starts this. Arguments: the server's address. An order is an operation, a
number of tasks and seconds; the answer is the rate of all tasks together, and the middle of times.
"""

from __future__ import annotations

import asyncio
import sys
import time
from statistics import median
from typing import Any

import quire
import quire.aio
from bench.measuring.payloads import as_list
from bench.measuring.program import answer_orders

__all__: list[str] = []

PAYLOAD = as_list(1, 1)[0]
FILLING = 200  # messages at once
MOST_A_SECOND = 8_000  # that all tasks take


class Tasks:
    """The store, and the queues of each task."""

    def __init__(self, runner: asyncio.Runner, address: str) -> None:
        self._runner = runner
        place, *files = address.split("\n")
        tls = quire.Tls(ca=files[0], cert=files[1], key=files[2]) if files else None
        self._store: Any = runner.run(self._open(place, tls))
        self._there: dict[str, int] = {}  # messages

    @staticmethod
    async def _open(place: str, tls: quire.Tls | None) -> Any:
        return await quire.aio.open(place, tls=tls)

    def answer(self, order: str) -> dict[str, float]:
        """Do an operation with so many tasks, for so many seconds."""
        operation, tasks, seconds = order.split()
        return self._runner.run(self._run(operation, int(tasks), float(seconds)))

    async def _run(self, operation: str, tasks: int, seconds: float) -> dict[str, float]:
        names = [[f"{kind}{number}" for kind in "abc"] for number in range(tasks)]
        for each in names:
            for name in each:
                if name not in self._there:
                    await self._store.create_queue(name, kind="work", exist_ok=True)
                    self._there[name] = 0
            if operation != "put":
                await self._fill(each[0], int(MOST_A_SECOND * seconds / tasks) + FILLING)
        times: list[float] = []
        began = time.perf_counter()
        step = getattr(self, operation)
        await asyncio.gather(*(self._repeat(step, each, began + seconds, times) for each in names))
        elapsed = time.perf_counter() - began
        return {"rate": len(times) / elapsed, "p50": median(times) * 1e6, "count": len(times)}

    async def _fill(self, queue: str, count: int) -> None:
        """Have so many messages in it at least, more than a task takes."""
        while self._there[queue] < count:
            await self._store.put_many(queue, [PAYLOAD] * FILLING)
            self._there[queue] += FILLING

    async def _repeat(self, step: Any, names: list[str], until: float, times: list[float]) -> None:
        while (now := time.perf_counter()) < until:
            await step(names)
            times.append(time.perf_counter() - now)

    async def put(self, names: list[str]) -> None:
        """A message into the first queue."""
        await self._store.put(names[0], PAYLOAD)

    async def move(self, names: list[str]) -> None:
        """A message out of the first queue, and two into the second and the third."""
        first, second, third = names
        async with self._store.transaction() as txn:
            message = await txn.get(first)
            await txn.put(second, message.payload)
            await txn.put(third, message.payload)
        self._there[first] -= 1


def main() -> None:
    with asyncio.Runner() as runner:
        answer_orders(Tasks(runner, sys.argv[1]).answer)


if __name__ == "__main__":
    main()
