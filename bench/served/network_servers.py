"""Servers at ports of this machine: Quire with TLS and without, Redis, and NATS with JetStream.

Each syncs what it stores before it answers. `address` is what its client in
`bench.served.served_clients` connects to. Raises FileNotFoundError where one is not installed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from bench.rivals.brokers import PortServer, free_port
from bench.served.served_rivals import QuireServer, RedisServer

__all__ = [
    "JetStreamServer",
    "QuireSocketServer",
    "QuireTcpServer",
    "QuireTlsServer",
    "RedisTcpServer",
]


class QuireSocketServer(QuireServer):
    """`quire serve`, for clients of its Unix socket that are to be no owners."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.path = self.address
        self.address = json.loads((Path(self.path) / "run" / "address").read_text())["url"]


class QuireTcpServer(PortServer):
    """`quire serve --listen --insecure`."""

    name = "Quire TCP"

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.port = free_port()
        place = f"localhost:{self.port}"
        self.address = f"quire://{place}"
        command = [sys.executable, "-m", "quire", "serve", str(folder / "store"), "--listen", place]
        super().__init__([*command, *self._security(folder)], self.port)

    def _security(self, folder: Path) -> list[str]:
        return ["--insecure"]


class QuireTlsServer(QuireTcpServer):
    """`quire serve --listen` over TLS, for clients with a certificate."""

    name = "Quire TLS"

    def _security(self, folder: Path) -> list[str]:
        from tests.kit.certificates import Authority

        authority = Authority(folder / "certificates")
        server = authority.certificate("server")
        client = authority.certificate("client", hosts="DNS:client")
        self.address = "\n".join([self.address, *map(str, (client.ca, client.cert, client.key))])
        files = ["--tls-cert", server.cert, "--tls-key", server.key, "--client-ca", server.ca]
        return list(map(str, files))


class RedisTcpServer(RedisServer):
    """redis-server with appendonly yes, appendfsync always, at a port."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        super().__init__(folder, port)
        self.address = str(port)


class JetStreamServer(PortServer):
    """nats-server with JetStream that syncs each message (`sync_interval: always`)."""

    name = "NATS"

    def __init__(self, folder: Path) -> None:
        program = shutil.which("nats-server")
        if program is None:
            raise FileNotFoundError("nats-server is not installed")
        folder.mkdir()
        port = free_port()
        self.address = str(port)
        settings = folder / "nats.conf"
        settings.write_text(
            f'listen: "127.0.0.1:{port}"\nlog_file: "{folder}/log"\n'
            f'jetstream {{ store_dir: "{folder}/kept", sync_interval: always }}\n'
        )
        tried = subprocess.run([program, "-c", settings, "-t"], capture_output=True, check=False)
        if tried.returncode:
            raise FileNotFoundError("nats-server before 2.10 syncs no message before it answers")
        super().__init__([program, "-c", str(settings)], port)
