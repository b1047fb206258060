"""Schedules: making, changing and removing them, and putting their messages.

- A schedule is of a queue, not of its name: it follows when the queue is renamed, and while a queue
  has one it is not dropped.
- Due times count from the moment on when the schedule was made, went on after a pause, or got
  another text or time zone: what would have been due before that is not missed.
- A message is put and its due time noted, in the ledger, by one ordinary transaction. So each due
  time has one message at most, over crashes, restarts and other owners, however clocks are set.
- SCH2: what the store comes to more than `LATE_SECONDS` after it was due is missed: the schedule
  says what becomes of it.
- SCH3: what cannot be put (a full queue, one that is stopped, a full disk) is tried again at the
  maintenance's pace, shown (`ScheduleInfo.waiting`), and holds up no other schedule.
- SCH4: nothing is put for a schedule after its removal, or by what it was, once the call that
  changes it has returned.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from quire.batches.moved_messages import joined
from quire.calls.signal_safety import allow_reentry
from quire.definitions import cron as cron_times
from quire.engine.commits.definition_checks import check_stays, entries_by_name, entry_named
from quire.engine.commits.definitions import Definitions
from quire.engine.queues.queue import Queue
from quire.engine.state.catalog import RAN_KEY, SCHEDULE, CatalogChange
from quire.engine.state.durable_state import CatalogEntry
from quire.engine.transactions.context import Context
from quire.env.interpreter import Lock
from quire.errors import (
    AlreadyCommitted,
    InvalidArgument,
    QueueNotFound,
    QuireError,
    ScheduleExists,
    ScheduleNotFound,
)
from quire.interface import schedules as schedule_fields
from quire.limits import INTERVAL_SECONDS, LATE_SECONDS, MAX_MISSED, NEVER_US, PUT_AT_ONCE
from quire.messages.encoded_values import check_encoded
from quire.reports.info import ScheduleInfo

from .own_transaction import own_transaction

if TYPE_CHECKING:
    from quire.definitions.cron import DueTimes

_log: Final = logging.getLogger("quire.schedules")
_CONTENT: Final = frozenset({"queue", "payload", "content_type"})
_TIMING: Final = ("cron", "timezone")
_LATE_US: Final = int(LATE_SECONDS * 1e6)


class _KnownSchedule(NamedTuple):
    """The plan of a schedule, as long as its entry has this version."""

    version: int
    times: DueTimes | None  # None: this process cannot tell them
    next_us: int  # the next due time that is not put
    waiting: str | None  # what keeps the message of that time from being put


class Schedules:
    """The schedules of a store. Thread-safe."""

    def __init__(self, context: Context, definitions: Definitions) -> None:
        self._context = context
        self._env, self._state = context.env, context.state
        self._catalog = context.state.durable.catalog
        self._definitions = definitions
        # Held while one is changed, or puts its messages (SCH4). Who puts them does not wait for
        # it: it may be the thread that changes one.
        self._changing = Lock()
        self._plans: dict[int, _KnownSchedule] = {}
        self._next_us = 0  # when there is something to do, or to look at
        self._retry_at = 0.0  # what waits is tried again, by the monotonic clock
        self.last_error: str | None = None

    # Definitions

    def create(self, name: str, fields: Mapping[str, Any], exist_ok: bool) -> ScheduleInfo:
        """Make one. Raises as `Cron.create`."""
        with self._changing:
            now_us = self._env.now_us()
            body = {"name": name, **schedule_fields.DEFAULTS, **_present(fields)}
            queue = body.pop("queue")
            _check_due(body, now_us)
            known = entry_named(self._state, SCHEDULE, name)
            if known is None:
                body |= {"created_us": now_us, "since_us": now_us}

                def prepare() -> list[CatalogChange]:
                    target = self._target(queue)
                    body["queue_id"] = target.queue_id
                    _encode(target, body)
                    return [CatalogChange(SCHEDULE, self._state.durable.next_queue_id, body)]

                self._submit(prepare)
            elif exist_ok:
                requested = {key: body[key] for key in fields if key in body}
                requested["queue_id"] = self._target(queue).queue_id
                _check_same_definition(name, known[1].body, requested)
            else:
                raise ScheduleExists(
                    f"schedule {name!r} is there already: alter it (store.cron.alter), or "
                    "drop it first (store.cron.drop)"
                )
            return self._info(*self._known(name), self._env.now_us())

    def alter(self, name: str, fields: Mapping[str, Any]) -> ScheduleInfo:
        """Change one. Raises as `Cron.alter`."""
        with self._changing:
            number, entry = self._known(name)
            now_us = self._env.now_us()
            body = _present({**entry.body, **fields})
            queue = body.pop("queue", None)
            if any(key in fields for key in _TIMING):
                _check_due(body, now_us)
            goes_on = entry.body["paused"] and not body["paused"]
            if goes_on or any(body[key] != entry.body[key] for key in _TIMING):
                body["since_us"] = now_us

            def prepare() -> list[CatalogChange]:
                target = self._state.queues[body["queue_id"]]
                if queue is not None:
                    target = self._target(queue)
                    body["queue_id"] = target.queue_id
                if not fields.keys().isdisjoint(_CONTENT):
                    _encode(target, body)
                return [CatalogChange(SCHEDULE, number, body)]

            self._submit(prepare)
            return self._info(*self._known(name), self._env.now_us())

    def drop(self, name: str) -> None:
        """Remove one. Raises ScheduleNotFound."""
        with self._changing:
            number, _ = self._known(name)
            self._submit(lambda: [CatalogChange(SCHEDULE, number, None)])

    def _submit(self, prepare: Callable[[], list[CatalogChange]]) -> None:
        self._definitions.submit(prepare)
        self._next_us = 0

    def _known(self, name: str) -> tuple[int, CatalogEntry]:
        known = entry_named(self._state, SCHEDULE, name)
        if known is None:
            raise ScheduleNotFound(
                f"there is no schedule {name!r}: store.cron.list() lists them, "
                "store.cron.create makes one"
            )
        return known

    def _target(self, name: str) -> Queue:
        queue = self._state.queue(name)
        check_stays(queue, "a schedule")
        if queue.schema is not None:
            raise InvalidArgument(
                f"queue {queue.name!r} is typed, and a schedule puts bytes: give the schedule a "
                "queue without a schema"
            )
        return queue

    def infos(self) -> list[ScheduleInfo]:
        """Return all schedules, by name."""
        now_us = self._env.now_us()
        return [
            self._info(number, entry, now_us)
            for number, entry in entries_by_name(self._state, SCHEDULE)
        ]

    def _info(self, number: int, entry: CatalogEntry, now_us: int) -> ScheduleInfo:
        body, plan = entry.body, self._plan(number, entry)
        queue = self._state.queues.get(body["queue_id"])
        return ScheduleInfo(
            id=number,
            name=body["name"],
            queue="" if queue is None else queue.name,
            cron=body["cron"],
            timezone=body["timezone"],
            missed=body["missed"],
            paused=body["paused"],
            payload_base64=body["payload"],
            message={name: body[name] for name in schedule_fields.FIELDS if name in body},
            created_us=body["created_us"],
            last_us=self._state.ledger.get(RAN_KEY.format(number)),
            next_us=None if plan.next_us == NEVER_US else plan.next_us,
            waiting=plan.waiting,
        )

    # Putting

    @property
    def next_us(self) -> int:
        """The time when something is to do that is not waiting; `NEVER_US`: never, as it seems."""
        return self._next_us if self._catalog.get(SCHEDULE) else NEVER_US

    def put_due(self) -> None:
        """Put what is due, as far as it can be put now."""
        if not (self._plans or self._catalog.get(SCHEDULE)):
            return
        now_us = self._env.now_us()
        waits = self.last_error is None or self._env.monotonic() < self._retry_at
        if now_us < self._next_us and waits:
            return
        if not self._changing.acquire(blocking=False):
            return  # somebody changes one; or this thread puts already, and is after its commit
        try:
            allow_reentry(self._put_all, now_us)
        finally:
            self._changing.release()

    def _put_all(self, now_us: int) -> None:
        entries = dict(self._catalog.get(SCHEDULE, {}))
        plans, error = {}, None
        left = PUT_AT_ONCE
        for number, entry in entries.items():
            plan = self._plan(number, entry)
            if plan.next_us <= now_us and left > 0:
                plan, count = self._put(number, entry, plan, now_us, left)
                left -= count
            plans[number] = plan
            if plan.waiting is not None:
                error = f"schedule {entry.body['name']!r}: {plan.waiting}"
        self._plans, self.last_error = plans, error
        self._retry_at = self._env.monotonic() + INTERVAL_SECONDS
        ready = (plan.next_us for plan in plans.values() if plan.waiting is None)
        self._next_us = min(ready, default=NEVER_US)

    def _plan(self, number: int, entry: CatalogEntry) -> _KnownSchedule:
        """Return the plan of a schedule: when it is due next, if that is to be put."""
        body, known = entry.body, self._plans.get(number)
        if known is not None and known.version == entry.version:
            return known
        try:
            times = cron_times.DueTimes(body["cron"], body["timezone"])
        except InvalidArgument as error:  # another time zone data base than where it was made
            return _KnownSchedule(entry.version, None, NEVER_US, str(error))
        next_us = None if body["paused"] else times.after(self._since_us(number, body))
        return _KnownSchedule(entry.version, times, NEVER_US if next_us is None else next_us, None)

    def _since_us(self, number: int, body: Mapping[str, Any]) -> int:
        """Return the time up to which due messages are put, or do not count."""
        ran_us = self._state.ledger.get(RAN_KEY.format(number), 0)
        return max(int(body["since_us"]), ran_us)

    def _put(
        self, number: int, entry: CatalogEntry, plan: _KnownSchedule, now_us: int, limit: int
    ) -> tuple[_KnownSchedule, int]:
        """Put up to `limit` due messages; return the plan then, and how many were put."""
        body, times = entry.body, plan.times
        assert times is not None  # else nothing is due
        due = self._due(body, times, self._since_us(number, body), now_us)
        count = 0
        for due_us in due[:limit]:
            try:
                self._put_message(number, body, due_us)
            except AlreadyCommitted:
                continue
            except QuireError as error:  # it waits (SCH3)
                if plan.waiting is None:
                    _log.warning("schedule %r waits: %s", body["name"], error)
                return plan._replace(next_us=due_us, waiting=str(error)), count
            count += 1
        last_us = due[:limit][-1] if len(due) > limit else now_us
        next_us = times.after(max(last_us, self._since_us(number, body)))
        next_us = NEVER_US if next_us is None else next_us
        return plan._replace(next_us=next_us, waiting=None), count

    def _due(
        self, body: Mapping[str, Any], times: DueTimes, since_us: int, now_us: int
    ) -> list[int]:
        """The due times that are to be put now, in their order (SCH2)."""
        late_us = max(since_us, now_us - _LATE_US)
        due = times.latest(late_us, now_us, MAX_MISSED)
        if body["missed"] == schedule_fields.ALL:
            return [*times.latest(since_us, late_us, MAX_MISSED), *due]
        if body["missed"] == schedule_fields.ONCE and not due:
            return times.latest(since_us, late_us, 1)
        return due

    def _put_message(self, number: int, body: Mapping[str, Any], due_us: int) -> None:
        payload, fields = schedule_fields.message_of(body)
        own = {schedule_fields.SCHEDULE: str(body["name"]), schedule_fields.DUE: str(due_us)}
        fields["attributes"] = joined(fields.get("attributes") or {}, own)
        queue = self._state.queues[body["queue_id"]]
        with own_transaction(self._context, "maintenance") as txn:
            name = queue.name
            txn.put_moved(name, payload, fields)
            if queue.name != name:
                raise QueueNotFound(f"queue {name!r} was just renamed")
            txn.enter(RAN_KEY.format(number), due_us)
            txn.commit()


def _encode(queue: Queue, body: dict[str, Any]) -> None:
    """Say that the payload is what the queue's codec makes, as it is. Raises InvalidArgument."""
    payload, fields = schedule_fields.message_of(body)
    declared, codec = fields.get("content_type"), queue.config.properties.codec
    content_type = check_encoded(queue.name, codec, payload, declared)
    if content_type != declared:
        body["content_type"] = content_type


def _check_due(body: Mapping[str, Any], now_us: int) -> None:
    """Raises InvalidArgument where the text or the time zone is none, or nothing is ever due."""
    if cron_times.DueTimes(body["cron"], body["timezone"]).after(now_us) is None:
        raise InvalidArgument(f"cron {body['cron']!r}: there is no such time in the next 50 years")


def _present(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Without the fields of the message that are not to be set."""
    return {
        key: value
        for key, value in fields.items()
        if key not in schedule_fields.FIELDS or value is not None
    }


def _check_same_definition(
    name: str, there: Mapping[str, Any], requested: Mapping[str, Any]
) -> None:
    """One that is there is what is asked for; the rest is as it is. Raises ScheduleExists."""
    differing = [
        f"{key} is {there.get(key)!r:.100}, not {expected!r:.100}"
        for key, expected in sorted(requested.items())
        if there.get(key) != expected
    ]
    if differing:
        raise ScheduleExists(
            f"schedule {name!r} is there already, and not as asked for: "
            f"{'; '.join(differing)}; ask for what is there, or alter it (store.cron.alter)"
        )
