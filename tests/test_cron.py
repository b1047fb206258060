"""Due times of cron texts: time zones, the change to summer time and back, looking back."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from quire.definitions.cron import NICKNAMES, DueTimes
from quire.errors import InvalidArgument

BERLIN = "Europe/Berlin"


def us(text: str, zone: str = "UTC") -> int:
    """A moment in microseconds since the epoch."""
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * 1_000_000


def next_times(cron: str, start: str, count: int, zone: str = BERLIN) -> list[str]:
    """So many due times after the start, in UTC."""
    times, found = DueTimes(cron, zone), []
    at: int | None = us(start, zone)
    for _ in range(count):
        assert at is not None
        at = times.after(at)
        assert at is not None
        found.append(f"{datetime.fromtimestamp(at / 1e6, UTC):%d %H:%M}")
    return found


def test_a_time_of_day_is_one_of_its_zone() -> None:
    """A time of day is one of its zone, not of the machine."""
    assert next_times("30 2 * * MON-FRI", "2026-01-02 00:00", 3) == [
        "02 01:30",
        "05 01:30",
        "06 01:30",
    ]
    assert next_times("30 2 * * *", "2026-01-02 00:00", 1, "Asia/Tokyo") == ["01 17:30"]
    assert next_times("30 2 * * *", "2026-01-02 02:30", 1, "UTC") == ["03 02:30"]


def test_the_change_to_summer_time() -> None:
    """What is at a time that is left out is due right after it, and once."""
    assert next_times("30 2 * * *", "2026-03-28 12:00", 2) == ["29 01:00", "30 00:30"]
    assert next_times("0 2,3 * * *", "2026-03-28 12:00", 3) == ["29 01:00", "30 00:00", "30 01:00"]
    assert next_times("*/30 * * * *", "2026-03-29 01:00", 3) == ["29 00:30", "29 01:00", "29 01:30"]


def test_the_change_back() -> None:
    """What is at a time that comes twice is due the first time; what is every so often, in both."""
    assert next_times("30 2 * * *", "2026-10-24 12:00", 2) == ["25 00:30", "26 01:30"]
    hours = ["25 00:00", "25 00:30", "25 01:00", "25 01:30", "25 02:00"]
    assert next_times("*/30 * * * *", "2026-10-25 01:30", 5) == hours
    assert DueTimes("30 2 * * *", BERLIN).after(us("2026-10-25 00:45")) == us("2026-10-26 01:30")


def test_seconds_and_nicknames() -> None:
    """Six fields begin with the second."""
    times = DueTimes("*/20 * * * * *", "UTC")
    assert times.latest(0, 60_000_000, 9) == [20_000_000, 40_000_000, 60_000_000]
    assert times.after(20_000_000 - 1) == 20_000_000
    assert times.after(20_000_000) == 40_000_000
    for nickname, text in NICKNAMES.items():
        assert DueTimes(nickname.upper(), "UTC").after(0) == DueTimes(text, "UTC").after(0)


@pytest.mark.parametrize(
    "cron",
    ["* * * * *", "*/7 3 * * *", "0 0 1 1 *", "15 2,14 * * SUN", "*/15 * * * * *", "0 0 L * *"],
)
def test_looking_back_finds_the_same(cron: str, seed: int) -> None:
    """As looking forwards from the beginning, however many are asked for."""
    rng = random.Random(seed)
    times = DueTimes(cron, BERLIN)
    start = us("2026-03-29 00:00") - 7_200_000_000
    end = start + rng.randrange(6 * 3600, 9 * 3600) * 1_000_000
    forwards = []
    at = times.after(start)
    while at is not None and at <= end:
        forwards.append(at)
        at = times.after(at)
    assert all(first < second for first, second in pairwise(forwards))
    for most in (1, 3, 100, 10_000):
        assert times.latest(start, end, most) == forwards[-most:]
    assert times.latest(end, start, 5) == []


def test_what_is_never_due() -> None:
    """Or not any more before the calendar ends."""
    fifth_monday = DueTimes("0 0 * 2 MON#5", "UTC")
    assert fifth_monday.after(us("2073-01-01")) == us("2112-02-29")
    assert DueTimes("0 0 * * *", "UTC").after(us("9999-12-31")) is None
    assert DueTimes("0 0 * * *", BERLIN).after(1 << 62) is None


@pytest.mark.promise(13)
def test_wrong_ones_are_refused() -> None:
    """Wrong ones are refused, and the error says how it is written."""
    wrong: list[Any] = [
        "", "* * * *", "60 * * * *", "a b c d e", "* * 31 2 *", "* * 30 2 *", "@never", None, 5,
        "* " * 300, "0 0 0 * *", "1-0 * * * *", "*/0 * * * *", "١ * * * *", "-1 * * * *",
    ]  # fmt: skip
    for cron in wrong:
        with pytest.raises(InvalidArgument, match="cron"):
            DueTimes(cron, "UTC")
    zones: list[Any] = ["Mars/Base", "", "../etc/passwd", "/etc/passwd", None, 3, "Europe", "\0"]
    for zone in zones:
        with pytest.raises(InvalidArgument, match="timezone"):
            DueTimes("* * * * *", zone)
