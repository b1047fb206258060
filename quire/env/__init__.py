"""The environment: what reaches files, locks, clocks and chance. All else calls nothing of `os`.

What the system has in another form on Linux than elsewhere is behind `os_platform`.
"""

from .file_systems import check_file_system
from .os_descriptors import (
    give_owner_rights,
    keep_standard_descriptors,
    moved_socket,
    socket_pair,
)
from .os_env import OsEnv, after_fork, check_env
from .os_platform import (
    ENDED,
    HANG_UP,
    READ,
    UNIX_SOCKETS_REFUSE,
    WRITE,
    return_large_blocks,
    short_path,
    socket_events,
)
from .seam import Env, File, FileLock, FileMaker, FileOpener, ReadFile, SeveralPlaces, WrittenFile

__all__ = [
    "ENDED",
    "HANG_UP",
    "READ",
    "UNIX_SOCKETS_REFUSE",
    "WRITE",
    "Env",
    "File",
    "FileLock",
    "FileMaker",
    "FileOpener",
    "OsEnv",
    "ReadFile",
    "SeveralPlaces",
    "WrittenFile",
    "after_fork",
    "check_env",
    "check_file_system",
    "give_owner_rights",
    "keep_standard_descriptors",
    "moved_socket",
    "return_large_blocks",
    "short_path",
    "socket_events",
    "socket_pair",
]
