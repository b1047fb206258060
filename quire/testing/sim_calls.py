"""The calls that a simulated machine receives: their log, and the faults planned for them.

SC1. Every call that changes something (see `NUMBERED_KINDS`) has a number, from 1 upwards; the
    same workload on the same seed gives the same numbers. Reads are counted, but have none.
SC2. A planned crash happens in the middle of its call: the call's change is there to be kept, lost
    or torn, and the call never returns.
- After a crash every call of the environment and of its handles raises `SimulatedCrash`.
"""

from __future__ import annotations

import copy
import errno
import fnmatch
from collections import Counter
from typing import NamedTuple, NoReturn

from msgspec import Struct

from quire.errors import raise_if_refused

NUMBERED_KINDS = (
    "create",
    "write",
    "sync",
    "allocate",
    "punch",
    "truncate",
    "rename",
    "link",
    "remove",
    "make_directory",
    "sync_directory",
)
READ_KINDS = ("open", "read", "list_directory", "map")


class SimulatedCrash(BaseException):
    """The simulated power failed. Not an Exception, so that no handler of errors swallows it."""


class Call(NamedTuple):
    """A call; `offset` and `length` are bytes, 0 where they mean nothing."""

    number: int
    kind: str
    path: str
    offset: int = 0
    length: int = 0


class Fault(Struct):
    """A planned error: the `nth` matching call from now on fails, once or for ever.

    `lands`: whether reads see all of a write that fails so, or nothing; None leaves it to the seed.
    """

    kind: str
    pattern: str
    nth: int
    error: BaseException
    forever: bool = False
    at_number: int = 0
    lands: bool | None = None
    seen: int = 0
    hits: int = 0
    cancelled: bool = False

    def cancel(self) -> None:
        """Let later calls succeed."""
        self.cancelled = True

    def strikes(self, call: Call) -> bool:
        """Return True if this call fails; it is counted by that."""
        if self.cancelled or (self.hits and not self.forever):
            return False
        if self.at_number:
            due = call.number == self.at_number
            late = self.forever and call.number > self.at_number
        else:
            if self.kind not in ("*", call.kind) or not matches(call.path, self.pattern):
                return False
            self.seen += 1
            due = self.seen == self.nth
            late = self.forever and self.seen > self.nth
        if due or late:
            self.hits += 1
            return True
        return False

    def make_error(self) -> BaseException:
        """The error that a struck call raises: a copy for each."""
        return copy.copy(self.error)


class CallLog:
    """A log of the calls so far. Numbers go on rising when the log is cleared."""

    def __init__(self) -> None:
        self.log: list[Call] = []
        self.last_number = 0
        self._reads: Counter[tuple[str, str]] = Counter()

    def record(self, kind: str, path: str, offset: int = 0, length: int = 0) -> Call:
        """Note a call, and give it the next number; looking and reading have number 0."""
        if kind in READ_KINDS:
            self._reads[kind, path] += 1
            return Call(0, kind, path, offset, length)
        self.last_number += 1
        call = Call(self.last_number, kind, path, offset, length)
        self.log.append(call)
        return call

    def count(self, kind: str, pattern: str = "*") -> int:
        """Return the number of calls of this kind on paths or file names that match."""
        if kind in READ_KINDS:
            pairs = self._reads.items()
            return sum(n for (k, path), n in pairs if k == kind and matches(path, pattern))
        return sum(1 for c in self.log if c.kind == kind and matches(c.path, pattern))

    def bytes(self, kind: str, pattern: str = "*") -> int:
        """Return the bytes that the numbered calls of this kind named."""
        return sum(c.length for c in self.log if c.kind == kind and matches(c.path, pattern))

    def kinds(self) -> list[str]:
        """The kinds of the numbered calls, in order: `["write", "sync"]`."""
        return [call.kind for call in self.log]

    def clear(self) -> None:
        """Forget the log and the counts; the numbers go on."""
        self.log.clear()
        self._reads.clear()


def raise_fault(call: Call, fault: Fault) -> NoReturn:
    """Raise the fault's error, as the real machine raises it of such a call (E9)."""
    error = fault.make_error()
    if isinstance(error, OSError):
        raise_if_refused(error, call.path, f"{call.kind} {call.length} bytes at {call.offset}")
    raise error


def io_error() -> OSError:
    return OSError(errno.EIO, "simulated input/output error")


def matches(path: str, pattern: str) -> bool:
    """Return True if the shell pattern matches the whole path or its last component."""
    name = path.rpartition("/")[2]
    return fnmatch.fnmatchcase(path, pattern) or fnmatch.fnmatchcase(name, pattern)
