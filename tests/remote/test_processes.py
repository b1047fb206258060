"""A store between processes: joining, and what each side sees when the other dies by SIGKILL."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from quire.errors import ConnectionLost, OutcomeUnknown, StoreClosed
from tests.behaviour.forms import own
from tests.kit.children import Child, child, join
from tests.kit.programs import CLIENT, OWNER
from tests.kit.waiting import SECONDS, eventually

# Says when a commit has come, and hangs: before it does anything, or when it is durable.
HANGING_OWNER = (
    """
import sys, time
from quire.engine import EmbeddedTransaction as Transaction
real = Transaction.commit
def commit(self, timeout=None):
    if self._writes:
        if sys.argv[2] == "after":
            real(self, timeout)
        print("committing", flush=True)
        time.sleep(1000)
    real(self, timeout)
Transaction.commit = commit
"""
    + OWNER
)


@pytest.fixture
def owner(store_path: str) -> Iterator[Child]:
    """A process that owns the store at `store_path`."""
    with child(OWNER, store_path) as process:
        assert process.line() == "ready"
        yield process


@pytest.mark.promise(12)
def test_a_second_process_joins(owner: Child, store_path: str) -> None:
    """The same store for both; when the owner has closed it, the next one owns it."""
    with join(store_path) as store:
        assert store.owner_process_id == owner.process.pid
        store.create_queue("work", kind="work")
        assert store.put("work", b"x") == 1
    owner.say("close")
    assert owner.line() == "closed"
    assert owner.wait() == 0
    with own(store_path) as store:
        assert store.browse("work").payloads() == [b"x"]


def test_an_owner_that_closes_does_not_wait_for_its_clients(owner: Child, store_path: str) -> None:
    """An idle client learns that the owner is gone, and opens the store again."""
    store = join(store_path)
    store.create_queue("work", kind="work")
    txn = store.transaction()
    txn.put("work", b"never committed")
    owner.say("close")
    assert owner.line() == "closed"
    with own(store_path) as again:
        with pytest.raises(ConnectionLost, match="open the store again"):
            txn.commit()
        assert txn.state == "rolled back"
        assert again.queue("work").messages == 0
    store.close()


def test_the_owners_death_is_seen_at_once(owner: Child, store_path: str) -> None:
    """A waiting get and an idle store raise ConnectionLost; nothing of them took effect."""
    store = join(store_path)
    store.create_queue("work", kind="work")
    seen: list[BaseException] = []

    def wait() -> None:
        try:
            store.transaction().get("work", timeout=1000)
        except ConnectionLost as error:
            seen.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    idle = store.transaction()
    idle.put("work", b"x")
    eventually(lambda: store.status()["sharing"]["waiting"] == 1)
    owner.kill()
    waiting.join(SECONDS)
    assert seen
    with pytest.raises(ConnectionLost):
        idle.commit()
    with pytest.raises(ConnectionLost):
        store.queues()
    store.close()
    with pytest.raises(StoreClosed):
        store.queues()
    with own(store_path) as again:
        assert again.queue("work").messages == 0


@pytest.mark.promise(1, 2)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_the_owner_dies_during_a_commit(store_path: str, moment: str) -> None:
    """OutcomeUnknown; the next opening recovers the store, and the ledger tells the outcome."""
    with child(HANGING_OWNER, store_path, moment) as owner:
        assert owner.line() == "ready"
        store = join(store_path)
        store.create_queue("work", kind="work")
        txn = store.transaction()
        txn.put("work", b"x")
        txn.enter("query", 1)
        raised: list[BaseException] = []

        def commit() -> None:
            try:
                txn.commit()
            except OutcomeUnknown as error:
                raised.append(error)

        committing = threading.Thread(target=commit)
        committing.start()
        assert owner.line() == "committing"
        owner.kill()
        committing.join(SECONDS)
    assert len(raised) == 1
    assert "look whether it took effect" in str(raised[0])
    assert txn.state == "in doubt"
    with pytest.raises(ConnectionLost):
        store.queues()
    store.close()
    with own(store_path) as again:
        assert again.integration.ledger("query") == (1 if moment == "after" else None)
        assert again.queue("work").messages == (1 if moment == "after" else 0)
        assert again.admin.verify().ok


@pytest.mark.cases(8)
@pytest.mark.crash
@pytest.mark.promise(1, 2)
def test_owners_killed_at_any_moment(store_path: str, rng: random.Random, rounds: int) -> None:
    """Every acknowledged commit is there, one in doubt is there or not, and nothing is half."""
    committed = 0
    for _ in range(max(2, rounds // 8)):
        with child(OWNER, store_path) as owner:
            assert owner.line() == "ready"
            with join(store_path) as store:
                if not store.queues():
                    store.create_queue("a", kind="work")
                    store.create_queue("b", kind="work")
                committed = store.integration.ledger("n") or 0
                threading.Timer(rng.uniform(0.05, 0.4), owner.process.kill).start()
                attempt = committed + 1
                try:
                    while True:
                        with store.transaction() as txn:
                            txn.put("a", b"%d" % attempt)
                            txn.put("b", b"%d" % attempt)
                            txn.enter("n", attempt)
                        committed, attempt = attempt, attempt + 1
                except (ConnectionLost, OutcomeUnknown):
                    pass
        with own(store_path) as store:
            count = store.integration.ledger("n") or 0
            assert count in (committed, attempt)
            expected = [b"%d" % n for n in range(1, count + 1)]
            for queue in ("a", "b"):
                assert store.browse(queue, max_messages=1_000_000).payloads() == expected


@pytest.mark.promise(4)
def test_a_clients_death_gives_back_what_it_got(owner: Child, store_path: str) -> None:
    """Messages in flight are delivered to another as soon as their client is killed."""
    with join(store_path) as store:
        store.create_queue("work", kind="work")
        with store.transaction() as txn:
            txn.put_many("work", [b"a", b"b"])
        with child(CLIENT, store_path, "0") as client:
            assert client.line() == "a b"
            assert client.line() == "None"
            with store.transaction() as txn:
                assert txn.get("work") is None
                client.kill()
                message = txn.get("work", timeout=SECONDS)
                assert message is not None
                assert (message.payload, message.delivery_count) == (b"a", 2)
                assert [m.payload for m in txn.get_many("work", timeout=SECONDS)] == [b"b"]


def test_a_client_dies_while_it_waits(owner: Child, store_path: str) -> None:
    """Its waiting get takes no message from others."""
    with join(store_path) as store:
        store.create_queue("work", kind="work")
        with child(CLIENT, store_path, "1000") as client:
            assert client.line() == ""
            eventually(lambda: store.status()["sharing"]["waiting"] == 1)
            client.kill()
        eventually(lambda: store.status()["sharing"]["waiting"] == 0)
        store.put("work", b"x")
        with store.transaction() as txn:
            assert txn.get("work", timeout=SECONDS) is not None


WORKER = """
import sys
from quire.opening import open
with open(sys.argv[1]) as store:
    taken = 0
    while True:
        with store.transaction() as txn:
            messages = txn.get_many("work", 7, timeout=0.1)
            txn.put_many("done", messages.payloads())
        taken += len(messages)
        if not messages and store.queue("done").messages == int(sys.argv[2]):
            break
print(taken, flush=True)
"""


def test_many_clients_at_once(owner: Child, store_path: str) -> None:
    """Three processes share out a work queue: each message goes to one of them, once."""
    count = 1000
    with join(store_path) as store:
        store.create_queue("work", kind="work")
        store.create_queue("done", kind="work")
        workers = [Child(WORKER, store_path, str(count)) for _ in range(3)]
        try:
            for start in range(0, count, 50):
                with store.transaction() as txn:
                    txn.put_many("work", [b"%d" % n for n in range(start, start + 50)])
            assert sum(int(worker.line()) for worker in workers) == count
        finally:
            for worker in workers:
                worker.close()
        done = store.browse("done", max_messages=2 * count).payloads()
    assert sorted(map(int, done)) == list(range(count))


FORKING = """
import os, signal, sys
from quire.errors import StoreClosed
from quire.opening import open, open_or_serve
owner = open(sys.argv[1])
joined = open(sys.argv[1])
owner.create_queue("work", kind="work")
joined.put("work", b"x")
txn = joined.transaction()
txn.put("work", b"of the parent")
child = os.fork()
if child == 0:
    signal.alarm(100)
    for use in (owner.queues, joined.queues, joined.transaction, txn.commit):
        try:
            use()
            os._exit(1)
        except StoreClosed as error:
            assert "forked" in str(error), error
    owner.close()
    joined.close()
    for path in (sys.argv[1], sys.argv[1] + ".other"):
        with open(path) as own, open_or_serve(path) as again:
            assert own.role == ("owner" if path.endswith("other") else "joined")
            if own.role == "owner":
                own.create_queue("work", kind="work")
            again.put("work", b"y")
    with open(path, share=False) as own:
        assert own.queue("work").messages == 1
    sys.exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
txn.commit()
joined.put("work", b"z")
print(owner.queue("work").messages, flush=True)
"""


def test_a_fork_leaves_the_store_to_its_parent(store_path: str) -> None:
    """What the child inherits is refused in words; it opens the store for itself, or another."""
    with child(FORKING, store_path) as process:
        assert process.line() == "7"
        assert process.line() == "4"
        assert process.wait() == 0


FORKING_AT_ONCE = """
import os, signal, sys
from quire.opening import open
with open(sys.argv[1]) as store:
    child = os.fork()
    if child == 0:
        signal.alarm(100)
        with open(sys.argv[1]) as joined:
            os._exit(7 if joined.role == "joined" else 8)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_a_fork_while_the_server_starts(store_path: str) -> None:
    """A thread of the parent is starting it: the child joins all the same."""
    with child(FORKING_AT_ONCE, store_path) as process:
        assert process.line() == "7"
        assert process.wait() == 0


FORKING_AFTER_THE_END = """
import os, sys
from quire.opening import open
store = open(sys.argv[1])
store.share(store._env).wait_started()
store.close()
own = [os.open("/dev/null", os.O_RDONLY) for _ in range(200)]  # with the numbers that are free
child = os.fork()
if child == 0:
    for number in own:
        os.fstat(number)
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_a_fork_after_the_server_ended(store_path: str) -> None:
    """The child closes no file that has got the number of one that was the server's."""
    with child(FORKING_AFTER_THE_END, store_path) as process:
        assert process.line() == "7"
        assert process.wait() == 0


LEAVING = """
import os, sys, time
from quire.opening import open
store = open(sys.argv[1])
assert store.role == sys.argv[2]
if store.role == "owner":
    store.share(store._env).wait_started()
    store.create_queue("work", kind="work")
    store.put("work", b"x")
else:
    txn = store.transaction()
    assert txn.get("work") is not None
child = os.fork()
if child == 0:
    print(os.getpid(), flush=True)
    time.sleep(1000)
    os._exit(0)
sys.stdin.readline()
"""


def test_a_childs_copies_do_not_hide_the_end_of_its_parent(store_path: str) -> None:
    """SV4, CN3: a killed client's messages come back, and a killed owner is noticed."""
    children = []
    try:
        with child(LEAVING, store_path, "owner") as owner:
            children.append(int(owner.line()))
            with join(store_path) as store:
                with child(LEAVING, store_path, "joined") as client:
                    children.append(int(client.line()))
                    client.kill()
                with store.transaction() as txn:
                    assert txn.get("work", timeout=SECONDS) is not None
                owner.kill()
                deadline = time.monotonic() + SECONDS
                while not store.owner_session.connection.lost:
                    assert time.monotonic() < deadline
                    time.sleep(0.01)
    finally:
        for process_id in children:
            os.kill(process_id, signal.SIGKILL)


def test_a_program_may_end_without_closing(store_path: str) -> None:
    """An owner with clients ends when its program does, and the store is free."""
    code = OWNER.replace("store.close()", "sys.exit()")
    with child(code, store_path) as owner:
        assert owner.line() == "ready"
        store = join(store_path)
        owner.say("go")
        assert owner.wait() == 0
    with pytest.raises(ConnectionLost):
        store.queues()
    store.close()
    with own(store_path):
        pass
