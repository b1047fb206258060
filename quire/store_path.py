"""The path of a store, as callers give it."""

from __future__ import annotations

import os
import re
from typing import Final

from quire.env.memory_env import IN_MEMORY
from quire.errors import InvalidArgument

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def checked_path(path: object) -> str:
    """The absolute path of a store on a disk. Raises InvalidArgument for what is no such path."""
    try:
        text = os.fsdecode(path)  # type: ignore[arg-type]
    except TypeError:
        text = ""
    if not text or "\0" in text:  # the first would be the working directory
        in_memory = "" if path is not None else f", or {IN_MEMORY!r} for a store in memory"
        raise InvalidArgument(f"path is {path!r}: give the path of a directory{in_memory}")
    if _URL.match(text):
        raise InvalidArgument(
            f"{text!r} is a URL: give the path of a directory; quire.connect takes the URL of an "
            "owner's socket"
        )
    if text == IN_MEMORY:
        raise InvalidArgument(
            f"{text!r} is a store in the memory of one process, which opens it by quire.open: give "
            "the path of a directory"
        )
    try:
        return os.path.abspath(text)
    except FileNotFoundError:
        raise InvalidArgument(
            f"path {text!r} begins in the working directory, which is not there any more: go to "
            "another one, or give a path from / on"
        ) from None
