"""Each cell of the table of request outcomes, with real owners and clients.

A proxy stands between the two: so a request is brought to where it is when the event comes. Then
the client does what the table says, and what was asked for took effect as often as that promises.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

import quire
from quire.calls.errand import Errand
from quire.engine import EmbeddedTransaction
from quire.engine.namespaces.admin import AdminHandlers
from quire.env import OsEnv
from quire.errors import (
    ConnectionLost,
    OutcomeUnknown,
    QuireError,
    StoreClosed,
    StoreLocked,
    TransactionNotFound,
)
from quire.interface.store import Store
from quire.remote import JoinedStore
from quire.remote.client.request_outcomes import (
    IMPOSSIBLE,
    ROWS,
    Cell,
    OwnerEvent,
    Request,
    RequestAction,
    RequestProgress,
    cells,
    waits_for_owner,
)
from quire.remote.ownership.shared_store import SharedStore
from tests.kit.children import child
from tests.kit.limits import Limits
from tests.kit.proxies import Proxy, link_store, socket_of
from tests.kit.waiting import SECONDS, eventually

SEGMENT_BYTES: Final = 4 << 20
CALL_TIMEOUT: Final = 0.25
LONG: Final = 30.0
NOT_LONG: Final = 0.02  # in which a call comes to its wait, mostly; the outcome is the same if not
MESSAGE: Final = b"m"
LARGE: Final = b"m" + bytes(2 << 20)  # more than the system takes of a request that is not read
MANY: Final = 100_000

# What two stores have in common ---------------------------------------------------------------


class Alarm(BaseException):
    """What the handler of the signal raises."""


class ClientEnv(OsEnv):
    """The machine of a client that has the store at `beside`, and owns it only if it may."""

    def __init__(self, path: str, beside: str) -> None:
        super().__init__()
        self._address = os.path.join(beside, "run", "address"), os.path.join(path, "run", "address")
        self.may_own = False

    def open_file(self, path: str, **options: Any) -> Any:
        at_proxy, at_owner = self._address
        is_read = path == at_proxy and options.get("read_only")
        return super().open_file(at_owner if is_read else path, **options)

    def lock(self, path: str, owner: str) -> Any:
        if not self.may_own:
            raise StoreLocked("a test: another process is to have the lock")
        return super().lock(path, owner)


class FailingEnv(OsEnv):
    """The machine of an owner whose disk fails when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = False

    def open_file(self, path: str, **options: Any) -> Any:
        file: Any = super().open_file(path, **options)
        for name in ("write", "sync"):
            setattr(file, name, partial(self._do, getattr(file, name)))
        return file

    def _do(self, real: Callable[..., Any], *arguments: Any) -> Any:
        if self.fails:
            raise OSError(5, "a test")
        return real(*arguments)


# The requests ---------------------------------------------------------------------------------


class Kind:
    """A call of one kind, and how often what it asks for took effect."""

    is_of_transaction = False
    patched: tuple[type, str] | None = None  # what fails inside the owner: a class and its method

    def __init__(self, store: Store, owner: Store, *, large: bool, fresh: bool) -> None:
        """Prepare it; `fresh`: without a request to the owner, if that can be."""
        self.store = store
        self.owner = owner
        self.payload = LARGE if large else MESSAGE
        self.large = large
        if not fresh:
            store.put("work", b"warm", request_id="warm")  # there is a connection
            store.get("empty")
        self.prepare(fresh)

    def prepare(self, fresh: bool) -> None:
        """Bring the store to where the call is made."""

    def call(self) -> None:
        """Make the call."""
        raise NotImplementedError

    def effect(self, owner: Store) -> int:
        """Return how often it took effect."""
        return sum(p[:1] == MESSAGE for p in owner.browse("work").payloads())

    def took_effect(self) -> bool:
        """Return True if the request that decides was done at the first owner."""
        return self.effect(self.owner) > 0

    def answers(self, passed: Callable[[], int]) -> int:
        """Return how many answers such a call has, the last of which tells its outcome.

        `passed`: those that the client has had.
        """
        return 1

    def end(self) -> None:
        """Let go of what was begun."""


class Look(Kind):
    def call(self) -> None:
        names = ["work"] * (MANY if self.large else 1)
        assert [info.name for info in self.store.queues(names)] == names

    def effect(self, owner: Store) -> int:
        return 0

    def took_effect(self) -> bool:
        return True  # any answer is its


class OfOneOwner(Look):
    def prepare(self, fresh: bool) -> None:
        self.txn = self.owner.transaction()
        self.txn.put("work", b"x")
        self.id = self.owner.admin.transactions()[-1].id

    def call(self) -> None:
        self.store.admin.transaction(self.id)

    def end(self) -> None:
        with contextlib.suppress(QuireError):
            self.txn.rollback()


class Abort(OfOneOwner):
    def call(self) -> None:
        self.store.admin.abort(self.id)

    def effect(self, owner: Store) -> int:
        return int(self.id not in [info.id for info in owner.admin.transactions()])

    def took_effect(self) -> bool:
        return self.effect(self.owner) > 0


class Alter(Kind):
    def call(self) -> None:
        if self.large:
            self.store.integration.lease_many([("work", 0, 0)] * MANY)
        self.store.alter_queue("work", text="altered")

    def effect(self, owner: Store) -> int:
        return int(owner.queue("work").text == "altered")


class PutWithId(Kind):
    def call(self) -> None:
        self.store.put("work", self.payload, request_id="id")

    def answers(self, passed: Callable[[], int]) -> int:
        before = passed()
        self.store.put("work", b"x", request_id="other")
        return passed() - before


class Create(Kind):
    def call(self) -> None:
        self.store.create_queue("made", kind="topic", exist_ok=True)

    def effect(self, owner: Store) -> int:
        return [info.name for info in owner.queues()].count("made")


class Put(Kind):
    def call(self) -> None:
        self.store.put("work", self.payload)


class Get(Kind):
    def call(self) -> None:
        message = self.store.get("filled")
        assert message is not None
        assert message.payload == b"1"

    def effect(self, owner: Store) -> int:
        return 1 - owner.queue("filled").messages

    def took_effect(self) -> bool:
        return bool(self.owner.admin.transactions())


class Begin(Kind):
    def call(self) -> None:
        self.store.transaction().rollback()

    def effect(self, owner: Store) -> int:
        return 0


class OfTransaction(Kind):
    is_of_transaction = True
    puts = True

    def prepare(self, fresh: bool) -> None:
        self.txn = self.store.transaction()
        if not fresh:
            self.txn.put("work", MESSAGE)
            if self.large:
                self.txn.put("work", self.payload)  # which waits for the commit
            assert self.txn.count("empty") == 0  # what was put before has come to the owner

    def end(self) -> None:
        self.txn.rollback()


class Step(OfTransaction):
    def call(self) -> None:
        self.txn.put("work", self.payload, request_id="id")

    def took_effect(self) -> bool:
        return True


class Commit(OfTransaction):
    def call(self) -> None:
        self.txn.commit()


class CommitWithEntries(Commit):
    def prepare(self, fresh: bool) -> None:
        super().prepare(fresh)
        self.txn.enter("key", 1)

    def answers(self, passed: Callable[[], int]) -> int:
        before = 0
        for version in range(2):  # after the first time there are connections
            with self.store.transaction() as txn:
                txn.count("empty")
                txn.enter("other", version)
                before = passed()
        return passed() - before


class Rollback(OfTransaction):
    def call(self) -> None:
        self.txn.rollback()

    def took_effect(self) -> bool:
        return not self.owner.admin.transactions()


class Prepare(OfTransaction):
    def call(self) -> None:
        self.txn.prepare("xid")

    def effect(self, owner: Store) -> int:
        return [info.xid for info in owner.prepared.list()].count("xid")

    def end(self) -> None:
        if self.txn.state != "prepared":
            self.txn.rollback()


class Decision(Kind):
    def prepare(self, fresh: bool) -> None:
        with self.owner.transaction() as txn:
            txn.put("work", MESSAGE)
            txn.prepare("xid")

    def call(self) -> None:
        self.store.prepared.commit("xid")

    def end(self) -> None:
        self.store.prepared.rollback("xid")


class OwnDecision(Kind):
    def prepare(self, fresh: bool) -> None:
        self.txn = self.store.transaction()
        self.txn.put("work", MESSAGE)
        self.txn.prepare("xid")
        if fresh:  # its connection is for no more requests: the decision needs another one
            assert isinstance(self.store, JoinedStore)
            shared = self.store.owner_session.connection._shared
            assert shared is not None
            shared.is_over = True

    def call(self) -> None:
        self.txn.commit()

    def end(self) -> None:
        self.txn.rollback()


KINDS: Final[dict[Request, type[Kind]]] = {
    Request.LOOK: Look,
    Request.LOOK_AT_OWNER: OfOneOwner,
    Request.REPEATABLE: Alter,
    Request.PUT_WITH_ID: PutWithId,
    Request.CREATE_QUEUE: Create,
    Request.CHANGE: Put,
    Request.CHANGE_AT_OWNER: Abort,
    Request.GET: Get,
    Request.BEGIN: Begin,
    Request.STEP: Step,
    Request.COMMIT: Commit,
    Request.COMMIT_WITH_ENTRIES: CommitWithEntries,
    Request.ROLLBACK: Rollback,
    Request.PREPARE: Prepare,
    Request.DECISION: Decision,
    Request.OWN_DECISION: OwnDecision,
}
# What fails inside the owner, once.
FAILING: Final[dict[Request, tuple[type, str]]] = {
    Request.LOOK: (SharedStore, "queues"),
    Request.LOOK_AT_OWNER: (AdminHandlers, "transaction"),
    Request.REPEATABLE: (SharedStore, "alter_queue"),
    Request.PUT_WITH_ID: (EmbeddedTransaction, "commit"),
    Request.CREATE_QUEUE: (AdminHandlers, "create_queues"),
    Request.CHANGE: (SharedStore, "put_now"),
    Request.CHANGE_AT_OWNER: (AdminHandlers, "abort"),
    Request.GET: (EmbeddedTransaction, "get"),
    Request.STEP: (EmbeddedTransaction, "put"),
    Request.COMMIT: (EmbeddedTransaction, "commit"),
    Request.COMMIT_WITH_ENTRIES: (EmbeddedTransaction, "commit"),
    Request.ROLLBACK: (EmbeddedTransaction, "rollback"),
    Request.PREPARE: (EmbeddedTransaction, "prepare"),
    Request.DECISION: (SharedStore, "decide"),
    Request.OWN_DECISION: (EmbeddedTransaction, "commit"),
}
ERRORS: Final[dict[RequestAction, type[BaseException]]] = {
    RequestAction.CONNECTION_LOST: ConnectionLost,
    RequestAction.OUTCOME_UNKNOWN: OutcomeUnknown,
    RequestAction.NOT_FOUND: TransactionNotFound,
    RequestAction.STORE_CLOSED: StoreClosed,
    RequestAction.INTERRUPT: Alarm,
}
ENDINGS: Final = (Request.COMMIT, Request.COMMIT_WITH_ENTRIES, Request.PREPARE)
AT_OWNER: Final = (Request.LOOK_AT_OWNER, Request.CHANGE_AT_OWNER)
WITHOUT_EFFECT: Final = (Request.LOOK, Request.LOOK_AT_OWNER, Request.BEGIN, Request.STEP)
TAKE_OVERS: Final = (
    OwnerEvent.NEXT_OWNER,
    OwnerEvent.OWN,
    OwnerEvent.SAME_OWNER,
    OwnerEvent.NO_OWNER,
)


# A cell ---------------------------------------------------------------------------------------


class Call:
    """The call, in a thread of its own, and what it raises."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self.run, daemon=True)

    def begin(self) -> None:
        """In its thread."""
        self._thread.start()

    def end(self) -> None:
        """Wait for it."""
        self._thread.join(LONG)
        assert not self._thread.is_alive()

    def run(self) -> None:
        """In this thread."""
        try:
            self._call()
        except BaseException as error:  # noqa: BLE001 - looked at
            self.error = error


class Stage:
    """An owner, a proxy and a client, of which a request comes so far, and then an event."""

    def __init__(self, folder: Path, begun: Path, cell: Cell, limits: Limits) -> None:
        """`begun`: a store, which is copied."""
        self.request, self.progress, self.event = cell
        self.path, self.beside = str(folder / "store"), str(folder / "beside")
        shutil.copytree(begun, self.path)
        self.has_ended = False
        self.owner = self._open()
        link_store(self.path, self.beside)
        self.proxy = Proxy(socket_of(self.beside), socket_of(self.path))
        self.env = ClientEnv(self.path, self.beside)
        options: dict[str, Any] = {}
        if self.event is OwnerEvent.LATE:
            options["call_timeout"] = CALL_TIMEOUT
        if self.event is OwnerEvent.NO_OWNER:
            limits(HAND_OVER_SECONDS=0.1)
        limits(CANCEL_SECONDS=0.02)
        self.store: Store
        if self.event is OwnerEvent.LAST_OWNER:
            self.store = quire.connect(f"quire+unix://{socket_of(self.beside)}")
        else:
            self.store = quire.open(
                self.beside, env=self.env, segment_bytes=SEGMENT_BYTES, **options
            )
        assert self.store.role == "joined"
        is_own_end = self.event in (
            OwnerEvent.LATE,
            OwnerEvent.CANCELLED,
            OwnerEvent.CLOSED,
            OwnerEvent.INTERRUPTED,
        )
        self.kind = KINDS[self.request](
            self.store,
            self.owner,
            large=self.progress is RequestProgress.UNREAD and is_own_end,
            fresh=self.progress is RequestProgress.UNSENT and is_own_end,
        )
        self.errand = Errand()
        self.call = Call(self._in_errand)

    def _open(self) -> Store:
        self.machine = FailingEnv()
        store = quire.open(self.path, env=self.machine, segment_bytes=SEGMENT_BYTES)
        assert isinstance(store, SharedStore)
        store.share(self.machine).wait_started()
        return store

    def _in_errand(self) -> None:
        self.errand.do(self.kind.call)

    def close(self) -> None:
        """Let go of all."""
        with contextlib.suppress(QuireError):
            self.kind.end()
        self.store.close()
        self.proxy.close()
        self.owner.close()

    # How far it comes

    def play(self, done: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        """Bring the cell about. `done`: what was sent is done before the event."""
        play: dict[RequestProgress, Callable[[], None]] = {
            RequestProgress.UNSENT: self._unsent,
            RequestProgress.UNREAD: self._unread,
            RequestProgress.REFUSED: self._refused,
            RequestProgress.SENT: partial(self._sent, done),
            RequestProgress.FAILED: partial(self._failed, monkeypatch),
        }
        play[self.progress]()

    def _unsent(self) -> None:
        is_asked = self.request is not Request.BEGIN
        if self.event is OwnerEvent.CLOSED:
            self.store.close()
            self.call.run()
        elif self.event is OwnerEvent.CANCELLED and is_asked:
            self.errand.give_up()
            self.call.run()
        elif self.request is Request.ROLLBACK and self.event is OwnerEvent.LATE:
            self.proxy.passes_requests = lambda: False
            self.call.run()  # which has nothing to ask for
        elif self.event in (OwnerEvent.LATE, OwnerEvent.INTERRUPTED) and is_asked:
            self.proxy.passes_requests = lambda: False
            self._meet(self._wait_for_request)
        elif self.event in (OwnerEvent.CANCELLED, OwnerEvent.INTERRUPTED):
            self._end_owner()
            self.proxy.cut()
            other = Call(self.store.queues)  # which finds that the owner is gone
            other.begin()
            threading.Event().wait(5 * NOT_LONG)
            self._meet(lambda: None)
            self.store.close()
            other.end()
        else:
            self.change_owner()
            self.proxy.lets_in = False
            self.proxy.cut()
            is_nobody = self.event in (OwnerEvent.LAST_OWNER, OwnerEvent.NO_OWNER)
            if is_nobody and not is_asked:  # who learns of it by another call
                with pytest.raises(ConnectionLost):
                    self.store.queues()
            self.call.begin()
            threading.Event().wait(NOT_LONG)
            self.go_on()
            self.call.end()

    def _unread(self) -> None:
        self.proxy.reads = False
        self._meet(self._wait_for_request)

    def _sent(self, done: bool) -> None:
        before = self.kind.answers(lambda: self.proxy.answers) - 1
        last = self.proxy.answers + before  # the request that decides follows this answer
        if done:
            self.proxy.passes_answers = lambda: not self.kind.took_effect()
        else:
            self.proxy.passes_requests = lambda: self.proxy.answers < last
        self._meet(self._wait_for_request)

    def _wait_for_request(self) -> None:
        assert self.proxy.arrived.wait(LONG)

    def _refused(self) -> None:
        """By the owner, which is closing as long as it has a request that hangs."""
        hangs, may_end = threading.Event(), threading.Event()

        def hang() -> dict[str, Any]:
            hangs.set()
            may_end.wait(SECONDS)
            return {}

        self.owner.status = hang  # type: ignore[method-assign]
        with quire.connect(f"quire+unix://{socket_of(self.path)}") as other:
            busy = Call(other.status)
            busy.begin()
            assert hangs.wait(SECONDS)
            closing = Call(self.owner.close)
            closing.begin()
            address = os.path.join(self.path, "run", "address")
            eventually(lambda: not os.path.exists(address))
            asked: list[int] = []  # how many answers there were as parts of the request came

            def passes() -> bool:
                asked.append(self.proxy.answers)
                return True

            self.proxy.passes_requests = passes

            def goes_on() -> None:
                eventually(lambda: asked and self.proxy.answers > asked[0])
                may_end.set()
                busy.end()
                closing.end()
                self.has_ended = True

            self._meet(goes_on)

    def _failed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        if self.event in (OwnerEvent.SAME_OWNER, OwnerEvent.LAST_OWNER):
            kind, name = FAILING[self.request]
            real, left = getattr(kind, name), [1]

            def failing(*arguments: Any, **named: Any) -> Any:
                if left:
                    left.pop()
                    raise RuntimeError("a test")
                return real(*arguments, **named)

            monkeypatch.setattr(kind, name, failing)
            self.call.run()
            return

        def fails() -> None:
            self.machine.fails = True

        fails()
        self._meet(lambda: eventually(lambda: self.owner.failed))

    # The event

    def _meet(self, arrive: Callable[[], object]) -> None:
        """Make the call; when it has arrived, the event comes."""

        def meet() -> None:
            arrive()
            threading.Event().wait(NOT_LONG)
            if self.event is OwnerEvent.CANCELLED:
                self.errand.give_up()
            elif self.event is OwnerEvent.CLOSED:
                self.store.close()
            elif self.event is OwnerEvent.INTERRUPTED:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
            elif self.event is not OwnerEvent.LATE:
                self.change_owner()
                self.go_on()

        if self.event is OwnerEvent.INTERRUPTED:
            before = signal.signal(signal.SIGALRM, _alarm)
            meeting = Call(meet)
            try:
                meeting.begin()
                self.call.run()
            finally:
                meeting.end()
                signal.signal(signal.SIGALRM, before)
        else:
            self.call.begin()
            meet()
            self.call.end()

    def _end_owner(self) -> None:
        self.owner.close()
        self.has_ended = True

    def change_owner(self) -> None:
        """The owner ends, and there is another one, or not."""
        if self.event is not OwnerEvent.SAME_OWNER:
            self._end_owner()
        if self.event is OwnerEvent.NEXT_OWNER:
            self.owner = self._open()
            self.has_ended = False

    def go_on(self) -> None:
        """The connections end, and whoever is there is reached."""
        self.env.may_own = self.event is OwnerEvent.OWN
        self.proxy.begin_anew()

    # The outcome

    def check(self, action: RequestAction, done: bool) -> None:
        """The client has done what the table says, and nothing else has happened."""
        error = self.call.error
        expected, count = self._expected(action, done)
        assert error is None if expected is None else isinstance(error, expected), repr(error)
        assert expected is not ConnectionLost or type(error) is expected
        if action is RequestAction.ANSWER and not self.owner.failed:
            words = "closed the store" if self.progress is RequestProgress.REFUSED else "a test"
            assert words in str(error)
        if self.owner.failed:  # the outcome is known when the store has been opened again
            self._end_owner()
            counts = (
                [0, 1] if action in (RequestAction.ANSWER, RequestAction.INTERRUPT) else [count]
            )
        else:
            counts = [count]
        if self.kind.is_of_transaction and self.request is not Request.PREPARE:
            self.store.close()  # what is open ends with it
        elif self.event is OwnerEvent.OWN:
            eventually(lambda: self.store.role == "owner")
            assert self.request in AT_OWNER or self.kind.effect(self.store) in counts
            return
        self.proxy.pass_all()
        if self.has_ended:
            self.owner = self._open()
        if self.request not in AT_OWNER or self.owner is self.kind.owner:
            eventually(lambda: self.kind.effect(self.owner) in counts, LONG)

    def _expected(
        self, action: RequestAction, done: bool
    ) -> tuple[type[BaseException] | None, int]:
        """Return the type of the error, and how often the request takes effect."""
        has_effect = self.request not in (*WITHOUT_EFFECT, Request.ROLLBACK)
        if action is RequestAction.RETURN:
            return None, 0
        if action is RequestAction.REPEAT:
            return None, int(has_effect)
        if action is RequestAction.ANSWER:
            return QuireError, 0
        if action in (RequestAction.LOOK_UP, RequestAction.LOOK_FOR):
            if done or (action is RequestAction.LOOK_UP and self.request not in ENDINGS):
                return None, 1
            return ConnectionLost if action is RequestAction.LOOK_UP else OutcomeUnknown, 0
        took_effect = (
            done and has_effect and self.request is not Request.GET
        )  # it has not committed
        return ERRORS[action], int(took_effect)


def _alarm(number: int, frame: FrameType | None) -> None:
    raise Alarm


# The tests ------------------------------------------------------------------------------------


def cases() -> Iterator[Any]:
    """Yield each cell that there is; what is sent twice: before and after it is done."""
    for cell, action in cells().items():
        if not isinstance(action, RequestAction) or cell[2] is OwnerEvent.FORKED:
            continue
        for done in (False, True) if cell[1] is RequestProgress.SENT else (False,):
            names = "-".join(each.name for each in cell)
            yield pytest.param(cell, action, done, id=names + "-done" * done)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with queues, one of which has a message."""
    path = tmp_path_factory.mktemp("begun") / "store"
    with quire.open(path, segment_bytes=SEGMENT_BYTES, share=False) as store:
        store.create_queue("work", dedup_seconds=600)
        store.create_queue("empty")
        store.create_queue("filled")
        store.put("filled", b"1")
    return path


@pytest.fixture
def stage(tmp_path: Path, begun: Path, cell: Cell, limits: Limits) -> Iterator[Stage]:
    """All that a cell needs."""
    found = Stage(tmp_path, begun, cell, limits)
    yield found
    found.close()


@pytest.mark.promise(12)
@pytest.mark.cases(12)
@pytest.mark.parametrize(("cell", "action", "done"), list(cases()))
def test_a_cell(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, cell: Cell, action: RequestAction, *, done: bool
) -> None:
    """The client does what the table says, and the request takes effect as often as that says."""
    stage.play(done, monkeypatch)
    stage.check(action, done)


FORKING: Final = """
import os, signal, sys
import quire
from quire.remote.client.request_outcomes import Request
from tests.remote.test_request_outcomes import KINDS

store = quire.open(sys.argv[1])
assert store.role == "joined"
for request in Request:
    kind = KINDS[request](store, store, large=False, fresh=False)
    process = os.fork()
    if not process:
        signal.alarm(100)
        try:
            kind.call()
            print("returned", flush=True)
        except quire.StoreClosed as error:
            print(error, flush=True)
        os._exit(0)
    os.waitpid(process, 0)
    print(request.name, kind.effect(store), flush=True)
    kind.end()
store.close()
"""


def test_the_cells_of_the_child_of_a_fork(begun: Path, tmp_path: Path) -> None:
    """It is told that the store is its parent's, and nothing it calls takes effect."""
    path = str(tmp_path / "store")
    shutil.copytree(begun, path)
    with quire.open(path, segment_bytes=SEGMENT_BYTES), child(FORKING, path) as process:
        for request in Request:
            line = process.line()
            action = cells()[request, RequestProgress.UNSENT, OwnerEvent.FORKED]
            assert line == "returned" if action is RequestAction.RETURN else "was forked" in line
            assert process.line() == f"{request.name} 0"
        assert process.wait() == 0


def test_the_table_is_total() -> None:
    """Each cell has an action or a reason why it cannot be, and no two rows have it."""
    assert cells().keys() == set(product(Request, RequestProgress, OwnerEvent))
    rows = [set(product(requests, progress)) for requests, progress, _ in ROWS]
    assert sum(map(len, rows)) == len(set().union(*rows))
    reasons = [set(product(*none[:3])) for none in IMPOSSIBLE]
    assert sum(map(len, reasons)) == len(set().union(*reasons))


def test_who_does_not_wait_for_an_owner_does_the_same_whoever_that_is() -> None:
    """So what a client does that does not look whether there is one is what the table says."""
    found = (OwnerEvent.NEXT_OWNER, OwnerEvent.OWN, OwnerEvent.SAME_OWNER, OwnerEvent.NO_OWNER)
    for request, progress in product(Request, RequestProgress):
        if not waits_for_owner(request, progress):
            actions = {cells()[request, progress, event] for event in found}
            assert len({each for each in actions if isinstance(each, RequestAction)}) <= 1


def test_nothing_is_raised_as_lost_that_may_have_taken_effect() -> None:
    """OU1, in the table: but for what has an effect by another request only."""
    for (request, progress, _), action in cells().items():
        if progress is RequestProgress.SENT and action is RequestAction.CONNECTION_LOST:
            assert request in (*WITHOUT_EFFECT, Request.GET)


@pytest.mark.parametrize(
    "cell", [(Request.REPEATABLE, RequestProgress.SENT, OwnerEvent.NEXT_OWNER)]
)
def test_a_call_that_was_sent_before_may_have_taken_effect(stage: Stage) -> None:
    """OU1: it was, and did; the next owner refuses it, and then the store object is closed."""
    answers: list[int] = []

    def refuse(*_: object, **__: object) -> Any:
        answers.append(stage.proxy.answers)
        raise StoreClosed("a test")

    stage.proxy.passes_answers = lambda: not stage.kind.took_effect()
    stage.call.begin()
    assert stage.proxy.arrived.wait(LONG)
    stage.change_owner()
    stage.owner.alter_queue = refuse  # type: ignore[method-assign]
    stage.go_on()
    eventually(lambda: answers and stage.proxy.answers > answers[0], LONG)
    threading.Event().wait(5 * NOT_LONG)
    stage.store.close()
    stage.call.end()
    assert type(stage.call.error) is OutcomeUnknown
    assert stage.kind.effect(stage.owner) == 1
