"""The file system that a directory of the real machine lies on, by its mount in /proc.

Where there is no /proc (no Linux, or a root without one) nothing is known.
"""

from __future__ import annotations

import os


def file_system_of(path: str) -> str:
    """The kind of file system that the path, or the nearest directory above it, lies on.

    As mounts name it ("ext4", "nfs4", "fuse.sshfs"), and "9p over tcp" by how it is reached. Empty
    where the kernel does not tell.
    """
    number = _mount_of(path)
    if number is None:
        return ""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
            for line in mounts:
                if line.startswith(f"{number} "):
                    return _kind_of(line)
    except OSError:
        pass
    return ""


def _mount_of(path: str) -> str | None:
    """The number of the mount, which no two that are there have."""
    flags = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
    try:
        fd = os.open(path, flags)
    except (FileNotFoundError, NotADirectoryError):
        above = os.path.dirname(path)
        return None if above == path else _mount_of(above)
    except (OSError, ValueError):  # the opening says what it is
        return None
    try:
        with open(f"/proc/self/fdinfo/{fd}", encoding="utf-8") as facts:
            for line in facts:
                name, _, value = line.partition(":")
                if name == "mnt_id":
                    return value.strip()
    except OSError:
        pass
    finally:
        os.close(fd)
    return None


def _kind_of(line: str) -> str:
    """Return the kind in a line of mountinfo: ... - KIND SOURCE OPTIONS."""
    kind, _, rest = line.rpartition(" - ")[2].partition(" ")
    if kind == "9p":
        options = rest.split()[-1].split(",")
        way = next((o.removeprefix("trans=") for o in options if o.startswith("trans=")), "")
        return f"9p over {way}" if way in ("tcp", "rdma") else "9p"
    return kind
