"""The file of users: read as a whole, changed by one process at a time, replaced in one step.

UF1. Who reads it finds the document before a change or the one after it, whenever a process or the
    machine ends.
UF2. A change that cannot be made, or leads to a document that is wrong, changes nothing (UD1).
UF3. A file that anybody but the server's user, or root, may write or replace is not used: any of
    them could give himself every right.
UF4. A change keeps the owner and the mode of the file, so that the server can still read it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from quire.env import Env, FileLock
from quire.errors import InvalidArgument, NotFound, StoreError, StoreLocked
from quire.remote.limits import (
    MAX_USERS_FILE_BYTES,
    USERS_CHANGE_SECONDS,
    USERS_POLL_SECONDS,
    USERS_READS,
)

from .users_document import UsersDocument

DocumentChange = Callable[[UsersDocument], UsersDocument]


class UsersFile:
    """The file at a path."""

    def __init__(self, env: Env, path: str | os.PathLike[str]) -> None:
        self._env = env
        self.path: Final = env.real_path(os.fspath(path))

    def read(self) -> UsersDocument:
        """Return the document. Raises NotFound, InvalidArgument for one that is wrong."""
        self._check_regular()
        try:
            file = self._env.open_file(self.path, read_only=True)
        except FileNotFoundError:
            raise NotFound(
                f"there is no users file {self.path}: `quire user add {self.path} NAME` makes it"
            ) from None
        except (OSError, StoreError) as error:
            raise InvalidArgument(f"the users file {self.path} cannot be read: {error}") from None
        try:
            data = file.read(0, MAX_USERS_FILE_BYTES + 1)
        finally:
            file.close()
        if len(data) > MAX_USERS_FILE_BYTES:
            raise InvalidArgument(
                f"the users file {self.path} is larger than {MAX_USERS_FILE_BYTES:,} bytes"
            )
        try:
            return UsersDocument.read(data)
        except InvalidArgument as error:
            raise InvalidArgument(f"the users file {self.path} is wrong: {error}") from None

    def _check_regular(self) -> None:
        with suppress(OSError):  # it is not there, or in the disk of a simulated machine
            if not stat.S_ISREG(os.stat(self.path).st_mode):  # a pipe would be waited for
                raise InvalidArgument(
                    f"{self.path} is not a file: give the path of a users file, which"
                    " `quire user add` makes"
                )

    def read_for_server(self) -> UsersDocument:
        """Return the document for those who enforce it (UF3). Raises as `read`."""
        for _ in range(USERS_READS):
            before = self.version()
            document = self.read()
            with suppress(FileNotFoundError):  # it was in the disk of a simulated machine
                self._check_private()
            if self.version() == before:
                return document
        raise InvalidArgument(f"the users file {self.path} was replaced while it was read")

    def _check_private(self) -> None:
        status = os.stat(self.path)
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise InvalidArgument(
                f"the users file {self.path} may be written by others: chmod go-w {self.path}"
            )
        if status.st_uid not in (0, os.geteuid()):
            raise InvalidArgument(
                f"the users file {self.path} is of user {status.st_uid}, who may write it: have it"
                " be of the server's user, or of root"
            )
        directory = os.path.dirname(self.path)
        mode = os.stat(directory).st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise InvalidArgument(
                f"the users file {self.path} may be replaced by others: chmod o-w {directory}"
            )

    def version(self) -> object:
        """Return what differs once the file was replaced or written; None: it is not there."""
        try:
            status = os.stat(self.path)
        except OSError:
            return None
        times = status.st_mtime_ns, status.st_ctime_ns
        return *times, status.st_dev, status.st_ino, status.st_size, status.st_mode, status.st_uid

    def change(self, change: DocumentChange, *, create: bool = False) -> UsersDocument:
        """Replace the document by what the change makes of it (UF1, UF2); return that.

        `create`: where there is none, the change begins with an empty one. Raises NotFound,
        InvalidArgument, StoreLocked, and what the change raises.
        """
        lock = self._lock()
        try:
            try:
                before = self.read()
            except NotFound:
                if not create:
                    raise
                before = UsersDocument()
            after = change(before)
            if after != before or create:
                self._replace(after.encode())
            return after
        finally:
            lock.release()

    def _lock(self) -> FileLock:
        deadline = self._env.monotonic() + USERS_CHANGE_SECONDS
        while True:
            try:
                return self._env.lock(f"{self.path}.lock", "quire user")
            except StoreLocked:
                if self._env.monotonic() > deadline:
                    raise StoreLocked(
                        f"another process changes {self.path}: try again when it is done"
                    ) from None
            self._env.sleep(USERS_POLL_SECONDS)

    def _replace(self, data: bytes) -> None:
        temporary = f"{self.path}.new"
        with suppress(FileNotFoundError):  # a process was killed in a change
            self._env.remove(temporary)
        file = self._env.open_file(temporary, create=True, exclusive=True)
        try:
            file.write(0, data)
            self._keep_owner(temporary)
            file.sync()
        finally:
            file.close()
        self._env.rename(temporary, self.path)
        self._env.sync_directory(os.path.dirname(self.path))

    def _keep_owner(self, temporary: str) -> None:
        """Have what takes the file's place be of its owner, with its mode (UF4)."""
        with suppress(FileNotFoundError):  # there is none yet, or it is a simulated machine's
            status = os.stat(self.path)
            if os.geteuid() == 0:
                os.chown(temporary, status.st_uid, status.st_gid)
            os.chmod(temporary, stat.S_IMODE(status.st_mode) & ~(stat.S_IWGRP | stat.S_IWOTH))
