"""The file systems on which a store may live.

A store relies on its file system for locks that end with their process, for syncs that reach the
medium, and for names that change as one. Those of this machine's disks do that. A network file
system answers for another machine: its locks may be those of one machine only, they may be lost
while their holder goes on, and a sync may reach the server's memory. Of those between (programs,
layers, folders of a host) it depends on what is behind them, which nobody here can see.

Where the kernel does not tell what a directory lies on, nothing is refused.
"""

from __future__ import annotations

import warnings
from typing import Final

from quire.errors import FileSystemWarning, InvalidArgument

from .seam import Env

NETWORK: Final = {
    "NFS": ("nfs", "nfs4"),
    "SMB, CIFS": ("cifs", "smb3", "smbfs", "fuse.smbnetfs"),
    "Ceph": ("ceph", "fuse.ceph", "fuse.ceph-fuse"),
    "Lustre": ("lustre",),
    "GlusterFS": ("fuse.glusterfs",),
    "9p over a network": ("9p over tcp", "9p over rdma"),
    "AFS, Coda": ("afs", "coda"),
    "file systems of a cluster": ("gfs2", "ocfs2", "gpfs", "beegfs", "pvfs2", "orangefs"),
    "FUSE to another machine": ("fuse.sshfs", "fuse.davfs", "fuse.curlftpfs", "fuse.rclone"),
    "FUSE to an object store": (
        "fuse.s3fs",
        "fuse.gcsfuse",
        "fuse.mountpoint-s3",
        "fuse.goofys",
        "fuse.blobfuse2",
        "fuse.juicefs",
    ),
}
"""The kinds on which a store is refused, by the names that people have for them."""

DOUBTFUL: Final = {
    "FUSE": ("fuse", "fuse.", "fuseblk"),
    "9p of this machine's host": ("9p",),
    "other folders of a host": ("virtiofs", "vboxsf", "vmhgfs", "prl_fs", "drvfs"),
    "overlay": ("overlay", "aufs"),
}
"""The kinds that are warned of; `fuse.` is any other program behind FUSE."""

_NETWORK: Final = frozenset(kind for kinds in NETWORK.values() for kind in kinds)
_DOUBTFUL: Final = frozenset(kind for kinds in DOUBTFUL.values() for kind in kinds)


def check_file_system(env: Env, path: str, *, network: bool) -> None:
    """Refuse a store at the path, or warn of it, by what the path lies on.

    With `network` a network file system is warned of, too. Raises InvalidArgument.
    """
    kind = env.file_system(path)
    if kind in _NETWORK:
        if not network:
            raise InvalidArgument(
                f"path {path!r} is on a network file system ({kind}), where locks and syncs may "
                "not hold, and a store can be damaged: give a path on a disk of this machine. If "
                "you know that one machine alone uses the store, and that a sync there is durable, "
                "give network_file_system=True"
            )
        warnings.warn(
            f"the store at {path} is on a network file system ({kind}), as was allowed: open it on "
            "one machine only; what was committed is safe as far as that file system is",
            FileSystemWarning,
            stacklevel=2,
        )
    elif kind in _DOUBTFUL or kind.startswith("fuse."):
        warnings.warn(
            f"the store at {path} is on {kind}, {_doubt(kind)}: a volume on a disk of this machine "
            "is safer",
            FileSystemWarning,
            stacklevel=2,
        )


def _doubt(kind: str) -> str:
    if kind in DOUBTFUL["overlay"]:
        return "the layers of a container, which go with it"
    if kind.startswith("fuse"):
        return "where a program decides whether locks and syncs hold"
    return "a folder of this machine's host, where locks and syncs may not hold"
