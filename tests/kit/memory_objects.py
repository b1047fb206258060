"""Objects in memory: a model of the seam of an archive, for tests."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator

from quire.archive.objects import ObjectBytes, ObjectInfo
from quire.archive.objects.names import check_name, check_prefix, check_small
from quire.env import Env
from quire.errors import ObjectNotFound


class MemoryObjects:
    """Objects in a dict (see `quire.archive.objects.Objects`)."""

    url = "memory:"

    def __init__(self, env: Env) -> None:
        self.contents: dict[str, tuple[bytes, int]] = {}  # and when it was made
        self._env = env
        self._lock = threading.Lock()

    def create(self, name: str, data: ObjectBytes) -> bool:
        check_small(check_name(name), len(data))
        with self._lock:
            if name in self.contents:
                return False
            self.contents[name] = bytes(data), self._env.now_us()
            return True

    def upload(self, name: str, pieces: Iterable[ObjectBytes]) -> None:
        data = b"".join(pieces)
        self.contents[check_name(name)] = data, self._env.now_us()

    def overwrite(self, name: str, data: ObjectBytes) -> None:
        check_small(name, len(data))
        self.upload(name, [data])

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        return self._find(name)[offset : None if length is None else offset + length]

    def size(self, name: str) -> int:
        return len(self._find(name))

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        check_prefix(prefix)
        for name, (data, made_us) in [*self.contents.items()]:
            if name.startswith(prefix):
                yield ObjectInfo(name, len(data), made_us)

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self.contents.pop(check_name(name), None)

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _find(self, name: str) -> bytes:
        if check_name(name) not in self.contents:
            raise ObjectNotFound(f"there is no object {name}")
        return self.contents[name][0]
