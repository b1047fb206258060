"""The schedules of the store of this process: see `quire.interface.namespaces.cron`."""

from __future__ import annotations

import builtins
from typing import Unpack

from quire.arguments import Bytes, check_flag, check_name
from quire.calls.documented import documented_by
from quire.engine.opening import open_call
from quire.interface.namespaces import Cron
from quire.interface.schedules import ScheduleChanges, ScheduleOptions, check_schedule
from quire.reports.info import ScheduleInfo

from .namespace import EmbeddedNamespace


@documented_by(Cron)
class EmbeddedCron(EmbeddedNamespace):
    """Of an `EmbeddedStore`."""

    @open_call
    def create(
        self,
        name: str,
        queue: str,
        cron: str,
        payload: Bytes = b"",
        exist_ok: bool = False,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleInfo:
        check_name(name, "schedule")
        given = check_schedule({"queue": queue, "cron": cron, "payload": payload, **options})
        info = self._of._schedules.create(name, given, check_flag("exist_ok", exist_ok))
        self._of._maintenance.soon()
        return info

    @open_call
    def alter(self, name: str, **changes: Unpack[ScheduleChanges]) -> ScheduleInfo:
        given = check_schedule(changes)
        info = self._of._schedules.alter(check_name(name, "schedule"), given)
        self._of._maintenance.soon()
        return info

    @open_call
    def drop(self, name: str) -> None:
        self._of._schedules.drop(check_name(name, "schedule"))

    @open_call
    def list(self) -> builtins.list[ScheduleInfo]:
        return self._of._schedules.infos()
