"""A cluster of Spark on this machine whose workers have addresses of their own.

Spark begins no second attempt of a task on the host that has the first. All of 127.0.0.0/8 is this
machine, so that each worker can be a host.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.kit.waiting import SECONDS, eventually
from tests.spark.session import ROOT, SHORT_LIVED, spark_home

MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
UNSHARE = ("unshare", "--mount")
ANY_PORT = ("--port", "0", "--webui-port", "0")
_ADDRESS = re.compile(r"Starting Spark master at (spark://\S+)")


@contextmanager
def cluster(
    directory: Path, workers: int, hidden: Path | None = None, *, from_all: bool = False
) -> Iterator[str]:
    """The address of its master; each worker is a host of one core.

    `hidden`: a directory that the last worker, and what it starts, does not see; or `from_all`.
    """
    log = directory / "cluster.log"
    with ExitStack() as stack:
        stack.enter_context(_daemon(directory, MASTER, "--host", "127.0.0.1", *ANY_PORT))

        def found() -> re.Match[str] | None:
            return _ADDRESS.search(log.read_text())

        eventually(lambda: found() is not None)
        address = found()
        assert address is not None
        for number in range(workers):
            given = ("--host", f"127.0.0.{2 + number}", *ANY_PORT, "--cores", "1", "-m", "1g")
            work = ("--work-dir", f"{directory}/work-{number}")
            blind = hidden if from_all or number == workers - 1 else None
            stack.enter_context(_daemon(directory, WORKER, *given, *work, address[1], hidden=blind))
        yield address[1]


def can_hide() -> bool:
    """Whether this user may have processes that do not see what others do."""
    return subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode == 0


def without(hidden: Path | None) -> list[str]:
    """What runs a command with an empty directory in the place of one that is there."""
    if hidden is None:
        return []
    return [*UNSHARE, "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(hidden)]


@contextmanager
def _daemon(directory: Path, *command: str, hidden: Path | None = None) -> Iterator[None]:
    home = spark_home(directory)
    environment = os.environ | {
        "SPARK_HOME": str(home),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    with (directory / "cluster.log").open("ab") as log:
        process = subprocess.Popen(
            [*without(hidden), str(home / "bin" / "spark-class"), *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(SECONDS)
