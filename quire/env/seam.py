"""The environment seam: files, directories, locks, clocks and randomness.

`OsEnv` is the real machine. `quire.testing.SimEnv` implements the same protocols on a simulated
disk. Everything else in Quire takes an `Env` and calls nothing of `os`, `time` or `random` itself.

What every environment guarantees, and what nobody may assume beyond it:

E1. `sync` makes durable what was written by calls that had *returned* before it was issued. Until
    then each write may be kept, lost or torn by a power failure, at the grain of a 512-byte
    sector, in any combination.
E2. A `write` to a direct file is durable when it returns, and `sync` does nothing. A power failure
    during the write may tear it. Allocate, punch and truncate of a direct file are durable too.
    What `write_cached` writes is not: that is as in a plain file (E1).
E3. After a failed write or sync it is not known what of it is durable. Reads go on showing what was
    written (of a failed write all, a part, or nothing), also to the next process; when the power
    fails it may be gone, whole or in part, and a later sync that succeeds says nothing about it,
    nor does a later write of something else. Only writing the same bytes again, and syncing them,
    makes them certain. A direct write during which its process died is such a write too. So the
    only way on is to close, reopen and recover, and recovery writes again what it builds on.
E4. A new, linked, renamed or removed name is durable after `sync_directory` of its directory (of
    both directories, for a rename between two), not before; syncing the file is not enough. A
    rename is atomic: the new name means the old file or the new one, never neither. For a failed
    `sync_directory` E3 holds: the names are shown, and no later sync of the directory makes them
    certain, but a later change of the same name does, once it is durable.
E5. Space that was allocated or skipped and never written reads as zeros.
E6. No file is mapped. Bytes that the medium does not give are StoreCorrupt, with file and place,
    as is a file that is there and cannot be opened to read; StoreError where it is for this
    process that they cannot be read (its rights, its number of open files, its memory). Bytes
    that are not in the file any more are not an error: a read gives fewer.
E7. No room is `quire.errors.DiskFull`. A failed allocate leaves the size and the data as before.
E9. ENOSPC, EDQUOT, EFBIG, EMFILE, ENFILE and ENOMEM refuse a call: it raises DiskFull or another
    `quire.errors.ResourceExhausted`. Nothing was done then, but that a write may have landed in
    part or whole (E3). A sync, of a file or a directory, is never refused: it fails.
E8. A lock has one holder over all processes and threads, and ends with its process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from socket import socket


class ReadFile(Protocol):
    """A file that is read, wherever it is. Its methods do as those of `File`."""

    def read(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from `offset`; fewer only at the end of the file."""

    def read_block(self, offset: int, length: int) -> bytes | memoryview:
        """Read as `read`, for what may be large."""

    def size(self) -> int:
        """The size in bytes."""

    def close(self) -> None:
        """Give up the handle; twice is once."""


@runtime_checkable
class SeveralPlaces(Protocol):
    """A file of which several places are read together for less than one by one."""

    def expect_several(self, places: Sequence[tuple[int, int]]) -> None:
        """Begin to read places that `read_several` is about to be asked for, if that is of use."""

    def read_several(self, places: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of each place, an offset and a length; fewer at the file's end."""


class FileOpener(Protocol):
    """An opener of files to read: as far as needed, an `Env`."""

    def open_file(self, path: str, *, read_only: bool = False) -> ReadFile:
        """Open a file that is there."""


class WrittenFile(Protocol):
    """A file that is written, wherever it is. Its methods do as those of `File`."""

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Write all of `data` at `offset`."""

    def sync(self) -> None:
        """Make durable what was written before this call."""

    def close(self) -> None:
        """Give up the handle, without a sync; twice is once."""


class FileMaker(Protocol):
    """A maker and remover of files: as far as needed, an `Env`, whose methods these are."""

    def open_file(
        self, path: str, *, create: bool = False, exclusive: bool = False, direct: bool = False
    ) -> WrittenFile:
        """Open a file, or with `create` make an empty one if there is none."""

    def remove(self, path: str) -> None:
        """Remove a file."""

    def sync_directory(self, path: str) -> None:
        """Make the directory's entries durable."""

    def aligned_buffer(self, size: int) -> memoryview:
        """`size` writable bytes for writes."""


class File(Protocol):
    """An open file. All offsets and lengths are bytes. Methods are thread-safe."""

    path: str
    direct: bool  # offsets, lengths and buffers of `write` must be multiples of 4096

    def read(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from `offset`; fewer only at the end of the file (E6)."""

    def read_block(self, offset: int, length: int) -> bytes | memoryview:
        """Read as `read`, for what may be large; nobody else has, or changes, the memory of the
        result.

        From `MAPPED_READ_BYTES` on that may be mapped memory, which goes back to the machine with
        the last view of it.
        """

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Write all of `data` at `offset` (loops over short writes). Not durable before `sync`.

        On a direct file it is durable when it returns (E2). A memoryview must have items of one
        byte. Raises ResourceExhausted, which may leave a part of the data written.
        """

    def write_cached(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Write as `write`, through the page cache: not durable before `sync`, whatever the file.

        It outlives the process. On a direct file no page of it may be written directly, by another
        thread, before that sync.
        """

    def sync(self) -> None:
        """Make durable what was written before this call. Never retry a failure.

        See E1 and E3. On a direct file only what `write_cached` has written waits for it (E2).
        """

    def allocate(self, offset: int, length: int, *, zeros: bool = True) -> None:
        """Make sure that writes to this range need no more space.

        With `zeros` a direct file is filled with them, so that small writes need no more metadata
        either; without, the space is only reserved, which is better for large writes. The file
        grows to the end of the range; what it holds stays as it is. Nobody may write to the range
        at the same time. Raises DiskFull (E7).
        """

    def punch(self, offset: int, length: int) -> None:
        """Give the range's space back; it reads as zeros. The size stays.

        A file system that cannot do this leaves the range as it was.
        """

    def truncate(self, length: int) -> None:
        """Set the size."""

    def size(self) -> int:
        """The size in bytes, allocated space included."""

    def next_data(self, offset: int) -> range:
        """The next bytes from `offset` on that may be other than zeros; empty where none are left.

        What it passes over reads as zeros (E5). Where that is not known, all bytes are given.
        """

    def close(self) -> None:
        """Give up the handle, without a sync; twice is once."""


class FileLock(Protocol):
    """A lock that is held until `release` or the end of the process (E8)."""

    @property
    def held(self) -> bool:
        """True if it still is held, by this process."""

    @property
    def in_place(self) -> bool:
        """True if the path still names the locked file: it was not removed, moved or replaced."""

    def release(self) -> None:
        """Give the lock up; twice is once. May be called from a finaliser."""


class SocketEvents(Protocol):
    """A poll of events at many sockets; one thread polls, any may make other calls meanwhile.

    Events are the flags READ, WRITE, ENDED and HANG_UP of `quire.env`.
    """

    def register(self, channel: socket | int, events: int, /) -> None:
        """Tell of these events of a socket, or of another file, from now on."""

    def modify(self, fd: int, events: int, /) -> None:
        """Tell of these events, in place of those before."""

    def unregister(self, fd: int, /) -> None:
        """Tell of nothing any more."""

    def poll(self, timeout: float, maxevents: int, /) -> list[tuple[int, int]]:
        """Wait up to `timeout` seconds for events, at most so many of them; -1: without an end."""

    def close(self) -> None:
        """Give back its files. A forked child may call it too."""


class Env(Protocol):
    """The machine: whatever is not computation. Errors are OSError, as `os` raises them."""

    def open_file(
        self,
        path: str,
        *,
        create: bool = False,
        exclusive: bool = False,
        read_only: bool = False,
        direct: bool = False,
    ) -> File:
        """Open a file, or with `create` make an empty one if there is none.

        `exclusive` creates, and raises FileExistsError if the name is taken. `direct` is a wish:
        `File.direct` says whether the file system grants it (never for `read_only`). With
        `read_only` what is there and cannot be opened is an error of Quire (E6).
        """

    def exists(self, path: str) -> bool:
        """Return True if the path names a file or a directory."""

    def list_directory(self, path: str) -> Sequence[str]:
        """The names in a directory, sorted."""

    def make_directory(self, path: str) -> None:
        """Make one directory in an existing one; nothing happens if it is there already."""

    def remove(self, path: str) -> None:
        """Remove a file or an empty directory. Open handles keep working."""

    def rename(self, old: str, new: str) -> None:
        """Give a file or directory another name, replacing a file of that name (E4)."""

    def link(self, old: str, new: str) -> None:
        """Give a file a further name in the same file system (E4).

        Raises FileExistsError if the name is taken: of several that take it at once one succeeds.
        """

    def sync_directory(self, path: str) -> None:
        """Make the directory's entries durable (E4)."""

    def file_system(self, path: str) -> str:
        """The kind of file system that the path, or the nearest one above it, lies on: "ext4".

        Empty where that is not known (`quire.env.file_systems`).
        """

    def free_bytes(self, path: str) -> int | None:
        """The bytes that this process may still write to the file system of the path.

        None where that is not known, or has no end.
        """

    def real_path(self, path: str) -> str:
        """Return the absolute path of what the path names, or would, without symbolic links."""

    def modified_us(self, path: str) -> int:
        """Return the time of the file's last change, in microseconds since 1970."""

    def lock(self, path: str, owner: str) -> FileLock:
        """Take the lock at `path` (a file of its own, which nothing else opens).

        Raises StoreLocked, naming the holder's `owner` description, if it is taken (E8).
        """

    def hold_file(self, path: str) -> FileLock:
        """Lock a file that is there, and stays what it is: others may read and write it.

        So nobody else holds it that asks for it in the same way (E8), wherever its name leads from
        then on. Raises StoreLocked, FileNotFoundError.
        """

    def is_locked(self, path: str) -> bool:
        """Return True if somebody holds the lock at `path`. Nothing is made or written."""

    def lock_names(self, path: str, names: Sequence[str]) -> FileLock | str:
        """Take all of the names at `path`, a file of its own that is made if it is not there.

        Each name has one holder (E8). Returns the lock of them all, or the first that is taken:
        then none is.
        """

    def now_us(self) -> int:
        """The wall clock, in microseconds since 1970. It may jump."""

    def monotonic(self) -> float:
        """Seconds from some fixed moment; never goes back."""

    def sleep(self, seconds: float) -> None:
        """Let time pass."""

    def random_u64(self) -> int:
        """64 bits that nobody can guess (a simulated environment draws them from its seed)."""

    def aligned_buffer(self, size: int) -> memoryview:
        """`size` writable bytes at an address that is a multiple of 4096, for direct writes."""
