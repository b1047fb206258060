"""Names of queues and subscriptions, and sources written as "queue" or "queue/subscription".

What is no name is shown in the error as far as a line has room for it.
"""

from __future__ import annotations

import re
import threading
from typing import Final

from quire.errors import InvalidArgument
from quire.limits import MAX_LEDGER_KEY_BYTES, MAX_XID_BYTES

_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")


def check_name(name: object, what: str) -> str:
    """The name itself, or `InvalidArgument`."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise InvalidArgument(
            f"{what} name {name!r:.100}: use 1 to 200 of A-Z a-z 0-9 . _ - and do not begin with "
            "a dot"
        )
    return name


def check_key(key: object) -> str:
    """A ledger key itself, or `InvalidArgument`."""
    if isinstance(key, str):
        try:
            size = len(key.encode())
        except UnicodeEncodeError:
            size = 0  # lone surrogates, which UTF-8 cannot hold
        if 0 < size <= MAX_LEDGER_KEY_BYTES:
            return key
    raise InvalidArgument(
        f"ledger key {key!r:.100}: give a string of 1 to {MAX_LEDGER_KEY_BYTES} bytes in UTF-8"
    )


def check_xid(xid: object) -> str:
    """A prepared transaction's name itself, or `InvalidArgument`."""
    if (
        isinstance(xid, str)
        and xid
        and xid.isprintable()  # so it has no lone surrogates either
        and len(xid.encode()) <= MAX_XID_BYTES
    ):
        return xid
    raise InvalidArgument(
        f"xid {xid!r:.100}: give a string of printable characters, 1 to {MAX_XID_BYTES} bytes in "
        "UTF-8"
    )


def split_source(source: object) -> tuple[str, str | None]:
    """("queue", None) or ("queue", "subscription")."""
    if not isinstance(source, str):
        raise InvalidArgument(f'source {source!r:.100}: give "queue" or "queue/subscription"')
    queue, slash, subscription = source.partition("/")
    if not slash:
        return check_name(queue, "queue"), None
    return check_name(queue, "queue"), check_name(subscription, "subscription")


def check_limit(limit: object) -> None:
    """Of messages to take. Raises InvalidArgument."""
    if type(limit) is not int or limit < 1:
        raise InvalidArgument(f"max_messages {limit!r}: give an int of 1 or more")


def check_timeout(timeout: float) -> float:
    """In seconds, as a wait can take them. Raises InvalidArgument."""
    if type(timeout) not in (int, float) or not timeout >= 0:
        raise InvalidArgument(f"timeout {timeout!r}: give seconds from 0 on")
    return min(timeout, threading.TIMEOUT_MAX)
