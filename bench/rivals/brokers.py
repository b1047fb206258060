"""Brokers beside Quire: NATS and RabbitMQ, each a process that only this machine can reach.

`address` is what a client connects to. Raises FileNotFoundError where one is not installed.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

__all__ = ["NatsServer", "PortServer", "RabbitServer"]

START_SECONDS = 60.0
RABBIT = "/usr/lib/rabbitmq/bin/rabbitmq-server"  # the wrapper in /usr/sbin changes the user


class PortServer:
    """A process that listens at a port."""

    def __init__(self, command: Sequence[str], port: int) -> None:
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_for_port(port, self._process)

    @property
    def process_ids(self) -> list[int]:
        """The processes that work for its clients."""
        return [self._process.pid]

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()


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


class RabbitServer:
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
        self._names = subprocess.Popen(
            [epmd, "-port", str(names)], env=environment, stderr=subprocess.DEVNULL
        )
        wait_for_port(names, self._names)
        self._process = subprocess.Popen([RABBIT], env=environment, stdout=subprocess.DEVNULL)
        try:
            wait_for_port(port, self._process)
        except BaseException:
            self.stop()
            raise

    @property
    def process_ids(self) -> list[int]:
        """The processes that work for its clients."""
        return [self._process.pid]

    def stop(self) -> None:
        for process in (self._process, self._names):
            process.terminate()
            process.wait()


def free_port() -> int:
    """Return a port that nobody has just now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until somebody listens there. Raises RuntimeError."""
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{process.args!r} did not start") from None
            time.sleep(0.02)
        else:
            return
