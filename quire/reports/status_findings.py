"""The findings in a store's status that somebody should look at, beside thresholds."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple


class Level(enum.IntEnum):
    """How bad a finding is; as a number the exit status of a check, as monitors have it."""

    OK = 0
    WARNING = 1
    CRITICAL = 2


class StatusFinding(NamedTuple):
    """Something that somebody should look at."""

    level: Level
    text: str


class Threshold(NamedTuple):
    """From where on a number is a warning, and where it is critical; None: never."""

    warning: float | None = None
    critical: float | None = None

    def level(self, number: float) -> Level:
        """Return how bad the number is."""
        if self.critical is not None and number >= self.critical:
            return Level.CRITICAL
        is_warning = self.warning is not None and number >= self.warning
        return Level.WARNING if is_warning else Level.OK


class Thresholds(NamedTuple):
    """The thresholds of a check."""

    used_percent: Threshold = Threshold(80, 95)  # of a queue's capacity
    waiting: Threshold = Threshold()  # messages of a queue that are not read
    lag_seconds: Threshold = Threshold(60, 600)  # of the archive
    prepared_seconds: Threshold = Threshold(3600, 86400)  # age of a prepared transaction


def findings(status: Mapping[str, Any], thresholds: Thresholds) -> list[StatusFinding]:
    """Return what somebody should look at, the worst first."""
    found = [
        *_of_store(status),
        *_of_archive(status.get("archive", {}), thresholds),
        *_of_queues(status, thresholds),
        *_of_prepared(status, thresholds),
    ]
    return sorted((each for each in found if each.level), key=lambda each: -each.level)


def _of_store(status: Mapping[str, Any]) -> Iterator[StatusFinding]:
    disk = status["disk"]
    if status["failed"]:
        yield StatusFinding(Level.CRITICAL, "a write or sync has failed: commits are refused")
    if disk["level"] == "full" or not status["kept_back"]["whole"]:
        free = disk["free_bytes"]
        yield StatusFinding(
            Level.CRITICAL, f"the disk is full, and puts are refused ({free} bytes free)"
        )
    elif disk["level"] == "low":
        yield StatusFinding(Level.WARNING, f"the disk fills up ({disk['free_bytes']} bytes free)")
    if status["maintenance_error"] is not None:
        yield StatusFinding(Level.WARNING, f"the maintenance fails: {status['maintenance_error']}")


def _of_archive(archive: Mapping[str, Any], thresholds: Thresholds) -> Iterator[StatusFinding]:
    if not archive:
        return
    if archive["puts_wait"]:
        yield StatusFinding(Level.CRITICAL, "puts wait for the archive")
    if archive["error"]:
        yield StatusFinding(
            Level.WARNING, f"nothing can be shipped to the archive: {archive['error']}"
        )
    if archive["gap_since"]:
        yield StatusFinding(Level.WARNING, f"the archive has a gap since {archive['gap_since']}")
    lag = archive["lag_seconds"]
    text = f"the archive is {lag:.0f} s behind"
    yield StatusFinding(thresholds.lag_seconds.level(lag), text)


def _of_queues(status: Mapping[str, Any], thresholds: Thresholds) -> Iterator[StatusFinding]:
    for queue in status["queues"]:
        percent = 100 * queue["used_bytes"] / queue["capacity_bytes"]
        text = f"queue {queue['name']} is {percent:.0f} % full"
        yield StatusFinding(thresholds.used_percent.level(percent), text)
        text = f"{queue['messages']} messages wait in queue {queue['name']}"
        yield StatusFinding(thresholds.waiting.level(queue["messages"]), text)
    for reader in status["subscriptions"]:
        if reader["spent"]:
            source = "/".join(filter(None, (reader["queue"], reader["name"])))
            text = f"{reader['spent']} messages of {source} cannot become dead letters"
            yield StatusFinding(Level.WARNING, text)


def _of_prepared(status: Mapping[str, Any], thresholds: Thresholds) -> Iterator[StatusFinding]:
    for prepared in status["prepared"]:
        age = prepared["age_seconds"]
        text = f"transaction {prepared['xid']} is prepared since {age:.0f} s, and not decided"
        yield StatusFinding(thresholds.prepared_seconds.level(age), text)
