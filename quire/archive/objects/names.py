"""Names of objects, which are the same in every kind of store."""

from __future__ import annotations

import re
from typing import Final

from quire.archive.limits import MAX_CREATE_BYTES, MAX_NAME_LENGTH
from quire.errors import InvalidArgument

_NAME: Final = re.compile(r"(?:[A-Za-z0-9_-][A-Za-z0-9._-]*/)*[A-Za-z0-9_-][A-Za-z0-9._-]*")


def is_name(name: str) -> bool:
    """Return True if an object can have this name."""
    return len(name) <= MAX_NAME_LENGTH and _NAME.fullmatch(name) is not None


def check_name(name: str) -> str:
    """Return the name of an object. Raises InvalidArgument."""
    if not is_name(name):
        raise InvalidArgument(
            f"object name {name!r:.100}: give parts of A-Z a-z 0-9 . _ - between /, none of which"
            f" begins with a dot, at most {MAX_NAME_LENGTH} characters"
        )
    return name


def check_prefix(prefix: str) -> str:
    """Return the prefix of a listing. Raises InvalidArgument."""
    if prefix:
        check_name(prefix.removesuffix("/"))
    if prefix and not prefix.endswith("/"):
        raise InvalidArgument(f"prefix {prefix!r}: end it with a /")
    return prefix


def check_small(name: str, length: int) -> None:
    """Raise InvalidArgument for an object that is too large for one request."""
    if length > MAX_CREATE_BYTES:
        raise InvalidArgument(
            f"object {name} of {length} bytes: at most {MAX_CREATE_BYTES} are made at a time;"
            " upload a larger one"
        )
