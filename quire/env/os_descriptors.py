"""The numbers of open files: none that a program closes, writes to, or gives to other files.

- DN1: no file of a store keeps the number of a standard stream. A program that has closed these has
  /dev/null there from the next opening of a file on, so what it writes to them goes nowhere; a
  number that is /dev/null once is not closed again by the store.
- DN2: a file has a number from `FIRST_NUMBER` on, where the limit of open files allows it. The
  system gives the lowest number that is free, so a program that closes numbers that are not its own
  and opens files has these elsewhere.
- DN3: a number that was closed by others is known by the device and the inode: it is not closed
  again, and nothing is written to it (`Descriptor.is_own`).
- A file that is made has the rights of its owner to read and write it, whatever the umask.
"""

from __future__ import annotations

import fcntl
import os
import socket
import stat
from typing import Final

FIRST_NUMBER: Final = 1000
STREAMS: Final = 3  # standard input, output and error: 0 to 2
_OWN_RIGHTS: Final = 0o600


class Descriptor(int):
    """A file descriptor that is closed when nothing refers to it any more (O3, DN3)."""

    key: tuple[int, int] | None = None

    def __init__(self, number: int) -> None:
        if number >= 0:
            self.key = key_of(number)

    def is_own(self) -> bool:
        """Return True if the number is still that of the file that was opened."""
        try:
            return key_of(self) == self.key
        except OSError:
            return False

    def __del__(self) -> None:
        if self >= 0 and self.is_own():
            os.close(self)


def open_descriptor(path: str, flags: int, mode: int = _OWN_RIGHTS) -> int:
    """Open a file; its number is one of DN1 and DN2. Raises OSError."""
    keep_standard_descriptors()
    number = moved_up(os.open(path, flags | os.O_CLOEXEC, mode), FIRST_NUMBER)
    if flags & os.O_CREAT:
        _give_rights(number)
    return number


def make_directory(path: str) -> None:
    """Make a directory that its owner can use, whatever the umask. Raises OSError."""
    os.mkdir(path, 0o700)
    give_owner_rights(path)


def give_owner_rights(path: str) -> None:
    """Let the owner of a directory, or a socket, that was just made use it. Raises OSError."""
    mode = stat.S_IMODE(os.stat(path).st_mode)
    if mode & 0o700 != 0o700:
        os.chmod(path, mode | 0o700)


def moved_up(number: int, least: int = STREAMS) -> int:
    """Return a number from `least` on for the open file, if there is one, and at least 3 (DN1).

    The number that it had is closed, or is /dev/null if it is that of a standard stream.
    """
    for lowest in (least, STREAMS):
        if number >= lowest:
            break
        try:
            higher = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, lowest)
        except OSError:  # above the limit of open files, or all are in use
            continue
        _close_or_blank(number)
        return higher
    return number


def moved_socket(made: socket.socket) -> socket.socket:
    """Return the socket with a number that is no standard stream's (DN1)."""
    if made.fileno() >= STREAMS:
        return made
    return socket.socket(made.family, made.type, made.proto, fileno=moved_up(made.detach()))


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Return two sockets connected to each other, of which neither is ever waited for (DN1)."""
    keep_standard_descriptors()
    reader, writer = map(moved_socket, socket.socketpair())
    reader.setblocking(False)
    writer.setblocking(False)
    return reader, writer


def keep_standard_descriptors() -> None:
    """Keep numbers 0 to 2, to which everybody writes errors, away from files and sockets of a
    store.

    A program may be started with its standard streams closed. The next files that it opens get
    their numbers, 0 to 2, and what the interpreter or a library writes to "standard error" goes
    into them, as once into databases of SQLite.
    """
    for descriptor in range(STREAMS):
        try:
            os.fstat(descriptor)
        except OSError:
            taken = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)  # the lowest number that is free
            if taken >= STREAMS:  # another thread was first
                os.close(taken)


def key_of(fd: int) -> tuple[int, int]:
    """Return the device and inode of an open file, which no other file has."""
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def _close_or_blank(number: int) -> None:
    if number >= STREAMS:
        os.close(number)
        return
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    if nothing != number:
        os.dup2(nothing, number, inheritable=False)
    if nothing >= STREAMS:  # a stream's number stays /dev/null: others may have seen it so
        os.close(nothing)


def _give_rights(number: int) -> None:
    """Give the owner's rights to a file that was just made; an older one keeps those that it
    has.
    """
    status = os.fstat(number)
    if not status.st_size and status.st_mode & _OWN_RIGHTS != _OWN_RIGHTS:
        os.fchmod(number, _OWN_RIGHTS)
