"""Objects of a store that is reached by a network: every request is repeated, for a time.

- RO1: a `create` whose answer was lost is repeated, and finds its own object in the way: it has
  made it. One that is refused while there is no object (others were making one, and did not) is
  repeated, too. So False means that there is an object, and that this call has not made it.
- A read of any length is made in parts, each of which is repeated by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, islice
from typing import TypeVar

from quire.archive.limits import (
    DELETE_BATCH,
    MAX_PAUSE_SECONDS,
    MAX_TRIES,
    PAUSE_SECONDS,
    RETRY_SECONDS,
    TRANSFER_BYTES,
)
from quire.env import Env
from quire.errors import ArchiveFailed, ObjectNotFound

from .seam import ObjectBytes, ObjectInfo, Objects

Result = TypeVar("Result")


class RetriedObjects:
    """Objects whose requests are repeated as long as their failure may pass by itself."""

    def __init__(self, objects: Objects, env: Env) -> None:
        self.url = objects.url
        self._objects = objects
        self._env = env

    def create(self, name: str, data: ObjectBytes) -> bool:
        may_be_own = False

        def create_or_find() -> bool:
            nonlocal may_be_own
            try:
                if self._objects.create(name, data):
                    return True
            except ArchiveFailed as error:
                may_be_own |= error.may_pass
                raise
            try:
                found = self._objects.read(name, 0, len(data) + 1)
            except ObjectNotFound:
                failed = ArchiveFailed(f"{self.url}: cannot make {name}, which is not there")
                failed.may_pass = True
                raise failed from None
            return may_be_own and found == data  # (RO1)

        return self._repeated(create_or_find)

    def upload(self, name: str, pieces: Iterable[ObjectBytes]) -> None:
        rest, head, size = iter(pieces), [], 0
        for piece in rest:
            head.append(bytes(piece))
            size += len(piece)
            if size > TRANSFER_BYTES:
                break
        else:
            return self._repeated(partial(self._objects.upload, name, [b"".join(head)]))
        if rest is not pieces:
            return self._repeated(partial(self._objects.upload, name, pieces))
        # An iterator is used up by the first try.
        return self._repeated(partial(self._objects.upload, name, chain(head, rest)), max_tries=1)

    def overwrite(self, name: str, data: ObjectBytes) -> None:
        self._repeated(partial(self._objects.overwrite, name, data))

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        parts, end = [], None if length is None else offset + length
        while True:
            limit = TRANSFER_BYTES if end is None else min(end - offset, TRANSFER_BYTES)
            part = self._repeated(partial(self._objects.read, name, offset, limit))
            parts.append(part)
            offset += len(part)
            if len(part) < limit or offset == end:
                return b"".join(parts)

    def size(self, name: str) -> int:
        return self._repeated(partial(self._objects.size, name))

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        found: dict[str, ObjectInfo] = {}
        self._repeated(
            lambda: found.update((info.name, info) for info in self._objects.list(prefix))
        )
        yield from found.values()

    def delete(self, names: Iterable[str]) -> None:
        rest = iter(names)
        while some := tuple(islice(rest, DELETE_BATCH)):
            self._repeated(partial(self._objects.delete, some))

    def close(self) -> None:
        """Close the objects."""
        self._objects.close()

    def _repeated(self, request: Callable[[], Result], max_tries: int = MAX_TRIES) -> Result:
        """Make a request until it succeeds, or fails for good, or for too long."""
        start, pause, tries = self._env.monotonic(), PAUSE_SECONDS, 0
        while True:
            tries += 1
            try:
                return request()
            except ArchiveFailed as error:
                spent = self._env.monotonic() - start
                if not error.may_pass:
                    raise
                if tries == max_tries or spent + pause > RETRY_SECONDS:
                    raise ArchiveFailed(
                        f"{error}, at try {tries}, after {spent:.0f} s; look after the"
                        " archive's server and the way to it, then repeat the operation"
                    ) from error
            # A part by chance, so that not all who have failed come again at the same time.
            self._env.sleep(pause * (1 + self._env.random_u64() / (1 << 64)) / 2)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)
