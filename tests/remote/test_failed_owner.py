"""An owner whose disk fails gives way to a process that has joined it, and stays failed itself."""

from __future__ import annotations

import ast
import threading
import time
from contextlib import ExitStack, suppress

import pytest

from quire.errors import ConnectionLost, OutcomeUnknown, QuireError, StoreFailed
from quire.opening import open as open_store
from quire.remote import JoinedStore
from tests.kit.actors import OPTIONS, Actor, actor, joined_elected, owner_with_work
from tests.kit.children import Child, child
from tests.kit.waiting import SECONDS, eventually

# From now on, or from the given write on, every write and sync of the process fails.
FAIL = """
import errno, os
left = [{after}]
def failing(name):
    real = getattr(os, name)
    def call(fd, *arguments):
        if os.path.realpath(f"/proc/self/fd/{{fd}}").endswith("LOCK"):
            return real(fd, *arguments)
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.EIO, "injected")
        return real(fd, *arguments)
    setattr(os, name, call)
for name in ("pwrite", "fsync", "fdatasync"):
    failing(name)
"""


def fail(owner: Actor, after: int = 0) -> None:
    """Let the disk fail, as that process sees it."""
    assert owner.ask(f"exec({FAIL.format(after=after)!r}, globals())") == "None"


owner = pytest.fixture(owner_with_work)


store = pytest.fixture(joined_elected)


@pytest.mark.promise(11)
@pytest.mark.promise(12)
def test_an_owner_that_failed_gives_way(owner: Actor, store: JoinedStore, store_path: str) -> None:
    """Its own put fails; a process that has joined owns the store soon, with all of it."""
    store.put("work", b"1")
    fail(owner)
    assert owner.ask('store.put("work", b"2")').startswith("StoreFailed")
    eventually(lambda: store.role == "owner")
    store.put("work", b"3")
    found = store.browse("work").payloads()
    assert [p for p in found if p != b"2"] == [b"1", b"3"]
    # The failed object stays so, whatever it is asked.
    for call in ('store.put("work", b"x")', "store.queues()", 'store.browse("work")', "begin()"):
        eventually(lambda c=call: owner.ask(c).startswith("StoreFailed"))  # type: ignore[misc]
    assert owner.ask("store.failed") == "True"
    assert owner.ask("store.close()") == "None"
    # Opened again, it joins.
    assert owner.ask("exec('store = open(sys.argv[1])', globals())") == "None"
    assert owner.ask("store.role") == "'joined'"
    assert owner.ask("store.put('work', b'4')") == "4" or store.queue("work").messages >= 3
    assert store.admin.verify().ok


@pytest.mark.promise(11)
def test_reads_go_on_while_nobody_else_is_there(owner: Actor, store_path: str) -> None:
    """Who opens the store then has the owner let go of it, and recovers it."""
    owner.ask('store.put("work", b"1")')
    fail(owner)
    assert owner.ask('store.put("work", b"2")').startswith("StoreFailed")
    for _ in range(3):
        assert owner.ask('store.browse("work").payloads()[:1]') == "[b'1']"
        time.sleep(0.5)  # more than the store waits between its looks
    with open_store(store_path, **OPTIONS) as store:
        assert store.role == "owner"
        assert store.browse("work").payloads()[:1] == [b"1"]
        store.put("work", b"3")
        assert owner.ask('store.browse("work")').startswith("StoreFailed")
        owner.end()  # which writes, cuts and removes nothing
        assert store.admin.verify().ok
        assert store.browse("work").payloads()[-1] == b"3"


@pytest.mark.promise(2)
def test_a_joined_commit_that_fails(owner: Actor, store: JoinedStore) -> None:
    """The one whose write fails is in doubt; the next one goes on with the next owner."""
    fail(owner)
    with pytest.raises((StoreFailed, OutcomeUnknown)):
        store.put("work", b"1")
    assert store.put("work", b"2") > 0  # with the next owner
    assert store.role == "owner"
    assert store.browse("work").payloads()[-1] == b"2"
    assert store.queue("work").messages in (1, 2)


def test_a_joined_commit_with_an_entry(owner: Actor, store: JoinedStore) -> None:
    """The next owner's ledger tells whether it took effect."""
    txn = store.transaction()
    txn.put("work", b"1")
    txn.enter("mine", 1)
    fail(owner)
    committed = False
    with suppress(ConnectionLost):
        txn.commit()
        committed = True
    assert (store.integration.ledger("mine") == 1) == committed
    assert store.queue("work").messages == committed
    assert txn.state == ("committed" if committed else "rolled back")


def test_one_takes_over_after_the_other(store_path: str) -> None:
    """Each owner fails in its turn; what was acknowledged is there, and each fails once."""
    processes = [actor(store_path) for _ in range(3)]
    with processes[0] as first, processes[1] as second, processes[2] as third:
        first.ask('store.create_queue("work", kind="work")')
        with open_store(store_path, **OPTIONS) as store:
            assert isinstance(store, JoinedStore)
            known: list[bytes] = []
            maybe: list[bytes] = []
            by_pid = {each.process.pid: each for each in (first, second, third)}
            for number in range(60):
                if number % 15 == 14 and store.owner_process_id in by_pid:
                    fail(by_pid.pop(store.owner_process_id), after=number % 3)
                payload = b"%d" % number
                try:
                    store.put("work", payload)
                    known.append(payload)
                except (StoreFailed, OutcomeUnknown):
                    maybe.append(payload)
            assert len(maybe) <= 3
            found = store.browse("work").payloads()
            assert [p for p in found if p not in maybe] == known
            assert len(set(found)) == len(found)
            assert store.admin.verify().ok


BROKEN = """
import sys, time
import quire
from quire.opening import open
store = open(sys.argv[1])
exec(sys.argv[2])
tries = 0
from quire.engine import EmbeddedStore
real = EmbeddedStore.open.__func__
def counting(*arguments, **named):
    global tries
    tries += 1
    return real(*arguments, **named)
EmbeddedStore.open = classmethod(counting)
print(store.role, flush=True)
for line in sys.stdin:
    try:
        print(repr(eval(line)), flush=True)
    except quire.QuireError as error:
        print(type(error).__name__, flush=True)
"""


@pytest.mark.cases(8)
def test_a_disk_that_fails_for_all(owner: Actor, store_path: str) -> None:
    """Nobody can own the store: they say so, and try less and less often."""
    code = FAIL.format(after=0)
    with child(BROKEN, store_path, code) as one, child(BROKEN, store_path, code) as two:
        assert (one.line(), two.line()) == ("joined", "joined")
        fail(owner)
        assert owner.ask('store.put("work", b"2")').startswith("StoreFailed")
        time.sleep(8)
        for each in (one, two):
            each.say("store.put('work', b'x')")
            assert each.line() in ("StoreFailed", "ConnectionLost", "StoreCorrupt", "StoreClosed")
            each.say("tries")
            assert int(each.line()) < 40  # of which most find the lock taken
        one.kill()
        two.kill()
    owner.end()
    with open_store(store_path) as store:
        assert store.admin.verify().ok


def test_waiting_calls_find_the_next_owner(owner: Actor, store: JoinedStore) -> None:
    """A get that waits at an owner that fails goes on with the next."""
    found: list[object] = []
    waiting = threading.Thread(target=lambda: found.append(store.get("work", timeout=SECONDS)))
    waiting.start()
    eventually(lambda: store.status()["sharing"]["waiting"] == 1)
    fail(owner)
    assert owner.ask("store.sync() or store.create_queue('x')").startswith("StoreFailed")
    eventually(lambda: store.role == "owner")
    with suppress(QuireError):
        store.put("work", b"1")
    waiting.join(SECONDS)
    assert [message.payload for message in found] == [b"1"]  # type: ignore[attr-defined]


WORKING = """
import sys, threading
import quire
from quire.errors import QuireError, OutcomeUnknown, StoreFailed
from quire.opening import open
store = open(sys.argv[1])
name, going = sys.argv[2], True
known, maybe, taken, perhaps = [], [], [], []

def work():
    number = 0
    while going:
        number += 1
        one = f"{name}-{number}"
        if number % 3 == 2:
            txn, found = None, None
            try:
                with store.transaction() as txn:
                    found = txn.get("work")
                if found is not None:
                    taken.append(found.payload.decode())
            except QuireError:
                if found is not None and txn.state != "rolled back":
                    perhaps.append(found.payload.decode())
            continue
        entry = number % 3 == 1
        txn = None
        try:
            txn = store.transaction()
            txn.put("work", one.encode())
            if entry:
                txn.enter(one, 1)
            txn.commit()
            known.append(one)
        except QuireError:
            if txn is None or txn.state == "rolled back":
                continue
            if txn.state == "committed":
                known.append(one)
            else:
                maybe.append(one)

print(store.role, flush=True)
thread = threading.Thread(target=work)
for line in sys.stdin:
    if line == "go\\n":
        thread.start()
        print("going", flush=True)
    elif line == "count\\n":
        print(len(known), flush=True)
    else:
        going = False
        thread.join()
        print([known, maybe, taken, perhaps], flush=True)
"""


@pytest.mark.long
@pytest.mark.promise(2)
@pytest.mark.promise(11)
@pytest.mark.parametrize("round_number", range(20))
def test_rounds_of_failed_owners(store_path: str, round_number: int) -> None:
    """Processes put and get while one owner after another fails: each message is there once."""
    with ExitStack() as stack:
        owners = [stack.enter_context(actor(store_path)) for _ in range(3)]
        owners[0].ask('store.create_queue("work", kind="work")')
        workers = [
            stack.enter_context(child(WORKING, store_path, str(number))) for number in range(3)
        ]
        assert [worker.line() for worker in workers] == ["joined"] * 3
        store = stack.enter_context(open_store(store_path, **OPTIONS))
        assert isinstance(store, JoinedStore)
        for worker in workers:
            worker.say("go")
            assert worker.line() == "going"
        by_pid = {owner.process.pid: owner for owner in owners}
        for number in range(2):
            _wait_for_more(workers)
            process_id = store.owner_process_id
            if process_id not in by_pid:
                break  # a worker, or this process, owns the store
            fail(by_pid.pop(process_id), after=(7 * round_number + number) % 10)
            eventually(lambda p=process_id: store.owner_process_id != p)  # type: ignore[misc]
        _wait_for_more(workers)
        known: list[str] = []
        maybe: list[str] = []
        taken: list[str] = []
        perhaps: list[str] = []
        for worker in workers:
            worker.say("stop")
        for worker in workers:
            for all_of, part in zip(
                (known, maybe, taken, perhaps), ast.literal_eval(worker.line()), strict=True
            ):
                all_of.extend(part)
        left = [payload.decode() for payload in store.browse("work", max_messages=10**6).payloads()]
        assert len(set(taken)) == len(taken)
        assert len(set(left)) == len(left)
        assert not set(taken) & set(left)  # none is handed out twice
        found = {*taken, *left}
        assert found <= {*known, *maybe}
        assert {*known} - found <= {*perhaps}  # what went, went to who does not know
        assert store.admin.verify().ok


def _wait_for_more(workers: list[Child]) -> None:
    """Each of them gets on."""

    def count(worker: Child) -> int:
        worker.say("count")
        return int(worker.line())

    before = [count(worker) for worker in workers]
    for worker, number in zip(workers, before, strict=True):
        eventually(lambda w=worker, n=number: count(w) > n + 5)  # type: ignore[misc]
