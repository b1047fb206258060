"""The system's calls that are made outside Linux, in forms that macOS and Linux both have.

Each has the name of its form in `os_linux`. There is nothing here for direct files, as no file is
opened so: `DIRECT_FLAGS` are none (O2). macOS has O_DSYNC, which does not reach the medium.
"""

from __future__ import annotations

import errno
import fcntl
import math
import os
import select
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from quire.libraries.late_imports import importing
from quire.limits import ZERO_CHUNK_BYTES as PIECE_BYTES

from .interpreter import Lock
from .os_descriptors import socket_pair
from .seam import SocketEvents

DIRECT_FLAGS: Final[int] = 0

# Events of sockets, which `PolledSockets` takes and gives.
READ: Final[int] = 1
WRITE: Final[int] = 2
ENDED: Final[int] = 4
HANG_UP: Final[int] = 8  # the end, told once as ENDED, whatever there is to read

# macOS takes what is sent to a Unix socket whose other side reads no more, and tells nobody that it
# was not read: such a socket is then as one of TCP.
UNIX_SOCKETS_REFUSE: Final[bool] = False

# Bytes are locked for the process, and let go of with any descriptor of the file.
BYTES_OF_OPEN_FILES: Final[bool] = False

_HUNG_UP: Final[int] = select.POLLHUP | select.POLLERR | select.POLLNVAL
_SHORT_PLACES: Final = ("/tmp", "/var/tmp")
_FULL_SYNC: Final[int | None] = getattr(fcntl, "F_FULLFSYNC", None)
_NO_FULL_SYNC: Final = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTTY, errno.ENOSYS)


def sync_data(fd: int) -> None:
    """Sync what was written to the medium.

    On macOS fsync leaves it in the cache of the disk, and F_FULLFSYNC does not. File systems that
    do not know it are synced as far as they can be.
    """
    if _FULL_SYNC is not None:
        try:
            fcntl.fcntl(fd, _FULL_SYNC)
        except OSError as error:
            if error.errno not in _NO_FULL_SYNC:
                raise
        else:
            return
    os.fsync(fd)


sync_directory = sync_data


def socket_events() -> SocketEvents:
    """Return a poll of events at sockets, by poll(2)."""
    return PolledSockets()


def read_into(fd: int, memory: memoryview, offset: int) -> int:
    """Read from the offset into the memory; how many bytes."""
    data = os.pread(fd, min(len(memory), PIECE_BYTES), offset)
    memory[: len(data)] = data
    return len(data)


def reserve(fd: int, offset: int, length: int) -> None:
    """Raise EOPNOTSUPP: no range can be given space but by writing to it."""
    raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))


def forget_pages(fd: int, offset: int, length: int) -> None:
    """The page cache is left as it is."""


def expect_pages(fd: int, offset: int, length: int) -> None:
    """The page cache reads pages when they are read."""


def blocks_read() -> int:
    """Return 0: it is not known."""
    return 0


def punch_hole(fd: int, offset: int, length: int) -> bool:
    """Return False: no space is given back within a file.

    It is used again, or cut off at the end.
    """
    return False


def next_data(fd: int, offset: int) -> range:
    """Return all bytes from the offset on: not each system's word on holes is to be relied on."""
    return range(offset, os.fstat(fd).st_size)


def lock_byte(fd: int, place: int) -> None:
    """Lock one byte for this process. Raises OSError, EAGAIN where another process has it."""
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)


def free_byte(fd: int, place: int) -> None:
    """Let go of it."""
    fcntl.lockf(fd, fcntl.LOCK_UN, 1, place)


def return_large_blocks() -> None:
    """Memory goes back to the system as the C library sees fit."""


@contextmanager
def short_path(path: bytes) -> Iterator[bytes]:
    """Another path of a file in a directory that is there, through a link to that, for a while."""
    with importing():
        import shutil
        import tempfile

    directory, name = os.path.split(os.path.abspath(path))
    place = tempfile.mkdtemp(prefix="quire-", dir=next(filter(os.path.isdir, _SHORT_PLACES), None))
    try:
        link = os.path.join(os.fsencode(place), b"d")
        os.symlink(directory, link)
        yield os.path.join(link, name)
    finally:
        shutil.rmtree(place, ignore_errors=True)  # of the link, not of what it leads to


class PolledSockets:
    """A poll of events at many sockets, as `select.epoll` gives them, by poll(2).

    One thread polls. Any thread may register, modify and unregister meanwhile: the poll begins
    again, with what is wanted then.

    The end of a connection is seen by reading nothing, or told by the system (POLLHUP). Where only
    the end is asked for, and something is there to read, the system alone can tell it: it does for
    Unix sockets; on TCP, macOS does, and Linux once both sides have ended.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._registered: dict[int, int] = {}
        self._masks: dict[int, int] = {}  # what the system is asked for
        self._sockets: dict[int, socket.socket] = {}
        self._waker, self._wakes = socket_pair()
        self._polling = False

    def register(self, channel: socket.socket | int, events: int) -> None:
        """Tell of these events of a socket, or of another file, from now on."""
        fd = channel if isinstance(channel, int) else channel.fileno()
        with self._lock:
            if fd in self._registered:
                raise FileExistsError(errno.EEXIST, "it is registered already")
            if not isinstance(channel, int):
                self._sockets[fd] = channel
            self._register(fd, events)

    def modify(self, fd: int, events: int) -> None:
        """Tell of these events, in place of those before."""
        with self._lock:
            if fd not in self._registered:
                raise FileNotFoundError(errno.ENOENT, "it is not registered")
            self._register(fd, events)

    def unregister(self, fd: int) -> None:
        """Tell of nothing any more."""
        with self._lock:
            if self._registered.pop(fd, None) is None:
                raise FileNotFoundError(errno.ENOENT, "it is not registered")
            self._sockets.pop(fd, None)
            del self._masks[fd]
            self._wake()

    def poll(self, timeout: float, maxevents: int) -> list[tuple[int, int]]:
        """Return at most `maxevents` events, which are waited for up to `timeout` seconds; -1:
        without an end.
        """
        events: list[tuple[int, int]] = []
        until = math.inf if timeout < 0 else time.monotonic() + timeout
        is_over = False
        while not events and not is_over:
            left = until - time.monotonic() if until < math.inf else math.inf
            found = self._poll_system(max(0.0, left))
            is_over = left <= 0
            with self._lock:
                self._polling = False
                with suppress(BlockingIOError):
                    while self._wakes.recv(4096):
                        pass
                for fd, event in found:
                    happened = self._happened(fd, event)
                    if happened:
                        events.append((fd, happened))
                    if len(events) == maxevents:
                        break
        return events

    def close(self) -> None:
        """Give back its files; nobody polls any more. Takes no lock: a forked child calls it."""
        self._waker.close()
        self._wakes.close()

    def _poll_system(self, seconds: float) -> list[tuple[int, int]]:
        """Return the events that the system reports within so many seconds, or a little less."""
        poll = select.poll()
        with self._lock:
            poll.register(self._wakes, select.POLLIN)
            for fd, mask in self._masks.items():
                if mask:
                    poll.register(fd, mask)
            # Where something is to be read, macOS looks for the end as a poll begins: each second.
            looks = select.POLLHUP in self._masks.values()
            self._polling = True
        seconds = min(seconds, 1.0) if looks else seconds
        return poll.poll(None if seconds == math.inf else math.ceil(seconds * 1000))

    def _register(self, fd: int, events: int) -> None:
        self._registered[fd] = events
        mask = 0
        if events & (READ | HANG_UP):
            mask |= select.POLLIN | select.POLLHUP  # macOS tells of a HUP only who asks for it
        if events & WRITE:
            mask |= select.POLLOUT
        self._masks[fd] = mask
        self._wake()

    def _wake(self) -> None:
        if self._polling:
            with suppress(BlockingIOError):  # full: it is awake
                self._waker.send(b"x")

    def _happened(self, fd: int, event: int) -> int:
        """Return the flags of an event, as far as they are registered now."""
        registered = self._registered.get(fd, 0)
        if event & select.POLLNVAL and fd in self._masks:  # it was closed: it is told once
            self._masks[fd] = 0
        if registered & HANG_UP:
            if not (event & _HUNG_UP or self._has_ended(fd)):
                return 0
            self._registered[fd] = self._masks[fd] = 0
            return ENDED
        happened = ENDED if registered and event & _HUNG_UP else 0
        if registered & READ and event & (select.POLLIN | _HUNG_UP):
            happened |= READ
        if registered & WRITE and event & (select.POLLOUT | _HUNG_UP):
            happened |= WRITE
        return happened

    def _has_ended(self, fd: int) -> bool:
        """Return True if the other side has ended, and nothing is left to read; nothing is
        taken.
        """
        try:
            if self._sockets[fd].recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                self._masks[fd] = select.POLLHUP  # it is for later
                return False
        except BlockingIOError:
            return False
        except OSError:
            pass
        return True
