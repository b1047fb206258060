"""Objects as the files of a directory, on any file system with hard links.

- DO1: a file is written and synced under a temporary name before it gets that of an object, by a
  link, which has one winner (AO2); then its folder is synced. So an object is whole whatever fails
  (AO1), and an object that is found in the way is durable.
- DO2: a name whose sync failed is taken back: no later sync would make it certain (E3, E4).
- DO3: a folder is durable before an object in it is, whoever has made it.
- DO4: what is read, measured or listed is durable, if it was there when this object first looked
  into its folder: another process may have been killed before it could sync it. But an object that
  was replaced may be the older one again, if the sync of that failed.
- What was left in `.tmp` by a process that was killed is removed a day later, by one that writes.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from quire.archive.limits import TEMPORARY_AGE_SECONDS
from quire.env import Env, File
from quire.errors import ArchiveFailed, ObjectNotFound, ResourceExhausted, StoreError

from .names import check_name, check_prefix, check_small, is_name
from .seam import ObjectBytes, ObjectInfo

TEMPORARY: Final = ".tmp"
_REMEDIES: Final = {
    errno.EPERM: "give a directory on a file system with hard links, and with the rights to use it",
    errno.EACCES: "give this process the rights that it needs there",
}


class DirectoryObjects:
    """The objects of a directory (see `quire.archive.objects.Objects`)."""

    def __init__(self, path: str, env: Env) -> None:
        self.url = path
        self._env = env
        self.root = path.rstrip("/") or "/"
        self._temporary = f"{self.root}/{TEMPORARY}"
        self._durable: set[str] = set()  # folders (DO3)
        self._known: set[str] = set()  # folders whose names are durable (DO4)

    def create(self, name: str, data: ObjectBytes) -> bool:
        check_small(name, len(data))
        return self._make(name, [data], replace=False)

    def upload(self, name: str, pieces: Iterable[ObjectBytes]) -> None:
        self._make(name, pieces, replace=True)

    def overwrite(self, name: str, data: ObjectBytes) -> None:
        check_small(name, len(data))
        self._make(name, [data], replace=True)

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        with self._opened(name) as file:
            return file.read(offset, file.size() - offset if length is None else length)

    def size(self, name: str) -> int:
        with self._opened(name) as file:
            return file.size()

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        yield from self._list(f"{self.root}/{check_prefix(prefix)}".rstrip("/") or "/")

    def delete(self, names: Iterable[str]) -> None:
        folders = set()
        for name in names:
            path = self._path(name)
            with _failing(path, "remove it"), suppress(FileNotFoundError):
                self._env.remove(path)
            folders.add(_folder(path))
        for folder in sorted(folders):
            with _failing(folder, "sync it"), suppress(FileNotFoundError):
                self._env.sync_directory(folder)

    def close(self) -> None:
        """Do nothing: no file is kept open."""

    def _path(self, name: str) -> str:
        return f"{self.root}/{check_name(name)}"

    def _make(self, name: str, pieces: Iterable[ObjectBytes], *, replace: bool) -> bool:
        """Make a file of an object's bytes, and give it the object's name (DO1)."""
        path = self._path(name)
        with _failing(path, "make it"):
            self._make_folder(_folder(path))
            if self._temporary not in self._durable:
                self._make_folder(self._temporary)
                self._remove_old()
            temporary = f"{self._temporary}/{self._env.random_u64():016x}"
            file = self._env.open_file(temporary, exclusive=True)
        try:
            end = 0
            for piece in pieces:
                with _failing(path, "write it"):
                    file.write(end, piece)
                end += len(piece)
            with _failing(path, "write it"):
                file.sync()
                return self._give_name(temporary, path, replace=replace)
        finally:
            file.close()
            with suppress(OSError):
                self._env.remove(temporary)

    def _give_name(self, temporary: str, path: str, *, replace: bool) -> bool:
        """Return False if the name is taken, and is not to be replaced."""
        try:
            self._env.link(temporary, path)
        except FileExistsError:
            if replace:
                self._env.rename(temporary, path)
                self._env.sync_directory(self._temporary)
            self._env.sync_directory(_folder(path))
            return replace
        try:
            self._env.sync_directory(_folder(path))
        except OSError:
            self._env.remove(path)  # (DO2)
            raise
        return True

    def _make_folder(self, folder: str) -> None:
        """Make the folder, with those that it needs above it, and make them durable (DO3)."""
        if folder in self._durable:
            return
        parent, is_there = _folder(folder), self._env.exists(folder)
        if parent not in ("/", ".") and (not is_there or folder.startswith(f"{self.root}/")):
            self._make_folder(parent)
        self._env.make_directory(folder)
        try:
            self._env.sync_directory(parent)
        except OSError as error:
            if not is_there:
                self._env.remove(folder)  # (DO2)
            if not is_there or not isinstance(error, PermissionError):
                raise  # else it was there before, in a folder of others
        self._durable.add(folder)

    def _remove_old(self) -> None:
        """Remove temporary files that nobody writes any more."""
        oldest_us = self._env.now_us() - round(TEMPORARY_AGE_SECONDS * 1e6)
        for name in self._env.list_directory(self._temporary):
            path = f"{self._temporary}/{name}"
            with suppress(FileNotFoundError):
                if self._env.modified_us(path) < oldest_us:
                    self._env.remove(path)

    def _look_into(self, folder: str) -> None:
        """Make durable what is in a folder (DO4), as far as its medium can be written at all."""
        if folder not in self._known:
            with suppress(OSError):
                self._env.sync_directory(folder)
            self._known.add(folder)

    @contextmanager
    def _opened(self, name: str) -> Iterator[File]:
        """Open an object's file for a block."""
        path = self._path(name)
        with _failing(path, "read it"):
            self._look_into(_folder(path))
            try:
                file = self._env.open_file(path, read_only=True)
            except (FileNotFoundError, NotADirectoryError):
                raise ObjectNotFound(f"there is no object {name} in {self.url}") from None
            try:
                yield file
            finally:
                file.close()

    def _list(self, path: str) -> Iterator[ObjectInfo]:
        """Yield the objects in a folder, or the one whose file the path is."""
        with _failing(path, "list it"):
            try:
                names = self._env.list_directory(path)
                self._look_into(path)
            except FileNotFoundError:  # deleted meanwhile
                return
            except NotADirectoryError:
                name = self._name(path)
                with suppress(ObjectNotFound, FileNotFoundError):
                    yield ObjectInfo(name, self.size(name), self._env.modified_us(path))
                return
        for name in names:
            below = f"{path.rstrip('/')}/{name}"
            if is_name(self._name(below)):  # other things may be there, too
                yield from self._list(below)

    def _name(self, path: str) -> str:
        return path.removeprefix(self.root).lstrip("/")


def _folder(path: str) -> str:
    return path.rpartition("/")[0] or ("/" if path.startswith("/") else ".")


@contextmanager
def _failing(path: str, doing: str) -> Iterator[None]:
    """Raise ArchiveFailed for an error of the system in the block; no room stays what it is."""
    try:
        yield
    except ResourceExhausted:
        raise
    except (OSError, StoreError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        remedy = isinstance(error, OSError) and _REMEDIES.get(error.errno or 0)
        raise ArchiveFailed(
            f"{path}: cannot {doing} ({reason}); {remedy or 'look after the disk and its mount'},"
            " then repeat the operation"
        ) from error
