"""The entries of schedules in the catalog: making, changing and removing them, one call at a time.

- SCD1: a schedule is of a queue, not of its name: it follows when the queue is renamed, and while a
  queue has one it is not dropped.
- SCD2: due times count from the moment on when the schedule was made, went on after a pause, or got
  another text or time zone: what would have been due before that is not missed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from quire.cron import DueTimes
from quire.engine.queues.queue import Queue
from quire.engine.queues.state import State
from quire.engine.records.catalog import SCHEDULE, CatalogChange
from quire.engine.records.durable_state import CatalogEntry
from quire.env import Env
from quire.errors import InvalidArgument, ScheduleExists, ScheduleNotFound
from quire.schedules import DEFAULTS, FIELDS

from .checks import check_stays, entry_named
from .definitions import Definitions

_TIMING: Final = ("cron", "timezone")


class ScheduleEntries:
    """See the module. Whoever uses it sees to it that nobody else changes one meanwhile."""

    def __init__(self, env: Env, state: State, definitions: Definitions) -> None:
        self._env = env
        self._state = state
        self._submit = definitions.submit

    def create(self, name: str, given: Mapping[str, Any], exist_ok: bool) -> None:
        """Make one. Raises as `Cron.create`."""
        now_us = self._env.now_us()
        body = {"name": name, **DEFAULTS, **_present(given)}
        queue = body.pop("queue")
        check_due(body, now_us)
        known = entry_named(self._state, SCHEDULE, name)
        if known is not None:
            if not exist_ok:
                raise ScheduleExists(
                    f"schedule {name!r} is there already: store.cron.alter() it, or drop() it first"
                )
            _check_as_asked(known[1].body, body | {"queue_id": self._target(queue).queue_id})
            return
        body |= {"created_us": now_us, "since_us": now_us}

        def prepare() -> list[CatalogChange]:
            body["queue_id"] = self._target(queue).queue_id
            return [CatalogChange(SCHEDULE, self._state.durable.next_queue_id, body)]

        self._submit(prepare)

    def alter(self, name: str, given: Mapping[str, Any]) -> None:
        """Change one. Raises as `Cron.alter`."""
        number, entry = self._known(name)
        now_us = self._env.now_us()
        body = _present({**entry.body, **given})
        queue = body.pop("queue", None)
        if any(key in given for key in _TIMING):
            check_due(body, now_us)
        goes_on = entry.body["paused"] and not body["paused"]
        if goes_on or any(body[key] != entry.body[key] for key in _TIMING):
            body["since_us"] = now_us

        def prepare() -> list[CatalogChange]:
            if queue is not None:
                body["queue_id"] = self._target(queue).queue_id
            return [CatalogChange(SCHEDULE, number, body)]

        self._submit(prepare)

    def drop(self, name: str) -> None:
        """Remove one. Raises as `Cron.drop`."""
        number, _ = self._known(name)
        self._submit(lambda: [CatalogChange(SCHEDULE, number, None)])

    def _known(self, name: str) -> tuple[int, CatalogEntry]:
        known = entry_named(self._state, SCHEDULE, name)
        if known is None:
            raise ScheduleNotFound(
                f"there is no schedule {name!r}: store.cron.list() tells them, create() makes one"
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


def check_due(body: Mapping[str, Any], now_us: int) -> None:
    """Raises InvalidArgument where the text or the time zone is none, or nothing is ever due."""
    if DueTimes(body["cron"], body["timezone"]).after(now_us) is None:
        raise InvalidArgument(f"cron {body['cron']!r}: there is no such time in the next 50 years")


def _present(given: Mapping[str, Any]) -> dict[str, Any]:
    """Without the fields of the message that are not to be set."""
    return {key: value for key, value in given.items() if key not in FIELDS or value is not None}


def _check_as_asked(there: Mapping[str, Any], body: Mapping[str, Any]) -> None:
    """One that is there is what is asked for. Raises ScheduleExists."""
    asked = {"queue_id", "cron", *DEFAULTS, *FIELDS}
    differing = [
        f"{key} is {there.get(key)!r:.100}, not {body.get(key)!r:.100}"
        for key in sorted(asked)
        if there.get(key) != body.get(key)
    ]
    if differing:
        raise ScheduleExists(
            f"schedule {body['name']!r} is there already, and not as asked for: "
            f"{'; '.join(differing)}; ask for what is there, or store.cron.alter() it"
        )
