"""The forms of the system's calls that this process uses: Linux's, or the portable ones.

It is decided here, once, and nowhere else: on Linux those of `os_linux`, elsewhere those of
`os_portable`. Tests force the portable ones on Linux, in this process and those that it starts, by
the environment variable QUIRE_PORTABLE=1 (`make test-portable`).

| for | Linux | portable |
|---|---|---|
| durable writes | `O_DIRECT` and `O_DSYNC` | the page cache, then a sync |
| a sync | `fdatasync`; `fsync` of a directory | `F_FULLFSYNC`, else `fsync` |
| space before it is written | `posix_fallocate` | zeros where there is no data |
| space that nobody needs | `fallocate` punches a hole | is used again; the end is cut off |
| where a file has data, and where holes | `SEEK_DATA` | all of it is read |
| a large block, read into memory | `preadv` | `pread`, and a copy |
| several places, read from the medium | `posix_fadvise` asks for all of them | one by one |
| locks of names in one file | `F_OFD_SETLK` | `lockf`, and a table (`os_lock`) |
| what happens at connections | `epoll` | `poll`, which a socket pair interrupts |
| a socket whose path is too long | `/proc/self/fd`, `O_PATH` | a link below `/tmp` |
| memory of large blocks | `mallopt` has it go back when it is freed | as the library does |
| a request that nobody has read | Unix sockets tell | nobody tells (CH3, SV3) |
"""

from __future__ import annotations

import os
import sys
from typing import Final

PORTABLE: Final[bool] = sys.platform != "linux" or os.environ.get("QUIRE_PORTABLE") == "1"

if PORTABLE:
    from .os_portable import (
        BYTES_OF_OPEN_FILES,
        DIRECT_FLAGS,
        ENDED,
        HANG_UP,
        READ,
        UNIX_SOCKETS_REFUSE,
        WRITE,
        blocks_read,
        expect_pages,
        forget_pages,
        free_byte,
        lock_byte,
        next_data,
        punch_hole,
        read_into,
        reserve,
        return_large_blocks,
        short_path,
        socket_events,
        sync_data,
        sync_directory,
    )
else:
    from .os_linux import (
        BYTES_OF_OPEN_FILES,
        DIRECT_FLAGS,
        ENDED,
        HANG_UP,
        READ,
        UNIX_SOCKETS_REFUSE,
        WRITE,
        blocks_read,
        expect_pages,
        forget_pages,
        free_byte,
        lock_byte,
        next_data,
        punch_hole,
        read_into,
        reserve,
        return_large_blocks,
        short_path,
        socket_events,
        sync_data,
        sync_directory,
    )

__all__ = [
    "BYTES_OF_OPEN_FILES",
    "DIRECT_FLAGS",
    "ENDED",
    "HANG_UP",
    "PORTABLE",
    "READ",
    "UNIX_SOCKETS_REFUSE",
    "WRITE",
    "blocks_read",
    "expect_pages",
    "forget_pages",
    "free_byte",
    "lock_byte",
    "next_data",
    "punch_hole",
    "read_into",
    "reserve",
    "return_large_blocks",
    "short_path",
    "socket_events",
    "sync_data",
    "sync_directory",
]
