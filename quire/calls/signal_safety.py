"""Calls that signals do not interrupt half way, and that nobody enters a second time.

A signal's handler runs in the main thread, between any two steps of whatever that does, and may
raise: Ctrl-C, a job runner's alarm. A finaliser runs in any thread whenever an object goes; a
logging handler, a warnings filter, code of a user is called in the midst of a call. Each may call
the store again, in a thread that holds a lock, or leads a group of commits.

- UI1: between `begin` and `end` no handler of `SIGNALS` runs in the main thread, but while it waits
  (`waiting`). What came meanwhile runs at the end, once for each signal, in the order in which they
  came, and what it raises leaves from there: the call is done, and its outcome stands.
- UI2: a wait, for a message, for room or for an owner's answer, lets handlers run, first those of
  signals that came before. What a handler raises ends the wait, and the caller steps back.
- UI3: a call that a thread makes inside one of its own raises `ReentrantCall`, at once. While the
  outer one waits, or has others done within it (`nested`), it is carried out.
- UI4: outside of calls each signal has the handler that the program gave it. One that is
  changed meanwhile stays as it was changed. Should an interrupt come while handlers are put back,
  what stands in for one calls it, and the next call puts it back.
- UI5: a child that is forked within another thread's call has the program's handlers.
- UI6: a call begins only where the stack has room for all that it does (`probe`). Where Python's
  recursion limit is near it raises RecursionError at once, and nothing of it is done. Whoever may
  begin a transaction has the room to end it there.
- UI7: a wait that lets other calls be made in its thread (`suspended`, for greenlets) takes its
  call out of the thread: no handler is held back for it, and no call is within it. When the wait
  is over, the thread is in its call again.

Without a handler in Python there is nothing to hold back: a signal that is ignored, or ends the
process, does so. A stand-in takes the handler's place for the call: CPython looks up a signal's
handler when it runs it. To block signals of the thread would not do, as another thread is given
them then, and has the handler run in this one.

Which signals have a handler is looked at when a call begins. A put, a commit or a rollback, which
take a few microseconds, look at those that had one and at four that programs set most, some around
single calls; whatever has changed, all of `SIGNALS` are looked at. At all signals that there are a
store looks when it is opened, and in its maintenance (`look_around`): a handler of another one is
held back from then on.

A put to or a get from an open transaction, which takes two microseconds, only notes its thread
(UI3): one step makes it whole, and whatever interrupts it comes before or after that. The rollback
of one that has put a few messages and got none notes its thread, too: what interrupts it leaves
from there once it is done.
"""

from __future__ import annotations

import math
import sys
import threading
from _thread import get_ident
from collections import deque
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from signal import Signals, valid_signals
from types import FrameType
from typing import Any, Final, ParamSpec, Protocol, TypeVar, cast

from quire.env import after_fork
from quire.errors import ReentrantCall
from quire.libraries import late_imports
from quire.limits import CALL_LEVELS, PUT_LEVELS

P = ParamSpec("P")
R = TypeVar("R")
SignalHandler = Callable[[int, FrameType | None], Any]

# Those by which programs are told to stop, or to look up. Looking at one takes 20 to 50 ns.
SIGNALS: Final = (
    Signals.SIGINT, Signals.SIGTERM, Signals.SIGALRM, Signals.SIGUSR1, Signals.SIGUSR2,
    Signals.SIGHUP, Signals.SIGQUIT, Signals.SIGCHLD, Signals.SIGVTALRM, Signals.SIGPROF,
    Signals.SIGXCPU,
)  # fmt: skip
_ALARM, _TERM = int(Signals.SIGALRM), int(Signals.SIGTERM)
_USR1, _USR2 = int(Signals.SIGUSR1), int(Signals.SIGUSR2)

# Not those of `signal`, which make enumerations of what they are given, and take ten times as long.
_signal: Final = import_module("_signal")
getsignal: Final[Callable[[int], Any]] = _signal.getsignal
raise_signal: Final[Callable[[int], None]] = _signal.raise_signal
set_handler: Final[Callable[[int, Any], Any]] = _signal.signal
_ALL: Final = tuple(sorted(map(int, valid_signals() - {Signals.SIGKILL, Signals.SIGSTOP})))

inside: Final[dict[int, None]] = {}
"""The threads that are in a call, by their idents. Statements without a call change it: so no
handler can come in between."""


def _levels(number: int) -> tuple[Any, ...]:
    """Looking for None in these classes takes so many levels of the stack, 2 ns each."""
    found: tuple[Any, ...] = (type(None),)
    for _ in range(number - 1):
        found = (found,)
    return found


CALL_ROOM: Final = _levels(CALL_LEVELS)
PUT_ROOM: Final = _levels(PUT_LEVELS)

if sys.version_info >= (3, 12):  # it counts calls of Python by themselves

    def probe(nothing: None, room: tuple[Any, ...]) -> object:
        """Raise RecursionError where the stack has no such room (UI6)."""
        if sys._getframemodulename(sys.getrecursionlimit() - CALL_LEVELS) is not None:
            raise RecursionError(
                "the stack has no room for a call of Quire, of which nothing is done"
            )
        return isinstance(nothing, room)

else:
    probe = isinstance


def reentrant() -> ReentrantCall:
    """For a call that is made inside another one (UI3)."""
    return ReentrantCall(
        "this thread is in a call of Quire already, and would wait for itself: a finaliser, a "
        "signal handler, a logging handler or a callback was run in its midst; let it note what "
        "is to be done, and do that after the call, or in another thread"
    )


class _Main:
    """The main thread's signals. Only it comes here, but for `ident` and `look_around`."""

    __slots__ = (
        "alarm", "depth", "found", "handler", "handlers", "ident", "is_usual", "nested", "number",
        "pending", "program", "term", "usr1", "usr2", "waits", "watched",
    )  # fmt: skip

    def __init__(self) -> None:
        self.ident = threading.main_thread().ident
        self.depth = 0  # of calls, one in another
        self.waits = 0  # the depth at which one waits: there, handlers run
        self.nested = 0  # how often one within another lets calls in
        self.pending: list[int] = []
        self.watched = tuple(map(int, SIGNALS))
        self.found: tuple[Any, ...] = ()  # the handlers of these at the latest look
        self.program: list[tuple[int, SignalHandler]] = []  # those of them that are functions
        self.handlers: dict[int, SignalHandler] = {}  # what a stand-in calls
        self.is_usual = False  # there is one alone, that of Ctrl-C as a rule:
        self.number, self.handler = 0, cast("SignalHandler", None)
        # Handlers of the commonest at the latest look; this itself, where all are to be looked at.
        self.alarm: object = self
        self.term: object = None
        self.usr1: object = None
        self.usr2: object = None

    def enter(self) -> None:
        """A call begins: have stand-ins take the places of handlers."""
        if self.depth > self.waits and not self.nested:
            self.depth = self.waits  # of a call whose `end` was interrupted
        if not self.depth:
            try:
                watched = self.watched
                found = tuple(map(getsignal, watched))
                if found != self.found or self.alarm is self:
                    self._look(watched, found)
                for number, _ in self.program:
                    set_handler(number, _stand_in)
            except BaseException as error:
                if isinstance(error, ValueError) and "main thread" in str(error):
                    self.ident = None  # of another interpreter, which is given no signals
                    self.program = []
                    return
                self.put_back()
                raise
        self.depth += 1

    def _look(self, watched: tuple[int, ...], found: tuple[Any, ...]) -> None:
        self.is_usual = False
        program = []
        for number, handler in zip(watched, found, strict=True):
            if handler is _stand_in:  # left behind (UI4)
                program.append((number, self.handlers[number]))
            elif callable(handler):
                self.handlers[number] = handler
                program.append((number, handler))
        self.program = program
        self.found = found
        self.alarm, self.term = getsignal(_ALARM), getsignal(_TERM)
        self.usr1, self.usr2 = getsignal(_USR1), getsignal(_USR2)
        if len(program) == 1:
            self.number, self.handler = program[0]
            self.is_usual = _stand_in not in found  # none is left behind

    def found_another(self, before: object) -> None:
        """A stand-in has taken the place of another handler than the usual one, or of none."""
        came = self.pending[:]  # just now: that is for `before`
        self.pending.clear()
        self.depth = 0
        self.alarm = self
        set_handler(self.number, before)
        for number in came:
            raise_signal(number)
        self.enter()

    def put_back(self) -> None:
        """Give the handlers their places again; may be called again."""
        for number, handler in self.program:
            before = set_handler(number, handler)
            if before is not _stand_in and before is not None:  # it was changed, or is in place
                set_handler(number, before)

    def leave(self) -> None:
        if self.depth <= 1:
            try:
                self.put_back()
            except BaseException:
                self.put_back()
                raise
            finally:
                self.depth = 0
                if self.pending:
                    self.run_pending()
        else:  # by a handler, in a wait, or nested
            self.depth -= 1
            if self.pending and self.depth <= self.waits:
                self.run_pending()

    def take_up(self, state: tuple[int, int, int]) -> None:
        """Be in a call again that was suspended (UI7)."""
        self.depth = self.waits = self.nested = 0
        try:
            self.enter()
        except BaseException:  # a handler has raised, and the call goes on all the same
            self.enter()
            raise
        finally:
            self.depth, self.waits, self.nested = state

    def run_pending(self) -> None:
        """The handlers of what came. If one raises, the others run all the same."""
        while self.pending:
            number = self.pending.pop(0)
            try:
                self.handlers[number](number, sys._getframe())
            except BaseException:
                self.run_pending()
                raise


_main: Final = _Main()


def _stand_in(number: int, frame: FrameType | None) -> None:
    """Note a signal, or run its handler if there is no call that it would come into."""
    if _main.depth > _main.waits:
        if number not in _main.pending:
            _main.pending.append(number)
    else:
        _main.handlers[number](number, frame)


def begin() -> int:
    """A call begins, in this thread. Raises ReentrantCall.

    It ends by `del inside[thread]`, with what is returned, and then `end`: in a `finally`, where
    that statement comes before anything that a handler could interrupt.
    """
    thread = get_ident()
    if thread in inside:
        raise reentrant()
    probe(None, CALL_ROOM)
    if thread == _main.ident:
        _main.enter()
    inside[thread] = None
    return thread


def begin_short() -> int:
    """A call that takes a few microseconds begins. Raises ReentrantCall."""
    thread = get_ident()
    if thread in inside:
        raise reentrant()
    probe(None, CALL_ROOM)
    main = _main
    if thread == main.ident:
        if (
            main.depth
            or not main.is_usual
            or getsignal(_ALARM) is not main.alarm
            or getsignal(_TERM) is not main.term
            or getsignal(_USR1) is not main.usr1
            or getsignal(_USR2) is not main.usr2
        ):
            main.enter()
        else:
            main.depth = 1  # should the next step be interrupted, the next call sets it right
            before = set_handler(main.number, _stand_in)
            if before is not main.handler:
                main.found_another(before)
    inside[thread] = None
    return thread


def end(thread: int) -> None:
    """The call has ended; handlers run that waited for this."""
    main = _main
    if thread == main.ident:
        if main.is_usual and main.depth == 1:
            try:
                before = set_handler(main.number, main.handler)
                if before is not _stand_in:  # it was changed meanwhile
                    set_handler(main.number, before)
            finally:
                main.depth = 0
                if main.pending:
                    main.run_pending()
        else:
            main.leave()


def look_around() -> None:
    """See which signals have handlers: any signal, in any thread."""
    main = _main
    more = [number for number in _ALL if callable(getsignal(number)) and number not in main.watched]
    if more:
        main.watched += tuple(more)
    main.alarm = main


def call(method: Callable[P, R]) -> Callable[P, R]:
    """A method that is a whole call."""

    @wraps(method)
    def whole(*args: P.args, **kwargs: P.kwargs) -> R:
        thread = begin()
        try:
            return method(*args, **kwargs)
        finally:
            del inside[thread]
            end(thread)

    return whole


def undo_on_interrupt(undo: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A method that is a whole call and gives what it takes away elsewhere.

    Where an interrupt at its end keeps that from the caller, the object's method of this name is
    called.
    """

    def made(method: Callable[P, R]) -> Callable[P, R]:
        @wraps(method)
        def whole(*args: P.args, **kwargs: P.kwargs) -> R:
            result = None
            thread = begin()
            try:
                result = method(*args, **kwargs)
                return result
            finally:
                del inside[thread]
                try:
                    end(thread)
                except BaseException:
                    if result:
                        defer_signals(getattr(args[0], undo))
                    raise

        return whole

    return made


def look(method: Callable[P, R]) -> Callable[P, R]:
    """A method that changes nothing and may take long: handlers run in it (UI3 holds)."""

    @wraps(method)
    def whole(*args: P.args, **kwargs: P.kwargs) -> R:
        thread = get_ident()
        if thread in inside:
            raise reentrant()
        inside[thread] = None
        try:
            return method(*args, **kwargs)
        finally:
            del inside[thread]

    return whole


def as_call(action: Callable[[], R]) -> R:
    """Do it as a whole call."""
    thread = begin()
    try:
        return action()
    finally:
        del inside[thread]
        end(thread)


def defer_signals(action: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Do the action, in a call or not, while handlers wait (UI1)."""
    if not hold():
        return action(*args, **kwargs)
    try:
        return action(*args, **kwargs)
    finally:
        let_go()


def hold() -> bool:
    """Have handlers wait until `let_go`; False: none runs in this thread anyway."""
    thread = get_ident()
    main = _main
    if thread != main.ident:
        return False
    if main.depth and thread in inside:
        main.depth += 1
    else:
        main.enter()
    main.nested += 1
    return True


def let_go() -> None:
    """Run the handlers that have waited since `hold`."""
    _main.nested -= 1
    _main.leave()


def made(action: Callable[[], R], undo: Callable[[R], None]) -> R:
    """Return the action's result; undo it where an interrupt keeps it from the caller."""
    found: list[R] = []

    def make() -> None:
        found.append(action())

    try:
        defer_signals(make)
    except BaseException:
        for one in found:
            defer_signals(undo, one)
        raise
    return found[0]


def waiting(wait: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Do what waits, with no lock of the engine: handlers run, and calls are let in (UI2, UI3)."""
    thread = get_ident()
    is_inside = thread in inside
    main = _main
    if thread != main.ident:
        if not is_inside:
            return wait(*args, **kwargs)
        try:
            del inside[thread]
            return wait(*args, **kwargs)
        finally:
            inside[thread] = None
    waits, nests = main.waits, main.nested
    try:
        if is_inside:
            del inside[thread]
        main.waits, main.nested = main.depth, 0
        if main.pending:
            main.run_pending()
        return wait(*args, **kwargs)
    finally:
        main.waits, main.nested = waits, nests
        if is_inside:
            inside[thread] = None


def suspended(switch: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Do what lets other calls be made in this thread before it returns (UI7)."""
    thread = get_ident()
    is_inside = thread in inside
    main = _main
    state = main.depth, main.waits, main.nested
    is_held = thread == main.ident and state[0] > 0
    try:
        if is_inside:
            del inside[thread]
        if is_held:
            main.put_back()
            main.depth = main.waits = main.nested = 0
        return switch(*args, **kwargs)
    finally:
        try:
            if is_held:
                main.take_up(state)
        finally:
            if is_inside:
                inside[thread] = None


def allow_reentry(action: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Do what makes calls of its own within a call."""
    thread = get_ident()
    if thread not in inside:
        return action(*args, **kwargs)
    is_main = thread == _main.ident
    try:
        del inside[thread]
        if is_main:
            _main.nested += 1
        return action(*args, **kwargs)
    finally:
        inside[thread] = None
        if is_main:
            _main.nested -= 1


class OwnLock:
    """A lock that a thread, or a greenlet, may hold while it waits: it refuses its holder (UI3)."""

    __slots__ = ("_holder", "_lock", "_queue")

    def __init__(self, lock: threading.Lock, holder: object = None) -> None:
        """`holder`: who holds the lock already."""
        self._lock = lock
        self._holder = holder
        self._queue: deque[Callable[[], object]] | None = None  # of greenlets that wait for it

    def acquire(self, blocking: bool = True) -> bool:
        if self._lock.acquire(False):
            return True
        if blocking:
            self._wait()
        return blocking

    def release(self) -> None:
        self._lock.release()
        if self._queue:
            self._wake_next()

    def __enter__(self) -> None:
        if not self._lock.acquire(False):
            self._wait()
        self._holder = _get_holder()

    def __exit__(self, *exception: object) -> None:
        self._holder = None
        self._lock.release()
        if self._queue:
            self._wake_next()

    def _wait(self) -> None:
        if self._holder == _get_holder():
            raise reentrant()
        call = _get_greenlet()
        if call is None:
            self._lock.acquire()
            return
        queue = self._queue = deque() if self._queue is None else self._queue
        wake = call.wake
        while True:
            queue.append(wake)  # first: who lets go of the lock from here on wakes it
            try:
                if self._lock.acquire(False):
                    return
                call.suspend()
            except BaseException:  # it leaves, and may be the one that was woken
                self._wake_next()
                raise
            finally:
                if wake in queue:
                    queue.remove(wake)

    def _wake_next(self) -> None:
        """Have one who waits try again; who comes first has the lock."""
        try:
            wake = cast("deque[Callable[[], object]]", self._queue).popleft()
        except IndexError:  # another has woken it
            return
        wake()


class SuspendableCall(Protocol):
    """A call in a greenlet, many of which wait in one thread."""

    def suspend(self, seconds: float = math.inf) -> None:
        """Let others run until somebody wakes it, or for so many seconds."""

    def wake(self) -> None:
        """Have it go on, by any thread."""


_get_holder: Callable[[], object] = get_ident  # who holds an `OwnLock`


def _no_greenlet() -> None:
    """Return None: calls are made by threads."""


_get_greenlet: Callable[[], SuspendableCall | None] = _no_greenlet  # in which this call is made


def use_greenlets(get_greenlet: Callable[[], SuspendableCall | None]) -> None:
    """Ask from now on whether a call is made in a greenlet, which suspends where a thread waits."""
    global _get_greenlet, _get_holder

    def get_holder() -> object:
        call = get_greenlet()
        return get_ident() if call is None else call

    _get_greenlet, _get_holder = get_greenlet, get_holder


def _in_child(parent: int) -> None:
    """Drop in a forked child what other threads' calls have left (UI5)."""
    thread = get_ident()
    for other in list(inside):
        if other != thread:
            del inside[other]
    if thread != _main.ident and _main.depth:
        _main.depth = _main.waits = _main.nested = 0
        _main.pending.clear()
        _main.put_back()
    _main.ident = thread


after_fork(_in_child)
late_imports.hold_signals_by(hold, let_go)
