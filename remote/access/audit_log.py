"""The audit log of a served store: who has changed what, and who was refused what.

AU1. Each line is a JSON object: the time, the user, the address of the client, and either a call
    that changes what there is (not messages), with the rights that it needed on which names and its
    outcome, or a right that was missing. No payload, value or token is in it.
AU2. A call is in the log before its answer is sent. The bytes are the system's then: a crash of the
    machine may lose the last ones, that of the server does not.
AU3. The log takes a bounded place: a file that is full becomes FILE.1, and so on up to the last.
    Of each user's refusals no more than `AUDITED_REFUSALS` in a minute have a line of their own;
    the others are counted. So nobody drives out what others did by being refused.
AU4. Where it cannot be written calls go on, and the server's log says so.
"""

from __future__ import annotations

import datetime as dt
import logging
import os
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Final

import msgspec

from quire.env import Env, File
from quire.env.interpreter import Lock
from quire.errors import QuireError
from quire.remote.limits import (
    AUDIT_FILE_BYTES,
    AUDIT_FILES,
    AUDITED_REFUSALS,
    REFUSALS_SECONDS,
)

from .granted_rights import Need

_log = logging.getLogger("quire.remote")


class _CountedRefusals:
    """The refusals of one user in the minute that began with the first of them."""

    __slots__ = ("began", "count")

    def __init__(self, began: float) -> None:
        self.began: Final = began
        self.count = 0


class AuditLog:
    """The log in one file, and those before it. Thread-safe."""

    def __init__(self, env: Env, path: str) -> None:
        """Open the file. Raises what the disk raises."""
        self._env = env
        self._path: Final = env.real_path(path)
        self._guard = Lock()
        self._refusals: dict[str, _CountedRefusals] = {}
        self._has_failed = False
        self._file, self._size = self._open()

    def _open(self) -> tuple[File, int]:
        file = self._env.open_file(self._path, create=True)
        size = file.size()
        if size and file.read(size - 1, 1) != b"\n":  # a line was cut by a crash
            file.write(size, b"\n")
            size += 1
        return file, size

    def note_call(
        self, user: str, address: str, call: str, needs: Iterable[Need], outcome: str
    ) -> None:
        """A call that changes something is over; `outcome`: "done", or the name of its error."""
        names = sorted(map(str, needs))
        self._write(user, address, {"call": call, "by": names, "outcome": outcome})

    def note_refusal(self, user: str, address: str, missing: str) -> None:
        """A right was missing, or an admission refused."""
        now = self._env.monotonic()
        with self._guard:
            found = self._refusals.get(user)
            before = 0
            if found is None or found.began + REFUSALS_SECONDS <= now:
                before = 0 if found is None else max(0, found.count - AUDITED_REFUSALS)
                found = self._refusals[user] = _CountedRefusals(now)
            found.count += 1
            is_noted = found.count <= AUDITED_REFUSALS
        if before:
            self._write(user, address, {"refused": "more", "count": before})
        if is_noted:
            self._write(user, address, {"refused": missing})

    def close(self) -> None:
        """Let go of the file."""
        with self._guard:
            self._file.close()

    def _write(self, user: str, address: str, what: dict[str, Any]) -> None:
        seconds, us = divmod(self._env.now_us(), 1_000_000)
        time = dt.datetime.fromtimestamp(seconds, dt.UTC).replace(microsecond=us)
        record = {"time": time.isoformat(), "user": user, "from": address, **what}
        line = msgspec.json.encode(record) + b"\n"
        with self._guard:
            try:
                if self._size + len(line) > AUDIT_FILE_BYTES:
                    self._rotate()
                self._file.write(self._size, line)
                self._size += len(line)
                self._has_failed = False
            except (QuireError, OSError) as error:
                if not self._has_failed:
                    _log.error("the audit log %s cannot be written: %s", self._path, error)
                self._has_failed = True

    def _rotate(self) -> None:
        self._file.close()
        names = [self._path, *(f"{self._path}.{n}" for n in range(1, AUDIT_FILES))]
        for newer, older in reversed(list(pairwise(names))):
            if self._env.exists(newer):
                self._env.rename(newer, older)
        self._env.sync_directory(os.path.dirname(self._path))
        self._file, self._size = self._open()
