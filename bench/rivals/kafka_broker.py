"""A Kafka broker of one node on this machine, and Spark's connector for it, from Maven Central.

Nothing of it is part of the project: Maven puts the jars into its own repository and copies them to
the benchmark's folder, where the broker keeps its log, too. The broker is as it comes: it answers
when a message is in the page cache, and syncs nothing.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
import uuid
from pathlib import Path

from bench.rivals.brokers import free_port

__all__ = ["GATHERING", "Broker", "with_kafka"]

START_SECONDS = 60.0
FETCH_SECONDS = 300.0
ALONE = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)

SERVER = [("org.apache.kafka", "kafka_2.13", "4.1.1")]
# Of the rest that the connector needs, PySpark has its own.
CONNECTOR = [
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
]
# Producers gather more than they do by default.
GATHERING = {"kafka.linger.ms": "20", "kafka.batch.size": "1048576"}


def with_kafka(folder: Path) -> tuple[Broker | None, dict[str, str], str]:
    """A running broker, and what a Spark session needs for the connector, and nothing to note.

    Where they are not to be had: no broker, nothing, and the reason.
    """
    try:
        broker = Broker(folder / "broker")
        found = jars(folder / "connector", CONNECTOR, alone=True)
    except FileNotFoundError as error:
        return None, {}, f"Without Kafka: {error}."
    return broker, {"spark.jars": ",".join(map(str, found))}, ""


def jars(folder: Path, artifacts: list[tuple[str, str, str]], *, alone: bool) -> list[Path]:
    """The jars, `alone` or with what they need. Raises FileNotFoundError with the reason."""
    program = shutil.which("mvn")
    if program is None:
        raise FileNotFoundError("mvn is not installed")
    folder.mkdir()
    without = ALONE if alone else ""
    needed = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version>{without}</dependency>"
        for group, name, version in artifacts
    )
    project = folder / "pom.xml"
    project.write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>bench</groupId><artifactId>bench</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{needed}</dependencies></project>"
    )
    command = [program, "-q", "-B", "-f", str(project), "dependency:copy-dependencies"]
    command += [f"-DoutputDirectory={folder}", "-DincludeScope=runtime"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise FileNotFoundError(f"Maven took more than {FETCH_SECONDS:g} seconds") from None
    found = sorted(folder.glob("*.jar"))
    if done.returncode or not found:
        reason = next((line for line in done.stdout.splitlines() if "ERROR" in line), "no jars")
        raise FileNotFoundError(f"Maven has no {artifacts[0][1]}: {reason[:200]}")
    return found


class Broker:
    """A broker with a controller in one process; `address` is for its clients."""

    def __init__(self, folder: Path) -> None:
        """Start it.

        Raises FileNotFoundError where it is not to be had, RuntimeError if it does not start.
        """
        program = shutil.which("java")
        if program is None:
            raise FileNotFoundError("java is not installed")
        self._class_path = ":".join(map(str, jars(folder, SERVER, alone=False)))
        self._program, self._folder = program, folder
        port, controller = free_port(), free_port()
        self.address = f"127.0.0.1:{port}"
        settings = {
            "process.roles": "broker,controller", "node.id": "1",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "log.dirs": str(folder / "log"), "num.partitions": "1",
            "auto.create.topics.enable": "true", "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        }  # fmt: skip
        properties = folder / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        new = ["format", "--standalone", "-t", _cluster_id(), "-c", str(properties)]
        done = subprocess.run(
            self._java("kafka.tools.StorageTool", *new), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"the broker's log could not be made: {done.stdout}{done.stderr}")
        with (folder / "broker.log").open("wb") as log:
            self._process = subprocess.Popen(
                self._java("kafka.Kafka", str(properties)), stdout=log, stderr=log
            )
        self._wait_until_it_listens(port)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def _java(self, name: str, *arguments: str) -> list[str]:
        return [self._program, "-Xmx1g", "-cp", self._class_path, name, *arguments]

    def _wait_until_it_listens(self, port: int) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
                return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self.stop()
                    log = (self._folder / "broker.log").read_text()
                    raise RuntimeError(f"the broker did not start: {log[-2_000:]}") from None
                time.sleep(0.1)


def _cluster_id() -> str:
    import base64

    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
