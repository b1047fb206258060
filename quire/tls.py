"""The certificates of one side of a connection over TLS, as files.

The value is of no library: `ssl` is loaded by who uses such a connection (`quire.remote.wire`).
"""

from __future__ import annotations

import os

from msgspec import Struct

from quire.errors import InvalidArgument

_Path = str | os.PathLike[str]


class Tls(Struct, frozen=True, kw_only=True):
    """The files of certificates for `quire.open("quire://host:port", tls=...)`, in PEM.

    `ca`: the authorities, of which one must have signed the server's certificate; without it those
    that the machine trusts. `cert` and `key`: the certificate, with those between it and the
    authority after it, and the private key by which the server knows this client. `server_name`:
    the name in the server's certificate where that is not the host of the URL.
    """

    ca: _Path | None = None
    cert: _Path | None = None
    key: _Path | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        """Raises InvalidArgument for what is no path, and for a certificate without its key."""
        for name in ("ca", "cert", "key"):
            value = getattr(self, name)
            if value is not None and not (
                isinstance(value, str | os.PathLike) and os.fspath(value)
            ):
                raise InvalidArgument(f"{name} is {value!r:.200}: give the path of a PEM file")
        if (self.cert is None) != (self.key is None):
            there, missing = ("cert", "key") if self.key is None else ("key", "cert")
            raise InvalidArgument(
                f"a Tls with {there} and without {missing}: give both, or neither"
            )
        if self.server_name is not None and not (
            isinstance(self.server_name, str) and self.server_name
        ):
            raise InvalidArgument(
                f"server_name is {self.server_name!r:.200}: give a name in the server's certificate"
            )
