"""Listeners of a queue: a place in it, the loop over notices, or the thread that calls back.

- A listener is a place, which goes on by `Listeners.poll_notices`; nothing is queued for it
  anywhere. Between two looks it waits as a waiting get does: by `when_ready`, without a thread.
- LI2: the place of one with a name is a value of the state `STATE`, set by a transaction once a
  notice is done with. It is not synced by itself: after a power failure some may be told again.
  Of two that go on under one name the one that began later stays: the other finds the place
  changed, and ends.
- A callback under a name that raises is called again with the same notice, after longer and
  longer waits. After `NOTICE_ATTEMPTS` calls its listener ends with the error; its place stays.
- LI3: one thread calls all callbacks of a store object, and holds nothing of the store while it
  waits. It ends with its last listener, or with the store object.
"""

from __future__ import annotations

import json
import math
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, Self

from msgspec.structs import replace

from quire.arguments import check_flag, check_name, check_source, check_wait
from quire.callbacks import check_done, check_function, check_takes
from quire.calls.errand import Errand
from quire.calls.signal_safety import defer_signals, made
from quire.calls.wake_up import Thread, WakeUp
from quire.env import OsEnv
from quire.env.interpreter import Lock
from quire.errors import (
    ConnectionLost,
    InvalidArgument,
    OutcomeUnknown,
    StateConflict,
    StoreClosed,
    StoreCorrupt,
)
from quire.limits import (
    FOREVER_SECONDS,
    LISTENER_POLL_SECONDS,
    NOTICE_ATTEMPTS,
    NOTICE_IDS,
    NOTICE_RETRY_SECONDS,
    OWNERS_LOST,
)
from quire.loggers import log_failure, logger
from quire.moments import Duration
from quire.reports.info import ListenerInfo, Notice, QueueInfo
from quire.selectors.template import ANY, SelectorOrTemplate, Template

from .awaited import PUT, REMOVAL, Awaited, check_group, check_max_ids, check_on, returns_in
from .integration import Integration
from .transaction import Transaction, TransactionSource

STATE: Final = "quire.listeners"
"""The state that keeps the places of listeners with a name."""

_ENV: Final = OsEnv()
_log: Final = logger("quire.callbacks")
_adding = Lock()


class HearingStore(Protocol):
    """`store.listeners`, as far as a listener asks it."""

    def poll_notices(
        self,
        source: str,
        position: int | None = None,
        *,
        group: int = 0,
        where: SelectorOrTemplate | None = None,
        on: Any = PUT,
        until: int | None = None,
        max_ids: int = NOTICE_IDS,
        created_us: int | None = None,
        mark: str = "",
    ) -> Notice:
        """See `Listeners`."""


class KeptStates(Protocol):
    """`store.states`, as far as a listener asks it."""

    def get(self, name: str, key: str) -> bytes | None:
        """See `States`."""


class Tells(TransactionSource[Transaction], Protocol):
    """A store, as far as one who listens has to do with it."""

    @property
    def listeners(self) -> HearingStore:
        """The calls that return notices."""

    @property
    def integration(self) -> Integration:
        """The calls that notify when there may be more."""

    @property
    def states(self) -> KeptStates:
        """The states that keep places."""

    def queue(self, name: str) -> QueueInfo:
        """One queue."""


class CallsBack(Tells, Protocol):
    """A store object, which has a thread for callbacks at most."""

    _callbacks: ListenerCallbacks | None


class ListenerRequest(NamedTuple):
    """The options of a listener."""

    source: str
    group: int
    where: SelectorOrTemplate | None
    on: str
    name: str | None
    backlog: bool
    max_ids: int

    def checked(self) -> Self:
        """Raises InvalidArgument."""
        name = None if self.name is None else check_name(self.name, "listener")
        check_source(self.source)
        check_group(self.group)
        check_flag("backlog", self.backlog)
        check_max_ids(self.max_ids)
        return self._replace(name=name, on=check_on(self.on))

    def words(self) -> str | None:
        """The condition in words, by which it is told from another one."""
        if not isinstance(self.where, Template):
            return self.where
        shown = {
            name: "(any)" if value is ANY else repr(value)
            for name, value in self.where.plain().items()
            if value is not None
        }
        return json.dumps(shown, sort_keys=True)


class ListenerPlace(NamedTuple):
    """The place of a listener with a name, as the state keeps it."""

    source: str
    on: str
    group: int
    where: str | None
    position: int
    until: int | None  # while it is told what was there before it began
    made_us: int  # when its queue was made
    holder: int  # drawn by who goes on with it
    mark: str  # see `Notice`

    def value(self) -> bytes:
        """As it is kept."""
        return json.dumps(self._asdict()).encode()

    @classmethod
    def of(cls, name: str, value: bytes) -> ListenerPlace:
        """Raises StoreCorrupt."""
        try:
            found = json.loads(value)
            return cls(**{key: found[key] for key in cls._fields})
        except (ValueError, KeyError, TypeError) as error:
            raise StoreCorrupt(
                f"listener {name!r}: what the state {STATE!r} keeps of it is not readable "
                f"({error!r}): store.listeners.remove({name!r}), and add it again"
            ) from error

    def info(self, name: str) -> ListenerInfo:
        """For users."""
        return ListenerInfo(name, self.source, self.on, self.group, self.position, self.where)


class Course:
    """The place of a listener, and how it goes on. Used by one thread at a time.

    It has no store: who goes on with it gives one.
    """

    def __init__(self, request: ListenerRequest) -> None:
        self.request = request
        self._position = 0
        self._until: int | None = None
        self._made_us: int | None = None
        self._mark = ""  # of the latest notice
        self._holder = _ENV.random_u64() if request.name is not None else 0
        self._kept: bytes | None = None  # as it is in the state
        self._doubtful: list[bytes] = []  # as it may be there, as nobody has answered

    @property
    def awaited(self) -> str:
        """The text of the wait to make when there is nothing to tell."""
        returns = None if self.request.on == REMOVAL else returns_in(self._mark)
        return str(Awaited(self.request.source, self.request.on, self._position, returns))

    def begin(self, store: Tells) -> None:
        """Find its place. Raises what `Listeners.add` raises."""
        request = self.request
        now = self._hear(store, None)
        self._position, self._made_us, self._mark = now.position, now.created_us, now.mark
        if request.backlog and request.on == PUT:
            self._position, self._until = 0, now.position
        if request.name is None:
            return
        self._kept = store.states.get(STATE, request.name)
        if self._kept is not None:
            place = ListenerPlace.of(request.name, self._kept)
            wanted = request.source, request.on, request.group, request.words()
            if place[:4] != wanted:
                raise InvalidArgument(
                    f"listener {request.name!r} is there already, for {place[:4]} and not for "
                    f"{wanted} (source, on, group, where): use another name, or "
                    f"store.listeners.remove({request.name!r})"
                )
            if place.made_us == self._made_us:
                self._position, self._until = place.position, place.until
                self._mark = place.mark
        self.keep(store)

    def look(self, store: Tells) -> Notice | None:
        """Return the next notice; None: there is none yet. The one before is done with."""
        if self.request.name is not None:
            self.keep(store)
        while True:
            until = self._until
            found = self._hear(store, self._position)
            self._position, self._mark = found.position, found.mark
            if (
                until is not None and found.on == PUT and found.position >= until
            ):  # what follows was not there yet
                self._until, found = None, replace(found, more=True)
            if found.ids or found.missed != 0:
                return found
            if not found.more:
                return None

    def _hear(self, store: Tells, position: int | None) -> Notice:
        source, group, where, on, _, _, most = self.request
        return store.listeners.poll_notices(
            source, position, group=group, where=where, on=on, until=self._until, max_ids=most,
            created_us=self._made_us, mark=self._mark,
        )  # fmt: skip

    def keep(self, store: Tells) -> None:
        """Have the store know the place, if it is another one (LI2).

        Raises StateConflict if somebody else goes on under the name.
        """
        source, group, _, on, name, _, _ = self.request
        assert name is not None
        assert self._made_us is not None
        place = ListenerPlace(
            source, on, group, self.request.words(), self._position, self._until, self._made_us,
            self._holder, self._mark,
        )  # fmt: skip
        value = place.value()
        if value == self._kept:
            return
        lost = 0
        self._doubtful.append(value)  # from now on: a signal may interrupt what follows
        while True:
            try:
                self._set(store, name, value)
            except (ConnectionLost, OutcomeUnknown) as error:
                lost += 1
                if lost > OWNERS_LOST or getattr(error, "late", False):
                    raise
            else:
                self._kept, self._doubtful = value, []
                return

    def _set(self, store: Tells, name: str, value: bytes) -> None:
        with store.transaction(durable=False) as txn:
            found = txn.get_value(STATE, name)
            if found not in (self._kept, *self._doubtful):
                raise StateConflict(
                    f"listener {name!r} was added or removed elsewhere: this one ends; add it "
                    "again where it is to go on"
                )
            txn.set_value(STATE, name, value)


class Listener:
    """One who listens: made by `store.listeners.add`. Unless it calls back an iterator of `Notice`.

    Used by one thread, but for `close`. As a `with` block it is closed at the end.
    """

    def __init__(
        self, store: Tells, course: Course, calls: ListenerCallbacks | None = None
    ) -> None:
        self._store = store if calls is None else None  # a callback keeps no store open
        self._course = course
        self._calls = calls
        self._wake = WakeUp()
        self._closed = False
        self._error: BaseException | None = None
        self._untold: Notice | None = None

    def __repr__(self) -> str:
        request = self._course.request
        return f"<Listener of {request.source}, {'closed' if self._closed else request.on}>"

    @property
    def source(self) -> str:
        """The source that it listens to."""
        return self._course.request.source

    @property
    def name(self) -> str | None:
        """Under which it is durable; None: it is not."""
        return self._course.request.name

    @property
    def closed(self) -> bool:
        """True once it has ended: by `close`, with its store, or by an error."""
        return self._closed

    @property
    def error(self) -> BaseException | None:
        """The error by which one that calls back has ended; None: it has not, or was closed."""
        return self._error

    def get(self, timeout: Duration | None = None) -> Notice | None:
        """The next notice; None if none came in so many seconds (None: for ever), or it was closed.

        With it the one before is done with. Raises InvalidArgument for one that calls back, and
        what `Listeners.poll_notices` raises; StateConflict where another one listens under its
        name.
        """
        store = self._store
        if store is None:
            raise InvalidArgument("this listener calls back: its notices are not to be got")
        seconds = check_wait(timeout)
        until = _ENV.monotonic() + seconds
        errand = Errand(until) if seconds < FOREVER_SECONDS else None
        look = partial(self._look, store)
        while not self._closed:
            found = made(look if errand is None else partial(errand.do, look), self._keep)
            if found is not None:
                return found  # no call in between, which a signal could interrupt
            left = until - _ENV.monotonic()
            if left <= 0:
                break
            self._wait(store, min(left, LISTENER_POLL_SECONDS))
        return None

    def _look(self, store: Tells) -> Notice | None:
        """Return the next notice, which is kept where a signal interrupts the caller."""
        found, self._untold = self._untold, None
        return self._course.look(store) if found is None else found

    def _keep(self, found: Notice | None) -> None:
        self._untold = found

    def _wait(self, store: Tells, seconds: float) -> None:
        await_more = partial(store.integration.when_ready, self._course.awaited, self._wake.set)
        withdraw = made(await_more, lambda withdraw: withdraw())
        try:
            if not self._closed:
                self._wake.wait(seconds)
        finally:
            withdraw()
            self._wake.clear()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Notice:
        found = self.get()
        if found is None:
            raise StopIteration
        return found

    def close(self) -> None:
        """Hear no more; twice is once. A durable registration stays: the next `add` goes on.

        Of a loop the notice that was yielded last is done with only if the loop has come for the
        next one; a callback that is under way ends.
        """
        self._closed = True  # its thread looks, should the rest be interrupted
        self._wake.set()
        if self._calls is not None:
            defer_signals(self._calls.end, self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class ListenerCallbacks:
    """The listeners of a store object that call back, and the thread that does so (LI3)."""

    def __init__(self, store: Tells) -> None:
        self._wake = WakeUp()
        self._store = weakref.ref(store, lambda _, wake=self._wake: wake.set())  # type: ignore[misc]
        self._lock = Lock()
        self._listeners: dict[Listener, _CalledBack] = {}
        self._ready: deque[Listener] = deque()
        self._thread: Thread | None = None

    def add(self, listener: Listener, callback: Callable[[Notice], object]) -> None:
        """From now on it is called."""
        with self._lock:
            self._listeners[listener] = _CalledBack(callback)
            self.tell(listener)
            if self._thread is None:
                self._thread = Thread(target=self._run, name="quire-listen")
                self._thread.start()

    def tell(self, listener: Listener) -> None:
        """There may be something for it. By any thread, and under any lock of the store."""
        self._ready.append(listener)
        self._wake.set()

    def end(self, listener: Listener) -> None:
        """It is called no more."""
        with self._lock:
            calling = self._listeners.pop(listener, None)
        if calling is not None:
            calling.withdraw()
        self._wake.set()

    def _run(self) -> None:
        due = _ENV.monotonic() + LISTENER_POLL_SECONDS
        while self._goes_on():
            again = [calling.again_at for calling in list(self._listeners.values())]
            self._wake.wait(max(0.0, min([due, *again]) - _ENV.monotonic()))
            self._wake.clear()
            if _ENV.monotonic() >= due:
                due = _ENV.monotonic() + LISTENER_POLL_SECONDS
                with self._lock:
                    self._ready.extend(self._listeners)
            self._add_due()
            for _ in range(len(self._ready)):
                listener = self._ready.popleft()
                calling, store = self._listeners.get(listener), self._store()
                if calling is not None and store is not None:
                    self._turn(store, listener, calling)
                del store

    def _add_due(self) -> None:
        """Have those called again whose function has failed, and which have waited long enough."""
        now = _ENV.monotonic()
        with self._lock:
            self._ready.extend(
                listener for listener, calling in self._listeners.items() if calling.again_at <= now
            )

    def _goes_on(self) -> bool:
        for listener in list(self._listeners):
            if listener.closed:
                self.end(listener)
        with self._lock:
            if self._listeners and self._store() is not None:
                return True
            for listener in self._listeners:
                listener._closed = True
            self._listeners.clear()
            self._thread = None
            return False

    def _turn(self, store: Tells, listener: Listener, calling: _CalledBack) -> None:
        """Look for one of them, and call if there is something."""
        calling.withdraw()
        course = listener._course
        is_named = course.request.name is not None
        if calling.again_at < math.inf and calling.again_at > _ENV.monotonic():
            return
        try:
            found = calling.failed or course.look(store)
            if found is None:
                wake = partial(self.tell, listener)
                calling.withdraw = store.integration.when_ready(course.awaited, wake)
                if listener not in self._listeners:  # it was closed meanwhile
                    calling.withdraw()
            elif listener in self._listeners:  # else it was closed meanwhile
                if not calling.call(found, again=is_named):
                    return
                self.tell(listener)
                if listener.closed and is_named:  # by its callback
                    course.keep(store)
        except BaseException as error:  # noqa: BLE001 - it has ended, and the others go on
            if not isinstance(error, StoreClosed):
                listener._error = error
                log_failure(_log, error, "a listener of %s has ended", course.request.source)
            listener._closed = True  # last: who sees it finds the rest
            self.end(listener)


class _CalledBack:
    """A callback, what withdraws that its listener waits, and the notice with which it failed."""

    def __init__(self, callback: Callable[[Notice], object]) -> None:
        self._callback = callback
        self.withdraw: Callable[[], object] = lambda: None
        self.failed: Notice | None = None
        self.again_at = math.inf  # when it is called with that again
        self._failures = 0

    def call(self, notice: Notice, *, again: bool) -> bool:
        """Call it; return True if the notice is done with. What it raises is logged.

        `again`: where it raises it is to be called again, later. It raises what it has raised at
        last when it was called `NOTICE_ATTEMPTS` times with one notice.
        """
        self.again_at = math.inf
        try:
            check_done("callback", self._callback, self._callback(notice))
        except BaseException as error:
            log_failure(_log, error, "a callback of a listener failed: %.200r", self._callback)
            if again:
                self._failures += 1
                if self._failures >= NOTICE_ATTEMPTS:
                    raise
                self.failed = notice
                self.again_at = _ENV.monotonic() + NOTICE_RETRY_SECONDS * 2 ** (self._failures - 1)
                return False
        self.failed, self._failures = None, 0
        return True


def add_listener(
    store: CallsBack, request: ListenerRequest, callback: Callable[[Notice], object] | None
) -> Listener:
    """See `Listeners.add`."""
    if callback is not None:
        check_function("callback", callback, "give a function that takes a Notice")
        check_takes("callback", callback, 1, "give a function that takes a Notice")
    course = Course(request)
    course.begin(store)
    if callback is None:
        return Listener(store, course)
    function = callback

    def begin() -> Listener:
        with _adding:
            if store._callbacks is None:
                store._callbacks = ListenerCallbacks(store)
        listener = Listener(store, course, store._callbacks)
        store._callbacks.add(listener, function)
        return listener

    return made(begin, Listener.close)  # else a signal would leave one that nobody can end


def listed(values: dict[str, bytes]) -> list[ListenerInfo]:
    """The durable registrations, of the values of `STATE`. Raises StoreCorrupt."""
    return [ListenerPlace.of(name, value).info(name) for name, value in values.items()]


def remove_place(store: Tells, name: str) -> bool:
    """Remove a durable registration; whether it was there."""
    key = check_name(name, "listener")
    while True:
        try:
            with store.transaction() as txn:
                found = txn.get_value(STATE, key)
                if found is not None:
                    txn.set_value(STATE, key, None)
        except StateConflict:  # its listener has noted its place meanwhile
            continue
        return found is not None
