"""Objects behind a faulty network and a busy server, on a seed: what requests may meet."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from random import Random
from typing import Final, TypeVar

from quire.archive.objects import ObjectBytes, ObjectInfo, Objects
from quire.env import Env
from quire.errors import ArchiveFailed, ObjectNotFound

Result = TypeVar("Result")

REFUSALS: Final = ("429 Too Many Requests", "500 Internal Server Error", "503 Slow Down")
SLOW_SECONDS: Final = 2.0
# What the tries of an operation draw at most, and of another one that comes between them.
DRAWS: Final = 100


class FaultyObjects:
    """Other objects, of whose requests a share fails: unanswered, refused, or with a lost answer.

    With `late` a request whose answer was lost may be done when others have been. `faults` counts
    what struck. With `most` no more than so many strike among `DRAWS`: fewer than an operation's
    tries, each of which fails by one, let it succeed whatever the seed.
    """

    def __init__(
        self,
        objects: Objects,
        env: Env,
        seed: int,
        *,
        share: float = 0.1,
        late: bool = False,
        most: int = DRAWS,
    ) -> None:
        self.url = objects.url
        self.share = share
        self.faults: Counter[str] = Counter()
        self._objects = objects
        self._env = env
        self._random = Random(seed)
        self._late = late
        self._most = most
        self._latest: deque[bool] = deque(maxlen=DRAWS - 1)  # whether each struck
        self._under_way: list[Callable[[], object]] = []

    def create(self, name: str, data: ObjectBytes) -> bool:
        if self._strikes():
            self.faults["409 on create"] += 1
            return False
        return self._request(lambda: self._objects.create(name, bytes(data)), changes=True)

    def upload(self, name: str, pieces: Iterable[ObjectBytes]) -> None:
        parts = [bytes(piece) for piece in pieces]
        self._request(lambda: self._objects.upload(name, parts), changes=True)

    def overwrite(self, name: str, data: ObjectBytes) -> None:
        self._request(lambda: self._objects.overwrite(name, data), changes=True)

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        if self._strikes():
            self._env.sleep(SLOW_SECONDS)
            self.faults["slow read"] += 1
        data = self._request(lambda: self._objects.read(name, offset, length))
        if data and self._strikes():
            self._fail("short read")
        return data

    def size(self, name: str) -> int:
        return self._request(lambda: self._objects.size(name))

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        for number, info in enumerate(self._request(lambda: [*self._objects.list(prefix)])):
            if number % 7 == 6:  # the next page
                self._request(lambda: None)
            yield info

    def delete(self, names: Iterable[str]) -> None:
        some = [*names]
        self._request(lambda: self._objects.delete(some))

    def close(self) -> None:
        self._objects.close()

    def land(self) -> None:
        """Do what is under way."""
        while self._under_way:
            self._under_way.pop(self._random.randrange(len(self._under_way)))()

    def _request(self, request: Callable[[], Result], *, changes: bool = False) -> Result:
        if self._under_way and self._random.random() < 0.5:
            self.land()
        if self._strikes():
            if self._random.random() < 0.5:
                self._fail(self._random.choice(REFUSALS))
            if changes and self._late and self._random.random() < 0.5:
                self._under_way.append(request)
                self._fail("late")
            if self._random.random() < 0.5:
                self._fail("time-out")
            with suppress(ObjectNotFound):
                request()
            self._fail("lost answer")
        return request()

    def _strikes(self) -> bool:
        strikes = self._random.random() < self.share and sum(self._latest) < self._most
        self._latest.append(strikes)
        return strikes

    def _fail(self, fault: str) -> None:
        self.faults[fault] += 1
        error = ArchiveFailed(f"{self.url}: {fault}")
        error.may_pass = True
        raise error
