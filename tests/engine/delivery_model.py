"""What may be got next, said in the plainest way: the model of `test_delivery_model`.

It is written apart from the engine. Each message is an object with one word for where it is; what
is next is the least of all that may be taken, looked up anew each time; there is no index.
`look` is what a store does before it answers: it learns what is new, and lets time have its way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

SECOND = 1_000_000
Key = tuple[object, ...]


@dataclass
class Told:
    """A message as it was put; `time_us` is that of its commit, and by that it may be cut."""

    payload: bytes
    time_us: int = 0
    priority: int = 0
    due_us: int = 0
    expires_us: int | None = None
    group: str | None = None
    rank: str | None = None
    sender: str | None = None
    number: int | None = None


@dataclass
class Place:
    """A message in the subscription."""

    position: int
    told: Told
    state: str = "UNSEEN"
    key: Key | None = None  # where it stands in the order; None: not known
    is_seen: bool = False  # it was looked at: when it expires is known
    is_away: bool = False  # it was in flight, or came later, before anything was known of it
    is_late: bool = False  # it has expired since it was taken, or had when it was taken
    by: object = None
    comes_us: int = 0  # when it comes again, where it is REJECTED, by the clock nobody sets
    ends_us: int | None = None  # when its life ends, by that clock, as far as it is known
    holds: bool = False  # its group, while it is in flight or comes later
    attempts: int = 0
    failures: int = 0
    sure_attempts: int = 0  # of these, what a record tells
    sure_failures: int = 0
    sure_due_us: int = 0  # when the latest of these says that it comes again, by the wall clock
    is_prepared: bool = False  # who has it survives the process
    in_line: bool = False  # it stands in its sender's line, wherever else it is
    line_due_us: int = 0  # by the clock that nobody sets
    missing: int | None = None  # before it, where it waited for it in vain; -1: nobody knows


@dataclass
class Group:
    """An ordered group: who has messages of it."""

    held: int = 0
    holder: object = None


@dataclass
class Sender:
    """Which number is next, and the key of the one before it."""

    expected: int | None = None
    before: Key = (-1, 0)


class NobodyGoesOn:
    """Holds a group that waits for one that was rejected."""


@dataclass
class Model:
    """One subscription."""

    rules: Mapping[str, Any]
    now_us: int
    clock_us: int  # of the clock that nobody sets
    is_exclusive: bool = False
    asks: Callable[[Told], bool] | None = None  # what its selector says; None: it asks for all
    places: list[Place] = field(default_factory=list)
    groups: dict[str, Group] = field(default_factory=dict)
    senders: dict[str, Sender] = field(default_factory=dict)
    holder: object = None
    heard: dict[str, int] = field(default_factory=dict)  # the numbers after what is read

    # Rules

    @property
    def order(self) -> Any:
        return self.rules.get("order", "commit")

    @property
    def by_sequence(self) -> bool:
        return isinstance(self.order, dict) and "sequence" in self.order

    @property
    def is_selected(self) -> bool:
        return self.asks is not None or self.order != "commit" or self.is_timed or self.is_grouped

    @property
    def is_timed(self) -> bool:
        return bool(self.rules.get("timed"))

    @property
    def is_grouped(self) -> bool:
        return bool(self.rules.get("grouped"))

    @property
    def most(self) -> int:
        return self.rules.get("max_deliveries") or 0

    def is_spent(self, place: Place) -> bool:
        return bool(self.most) and place.attempts >= self.most

    def moment(self, told: Told) -> int | None:
        """When it expires, by the wall clock."""
        return told.expires_us if self.is_timed else None

    def life(self, told: Told) -> int | None:
        """How long it lives from its commit on, as its queue says."""
        if not self.is_timed:
            return None
        longest = self.rules.get("max_ttl")
        if told.expires_us is not None:
            return None if longest is None else int(longest * SECOND)
        given = [s for s in (self.rules.get("ttl"), longest) if s is not None]
        return int(min(given) * SECOND) if given else None

    def age(self, told: Told) -> int:
        """How old it is, by the wall clock."""
        return max(self.now_us - told.time_us, 0)

    def rank(self, told: Told) -> Key:
        """Where it stands in an order that is none of sequences."""
        if self.order == "priority":
            return (-told.priority,)  # as it is moved, no default is granted
        if isinstance(self.order, dict):
            if not self.order["numeric"]:
                return (told.rank is None, told.rank or "")
            return (told.rank is None, float(told.rank or 0))
        if self.order != "commit":  # registered code (`by_sender` of `delivery_history`)
            return (told.sender is None, told.sender == "a")
        return ()

    # What comes

    def put(self, told: Told) -> None:
        state = "UNSEEN" if self.is_selected else "AVAILABLE"
        self.places.append(Place(len(self.places), told, state))

    def look(self) -> None:
        """What is new is known, and it is now."""
        for place in sorted(self.places, key=lambda p: (p.comes_us, p.position)):
            if place.state == "REJECTED" and place.comes_us <= self.clock_us:
                self.put_back(place)
        if not self.is_selected:
            return
        self.learn()
        for place in sorted(self.places, key=lambda p: (p.told.due_us, p.position)):
            if place.state == "SCHEDULED" and place.told.due_us <= self.now_us:
                self.arrive(place, self.clock_us)
        if self.by_sequence and not any(p.state == "UNSEEN" for p in self.places):
            self.overdue()
        for place in self.places:
            self.end_life(place)

    def end_life(self, place: Place) -> None:
        """Where its time is over."""
        if not self.is_timed:
            return
        moment = self.moment(place.told)
        if moment is not None and moment <= self.now_us:
            self.expire(place)
        if place.ends_us is not None and place.ends_us <= self.clock_us:
            place.ends_us = None
            self.expire(place)

    def learn(self) -> None:
        for place in self.places if self.is_grouped else ():
            if place.is_away:
                place.is_away = False
                self.block(place)
        for place in self.places:
            if place.state == "UNSEEN":
                self.see_first(place)

    def see_first(self, place: Place) -> None:
        place.is_seen = True
        moment, life, age = self.moment(place.told), self.life(place.told), self.age(place.told)
        is_over = moment is not None and moment <= self.now_us
        is_over |= life is not None and life <= age
        if life is not None and not is_over:
            ends_us = self.clock_us + life - age
            place.ends_us = ends_us if place.ends_us is None else min(place.ends_us, ends_us)
        is_asked = self.asks is None or self.asks(place.told)
        if is_over or not is_asked:
            place.state, place.key = "EXPIRED" if is_asked else "UNWANTED", ()
        elif self.is_timed and place.told.due_us > self.now_us:
            place.state = "SCHEDULED"
            return
        if self.by_sequence:
            wait_us = int(self.order["wait"] * SECOND)
            self.line_up(place, self.clock_us - min(age, wait_us))
        elif is_asked and not is_over:
            self.stand(place, (*self.rank(place.told), place.position))

    def arrive(self, place: Place, since_us: int) -> None:
        """It may be delivered, as far as its time is concerned."""
        if self.by_sequence:
            self.line_up(place, since_us)
        else:
            self.stand(place, (*self.rank(place.told), place.position))

    def stand(self, place: Place, key: Key) -> None:
        place.key = key
        if place.state in ("UNSEEN", "SCHEDULED", "WAITING"):
            place.state = "AVAILABLE"

    # Sequences

    def line_up(self, place: Place, since_us: int) -> None:
        told = place.told
        if place.state not in ("EXPIRED", "UNWANTED"):
            place.state = "WAITING"
        if told.number is None:
            self.stand(place, (place.position, 0))
            return
        sender = self.sender(told.sender)
        place.in_line = True
        place.line_due_us = since_us + int(self.order["wait"] * SECOND)
        self.follow(sender, told.sender)
        if len(self.line(told.sender)) > self.order["most"]:
            self.force(sender, told.sender)

    def sender(self, name: str | None) -> Sender:
        return self.senders.setdefault(name or "", Sender(self.heard.get(name or "")))

    def line(self, name: str | None) -> list[Place]:
        found = [p for p in self.places if p.in_line and (p.told.sender or "") == (name or "")]
        return sorted(found, key=lambda p: (p.told.number, p.position))

    def follow(self, sender: Sender, name: str | None) -> None:
        for place in self.line(name):
            number = place.told.number or 0
            if number > (1 if sender.expected is None else sender.expected):
                return
            self.through(sender, place)

    def through(self, sender: Sender, place: Place) -> None:
        number = place.told.number or 0
        place.in_line = False
        if sender.expected is not None and number < sender.expected:
            self.stand(place, (place.position, 0))
            return
        before: Any = sender.before
        key = max((place.position, 0), (before[0], before[1] + 1))
        sender.expected, sender.before = number + 1, key
        self.stand(place, key)

    def force(self, sender: Sender, name: str | None) -> None:
        self.through_first(sender, self.line(name)[0], name)

    def through_first(self, sender: Sender, place: Place, name: str | None) -> None:
        number = place.told.number or 0
        place.missing = -1 if sender.expected is None else number - sender.expected
        sender.expected = number
        self.through(sender, place)
        self.follow(sender, name)

    def hear(self, place: Place) -> None:
        """It is read: so nobody waits for it."""
        number, name = place.told.number, place.told.sender
        if self.by_sequence and number is not None:
            self.heard[name or ""] = max(self.heard.get(name or "", 0), number + 1)
            sender = self.sender(name)
            sender.expected = max(sender.expected or 0, number + 1)
            self.follow(sender, name)

    def overdue(self) -> None:
        for name in sorted({p.told.sender or "" for p in self.places if p.in_line}):
            while any(p.line_due_us <= self.clock_us for p in self.line(name)):
                self.force(self.senders[name], name)

    # Times

    def expire(self, place: Place) -> None:
        if not place.is_seen:
            return  # nothing is known of it
        if place.state in ("AVAILABLE", "SCHEDULED", "WAITING"):
            place.state, place.key = "EXPIRED", place.key or ()
        elif place.state == "IN_FLIGHT":
            place.is_late = True
        elif place.state == "REJECTED":
            self.release(place)
            place.state, place.key = "EXPIRED", place.key or ()

    # Groups

    def group(self, place: Place) -> Group | None:
        name = place.told.group
        if not self.is_grouped or name is None:
            return None
        return self.groups.setdefault(name, Group())

    def hold(self, place: Place, taker: object) -> None:
        group = self.group(place)
        if group is not None:
            place.holds = True
            group.held += 1
            group.holder = taker if group.holder is None else group.holder

    def block(self, place: Place) -> None:
        """Nobody goes on with its group, before all of it that is away is back."""
        group = self.group(place)
        if group is not None:
            group.held += not place.holds
            place.holds = True
            group.holder = NobodyGoesOn

    def release(self, place: Place) -> None:
        if place.holds:
            place.holds = False
            group = self.groups[place.told.group or ""]
            group.held -= 1
            if not group.held:
                group.holder = None

    # Taking

    def may_take(self, place: Place, taker: object) -> bool:
        group = self.group(place)
        return place.state == "AVAILABLE" and (group is None or group.holder in (None, taker))

    def take(self, limit: int, taker: object) -> list[Place]:
        """What a get returns."""
        if self.is_exclusive:
            if self.delivered and self.holder is not taker:
                return []
            self.holder = taker
        taken: list[Place] = []
        while len(taken) < limit:
            found = [p for p in self.places if self.may_take(p, taker)]
            if not found:
                break
            first = min(found, key=lambda p: (p.key or (), p.position))
            if self.is_spent(first):
                self.spend(first)
                continue
            self.hold(first, taker)
            self.fly(first, taker)
            taken.append(first)
        for place in taken:
            self.note(place)
        return taken

    def note(self, place: Place) -> None:
        if self.most:
            place.attempts += 1
            place.sure_attempts += 1

    def fly(self, place: Place, taker: object) -> None:
        place.state, place.by = "IN_FLIGHT", taker

    def take_scheduled(self, place: Place, taker: object, *, to_change: bool) -> bool:
        if self.is_exclusive:
            if self.delivered and self.holder is not taker:
                return False
            self.holder = taker
        if place.state != "SCHEDULED":
            return False
        group = self.group(place)
        if group is not None and not to_change and group.holder not in (None, taker):
            return False
        if not to_change:
            self.hold(place, taker)
        self.fly(place, taker)
        self.note(place)
        return True

    @property
    def delivered(self) -> int:
        return sum(p.by is not None for p in self.places)

    def spend(self, place: Place) -> None:
        self.release(place)
        place.state, place.by = "SPENT", None
        place.key, place.is_late, place.is_away = None, False, False

    # Giving back

    def give_back(self, place: Place, *, counted: bool) -> None:
        """The transaction that has it is rolled back."""
        place.by, place.is_prepared = None, False
        if place.state == "READ":
            return
        if counted:
            self.fail(place, self.rules.get("retry"))
        else:
            if self.most:  # it was noted before
                place.attempts = max(place.attempts - 1, 0)
                place.sure_attempts = max(place.sure_attempts - 1, 0)
            self.put_back(place)

    def fail(self, place: Place, policy: Any) -> None:
        """It comes again after a while, by the policy, or at once."""
        seconds = policy or 0.0
        if isinstance(policy, dict):
            seconds = self.retry_seconds(policy, place)
        is_sure = bool(seconds or self.rules.get("retry"))
        if self.most:
            place.failures += 1
            place.sure_failures += is_sure
        else:
            place.attempts += 1
            place.sure_attempts += is_sure
        comes_later = bool(seconds) and not self.is_spent(place) and not place.is_late
        if is_sure:
            due_us = self.now_us + round(seconds * SECOND)
            place.sure_due_us = due_us if comes_later else 0
        if comes_later:
            self.delay(place, seconds)
        else:
            self.put_back(place)

    def retry_seconds(self, policy: Mapping[str, Any], place: Place) -> float:
        times = max(place.attempts + (not self.most), 1)
        growth = policy.get("growth", "exponential")
        factor = {"constant": 1, "linear": times, "exponential": 2 ** (times - 1)}[growth]
        return float(policy["delay"] * factor)

    def reject(self, place: Place, delay: Any) -> None:
        place.by = None
        if place.state == "READ":
            return
        self.fail(place, self.rules.get("retry") if delay is None else delay)

    def delay(self, place: Place, seconds: float) -> None:
        place.state, place.by = "REJECTED", None
        place.comes_us = self.clock_us + round(seconds * SECOND)
        if place.holds:
            self.block(place)

    def put_back(self, place: Place) -> None:
        place.by = None
        if self.is_spent(place):
            self.spend(place)
            return
        self.release(place)
        place.is_away = False
        if not self.is_selected:
            place.state = "AVAILABLE"
        elif place.is_late:
            place.is_late, place.state, place.key = False, "EXPIRED", place.key or ()
        elif place.key is None:
            place.state = "UNSEEN"
        else:
            place.state = "AVAILABLE"

    # What ends it, and what begins anew

    def read(self, place: Place) -> None:
        self.release(place)
        place.state, place.by = "READ", None if place.by is None else place.by
        place.attempts = place.failures = place.sure_attempts = place.sure_failures = 0
        place.sure_due_us = 0
        place.is_away = place.is_late = False
        place.missing = None

    def leave(self, place: Place) -> None:
        """A commit has read it, that of who has it, or one that has passed it."""
        self.leave_all([place])

    def leave_all(self, places: Iterable[Place]) -> None:
        """One commit has read them: all of it is read before anybody hears of any of it."""
        left = [place for place in places if place.state != "READ"]
        highest: dict[str, Place] = {}
        for place in left:
            self.read(place)
            number, name = place.told.number, place.told.sender or ""
            if number is not None and number >= (highest.get(name, place).told.number or 0):
                highest[name] = place
        for place in highest.values():
            self.hear(place)

    def alter(self, rules: Mapping[str, Any]) -> None:
        before, was_by_sequence = self.selected_by, self.by_sequence
        self.rules = rules
        if was_by_sequence != self.by_sequence:
            self.heard.clear()
        if before != self.selected_by:
            self.forget_order()
        for place in self.places:
            if place.state == "SPENT":
                self.put_back(place)

    @property
    def selected_by(self) -> object:
        if not self.is_selected:
            return None
        names = ("ttl", "max_ttl")
        return str(self.order), self.is_timed, self.is_grouped, *map(self.rules.get, names)

    def forget_order(self) -> None:
        """What is known of the order is made anew."""
        self.groups.clear()
        self.senders.clear()
        for place in self.places:
            place.holds = place.is_late = place.in_line = place.is_seen = False
            place.is_away = place.state in ("IN_FLIGHT", "REJECTED")
            place.key = place.ends_us = place.missing = None
            if place.state in (
                "UNSEEN", "WAITING", "SCHEDULED", "AVAILABLE", "EXPIRED", "UNWANTED",
            ):  # fmt: skip
                place.state = "UNSEEN" if self.is_selected else "AVAILABLE"

    def seek(self, position: int) -> None:
        """All below it is read, and nothing else."""
        for place in self.places:
            place.by = None
            place.failures = place.sure_failures = place.sure_due_us = 0
            if place.position < position:
                self.read(place)
            else:
                place.state = "AVAILABLE"
        self.forget_order()

    def purge(self) -> None:
        """All that nobody has is read."""
        for place in self.places:
            if place.state != "IN_FLIGHT":
                self.leave(place)
        self.forget_order()

    def reopen(self) -> None:
        """The process has ended, and with it all that was open; what was to come later does.

        When, is what was recorded, by the wall clock: that may be another one by now.
        """
        self.holder = None
        for place in self.places:
            if place.is_prepared:
                continue
            place.by = None
            if place.state != "READ":
                later_us = place.sure_due_us - self.now_us
                place.state = "SPENT" if self.is_spent(place) else "AVAILABLE"
                if later_us > 0:
                    place.state = "REJECTED"
                place.comes_us = self.clock_us + later_us
        self.forget_order()
