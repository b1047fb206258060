"""Small real file systems for tests: mounted where root can, else the test is skipped."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(kind: str, size_bytes: int) -> Iterator[Path]:
    """A directory on a file system of its own: "tmpfs", or "ext4" on a loop device.

    Not below pytest's own folders: another session may remove these at any time.
    """
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    folder = Path(tempfile.mkdtemp(prefix="quire-disk-"))
    place = folder / "disk"
    place.mkdir()
    try:
        _mount(kind, folder, place, size_bytes)
        try:
            yield place
        finally:
            _run(["umount", "-l", str(place)])
    finally:
        shutil.rmtree(folder)


def _mount(kind: str, folder: Path, place: Path, size_bytes: int) -> None:
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "none", str(place)]
    if kind == "ext4":
        maker = shutil.which("mkfs.ext4", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
        if maker is None:
            pytest.skip("there is no mkfs.ext4 on this machine")
        image = folder / "image"
        with image.open("wb") as file:
            file.truncate(size_bytes)
        # No blocks kept for root: we are root, and want a full disk to be full.
        _run([maker, "-q", "-F", "-m", "0", "-b", "4096", str(image)])
        command = ["mount", "-o", "loop", str(image), str(place)]
    _run(command)


def fill_rest(place: Path) -> None:
    """Take what is left of the file system."""
    with (place / "others").open("ab", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                pass


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and command[0] == "mount":
        pytest.skip(f"mount is refused here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
