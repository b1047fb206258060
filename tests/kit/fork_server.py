"""A Python process that has imported Quire, and forks: a child of it begins without the imports.

A new interpreter takes most of a second of processor time to import Quire, and hundreds of tests
have two or three children. A forked one is a process of its own as well: it has its own memory, its
own locks, and can be killed. The server has nothing open and one thread, so there is nothing that a
fork could leave half done. `tests/remote/test_forks.py` tests forks; this only saves time.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from functools import cache
from typing import IO

from tests.source_tree import ROOT

STATUS = struct.Struct("<i")  # the process id, and at its end what `waitpid` says
REQUEST_BYTES = 128 << 10

# Ends when nobody can ask any more. A child leaves the loop, and is what the rest says.
SERVER = f"""
import gc, json, os, select, socket, struct, sys, types
import numpy, quire.engine.namespaces, quire.engine.store, quire.opening
import quire.engine.inspection.status, quire.engine.upkeep.redriving
import quire.remote.ownership.succession, quire.remote.ownership.shared_store
import quire.remote.server.store_server

def serve(asked):
    status = struct.Struct({STATUS.format!r})
    told = {{}}
    while True:
        ready, _, _ = select.select([asked, *told], [], [])
        for ended in [each for each in ready if each in told]:
            pid, end = told.pop(ended)
            os.close(ended)
            try:
                os.write(end, status.pack(os.waitpid(pid, 0)[1]))
            except BrokenPipeError:
                pass  # the test does not wait for it
            os.close(end)
        if asked not in ready:
            continue
        request, fds, _, _ = socket.recv_fds(asked, {REQUEST_BYTES}, 3)
        if not request:
            sys.exit()
        pid = os.fork()
        if not pid:
            for each in [*told, *(end for _, end in told.values()), fds[2]]:
                os.close(each)
            asked.close()
            os.dup2(fds[0], 0)
            os.dup2(fds[1], 1)
            os.close(fds[0])
            os.close(fds[1])
            return json.loads(request)
        os.close(fds[0])
        os.close(fds[1])
        os.write(fds[2], status.pack(pid))
        told[os.pidfd_open(pid)] = pid, fds[2]

gc.collect()
gc.freeze()
code, arguments, environment = serve(socket.socket(fileno=int(sys.argv[1])))
os.environ.clear()
os.environ.update(environment)
sys.argv[1:] = arguments
main = sys.modules["__main__"] = types.ModuleType("__main__")
exec(compile(code, "<string>", "exec"), main.__dict__)
"""


@cache
def _server() -> socket.socket:
    """Where the server of this process is asked; it is started once."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(its.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd=ROOT,
            pass_fds=[its.fileno()],
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )

    def end() -> None:
        ours.shutdown(socket.SHUT_RDWR)
        process.wait()

    atexit.register(end)
    return ours


class ForkedProcess:
    """A child of the server that runs `code`; it is used as a `subprocess.Popen` is."""

    def __init__(self, code: str, *arguments: str) -> None:
        request = json.dumps([code, arguments, dict(os.environ)]).encode()
        assert len(request) < REQUEST_BYTES
        its_input, our_input = os.pipe()
        our_output, its_output = os.pipe()
        self._status, its_status = os.pipe()
        fds = [its_input, its_output, its_status]
        socket.send_fds(_server(), [request], fds)
        for each in fds:
            os.close(each)
        self.stdin: IO[str] = os.fdopen(our_input, "w")
        self.stdout: IO[str] = os.fdopen(our_output)
        self.returncode: int | None = None
        self.pid: int = STATUS.unpack(os.read(self._status, STATUS.size))[0]

    def poll(self) -> int | None:
        """Its exit status; None while it runs."""
        return self.returncode if self._has_ended(0) else None

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, once it has ended."""
        if not self._has_ended(timeout):
            raise subprocess.TimeoutExpired("a forked child", timeout or 0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """If it runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _has_ended(self, timeout: float | None) -> bool:
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                return False
            found = os.read(self._status, STATUS.size)
            os.close(self._status)
            self.returncode = os.waitstatus_to_exitcode(STATUS.unpack(found)[0])
        return True
