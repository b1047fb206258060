"""A PostgreSQL cluster of the tests' own: a new directory, a Unix socket in it, no TCP port.

It runs as this user, or, as PostgreSQL refuses to run as root, as an unprivileged one. Nobody else
can reach it: its directory admits only that user.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import psycopg

USER: Final = "quire"
START_SECONDS: Final = 300.0
UNPRIVILEGED: Final = ("postgres", "nobody")
SETTINGS: Final = {
    "listen_addresses": "",
    "max_prepared_transactions": "64",
    "fsync": "on",
    "shared_buffers": "16MB",
    "autovacuum": "off",
    "log_min_messages": "log",
}


class NotInstalled(Exception):
    """Why there can be no cluster here; the tests that need one are skipped with it."""


class Cluster:
    """A running cluster, from `Cluster()` to `stop()`.

    Its directory is made in `parent`, by default where temporary files go. Where the server runs as
    another user who may not enter there, it is made in the nearest folder above that admits him: a
    test's own folder is pytest's, which closes it to others whenever another run of pytest begins.
    """

    def __init__(self, settings: Mapping[str, str] = SETTINGS, parent: Path | None = None) -> None:
        self._settings = settings
        self._programs = programs()
        self._identity = identity()
        place = Path(tempfile.gettempdir()) if parent is None else parent
        if self._identity:
            place = _admitting(place)
        self.directory = Path(tempfile.mkdtemp(prefix="quire-postgres-", dir=place))
        try:
            if "user" in self._identity:
                os.chown(self.directory, self._identity["user"], self._identity["group"])
            self._run(
                "initdb", "-D", "data", "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "-N"
            )
            self.process = self._start()
        except BaseException:
            shutil.rmtree(self.directory, ignore_errors=True)
            raise

    @property
    def conninfo(self) -> str:
        """For psycopg."""
        return f"host={self.directory} user={USER} dbname=postgres"

    @property
    def url(self) -> str:
        """For SQLAlchemy."""
        return f"postgresql+psycopg://{USER}@/postgres?host={self.directory}"

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        """A new connection; waits while the cluster starts or recovers."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                return psycopg.connect(self.conninfo, **options)
            except psycopg.OperationalError:
                if self.process.poll() is not None:
                    raise RuntimeError(f"PostgreSQL ended: {self.log()[-2000:]}") from None
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def stop(self) -> None:
        """Stop at once, and remove everything."""
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.directory)

    def log(self) -> str:
        """What the server wrote."""
        return (self.directory / "log").read_text(errors="replace")

    def _start(self) -> subprocess.Popen[Any]:
        settings = [
            part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")
        ]
        program, folder = str(self._programs / "postgres"), str(self.directory)
        with (self.directory / "log").open("wb") as log:
            process = subprocess.Popen(
                [program, "-D", "data", "-k", folder, *settings],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **self._options(),
            )
        self.process = process
        try:
            self.connect().close()
        except BaseException:
            process.kill()
            process.wait()
            raise
        return process

    def _run(self, program: str, *arguments: str) -> None:
        result = subprocess.run(
            [self._programs / program, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            **self._options(),
        )
        if result.returncode != 0:
            raise RuntimeError(f"{program} failed: {result.stdout}{result.stderr}")

    def _options(self) -> dict[str, Any]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PG", "LC_"))}
        return {"cwd": self.directory, "env": environment, **self._identity}


def programs() -> Path:
    """Where the server's programs are; Debian keeps them off the PATH."""
    found = shutil.which("initdb")
    if found is not None and shutil.which("postgres") is not None:
        return Path(found).resolve().parent
    versions = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if _is_whole(path)]
    if not versions:
        raise NotInstalled("PostgreSQL is not installed: apt-get install postgresql")
    return max(versions, key=lambda path: float(path.parent.name))


def identity() -> dict[str, Any]:
    """The options of `subprocess` by which the server runs as an unprivileged user."""
    if os.getuid() != 0:
        return {}
    for name in UNPRIVILEGED:
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise NotInstalled(f"PostgreSQL refuses to run as root, and there is no user {UNPRIVILEGED}")


def _admitting(folder: Path) -> Path:
    """The folder, or the nearest one above it that any user can enter."""
    return next(
        above
        for above in (folder, *folder.parents)
        if all(each.stat().st_mode & stat.S_IXOTH for each in (above, *above.parents))
    )


def _is_whole(folder: Path) -> bool:
    return (folder / "initdb").exists() and (folder / "postgres").exists()
