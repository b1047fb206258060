"""Types that several threads decode to for the first time at once (DT1)."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Made anew in each round, so that each is decoded to for the first time.
PROGRAM = """
import sys, threading
import msgspec
from quire.remote.wire.values import read
sys.setswitchinterval(1e-6)
value = {"inner": {"a": 1, "b": {"x": [1]}}, "more": [{"a": 2, "b": {}}]}
for _ in range(100):
    class Inner(msgspec.Struct):
        a: int
        b: dict[str, list[int]]
        c: tuple[int, ...] = ()
        d: str | None = None
    class Outer(msgspec.Struct):
        inner: Inner
        more: list[Inner]
    together = threading.Barrier(4)
    def decode():
        together.wait()
        for kind, sent in ((Outer, value), (list[Inner], value["more"])):
            READ
    threads = [threading.Thread(target=decode) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def status(read: str) -> int:
    """The exit status of the program; below 0 a signal has ended it."""
    program = PROGRAM.replace("READ", read)
    return subprocess.run([sys.executable, "-c", program], check=False, timeout=120).returncode


def test_threads_decode_to_a_type_for_the_first_time_at_once() -> None:
    """None reads what the library does not know yet."""
    assert status("read(kind, sent)") == 0


def test_the_library_alone_ends_the_process() -> None:
    """The canary: what the lock is for. It takes a few rounds at most, by chance."""
    if all(status("msgspec.convert(sent, kind)") == 0 for _ in range(10)):
        pytest.fail("msgspec gathers a type in one step now: quire.calls.decoded_types may go")
