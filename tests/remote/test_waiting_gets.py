"""The lines of gets that wait at the owner, against a model of messages, times and ends."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import partial

import pytest

from quire.errors import LimitReached
from quire.remote.access.use_account import UseAccount, UseAccounts
from quire.remote.server.waiting_gets import GetLine, GetOutcome, WaitingGet, WaitingGets
from tests.kit.limits import Limits

SCHEDULES = 5_000
SOURCES = ("a", "b")


class Transaction:
    """A transaction that others may end."""

    def __init__(self, own: bool = False) -> None:
        self.ended: Callable[[], None] | None = None
        self.is_open = True
        self.own = own

    def when_ended(self, callback: Callable[[], None]) -> bool:
        """Call this once others end it."""
        self.ended = callback if self.is_open else None
        return self.is_open

    def forget_end(self) -> None:
        """Do not."""
        self.ended = None

    def own_taker(self, source: str) -> object | None:
        """Itself, where it has messages of a group."""
        return self if self.own else None

    def end(self) -> None:
        """Others end it."""
        self.is_open = False
        if self.ended is not None:
            self.ended()


class Requester:
    """The client that a get is of."""

    def __init__(self, account: UseAccount) -> None:
        self.account = account


class Machine:
    """Sources with messages, callbacks and a clock, and the gets that wait for them."""

    def __init__(self, waiting: type[WaitingGets] = WaitingGets) -> None:
        self.messages = dict.fromkeys(SOURCES, 0)
        self.now = 0.0
        self.errands: list[Callable[[], None]] = []
        self.registered: dict[object, tuple[str, Callable[[], None]]] = {}
        self.answers: dict[WaitingGet, str] = {}
        self.elsewhere: list[WaitingGet] = []  # that another thread tries
        self.telling: set[WaitingGet] = set()  # that it has tried, of which it is on its way to say
        self.gone: set[WaitingGet] = set()  # of these, those whose client has ended
        self.most_registered = 0
        self.accounts = UseAccounts(lambda: self.now)
        self.gets = waiting(
            self.register, self.attempt, self.end, self.errands.append, lambda: self.now
        )

    def register(
        self, source: str, callback: Callable[[], None], taker: object
    ) -> Callable[[], None] | None:
        """As a store does."""
        if self.messages[source]:
            return None
        key = object()
        self.registered[key] = source, callback
        self.most_registered = max(self.most_registered, len(self.registered))
        return partial(self.withdraw, key)

    def withdraw(self, key: object) -> None:
        """Nobody is to be called any more."""
        self.registered.pop(key, None)

    def put(self, source: str, count: int = 1) -> None:
        """Messages come: whoever is registered is called, once."""
        self.messages[source] += count
        for key, (name, callback) in list(self.registered.items()):
            if name == source:
                del self.registered[key]
                callback()

    def get(
        self, source: str, seconds: float = math.inf, *, heavy: bool = False, own: bool = False
    ) -> WaitingGet:
        """One that has found nothing, and waits."""
        take = partial(self.messages.get, source)
        get = WaitingGet(1, Transaction(own), source, seconds, take, str, is_heavy=heavy)
        get.requester = Requester(self.accounts.in_all)
        self.gets.add(get)
        return get

    def take(self, get: WaitingGet) -> bool:
        """Try it, as any thread does."""
        assert get not in self.answers
        if not get.transaction.is_open:  # type: ignore[attr-defined]
            self.answers[get] = "ended"
        elif self.messages[str(get.source)]:
            self.messages[str(get.source)] -= 1
            self.answers[get] = "message"
        return get in self.answers

    def attempt(self, get: WaitingGet) -> GetOutcome:
        """The server's try."""
        if get.is_heavy:
            self.elsewhere.append(get)
            return GetOutcome.ELSEWHERE
        if not self.take(get):
            return GetOutcome.NOTHING
        self.gets.leave(get)
        return GetOutcome.ANSWERED

    def end(self, get: WaitingGet) -> None:
        """The server's answer to one that waits in vain."""
        assert get not in self.answers
        self.answers[get] = "nothing" if get.transaction.is_open else "ended"  # type: ignore[attr-defined]

    def finish_try(self, get: WaitingGet) -> None:
        """Another thread tries it and tells."""
        self.elsewhere.remove(get)
        self.telling.add(get)
        self.errands.append(partial(self.note_tried, get, self.take(get)))

    def note_tried(self, get: WaitingGet, found: bool) -> None:
        """The server's thread learns of it, perhaps after the client's end."""
        self.telling.remove(get)
        if get in self.gone:
            self.answers.setdefault(get, "gone")
        self.gets.tried(get, is_answered=found or get in self.gone)

    def hang_up(self, get: WaitingGet) -> None:
        """Its client ends: one that another thread tries is gone when that has tried."""
        if get in self.elsewhere or get in self.telling:
            self.gone.add(get)
        elif get not in self.answers:
            self.answers[get] = "gone"
            self.gets.leave(get)

    def run(self, steps: int = 4) -> bool:
        """A turn of the server's thread; True: there is more to do."""
        errands, self.errands[:] = list(self.errands), []
        for errand in errands:
            errand()
        return self.gets.turn(steps) or bool(self.errands)

    def settle(self) -> None:
        """All that can go on goes on."""
        while self.run() or self.elsewhere:
            for get in list(self.elsewhere):
                self.finish_try(get)


def schedule(random: random.Random, waiting: type[WaitingGets] = WaitingGets) -> None:
    """A few gets, puts, ends, hang-ups and times at random moments; then what must be true."""
    machine = Machine(waiting)
    gets: list[WaitingGet] = []
    puts = 0
    for _ in range(random.randrange(4, 14)):
        kind, source = random.randrange(8), random.choice(SOURCES)
        if kind < 3:
            heavy, own = not random.randrange(3), not random.randrange(4)
            seconds = random.choice((math.inf, 1.0, 2.0))
            gets.append(machine.get(source, seconds, heavy=heavy, own=own))
        elif kind == 3:
            machine.put(source)
            puts += 1
        elif kind == 4 and gets:
            machine.hang_up(random.choice(gets))
        elif kind == 5 and gets:
            random.choice(gets).transaction.end()  # type: ignore[attr-defined]
        elif kind == 6:
            machine.now += 1.0
        elif machine.elsewhere:
            machine.finish_try(random.choice(machine.elsewhere))
        if random.randrange(3):
            machine.run(random.randrange(1, 3))
    machine.settle()
    waiting_gets = [get for get in gets if get not in machine.answers]
    taken = list(machine.answers.values()).count("message")
    assert taken + sum(machine.messages.values()) == puts
    for get in waiting_gets:  # whoever waits, waits for what is not there
        assert not machine.messages[str(get.source)], "a message and a get that waits for it"
        assert get.transaction.is_open  # type: ignore[attr-defined]
    assert set(machine.gets.all()) == set(waiting_gets)
    lines = {(get.source, get.transaction.own_taker(str(get.source))) for get in waiting_gets}
    assert len(machine.registered) == len(lines)  # one for all of a line (WG1)


def schedules(seed: int, waiting: type[WaitingGets] = WaitingGets, count: int = SCHEDULES) -> None:
    """So many of them."""
    drawn = random.Random(seed)
    for _ in range(count):
        schedule(drawn, waiting)


@pytest.mark.fuzz
@pytest.mark.parametrize("count", [SCHEDULES, pytest.param(200_000, marks=pytest.mark.long)])
def test_schedules(seed: int, count: int) -> None:
    """WG2: puts, times, ends and hang-ups in any order leave no message beside who waits for it."""
    schedules(seed, count=count)


class NobodyPassesOn(WaitingGets):
    """A wake-up is lost with the get whose turn it was."""

    def leave(self, get: WaitingGet) -> None:
        line = get.line
        is_first = line is not None and next(iter(line.gets)) is get
        super().leave(get)
        if line is not None and is_first and line in self._woken:
            self._woken.remove(line)


class NobodyElseIsTried(WaitingGets):
    """After a get that was answered its line is not looked at again."""

    def _rearm(self, line: GetLine) -> None:
        if line.withdraw is None or line.trying is not None or len(line.gets) != 1:
            super()._rearm(line) if len(line.gets) == 1 else None


class ForgetsAnotherThread(WaitingGets):
    """A line whose get another thread has tried in vain, or for nobody, goes on no more."""

    def tried(self, get: WaitingGet, *, is_answered: bool) -> None:
        if not get.is_heavy:
            super().tried(get, is_answered=is_answered)
        elif get.line is not None:
            get.line.trying = None
            if is_answered:
                self.leave(get)


@pytest.mark.fuzz
@pytest.mark.parametrize("broken", [NobodyPassesOn, NobodyElseIsTried, ForgetsAnotherThread])
def test_canary_of_lost_wake_ups(seed: int, broken: type[WaitingGets]) -> None:
    """The canary: the schedules find a line that does not pass a wake-up on."""
    with pytest.raises(AssertionError):
        schedules(seed, broken)


def test_a_put_wakes_one() -> None:
    """WG1: of a thousand one alone is tried, the first; the line is registered once."""
    machine = Machine()
    gets = [machine.get("a") for _ in range(1000)]
    for number in range(3):
        machine.put("a")
        machine.settle()
        assert machine.gets.tries == number + 1
        assert list(machine.answers) == gets[: number + 1]
    assert machine.most_registered == 1


def test_many_puts_wake_as_many() -> None:
    """WG1: what came together goes to the first of the line, in order."""
    machine = Machine()
    gets = [machine.get("a") for _ in range(10)]
    machine.put("a", 4)
    machine.settle()
    assert list(machine.answers) == gets[:4]
    assert machine.gets.tries == 4


def test_the_turn_of_one_that_is_gone_is_the_next_ones() -> None:
    """WG2: its client ends, or its transaction, after the put and before its try."""
    for end in ("hang up", "ended", "time"):
        machine = Machine()
        first, second = machine.get("a", 1.0), machine.get("a")
        machine.put("a")
        if end == "hang up":
            machine.hang_up(first)
        elif end == "ended":
            first.transaction.end()  # type: ignore[attr-defined]
        else:
            machine.put("b")
            machine.messages["a"] = 0  # somebody else was faster
            machine.run()
            machine.now = 2.0
            machine.put("a")
            machine.gets.leave(first)
        machine.settle()
        assert machine.answers[second] == "message"


def test_who_may_get_what_others_may_not_waits_alone() -> None:
    """WG3: it is tried whenever something comes, wherever the others stand."""
    machine = Machine()
    machine.get("a")
    own = machine.get("a", own=True)
    assert len(machine.registered) == 2
    machine.put("a", 2)
    machine.settle()
    assert machine.answers[own] == "message"


def test_a_line_waits_for_another_thread() -> None:
    """WG4: nobody is tried while one of the line is; then the line goes on."""
    machine = Machine()
    first, second = machine.get("a", heavy=True), machine.get("a")
    machine.put("a", 2)
    assert not machine.run()
    assert machine.elsewhere == [first]
    assert not machine.answers
    machine.finish_try(first)
    machine.settle()
    assert list(machine.answers) == [first, second]


def test_a_turn_is_bounded() -> None:
    """WG5: so many are tried, then others come first; two sources take turns."""
    machine = Machine()
    of_a, of_b = [machine.get("a") for _ in range(10)], [machine.get("b") for _ in range(10)]
    machine.put("a", 10)
    machine.put("b", 10)
    assert machine.run(6)
    assert list(machine.answers) == [
        get for both in zip(of_a[:3], of_b[:3], strict=True) for get in both
    ]
    while machine.run(6):
        pass
    assert len(machine.answers) == 20


def test_times_are_bounded_and_in_order() -> None:
    """WG5: those whose time is over together are answered in several turns."""
    machine = Machine()
    late, early = machine.get("a", 2.0), [machine.get("a", 1.0) for _ in range(5)]
    assert machine.gets.next_time() == 1.0
    machine.now = 1.0
    assert machine.run(3)
    assert len(machine.answers) == 3
    machine.settle()
    assert set(machine.answers) == set(early)
    machine.hang_up(late)
    assert machine.gets.next_time() == math.inf


def test_the_times_of_gets_that_are_over_are_dropped(limits: Limits) -> None:
    """However many were answered long before their time, few are remembered."""
    limits(STALE_TIMES=10)
    machine = Machine()
    for _ in range(200):
        machine.get("a", 1000.0)
        machine.put("a")
        machine.settle()
    assert len(machine.gets._times) < 20


def test_gets_that_wait_are_bounded() -> None:
    """One too many is refused in words, and is nowhere."""
    machine = Machine()
    machine.accounts.limit({"waiting_gets": 3})
    gets = [machine.get("a") for _ in range(3)]
    with pytest.raises(LimitReached, match="as many gets waiting as it may, 3"):
        machine.get("a")
    machine.hang_up(gets[0])
    machine.get("a")
    assert len(machine.gets) == 3
