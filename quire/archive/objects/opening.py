"""Opening of the objects that a URL names."""

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit

from quire.env import Env
from quire.errors import InvalidArgument

from .buckets import SCHEMES, BucketObjects
from .directory import DirectoryObjects
from .retries import RetriedObjects
from .seam import Objects


def open_objects(url: str | os.PathLike[str], env: Env) -> Objects:
    """Return the objects of a directory, named by path or `file:` URL, or of an object store.

    Nothing is made or asked before the first request. Raises InvalidArgument, and ArchiveFailed
    where the library of object stores is missing.
    """
    try:
        url = os.fspath(url)
        parts = urlsplit(url)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(
            f"archive {url!r:.100}: give a directory or a URL ({error})"
        ) from None
    if not isinstance(url, str):
        raise InvalidArgument(f"archive {url!r:.100}: give a directory or a URL as text")
    if parts.scheme and ("@" in parts.netloc or parts.query or parts.fragment):
        raise InvalidArgument(  # (AO3)
            f"archive {parts.scheme}://...: give its place alone, and credentials by the"
            " environment, or by the files in which tools of that store look for them"
        )
    if not url or not parts.scheme:
        return DirectoryObjects(_checked_path(url, env), env)
    is_local = parts.netloc in ("", "localhost") and parts.path.startswith("/")
    if parts.scheme == "file" and is_local and not parts.query:
        return DirectoryObjects(_checked_path(unquote(parts.path), env), env)
    if parts.scheme in SCHEMES:
        return RetriedObjects(BucketObjects(url), env)
    raise InvalidArgument(
        f"archive {parts.scheme}: give the path of a directory, file:///PATH of this machine,"
        f" or the URL of an object store ({', '.join(SCHEMES)})"
    )


def is_place_of(objects: Objects, env: Env, url: str) -> bool:
    """Return True if a URL names the place of these objects."""
    other = open_objects(url, env)
    try:
        if isinstance(objects, DirectoryObjects) and isinstance(other, DirectoryObjects):
            return env.real_path(objects.root) == env.real_path(other.root)
        return objects.url.rstrip("/") == other.url.rstrip("/")
    finally:
        other.close()


def check_outside(objects: Objects, env: Env, path: str) -> None:
    """Raise InvalidArgument if a directory of objects is in a store's, or that is in it."""
    if not isinstance(objects, DirectoryObjects):
        return
    archive, store = (f"{env.real_path(each).rstrip('/')}/" for each in (objects.root, path))
    if archive.startswith(store) or store.startswith(archive):
        raise InvalidArgument(
            f"the archive {objects.url} and the store {path} are one in the other's directory:"
            " give a directory for each of them, best on two disks"
        )


def _checked_path(path: str, env: Env) -> str:
    if not path or "\0" in path:
        raise InvalidArgument(f"archive {path!r}: give the path of a directory")
    place = path
    while place.strip("/") and not env.exists(place):
        place = place.rstrip("/").rpartition("/")[0]
    try:
        env.list_directory(place or ("/" if path.startswith("/") else "."))
    except NotADirectoryError:
        raise InvalidArgument(f"archive {path}: {place} is a file: give a directory") from None
    except OSError:  # whoever uses it is told what it is about
        pass
    return path
