"""The address of a store's owner: a socket that only the store's user can reach, or a port.

AD1. The socket is `<store>/run/quire.sock`, with mode 0600, in a directory of mode 0700.
AD2. `<store>/run/address` names the socket, the owner's process and its epoch. It is replaced
    atomically once the owner listens, and set aside when it stops, with its block, so that the
    next owner can write it on a full disk; after a crash it may be stale.
- The owner may have the store at another path than who reads the address: in two containers, a
    directory is mounted at a place of each one's own. The socket stands beside the address.
- Only the holder of the store's lock writes here, and replaces whatever file it finds.
UR1. As a text an address is `quire+unix:///path/of/socket` or `quire://host:port`. The rest of a
    Unix socket's URL is its path as it is: nothing in it is quoted, any character may be there.
UR2. Without TLS a port is served and joined on this machine only.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import asdict

from quire.env import Env
from quire.errors import InvalidArgument, StoreError, StoreFailed
from quire.remote.limits import MAX_PORT

if TYPE_CHECKING:
    from quire.tls import Tls

RUN_DIRECTORY: Final = "run"
SOCKET_NAME: Final = "quire.sock"
ADDRESS_NAME: Final = "address"
ADDRESS_VERSION: Final = 2
_ASIDE: Final = ADDRESS_NAME + ".new"


class Address(Struct, frozen=True):
    """The address of a store's owner."""

    url: str
    epoch: str
    process_id: int
    version: int = ADDRESS_VERSION


def run_directory(path: str) -> str:
    """The directory for the socket of the store at `path`."""
    return os.path.join(os.path.abspath(path), RUN_DIRECTORY)


def make_run_directory(env: Env, path: str) -> str:
    """The directory for the socket, made if need be, with mode 0700 (AD1)."""
    directory = run_directory(path)
    env.make_directory(directory)
    _make_private(directory)
    return directory


def choose_socket_path(env: Env, path: str) -> str:
    """A path to bind to, whose directory exists and is private; what is there is removed."""
    socket_path = os.path.join(make_run_directory(env, path), SOCKET_NAME)
    remove_socket(env, socket_path)
    return socket_path


def write_address(env: Env, path: str, address: Address) -> None:
    """Tell clients where to find the owner (AD2)."""
    directory = run_directory(path)
    temporary = os.path.join(directory, _ASIDE)
    name = os.path.join(directory, ADDRESS_NAME)
    text = json.dumps(asdict(address)).encode()
    if env.exists(name):
        env.rename(name, temporary)
    file = env.open_file(temporary, create=True)
    try:
        file.write(0, text)
        file.truncate(len(text))
    finally:
        file.close()
    env.rename(temporary, name)


def read_address(env: Env, path: str) -> Address | None:
    """Read the address file; None if there is none, or none that can be read."""
    try:
        file = env.open_file(os.path.join(run_directory(path), ADDRESS_NAME), read_only=True)
    except (OSError, StoreError):
        return None
    try:
        values = json.loads(file.read(0, 1 << 16))
        if values["version"] != ADDRESS_VERSION:
            return None
        url = unix_url(os.path.join(run_directory(path), SOCKET_NAME))
        return Address(url, str(values["epoch"]), int(values["process_id"]))
    except (OSError, ValueError, KeyError, TypeError, StoreError):
        return None
    finally:
        file.close()


def remove_address(env: Env, path: str) -> None:
    """Nobody listens any more."""
    name = os.path.join(run_directory(path), ADDRESS_NAME)
    if env.exists(name):
        env.rename(name, os.path.join(run_directory(path), _ASIDE))


def remove_socket(env: Env, socket_path: str) -> None:
    """Remove a socket, or what has taken its place but a directory that is in use."""
    with contextlib.suppress(FileNotFoundError):
        env.remove(socket_path)


def _make_private(directory: str) -> None:
    status = os.stat(directory)
    if status.st_uid != os.geteuid():
        raise StoreFailed(
            f"{directory} belongs to user {status.st_uid}: open the store as its own user"
        )
    if stat.S_IMODE(status.st_mode) != 0o700:
        os.chmod(directory, 0o700)


UNIX: Final = "quire+unix://"
TCP: Final = "quire://"
_NO_HOST: Final = frozenset(" :/@[],?#")
_IPV6: Final = frozenset("0123456789abcdefABCDEF:.%")
LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")


class TcpPlace(NamedTuple):
    """A port of a machine; without `tls` of this one (UR2)."""

    host: str
    port: int
    tls: Tls | None = None

    @property
    def is_local(self) -> bool:
        """True if only this machine reaches it."""
        return self.host in LOOPBACK

    @property
    def address(self) -> str:
        """The host as the system takes it."""
        return self.host.strip("[]")


Endpoint = str | TcpPlace  # a path, or a port


def unix_url(path: str) -> str:
    """The URL of a Unix socket."""
    return UNIX + path


def tcp_url(host: str, port: int) -> str:
    """The URL of a port; an IPv6 address has its brackets."""
    return f"{TCP}{host}:{port}"


def place_of(url: object, tls: Tls | None = None) -> Endpoint:
    """Return the endpoint that a URL names. Raises InvalidArgument."""
    if isinstance(url, str):
        if url.startswith(UNIX + "/") and tls is None:
            return url.removeprefix(UNIX)
        host, _, port = url.removeprefix(TCP).rpartition(":")
        if url.startswith(TCP) and _is_host(host) and _is_port(port):
            if host in LOOPBACK or tls is not None:
                return TcpPlace(host, int(port), tls)
            raise InvalidArgument(
                f"{url!r:.200} may be another machine, which is reached over TLS only: give"
                " tls=quire.Tls(ca=..., cert=..., key=...), or 127.0.0.1"
            )
    raise InvalidArgument(
        f"{url!r:.200}: give a URL {UNIX}/path/of/socket or {TCP}host:port; a Unix socket goes"
        " without tls"
    )


def urls_of(url: str) -> list[str]:
    """Return the URLs, of a port each, that `quire://host:port,host2:port2` names."""
    return [TCP + place for place in url.removeprefix(TCP).split(",")]


def path_of(url: str) -> str | None:
    """The path in the URL of a Unix socket; None for other URLs."""
    return url.removeprefix(UNIX) if url.startswith(UNIX + "/") else None


def _is_host(text: str) -> bool:
    """Return True for a name, an address, or an IPv6 address in brackets."""
    if text.startswith("[") and text.endswith("]"):
        return bool(text[1:-1]) and set(text[1:-1]) <= _IPV6
    return bool(text) and not set(text) & _NO_HOST and text.isprintable()


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdecimal() and int(text) <= MAX_PORT
