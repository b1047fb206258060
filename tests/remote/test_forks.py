"""Processes that fork, and whose children fork: each closes its own files, once, and no other's."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from quire.libraries import late_imports
from quire.opening import open as open_store
from tests.kit.children import child
from tests.kit.moments import alarmed, at_moment, moments_of
from tests.kit.waiting import SECONDS

# A process that owns the store and has joined it forks a line of children while its threads put.
# Each of these takes all numbers of files that are free with files of its own, and the next one
# looks whether they are there.
FORKING = """
import fcntl, multiprocessing, os, signal, sys, threading
import quire
from quire.errors import StoreClosed
from quire.opening import open

ROUNDS, DEPTH = int(sys.argv[3]), 3
mine = open(sys.argv[2])
mine.share(mine._env).wait_started()
mine.create_queue("work", kind="work")
joined = open(sys.argv[2])
other = open(sys.argv[1])  # that of another process
stores = mine, joined, other
going, put = True, [0, 0, 0]

def load(at):
    while going:
        stores[at].put("work", b"x")
        put[at] += 1
        with stores[at].transaction() as txn:  # which takes and leaves channels
            txn.put("work", b"y")
            put[at] += 1

def take_numbers():
    found = [os.open("/dev/null", os.O_RDONLY)]
    while len(found) < 100:
        found.append(os.dup(found[0]))
    return {number: os.fstat(number) for number in found}

def check(numbers):
    for number, status in numbers.items():
        assert os.fstat(number).st_rdev == status.st_rdev, number

def inherit(depth, numbers):
    signal.alarm(300)
    for store in stores:
        try:
            store.put("work", b"z")
        except StoreClosed as error:
            assert "forked" in str(error), error
        else:
            raise AssertionError("a store object of the parent's was of use")
    check(numbers)
    numbers |= take_numbers()
    if depth < DEPTH:
        process = os.fork()
        if process == 0:
            run(lambda: inherit(depth + 1, numbers))
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 7
    else:
        with open(sys.argv[1]) as again:
            assert again.role == "joined"
            again.put("generations", b"x")
    check(numbers)
    for store in stores:
        store.close()
    check(numbers)

def run(action):
    try:
        action()
        os._exit(7)
    except BaseException:
        import traceback
        traceback.print_exc()
        os._exit(1)

def daemon():
    os.setsid()
    if os.fork():
        os._exit(7)
    run(lambda: inherit(DEPTH, take_numbers()))

def execute():
    code = f"import os; os.fstat(0); assert len(os.listdir('/proc/self/fd')) < 10; os._exit(7)"
    os.execv(sys.executable, [sys.executable, "-c", code])

threads = [threading.Thread(target=load, args=(at,)) for at in range(3)]
for thread in threads:
    thread.start()
for number in range(ROUNDS):
    for action in (lambda: inherit(1, take_numbers()), daemon, execute):
        process = os.fork()
        if process == 0:
            run(action)
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 7
    process = multiprocessing.get_context("fork").Process(
        target=lambda: inherit(2, take_numbers())
    )
    process.start()
    process.join()
    assert process.exitcode == 0
going = False
for thread in threads:
    thread.join()
assert mine.queue("work").messages == put[0] + put[1]
assert mine.admin.verify().ok
for store in stores:
    store.close()
print(put[2], flush=True)
"""


@pytest.mark.promise(12)
@pytest.mark.parametrize("rounds", [2, pytest.param(40, marks=pytest.mark.long)])
def test_fork_in_fork_in_fork_under_load(store_path: str, rounds: int) -> None:
    """Lines of forks, daemons, forks that become programs, and those of `multiprocessing`.

    No file of anybody's is closed, the parent's threads go on, and a child opens the store anew.
    """
    with open_store(store_path) as owner:
        owner.admin.create_queues(
            [{"name": "work", "kind": "work"}, {"name": "generations", "kind": "topic"}]
        )
        with child(FORKING, store_path, store_path + ".own", str(rounds)) as process:
            assert owner.queue("work").messages <= int(process.line())
            assert process.wait() == 0
        assert owner.queue("generations").messages >= 2 * rounds
        assert owner.admin.verify().ok


CONNECTING = """
import os, stat, sys, threading, time
from contextlib import suppress
from quire.opening import open
stores = [open(sys.argv[1]) for _ in range(4)]
going = True

def come_and_go(store):
    while going:
        transactions = [store.transaction() for _ in range(8)]
        for txn in transactions:
            assert txn.get("work") is None
        for txn in transactions:
            txn.rollback()

threads = [threading.Thread(target=come_and_go, args=(store,)) for store in stores]
for thread in threads:
    thread.start()
children = []
for _ in range(60):
    time.sleep(0.002)
    process = os.fork()
    if process == 0:
        left = 0
        for number in os.listdir("/proc/self/fd"):
            with suppress(OSError):  # that of the listing
                left += stat.S_ISSOCK(os.fstat(int(number)).st_mode)
        os._exit(left)
    children.append(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
going = False
for thread in threads:
    thread.join()
print(children, flush=True)
"""


def test_a_fork_while_connections_are_made(store_path: str) -> None:
    """SO3: the child has no copy of them, so that the owner sees its parent's end at once."""
    with open_store(store_path) as owner:
        owner.create_queue("work", kind="work")
        with child(CONNECTING, store_path) as process:
            assert process.line() == str([0] * 60)
            assert process.wait() == 0


ENDING = """
import os, time
from quire.remote.server.signals import stop_on_signals
with stop_on_signals() as end:
    process = os.fork()
    if process == 0:
        print(os.getpid(), flush=True)  # Python forgets the signals that come before
        while True:  # a signal that comes the moment before a sleep does not end that
            time.sleep(0.05)
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), end.wait(0.0), flush=True)
"""


def test_a_childs_signal_is_not_its_parents() -> None:
    """A child that is told to end does so, and its parent goes on."""
    with child(ENDING) as process:
        os.kill(int(process.line()), signal.SIGTERM)
        assert process.line() == f"{-signal.SIGTERM} False"
        assert process.wait() == 0


# What a child imports is being imported by another thread while it is forked.
IMPORTING = """
import os, signal, sys, threading, time
import quire.env
from quire.libraries.late_imports import load
sys.path.insert(0, sys.argv[1])
importing = threading.Thread(target=load, args=("slow",))
importing.start()
while "slow" not in sys.modules:
    time.sleep(0.001)
pid = os.fork()
if not pid:
    signal.alarm(30)
    import slow
    os._exit(0)
importing.join()
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


def test_an_interrupted_import_ends_no_other_import(tmp_path: Path) -> None:
    """At whatever moment a handler of a signal raises, others go on importing (LD3)."""
    name = "interrupted_import"
    (tmp_path / f"{name}.py").write_text("")
    sys.path.insert(0, str(tmp_path))

    def import_it() -> None:
        sys.modules.pop(name, None)
        late_imports.load(name)

    try:
        with alarmed():
            struck = [at_moment(import_it, moment) for moment in range(1, moments_of(import_it))]
        assert any(struck)
        other = threading.Thread(target=import_it)
        other.start()
        other.join(SECONDS)
        assert not other.is_alive()
        assert late_imports._importing._threads == {}
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop(name, None)


@pytest.mark.promise(12)
def test_a_fork_waits_for_imports(tmp_path: Path) -> None:
    """A child can import what another thread was importing, and what that logs meanwhile."""
    (tmp_path / "slow.py").write_text(
        "import logging, time\n"
        "for name in range(50):\n"
        "    logging.getLogger(f'slow.{name}')\n"
        "    time.sleep(0.005)\n"
    )
    with child(IMPORTING, str(tmp_path)) as process:
        assert process.line() == "0"
