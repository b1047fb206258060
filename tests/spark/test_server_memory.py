"""The memory of a server whose store many tasks read and write at once: bounded by a limit."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest

import quire
from quire.env import OsEnv
from quire.errors import LimitReached
from quire.limits import PLACES_BYTES
from quire.ltds import new_id
from quire.remote.access.use_limits import TRANSACTIONS
from quire.remote.limits import MIN_REQUEST_BYTES
from quire.spark_graphs import connection
from quire.tls import Tls
from tests.kit.network import certificates
from tests.kit.users import Users, serving_users
from tests.kit.waiting import eventually
from tests.spark.served_store import RIGHTS, TOKEN, USER, ServerProcess, credentials, variables

pytestmark = pytest.mark.spark

MIB = 1 << 20
TASKS = 16  # each of which may have 4 MiB of the server's memory, three times
ROUNDS = 2
Result = TypeVar("Result")


def peak_bytes(process: int) -> int:
    """Return the most memory that a process had since `forget_peak`."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    [line] = [each for each in lines if each.startswith("VmHWM:")]
    return int(line.split()[1]) << 10


def forget_peak(process: int) -> int:
    """Have a process's peak begin with what it has now; return that."""
    Path(f"/proc/{process}/clear_refs").write_text("5")
    return peak_bytes(process)


class Tasks:
    """Threads that read and write parts of files, as many tasks on other hosts do at once."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.refused = 0
        self.failures: list[BaseException] = []

    def work(self, store: Any) -> None:
        """What one of them does."""
        try:
            for _ in range(ROUNDS):
                self.read_and_write(store.integration)
        except Exception as error:  # noqa: BLE001 the test raises it
            self.failures.append(error)

    def read_and_write(self, calls: Any) -> None:
        """A part of what is there, and a part of a new file."""
        [piece, *_] = calls.lease("q", 0, 1).pieces
        places = [("ltds", piece.address, 4096, PLACES_BYTES)]
        [data] = self.wait(lambda: calls.read_places("q", places))
        assert len(data) == PLACES_BYTES
        file, part = new_id(OsEnv(), foreign=True), bytes(8) + b"QLTDSHDR" + data[16:]
        self.wait(lambda: calls.write_fragment("q", file, 0, part))
        self.wait(lambda: calls.remove_fragments([file]))

    def wait(self, call: Callable[[], Result]) -> Result:
        """As `connection.call` does, and counted."""
        while True:
            try:
                return call()
            except LimitReached as error:
                if error.limit != "bytes" or error.retry_after is None:
                    raise
                self.refused += 1
                OsEnv().sleep(error.retry_after / 4)

    def run(self) -> None:
        """Have all of them work to their end."""
        with ExitStack() as stack:
            tls, token = Tls(ca=certificates()[0].ca), TOKEN.text
            stores = [
                stack.enter_context(closing(quire.open(self.url, tls=tls, token=token)))
                for _ in range(TASKS)
            ]
            threads = [threading.Thread(target=self.work, args=(store,)) for store in stores]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
        if self.failures:
            raise self.failures[0]


def test_what_tasks_read_and_write_is_bounded_in_all(tmp_path: Path, rng: Random) -> None:
    """They wait, and the server does not grow with them; all of it is read and written."""
    path = str(tmp_path / "store")
    with quire.open(path) as store:
        store.create_queue("q", kind="topic", capacity="1g")
        store.subscribe("q", "reader")
        with store.transaction(large=True) as txn:
            txn.put_many("q", [os.urandom(MIB)] * 6)
    users = Users(tmp_path)
    users.tokens[USER] = TOKEN
    users.grant(USER, RIGHTS)
    server = ServerProcess(path, users.file.path, rng, bytes=MIN_REQUEST_BYTES)
    with variables(credentials()), closing(server):
        assert connection.call(server.path, lambda s: s.queue("q").messages) == 6
        tasks = Tasks(server.path)
        before = forget_peak(server.process.pid)
        tasks.run()
        grown = peak_bytes(server.process.pid) - before
        connection.forget(server.path)
    print(f"{TASKS} tasks: {grown / MIB:.0f} MiB more, {tasks.refused} times refused")
    assert tasks.refused
    assert grown < 6 * MIN_REQUEST_BYTES, f"{grown / MIB:.0f} MiB"


def test_a_call_waits_where_the_server_has_no_room(store: Any, tmp_path: Path) -> None:
    """Until somebody else has ended what is limited; a limit that no wait helps with is told."""
    store.create_queue("q")
    users = Users(tmp_path)
    users.tokens[USER] = TOKEN
    users.grant(USER, RIGHTS)
    users.limit(USER, transactions=1, request_bytes=MIN_REQUEST_BYTES)

    def put(joined: Any) -> None:
        with joined.transaction() as txn:
            txn.put("q", b"x")

    def refused() -> int:
        used = store.status()["sharing"]["limits"]["users"][USER]
        return int(used[TRANSACTIONS.name]["refused"])

    with serving_users(store, users) as url, variables({"QUIRE_TOKEN": TOKEN.text}):
        with closing(quire.open(url, token=TOKEN.text)) as other:
            holding = other.transaction()
            holding.put("q", b"held")
            holding.count("q")  # it has begun
            thread = threading.Thread(target=lambda: connection.call(url, put))
            thread.start()
            try:
                eventually(lambda: refused() > 0)
            finally:
                holding.rollback()
                thread.join()
        with pytest.raises(LimitReached, match="request_bytes"):
            connection.call(url, lambda joined: joined.put("q", bytes(MIN_REQUEST_BYTES + 1)))
        connection.forget(url)
    assert [each.payload for each in store.browse("q")] == [b"x"]
