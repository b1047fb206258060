"""The system's calls that Linux alone has, or has in this form; the portable ones: `os_portable`.

`os_platform` chooses between the two modules, which have the same names.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import select
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from quire.libraries.late_modules import stand_in
from quire.limits import LARGE_BLOCK_BYTES

from .os_descriptors import STREAMS, keep_standard_descriptors, open_descriptor
from .seam import SocketEvents

if TYPE_CHECKING:
    import ctypes
else:
    ctypes = stand_in("ctypes")  # which takes some time to load, and many a process never needs

FALLOC_FL_KEEP_SIZE = 0x01
FALLOC_FL_PUNCH_HOLE = 0x02

# What a direct file is opened with: each write is durable when it returns.
DIRECT_FLAGS: Final[int] = os.O_DIRECT | os.O_DSYNC

# Events of sockets. Who hangs up is told also while there is something to read.
READ: Final[int] = select.EPOLLIN | select.EPOLLRDHUP
WRITE: Final[int] = select.EPOLLOUT
ENDED: Final[int] = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
HANG_UP: Final[int] = select.EPOLLRDHUP | select.EPOLLONESHOT  # told once

# A Unix socket refuses what is sent to a side that reads no more, and who has not been read whole
# is told so by the end of the connection (ECONNRESET).
UNIX_SOCKETS_REFUSE: Final[bool] = True

# Bytes are locked for an open file, and let go of with it.
BYTES_OF_OPEN_FILES: Final[bool] = True

_BYTE_RANGE: Final = struct.Struct("hhqqi4x")  # struct flock: type, whence, start, length, process

sync_data = os.fdatasync
sync_directory = os.fsync


def socket_events() -> SocketEvents:
    """Return a poll of events at sockets, by epoll(7)."""
    keep_standard_descriptors()
    made = select.epoll()
    if made.fileno() >= STREAMS:
        return made
    with made:  # another thread has closed a standard stream meanwhile (DN1)
        higher = fcntl.fcntl(made.fileno(), fcntl.F_DUPFD_CLOEXEC, STREAMS)
    return select.epoll.fromfd(higher)


def read_into(fd: int, memory: memoryview, offset: int) -> int:
    """Read from the offset into the memory; how many bytes."""
    return os.preadv(fd, [memory], offset)


def reserve(fd: int, offset: int, length: int) -> None:
    """Give the range space, where it has none. Raises OSError, EOPNOTSUPP where that cannot be."""
    os.posix_fallocate(fd, offset, length)


def forget_pages(fd: int, offset: int, length: int) -> None:
    """Let the page cache have no pages of the range."""
    os.posix_fadvise(fd, offset, length, os.POSIX_FADV_DONTNEED)


def expect_pages(fd: int, offset: int, length: int) -> None:
    """Have the page cache begin to read the pages of the range that it has not got."""
    os.posix_fadvise(fd, offset, length, os.POSIX_FADV_WILLNEED)


def blocks_read() -> int:
    """Return how many blocks this thread has had some medium read, which no page cache had."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_inblock


def punch_hole(fd: int, offset: int, length: int) -> bool:
    """Deallocate a range; False if this system or file system cannot."""
    fallocate = _fallocate()
    if fallocate is None:
        return False
    mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
    while fallocate(fd, mode, offset, length) != 0:
        number = ctypes.get_errno()
        if number == errno.EINTR:
            continue
        if number in (errno.EOPNOTSUPP, errno.ENOSYS):
            return False
        raise OSError(number, os.strerror(number))
    return True


def next_data(fd: int, offset: int) -> range:
    """The next bytes that are no hole, nor space that was only reserved; empty: there are none."""
    try:
        start = os.lseek(fd, offset, os.SEEK_DATA)
        return range(start, max(os.lseek(fd, start, os.SEEK_HOLE), start + 1))
    except OSError as error:
        if error.errno == errno.ENXIO:  # nothing but holes, or the end
            return range(0)
        if error.errno != errno.EINVAL:
            raise
        return range(offset, os.fstat(fd).st_size)  # this file system does not tell


def lock_byte(fd: int, place: int) -> None:
    """Lock one byte for this open file. Raises OSError, EAGAIN where another one has it."""
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _BYTE_RANGE.pack(fcntl.F_WRLCK, os.SEEK_SET, place, 1, 0))


def free_byte(fd: int, place: int) -> None:
    """Let go of it."""
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _BYTE_RANGE.pack(fcntl.F_UNLCK, os.SEEK_SET, place, 1, 0))


@contextmanager
def short_path(path: bytes) -> Iterator[bytes]:
    """Another path of a file in a directory that is there, of 30 bytes and the file's name."""
    directory, name = os.path.split(path)
    fd = open_descriptor(os.fsdecode(directory), os.O_PATH | os.O_DIRECTORY)
    try:
        yield b"/proc/self/fd/%d/%s" % (fd, name)
    finally:
        os.close(fd)


def return_large_blocks() -> None:
    """Have the memory of each block of 1 MiB or more go back to the system when it is freed.

    The C library's own threshold rises to 32 MiB with the blocks that come and go, and each of its
    arenas, of which there are eight for a processor, then keeps twice as much for the next ones.
    """
    function = getattr(ctypes.CDLL(None), "mallopt", None)
    if function is not None:  # another C library does it anyway
        function(-3, LARGE_BLOCK_BYTES)  # M_MMAP_THRESHOLD of mallopt(3)


@cache
def _fallocate() -> Any:
    """The C library's function; None: it has none."""
    libc = ctypes.CDLL(None, use_errno=True)
    function = getattr(libc, "fallocate64", None) or getattr(libc, "fallocate", None)
    if function is None:
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    function.restype = ctypes.c_int
    return function
