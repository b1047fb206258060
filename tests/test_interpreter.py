"""What rests on the GIL takes locks where there is none, and opening a store says so there."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest

import quire
from quire.engine import EmbeddedStore as Store
from quire.engine.live_state.live_values import StateValues
from quire.engine.ownership import OwnedEnv
from quire.engine.pages.bounded_cache import BoundedCache, GuardedCache, bounded_cache
from quire.engine.pages.discarded_files import DiscardedFiles
from quire.engine.queues.queue import Queue
from quire.engine.queues.reservation import Space
from quire.engine.state.durable_state import DurableState
from quire.env.interpreter import Lock, RLock, has_gil, numbers_from
from quire.env.memory_env import MemoryEnv
from tests.kit.children import child
from tests.kit.moments import Alarm

THREADS = 4
EACH = 60 if has_gil() else 500  # of what each thread does


@pytest.fixture
def no_gil(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter says that it has none, as a free-threaded one does."""
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)


def each_thread(action: Callable[[], None]) -> None:
    """All do it at once; what one raises is raised."""
    errors: list[BaseException] = []
    together = threading.Barrier(THREADS)

    def do() -> None:
        together.wait()
        try:
            action()
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    threads = [threading.Thread(target=do) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("make", [Lock, RLock])
def test_a_block_gives_its_lock_back_whatever_a_signal_raises(make: Callable[[], Any]) -> None:
    """Wherever it comes: most come right after the lock was taken, in CPython 3.14 (GI3)."""
    lock, struck = make(), 0

    def strike(number: int, frame: FrameType | None) -> None:
        nonlocal struck
        struck += 1
        raise Alarm

    before = signal.signal(signal.SIGALRM, strike)
    try:
        for n in range(200):
            with suppress(Alarm):
                signal.setitimer(signal.ITIMER_REAL, 0.0003)
                while struck == n:  # what it raises in a finaliser, Python drops
                    with lock:
                        pass
            with ThreadPoolExecutor(1) as other:
                assert other.submit(lock.acquire, False).result()
                other.submit(lock.release).result()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert struck == 200


def test_an_interpreter_that_does_not_know_the_question_has_a_gil(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python before 3.13; a newer one answers for itself."""
    monkeypatch.delattr(sys, "_is_gil_enabled", raising=False)
    assert has_gil()
    for answer in (True, False):
        monkeypatch.setattr(sys, "_is_gil_enabled", lambda told=answer: told, raising=False)
        assert has_gil() is answer


@pytest.mark.usefixtures("no_gil")
def test_opening_a_store_without_the_gil_warns() -> None:
    """It names the reason, the page that lists what rests on the GIL, and the way around."""
    with (
        pytest.warns(RuntimeWarning, match=r"without the GIL.*docs/locks\.md.*PYTHON_GIL=1"),
        quire.open(":memory:"),
    ):
        pass


@pytest.mark.usefixtures("no_gil")
@pytest.mark.filterwarnings("ignore:this interpreter runs without the GIL:RuntimeWarning")
def test_without_the_gil_every_commit_takes_the_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """No change leads by a look alone (C13), and R grows under the queue's lock (S4)."""
    reserve = Space.reserve
    queues: list[Queue] = []
    locked: list[bool] = []

    def under_the_lock(space: Space) -> None:
        locked.append(queues[0].lock.locked())
        reserve(space)

    monkeypatch.setattr(Space, "reserve", under_the_lock)
    with quire.open(":memory:") as store:
        assert isinstance(store, Store)
        store.create_queue("jobs", kind="work")
        queues.extend(store._context.state.queues.values())
        taken: list[int] = []

        def put_and_get() -> None:
            for number in range(EACH):
                with store.transaction() as txn:
                    txn.put("jobs", b"%d" % number)
                    txn.put("jobs", b"%d" % number)
                message = store.get("jobs")
                assert message is not None
                taken.append(message.id)

        each_thread(put_and_get)
        assert len(set(taken)) == store.queue("jobs").messages == THREADS * EACH
        assert locked == [True] * (THREADS * EACH)
        sequencer = store._context.sequencer
        assert sequencer._alone == 0 < sequencer.changes
        assert (queues[0].space.reserving, queues[0].space.open_transactions) == (0, 0)


@pytest.mark.usefixtures("no_gil")
def test_without_the_gil_caches_and_numbers_have_a_lock() -> None:
    """What they count is right whatever threads do at the same time."""
    cache: BoundedCache[int, bytes] = bounded_cache(2000, len, 8)
    assert isinstance(cache, GuardedCache)
    new_number = numbers_from(1)
    given: list[int] = []

    def come_and_go() -> None:
        for step in range(EACH):
            given.append(new_number())
            cache.add(step % 40, bytes(step % 40 + 2))
            cache.forget(step * 3 % 40)

    each_thread(come_and_go)
    assert sorted(given) == list(range(1, THREADS * EACH + 1))
    kept = cache.list_keys()
    assert cache.size_bytes == sum(kept) + 10 * len(kept) <= 2000


def test_what_is_withdrawn_while_it_is_told_hurts_nobody() -> None:
    """A queue is made while another thread ends its wait for any queue of a pattern."""

    class WithdrawnMeanwhile(dict[object, Callable[[], None]]):
        def popitem(self) -> tuple[object, Callable[[], None]]:
            self.clear()
            return super().popitem()

    with quire.open(":memory:") as store:
        assert isinstance(store, Store)
        store._context.state._defined = WithdrawnMeanwhile({object(): lambda: None})
        store.create_queue("jobs", kind="work")
        store.put("jobs", b"1")


def test_what_others_change_is_gone_through_in_one_step() -> None:
    """Files that wait to be removed; what prepared transactions hold of states (GI2)."""
    discarded = DiscardedFiles(MemoryEnv(), "ltds", lambda: None)
    durable = DurableState()
    values = StateValues(durable)
    held = durable.values.held_charges
    own = iter("abcdefgh")

    def change_and_look() -> None:
        name = next(own)
        for step in range(EACH):
            discarded.add(step)
            assert step in discarded.waiting
            held[name] = 1
            values.reserve("name", 0, 0)
            del held[name]

    each_thread(change_and_look)
    assert len(discarded) == THREADS * EACH


def test_no_open_file_is_forgotten_while_those_that_are_closed_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An owner that loses its store finds each file that it has open (OW3)."""
    monkeypatch.setattr("quire.engine.ownership.FILES_NOTED", 0)
    env = OwnedEnv(MemoryEnv())
    env.make_directory("store")
    names = numbers_from(0)
    kept: list[object] = []

    def open_some() -> None:
        for _ in range(EACH // 2):
            kept.append(env.open_file(f"store/{names()}", create=True))
            env.open_file(f"store/{names()}", create=True).close()

    each_thread(open_some)
    noted = {id(file()) for file in env._files}
    assert {id(file) for file in kept} <= noted


IN_ANOTHER = """
import quire
with quire.open({path!r}) as store:
    store.create_queue("q")
    store.put("q", b"1")
    with quire.open({path!r}) as joined:
        assert joined.get("q").payload == b"1"
    store.put("q", b"2")
"""
FIRST = """
import sys
try:
    import _interpreters as interpreters
    other = interpreters.create("legacy")
except ImportError:
    import _xxsubinterpreters as interpreters
    other = interpreters.create(isolated=False)
code = sys.argv[1]
print(interpreters.run_string(other, code))
"""


def test_another_interpreter_of_a_process(store_path: str) -> None:
    """As mod_wsgi has one for each application: it is given no signals, and a store is opened."""
    code = f"import sys; sys.path[:0] = {sys.path!r}" + IN_ANOTHER.format(path=store_path)
    child = subprocess.run(
        [sys.executable, "-c", FIRST, code], capture_output=True, text=True, check=False
    )
    assert (child.returncode, child.stdout) == (0, "None\n"), child.stderr
    with quire.open(store_path) as store:
        assert store.browse("q").payloads() == [b"2"]


# A library of greenlets puts its own in the place of what threads wait by, as its name tells.
REPLACED = """
import sys
import quire
library, module, attribute, mine, joined = sys.argv[1:]
__import__(module)

class Replaced(getattr(sys.modules[module], attribute) if attribute[0].isupper() else object):
    pass

Replaced.__module__ = f"{library}.part"
setattr(sys.modules[module], attribute, Replaced)
for path in (mine, joined, ":memory:"):
    try:
        quire.open(path)
    except quire.InvalidArgument as error:
        print(error, end="; ")
print(flush=True)
"""


@pytest.mark.parametrize(
    ("library", "part", "says"),
    [
        ("gevent", ("_thread", "start_new_thread"), "patch_all(thread=False, select=False, "),
        ("gevent", ("select", "select"), "patch_all(thread=False, select=False, "),
        ("gevent", ("socket", "socket"), "socket=False, queue=False)"),
        ("gevent", ("queue", "SimpleQueue"), "socket=False, queue=False)"),
        ("eventlet", ("select", "select"), "eventlet.monkey_patch(thread=False, select=False, "),
    ],
)
def test_greenlets_in_the_place_of_threads_are_refused(
    store_path: str, library: str, part: tuple[str, str], says: str
) -> None:
    """GI4: by whoever would own a store, join its owner, or have one in memory."""
    with (
        quire.open(store_path),
        child(REPLACED, library, *part, store_path + ".own", store_path) as process,
    ):
        line = process.line()
        assert line.count(says) == 3, line
        assert process.wait() == 0


def test_another_library_s_sockets_are_not_refused(store_path: str) -> None:
    """As of one for proxies: its sockets wait as others do."""
    with child(REPLACED, "socks", "socket", "socket", store_path, store_path) as process:
        assert process.line() == ""
        assert process.wait() == 0
