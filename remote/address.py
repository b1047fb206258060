"""Where a store's owner listens: a socket that only the store's user can reach.

AD1. The socket has mode 0600, in a directory of mode 0700. It is `<store>/run/quire.sock`, or where
    that path is too long for a socket, or has letters that gRPC would read as parts of a URL or not
    at all, `quire.sock` in a directory of its own below TMPDIR.
AD2. `<store>/run/address` names the socket, the owner's process and its epoch. It is replaced
    atomically once the owner listens, and set aside when it stops, with its block, so that the
    next owner can write it on a full disk; after a crash it may be stale.
AD3. Only the holder of the store's lock writes here.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from dataclasses import asdict, dataclass
from typing import Final

from quire.env import Env
from quire.errors import InvalidArgument, StoreFailed

RUN_DIRECTORY: Final = "run"
SOCKET_NAME: Final = "quire.sock"
ADDRESS_NAME: Final = "address"
MAX_SOCKET_PATH_BYTES: Final = 107  # sun_path has 108 bytes and ends with a zero
ADDRESS_VERSION: Final = 1
_ASIDE: Final = ADDRESS_NAME + ".new"
_SHORT_PREFIX: Final = "quire-"
_PLAIN_PATH: Final = re.compile(r"[A-Za-z0-9/._+=,@-]+")


@dataclass(frozen=True, slots=True)
class Address:
    """How to reach the owner of a store."""

    url: str
    epoch: str
    process_id: int
    version: int = ADDRESS_VERSION


def run_directory(path: str) -> str:
    """The directory for the socket of the store at `path`."""
    return os.path.join(os.path.abspath(path), RUN_DIRECTORY)


def make_run_directory(env: Env, path: str) -> str:
    """The same, made if need be, with mode 0700 (AD1)."""
    directory = run_directory(path)
    env.make_directory(directory)
    _make_private(directory)
    return directory


def choose_socket_path(env: Env, path: str) -> str:
    """A path to bind to, whose directory exists and is private; an old socket there is removed."""
    socket_path = os.path.join(make_run_directory(env, path), SOCKET_NAME)
    old = read_address(env, path)
    if old is not None:
        remove_socket(env, socket_path_of(old.url))
    remove_socket(env, socket_path)
    if _can_be_bound(socket_path):
        return socket_path
    for parent in (os.environ.get("TMPDIR", "/tmp"), "/tmp"):
        short = os.path.join(parent, f"{_SHORT_PREFIX}{env.random_u64():016x}")
        socket_path = os.path.join(short, SOCKET_NAME)
        if _can_be_bound(socket_path):
            env.make_directory(short)
            _make_private(short)
            return socket_path
    raise InvalidArgument(
        f"no directory with a short and plain enough path for the socket of {path}"
    )


def _can_be_bound(socket_path: str) -> bool:
    is_short = len(os.fsencode(socket_path)) <= MAX_SOCKET_PATH_BYTES
    return is_short and _PLAIN_PATH.fullmatch(socket_path) is not None


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
    """What the address file says; None if there is none, or none that can be read."""
    try:
        file = env.open_file(os.path.join(run_directory(path), ADDRESS_NAME), read_only=True)
    except OSError:
        return None
    try:
        values = json.loads(file.read(0, 1 << 16))
        if values["version"] != ADDRESS_VERSION:
            return None
        return Address(str(values["url"]), str(values["epoch"]), int(values["process_id"]))
    except (ValueError, KeyError, TypeError):
        return None
    finally:
        file.close()


def remove_address(env: Env, path: str) -> None:
    """Nobody listens any more."""
    name = os.path.join(run_directory(path), ADDRESS_NAME)
    if env.exists(name):
        env.rename(name, os.path.join(run_directory(path), _ASIDE))


def socket_path_of(url: str) -> str | None:
    """The path in a grpc+unix URL; None for other URLs."""
    scheme, _, rest = url.partition("://")
    return rest if scheme == "grpc+unix" and rest.startswith("/") else None


def remove_socket(env: Env, socket_path: str | None) -> None:
    """Remove a socket, and its directory if that was made for it alone."""
    if socket_path is None or os.path.basename(socket_path) != SOCKET_NAME:
        return
    directory = os.path.dirname(socket_path)
    with contextlib.suppress(OSError):  # the server removes it too
        if stat.S_ISSOCK(os.lstat(socket_path).st_mode):
            env.remove(socket_path)
    if os.path.basename(directory).startswith(_SHORT_PREFIX):
        with contextlib.suppress(OSError):
            env.remove(directory)


def _make_private(directory: str) -> None:
    status = os.stat(directory)
    if status.st_uid != os.geteuid():
        raise StoreFailed(
            f"{directory} belongs to user {status.st_uid}: open the store as its own user"
        )
    if stat.S_IMODE(status.st_mode) != 0o700:
        os.chmod(directory, 0o700)
