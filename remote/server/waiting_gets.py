"""Gets that found nothing and wait at the owner: requests put aside, which take no thread.

All that wait for one source stand in a line, in the order in which they came, and the line alone
is registered with the store. Once something may be there it is woken, and its first get is tried.

- WG1: a put wakes one get. The next of the line is tried only if, after the first one's try, there
  may be something still; else the line is registered again.
- WG2: a wake-up is the line's, not a get's: where the get whose turn it is goes (its time is over,
  its client or its transaction has ended), the next one is tried. No arrival is missed: a line is
  registered, woken, or being tried, as long as a get stands in it.
- WG3: a transaction that may get what others may not (the next message of its ordered groups, or of
  an exclusive subscription) has a line of its own for the source.
- WG4: of a line whose first get is tried by another thread nobody else is tried meanwhile.
- WG5: `turn` takes so many steps at most, line by line, so that whoever wakes many gets keeps
  nobody else waiting; the other steps are taken by the next turns.
- One thread uses all of it, the server's own. The store calls back from any: what that asks for is
  posted to the thread.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, Final, Protocol

from quire.limits import FOREVER_SECONDS
from quire.remote.access.use_limits import WAITING_GETS
from quire.remote.limits import STALE_TIMES

Withdraw = Callable[[], None]
Register = Callable[[str, Callable[[], None], object], Withdraw | None]


class AwaitingTransaction(Protocol):
    """A transaction, as far as a get of it waits without a thread."""

    def when_ended(self, callback: Callable[[], None]) -> bool:
        """Call this, once, when others end it. False: it has ended."""

    def forget_end(self) -> None:
        """Do not call that any more."""

    def own_taker(self, source: str) -> object | None:
        """Return what stands for it where it may get what others may not; else None."""


class WaitingGet:
    """A get that found nothing: how it is tried again, and answered."""

    __slots__ = (
        "encode", "is_heavy", "is_late", "is_over", "line", "nothing", "requester", "seconds",
        "source", "stream", "take", "transaction",
    )  # fmt: skip

    def __init__(
        self,
        stream: int,
        transaction: AwaitingTransaction,
        source: object,
        seconds: float,
        take: Callable[[], Any],
        encode: Callable[[Any], Any],
        nothing: Any = None,
        *,
        is_heavy: bool = False,
    ) -> None:
        """`source`: its text is its name at the moment, so it may be called otherwise later.

        `take`: the get, without waiting. `encode`: makes the answer of what it finds.
        `seconds`: how long it waits. `nothing`: what it found. `is_heavy`: another thread tries it.
        """
        self.stream: Final = stream  # of its connection
        self.transaction: Final = transaction
        self.source: Final = source
        self.seconds: Final = seconds
        self.take: Final = take
        self.encode: Final = encode
        self.nothing: Final = nothing
        self.is_heavy: Final = is_heavy
        self.requester: Any = None  # whoever is answered
        self.line: GetLine | None = None
        self.is_late = False  # its time is over, while another thread tries it
        self.is_over = False  # it is answered, or nobody wants it any more


class GetLine:
    """The gets that wait for a source, in the order in which they came.

    It is registered with the store, or woken, or its first get is being tried (WG2).
    """

    __slots__ = ("gets", "key", "trying", "withdraw")

    def __init__(self, key: tuple[object, object]) -> None:
        self.key: Final = key  # the source, and the taker that has the line alone (WG3)
        self.gets: OrderedDict[WaitingGet, None] = OrderedDict()
        self.withdraw: Withdraw | None = None  # while it is registered
        self.trying: WaitingGet | None = None


class GetOutcome(Enum):
    """The outcome of a try."""

    ANSWERED = auto()  # by what was found, or by an error; it may have left
    NOTHING = auto()
    ELSEWHERE = auto()  # another thread tries it, and `WaitingGets.tried` is called then


class WaitingGets:
    """The gets that wait, their lines, and their times. For one thread, but for `all`."""

    def __init__(
        self,
        register: Register,
        attempt: Callable[[WaitingGet], GetOutcome],
        end: Callable[[WaitingGet], None],
        post: Callable[[Callable[[], None]], None],
        monotonic: Callable[[], float],
    ) -> None:
        """`register`: as `Integration.when_ready` with a taker; None: there may be something now.

        `end`: answers a get that waits in vain: its time is over, or its transaction has ended.
        `post`: has the one thread do something, called by any.
        """
        self._register = register
        self._attempt = attempt
        self._end = end
        self._post = post
        self._monotonic = monotonic
        self._lines: dict[tuple[object, object], GetLine] = {}
        self._woken: deque[GetLine] = deque()
        self._gets: dict[WaitingGet, None] = {}
        self._times: list[tuple[float, int, WaitingGet]] = []  # a heap, with some that are over
        self._numbers = count()
        self.tries = 0  # of gets that had waited

    def __len__(self) -> int:
        return len(self._gets)

    def all(self) -> list[WaitingGet]:
        """All that wait; any thread may ask."""
        return list(self._gets)

    def add(self, get: WaitingGet) -> None:
        """Have a get wait that has found nothing. Raises LimitReached if too many wait."""
        get.requester.account.take(WAITING_GETS)
        self._gets[get] = None
        if get.seconds < FOREVER_SECONDS:
            heappush(self._times, (self._monotonic() + get.seconds, next(self._numbers), get))
        self._line_up(get)
        self._await_end(get)

    def leave(self, get: WaitingGet) -> None:
        """Take a get out that is answered, or that nobody wants; its line goes on (WG2)."""
        if get.is_over:
            return
        get.is_over = True
        get.requester.account.give_back(WAITING_GETS)
        get.transaction.forget_end()
        del self._gets[get]
        self._step_out(get)
        if len(self._times) > STALE_TIMES + 2 * len(self._gets):
            self._times = [row for row in self._times if not row[2].is_over]
            heapify(self._times)

    def tried(self, get: WaitingGet, *, is_answered: bool) -> None:
        """Another thread has tried the get (WG4)."""
        line = get.line
        assert line is not None
        assert line.trying is get
        self._tried(line, get, is_answered=is_answered)

    def _tried(self, line: GetLine, get: WaitingGet, *, is_answered: bool) -> None:
        line.trying = None
        if is_answered:
            self.leave(get)
        elif get.is_late:
            self._end_wait(get)
        else:
            self._await_end(get)
        self._rearm(line)

    def turn(self, steps: int) -> bool:
        """Take so many steps at most (WG5): try woken gets, end those whose time is over.

        True: there is more to do.
        """
        now = self._monotonic() if self._times else 0.0
        while steps > 0:
            is_idle = True
            if self._woken:
                is_idle = False
                steps -= self._try_first(self._woken.popleft())
            if self._times and (self._times[0][2].is_over or self._times[0][0] <= now):
                is_idle = False
                get = heappop(self._times)[2]
                if not get.is_over:
                    steps -= 1
                    self._pass_time(get)
            if is_idle:
                return False
        return True

    def next_time(self) -> float:
        """Seconds until the time of a get is over; infinite: there is none."""
        while self._times and self._times[0][2].is_over:
            heappop(self._times)
        return self._times[0][0] - self._monotonic() if self._times else math.inf

    # Lines

    def _line_up(self, get: WaitingGet) -> None:
        try:
            taker = get.transaction.own_taker(str(get.source))
        except Exception:  # noqa: BLE001 its try finds out why
            taker = None
        key = get.source, taker
        line = self._lines.get(key)
        is_new = line is None
        if line is None:
            line = self._lines[key] = GetLine(key)
        get.line = line
        line.gets[get] = None
        if is_new:
            self._rearm(line)

    def _step_out(self, get: WaitingGet) -> None:
        line, get.line = get.line, None
        assert line is not None
        del line.gets[get]
        if not line.gets:
            del self._lines[line.key]
            if line.withdraw is not None:
                line.withdraw()

    def _rearm(self, line: GetLine) -> None:
        """Register a line that is neither registered nor woken; wake it if there may be something.

        One in which nobody stands any more is forgotten.
        """
        if not line.gets:
            return
        source, taker = line.key
        wake = partial(self._post, partial(self._wake, line))
        try:
            line.withdraw = self._register(str(source), wake, taker)
        except Exception:  # noqa: BLE001 its gets find out why
            line.withdraw = None
        if line.withdraw is None:
            self._woken.append(line)

    def _wake(self, line: GetLine) -> None:
        """Wake a line: the store says that there may be something."""
        line.withdraw = None
        self._woken.append(line)

    def _try_first(self, line: GetLine) -> bool:
        """Try the first get of a line that was woken; return True if there is one (WG1)."""
        if not line.gets:
            return False
        get = next(iter(line.gets))
        line.trying = get
        self.tries += 1
        get.transaction.forget_end()  # the try learns of it, and it may be answered by that
        outcome = self._attempt(get)
        if outcome is not GetOutcome.ELSEWHERE:
            self._tried(line, get, is_answered=outcome is GetOutcome.ANSWERED)
        return True

    # Ends

    def _await_end(self, get: WaitingGet) -> None:
        """Have the end of its transaction noticed. Where that was ended it learns why, at once."""
        notice = partial(self._post, partial(self._notice_end, get))
        if not get.transaction.when_ended(notice):
            self._end_wait(get)

    def _notice_end(self, get: WaitingGet) -> None:
        """Its transaction was ended; if it is being tried it finds that out."""
        if not get.is_over and get.line is not None and get.line.trying is not get:
            self._await_end(get)

    def _pass_time(self, get: WaitingGet) -> None:
        """Its time is over."""
        if get.line is not None and get.line.trying is get:
            get.is_late = True
        else:
            self._end_wait(get)

    def _end_wait(self, get: WaitingGet) -> None:
        self.leave(get)
        self._end(get)
