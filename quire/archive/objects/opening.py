"""Opening of the objects that a URL names."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from quire.env import Env
from quire.errors import InvalidArgument

from .directory import DirectoryObjects
from .seam import Objects


def open_objects(url: str, env: Env) -> Objects:
    """Return the objects of a directory, named by its path or by a `file:` URL.

    Nothing is made before the first object. Raises InvalidArgument.
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
    raise InvalidArgument(
        f"archive {parts.scheme}: give the path of a directory, or file:///PATH of this machine"
    )


def _checked_path(path: str) -> str:
    if not path or "\0" in path:
        raise InvalidArgument(f"archive {path!r}: give the path of a directory")
    return path
