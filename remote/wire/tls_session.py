"""TLS 1.3 without a socket: bytes of the other side in, bytes for it out.

TL1. No session of an older version than TLS 1.3 begins; none is resumed, so nothing comes to a
    client that has requested nothing.
TL2. A refused certificate is CertificateRefused, whichever side refuses it, with words that say
    what to do. Anything else that is no TLS is an OSError (`ssl.SSLError`), as a lost connection.
TL3. What waits to be sent is bounded: who has this side answer, and reads nothing, is cut off.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from typing import Any, Final

from quire.arguments import Bytes
from quire.errors import CertificateRefused, InvalidArgument
from quire.remote.limits import TLS_UNSENT_BYTES
from quire.tls import Tls

_OTHER_NAMES: Final = (62, 64)  # of X509_V_ERR: for a host, for an address
_EXPIRED: Final = (10,)
_NOT_YET: Final = (9,)
_UNKNOWN_SIGNER: Final = (2, 18, 19, 20, 21)
_REFUSED: Final = ("UNKNOWN_CA", "BAD_CERTIFICATE", "CERTIFICATE_", "UNSUPPORTED_CERTIFICATE")
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG")


def client_context(tls: Tls) -> ssl.SSLContext:
    """Return the context for a client with these files. Raises InvalidArgument."""
    context = _new_context(ssl.PROTOCOL_TLS_CLIENT)
    if tls.ca is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    _load(context, tls)
    return context


def server_context(tls: Tls) -> ssl.SSLContext:
    """Return the context for a server, which demands certificates of `tls.ca`, if it is there.

    Raises InvalidArgument.
    """
    if tls.cert is None:
        raise InvalidArgument("a server over TLS has a certificate and its key: give both files")
    context = _new_context(ssl.PROTOCOL_TLS_SERVER)
    context.num_tickets = 0  # (TL1)
    if tls.ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
    _load(context, tls)
    return context


def _new_context(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3  # (TL1)
    return context


def _load(context: ssl.SSLContext, tls: Tls) -> None:
    if tls.ca is not None:
        _load_file(tls.ca, lambda: context.load_verify_locations(tls.ca))
    if tls.cert is not None and tls.key is not None:
        cert, key = tls.cert, tls.key
        for path in (cert, key):  # OpenSSL does not say which it cannot read
            _load_file(path, lambda path=path: open(path, "rb").close())  # type: ignore[misc]
        _load_file(cert, lambda: context.load_cert_chain(cert, key, _no_password))


def _load_file(path: str | os.PathLike[str], load: Callable[[], object]) -> None:
    try:
        load()
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise InvalidArgument(
                f"{os.fspath(path)}: the private key is that of another certificate: give its own"
            ) from None
        raise InvalidArgument(
            f"{os.fspath(path)}, or the key that goes with it, cannot be used: {_reason(error)};"
            " give files in PEM"
        ) from None
    except OSError as error:
        raise InvalidArgument(
            f"{os.fspath(path)} cannot be read ({error.strerror}): give the path of a PEM file that"
            " this process may read"
        ) from None


def _no_password() -> str:
    """OpenSSL would read one from the terminal."""
    raise InvalidArgument(
        "the private key is encrypted: give a file without a password that only its user may read"
    )


def server_session(context: ssl.SSLContext, tls: Tls) -> TlsSession:
    """Return a session of a server."""
    return TlsSession(context, tls)


def client_session(tls: Tls, host: str) -> TlsSession:
    """Return a session of a client with a host. Raises InvalidArgument."""
    return TlsSession(client_context(tls), tls, host)


class TlsSession:
    """One side of a session. Used by one thread at a time."""

    __slots__ = ("_incoming", "_name", "_object", "_outgoing", "_tls")

    def __init__(self, context: ssl.SSLContext, tls: Tls, host: str | None = None) -> None:
        """`host`: the server that the client connects to; a server's session has none."""
        self._tls = tls
        self._name = tls.server_name or host
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        try:
            self._object = context.wrap_bio(
                self._incoming, self._outgoing, host is None, self._name if host else None
            )
        except ValueError:
            raise InvalidArgument(
                f"{self._name!r:.200} is no name that a certificate may have: give another host, or"
                " Tls(server_name=...)"
            ) from None

    def feed(self, data: Bytes) -> None:
        """Take bytes of the other side."""
        self._incoming.write(data)

    def shake_hands(self) -> bool:
        """Go on with the handshake; False: there must be more of the other side's bytes.

        What is to be sent (`outgoing`) is so also when this raises: CertificateRefused, OSError.
        """
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise self._error(error) from None
        return True

    def read_into(self, buffer: Bytes) -> int | None:
        """Read into the buffer; 0 at the end, None: there must be more of the other side's bytes.

        Raises CertificateRefused, OSError.
        """
        if self._outgoing.pending > TLS_UNSENT_BYTES:  # (TL3)
            raise ssl.SSLError("the other side demands answers and reads none")
        try:
            count: int = self._object.read(len(buffer), buffer)  # type: ignore[assignment]
        except ssl.SSLWantReadError:
            return None
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return 0
        except ssl.SSLError as error:
            raise self._error(error) from None
        return count

    @property
    def has_unread(self) -> bool:
        """True if `read_into` may give something without more of the other side's bytes."""
        return self._object.pending() > 0 or self._incoming.pending > 0

    def peer_names(self) -> list[str]:
        """Return the names in the other side's certificate, where one is demanded: "DNS:a"."""
        found = self._object.getpeercert() or {}
        names: Any = found.get("subjectAltName", ())
        subject: Any = found.get("subject", ())
        common = [value for part in subject for name, value in part if name == "commonName"]
        return [*(f"{kind}:{value}" for kind, value in names), *(f"CN={name}" for name in common)]

    def encrypt(self, data: Bytes) -> None:
        """Add records with the data to what is to be sent."""
        self._object.write(data)

    def outgoing(self) -> bytes:
        """Take what is to be sent."""
        return self._outgoing.read()

    # Words

    def _error(self, error: ssl.SSLError) -> Exception:
        """Return the error to raise (TL2)."""
        is_client = not self._object.server_side
        if isinstance(error, ssl.SSLCertVerificationError):
            return CertificateRefused(
                self._own_refusal(error) if is_client else self._own_refusal_of_client(error)
            )
        reason = error.reason or ""
        if not is_client and "PEER_DID_NOT_RETURN" in reason:
            return CertificateRefused("the client has no certificate, which it must have here")
        if is_client and "ALERT" in reason:
            if "CERTIFICATE_REQUIRED" in reason:
                return CertificateRefused(
                    "the server lets in clients with a certificate only: give Tls(cert=...,"
                    " key=...)"
                )
            if any(word in reason for word in _REFUSED):
                return CertificateRefused(
                    f"the server refuses the certificate {_file(self._tls.cert)}"
                    f" ({_reason(error)}): give one that is valid, and signed by an authority of"
                    " the server's --client-ca"
                )
        if is_client and any(word in reason for word in _NO_TLS):
            return ssl.SSLError("what answers there speaks no TLS: give the port of quire serve")
        return ssl.SSLError(f"no TLS 1.3 with the other side: {_reason(error)}")

    def _own_refusal(self, error: ssl.SSLCertVerificationError) -> str:
        if error.verify_code in _OTHER_NAMES:
            return (
                f"the server's certificate is for another name than {self._name}: give the URL a"
                " host that is in it, or Tls(server_name=...), or the server a certificate for this"
                " one (subjectAltName)"
            )
        if error.verify_code in _EXPIRED:
            return "the server's certificate, or its authority's, has expired: give it a new one"
        if error.verify_code in _NOT_YET:
            return "the server's certificate is not valid yet: look at the clocks of both machines"
        if error.verify_code in _UNKNOWN_SIGNER:
            signers = "those that this machine trusts" if self._tls.ca is None else self._tls.ca
            return (
                f"the server's certificate is signed by none of the authorities of {signers}: give"
                " Tls(ca=...) the file of the one that has signed it"
            )
        return f"the server's certificate cannot be trusted: {error.verify_message}"

    def _own_refusal_of_client(self, error: ssl.SSLCertVerificationError) -> str:
        return (
            f"the client's certificate cannot be trusted ({error.verify_message}): one that"
            f" {_file(self._tls.ca)} has signed is let in"
        )


def _file(path: str | os.PathLike[str] | None) -> str:
    return "of this side" if path is None else os.fspath(path)


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).lower().replace("_", " ")
