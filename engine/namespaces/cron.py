"""The handlers of `store.cron` at the owner of a store: see `quire.interface.namespaces.cron`."""

from __future__ import annotations

import builtins
from typing import Any

from quire.arguments import check_flag, check_name
from quire.engine.upkeep.maintenance import Maintenance
from quire.engine.upkeep.schedules import Schedules
from quire.interface.schedules import check_schedule
from quire.reports.info import ScheduleInfo


class CronHandlers:
    """A handler for each row of `Cron`."""

    def __init__(self, schedules: Schedules, maintenance: Maintenance) -> None:
        self._schedules = schedules
        self._maintenance = maintenance

    def create(self, name: str, exist_ok: bool, **schedule: Any) -> ScheduleInfo:
        check_name(name, "schedule")
        arguments = check_schedule(schedule)
        info = self._schedules.create(name, arguments, check_flag("exist_ok", exist_ok))
        self._maintenance.soon()
        return info

    def alter(self, name: str, **changes: Any) -> ScheduleInfo:
        arguments = check_schedule(changes)
        info = self._schedules.alter(check_name(name, "schedule"), arguments)
        self._maintenance.soon()
        return info

    def drop(self, name: str) -> None:
        self._schedules.drop(check_name(name, "schedule"))

    def list(self) -> builtins.list[ScheduleInfo]:
        return self._schedules.infos()
