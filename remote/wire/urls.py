"""Where an owner listens, as a text: `quire+unix:///path/of/socket` or `quire://127.0.0.1:port`.

UR1. The rest of a Unix socket's URL is its path as it is: nothing in it is quoted, any character
    may be there.
- TCP is served and joined on this machine only.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from quire.errors import InvalidArgument
from quire.remote.limits import MAX_PORT

UNIX: Final = "quire+unix://"
TCP: Final = "quire://"
LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")


class TcpPlace(NamedTuple):
    """A port of this machine."""

    host: str
    port: int


Endpoint = str | TcpPlace  # a path, or a port


def unix_url(path: str) -> str:
    """The URL of a Unix socket."""
    return UNIX + path


def tcp_url(host: str, port: int) -> str:
    """The URL of a port; an IPv6 address has its brackets."""
    return f"{TCP}{host}:{port}"


def place_of(url: object) -> Endpoint:
    """Return the endpoint that a URL names. Raises InvalidArgument."""
    if isinstance(url, str):
        if url.startswith(UNIX + "/"):
            return url.removeprefix(UNIX)
        host, _, port = url.removeprefix(TCP).rpartition(":")
        if url.startswith(TCP) and host in LOOPBACK and _is_port(port):
            return TcpPlace(host, int(port))
    raise InvalidArgument(
        f"{url!r:.200}: give a URL {UNIX}/path/of/socket or {TCP}127.0.0.1:port; other machines are"
        " not let in"
    )


def path_of(url: str) -> str | None:
    """The path in the URL of a Unix socket; None for other URLs."""
    return url.removeprefix(UNIX) if url.startswith(UNIX + "/") else None


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdecimal() and int(text) <= MAX_PORT
