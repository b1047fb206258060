"""The entrance of a server: a listening socket, and for a store's own one its address.

EN1. The socket and the address of a store are at their paths while its owner serves it. Should
    somebody remove or replace them (a cleaner of old files), the owner sees it at its next look
    (`StoreServer.look`), twice a second, and makes anew what is gone. Who has joined needs the
    socket for each further connection, and waits for it (CN6).
EN2. A server that ends removes only what is its own.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress

from quire.env import Env
from quire.errors import RemoteError
from quire.remote.wire.address import (
    Address,
    TcpPlace,
    choose_socket_path,
    place_of,
    read_address,
    remove_address,
    remove_socket,
    run_directory,
    tcp_url,
    unix_url,
    write_address,
)
from quire.remote.wire.sockets import listen


class Entrance:
    """The entrance of one server, which sees to it that one thread at a time uses it."""

    def __init__(self, env: Env, path: str, epoch: str, url: str | None) -> None:
        """Prepare to listen at the store's own socket, or at `url`. Raises InvalidArgument."""
        self._env = env
        self._path = path
        self._epoch = epoch
        self._place = None if url is None else place_of(url)
        self._socket_path = ""  # of a Unix socket, once it listens
        self._key: tuple[int, ...] | None = None  # the file's, and nobody else's while it is open
        self.url: str | None = None  # once it listens

    @property
    def is_open(self) -> bool:
        """True if clients reach the socket (EN1)."""
        return self.url is not None and _key_of(self._socket_path) == self._key

    def open(self) -> socket.socket:
        """Listen. Raises RemoteError, and what the disk raises."""
        try:
            place = self._place or choose_socket_path(self._env, self._path)
            listener = listen(place)
        except OSError as error:
            where = self._place or run_directory(self._path)
            raise RemoteError(
                f"cannot listen at {where}: {error}; if something else is there, remove it"
            ) from None
        listener.setblocking(False)
        if isinstance(place, TcpPlace):
            self.url = tcp_url(place.host, listener.getsockname()[1])
        else:
            os.chmod(place, 0o600)
            self.url, self._socket_path, self._key = unix_url(place), place, _key_of(place)
        return listener

    @property
    def is_announced(self) -> bool:
        """True if the address file has the URL (EN1)."""
        if not self._socket_path:
            return True
        address = read_address(self._env, self._path)
        return address is not None and address.epoch == self._epoch

    def announce(self) -> None:
        """Write the address file."""
        address = Address(str(self.url), self._epoch, os.getpid())
        write_address(self._env, self._path, address)

    def withdraw(self) -> None:
        """Remove the address file: nobody is let in any more (EN2)."""
        if self._socket_path and self.is_announced:
            remove_address(self._env, self._path)

    def close(self) -> None:
        """Nobody listens any more (EN2)."""
        if self._socket_path and self.is_open:
            remove_socket(self._env, self._socket_path)


def _key_of(path: str) -> tuple[int, ...] | None:
    with suppress(OSError):
        status = os.lstat(path)
        return status.st_dev, status.st_ino, status.st_mode
    return None
