"""The machine that the figures were measured on."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

__all__ = ["commit", "describe", "file_system"]

PACKAGES = ("pyarrow", "numpy", "pyspark", "lmdb", "rocksdict")
ROOT = Path(__file__).resolve().parents[1]


def describe(folder: Path) -> dict[str, str]:
    """Machine, versions and commit, as words."""
    return {
        "processor": f"{os.cpu_count()} x {_processor()}",
        "memory": f"{_memory_bytes() / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "file system": file_system(folder),
        "python": platform.python_version(),
        "packages": ", ".join(f"{name} {_version(name)}" for name in PACKAGES),
        "commit": commit(ROOT),
        "load before": f"{os.getloadavg()[0]:.1f} running processes",
    }


def file_system(folder: Path) -> str:
    """The type of the file system that holds a folder."""
    best, kind = "", "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, place, found, *_ = line.split()
        inside = Path(place) in (folder.resolve(), *folder.resolve().parents)
        if inside and len(place) >= len(best):
            best, kind = place, found
    return kind


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "missing"


def commit(checkout: Path) -> str:
    """The commit of a checkout, and whether it has been changed since."""
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            cwd=checkout,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "not in a checkout"
    return found.stdout.strip()
