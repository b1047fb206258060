"""Certificates for connections over TLS, made by the program `openssl` as they are needed."""

from __future__ import annotations

import subprocess
from pathlib import Path

from quire.tls import Tls

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Authority:
    """An authority that signs certificates, and a directory with its files."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self._directory = directory
        directory.mkdir(exist_ok=True)
        self.file = directory / f"{name}.pem"
        self._key = directory / f"{name}.key"
        self._run(
            "req", "-x509", *_KEY, "-keyout", str(self._key), "-out", str(self.file),
            "-subj", f"/CN={name} of the tests", "-days", "2",
        )  # fmt: skip

    def certificate(
        self, name: str, hosts: str = "DNS:localhost,IP:127.0.0.1", days: int = 2
    ) -> Tls:
        """Return the files of a certificate for these hosts, and of this authority."""
        key, request, cert, extensions = (
            self._directory / f"{name}.{end}" for end in ("key", "csr", "pem", "ext")
        )
        self._run(
            "req", "-new", *_KEY, "-keyout", str(key), "-out", str(request), "-subj", f"/CN={name}"
        )
        extensions.write_text(f"basicConstraints=critical,CA:FALSE\nsubjectAltName={hosts}\n")
        self._run(
            "x509", "-req", "-in", str(request), "-CA", str(self.file), "-CAkey", str(self._key),
            "-days", str(days), "-extfile", str(extensions), "-out", str(cert),
        )  # fmt: skip
        return Tls(ca=self.file, cert=cert, key=key)

    @staticmethod
    def _run(*arguments: str) -> None:
        done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
