"""Opening of the objects that a URL names."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from quire.env import Env
from quire.errors import InvalidArgument

from .buckets import SCHEMES, BucketObjects
from .directory import DirectoryObjects
from .retries import RetriedObjects
from .seam import Objects


def open_objects(url: str, env: Env) -> Objects:
    """Return the objects of a directory, named by path or `file:` URL, or of an object store.

    Nothing is made or asked before the first request. Raises InvalidArgument, and ArchiveFailed
    where the library of object stores is missing.
    """
    parts = urlsplit(url)
    if parts.scheme and ("@" in parts.netloc or parts.query or parts.fragment):
        raise InvalidArgument(  # (AO3)
            f"archive {parts.scheme}://...: give its place alone, and credentials by the"
            " environment, or by the files in which tools of that store look for them"
        )
    if not url or not parts.scheme:
        return DirectoryObjects(_checked_path(url), env)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and not parts.query:
        return DirectoryObjects(_checked_path(unquote(parts.path)), env)
    if parts.scheme in SCHEMES:
        return RetriedObjects(BucketObjects(url), env)
    raise InvalidArgument(
        f"archive {parts.scheme}: give the path of a directory, file:///PATH of this machine,"
        f" or the URL of an object store ({', '.join(SCHEMES)})"
    )


def _checked_path(path: str) -> str:
    if not path or "\0" in path:
        raise InvalidArgument(f"archive {path!r}: give the path of a directory")
    return path
