"""Processes that share a store as containers do: with process ids and mounts of their own.

The namespaces are made by `unshare`, as root. Where that is not allowed the tests are skipped.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import quire
from tests.frameworks.recipe_files import environment
from tests.kit.waiting import SECONDS

NAMESPACES = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
NO_NAMESPACES = bool(
    subprocess.run([*NAMESPACES, "true"], capture_output=True, check=False).returncode
)
pytestmark = pytest.mark.skipif(NO_NAMESPACES, reason="makes namespaces, which root may")

PROGRAM = """
import os, sys, quire
with quire.open(sys.argv[1], segment_bytes=4 << 20) as store:
    store.create_queue("orders", exist_ok=True)
    print(os.getpid(), store.role, store.path, flush=True)
    for line in sys.stdin:
        print(repr(eval(line)), flush=True)
print("closed", flush=True)
"""


class Container:
    """A process that has the store at a path open, behind mounts that a shell makes."""

    def __init__(self, folder: Path, mounts: str, path: str) -> None:
        script = f'set -e; {mounts}; exec "$@"'
        self.process = subprocess.Popen(
            [*NAMESPACES, "sh", "-c", script, "sh", sys.executable, "-c", PROGRAM, path],
            cwd=folder, env=environment(folder),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.first = self.line()

    def line(self) -> str:
        """The next one that it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, expression: str) -> str:
        """What the expression gives there."""
        assert self.process.stdin is not None
        self.process.stdin.write(expression + "\n")
        self.process.stdin.flush()
        return self.line()

    def kill(self) -> None:
        """All of its processes."""
        self.process.kill()
        self.process.wait(SECONDS)

    def end(self) -> None:
        """Let it close the store."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.line() == "closed"
        assert self.process.wait(SECONDS) == 0


@contextmanager
def container(folder: Path, mounts: str, path: str) -> Iterator[Container]:
    """One for the length of a block."""
    made = Container(folder, mounts, path)
    try:
        yield made
    finally:
        made.kill()
        for file in (made.process.stdin, made.process.stdout):
            if file is not None:
                file.close()


@pytest.mark.long
def test_two_containers_and_one_volume(tmp_path: Path) -> None:
    """Mounted at two places: one owns the store, the other has joined, and takes over.

    Both are process 1. What the first one has acknowledged before it was killed is there.
    """
    for name in ("volume", "queues", "data"):
        (tmp_path / name).mkdir()
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(
                container(tmp_path, f"mount --bind volume {place}", f"{place}/shop.quire")
            )
            for place in ("queues", "data")
        )
        assert first.first == f"1 owner {tmp_path}/queues/shop.quire"
        assert second.first == f"1 joined {tmp_path}/data/shop.quire"
        assert first.ask('store.put("orders", b"apples")') == "1"
        assert second.ask('store.put("orders", b"pears")') == "2"
        first.kill()
        assert second.ask('store.get_many("orders").payloads()') == "[b'apples', b'pears']"
        assert second.ask("store.role, store.path") == (f"('owner', '{tmp_path}/data/shop.quire')")
        with container(tmp_path, "mount --bind volume queues", "queues/shop.quire") as third:
            assert third.first == f"1 joined {tmp_path}/queues/shop.quire"
            assert third.ask('store.put("orders", b"plums")') == "3"
            second.end()
            assert third.ask('store.get("orders").payload') == "b'plums'"
            third.end()


TWICE = """
import sys, quire
for opening in range(2):
    with quire.open(sys.argv[1], segment_bytes=4 << 20) as store:
        store.create_queue("orders", exist_ok=True)
        store.put("orders", b"pears")
        assert store.admin.verify().findings == []
        print(store.browse("orders").payloads())
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("mount", "before"),
    [
        ("-t overlay overlay -o lowerdir=image,upperdir=upper,workdir=work", ["apples"]),
        ("-t tmpfs tmpfs", []),
    ],
    ids=["overlay", "tmpfs"],
)
def test_a_container_that_has_the_store_to_itself(
    tmp_path: Path, mount: str, before: list[str]
) -> None:
    """In a layer over the one that its image has, and in memory: it opens it, and opens it again.

    What is in the image stays as it is.
    """
    for name in ("image", "upper", "work", "merged"):
        (tmp_path / name).mkdir()
    with quire.open(str(tmp_path / "image" / "shop.quire"), segment_bytes=4 << 20) as store:
        store.create_queue("orders")
        store.put("orders", b"apples")
    script = f'set -e; mount {mount} merged; exec "$@"'
    done = subprocess.run(
        [*NAMESPACES, "sh", "-c", script, "sh", sys.executable, "-c", TWICE, "merged/shop.quire"],
        cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "mount:" in done.stderr and "overlay" in mount:
        pytest.skip(f"an overlay cannot be mounted here: {done.stderr}")
    assert (done.returncode, done.stderr) == (0, "")
    payloads = [text.encode() for text in (*before, "pears")]
    assert done.stdout == f"{payloads}\n{[*payloads, b'pears']}\n"
    with quire.open(str(tmp_path / "image" / "shop.quire")) as store:
        assert store.browse("orders").payloads() == [b"apples"]
