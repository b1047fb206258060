"""Brokers beside Quire: NATS and RabbitMQ, each a process that only this machine can reach.

`address` is what a client connects to. Raises FileNotFoundError where one is not installed.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from bench.rivals.server_process import ServerProcess

__all__ = ["NatsServer", "PortServer", "RabbitServer"]

RABBIT = "/usr/lib/rabbitmq/bin/rabbitmq-server"  # the wrapper in /usr/sbin changes the user


class PortServer(ServerProcess):
    """A process that listens at a port."""

    def __init__(
        self, command: Sequence[str], port: int, environment: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(command, partial(_listens, port), environment, subprocess.DEVNULL)


class NatsServer(PortServer):
    """nats-server, which keeps messages nowhere (no JetStream)."""

    def __init__(self, folder: Path) -> None:
        program = shutil.which("nats-server")
        if program is None:
            raise FileNotFoundError("nats-server is not installed")
        folder.mkdir()
        port = free_port()
        self.address = f"nats://127.0.0.1:{port}"
        command = [
            program,
            "--addr",
            "127.0.0.1",
            "--port",
            str(port),
            "--log",
            str(folder / "log"),
        ]
        super().__init__(command, port)


class RabbitServer(PortServer):
    """RabbitMQ without plugins, with all that it keeps in the folder."""

    def __init__(self, folder: Path) -> None:
        epmd = shutil.which("epmd")
        if epmd is None or not Path(RABBIT).exists():
            raise FileNotFoundError("rabbitmq-server is not installed")
        folder.mkdir()
        port, names, others = free_port(), free_port(), free_port()
        self.address = str(port)
        environment = {
            **os.environ, "HOME": str(folder), "ERL_EPMD_PORT": str(names),
            "ERL_EPMD_ADDRESS": "127.0.0.1", "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_MNESIA_BASE": str(folder / "kept"), "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1", "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(others), "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        }  # fmt: skip
        # Its register of names is ours too: RabbitMQ would leave one behind.
        self._names = PortServer([epmd, "-port", str(names)], names, environment)
        try:
            super().__init__([RABBIT], port, environment)
        except BaseException:
            self._names.stop()
            raise

    def stop(self) -> None:
        super().stop()
        self._names.stop()


def free_port() -> int:
    """Return a port that nobody has just now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0
